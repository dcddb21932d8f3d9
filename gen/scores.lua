-- scores.lua - a score as the code of a kernel: what is the same for a whole tile is worked out
-- once, factors are gathered, and those of the whole score go into the softmax's own.
-- SPDX-License-Identifier: BSD-3-Clause
--
-- A thread's scores lie `over` rows and `along` columns from its first, (row0, col0), both known
-- when the loop is unrolled: a number that is linear in row and col is one addition.

local formula = require "formula"
local tiles = require "tiles"

local M = {}

local log2_e, ln_2 = 1.4426950408889634, 0.6931471805599453

local function float_text(value)
    local text = ("%.9g"):format(value)
    return (text:find("[.e]") and text or text .. ".0") .. "f"
end

-- Text over lines of at most `room` columns, the later ones indented 4 more.
function M.wrapped(text, room)
    local lines, line = {}, ""
    for word in text:gmatch("%S+") do
        if #line + #word >= room and line ~= "" then
            lines[#lines + 1], line = line, "    " .. word
        else
            line = line == "" and word or line .. " " .. word
        end
    end
    lines[#lines + 1] = line
    return table.concat(lines, "\n")
end

local function is_score(node) return node.op == "name" and node.name == "s" end

local function moves(node)
    return node.row or node.col or formula.depends(node, "s")
end

-- Never 0 or below, whatever is given.
local function is_positive(node)
    return (node.op == "const" or node.op == "name") and node.low and node.low > 0
end

local function writer(names)
    local W = {lines = {}, known = {}}
    -- A name for what is the same for all scores of a tile.
    function W.once(text)
        if text == "" or text:find("^[%d.e+-]+f?$") then return text end
        if not W.known[text] then
            W.lines[#W.lines + 1] = M.wrapped(("const float k%d = %s;"):format(#W.lines + 1, text),
                92)
            W.known[text] = "k" .. #W.lines
        end
        return W.known[text]
    end
    function W.first(name)
        return (name == "row" or name == "col") and name .. "0" or names(name)
    end
    W.names = names
    return W
end

-- ---- products ----

local function new() return {number = 1.0, scaled = 0, staying = {}, under = {}, moving = {}} end

-- Takes node's factors apart: `number`; those that stay, above and under the line; and those that
-- move. s is the product of the accumulator and of the launch's scale.
local function gather(node, into)
    local op = node.op
    local under = op == "/" and not moves(node[2]) and node[2]
    if op == "*" or under then gather(node[1], into) end
    if op == "*" then
        gather(node[2], into)
    elseif op == "const" or under and under.op == "const" then
        local number = under and into.number / under.value or into.number * node.value
        local is_plain = math.abs(number) < 1e30 and math.abs(number) > 1e-30
        if is_plain then into.number = number
        else table.insert(under and into.under or into.staying, under or node) end
    elseif under then
        table.insert(into.under, under)
    elseif is_score(node) then
        into.scaled = into.scaled + 1
        table.insert(into.moving, node)
    else
        table.insert(moves(node) and into.moving or into.staying, node)
    end
    return into
end

-- The factors that don't move, as text; "" when they are 1.
local function factor_text(W, f)
    local parts = {}
    if f.number ~= 1.0 then parts[1] = float_text(f.number) end
    for _ = 1, f.scaled do
        parts[#parts + 1] = ("(p.scale_log2 * %s)"):format(float_text(ln_2))
    end
    for _, node in ipairs(f.staying) do parts[#parts + 1] = formula.c(node, W.names) end
    for _, node in ipairs(f.under) do
        parts[#parts + 1] = ("__fdividef(1.0f, %s)"):format(formula.c(node, W.names))
    end
    return table.concat(parts, " * ")
end

-- ---- expressions ----

local element

-- An int as a float.
local function float_of(W, node)
    local op = node.op
    if op == "const" then return float_text(node.value) end
    if not node.row and not node.col then return W.once("(float)" .. formula.c(node, W.names)) end
    local row, col = tiles.slopes(node)
    if row then
        return ("(%s + (%s * over + %s * along))"):format(
            W.once("(float)" .. formula.c(node, W.first)), float_text(row + 0.0),
            float_text(col + 0.0))
    end
    if op == "neg" then return ("(-%s)"):format(float_of(W, node[1])) end
    if (op == "+" or op == "-") and (node[1].op == "const" or node[2].op == "const") then
        return ("(%s %s %s)"):format(float_of(W, node[1]), op, float_of(W, node[2]))
    end
    if op == "abs" then return ("fabsf(%s)"):format(float_of(W, node[1])) end
    if op == "min" or op == "max" then
        return ("f%sf(%s, %s)"):format(op, float_of(W, node[1]), float_of(W, node[2]))
    end
    return "(float)" .. formula.c(node, W.names)
end

local function product_text(W, f)
    local parts = {W.once(factor_text(W, f))}
    if parts[1] == "" then parts = {} end
    for _, node in ipairs(f.moving) do
        parts[#parts + 1] = is_score(node) and "scores[i]" or element(W, node)
    end
    if #parts < 2 then return parts[1] or "1.0f" end
    return "(" .. table.concat(parts, " * ") .. ")"
end

local calls = {min = "fminf", max = "fmaxf", abs = "fabsf", exp2 = "exp2_approx",
    log2 = "log2_approx", tanh = "tanh_approx", sigmoid = "sigmoid_approx", ["/"] = "__fdividef"}
local c_operators = {["and"] = "&&", ["or"] = "||"}

-- A condition, or an int of one.
local function condition(W, node)
    local op, a, b = node.op, node[1], node[2]
    if node.type == "int" then return formula.c(node, W.names) end
    if node.type == "float" then return element(W, node) end
    if op == "const" then return tostring(node.value) end
    if op == "not" then return ("(!%s)"):format(condition(W, a)) end
    if op == "select" then
        return ("(%s ? %s : %s)"):format(condition(W, a), condition(W, b), condition(W, node[3]))
    end
    if a.type == "int" then return formula.c(node, W.names) end
    return ("(%s %s %s)"):format(condition(W, a), c_operators[op] or op, condition(W, b))
end

-- A float's value for one score.
function element(W, node)
    local op, a, b = node.op, node[1], node[2]
    if op == "float" then return float_of(W, a) end
    if not moves(node) then return W.once(formula.c(node, W.names)) end
    if op == "tensor" then return formula.c(node, W.names) end
    if op == "*" or op == "/" and not moves(b) or is_score(node) then
        return product_text(W, gather(node, new()))
    end
    if op == "neg" then return ("(-%s)"):format(element(W, a)) end
    if op == "select" then
        return ("(%s ? %s : %s)"):format(condition(W, a), element(W, b), element(W, node[3]))
    end
    if calls[op] then
        return ("%s(%s%s)"):format(calls[op], element(W, a), b and ", " .. element(W, b) or "")
    end
    return ("(%s %s %s)"):format(element(W, a), op, element(W, b))
end

-- {factor: of the softmax, lines: for a tile, places: for a score, value: the new scores[i], false
-- where it is the old one}; value and factor make the score times log2(e). names(name): a name's C.
function M.code(tree, names)
    local W, f, whole, rest = writer(names), gather(tree, new()), new(), new()
    whole.number, whole.scaled, rest.moving = log2_e, f.scaled, f.moving
    if f.number > 0 then whole.number = f.number * log2_e else rest.number = f.number end
    for _, list in ipairs {"staying", "under"} do
        for _, node in ipairs(f[list]) do
            table.insert((is_positive(node) and whole or rest)[list], node)
        end
    end
    local value = product_text(W, rest)
    local function uses(name) return value:find("%f[%w]" .. name .. "%f[%W]") end
    local row, col = uses("row"), uses("col")
    local places = {}
    if row or uses("over") then places[1] = "const int over = i / 2 % 2 * 8;" end
    if col or uses("along") then
        places[#places + 1] = "const int along = i / 4 * 8 + i % 2;"
    end
    if row then places[#places + 1] = "const int row = row0 + over;" end
    if col then places[#places + 1] = "const int col = col0 + along;" end
    return {factor = M.wrapped(factor_text(W, whole), 72), lines = W.lines, places = places,
        value = value ~= "scores[i]" and M.wrapped(value, 76)}
end

return M
