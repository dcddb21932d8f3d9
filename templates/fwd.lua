-- fwd.lua - the plan of attention forward: the numbers that follow from a candidate.
-- SPDX-License-Identifier: BSD-3-Clause
--
-- One warpgroup produces (TMA), `consumer_warpgroups` consume, 64 query rows each. K and V tiles
-- share one ring of slots, in the order K(n-1) V(n-1) K(n-2) …; Q has a buffer per consumer, or two
-- where short tiles of keys leave room, so that the next rows are there before these are done (2 %
-- at head_dim 64, 512 rows; buffers that all used in turn would let a wait take one phase for
-- another); each warp stages its 16 output rows in a buffer of its own, so that a tile's store
-- overlaps the next.

local M = {}
local shared = part "fwd_plan"
local ceil_div, round_up = shared.ceil_div, shared.round_up

local panel_columns = 64 -- 128-byte rows of 16-bit elements: the span of the swizzle

-- What the template takes for granted, whatever a spec lists, and whichever rules it leaves out.
local words = {{"dtype", bf16 = 1, fp16 = 1},
    {"softmax", exact = 1, lazy = 1, optimistic = 1}, {"schedule", static = 1, dynamic = 1},
    {"row_sums", add = 1, wgmma = 1}}
local ranges = {{"head_dim", 8, 256, 8}, {"head_dim_v", 8, 256, 8}, {"tile_n", 16, 256, 16},
    {"stages", 2, 64, 1}, {"consumer_warpgroups", 1, 7, 1}, {"registers_p", 24, 256, 8},
    {"registers_c", 24, 256, 8}}

local function check(c)
    shared.check(c, words, ranges)
    if c.score ~= "none" and not c.scores[c.score] then
        shared.refuse(c, "score", "the template has no code for it")
    end
    local ones = c.row_sums == "wgmma"
    if ones and (c.head_dim_v ~= 64 or c.dtype ~= "bf16" or c.softmax ~= "optimistic") then
        shared.refuse(c, "row_sums", "the panel of ones is for head_dim_v 64, bf16 and optimistic")
    end
end

-- Tensors of the mask whose blocks' least and largest elements a kernel keeps: so many blocks each,
-- which are of more elements where there are more.
local listed_blocks = 1024
local function tables(c)
    local n = 0
    for _, t in ipairs(shared.is_formula(c) and c.formulas[c.mask].tensors or {}) do
        n = n + (t.listed and 1 or 0)
    end
    return n
end

local function has_tensors(c) return #(c.formulas[c.mask].tensors or {}) > 0 end

function M.plan(c)
    check(c)
    local p = {}
    local panel_row_bytes = 128
    p.threads = 128 * (c.consumer_warpgroups + 1)
    p.qk_panels = ceil_div(c.head_dim, panel_columns)
    p.v_panels = ceil_div(c.head_dim_v, panel_columns)
    p.k_steps = ceil_div(c.head_dim, 16)
    p.slot_panels = math.max(p.qk_panels, p.v_panels)
    p.slot_bytes = p.slot_panels * c.tile_n * panel_row_bytes
    p.o_stages = math.min(2, p.v_panels)
    p.o_bytes = c.consumer_warpgroups * 4 * p.o_stages * 16 * panel_row_bytes
    p.ring_bytes = c.stages * p.slot_bytes
    p.ones_bytes = c.row_sums == "add" and 0 or 16 * panel_row_bytes
    local consumers, barriers = c.consumer_warpgroups, 2 * 8
    local others = p.ring_bytes + p.ones_bytes + p.o_bytes + c.stages * barriers +
        (c.schedule == "dynamic" and 2 * (barriers + 4) or 0) +
        (shared.is_formula(c) and 8 * c.stages or 0) + tables(c) * 8 * listed_blocks
    local q_buffer = p.qk_panels * 64 * panel_row_bytes
    local room = others + 2 * consumers * (q_buffer + barriers) <= shared.most_shared
    p.q_stages = c.tile_n == 64 and room and 2 or 1
    p.q_bytes = consumers * p.q_stages * q_buffer
    p.shared_bytes = round_up(others + p.q_bytes + consumers * p.q_stages * barriers, 1024)
    p.score_registers = c.tile_n // 2
    p.out_registers = c.head_dim_v // 2
    p.pv_columns = c.head_dim_v + (c.row_sums == "wgmma" and 8 or 0) -- V's, and ones
    -- Scores, probabilities and output live together; the rest is addresses, rows and temporaries,
    -- or four sums in place of those that adding needs.
    p.needed_registers = p.score_registers + p.score_registers // 2 + p.out_registers +
        32
    p.looking_registers = not shared.is_formula(c) and 24 or has_tensors(c) and 80 or 56
    p.register_pool = shared.entry_registers(p.threads) * p.threads
    p.register_sum = 128 * (c.registers_p + c.consumer_warpgroups * c.registers_c)
    p.bits, p.qk_columns, p.levels, p.parts = 16, panel_columns, 1, 1
    p.row_group = 64 -- rows are dealt to tiles by consumers
    p.pingpong = c.consumer_warpgroups > 1 and 1 or 0
    return p
end

M.guides, M.guide = {"tile_rows"}, shared.guide

-- What the template needs beside the plan: the wgmma shapes and the element type's spelling.
function M.render(c, p)
    local element = c.dtype == "bf16" and "bf16" or "f16"
    local s, o = p.score_registers, p.pv_columns // 2
    return {
        listed_blocks = listed_blocks,
        pack = c.dtype == "bf16" and "pack_bf16" or "pack_fp16",
        sums = "out", sums_regs = "o_regs", last_part = "", -- where P V goes
        -- P may grow to this before the maximum is raised: bf16 and fp32 sums have the range, fp16
        -- ends at 65504.
        sum_limit = c.dtype == "bf16" and "4294967296.0f" or "32768.0f",
        multiplications = {
            shared.multiplication {
                name = "wgmma_qk", array = "s_regs", n = c.tile_n, k = 16, a = element, b = element,
                what = ("D (64 x %d) = or += A B^T, 16 columns; both in shared memory.")
                    :format(c.tile_n),
                arguments = "u64 a, u64 b, int add",
                setup = (".reg .pred p; setp.ne.b32 p, %%%d, 0;\\n"):format(s + 2),
                tail = ("%%%d, %%%d, p, 1, 1, 0, 0"):format(s, s + 1),
                inputs = '"l"(a), "l"(b), "r"(add)',
            },
            shared.multiplication {
                name = "wgmma_pv", array = "o_regs", n = p.pv_columns, k = 16, a = element,
                b = element,
                what = ("D (64 x %d) += A B, 16 keys; A in registers, B's rows are keys.")
                    :format(p.pv_columns),
                arguments = "const u32 *a, u64 b",
                setup = "",
                tail = ("{%%%d, %%%d, %%%d, %%%d}, %%%d, 1, 1, 1, 1")
                    :format(o, o + 1, o + 2, o + 3, o + 4),
                inputs = '"r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)',
            },
        },
    }
end

function M.launch(c, p, name)
    local list = shared.launch(c, p, name)
    for _, map in ipairs {
        ("map q %d 64"):format(panel_columns), ("map k %d %d"):format(panel_columns, c.tile_n),
        ("map v %d %d"):format(panel_columns, c.tile_n), ("map o %d 16"):format(panel_columns),
    } do
        list[#list + 1] = map
    end
    if c.row_sums == "wgmma" then table.insert(list, 1, "axis lse no") end
    return list
end

-- What each part means, for `explain`.
function M.explain(c, p)
    local softmax = {
        exact = "the running maximum is exact",
        lazy = "the maximum is raised, and the output rescaled, only when it grows by 2^8 or more",
        optimistic = "the old maximum is kept until a row sum overflows a threshold; then the tile "
            .. "is redone",
    }
    local row_sums = {
        add = "of P before it is rounded, by additions",
        wgmma = "of the rounded P, by eight columns of ones behind V: not exact enough for an LSE",
    }
    local lines = shared.explain(c, p)
    for _, line in ipairs {
        {"softmax", softmax[c.softmax]},
        {"schedule", shared.schedules[c.schedule]},
        {"row sums", row_sums[c.row_sums]},
        {"wgmma", ("m64n%dk16 x %d for Q K^T, m64n%dk16 x %d for P V, a tile"):format(
            c.tile_n, p.k_steps, p.pv_columns, c.tile_n // 16)},
    } do
        lines[#lines + 1] = line
    end
    return lines
end

return M
