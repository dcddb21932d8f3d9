-- quantize.lua - the plan of quantisation: 16-bit tensors to 8 bits and their scales.
-- SPDX-License-Identifier: BSD-3-Clause
--
-- One kernel in three launches: it clears the scales, raises each to amax / (largest value) by
-- atomics, and converts. V's rows of keys are turned in shared memory, `rows` keys at a time.

local M = {}

function M.plan(c)
    -- Bytes of a turned row; each starts in banks of its own.
    local pitch = c.rows + 16
    return {pitch = pitch, shared_bytes = 256 * pitch}
end

function M.render(c)
    return {
        cvt = c.out_dtype == "bf16" and "bf16" or "f16",
        most = c.dtype == "e4m3" and "448.0f" or "57344.0f",
    }
end

function M.launch(c, p, name)
    return {"set tile_m " .. c.rows, "set phases 3", "kernel " .. name, "params quantize",
        "threads " .. c.threads, "shared " .. p.shared_bytes}
end

-- What each part means, for `explain`.
function M.explain(c)
    return {
        {"item", ("%d rows of a batch and head"):format(c.rows)},
        {"launches", "scales cleared; raised to amax; elements converted"},
    }
end

return M
