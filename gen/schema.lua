-- schema.lua - the YAML tree of a spec to a table that candidate.lua searches, or all its errors.
-- SPDX-License-Identifier: BSD-3-Clause
--
-- A spec is {name, family, arch, path, fields, by, launch, rules, prefer, generated}. fields are
-- the axes and then the knobs, in the file's order; `by` finds one by its name. A field is
--   {name, role = "axis" | "launch axis" | "knob", kind = "int" | "word" | "list", level = index,
--    values, has = value's text → value, places = where each value is written, short,
--    range = {from, to, step} or nil, parts = {"tile_m", …} of a list, follow = axis or nil}
-- launch numbers are {name, values, has}; a rule {e = expression, why, level}; a preference
-- {e or nil, use = {name, value}…, place}.

local common = require "common"
local expr = require "expr"
local reader = require "reader"
local variants = require "variants"

local M = {}
local X = setmetatable({}, {__index = reader})
X.__index = X

local archs = {"sm_90a"}
local most_values = 64

-- ---- fields ----

local kinds = {int = "a whole number", word = "a word", list = "a list of whole numbers"}

function X:numbers(node, thing, size)
    local list = {}
    for i, item in ipairs(node) do list[i] = self:int(item, thing) end
    if #list ~= #node then return nil end
    if size and #list ~= size or #list < 2 or #list > 4 then
        self:fail(node, "%s: expected %s numbers, got %d", thing, size or "2 to 4", #list)
        return nil
    end
    return list
end

-- A value of the field, whose kind and size its first value decides; `like` names who decided.
function X:value(node, field)
    if not field.kind then
        field.kind = node.kind == "list" and "list" or
            node.kind == "scalar" and node.text:find("^%a") and "word" or "int"
    end
    if field.kind == "list" then
        if node.kind ~= "list" then return self:expected(node, field.name, kinds.list) end
        local list = self:numbers(node, field.name, field.size)
        field.size = field.size or list and #list
        return list
    end
    return self[field.kind](self, node, field.name)
end

-- Reads a list of values into field.values, has and places.
function X:values(node, field, what)
    field.values, field.has, field.places = {}, {}, {}
    local items = self:list(node, field.name, what or "a list of values")
    if #items > most_values then
        self:fail(node, "%s: %d values, at most %d are allowed", field.name, #items, most_values)
        return
    end
    for _, item in ipairs(items) do
        local value = self:value(item, field)
        local key = value and common.value_text(value)
        if value and field.has[key] then
            self:fail(item, "%s: %s is listed twice", field.name, key)
        elseif value then
            local n = #field.values + 1
            field.values[n], field.has[key], field.places[n] = value, value, item
        end
    end
end

-- {from, to, step, listed}: every step is legal, the listed ones are what tests and tables take.
function X:range(node, field)
    local got = self:record(node, field.name,
        {{"from", true}, {"to", true}, {"step", true}, {"listed", true}})
    local function number(key)
        return got[key] and self:int(got[key].value, field.name .. ": " .. key)
    end
    local from, to, step = number("from"), number("to"), number("step")
    field.values, field.has, field.places = {}, {}, {}
    if got.listed then self:values(got.listed.value, field) end
    if not (from and to and step) then return end
    if step == 0 or from > to or (to - from) % step ~= 0 then
        self:fail(node, "%s: %d to %d in steps of %d is no range", field.name, from, to, step)
        return
    end
    field.range = {from = from, to = to, step = step}
    for i, value in ipairs(field.values) do
        if not common.allowed(field, value) then
            self:fail(field.places[i], "%s: %s is not in %s", field.name, common.value_text(value),
                common.values_text(field))
        end
    end
end

function X:axis(node, field)
    if node.kind == "map" and field.kind == "int" then
        self:range(node, field)
    else
        local int = field.kind == "int"
        self:values(node, field, int and "a list of values, or {from, to, step, listed}")
    end
end

-- Takes a name for an axis, knob, part or launch number.
function X:take(place, name, role)
    local taken = self.taken[name]
    if taken then return self:fail(place, "%s: the name is taken by %s", name, taken) end
    self.taken[name] = role
    return true
end

function X:add(spec, pair, field)
    local key = {kind = "scalar", text = pair.key, line = pair.line, col = pair.col}
    local role = field.role == "axis" and "an axis" or "a " .. field.role
    if not self:word(key, field.role) or not self:take(pair, pair.key, role) then return end
    field.place, field.level = pair, #spec.fields + 1
    spec.fields[field.level], spec.by[field.name] = field, field
end

function X:axes(spec, node, launch_axes)
    local for_launch = {}
    local items = launch_axes and self:list(launch_axes, "launch_axes", "a list of axes") or {}
    for _, item in ipairs(items) do
        local name = self:word(item, "launch_axes")
        if name then for_launch[name] = item end
        if name then for_launch[#for_launch + 1] = name end
    end
    for _, pair in ipairs(self:pairs(node, "axes")) do
        local word = M.axis_words.by[pair.key]
        if not word then
            self:fail(pair, "axes: '%s' is no word that can be an axis%s", pair.key,
                common.did_you_mean(pair.key, M.axis_words))
        else
            local role = for_launch[pair.key] and "launch axis" or "axis"
            local kind = word.kind == "int" and "int" or "word"
            local field = {name = pair.key, role = role, kind = kind}
            self:axis(pair.value, field)
            self:add(spec, pair, field)
            field.follow = spec.by[word.initial:match("^=(.*)")] and word.initial:sub(2)
        end
    end
    for _, name in ipairs(for_launch) do
        if not spec.by[name] then
            self:fail(for_launch[name], "launch_axes: '%s' is no axis", name)
        end
    end
end

function X:tune(spec, node)
    for _, pair in ipairs(self:pairs(node, "tune")) do
        local field = {name = pair.key, role = "knob"}
        self:values(pair.value, field)
        self:add(spec, pair, field)
    end
end

function X:launch(spec, node)
    for _, pair in ipairs(self:pairs(node, "launch")) do
        local number = {name = pair.key, kind = "int", role = "launch number"}
        self:values(pair.value, number)
        if self:take(pair, pair.key, "a launch number") then
            spec.launch[#spec.launch + 1], spec.launch_by[number.name] = number, number
        end
    end
end

-- ---- short forms ----

function X:short_text(node, thing, pattern, what)
    local good = node.kind == "scalar" and #node.text <= 12 and node.text:find(pattern)
    if good then return node.text end
    self:expected(node, thing, what)
end

local function letters(x, node, thing)
    return x:short_text(node, thing, "^[a-z]+$", "letters, [a-z]{1,12}")
end

local shorts = {}
function shorts.int(x, node, field)
    return letters(x, node, "names: " .. field.name)
end
function shorts.list(x, node, field)
    local thing, list = "names: " .. field.name, {}
    for i, item in ipairs(x:list(node, thing, "a list of letters")) do
        list[i] = letters(x, item, thing)
    end
    if node.kind == "list" and field.size and #node ~= field.size then
        x:fail(node, "%s: expected %d names, got %d", thing, field.size, #node)
    end
    return #list == field.size and list or nil
end
function shorts.word(x, node, field)
    local thing, map = "names: " .. field.name, {}
    for _, pair in ipairs(x:pairs(node, thing, "a map from words to short forms")) do
        if not field.has[pair.key] then
            x:fail(pair, "%s: no value '%s'%s", thing, pair.key,
                common.did_you_mean(pair.key, field.values))
        end
        map[pair.key] = x:short_text(pair.value, thing,
            pair.value.text == "" and "^$" or "^[a-z][a-z0-9]*$",
            "[a-z][a-z0-9]{0,11}, or '' to leave it out of a name")
    end
    return map
end

-- Words of one field must differ in a name, and have no '_', which separates the parts. What a
-- problem need not say, a name does not either.
function X:word_shorts(field)
    local map, seen = field.short or {}, {}
    local default = field.role == "axis" and M.axis_words.by[field.name].initial
    for i, word in ipairs(field.values) do
        local short = map[word] or word == default and "" or word
        map[word] = short
        if short:find("_", 1, true) then
            self:fail(field.places[i], "%s: '%s' has a '_' and needs a short form under names",
                field.name, word)
        elseif seen[short] then
            self:fail(field.places[i], "%s: '%s' and '%s' are both '%s' in a name", field.name,
                seen[short], word, short)
        end
        seen[short] = word
    end
    field.short = map
end

function X:names(spec, node)
    for _, pair in ipairs(node and self:pairs(node, "names") or {}) do
        local field = spec.by[pair.key]
        if field and field.kind then
            field.short = shorts[field.kind](self, pair.value, field)
            field.short_bad = not field.short
        elseif not field then
            local known = {}
            for i, f in ipairs(spec.fields) do known[i] = f.name end
            self:fail(pair, "names: no axis or knob '%s'%s", pair.key,
                common.did_you_mean(pair.key, known))
        end
    end
    for _, field in ipairs(spec.fields) do
        if field.role == "launch axis" then
            field.short = nil
        elseif field.kind == "word" then
            self:word_shorts(field)
        elseif not field.short and not field.short_bad then
            self:fail(field.place, "%s: names gives it no letters for a candidate's name",
                field.name)
        elseif field.kind == "list" and field.short then
            self:parts(field)
        end
    end
end

-- tile with the letters m, n gives tile_m and tile_n.
function X:parts(field)
    field.parts = {}
    for i, short in ipairs(field.short) do
        local part = field.name .. "_" .. short
        if self:take(field.place, part, "a part of " .. field.name) then field.parts[i] = part end
    end
end

-- ---- expressions ----

function X:expression(pair, thing, scope)
    local node = pair.value
    local text = self:text(node, thing)
    if not text then return nil end
    if not node.start then
        return self:fail(node, "%s: an expression stands on one line, without escapes", thing)
    end
    local e, col, why = expr.read(text, self.path, node.line, node.start, scope)
    if not e then self:fail({line = node.line, col = col}, "%s: %s", thing, why) end
    return e
end

-- Rules see axes, knobs, parts and the plan's numbers; `launch` is a launch axis among them. Names
-- that the spec doesn't know are taken for the plan's and looked up once there is a plan
-- (candidate.lua).
local function rule_scope(spec, rule)
    rule.level, rule.plan = 0, {}
    return {
        find = function(name) return spec.by[name] or spec.part_of[name] end,
        seen = function(node)
            local field = node.field and (node.field.of or node.field)
            if field and field.role == "launch axis" then rule.launch = field.name end
            rule.level = math.max(rule.level, field and field.level or #spec.fields + 1)
            if not field then rule.plan[#rule.plan + 1] = node end
        end,
    }
end

function X:require(spec, node)
    for _, item in ipairs(self:list(node, "require", "a list of rules")) do
        local got = self:record(item, "require", {{"rule", true}, {"why", true}})
        local rule = {own = true}
        rule.why = got.why and self:text(got.why.value, "why")
        rule.e = got.rule and self:expression(got.rule, "rule", rule_scope(spec, rule))
        if rule.e then spec.rules[#spec.rules + 1] = rule end
    end
end

-- Preferences see what a problem says: axes, rounded sizes, and what the family makes of them.
local function problem_scope(spec, rule)
    local names, guides = {}, M.guides(spec)
    for i, field in ipairs(spec.fields) do
        if field.role ~= "knob" then names[#names + 1] = field.name end
    end
    for _, list in ipairs {M.size_words, guides} do
        for _, word in ipairs(list) do names[#names + 1] = word.name end
    end
    return {
        find = function(name)
            local field = spec.by[name]
            return field and field.role ~= "knob" and field or M.size_words.by[name] or
                guides.by[name]
        end,
        seen = function(node, wrong)
            if not node.field then
                wrong(node.at, "a problem has no '%s'%s", node.name,
                    common.did_you_mean(node.name, names))
            end
            rule.asks_more = rule.asks_more or node.field.role ~= "axis"
        end,
    }
end

function X:use(spec, node)
    local use, known = {}, {}
    for _, field in ipairs(spec.fields) do
        if field.role == "knob" then known[#known + 1] = field.name end
    end
    for _, number in ipairs(spec.launch) do known[#known + 1] = number.name end
    for _, pair in ipairs(self:pairs(node, "use")) do
        local field = spec.by[pair.key]
        field = field and field.role == "knob" and field or spec.launch_by[pair.key]
        if not field then
            self:fail(pair, "use: no knob or launch number '%s'%s", pair.key,
                common.did_you_mean(pair.key, known))
        else
            local value = field.kind and self:value(pair.value, field)
            if value and #field.values > 0 and not common.allowed(field, value) then
                self:fail(pair.value, "use: %s is not listed for %s (%s)", common.value_text(value),
                    field.name, common.values_text(field))
            elseif value then
                use[#use + 1] = {name = field.name, value = common.allowed(field, value)}
                use[field.name] = use[#use].value
            end
        end
    end
    return use
end

function X:prefer(spec, node, before)
    local list = {}
    for _, item in ipairs(self:list(node, "prefer", "a list of preferences")) do
        local got = self:record(item, "prefer", {{"when"}, {"use", true}})
        local rule = {place = ("%s:%d"):format(self.path, item.line)}
        if got.when then rule.e = self:expression(got.when, "when", problem_scope(spec, rule)) end
        if got.use then rule.use = self:use(spec, got.use.value) end
        list[#list + 1] = rule
    end
    for _, rule in ipairs(before) do list[#list + 1] = rule end
    spec.prefer = list
end

-- ---- families and variants ----

local family_shape = {{"family", true}, {"arch", true}, {"names"}, {"axes", true}, {"launch_axes"},
    {"masks"}, {"scores"}, {"tune", true}, {"launch"}, {"require"}, {"prefer"}, {"generated"}}
local variant_shape = {{"extends", true}, {"name", true}, {"masks"}, {"scores"}, {"axes"},
    {"tune"}, {"launch"}, {"require"}, {"prefer"}}

local function part_fields(spec)
    spec.part_of = {}
    for _, field in ipairs(spec.fields) do
        for _, part in ipairs(field.parts or {}) do
            spec.part_of[part] = {name = part, kind = "int", of = field}
        end
    end
end

function X:head(spec, got)
    spec.arch = got.arch and self:text(got.arch.value, "arch")
    local known = false
    for _, arch in ipairs(archs) do known = known or arch == spec.arch end
    if spec.arch and not known then
        self:fail(got.arch.value, "arch: unknown arch '%s'; known: %s", spec.arch,
            table.concat(archs, ", "))
    end
    spec.family = got.family and self:word(got.family.value, "family")
    spec.name = spec.family
    for _, ending in ipairs(spec.family and {".lua", ".cu.in"} or {}) do
        local path = "templates/" .. spec.family .. ending
        if not read(path) then
            self:fail(got.family.value, "family: there is no %s", path)
        end
    end
end

function X:family(tree)
    local got = self:record(tree, "spec", family_shape)
    local spec = {path = self.path, fields = {}, by = {}, launch = {}, launch_by = {}, rules = {},
        prefer = {}, generated = {}}
    self:head(spec, got)
    if got.axes then self:axes(spec, got.axes.value, got.launch_axes and got.launch_axes.value) end
    if got.tune then self:tune(spec, got.tune.value) end
    if got.launch then self:launch(spec, got.launch.value) end
    variants.read(self, spec, "masks", got.masks)
    variants.read(self, spec, "scores", got.scores)
    variants.join(spec, "masks")
    variants.join(spec, "scores")
    self:names(spec, got.names and got.names.value)
    part_fields(spec)
    if got.require then self:require(spec, got.require.value) end
    if got.prefer then self:prefer(spec, got.prefer.value, {}) end
    local list = got.generated
    list = list and self:list(list.value, "generated", "a list of names") or {}
    for _, item in ipairs(list) do
        local name = self:text(item, "generated")
        if name then spec.generated[#spec.generated + 1] = {name = name, place = item} end
    end
    return spec
end

local function copied(t)
    local copy = {}
    for key, value in sorted(t) do copy[key] = value end
    return copy
end

-- A base's spec with fields of its own, so that a variant may replace their values.
local function derived(base, path)
    local spec = copied(base)
    spec.path, spec.fields, spec.by, spec.launch, spec.launch_by = path, {}, {}, {}, {}
    spec.rules, spec.generated = {}, {}
    for i, field in ipairs(base.fields) do
        spec.fields[i] = copied(field)
        spec.fields[i].places = nil
        spec.by[field.name] = spec.fields[i]
    end
    for i, number in ipairs(base.launch) do
        spec.launch[i] = copied(number)
        spec.launch_by[number.name] = spec.launch[i]
    end
    for i, rule in ipairs(base.rules) do
        spec.rules[i] = copied(rule)
        spec.rules[i].own = false
    end
    return spec
end

-- Replaces the values of the fields that a section of a variant names.
function X:replace(section, find, known, base_name)
    for _, pair in ipairs(section and self:pairs(section.value, section.key) or {}) do
        local field = find(pair.key)
        if not field then
            self:fail(pair, "%s: %s has no '%s'%s", section.key, base_name, pair.key,
                common.did_you_mean(pair.key, known))
        else
            local before = copied(field)
            field.range, field.listed = nil, nil
            if field.role == "knob" or field.role == "launch number" then
                self:values(pair.value, field)
            else
                self:axis(pair.value, field)
            end
            if field.kind == "word" or field.role:find("axis") then
                self:inside(pair.value, field, before, base_name)
            end
        end
    end
end

-- A variant asks for no more than its base knows: words, and values of axes.
function X:inside(node, field, before, base_name)
    local function check(place, value)
        if common.allowed(before, value) then return true end
        self:fail(place, "%s: %s has no '%s' (%s)%s", field.name, base_name, value,
            common.values_text(before),
            field.kind == "word" and common.did_you_mean(value, before.values) or "")
    end
    local r = field.range
    if not r then
        for i, value in ipairs(field.values) do check(field.places[i], value) end
    else
        for value = r.from, r.to, r.step do
            if not check(node, value) then return end
        end
    end
end

function X:variant(tree, specs)
    local got = self:record(tree, "spec", variant_shape)
    local extends = got.extends and self:word(got.extends.value, "extends")
    local name = got.name and self:word(got.name.value, "name")
    local names = {}
    for i, spec in ipairs(specs) do names[i] = spec.name end
    if name and specs.by[name] then
        self:fail(got.name.value, "name: '%s' is taken by %s", name, specs.by[name].path)
    end
    local base = specs.by[extends]
    if not base then
        if extends then
            self:fail(got.extends.value, "extends: no spec '%s'%s", extends,
                common.did_you_mean(extends, names))
        end
        return nil
    end
    local spec = derived(base, self.path)
    spec.name = name
    local axes, knobs, numbers = {}, {}, {}
    for _, field in ipairs(spec.fields) do
        local list = field.role == "knob" and knobs or axes
        list[#list + 1] = field.name
    end
    for i, number in ipairs(spec.launch) do numbers[i] = number.name end
    local function by_role(knob)
        return function(key)
            local field = spec.by[key]
            return field and (field.role == "knob") == knob and field or nil
        end
    end
    variants.read(self, spec, "masks", got.masks, base.masks)
    variants.read(self, spec, "scores", got.scores, base.scores)
    spec.users = true
    variants.join(spec, "masks")
    variants.join(spec, "scores")
    self:replace(got.axes, by_role(false), axes, base.name)
    self:replace(got.tune, by_role(true), knobs, base.name)
    self:replace(got.launch, function(key) return spec.launch_by[key] end, numbers, base.name)
    part_fields(spec)
    if got.require then self:require(spec, got.require.value) end
    if got.prefer then self:prefer(spec, got.prefer.value, base.prefer) end
    return spec
end

-- The problem's words as this file needs them: axes may be any word that is no size and no number
-- with a fraction; a preference may also ask for sizes, and for guides(spec) of the family.
function M.learn(words, guides)
    M.guides = guides
    M.axis_words, M.size_words = {by = {}}, {by = {}}
    for _, word in ipairs(words) do
        if word.size then
            local field = {name = word.name, kind = "int", role = "size"}
            M.size_words[#M.size_words + 1], M.size_words.by[word.name] = field, field
        elseif word.kind ~= "float" and not word.kind:find("list") and word.name ~= "variant" then
            M.axis_words[#M.axis_words + 1], M.axis_words.by[word.name] = word.name, word
        end
    end
end

-- The tree of a file, and the errors of its YAML so far; raises them when there is no tree.
function M.parse(path, text)
    local tree, errors = yaml(text)
    if not tree then
        local x = reader.new(path, errors)
        if #errors == 0 then x:fail({line = 1, col = 1}, "the file is empty") end
        x:finish()
    end
    return tree, errors
end

-- Raises unless the tree is a variant's.
function M.expect_variant(path, tree, errors)
    for _, pair in ipairs(tree) do
        if pair.key == "extends" then return end
    end
    local x = reader.new(path, errors)
    x:fail(tree, "spec: a text that a program adds is a variant, with 'extends' and 'name'")
    x:finish()
end

-- Reads a tree. Returns the spec and the reader that goes on collecting errors; finish() raises.
function M.read(path, tree, errors, specs)
    local x = setmetatable(reader.new(path, errors), X)
    x.taken = {}
    local keys = {}
    for _, pair in ipairs(x:pairs(tree, "spec")) do keys[pair.key] = pair end
    if tree.kind == "map" and not keys.extends and not keys.family then
        x:fail(tree, "spec: a variant has 'extends', a family has 'family', a table of choices "
            .. "'tuned': this file has none")
    end
    if #x.errors > 0 and not keys.extends and not keys.family then x:finish() end
    x.tune_place = keys.tune
    local spec
    if keys.extends then spec = x:variant(tree, specs) else spec = x:family(tree) end
    return spec, x
end

return M
