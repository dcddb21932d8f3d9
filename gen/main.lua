-- main.lua - the generator's verbs: one question, one text.
-- SPDX-License-Identifier: BSD-3-Clause

local pairs = pairs

-- Iterates over a table in the order of its keys, which are all numbers or all strings. There is no
-- other way to do so: the order of pairs and next changes from run to run.
function sorted(t)
    local keys, i = {}, 0
    for key in pairs(t) do keys[#keys + 1] = key end
    table.sort(keys)
    return function()
        i = i + 1
        if keys[i] ~= nil then return keys[i], t[keys[i]] end
    end
end
_G.pairs, _G.next = nil, nil

local common = require "common"
common.strict(_G, "the generator")
local candidate = require "candidate"
local cover = require "cover"
local draw = require "draw"
local reader = require "reader"
local schema = require "schema"
local template = require "template"
local tuned = require "tuned"
local variants = require "variants"

local word_list = words()
local specs = {by = {}} -- in the order of reading
local tables = {} -- of measured choices, likewise
local rendered = {} -- name → {text, map}: source and linemap ask for the same one

local function lines(list)
    return #list == 0 and "" or table.concat(list, "\n") .. "\n"
end

-- A user's file may take the place of a family: specs/fwd.yaml can be checked while it is edited.
-- A text that a program adds (`is_variant`) may not.
local function add(path, text, is_users, is_variant)
    local tree, errors = schema.parse(path, text)
    if is_variant then schema.expect_variant(path, tree, errors) end
    if tuned.is_table(tree) then return tuned.add(tables, path, tree, errors, is_users) end
    local spec, x = schema.read(path, tree, errors, specs)
    local good, why = pcall(function()
        if #x.errors == 0 then candidate.check(spec, x) end
        if #x.errors == 0 and is_users then candidate.check_values(spec, x) end
    end)
    if is_users and type(why) == "string" then
        common.raise(common.ESPEC, "%s: %s", path, why)
    end
    if not good then error(why, 0) end
    x:finish()
    spec.users = is_users
    local at = #specs + 1
    for i, old in ipairs(specs) do
        if old.name == spec.name then at = i end
    end
    specs[at], specs.by[spec.name] = spec, spec
    rendered = {}
end

local function render(name)
    if not rendered[name] then
        local spec, c, p = candidate.find(specs, name)
        local path = "templates/" .. spec.family .. ".cu.in"
        local text, map = template.render(path, read, candidate.environment(spec, c, p))
        rendered[name] = {text = text, map = map}
    end
    return rendered[name]
end

-- NAME, or NAME NUMBER=VALUE…: spec, candidate, plan and who chose the launch numbers.
local function named(arg)
    local name, rest = arg:match("^(%S*)(.*)$")
    local spec, c, p = candidate.find(specs, name)
    return spec, c, p, rest ~= "" and candidate.given(spec, c, rest) or nil
end

local function is_problem(text) return text:find("=", 1, true) or text == "" end

local function choose(text, from)
    local names, choice = candidate.list(from or specs, text)
    local spec, c, p = candidate.find(specs, names[1])
    return spec, c, p, choice
end

-- The specs without the tables of measured choices.
local function untuned()
    return setmetatable({pick = function() end}, {__index = specs})
end

local function columns(rows)
    local width, out = 0, {}
    for _, row in ipairs(rows) do width = math.max(width, #row[1]) end
    for i, row in ipairs(rows) do
        out[i] = "  " .. row[1] .. (" "):rep(width - #row[1] + 2) .. row[2]
    end
    return table.concat(out, "\n")
end

local function explain(arg)
    local spec, c, p, choice
    if is_problem(arg) then
        spec, c, p, choice = choose(arg)
    else
        spec, c, p = candidate.find(specs, arg)
    end
    local plan = {}
    for name, value in sorted(p) do
        if type(value) ~= "table" then plan[#plan + 1] = {name, tostring(value)} end
    end
    local by = choice and choice.by or "name given"
    return ("%s\n%s\nkernel\n%s\nplan\n%s\nchosen by\n  %s\n"):format(candidate.name(spec, c),
        columns(candidate.name_parts(spec, c)),
        columns(candidate.family(spec.family).explain(c, p)), columns(plan), by)
end

local function header(arg)
    local folder, names = "templates/device/", {}
    for i, path in ipairs(files(folder)) do names[i] = path:sub(#folder + 1) end
    if arg == "" then return lines(names) end
    return read(folder .. arg) or common.raise(common.EINVAL, "header: there is no '%s'%s", arg,
        common.did_you_mean(arg, names))
end

-- Applies f(spec, out) to the family's own specs, and gives the lines of out.
local function gathered(f)
    local out = {}
    for _, spec in ipairs(specs) do f(spec, out) end
    return lines(out)
end

-- Every listed value must be of use, and one candidate must render: the first of those that are
-- committed, else the first legal one.
local function check_one(spec)
    local x = reader.new(spec.path, {})
    candidate.check_values(spec, x)
    x:finish()
    local name = spec.generated[1] and spec.generated[1].name
    if not name then
        candidate.search(spec, candidate.listed_domains(spec), function(c)
            name = candidate.name(spec, c)
            return true
        end)
    end
    render(name)
    candidate.record(candidate.find(specs, name))
end

-- A whole problem's words: key → text.
local function words_in(text)
    local values = {}
    for key, value in text:gmatch("(%S+)=(%S+)") do values[key] = value end
    return values
end

local verbs = {
    list = function(arg) return lines((candidate.list(specs, arg))) end,
    choose = function(arg) return candidate.record(choose(arg)) end,
    prefer = function(arg) return candidate.record(choose(arg, untuned())) end,
    launch = function(arg) return candidate.record(named(arg)) end,
    source = function(arg) return render(arg).text end,
    linemap = function(arg) return lines(render(arg).map) end,
    explain = explain,
    counts = function(arg)
        local name, words_of = arg:match("^(%S+) (.*)$")
        local spec, c, p = candidate.find(specs, name)
        return "tiles\n" .. columns(variants.counts(spec, c, p, words_in(words_of))) .. "\n"
    end,
    formula = function(arg) return variants.formula(specs, arg) end,
    masks = function(arg) return lines(variants.masks(specs, arg)) end,
    tiles = function(arg) return variants.tiles(specs, arg) end,
    variant = function(arg)
        add("yaml", arg, true, true)
        return specs[#specs].name
    end,
    draw = function(arg)
        local name, words_of = arg:match("^(%S+) (.*)$")
        local values = words_in(words_of)
        if name ~= "-" then
            local spec, c, p = candidate.find(specs, name)
            return draw.svg(spec, c, p, values)
        end
        local spec, tile = variants.spec_of(specs, values.variant), 8
        local longest = math.max(math.tointeger(values.seq_q), math.tointeger(values.seq_k))
        while longest > 64 * tile do tile = 2 * tile end
        return draw.svg(spec, {mask = values.mask, tile_m = tile, tile_n = tile}, {}, values, true)
    end,
    header = header,
    check = function()
        tuned.check(tables, specs)
        return gathered(check_one)
    end,
    all = function() return gathered(cover.all) end,
    cover = function() return gathered(cover.cover) end,
    numbers = function(arg)
        local _, choice = candidate.list(specs, arg)
        local out = {}
        for i, number in ipairs(choice.spec.launch) do
            out[i] = number.name .. " " .. table.concat(number.values, " ")
        end
        return lines(out)
    end,
    generated = function()
        return gathered(function(spec, out)
            for _, item in ipairs(spec.generated) do out[#out + 1] = item.name end
        end)
    end,
    words = function()
        local out = {}
        for i, w in ipairs(word_list) do
            local initial = w.initial == "" and "-" or w.initial
            out[i] = ("%s %s %s %s"):format(w.name, w.kind, initial, w.what)
        end
        return lines(out)
    end,
}

schema.learn(word_list, candidate.guides)
function specs.pick(spec, values) return tuned.pick(tables, spec, values) end
for _, path in ipairs(files("specs/")) do add(path, read(path), false) end

-- call(verb, arg) → text; call("spec", path, text) adds a user's file.
return function(verb, arg, text)
    if verb == "spec" then return add(arg, text, true) end
    local known = {}
    for name in sorted(verbs) do known[#known + 1] = name end
    if not rawget(verbs, verb) then
        common.raise(common.EINVAL, "generator: unknown verb '%s'%s", verb,
            common.did_you_mean(verb, known))
    end
    return verbs[verb](arg)
end
