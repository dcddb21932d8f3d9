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

local panel_columns = 64 -- 128-byte rows of 16-bit elements: the span of the swizzle
local most_shared = 232448 -- bytes that a block of sm_90 can have

local function ceil_div(a, b) return (a + b - 1) // b end
local function round_up(a, b) return ceil_div(a, b) * b end

-- Registers that a block of this many threads starts with: 64 K shared out, in eights.
local function entry_registers(threads)
    return math.min(65536 // threads // 8 * 8, 248)
end

-- What the template takes for granted, whatever a spec lists, and whichever rules it leaves out.
local words = {{"dtype", bf16 = 1, fp16 = 1},
    {"softmax", exact = 1, lazy = 1, optimistic = 1}, {"schedule", static = 1, dynamic = 1},
    {"row_sums", add = 1, wgmma = 1}}
local ranges = {{"head_dim", 8, 256, 8}, {"head_dim_v", 8, 256, 8}, {"tile_n", 16, 256, 16},
    {"stages", 2, 64, 1}, {"consumer_warpgroups", 1, 7, 1}, {"registers_p", 24, 256, 8},
    {"registers_c", 24, 256, 8}}

local function refuse(c, name, rule, ...)
    error(("fwd: %s = %s: " .. rule):format(name, c[name], ...), 0)
end

local function is_formula(c) return c.mask ~= "none" and c.mask ~= "causal" end

local function check(c)
    if is_formula(c) and not c.formulas[c.mask] then
        refuse(c, "mask", "the template has no code for it")
    end
    if c.score ~= "none" and not c.scores[c.score] then
        refuse(c, "score", "the template has no code for it")
    end
    for i = 1, #words do
        local name = words[i][1]
        if not words[i][c[name]] then refuse(c, name, "the template has no code for it") end
    end
    for i = 1, #ranges do
        local r = ranges[i]
        local value = c[r[1]]
        if math.type(value) ~= "integer" or value < r[2] or value > r[3] or value % r[4] ~= 0 then
            refuse(c, r[1], "the template takes %d to %d in steps of %d", r[2], r[3], r[4])
        end
    end
    if c.tile_m ~= 64 * c.consumer_warpgroups then
        refuse(c, "tile_m", "%d consumers of 64 rows make a tile", c.consumer_warpgroups)
    end
    local ones = c.row_sums == "wgmma"
    if ones and (c.head_dim_v ~= 64 or c.dtype ~= "bf16" or c.softmax ~= "optimistic") then
        refuse(c, "row_sums", "the panel of ones is for head_dim_v 64, bf16 and optimistic")
    end
end

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
        (is_formula(c) and 8 * c.stages or 0)
    local q_buffer = p.qk_panels * 64 * panel_row_bytes
    local room = others + 2 * consumers * (q_buffer + barriers) <= most_shared
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
    p.looking_registers = is_formula(c) and 56 or 24
    p.register_pool = entry_registers(p.threads) * p.threads
    p.register_sum = 128 * (c.registers_p + c.consumer_warpgroups * c.registers_c)
    p.row_group = 64 -- rows are dealt to tiles by consumers
    p.pingpong = c.consumer_warpgroups > 1 and 1 or 0
    return p
end

-- The row tile of least estimated time, for a spec's preferences. A block of any kind has an SM for
-- itself, so what counts is how many rounds of blocks there are, and how long one takes: `costs`,
-- times of one round measured on an H200 (full mask, 4,096 keys, the best tile_n of each; only
-- their ratios matter). With a causal mask the blocks differ in length, warpgroups past the end
-- cost nothing, the longest goes first, and half a round is the unavoidable tail.
M.guides = {"tile_rows"}

local sms = 132
local costs = { -- by the larger head size: {rows, cost}…
    {64, {{256, 555}, {192, 425}, {128, 350}, {64, 252}}},
    {128, {{192, 620}, {128, 470}, {64, 360}}},
    {256, {{128, 850}, {64, 600}}},
}

function M.guide(w)
    -- A long key row costs shared memory alone, and up to 192 there is enough.
    local d = math.max(w.head_dim_v, w.head_dim <= 192 and math.min(w.head_dim, 128) or w.head_dim)
    local best, least
    for _, class in ipairs(costs) do
        if d <= class[1] then
            for _, pair in ipairs(class[2]) do
                local rows, cost = pair[1], pair[2]
                local items = w.batch * w.heads * ceil_div(w.seq_q, rows)
                local half_rounds = 2 * ceil_div(items, sms) * sms
                if w.mask == "causal" then
                    local full = w.batch * w.heads * ceil_div(w.seq_q, 64) * 64 // rows
                    half_rounds = math.max(2 * sms, full + sms)
                end
                local time = half_rounds * cost
                if not least or time < least then best, least = rows, time end
            end
            break
        end
    end
    return {tile_rows = best}
end

-- "%0, %1, …" or '"+f"(d[0]), …' wrapped to lines, without the last comma's line end.
local function wrapped(first, count, room, item)
    local lines, line = {}, ""
    for i = first, first + count - 1 do
        local piece = item(i) .. (i < first + count - 1 and ", " or "")
        if #line + #piece > room then
            lines[#lines + 1] = line:gsub(" $", "")
            line = ""
        end
        line = line .. piece
    end
    lines[#lines + 1] = line
    return lines
end

-- One wgmma shape for templates/parts/wgmma.in: D (64 x n, fp32); A in shared memory or registers.
local function multiplication(m)
    local count = m.n // 2
    m.registers = count
    m.operands = wrapped(0, count, 82, function(i) return "%" .. i end)
    m.operands[1] = "{" .. m.operands[1]
    m.operands[#m.operands] = m.operands[#m.operands] .. "}, "
    m.outputs = wrapped(0, count, 84, function(i) return ('"+f"(d[%d])'):format(i) end)
    return m
end

-- What the template needs beside the plan: the wgmma shapes and the element type's spelling.
function M.render(c, p)
    local element = c.dtype == "bf16" and "bf16" or "f16"
    local s, o = p.score_registers, p.pv_columns // 2
    return {
        pack = c.dtype == "bf16" and "pack_bf16" or "pack_fp16",
        -- P may grow to this before the maximum is raised: bf16 and fp32 sums have the range, fp16
        -- ends at 65504.
        sum_limit = c.dtype == "bf16" and "4294967296.0f" or "32768.0f",
        multiplications = {
            multiplication {
                name = "wgmma_qk", n = c.tile_n, type = element,
                what = ("D (64 x %d) = or += A B^T, 16 columns; both in shared memory.")
                    :format(c.tile_n),
                arguments = "u64 a, u64 b, int add",
                setup = (".reg .pred p; setp.ne.b32 p, %%%d, 0;\\n"):format(s + 2),
                tail = ("%%%d, %%%d, p, 1, 1, 0, 0"):format(s, s + 1),
                inputs = '"l"(a), "l"(b), "r"(add)',
            },
            multiplication {
                name = "wgmma_pv", n = p.pv_columns, type = element,
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
    local list = {
        "scratch 8",
        ("set tile_m %d"):format(c.tile_m),
        ("set section_mb %d"):format(c.section_mb),
        ("set dynamic %d"):format(c.schedule == "dynamic" and 1 or 0),
        ("kernel %s"):format(name),
        "params fwd",
        ("threads %d"):format(p.threads),
        ("shared %d"):format(p.shared_bytes),
        "cluster 1",
        ("map q %d 64"):format(panel_columns),
        ("map k %d %d"):format(panel_columns, c.tile_n),
        ("map v %d %d"):format(panel_columns, c.tile_n),
        ("map o %d 16"):format(panel_columns),
    }
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
    local schedule = {
        static = "work items are dealt to the blocks in turn",
        dynamic = "each block takes the next work item from a counter",
    }
    local row_sums = {
        add = "of P before it is rounded, by additions",
        wgmma = "of the rounded P, by eight columns of ones behind V: not exact enough for an LSE",
    }
    return {
        {"tile", ("%d query rows x %d keys"):format(c.tile_m, c.tile_n)},
        {"consumers", ("%d warpgroups of 64 rows, %d registers a thread; 1 producer warpgroup, %d")
            :format(c.consumer_warpgroups, c.registers_c, c.registers_p)},
        {"ring", ("%d slots of %d bytes: K and V tiles, in turn"):format(c.stages, p.slot_bytes)},
        {"shared memory", ("%d bytes: Q %d (%d stages), ring %d, O %d, barriers"):format(
            p.shared_bytes, p.q_bytes, p.q_stages, p.ring_bytes, p.o_bytes)},
        {"softmax", softmax[c.softmax]},
        {"schedule", schedule[c.schedule]},
        {"row sums", row_sums[c.row_sums]},
        {"wgmma", ("m64n%dk16 x %d for Q K^T, m64n%dk16 x %d for P V, a tile"):format(
            c.tile_n, p.k_steps, p.pv_columns, c.tile_n // 16)},
    }
end

return M
