-- fwd_plan.lua - what the plans of attention forward share.
-- SPDX-License-Identifier: BSD-3-Clause

local M = {}

M.most_shared = 232448 -- bytes that a block of sm_90a can have

function M.ceil_div(a, b) return (a + b - 1) // b end
function M.round_up(a, b) return M.ceil_div(a, b) * b end

-- Registers that a block of this many threads starts with: 64 K shared out, in eights.
function M.entry_registers(threads)
    return math.min(65536 // threads // 8 * 8, 248)
end

function M.refuse(c, name, rule, ...)
    error(("%s: %s = %s: " .. rule):format(c.family, name, c[name], ...), 0)
end

function M.is_formula(c) return c.mask ~= "none" and c.mask ~= "causal" end

-- What a template takes for granted, whatever a spec lists, and whichever rules it leaves out: the
-- words and ranges that it has code for.
function M.check(c, words, ranges)
    if M.is_formula(c) and not c.formulas[c.mask] then
        M.refuse(c, "mask", "the template has no code for it")
    end
    for i = 1, #words do
        local name = words[i][1]
        if not words[i][c[name]] then M.refuse(c, name, "the template has no code for it") end
    end
    for i = 1, #ranges do
        local r = ranges[i]
        local value = c[r[1]]
        if math.type(value) ~= "integer" or value < r[2] or value > r[3] or value % r[4] ~= 0 then
            M.refuse(c, r[1], "the template takes %d to %d in steps of %d", r[2], r[3], r[4])
        end
    end
    if c.tile_m ~= 64 * c.consumer_warpgroups then
        M.refuse(c, "tile_m", "%d consumers of 64 rows make a tile", c.consumer_warpgroups)
    end
end

-- The row tile of least estimated time, for a spec's preferences. A block of any kind has an SM for
-- itself, so what counts is how many rounds of blocks there are, and how long one takes: `costs`,
-- times of one round measured on an H200 (full mask, 4,096 keys, the best tile_n of each; only
-- their ratios matter). With a causal mask the blocks differ in length, warpgroups past the end
-- cost nothing, the longest goes first, and half a round is the unavoidable tail.
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
                local items = w.batch * w.heads * M.ceil_div(w.seq_q, rows)
                local half_rounds = 2 * M.ceil_div(items, sms) * sms
                if w.mask == "causal" then
                    local full = w.batch * w.heads * M.ceil_div(w.seq_q, 64) * 64 // rows
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
function M.multiplication(m)
    local count = m.n // 2
    m.registers = count
    m.operands = wrapped(0, count, 82, function(i) return "%" .. i end)
    m.operands[1] = "{" .. m.operands[1]
    m.operands[#m.operands] = m.operands[#m.operands] .. "}, "
    m.outputs = wrapped(0, count, 84, function(i) return ('"+f"(d[%d])'):format(i) end)
    return m
end

-- The launch record's lines, but for its maps.
function M.launch(c, p, name)
    return {
        "scratch 8",
        ("set tile_m %d"):format(c.tile_m),
        ("set section_mb %d"):format(c.section_mb),
        ("set dynamic %d"):format(c.schedule == "dynamic" and 1 or 0),
        ("kernel %s"):format(name),
        "params fwd",
        ("threads %d"):format(p.threads),
        ("shared %d"):format(p.shared_bytes),
        "cluster 1",
    }
end

M.schedules = {
    static = "work items are dealt to the blocks in turn",
    dynamic = "each block takes the next work item from a counter",
}

-- What `explain` says of every plan: the first lines, and how the wgmma are told.
function M.explain(c, p)
    return {
        {"tile", ("%d query rows x %d keys"):format(c.tile_m, c.tile_n)},
        {"consumers", ("%d warpgroups of 64 rows, %d registers a thread; 1 producer warpgroup, %d")
            :format(c.consumer_warpgroups, c.registers_c, c.registers_p)},
        {"ring", ("%d slots of %d bytes: K and V tiles, in turn"):format(c.stages, p.slot_bytes)},
        {"shared memory", ("%d bytes: Q %d (%d stages), ring %d, O %d, barriers"):format(
            p.shared_bytes, p.q_bytes, p.q_stages, p.ring_bytes, p.o_bytes)},
    }
end

return M
