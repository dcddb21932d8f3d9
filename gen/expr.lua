-- expr.lua - the expressions of rules: parse, type, compile, and say in numbers why one broke.
-- SPDX-License-Identifier: BSD-3-Clause
--
--   or · and · not · one of < <= > >= == != · + - · * // % · - · integer, word, ( … )
-- A word is a name of the scope, or a value of the field on the other side of == or !=.

local common = require "common"

local M = {}

local longest = 300 -- so that what becomes of it nests less deeply than Lua can read

-- Raised inside parse and bind, caught there: a place in the text and what is wrong with it.
local function wrong(at, format, ...)
    error({at = at, text = format:format(...)}, 0)
end

local function caught(f, ...)
    local good, result = pcall(f, ...)
    if good then return result end
    if type(result) ~= "table" or not result.at then error(result, 0) end
    return nil, result.at, result.text
end

-- ---- parse ----

local keywords = {["and"] = true, ["or"] = true, ["not"] = true}
-- Each comparison and the one that holds when it doesn't.
local comparisons = {["<"] = ">=", ["<="] = ">", [">"] = "<=", [">="] = "<",
    ["=="] = "!=", ["!="] = "=="}

local function tokens(text)
    local list, at = {}, 1
    local function take(kind, pattern)
        local piece = text:match("^" .. pattern, at)
        if piece then
            local kind_of = keywords[piece] and piece or kind or piece
            list[#list + 1] = {kind = kind_of, text = piece, at = at}
            at = at + #piece
        end
        return piece
    end
    while true do
        at = text:match("^ *()", at)
        if at > #text then break end
        local found = take("word", "[%a_][%w_]*") or take("int", "%d+") or take(nil, "[<>=!]=") or
            take(nil, "//") or take(nil, "[-+*%%()<>]")
        if not found then
            wrong(at, "unexpected '%s'", text:match("[^\x80-\xbf][\x80-\xbf]*", at))
        end
    end
    list[#list + 1] = {kind = "the end", text = "the end", at = #text + 1}
    return list
end

local function parser(text)
    local list, i = tokens(text), 1
    local P = {}
    local function accept(kind)
        local token = list[i]
        if token.kind ~= kind then return nil end
        i = i + 1
        return token
    end
    local function shown(token)
        return token.kind == "the end" and "the end" or "'" .. token.text .. "'"
    end
    local function binary(op, at, a, b)
        return {op = op, at = at, a = a, b = b, from = a.from, to = b.to}
    end
    -- A level of left-associative operators over the next level.
    local function level(next_level, operators)
        return function()
            local a = next_level()
            while operators[list[i].kind] do
                local token = list[i]
                i = i + 1
                a = binary(token.kind, token.at, a, next_level())
            end
            return a
        end
    end
    local function primary()
        local token = list[i]
        i = i + 1
        local from, to = token.at, token.at + #token.text - 1
        if token.kind == "int" then
            if #token.text > 9 then wrong(from, "%s is too large", token.text) end
            local value = math.tointeger(token.text)
            return {op = "int", value = value, at = from, from = from, to = to}
        elseif token.kind == "word" then
            return {op = "word", name = token.text, at = from, from = from, to = to}
        elseif token.kind == "(" then
            local inner = P.expression()
            local close = accept(")")
            if not close then wrong(list[i].at, "expected ')', got %s", shown(list[i])) end
            inner.from, inner.to = from, close.at
            return inner
        end
        wrong(from, "expected a value, got %s", shown(token))
    end
    local function unary()
        local minus = accept("-")
        if not minus then return primary() end
        local a = primary()
        return {op = "neg", a = a, at = minus.at, from = minus.at, to = a.to}
    end
    local product = level(unary, {["*"] = true, ["//"] = true, ["%"] = true})
    local sum = level(product, {["+"] = true, ["-"] = true})
    local function comparison()
        local a, token = sum(), list[i]
        if not comparisons[token.kind] then return a end
        i = i + 1
        a = binary(token.kind, token.at, a, sum())
        if comparisons[list[i].kind] then wrong(list[i].at, "comparisons do not chain: use and") end
        return a
    end
    local function negation()
        local token = accept("not")
        if not token then return comparison() end
        local a = negation()
        return {op = "not", a = a, at = token.at, from = token.at, to = a.to}
    end
    P.expression = level(level(negation, {["and"] = true}), {["or"] = true})
    function P.all()
        local tree = P.expression()
        if list[i].kind ~= "the end" then wrong(list[i].at, "unexpected %s", shown(list[i])) end
        return tree
    end
    return P
end

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
    local tree, at, why = caught(function()
        if #text > longest then wrong(1, "an expression has at most %d characters", longest) end
        local root = parser(text).all()
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
