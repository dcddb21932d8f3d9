-- tuned.lua - tables of measured choices: read, and asked for the entry nearest to a problem.
-- SPDX-License-Identifier: BSD-3-Clause
--
-- A table is a YAML file with the key `tuned`; it serves every GPU of its arch and says which one
-- it was measured on. An entry is one line:
--   {problem: head_dim=… dtype=… mask=… heads=… seq_q=…, use: NAME, section_mb: N, us: T,
--    runner_up: {name: NAME, section_mb: N, us: T}}
-- Read, it is {place, values = the problem's, name, numbers, us, runner_up}; a table is
-- {name, path, arch, gpu, entries}.

local candidate = require "candidate"
local common = require "common"
local reader = require "reader"

local M = {}

local shape = {{"tuned", true}, {"arch", true}, {"gpu", true}, {"sms", true}, {"driver", true},
    {"nvrtc", true}, {"date", true}, {"commit", true}, {"entries", true}}
local entry_shape = {{"problem", true}, {"use", true}, {"section_mb"}, {"us", true}, {"runner_up"}}
local runner_up_shape = {{"name", true}, {"section_mb"}, {"us", true}}

function M.is_table(tree)
    for _, pair in ipairs(tree.kind == "map" and tree or {}) do
        if pair.key == "tuned" then return true end
    end
    return false
end

local function time(x, node, thing)
    local us = node.text and node.text:find("^%d+%.?%d*$") and tonumber(node.text)
    if us and us > 0 then return us end
    x:expected(node, thing, "a time in microseconds")
end

-- The problem's words, all of them; the layout, which changes nothing, need not be said.
local function words(x, node)
    local text = x:text(node, "problem")
    if not text then return nil end
    if not text:find("layout=", 1, true) then text = text .. " layout=bshd" end
    local good, whole = pcall(problem, text)
    if type(whole) ~= "table" and not good then error(whole, 0) end
    if not good then return x:fail(node, "%s", whole[2]) end
    local values = {}
    for key, value in whole:gmatch("(%S+)=(%S+)") do
        values[key] = math.tointeger(tonumber(value)) or value
    end
    values.key = whole:gsub("layout=%S+ ", "")
    return values
end

local function numbers(x, pair)
    local n = pair and x:int(pair.value, "section_mb")
    return {section_mb = n}
end

local function read_entry(x, node)
    local got = x:record(node, "entry", entry_shape)
    local e = {place = node, numbers = numbers(x, got.section_mb)}
    e.values = got.problem and words(x, got.problem.value)
    e.name = got.use and x:text(got.use.value, "use")
    e.us = got.us and time(x, got.us.value, "us")
    if got.runner_up then
        local second = x:record(got.runner_up.value, "runner_up", runner_up_shape)
        e.runner_up = {numbers = numbers(x, second.section_mb)}
        e.runner_up.name = second.name and x:text(second.name.value, "name")
        e.runner_up.us = second.us and time(x, second.us.value, "us")
    end
    return e
end

-- Adds the table to the list; raises all its errors.
function M.add(tables, path, tree, errors, is_users)
    local x = reader.new(path, errors)
    local got, seen = x:record(tree, "table", shape), {}
    local t = {path = path, users = is_users, entries = {}}
    for _, key in ipairs {"arch", "gpu", "driver", "nvrtc", "date", "commit"} do
        t[key] = got[key] and x:text(got[key].value, key)
    end
    t.name = got.tuned and x:word(got.tuned.value, "tuned")
    t.sms = got.sms and x:int(got.sms.value, "sms")
    local list = got.entries and got.entries.value or {}
    if got.entries and list.kind ~= "list" then x:expected(list, "entries", "a list of entries") end
    for i, node in ipairs(list.kind == "list" and list or {}) do
        local e = read_entry(x, node)
        t.entries[i] = e
        local key = e.values and e.values.key
        if key and seen[key] then
            x:fail(node, "entry: the problem of line %d again", seen[key])
        elseif key then
            seen[key] = node.line
        end
    end
    x:finish()
    local at = #tables + 1
    for i, old in ipairs(tables) do
        if old.name == t.name then at = i end
    end
    tables[at] = t
end

-- ---- asking ----

-- The entry's candidate made for these values, or nil and why there is none: another 16-bit type
-- takes the same knobs.
local function legal(spec, e, values)
    local c, why = candidate.parse_as(spec, e.name)
    if not c then return nil, why end
    for _, field in ipairs(spec.fields) do
        local same = field.role ~= "axis" or c[field.name] == values[field.name]
        if not same and field.name ~= "dtype" then
            return nil, ("%s is for %s=%s, the problem has %s"):format(e.name, field.name,
                c[field.name], values[field.name])
        end
    end
    for _, field in ipairs(spec.fields) do
        local own = field.role == "launch axis" or field.name == "dtype"
        if own then c[field.name] = values[field.name] end
    end
    why = candidate.illegal(spec, c)
    if why then return nil, why end
    for name, value in sorted(e.numbers) do
        local number = spec.launch_by[name]
        if not number or not common.allowed(number, value) then
            return nil, ("%s=%d: %s"):format(name, value, number and
                spec.name .. " takes " .. common.values_text(number) or "no such launch number")
        end
    end
    return c
end

local sms, rows, most = 132, 128, 1.0

-- What the number r of rounds of row tiles is worth: with many of them a part of a round counts
-- little, and below one each halving leaves half of the SMs idle.
local function fill(v)
    local r = v.batch * v.heads * ((v.seq_q + rows - 1) // rows) / sms
    return r >= 1 and 2 / r or 2 - math.log(r, 2)
end

-- 0 for the same sizes; 1 for a length of twice or half. Beyond `most` an entry tells nothing.
local function distance(a, b)
    local function ratio(x, y) return math.abs(math.log(x / y, 2)) end
    return ratio(a.seq_q, b.seq_q) + ratio(a.seq_k, b.seq_k) +
        ratio(a.heads // a.kv_heads, b.heads // b.kv_heads) +
        math.abs(fill(a) - fill(b))
end

local function comparable(spec, e, values)
    for _, field in ipairs(spec.fields) do
        if field.role == "axis" and field.name ~= "dtype" and
            e.values[field.name] ~= values[field.name] then
            return false
        end
    end
    return e.values.variant == values.variant
end

local function says(e, t, far, exact)
    local where = ("%s:%d, measured on %s"):format(t.path, e.place.line, t.gpu)
    local how = exact and ("table %s: %g us"):format(where, e.us) or
        ("nearest entry %s in %s, at distance %.2f"):format(where, e.values.dtype, far)
    local second = e.runner_up
    if not second then return how end
    local number, lost = second.numbers.section_mb, 100 * (second.us / e.us - 1)
    return ("%s; next %s%s, %.1f %% %s"):format(how, second.name,
        number and " section_mb=" .. number or "", math.abs(lost),
        lost < 0 and "faster, a tie" or "slower")
end

local function same(a, b)
    for _, word in ipairs {"batch", "heads", "kv_heads", "seq_q", "seq_k", "dtype", "lse"} do
        if a[word] ~= b[word] then return false end
    end
    return true
end

-- {c, numbers, by} of the nearest entry that the spec allows, or nil; of equally near ones the same
-- dtype's first, then the same LSE's, then the table's that was read last, then the table's first.
-- A user's own spec is served by the user's tables alone.
function M.pick(tables, spec, values)
    local best, least
    for i = #tables, 1, -1 do
        local t = tables[i]
        local serves = t.arch == spec.arch and (t.users or not spec.users)
        for _, e in ipairs(serves and t.entries or {}) do
            local far = comparable(spec, e, values) and distance(values, e.values)
            local other = (e.values.dtype ~= values.dtype and 2e-9 or 0) +
                (e.values.lse ~= values.lse and 1e-9 or 0)
            if far and far <= most and (not least or far + other < least) then
                local c = legal(spec, e, values)
                if c then
                    least = far + other
                    local exact = same(e.values, values)
                    best = {c = c, numbers = e.numbers, by = says(e, t, far, exact)}
                end
            end
        end
    end
    return best
end

-- Raises an error for each entry that no spec allows: `pick` passes over it.
function M.check(tables, specs)
    for _, t in ipairs(tables) do
        local x = reader.new(t.path, {})
        for _, e in ipairs(t.entries) do
            local spec, why = rawget(specs.by, e.values.variant), "there is no such variant"
            local c
            if spec then c, why = legal(spec, e, e.values) end
            if not c then x:fail(e.place, "entry: dead: %s", why) end
            local second = c and e.runner_up
            if second then c, why = legal(spec, second, e.values) end
            if second and not c then x:fail(e.place, "entry: runner_up: dead: %s", why) end
        end
        x:finish()
    end
end

return M
