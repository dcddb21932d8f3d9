-- candidate.lua - candidates of a spec: legal ones, their names, which is best, and why none is.
-- SPDX-License-Identifier: BSD-3-Clause
--
-- A candidate c is a table from axis, knob and part (tile_m) to value; p is its plan. Fields get
-- values in the spec's order, and a rule is asked as soon as its last name has one.

local common = require "common"
local expr = require "expr"
local variants = require "variants"

local M = {}

local most_candidates, longest_name = 1000000, 120

-- ---- families: templates/FAMILY.lua ----

local families = {}
local new_scope

local function load_lua(path)
    local chunk, why = load(read(path), "=" .. path, "t", new_scope())
    if not chunk then common.raise(common.ESPEC, "%s", why) end
    return chunk()
end

-- What a family's Lua and its templates may use; reading any other name is an error. It is made
-- anew for each file of Lua and each rendering: what one writes there, no other sees. part "NAME"
-- is what templates/parts/NAME.lua returns.
function new_scope()
    local scope = {assert = assert, error = error, ipairs = ipairs, select = select,
        part = function(name) return load_lua("templates/parts/" .. name .. ".lua") end,
        sorted = sorted, tonumber = tonumber, tostring = tostring, type = type}
    for key, library in sorted {math = math, string = string, table = table} do
        scope[key] = {}
        for one, value in sorted(library) do scope[key][one] = value end
    end
    return common.strict(scope, "this file")
end

local function family(name)
    families[name] = families[name] or load_lua("templates/" .. name .. ".lua")
    return families[name]
end
M.family = family

-- Numbers that a family makes of a problem for its preferences: its `guides` names them, its
-- guide(values) returns them. (A spec that is being read may have named no family there is.)
function M.guides(spec)
    local list, path = {by = {}}, ("templates/%s.lua"):format(spec.family)
    for i, name in ipairs(read(path) and family(spec.family).guides or {}) do
        list[i] = {name = name, kind = "int", role = "guide"}
        list.by[name] = list[i]
    end
    return list
end

local function guided(spec, values)
    if not family(spec.family).guide then return values end
    local all = {}
    for name, value in sorted(values) do all[name] = value end
    for name, value in sorted(family(spec.family).guide(values)) do all[name] = value end
    return common.strict(all, "the problem")
end

function M.plan(spec, c)
    return common.strict(family(spec.family).plan(c), "the plan")
end

-- ---- search ----

local function new(spec)
    local c = {variant = spec.name, family = spec.family, arch = spec.arch,
        formulas = spec.masks.by, scores = spec.scores.by, score = "none"}
    return common.strict(c, "the candidate")
end

local function give(c, field, value)
    c[field.name] = value
    if field.parts then
        for i, part in ipairs(field.parts) do c[part] = value[i] end
    end
end

-- Lists of rules by the level that has their last name; `most` leaves out those of later levels.
local function rules_by_level(spec, most)
    local at = {}
    for level = 1, #spec.fields + 1 do at[level] = {} end
    for i, rule in ipairs(spec.rules) do
        local level = math.max(rule.level, 1)
        if level <= (most or level) then table.insert(at[level], {rule = rule, number = i}) end
    end
    return at
end

-- The first of the rules that c breaks and its number, or nil. A rule of a launch axis is asked of
-- a problem's candidates alone.
local function broken(rules, c, p)
    for i = 1, #rules do
        local rule = rules[i].rule
        local asked = not rule.launch or rawget(c, rule.launch) ~= nil
        if asked and not rule.e.holds(c, p) then return rule, rules[i].number end
    end
end

-- Calls visit(c, p) for each legal candidate with values of domains[level], in order, until it
-- returns true; reject(rule, how far, c, p) for each that a rule rejects. c is reused: copy what
-- you keep. Rules of levels behind `most` are not asked.
local function search(spec, domains, visit, reject, most)
    local c, fields, n, rules = new(spec), spec.fields, #spec.fields, rules_by_level(spec, most)
    local function from(level)
        if level > n then
            local p = M.plan(spec, c)
            local rule, i = broken(rules[level], c, p)
            if not rule then return visit(c, p) end
            return reject and reject(rule, level * 1000 + i, c, p)
        end
        local field = fields[level]
        if field.role == "launch axis" then
            c[field.name] = domains[level](c)[1]
            local rule, i = broken(rules[level], c)
            if not rule then return from(level + 1) end
            return reject and reject(rule, level * 1000 + i, c)
        end
        for _, value in ipairs(domains[level](c)) do
            give(c, field, value)
            local rule, i = broken(rules[level], c)
            if rule then
                if reject then reject(rule, level * 1000 + i, c) end
            elseif from(level + 1) then
                return true
            end
        end
    end
    return from(1)
end

local function just(list) return function() return list end end

-- An axis' listed values; of one that follows another (head_dim_v) also the other's value, first.
local function listed(field)
    if not field.follow then return just(field.listed or field.values) end
    return function(c)
        local same = common.allowed(field, c[field.follow])
        if not same then return field.values end
        local list = {same}
        for _, value in ipairs(field.values) do
            if value ~= same then list[#list + 1] = value end
        end
        return list
    end
end

local function listed_domains(spec, all)
    local domains = {}
    for level, field in ipairs(spec.fields) do
        domains[level] = field.role == "launch axis" and just({}) or
            all and not field.follow and just(field.values) or listed(field)
    end
    return domains
end

-- Why the candidates of `domains` are all illegal: the rule that rejected the one which came
-- furthest, the first of those; nil if one is legal. `use` (knob → value) is tried first.
local function closest(spec, domains, use)
    local best, text = 0, nil
    local first = {}
    for level, domain in ipairs(domains) do
        local value = use and use[spec.fields[level].name]
        first[level] = value == nil and domain or function(c)
            local list = {}
            for _, other in ipairs(domain(c)) do
                if other == value then table.insert(list, 1, other) else list[#list + 1] = other end
            end
            return list
        end
    end
    local found = search(spec, first, function() return true end, function(rule, far, c, p)
        if far <= best then return end
        best, text = far, ("%s: %s"):format(expr.broken(rule.e, c, p), rule.why)
    end)
    return not found and text or nil
end

-- ---- validation that needs the plan ----

-- Names of rules that are no field must be integers of the plan; p is any candidate's.
local function check_plan_names(spec, x, p)
    local known = {}
    for name, value in sorted(p) do
        if math.type(value) == "integer" then known[#known + 1] = name end
    end
    for _, field in ipairs(spec.fields) do
        known[#known + 1] = field.name
        for _, part in ipairs(field.parts or {}) do known[#known + 1] = part end
    end
    for _, rule in ipairs(spec.rules) do
        for _, node in ipairs(rule.own and rule.plan or {}) do
            if math.type(rawget(p, node.name)) ~= "integer" then
                x:fail({line = rule.e.line, col = rule.e.start + node.at - 1},
                    "rule: '%s' is no axis, knob or number of the plan%s", node.name,
                    common.did_you_mean(node.name, known))
            end
        end
    end
end

-- The first candidate that breaks no rule of axes and knobs alone, and its plan.
local function sample(spec)
    local found, plan
    search(spec, listed_domains(spec), function(c, p)
        found, plan = c, p
        return true
    end, nil, #spec.fields)
    return found, plan
end

-- Each value that this file lists must be legal in some candidate.
function M.check_values(spec, x)
    for level, field in ipairs(spec.fields) do
        local here = field.role ~= "launch axis" and field.places
        for i, value in ipairs(here and field.values or {}) do
            local domains = listed_domains(spec, true)
            domains[level] = just({value})
            local why = closest(spec, domains)
            if why then
                x:fail(field.places[i], "%s: %s can never be used: %s", field.name,
                    common.value_text(value), why)
            end
        end
    end
end

local function combinations(spec)
    local n = 1
    for _, field in ipairs(spec.fields) do
        if field.role == "knob" then n = math.min(n * #field.values, most_candidates + 1) end
    end
    return n
end

-- The length of the longest name a candidate may have: the kernel's symbol and its file's name.
local function name_length(spec)
    local n = #spec.name
    for _, field in ipairs(spec.fields) do
        local longest = field.range and #(field.short .. field.range.to) or 0
        for _, value in ipairs(field.role ~= "launch axis" and field.values or {}) do
            longest = math.max(longest, #M.short_text(field, value))
        end
        n = n + (longest > 0 and longest + 1 or 0)
    end
    return n
end

-- The second half of reading a spec: x collects the errors. Values are checked for a user's file.
function M.check(spec, x)
    if combinations(spec) > most_candidates then
        x:fail(x.tune_place, "tune: more than %d combinations", most_candidates)
    end
    if name_length(spec) > longest_name then
        x:fail({line = 1, col = 1}, "spec: a candidate's name may have %d characters, at most %d "
            .. "are allowed: give short forms under names", name_length(spec), longest_name)
    end
    if #x.errors > 0 then return end
    local c, p = sample(spec)
    if p then check_plan_names(spec, x, p) end
    if #x.errors > 0 then return end
    for _, item in ipairs(spec.generated) do
        local found, why = M.parse_as(spec, item.name)
        why = why or M.illegal(spec, found)
        if why then x:fail(item.place, "generated: %s", why) end
    end
end

-- ---- names ----

function M.short_text(field, value)
    if field.kind == "word" then return field.short[value] end
    if field.kind == "int" then return field.short .. value end
    local texts = {}
    for i, short in ipairs(field.short) do texts[i] = short .. value[i] end
    return table.concat(texts)
end

local function in_name(field, c)
    return field.role ~= "launch axis" and not (field.follow and c[field.name] == c[field.follow])
        and not (field.kind == "word" and field.short[c[field.name]] == "")
end

function M.name(spec, c)
    local parts = {spec.name}
    for _, field in ipairs(spec.fields) do
        if in_name(field, c) then parts[#parts + 1] = M.short_text(field, c[field.name]) end
    end
    return table.concat(parts, "_")
end

-- The value that a part of a name stands for; nil if it isn't of the field's form at all.
local function read_part(field, text)
    if field.kind == "word" then
        for _, word in ipairs(field.values) do
            if field.short[word] == text then return word end
        end
    elseif field.kind == "int" then
        local digits = text:match("^" .. field.short .. "(%d+)$")
        return digits and #digits < 10 and common.allowed(field, math.tointeger(digits)) or nil
    else
        for _, value in ipairs(field.values) do
            if M.short_text(field, value) == text then return value end
        end
    end
end

local function values_in_names(field)
    if field.range then return field.short .. "N, " .. common.values_text(field) end
    local texts = {}
    for i, value in ipairs(field.values) do texts[i] = M.short_text(field, value) end
    return table.concat(texts, ", ")
end

-- The candidate that a name of this spec stands for, or nil and why there is none.
function M.parse_as(spec, name)
    local parts, i, c = {}, 1, new(spec)
    for part in name:sub(#spec.name + 2):gmatch("[^_]+") do parts[#parts + 1] = part end
    for _, field in ipairs(spec.fields) do
        local value = field.role ~= "launch axis" and read_part(field, parts[i] or "")
        if value then
            i = i + 1
        elseif value == nil and field.follow then
            value = common.allowed(field, c[field.follow])
        elseif value == nil and field.kind == "word" then
            value = read_part(field, "")
        end
        if value == nil then
            return nil, ("%s: expected %s (%s), got '%s'"):format(name, field.name,
                values_in_names(field), parts[i] or "")
        end
        if value then give(c, field, value) end
    end
    if parts[i] then return nil, ("%s: '%s' is more than a name has"):format(name, parts[i]) end
    if M.name(spec, c) ~= name then
        return nil, ("%s: the name is written %s"):format(name, M.name(spec, c))
    end
    return c
end

-- Why a candidate is illegal, or nil and its plan.
function M.illegal(spec, c)
    local p
    for level, rules in ipairs(rules_by_level(spec)) do
        if level > #spec.fields then p = M.plan(spec, c) end
        local rule = broken(rules, c, p)
        if rule then
            return ("%s: no such kernel: %s: %s"):format(M.name(spec, c),
                expr.broken(rule.e, c, p), rule.why)
        end
    end
    return nil, p
end

-- The spec and the legal candidate of a name, and its plan.
function M.find(specs, name)
    local best
    for _, spec in ipairs(specs) do
        local begins = name:sub(1, #spec.name + 1) == spec.name .. "_"
        if begins and (not best or #spec.name > #best.name) then best = spec end
    end
    if not best then
        local names = {}
        for i, spec in ipairs(specs) do names[i] = spec.name end
        common.raise(common.EINVAL, "%s: no kernel's name: it begins with %s and a '_'", name,
            table.concat(names, " or "))
    end
    local c, why = M.parse_as(best, name)
    if not c then common.raise(common.EINVAL, "%s", why) end
    local illegal, p = M.illegal(best, c)
    if illegal then common.raise(common.EINVAL, "%s", illegal) end
    return best, c, p
end

-- ---- problems ----

-- The problem's words as values; its variant's spec.
local function read_words(specs, text)
    local values = {}
    for key, value in problem(text):gmatch("(%S+)=(%S+)") do
        values[key] = math.tointeger(tonumber(value)) or value
    end
    local spec = specs.by[values.variant]
    if not spec then
        local names = {}
        for i, one in ipairs(specs) do names[i] = one.name end
        common.raise(common.EINVAL, "variant: no spec '%s'; there is %s%s", values.variant,
            table.concat(names, ", "), common.did_you_mean(values.variant, names))
    end
    if values.score ~= "none" and not spec.by.score then
        common.raise(common.EINVAL, "score=%s: %s takes none", values.score, spec.name)
    end
    return spec, values
end

local function refuse_value(spec, field, value)
    local near = ""
    if field.kind == "word" then
        near = common.did_you_mean(value, field.values)
    elseif field.range and value >= field.range.from and value <= field.range.to then
        local r = field.range
        local steps = (value - r.from + r.step - 1) // r.step
        near = ("; the next above is %d"):format(r.from + steps * r.step)
    end
    common.raise(common.EINVAL, "%s=%s: %s takes %s%s", field.name, value, spec.name,
        common.values_text(field), near)
end

local function problem_domains(spec, values)
    local domains = {}
    for level, field in ipairs(spec.fields) do
        if field.role == "knob" then
            domains[level] = just(field.values)
        else
            if common.allowed(field, values[field.name]) == nil then
                refuse_value(spec, field, values[field.name])
            end
            domains[level] = just({values[field.name]})
        end
    end
    return domains
end

-- The preferences that hold, as one: the first to name a knob gives its value. For a candidate
-- alone, which has neither sizes nor launch axes, those that ask for them don't hold.
local function preference(spec, values, is_problem)
    local all
    for _, rule in ipairs(spec.prefer) do
        if (is_problem or not rule.asks_more) and (not rule.e or rule.e.holds(values)) then
            all = all or {place = rule.place, e = rule.e, use = {}}
            for _, pair in ipairs(rule.use) do
                if all.use[pair.name] == nil then
                    all.use[#all.use + 1], all.use[pair.name] = pair, pair.value
                end
            end
        end
    end
    return all
end

local function distance(spec, c, rule)
    local n = 0
    for _, pair in ipairs(rule and rule.use or {}) do
        local field = spec.by[pair.name]
        if field and c[pair.name] ~= pair.value then n = n + 1 end
    end
    return n
end

-- Who chose a candidate, as the launch record's and the user's line.
local function chooser(spec, rule, n)
    if not rule then return ("order of %s"):format(spec.path) end
    local when = rule.e and " " .. rule.e.text or ""
    local differs = n > 0 and (", but for %d of its values"):format(n) or ""
    return ("prefer %s%s%s"):format(rule.place, when:sub(1, 120), differs)
end

-- Launch numbers that were measured or given, and for the others the preference's.
local function numbers(use, rule)
    local all = {}
    for _, pair in ipairs(rule and rule.use or {}) do all[pair.name] = pair.value end
    for name, value in sorted(use) do all[name] = value end
    return all
end

-- The names of a problem's candidates, best first; the first one's spec, launch numbers and who
-- chose it: a table of measurements (specs.pick), else the preferences.
function M.list(specs, text)
    local spec, values = read_words(specs, text)
    local domains = problem_domains(spec, values)
    local rule = preference(spec, guided(spec, values), true)
    local by_distance = {}
    for d = 0, #spec.fields do by_distance[d] = {} end
    search(spec, domains, function(c)
        local list = by_distance[distance(spec, c, rule)]
        list[#list + 1] = M.name(spec, c)
    end)
    local measured = specs.pick(spec, values)
    local names, best = {measured and M.name(spec, measured.c)}, nil
    for d = 0, #spec.fields do
        for _, name in ipairs(by_distance[d]) do
            if name ~= names[1] or not measured then names[#names + 1] = name end
            best = best or d
        end
    end
    if not best then
        common.raise(common.EINVAL, "%s has no kernel for this problem: %s", spec.name,
            closest(spec, domains, rule and rule.use))
    end
    if measured then
        return names, {spec = spec, use = numbers(measured.numbers, rule), by = measured.by}
    end
    return names, {spec = spec, use = numbers({}, rule), by = chooser(spec, rule, best)}
end

-- The launch numbers that somebody gave with a name: NUMBER=VALUE…
function M.given(spec, c, text)
    local use = {}
    for key, value in text:gmatch("([^%s=]+)=(%S*)") do
        local number = spec.launch_by[key]
        use[key] = number and common.allowed(number, math.tointeger(tonumber(value)) or value)
        if not use[key] then
            common.raise(common.EINVAL, "%s=%s: %s %s", key, value, spec.name,
                number and "takes " .. common.values_text(number) or "has no such launch number")
        end
    end
    return {use = numbers(use, preference(spec, c)), by = "name given"}
end

-- ---- what is made of a candidate ----

-- Launch numbers: those of `use`, unless a variant doesn't list them; else the first listed.
local function launch_numbers(spec, c, use)
    for _, number in ipairs(spec.launch) do
        local value = use[number.name]
        c[number.name] = value and common.allowed(number, value) or number.values[1]
    end
end

-- The launch record; `choice` is M.list's second result, or nil for a name that was given.
function M.record(spec, c, p, choice)
    local name = M.name(spec, c)
    launch_numbers(spec, c, choice and choice.use or numbers({}, preference(spec, c)))
    local lines = {"choice " .. name, "by " .. (choice and choice.by or "name given"),
        "arch " .. spec.arch}
    for _, field in ipairs(spec.fields) do
        if field.role == "axis" then
            lines[#lines + 1] = ("axis %s %s"):format(field.name, common.value_text(c[field.name]))
        end
    end
    for _, line in ipairs(variants.launch(spec, c)) do lines[#lines + 1] = line end
    for _, line in ipairs(family(spec.family).launch(c, p, name)) do lines[#lines + 1] = line end
    return table.concat(lines, "\n") .. "\n"
end

-- The names a template sees: candidate, plan, what the family's render adds, `name`.
function M.environment(spec, c, p)
    local render = family(spec.family).render
    local more = render and render(c, p) or {}
    local own = {name = M.name(spec, c), mask_code = variants.code(spec, c),
        score_code = variants.score_code(spec, c), tensors = variants.tensors(spec, c)}
    local places = {own, more, p, c, new_scope()}
    return setmetatable({}, {
        __index = function(_, key)
            for _, from in ipairs(places) do
                local value = rawget(from, key)
                if value ~= nil then return value end
            end
        end,
    })
end

-- Lines {part of the name, field, value}, for explain.
function M.name_parts(spec, c)
    local lines = {{spec.name, "family " .. spec.family .. ", " .. spec.path}}
    for _, field in ipairs(spec.fields) do
        if in_name(field, c) then
            lines[#lines + 1] = {M.short_text(field, c[field.name]),
                field.name .. " " .. common.value_text(c[field.name])}
        end
    end
    return lines
end

M.search, M.listed_domains = search, listed_domains

return M
