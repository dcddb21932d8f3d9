-- parse.lua - an expression's text to a tree: rules (expr.lua), masks and scores (formula.lua).
-- SPDX-License-Identifier: BSD-3-Clause
--
--   or · and · not · one of < <= > >= == != · + - · * / // % · - · number, word, word(…), word[…],
--   ( … )
-- A node is {op, at, from, to, a, b} with bytes of the text; op is an operator, "neg", "int",
-- "float", "word", "call" (name, and the arguments 1, 2, …) or "index" (likewise, of a tensor).

local M = {}

-- Raised inside parse and what is built on it, caught by M.caught: a place in the text and what is
-- wrong there.
function M.wrong(at, format, ...)
    error({at = at, text = format:format(...)}, 0)
end
local wrong = M.wrong

-- f's result, or nil, the place and what is wrong.
function M.caught(f, ...)
    local good, result = pcall(f, ...)
    if good then return result end
    if type(result) ~= "table" or not result.at then error(result, 0) end
    return nil, result.at, result.text
end

local keywords = {["and"] = true, ["or"] = true, ["not"] = true}
-- Each comparison and the one that holds when it doesn't.
M.comparisons = {["<"] = ">=", ["<="] = ">", [">"] = "<=", [">="] = "<", ["=="] = "!=",
    ["!="] = "=="}

-- What rules have, and what formulas have beside it.
local rule_tokens = {{"word", "[%a_][%w_]*"}, {"int", "%d+"}, {nil, "[<>=!]="}, {nil, "//"},
    {nil, "[-+*%%()<>]"}}
local formula_tokens = {{"word", "[%a_][%w_]*"}, {"float", "%d+%.?%d*[eE][-+]?%d+"},
    {"float", "%d+%.%d*"}, {"int", "%d+"}, {nil, "[<>=!]="}, {nil, "//"},
    {nil, "[-+*/%%(),<>%[%]]"}}

local function tokens(text, kinds)
    local list, at = {}, 1
    while true do
        at = text:match("^ *()", at)
        if at > #text then break end
        local piece
        for _, row in ipairs(kinds) do
            piece = text:match("^" .. row[2], at)
            if piece then
                local kind = keywords[piece] and piece or row[1] or piece
                list[#list + 1] = {kind = kind, text = piece, at = at}
                at = at + #piece
                break
            end
        end
        if not piece then
            wrong(at, "unexpected '%s'", text:match("[^\x80-\xbf][\x80-\xbf]*", at))
        end
    end
    list[#list + 1] = {kind = "the end", text = "the end", at = #text + 1}
    return list
end

local function literal(token)
    local node = {op = token.kind, at = token.at, from = token.at, to = token.at + #token.text - 1}
    if token.kind == "int" then
        if #token.text > 9 then
            wrong(token.at, "%s is too large: whole numbers have up to 9 digits", token.text)
        end
        node.value = math.tointeger(token.text)
    else
        node.value = tonumber(token.text) + 0.0
        if node.value > 3e38 then
            wrong(token.at, "%s is too large: numbers are up to 3e38", token.text)
        end
    end
    return node
end

-- The tree of the whole text, whose grammar is a rule's or, with `formula`, a formula's.
function M.tree(text, formula)
    local list, i = tokens(text, formula and formula_tokens or rule_tokens), 1
    local expression
    local function accept(kind)
        local token = list[i]
        if token.kind ~= kind then return nil end
        i = i + 1
        return token
    end
    local function shown(token)
        return token.kind == "the end" and "the end" or "'" .. token.text .. "'"
    end
    local function closing(what, kind)
        local close = accept(kind or ")")
        if not close then wrong(list[i].at, "expected %s, got %s", what, shown(list[i])) end
        return close
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
    local function call(token, op, close)
        local node = {op = op, name = token.text, at = token.at, from = token.at}
        repeat node[#node + 1] = expression() until not accept(",")
        node.to = closing(("',' or '%s'"):format(close), close).at
        return node
    end
    local function primary()
        local token = list[i]
        i = i + 1
        local from, to = token.at, token.at + #token.text - 1
        if token.kind == "int" or token.kind == "float" then
            return literal(token)
        elseif token.kind == "word" then
            if formula and accept("(") then return call(token, "call", ")") end
            if formula and accept("[") then return call(token, "index", "]") end
            return {op = "word", name = token.text, at = from, from = from, to = to}
        elseif token.kind == "(" then
            local inner = expression()
            inner.from, inner.to = from, closing("')'").at
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
    local product = level(unary, {["*"] = true, ["/"] = true, ["//"] = true, ["%"] = true})
    local sum = level(product, {["+"] = true, ["-"] = true})
    local function comparison()
        local a, token = sum(), list[i]
        if not M.comparisons[token.kind] then return a end
        i = i + 1
        a = binary(token.kind, token.at, a, sum())
        if M.comparisons[list[i].kind] then
            wrong(list[i].at, "comparisons do not chain: use and")
        end
        return a
    end
    local function negation()
        local token = accept("not")
        if not token then return comparison() end
        local a = negation()
        return {op = "not", a = a, at = token.at, from = token.at, to = a.to}
    end
    expression = level(level(negation, {["and"] = true}), {["or"] = true})
    local tree = expression()
    if list[i].kind ~= "the end" then wrong(list[i].at, "unexpected %s", shown(list[i])) end
    return tree
end

return M
