-- fwd8.lua - the plan of attention forward of 8-bit tensors: what differs from fwd.lua.
-- SPDX-License-Identifier: BSD-3-Clause
--
-- V comes transposed, as wgmma wants 8-bit operands: rows of keys, which are permuted within each
-- 16 so that P's accumulators are its operand as they lie (device/e4m3.cuh). Two levels of sums: a
-- tile's P V is summed by the tensor core, in which 13 bits are kept, and the tiles in fp32. Where
-- a second output does not fit beside the first, P V is made in parts of its columns.

local M = {}
local shared = part "fwd_plan"
local ceil_div, round_up = shared.ceil_div, shared.round_up

local words = {{"dtype", e4m3 = 1, e5m2 = 1}, {"out_dtype", bf16 = 1, fp16 = 1},
    {"softmax", exact = 1, optimistic = 1}, {"schedule", static = 1, dynamic = 1},
    {"levels", one = 1, two = 1}}
local ranges = {{"head_dim", 16, 256, 16}, {"head_dim_v", 16, 256, 16}, {"tile_n", 32, 256, 32},
    {"stages", 2, 64, 1}, {"consumer_warpgroups", 1, 7, 1}, {"registers_p", 24, 256, 8},
    {"registers_c", 24, 256, 8}}

-- Bytes of a row of a panel: the widest swizzle that they fill.
local function span_of_keys(n)
    return n % 128 == 0 and 128 or n % 64 == 0 and 64 or 32
end

local function span_of_dims(d)
    return d <= 32 and 32 or d <= 64 and 64 or 128
end

function M.plan(c)
    shared.check(c, words, ranges)
    local p = {bits = 8, levels = c.levels == "two" and 2 or 1}
    local consumers, barriers = c.consumer_warpgroups, 2 * 8
    p.threads = 128 * (consumers + 1)
    p.qk_columns = span_of_dims(c.head_dim)
    p.qk_panels = ceil_div(c.head_dim, p.qk_columns)
    p.k_steps = ceil_div(c.head_dim, 32)
    p.v_columns = span_of_keys(c.tile_n)
    p.v_panels = c.tile_n // p.v_columns
    p.k_bytes = p.qk_panels * c.tile_n * p.qk_columns
    p.v_bytes = c.head_dim_v * c.tile_n
    p.slot_bytes = round_up(math.max(p.k_bytes, p.v_bytes), 1024)
    p.ring_bytes = c.stages * p.slot_bytes
    p.o_stages = math.min(2, ceil_div(c.head_dim_v, 64))
    p.o_bytes = consumers * 4 * p.o_stages * 16 * 128
    local others = p.ring_bytes + p.o_bytes + c.stages * barriers +
        (c.schedule == "dynamic" and 2 * (barriers + 4) or 0) +
        (shared.is_formula(c) and 8 * c.stages or 0)
    local q_buffer = p.qk_panels * 64 * p.qk_columns
    local room = others + 2 * consumers * (q_buffer + barriers) <= shared.most_shared
    p.q_stages = room and 2 or 1
    p.q_bytes = consumers * p.q_stages * q_buffer
    p.shared_bytes = round_up(others + p.q_bytes + consumers * p.q_stages * barriers, 1024)
    -- Scores, probabilities and output, with a part of a tile's while it is made, with temporaries
    -- while it is not; the rest is addresses, rows, and what an exact maximum is found with.
    p.parts, p.part_columns = 1, c.head_dim_v
    local held = c.tile_n // 2 + c.tile_n // 8 + c.head_dim_v // 2 +
        (c.softmax == "exact" and 32 or 24)
    p.needed_registers = held + 8
    if p.levels == 2 then
        for parts = 1, c.head_dim_v // 8 do
            if c.head_dim_v % (8 * parts) == 0 then
                p.parts, p.part_columns = parts, c.head_dim_v // parts
                if held + p.part_columns // 2 <= c.registers_c then break end
            end
        end
        p.needed_registers = held + math.max(8, p.part_columns // 2)
    end
    p.looking_registers = shared.is_formula(c) and 56 or 24
    p.register_pool = shared.entry_registers(p.threads) * p.threads
    p.register_sum = 128 * (c.registers_p + consumers * c.registers_c)
    p.row_group = 64 -- rows are dealt to tiles by consumers
    p.pingpong = consumers > 1 and 1 or 0
    return p
end

M.guides, M.guide = {"tile_rows"}, shared.guide

-- What the template needs beside the plan: the wgmma shapes, and where P V goes.
function M.render(c, p)
    local s, o, two = c.tile_n // 2, p.part_columns // 2, p.levels == 2
    return {
        row_sums = "add",
        p_steps = c.softmax == "exact" and "-8.0f" or "-5.0f",
        pack = c.out_dtype == "bf16" and "pack_bf16" or "pack_fp16",
        sums = two and "part" or "out",
        sums_regs = two and "part_regs" or "o_regs",
        last_part = p.parts > 1 and " + (parts - 1) * part_step" or "",
        multiplications = {
            shared.multiplication {
                name = "wgmma_qk", array = "s_regs", n = c.tile_n, k = 32, a = c.dtype,
                b = c.dtype,
                what = ("D (64 x %d) = or += A B^T, 32 columns; both in shared memory.")
                    :format(c.tile_n),
                arguments = "u64 a, u64 b, int add",
                setup = (".reg .pred p; setp.ne.b32 p, %%%d, 0;\\n"):format(s + 2),
                tail = ("%%%d, %%%d, p, 1, 1"):format(s, s + 1),
                inputs = '"l"(a), "l"(b), "r"(add)',
            },
            shared.multiplication {
                name = "wgmma_pv", array = "part_regs", n = p.part_columns, k = 32, a = "e4m3",
                b = c.dtype,
                what = ("D (64 x %d) = or += A B^T, 32 keys; A in registers, B's columns are keys.")
                    :format(p.part_columns),
                arguments = "const u32 *a, u64 b, int add",
                setup = (".reg .pred p; setp.ne.b32 p, %%%d, 0;\\n"):format(o + 5),
                tail = ("{%%%d, %%%d, %%%d, %%%d}, %%%d, p, 1, 1")
                    :format(o, o + 1, o + 2, o + 3, o + 4),
                inputs = '"r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add)',
            },
        },
    }
end

function M.launch(c, p, name)
    local list = shared.launch(c, p, name)
    for _, map in ipairs {
        ("map q %d 64 %d"):format(p.qk_columns, p.qk_columns),
        ("map k %d %d %d"):format(p.qk_columns, c.tile_n, p.qk_columns),
        ("map v %d %d %d"):format(p.v_columns, c.head_dim_v, p.v_columns), "map o 64 16",
    } do
        list[#list + 1] = map
    end
    if p.levels == 1 then table.insert(list, 1, "axis precision fast") end
    if c.softmax == "optimistic" and p.levels == 2 then
        table.insert(list, 1, "axis precision balanced,fast")
    end
    return list
end

-- What each part means, for `explain`.
function M.explain(c, p)
    local softmax = {
        exact = "the running maximum is exact; P of it is 2^8",
        optimistic = "P of the maximum is 2^5; the old maximum is kept until a P reaches 2^8, then "
            .. "the tile is redone",
    }
    local levels = {
        one = "the tensor core sums over all keys, in 13 bits: biased where V has a mean",
        two = ("a tile is summed by the tensor core, the tiles in fp32; P V in %d parts of %d "
            .. "columns"):format(p.parts, p.part_columns),
    }
    local lines = shared.explain(c, p)
    for _, line in ipairs {
        {"softmax", softmax[c.softmax]},
        {"schedule", shared.schedules[c.schedule]},
        {"sums", levels[c.levels]},
        {"wgmma", ("m64n%dk32 x %d for Q K^T, m64n%dk32 x %d for P V, a tile"):format(
            c.tile_n, p.k_steps, p.part_columns, p.parts * c.tile_n // 32)},
    } do
        lines[#lines + 1] = line
    end
    return lines
end

return M
