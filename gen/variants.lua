-- variants.lua - the sections masks and scores of a spec: each a formula with its params.
-- SPDX-License-Identifier: BSD-3-Clause
--
-- A spec's `masks` and `scores` are lists, in the file's order, with `by`: name → {name, kind =
-- "keep" | "value", text, tree, params, tensors, place}; a param is {name, type = "int" | "float",
-- default, low, high}, a tensor {name, element, indexes: as its uses have them (formula.lua)}.

local common = require "common"
local formula = require "formula"
local scores = require "scores"
local tiles = require "tiles"

local M = {}

local most_params = 4
local largest = 1 << 30 -- of a param
local kinds = {masks = "keep", scores = "value"}
local most_tensors = 4 -- of a mask and a score together
local shapes = {keep = {{"keep", true}, {"params"}, {"tensors"}},
    value = {{"value", true}, {"params"}, {"tensors"}}}
local param_shape = {{"default", true}, {"from"}, {"to"}}

-- ---- params ----

-- A number of the kind; a mask's are whole. `x` is the reader of the file (reader.lua).
local function number(x, node, thing, whole)
    local text = node.kind == "scalar" and #node.text <= 16 and node.text or ""
    local value
    if text:find("^-?%d+$") then value = math.tointeger(text) end
    if not whole and text:find("^-?%d+%.?%d*$") or text:find("^-?%d+%.?%d*[eE][-+]?%d+$") then
        value = not whole and tonumber(text) + 0.0 or nil
    end
    if value and math.abs(value) <= largest then return value end
    x:expected(node, thing, whole and "a whole number up to 2^30" or "a number up to 2^30")
end

-- NAME: DEFAULT or NAME: {default, from, to}; a whole one is not below 0 unless `from` says so.
local function param(x, pair, kind)
    local whole, thing = kind == "keep", "params: " .. pair.key
    local row = {name = pair.key, type = whole and "int" or "float", low = whole and 0 or -largest,
        high = largest}
    if pair.value.kind ~= "map" then
        row.default = number(x, pair.value, thing, whole)
    else
        local got = x:record(pair.value, thing, param_shape)
        row.default = got.default and number(x, got.default.value, thing .. ": default", whole)
        row.low = got.from and number(x, got.from.value, thing .. ": from", whole) or row.low
        row.high = got.to and number(x, got.to.value, thing .. ": to", whole) or row.high
    end
    if not row.default or not row.low or not row.high then return nil end
    if row.default < row.low or row.default > row.high then
        return x:fail(pair.value, "%s: the default %s is not in %s to %s", thing, row.default,
            row.low, row.high)
    end
    return row
end

local function params(x, pair, kind)
    local list, known = {}, formula.scope(kind, {}).by
    local pairs_of = pair and x:pairs(pair.value, "params", "a map from names to numbers")
    for _, one in ipairs(pairs_of or {}) do
        local key = {kind = "scalar", text = one.key, line = one.line, col = one.col}
        if x:word(key, "params") then
            if known[one.key] or formula.is_function(one.key) or formula.is_keyword(one.key) then
                x:fail(one, "params: the name '%s' is taken", one.key)
            else
                list[#list + 1] = param(x, one, kind)
            end
        end
    end
    if #list > most_params then
        x:fail(pair, "params: %d, at most %d are allowed", #list, most_params)
    end
    return list
end

-- NAME: int32, bool, fp32 or bf16.
local function tensors(x, pair, kind, given)
    local list, known = {}, formula.scope(kind, given).by
    local pairs_of = pair and x:pairs(pair.value, "tensors", "a map from names to types")
    for _, one in ipairs(pairs_of or {}) do
        local key = {kind = "scalar", text = one.key, line = one.line, col = one.col}
        local element = x:word(key, "tensors") and x:text(one.value, "tensors: " .. one.key)
        if known[one.key] or formula.is_function(one.key) or formula.is_keyword(one.key) then
            x:fail(one, "tensors: the name '%s' is taken", one.key)
        elseif element and not formula.elements[element] then
            x:fail(one.value, "tensors: %s: no type '%s': int32, bool, fp32 or bf16%s", one.key,
                element, common.did_you_mean(element, formula.elements.list))
        elseif element then
            list[#list + 1] = {name = one.key, element = element}
            list[one.key] = list[#list]
        end
    end
    if #list > most_tensors then
        x:fail(pair, "tensors: %d, at most %d are allowed", #list, most_tensors)
    end
    return list
end

-- A mask's tensor with one position among its indexes: a kernel knows the least and the largest
-- element of each of its blocks.
local function is_listed(tensor)
    local positions = 0
    for _, kind in ipairs(tensor.indexes) do
        if kind:find("p%d") then return false end
        positions = positions + (kind == "p" and 1 or 0)
    end
    return positions == 1
end

-- ---- a section ----

local function read_one(x, pair, kind, section)
    local thing = section .. ": " .. pair.key
    if #pair.key > 12 or not pair.key:find("^[a-z][a-z0-9]*$") then
        return x:fail(pair, "%s: a name is [a-z][a-z0-9]{0,11}, got '%s'", section, pair.key)
    end
    local got = x:record(pair.value, thing, shapes[kind])
    local before = #x.errors
    local one = {name = pair.key, kind = kind, params = params(x, got.params, kind), place = pair,
        own = x.path}
    one.tensors = tensors(x, got.tensors, kind, one.params)
    local node = got[kind] and got[kind].value
    one.text = node and x:text(node, kind)
    if not one.text or #x.errors > before then return nil end
    if not node.start then
        return x:fail(node, "%s: an expression stands on one line, without escapes", kind)
    end
    local tree, at, why = formula.read(one.text, formula.scope(kind, one.params, one.tensors))
    if not tree then
        return x:fail({line = node.line, col = node.start + at - 1}, "%s: %s", kind, why)
    end
    for _, tensor in ipairs(one.tensors) do
        if not tensor.indexes then
            return x:fail(got.tensors, "tensors: %s is not used", tensor.name)
        end
        tensor.listed = kind == "keep" and is_listed(tensor)
    end
    one.tree = tree
    return one
end

-- Reads a section (a pair of the file's map, or nil) after those of the base.
function M.read(x, spec, section, pair, base)
    local list = {by = {}}
    for _, one in ipairs(base or {}) do list[#list + 1], list.by[one.name] = one, one end
    local pairs_of = pair and x:pairs(pair.value, section, "a map from names to formulas")
    for _, item in ipairs(pairs_of or {}) do
        local one = read_one(x, item, kinds[section], section)
        local axis = spec.by[kinds[section] == "keep" and "mask" or "score"]
        if one and (list.by[one.name] or axis and axis.has[one.name]) then
            x:fail(item, "%s: the name '%s' is taken", section, one.name)
        elseif one then
            list[#list + 1], list.by[one.name] = one, one
        end
    end
    spec[section] = list
end

-- The formulas of a section as values of the axis of that name, where the family has it, beside its
-- own. Only what the file itself declares is `listed` for tests and tables.
function M.join(spec, section)
    local field, list = spec.by[section:sub(1, -2)], spec[section]
    if not field or #list == 0 then return end
    local has, short, values, listed, places = {}, {}, {}, {}, {}
    local function put(value, place, is_listed)
        values[#values + 1], has[value] = value, value
        short[value] = list.by[value] and value or field.short and field.short[value]
        places[#values] = place
        if is_listed then listed[#listed + 1] = value end
    end
    for i, value in ipairs(field.values) do
        if not list.by[value] then put(value, field.places and field.places[i], true) end
    end
    for _, one in ipairs(list) do put(one.name, one.place, one.own == spec.path and spec.users) end
    field.values, field.has, field.short, field.listed = values, has, short, listed
    field.places = field.places and places
end

-- ---- used ----

local function c_names(one, kinds_of)
    local given = {seq_q = "p.seq_q", seq_k = "p.seq_k", heads = "p.heads",
        kv_heads = "(p.heads / p.group)", head = "item.head", batch = "item.batch",
        kv_head = "(item.head / p.group)", row = "row", col = "col"}
    for i, row in ipairs(one.params) do
        given[row.name] = ("p.%s[%d]"):format(kinds_of, i - 1)
    end
    return function(name) return given[name] end
end

-- a, b and c of "a op b op c".
local function chain(node, op)
    local list = {}
    while node.op == op do
        table.insert(list, 1, node[2])
        node = node[1]
    end
    table.insert(list, 1, node)
    return list
end

-- What a template needs of the candidate's mask, or nil: `keep` as C, and the bodies of two
-- functions that tell whether rows may keep or drop a pair.
function M.code(spec, c)
    local one = spec.masks.by[rawget(c, "mask")]
    if not one then return nil end
    local names = c_names(one, "mask_args")
    local parts = {}
    for i, part in ipairs(chain(one.tree, "and")) do
        parts[i] = formula.c(part, names)
        if #parts[i] > 80 then
            local any = {}
            for k, other in ipairs(chain(part, "or")) do any[k] = formula.c(other, names) end
            parts[i] = "(" .. table.concat(any, " ||\n            ") .. ")"
        end
    end
    for i, part in ipairs(parts) do
        parts[i] = scores.wrapped(part, 82):gsub("\n", "\n           ")
    end
    local keep = table.concat(parts, " &&\n           ")
    return {type = tiles.type(one.tree), keep = keep, may = {
        {name = "may_keep", what = "keep", body = tiles.c(one.tree, true, names)},
        {name = "may_drop", what = "drop", body = tiles.c(one.tree, false, names)},
    }}
end

-- The tensors of a candidate: {name, element, indexes, slot: in the launch's params, ranged: is it
-- the mask's, listed: with a table of blocks}.
function M.tensors(spec, c)
    local list = {}
    for _, section in ipairs {"masks", "scores"} do
        local one = spec[section].by[rawget(c, section:sub(1, -2))]
        for _, t in ipairs(one and one.tensors or {}) do
            local row = {name = t.name, element = t.element, indexes = t.indexes, slot = #list,
                ranged = section == "masks", listed = t.listed}
            local other = list[t.name]
            local same = other and other.element == t.element and
                table.concat(other.indexes, " ") == table.concat(t.indexes, " ")
            if other and not same then
                common.raise(common.EINVAL, "mask=%s score=%s: each has a tensor '%s' of its own: "
                    .. "rename one", c.mask, c.score, t.name)
            end
            if not other then list[#list + 1], list[t.name] = row, row end
        end
    end
    if #list > most_tensors then
        common.raise(common.EINVAL, "mask=%s score=%s: %d tensors, at most %d are allowed", c.mask,
            c.score, #list, most_tensors)
    end
    return list
end

-- What it needs of the candidate's score, or nil (scores.lua).
function M.score_code(spec, c)
    local one = spec.scores.by[rawget(c, "score")]
    return one and scores.code(one.tree, c_names(one, "score_args"))
end

local function value_text(value)
    return math.type(value) == "integer" and tostring(value) or ("%.9g"):format(value)
end

-- The lines of a launch record about mask and score: their texts and what their params may be.
function M.launch(spec, c)
    local lines = {}
    for _, kind in ipairs {{"masks", "mask", "keep", "param"},
        {"scores", "score", "value", "score_param"}} do
        local one = spec[kind[1]].by[rawget(c, kind[2])]
        if one then lines[#lines + 1] = kind[3] .. " " .. one.text end
        for _, row in ipairs(one and one.params or {}) do
            lines[#lines + 1] = ("%s %s %s %s %s"):format(kind[4], row.name,
                value_text(row.default), value_text(row.low), value_text(row.high))
        end
    end
    for _, t in ipairs(M.tensors(spec, c)) do
        lines[#lines + 1] = ("tensor %s %s %s"):format(t.name, t.element,
            table.concat(t.indexes, " "))
    end
    return lines
end

-- ---- told ----

-- The mask or score `name` of a spec.
local function find(spec, section, name)
    local one = spec[section].by[name]
    if one then return one end
    local names = {}
    for i, other in ipairs(spec[section]) do names[i] = other.name end
    common.raise(common.EINVAL, "%s: %s has no '%s'%s", section, spec.name, name,
        common.did_you_mean(name, names))
end

local function spec_of(specs, name)
    return specs.by[name] or common.raise(common.EINVAL, "no spec '%s'", name)
end
M.spec_of = spec_of

-- "SPEC": the names of its masks.
function M.masks(specs, name)
    local names = {}
    for i, one in ipairs(spec_of(specs, name).masks) do names[i] = one.name end
    return names
end

-- "SPEC masks|scores NAME": the formula as it was understood, with its derivative or the C of its
-- analysis, in which names are members of `p`.
function M.formula(specs, arg)
    local name, section, own = arg:match("^(%S+) (%S+) (%S+)$")
    if not kinds[section] then
        common.raise(common.EINVAL, "formula: expected SPEC masks|scores NAME, got '%s'", arg)
    end
    local one = find(spec_of(specs, name), section, own)
    local lines = {}
    for i, row in ipairs(one.params) do
        lines[i] = ("param %s %s %s %s"):format(row.name, value_text(row.default),
            value_text(row.low), value_text(row.high))
    end
    local function c_name(word)
        return (word == "row" or word == "col") and word or "p->" .. word
    end
    lines[#lines + 1] = one.kind .. " " .. formula.text(one.tree)
    lines[#lines + 1] = "c " .. formula.c(one.tree, c_name)
    if one.kind == "value" then
        lines[#lines + 1] = "derivative " .. formula.text(formula.derivative(one.tree))
    else
        lines[#lines + 1] = "may keep\n" .. tiles.c(one.tree, true, c_name)
        lines[#lines + 1] = "may drop\n" .. tiles.c(one.tree, false, c_name)
    end
    return table.concat(lines, "\n") .. "\n"
end

-- A mask's hulls of what may be kept and of what may be dropped.
local function hulls(one)
    one.keep = one.keep or tiles.hull(one.tree, true)
    one.drop = one.drop or tiles.hull(one.tree, false)
    return one.keep, one.drop
end

-- The tiles of one (batch, head), whose row tiles begin at first(i): f(row tile, column tile, is it
-- full) for each that is not empty.
local function each_tile(one, n, first, tile_n, f)
    local keep, drop = hulls(one)
    local past, i = n.seq_k - n.seq_q, 0
    while first(i) < n.seq_q do
        local row0, row1 = first(i) + past, math.min(first(i + 1), n.seq_q) - 1 + past
        local low, high = keep(n, row0, row1, 0, n.seq_k - 1)
        for j = low // tile_n, low <= high and high // tile_n or -1 do
            local col0, col1 = j * tile_n, math.min((j + 1) * tile_n, n.seq_k) - 1
            low, high = keep(n, row0, row1, col0, col1)
            if low <= high then
                low, high = drop(n, row0, row1, col0, col1)
                f(i, j, low > high)
            end
        end
        i = i + 1
    end
end

M.each_tile = each_tile

-- The masks that templates know by themselves, as formulas.
local own_masks = {}
local function mask_of(spec, name)
    if name ~= "none" and name ~= "causal" then return find(spec, "masks", name) end
    local text = name == "causal" and "col <= row" or "true"
    own_masks[name] = own_masks[name] or
        {tree = formula.read(text, formula.scope("keep", {})), params = {}, text = text}
    return own_masks[name]
end

local most_tiles = 1000000 -- that are looked at one by one

-- What a problem's launch is about: the mask, the values of its names (but for batch and head),
-- where a row tile begins, how many there are, and how many params were given. `values` are the
-- problem's words; rows are dealt to their tiles in groups, evenly.
function M.asked(spec, c, p, values)
    local one, n, ask = mask_of(spec, c.mask), {}, rawget(p, "row_group") or c.tile_m
    for _, name in ipairs {"seq_q", "seq_k", "heads", "kv_heads"} do
        n[name] = math.tointeger(values[name])
    end
    local i = 0
    for number in (values.mask_args or ""):gmatch("-?%d+") do
        i = i + 1
        if one.params[i] then n[one.params[i].name] = math.tointeger(number) end
    end
    if i > #one.params then
        common.raise(common.EINVAL, "mask_args: %d are given, %s has %d", i, c.mask, #one.params)
    end
    for _, row in ipairs(one.params) do
        local value = n[row.name] or row.default
        if value < row.low or value > row.high then
            common.raise(common.EINVAL, "mask_args: %s = %d: expected %d to %d", row.name, value,
                row.low, row.high)
        end
        n[row.name] = value
    end
    local row_tiles, groups = -(-n.seq_q // c.tile_m), -(-n.seq_q // ask)
    local each = -(-groups // row_tiles)
    local short = each * row_tiles - groups
    local function first(tile) return (tile * each - math.min(tile, short)) * ask end
    return one, n, first, row_tiles, i
end

-- What it does, for people: rows {what, how many}.
function M.counts(spec, c, p, values)
    local one, n, first, row_tiles = M.asked(spec, c, p, values)
    if #(one.tensors or {}) > 0 then return {{"tiles", "told by the launch, of its tensors"}} end
    local pairs_there = math.tointeger(values.batch) * n.heads
    local differ = false
    for _, name in ipairs {"batch", "head", "kv_head"} do
        differ = differ or formula.depends(one.tree, name)
    end
    local looks = differ and pairs_there or 1
    local all = row_tiles * -(-n.seq_k // c.tile_n)
    if all * looks > most_tiles then return {{"tiles", "too many to count here"}} end
    local loaded, full = 0, 0
    for pair = 0, looks - 1 do
        n.batch, n.head = pair // n.heads, pair % n.heads
        n.kv_head = n.head // (n.heads // n.kv_heads)
        each_tile(one, n, first, c.tile_n, function(_, j, is_full)
            loaded = loaded + 1
            if is_full and (j + 1) * c.tile_n <= n.seq_k then full = full + 1 end
        end)
    end
    local times = pairs_there // looks
    return {{"loaded", ("%d of %d tiles of %d x %d"):format(loaded * times, all * pairs_there,
            c.tile_m, c.tile_n)},
        {"full", ("%d: no mask code runs"):format(full * times)},
        {"mixed", tostring((loaded - full) * times)}}
end

-- "SPEC NAME TILE_M TILE_N KEY=VALUE…" (params, seq_q, seq_k and other names of the language): a
-- line for each row tile, a character for each of its tiles: "." empty, "#" full, "/" mixed.
function M.tiles(specs, arg)
    local name, own, tile_m, tile_n, rest = arg:match("^(%S+) (%S+) (%d+) (%d+)(.*)$")
    if not name then
        common.raise(common.EINVAL,
            "tiles: expected SPEC MASK TILE_M TILE_N KEY=VALUE…, got '%s'", arg)
    end
    local one = find(spec_of(specs, name), "masks", own)
    local n = {batch = 0, head = 0, kv_head = 0, heads = 1, kv_heads = 1}
    for _, row in ipairs(one.params) do n[row.name] = row.default end
    for key, value in rest:gmatch("(%S+)=(-?%d+)") do n[key] = math.tointeger(value) end
    tile_m, tile_n = math.tointeger(tile_m), math.tointeger(tile_n)
    local lines = {}
    for i = 1, (n.seq_q + tile_m - 1) // tile_m do
        lines[i] = {}
        for j = 1, (n.seq_k + tile_n - 1) // tile_n do lines[i][j] = "." end
    end
    each_tile(one, n, function(i) return i * tile_m end, tile_n, function(i, j, full)
        lines[i + 1][j + 1] = full and "#" or "/"
    end)
    for i, line in ipairs(lines) do lines[i] = table.concat(line) end
    return table.concat(lines, "\n") .. "\n"
end

return M
