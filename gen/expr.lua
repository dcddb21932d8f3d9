-- expr.lua - the expressions of rules: type, compile, and say in numbers why one broke.
-- SPDX-License-Identifier: BSD-3-Clause
--
-- Written as parse.lua has it, with whole numbers and no calls. A word is a name of the scope, or a
-- value of the field on the other side of == or !=.

local common = require "common"
local parse = require "parse"

local M = {}

local longest = 300 -- so that what becomes of it nests less deeply than Lua can read
local wrong, comparisons = parse.wrong, parse.comparisons

-- ---- types ----

local function typed(node, want, got)
    if got ~= want then wrong(node.from, "expected a %s, got a %s", want, got) end
end

local type_of

-- The word `node` as a value of the field `other` names.
local function as_value(node, other)
    local field = other.field
    if not field.has[node.name] then
        wrong(node.at, "%s has no value '%s'%s", field.name, node.name,
            common.did_you_mean(node.name, field.values))
    end
    node.op, node.value = "value", node.name
    return "word"
end

local function equality(node, scope)
    local a, b = node.a, node.b
    local function free(n) return n.op == "word" and not scope.find(n.name) end
    local kind_a = not free(a) and type_of(a, scope)
    local kind_b = not free(b) and type_of(b, scope)
    if kind_a == "word" and free(b) then return as_value(b, a) end
    if kind_b == "word" and free(a) then return as_value(a, b) end
    kind_a, kind_b = kind_a or type_of(a, scope), kind_b or type_of(b, scope)
    if kind_a == "condition" then typed(a, "number", kind_a) end
    typed(b, kind_a, kind_b)
end

local function operands(node, scope, want)
    typed(node.a, want, type_of(node.a, scope))
    if node.b then typed(node.b, want, type_of(node.b, scope)) end
end

function type_of(node, scope)
    local op = node.op
    if op == "int" then
        return "number"
    elseif op == "word" then
        local field = scope.find(node.name)
        if field and field.parts then
            wrong(node.at, "%s is a list: use %s", node.name, table.concat(field.parts, " or "))
        end
        node.field = field
        scope.seen(node, wrong)
        return field and field.kind == "word" and "word" or "number"
    elseif op == "and" or op == "or" or op == "not" then
        operands(node, scope, "condition")
        return "condition"
    elseif op == "==" or op == "!=" then
        equality(node, scope)
        return "condition"
    end
    operands(node, scope, "number")
    return comparisons[op] and "condition" or "number"
end

-- ---- use ----

local lua_operators = {["!="] = "~="}
local checked = {["+"] = "sum", ["-"] = "difference", ["*"] = "product"}
local most = 0x1p62 -- as a number with a fraction, which does not wrap round

-- The node as Lua: a field's name is the candidate's, another one the plan's.
local function to_lua(node)
    local op = node.op
    if op == "int" or op == "value" then return ("%q"):format(node.value) end
    if op == "word" then return ("%s[%q]"):format(node.field and "c" or "p", node.name) end
    local a, b = to_lua(node.a), node.b and to_lua(node.b)
    if not b then return ("(%s %s)"):format(op == "neg" and "-" or op, a) end
    if checked[op] then return ("%s(%s, %s, %d)"):format(checked[op], a, b, node.at) end
    if op == "//" or op == "%" then b = ("divisor(%s, %d)"):format(b, node.at) end
    return ("(%s %s %s)"):format(a, lua_operators[op] or op, b)
end

-- A function of candidate and plan.
local function compile(node, e)
    local function divisor(n, at)
        if n ~= 0 then return n end
        common.raise(common.ESPEC, "%s: division by zero in `%s`", M.place(e, at), e.text)
    end
    local function small(exact, rough, at)
        if math.abs(rough) < most then return exact end
        common.raise(common.ESPEC, "%s: `%s` is 2^62 or more: a rule's numbers stay below it",
            M.place(e, at), e.text)
    end
    local given = {
        divisor = divisor,
        sum = function(a, b, at) return small(a + b, a + 0.0 + b, at) end,
        difference = function(a, b, at) return small(a - b, a - 0.0 - b, at) end,
        product = function(a, b, at) return small(a * b, (a + 0.0) * b, at) end,
    }
    return load("local c, p = ... return " .. to_lua(node), "=rule", "t", given)
end

-- "FILE:LINE:COL" of a byte of the expression.
function M.place(e, at)
    return ("%s:%d:%d"):format(e.path, e.line, e.start + at - 1)
end

-- Reads `text`, begun at path:line:start, with the names of scope: find(name) → field or nil,
-- seen(node) for each name. Returns {text, path, line, start, holds(c, p), tree}, or nil, the
-- column and what is wrong there.
function M.read(text, path, line, start, scope)
    local e = {text = text, path = path, line = line, start = start}
    local tree, at, why = parse.caught(function()
        if #text > longest then wrong(1, "an expression has at most %d characters", longest) end
        local root = parse.tree(text)
        typed(root, "condition", type_of(root, scope))
        return root
    end)
    if not tree then return nil, start + at - 1, why end
    e.tree, e.holds = tree, compile(tree, e)
    return e
end

local function side(e, node, c, p)
    local value = tostring(compile(node, e)(c, p))
    if node.op == "int" or node.op == "value" then return value end
    return ("%s = %s"):format(e.text:sub(node.from, node.to), value)
end

-- Every name of the expression with its value, for what is no comparison: "(mask = causal, …)".
local function names(node, c, p, list)
    if node.op == "word" then
        local value = node.field and c[node.name] or p[node.name]
        local text = ("%s = %s"):format(node.name, tostring(value))
        if not list[text] then list[text], list[#list + 1] = true, text end
    end
    if node.a then names(node.a, c, p, list) end
    if node.b then names(node.b, c, p, list) end
    return list
end

-- Why it doesn't hold: "FILE:LINE:COL: stages * slot_bytes = 245760 > 232448".
function M.broken(e, c, p)
    local node = e.tree
    while node.op == "and" do
        node = compile(node.a, e)(c, p) and node.b or node.a
    end
    local why
    if comparisons[node.op] then
        why = ("%s %s %s"):format(side(e, node.a, c, p), comparisons[node.op],
            side(e, node.b, c, p))
    else
        why = ("not (%s), with %s"):format(e.text:sub(node.from, node.to),
            table.concat(names(node, c, p, {}), ", "))
    end
    return ("%s: %s"):format(M.place(e, node.from), why)
end

return M
