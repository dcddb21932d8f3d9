-- cover.lua - candidates for tests to compile: few that cover axes and pairs of values, or all.
-- SPDX-License-Identifier: BSD-3-Clause

local candidate = require "candidate"

local M = {}

-- Every legal candidate at the axes' listed values.
function M.all(spec, out)
    candidate.search(spec, candidate.listed_domains(spec), function(c)
        out[#out + 1] = candidate.name(spec, c)
    end)
end

-- The number of each listed value of each field, from 0; at most 64 are allowed.
local function numbered(spec)
    local numbers = {}
    for i, field in ipairs(spec.fields) do
        numbers[i] = {}
        for n, value in ipairs(field.listed or field.values) do numbers[i][value] = n - 1 end
    end
    return numbers
end

-- The pairs of listed values that c has: a number for the two fields and the two values.
local function pairs_of(spec, numbers, c)
    local at, list, fields, n = {}, {}, spec.fields, 0
    for i = 1, #fields do
        local number = numbers[i][rawget(c, fields[i].name) or false] -- nil: a step, a launch axis
        at[i] = number or false
        for j = 1, number and i - 1 or 0 do
            if at[j] then
                n = n + 1
                list[n] = ((at[j] * 64 + number) * 64 + j) * 64 + i
            end
        end
    end
    return list
end

local function gain(list, had)
    local n = 0
    for i = 1, #list do
        if not had[list[i]] then n = n + 1 end
    end
    return n
end

local function take(list, had)
    for _, pair in ipairs(list) do had[pair] = true end
end

-- The steps of a range that are not listed, or the masks beside the family's own.
local function unlisted(field)
    local list, r, listed = {}, field.range, {}
    for _, value in ipairs(field.listed or field.values) do listed[value] = true end
    for _, value in ipairs(field.values) do
        if not listed[value] then list[#list + 1] = value end
    end
    for value = r and r.from or 1, r and r.to or 0, r and r.step or 1 do
        if not field.has[tostring(value)] then list[#list + 1] = value end
    end
    return list
end

-- One name for each step of each range: of the candidates with that step the one which has most
-- pairs that no name had yet. All ranges step together where that is legal, in opposite directions.
local function steps(spec, numbers, had, out)
    local function pick(level_value)
        local domains, best, best_gain, best_pairs = candidate.listed_domains(spec), nil, -1, nil
        for level, value in sorted(level_value) do
            domains[level] = function() return {value} end
        end
        candidate.search(spec, domains, function(c)
            local list = pairs_of(spec, numbers, c)
            local n = gain(list, had)
            if n > best_gain then best, best_gain, best_pairs = candidate.name(spec, c), n, list end
        end)
        if not best then return false end
        take(best_pairs, had)
        out[#out + 1] = best
        return true
    end
    local lists, longest = {}, 0
    for level, field in ipairs(spec.fields) do
        lists[level] = unlisted(field)
        longest = math.max(longest, #lists[level])
    end
    for k = 1, longest do
        local together = {}
        for level, field in ipairs(spec.fields) do
            local n = #lists[level]
            if n >= k then together[level] = lists[level][field.follow and n + 1 - k or k] end
        end
        if not pick(together) then
            for level, value in sorted(together) do pick({[level] = value}) end
        end
    end
end

-- Greedy: always the candidate with most new pairs, the first of equals. Gains only fall, so a
-- candidate waits in the bucket of its last known gain until the buckets above are empty.
function M.cover(spec, out)
    local numbers, had, buckets, highest = numbered(spec), {}, {}, 0
    steps(spec, numbers, had, out)
    candidate.search(spec, candidate.listed_domains(spec), function(c)
        local list = pairs_of(spec, numbers, c)
        buckets[#list] = buckets[#list] or {}
        highest = math.max(highest, #list)
        table.insert(buckets[#list], {name = candidate.name(spec, c), pairs = list})
    end)
    for bucket = highest, 1, -1 do
        for _, one in ipairs(buckets[bucket] or {}) do
            local n = gain(one.pairs, had)
            if n == bucket then
                take(one.pairs, had)
                out[#out + 1] = one.name
            elseif n > 0 then
                buckets[n] = buckets[n] or {}
                table.insert(buckets[n], one)
            end
        end
    end
end

return M
