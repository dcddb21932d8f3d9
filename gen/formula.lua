-- formula.lua - masks and scores: an expression's tree with types, ranges and folded constants; as
-- text, CUDA and Lua; its derivative.
-- SPDX-License-Identifier: BSD-3-Clause
--
-- A node is {op, type = "int" | "float" | "bool", 1, 2, 3: operands, at, from, to, row, col: does
-- it depend on the position, low, high: of an int}. op is "const" (value), "name" (name), "float"
-- (an int taken for one), an operator or a function. Whole numbers are exact: each has a range,
-- which decides between 32 and 64 bits and must stay below 2^62. A mask is of whole numbers alone,
-- so that its tiles are told without a rounding (tiles.lua).

local common = require "common"
local parse = require "parse"

local M = {}

local wrong, comparisons = parse.wrong, parse.comparisons
local longest = 300
local most = 0x1p62

-- Names by the kind of formula, with the range of the whole ones.
local position = (1 << 30) - 1
local own_names = {
    {"row", -position, position}, {"col", 0, position}, {"seq_q", 0, 1 << 30},
    {"seq_k", 0, 1 << 30}, {"batch", 0, 65535}, {"head", 0, 65535}, {"kv_head", 0, 65535},
    {"heads", 1, 65536}, {"kv_heads", 1, 65536},
}
local functions = {
    min = 2, max = 2, abs = 1, select = 3, tanh = 1, exp2 = 1, log2 = 1, sigmoid = 1,
    list = {"min", "max", "abs", "select", "tanh", "exp2", "log2", "sigmoid"},
}

-- What a tensor may hold, by its name there: the type of its elements.
M.elements = {int32 = "int", bool = "bool", fp32 = "float", bf16 = "float",
    list = {"int32", "bool", "fp32", "bf16"}}
-- What a tensor may be indexed by, and how a launch record tells it: a position, …
local indexes = {row = "p", col = "p", batch = "b", head = "h", kv_head = "k"}
local most_indexes, most_whole = 3, 1 << 30

-- A scope: the names that a mask ("keep") or a score ("value") may use, with its params: {name,
-- type, low, high}; and its tensors: {name, element, indexes: a list, told from their use}.
function M.scope(kind, params, tensors)
    local scope = {kind = kind, by = {}, names = {}, tensors = tensors or {},
        tensor_names = {}}
    for i, tensor in ipairs(scope.tensors) do scope.tensor_names[i] = tensor.name end
    local function add(row)
        scope.by[row.name], scope.names[#scope.names + 1] = row, row.name
    end
    for _, row in ipairs(own_names) do
        add {name = row[1], type = "int", low = row[2], high = row[3]}
    end
    if kind == "value" then add {name = "s", type = "float"} end
    for _, row in ipairs(params) do add(row) end
    return scope
end

function M.is_function(name) return name ~= "list" and functions[name] ~= nil end

local taken = {["true"] = true, ["false"] = true, ["and"] = true, ["or"] = true, ["not"] = true,
    s = true}
function M.is_keyword(name) return taken[name] end

-- ---- nodes ----

local arithmetic = {
    ["+"] = function(a, b) return a + b end, ["-"] = function(a, b) return a - b end,
    ["*"] = function(a, b) return a * b end, ["/"] = function(a, b) return a / b end,
    ["//"] = function(a, b) return a // b end, ["%"] = function(a, b) return a % b end,
    neg = function(a) return -a end, abs = function(a) return a < 0 and -a or a end,
    min = math.min, max = math.max, float = function(a) return a + 0.0 end,
    ["<"] = function(a, b) return a < b end, ["<="] = function(a, b) return a <= b end,
    [">"] = function(a, b) return a > b end, [">="] = function(a, b) return a >= b end,
    ["=="] = function(a, b) return a == b end, ["!="] = function(a, b) return a ~= b end,
    ["not"] = function(a) return not a end, exp2 = function(a) return 2.0 ^ a end,
}

-- Least and largest of an int's operator, rough: as numbers with a fraction, which don't wrap.
local corners = {["+"] = true, ["-"] = true, ["*"] = true, min = true, max = true, ["//"] = true}
local function span(op, a, b)
    if op == "neg" then return -a.high, -a.low end
    if op == "abs" then
        local far = math.max(-a.low, a.high)
        return (a.low > 0 and a.low or a.high < 0 and -a.high or 0), far
    end
    if op == "%" then return 0, b.high - 1 end
    if op == "select" then return math.min(a.low, b.low), math.max(a.high, b.high) end
    local low, high, exact = nil, nil, arithmetic[op]
    for _, x in ipairs {a.low, a.high} do
        for _, y in ipairs {b.low, b.high} do
            if math.abs(exact(x + 0.0, y + 0.0)) >= most then return -most, most end
            local value = exact(x, y)
            low, high = math.min(low or value, value), math.max(high or value, value)
        end
    end
    return low, high
end

function M.const(value, place)
    local kind = math.type(value)
    return {op = "const", value = value, at = place.at, from = place.from, to = place.to,
        type = kind == "integer" and "int" or kind and "float" or "bool", low = value,
        high = value}
end

local function all_const(node)
    for i = 1, #node do
        if node[i].op ~= "const" then return false end
    end
    return #node > 0
end

-- Conditions with a constant, and choices by one.
local function shorter(node)
    local a, b = node[1], node[2]
    if node.op == "select" and a.op == "const" then return a.value and b or node[3] end
    if node.op ~= "and" and node.op ~= "or" then return nil end
    if b.op == "const" then a, b = b, a end
    if a.op ~= "const" then return nil end
    return a.value == (node.op == "and") and b or a
end

-- A node of op and operands, at `place`; constants are folded.
function M.make(op, kind, place, ...)
    local node = {op = op, type = kind, at = place.at, from = place.from, to = place.to, ...}
    for i = 1, #node do
        node.row, node.col = node.row or node[i].row, node.col or node[i].col
    end
    local short = shorter(node)
    if short then return short end
    if kind == "int" then
        local a, b = node[1], node[2]
        if op == "select" then a, b = node[2], node[3] end
        node.low, node.high = span(op, a, b)
        if node.low <= -most or node.high >= most then
            wrong(place.from, "may reach 2^62: whole numbers stay below it")
        end
    end
    if not all_const(node) or not arithmetic[op] then return node end
    local value = arithmetic[op](node[1].value, node[2] and node[2].value)
    if kind == "float" and (value ~= value or value > 3e38 or value < -3e38) then
        if place.derived then return node end -- nobody wrote it: it is what it is when it runs
        wrong(place.from, "is no finite number")
    end
    return M.const(value, place)
end
local make = M.make

-- ---- types ----

local what = {int = "a number", float = "a number", bool = "a condition"}

local function expected(node, want, tree)
    if tree.type == "bool" ~= (want == "condition") then
        wrong(node.from, "expected a %s, got %s", want, what[tree.type])
    end
    return tree
end

local function as_float(tree)
    return tree.type == "int" and make("float", "float", tree, tree) or tree
end

local function no_fraction(scope, place, text)
    if scope.kind == "keep" then
        wrong(place.from, "%s has a fraction: a mask is of whole numbers", text)
    end
end

local type_of

local function number(node, scope) return expected(node, "number", type_of(node, scope)) end
local function condition(node, scope) return expected(node, "condition", type_of(node, scope)) end

local function word(node, scope)
    local name = node.name
    if name == "true" or name == "false" then return M.const(name == "true", node) end
    local found = scope.by[name]
    if not found then
        if scope.tensors[name] then
            wrong(node.at, "%s is a tensor: write %s[…]", name, name)
        end
        if M.is_function(name) then wrong(node.at, "%s is a function: write %s(…)", name, name) end
        if name == "s" then wrong(node.at, "a mask has no 's': it is the score's") end
        wrong(node.at, "there is no '%s'%s", name, common.did_you_mean(name, scope.names))
    end
    if found.type == "float" then no_fraction(scope, node, name) end
    return {op = "name", name = name, type = found.type, low = found.low, high = found.high,
        row = name == "row", col = name == "col", at = node.at, from = node.from, to = node.to}
end

-- Both operands as ints when both are, else as floats.
local function alike(a, b)
    if a.type == "int" and b.type == "int" then return a, b, "int" end
    return as_float(a), as_float(b), "float"
end

local function whole(node, scope, op)
    local tree = number(node, scope)
    if tree.type ~= "int" then
        wrong(node.from, "%s is of whole numbers, this has a fraction", op)
    end
    return tree
end

-- Divisors are constants, or params that are never below 1.
local function quotient(node, scope)
    local a, b = whole(node.a, scope, node.op), whole(node.b, scope, node.op)
    if b.op == "const" and b.value == 0 then wrong(node.b.from, "division by zero") end
    if b.op ~= "const" and b.op ~= "name" or b.low < 1 then
        wrong(node.b.from, "a divisor is a constant of 1 or more, or a param whose 'from' is")
    end
    return make(node.op, "int", node, a, b)
end

local function fraction(node, scope)
    no_fraction(scope, node, "a quotient by /")
    local a, b = as_float(number(node.a, scope)), as_float(number(node.b, scope))
    if b.op == "const" and b.value == 0 then wrong(node.b.from, "division by zero") end
    return make("/", "float", node, a, b)
end

local function comparison(node, scope)
    local a, b = type_of(node.a, scope), type_of(node.b, scope)
    local equality = node.op == "==" or node.op == "!="
    if not equality then expected(node.a, "number", a) end
    expected(node.b, a.type == "bool" and "condition" or "number", b)
    if a.type ~= "bool" then a, b = alike(a, b) end
    return make(node.op, "bool", node, a, b)
end

local function choice(node, scope)
    local c, a, b = condition(node[1], scope), type_of(node[2], scope), type_of(node[3], scope)
    expected(node[3], a.type == "bool" and "condition" or "number", b)
    local kind = "bool"
    if a.type ~= "bool" then a, b, kind = alike(a, b) end
    return make("select", kind, node, c, a, b)
end

-- "p", "b", "h", "k", or "p128" of row // 128.
local function index_kind(node, tree)
    local by = tree.op == "//" and tree[2].op == "const" and tree[2].value or 1
    local name = tree.op == "//" and by > 1 and tree[1] or tree
    local kind = name.op == "name" and indexes[name.name]
    if not kind then
        wrong(node.from, "an index is row, col, batch, head or kv_head, or one of these // a "
            .. "constant")
    end
    return kind .. (by > 1 and by or "")
end

local function index(node, scope)
    local found = scope.tensors[node.name]
    if not found then
        wrong(node.at, "there is no tensor '%s'%s", node.name,
            common.did_you_mean(node.name, scope.tensor_names))
    end
    local tree = {op = "tensor", name = node.name, type = M.elements[found.element],
        tensor = found, at = node.at, from = node.from, to = node.to}
    if tree.type == "float" then no_fraction(scope, node, "an element of " .. node.name) end
    if tree.type == "int" then tree.low, tree.high = -most_whole, most_whole end
    local kinds = {}
    for i, one in ipairs(node) do
        tree[i] = whole(one, scope, "an index")
        kinds[i] = index_kind(one, tree[i])
        tree.row, tree.col = tree.row or tree[i].row, tree.col or tree[i].col
    end
    if #kinds > most_indexes then
        wrong(node.at, "a tensor has at most %d indexes", most_indexes)
    end
    found.indexes = found.indexes or kinds
    if table.concat(found.indexes, " ") ~= table.concat(kinds, " ") then
        wrong(node.at, "the indexes of %s are of other kinds before: %s", node.name,
            table.concat(found.indexes, ", "))
    end
    return tree
end

local function call(node, scope)
    local name = node.name
    local arity = M.is_function(name) and functions[name]
    if not arity then
        wrong(node.at, "there is no function '%s'%s", name,
            common.did_you_mean(name, functions.list))
    end
    if #node ~= arity then
        wrong(node.at, "%s takes %d argument%s, got %d", name, arity, arity > 1 and "s" or "",
            #node)
    end
    if name == "select" then return choice(node, scope) end
    local a = number(node[1], scope)
    if name == "abs" then return make(name, a.type, node, a) end
    if arity == 1 then
        no_fraction(scope, node, "what " .. name .. " gives")
        return make(name, "float", node, as_float(a))
    end
    local kind, b = nil, number(node[2], scope)
    a, b, kind = alike(a, b)
    return make(name, kind, node, a, b)
end

local function sum(node, scope)
    local a, b, kind = alike(number(node.a, scope), number(node.b, scope))
    return make(node.op, kind, node, a, b)
end

local function both(node, scope)
    return make(node.op, "bool", node, condition(node.a, scope), condition(node.b, scope))
end

local typers = {
    int = function(node) return M.const(node.value, node) end,
    float = function(node, scope)
        no_fraction(scope, node, "a constant")
        return M.const(node.value, node)
    end,
    word = word, call = call, index = index,
    ["+"] = sum, ["-"] = sum, ["*"] = sum, ["/"] = fraction,
    ["//"] = quotient, ["%"] = quotient, ["and"] = both, ["or"] = both,
    ["not"] = function(node, scope) return make("not", "bool", node, condition(node.a, scope)) end,
    neg = function(node, scope)
        local a = number(node.a, scope)
        return make("neg", a.type, node, a)
    end,
}

function type_of(node, scope)
    return (typers[node.op] or comparison)(node, scope)
end

-- Reads a formula. Returns its tree; or nil, the byte and what is wrong there.
function M.read(text, scope)
    return parse.caught(function()
        if #text > longest then wrong(1, "an expression has at most %d characters", longest) end
        local node = parse.tree(text, true)
        if scope.kind == "keep" then return condition(node, scope) end
        return as_float(number(node, scope))
    end)
end

-- ---- as text ----

local function float_text(value)
    local text = ("%.17g"):format(value)
    return text:find("[.e]") and text or text .. ".0"
end

local function const_text(node)
    return node.type == "float" and float_text(node.value) or tostring(node.value)
end

-- The formula in its own language, every operator in brackets.
function M.text(node)
    local op, a = node.op, {}
    if op == "const" then return const_text(node) end
    if op == "name" then return node.name end
    for i = 1, #node do a[i] = M.text(node[i]) end
    if op == "tensor" then return ("%s[%s]"):format(node.name, table.concat(a, ", ")) end
    if op == "float" then return a[1] end
    if functions[op] then return ("%s(%s)"):format(op, table.concat(a, ", ")) end
    if #a == 1 then return ("(%s%s)"):format(op == "neg" and "-" or "not ", a[1]) end
    return ("(%s %s %s)"):format(a[1], op, a[2])
end

-- ---- as CUDA ----

local c_operators = {["and"] = "&&", ["or"] = "||"}
local c_float = {min = "fminf", max = "fmaxf", abs = "fabsf", exp2 = "exp2_approx",
    log2 = "log2_approx", tanh = "tanh_approx", sigmoid = "sigmoid_approx",
    ["/"] = "__fdividef"}
local c_int = {min = "least", max = "most", abs = "distance", ["//"] = "floor_div",
    ["%"] = "floor_mod"}

local function is_wide(node)
    return node.type == "int" and (node.low < -0x80000000 or node.high > 0x7fffffff)
end

-- The formula as an expression of C; names(name) gives a name's, NAME_at is a tensor's. Functions
-- of whole numbers have a wide form; `wide`: all are.
function M.c(node, names, wide)
    local op, a = node.op, {}
    if op == "const" then
        if node.type == "float" then return float_text(node.value) .. "f" end
        local text = tostring(node.value)
        return is_wide(node) and text .. "ll" or node.value == false and "false" or text
    end
    if op == "name" then return names(node.name) end
    local large = wide or is_wide(node)
    for i = 1, #node do
        a[i] = M.c(node[i], names, wide)
        large = large or is_wide(node[i])
    end
    if op == "float" then return "(float)" .. a[1] end
    if op == "tensor" then
        return ("%s_at(p, %s)"):format(node.name, table.concat(a, ", "))
    end
    if op == "select" then return ("(%s ? %s : %s)"):format(a[1], a[2], a[3]) end
    local call = node.type == "float" and c_float[op] or node.type == "int" and c_int[op]
    if call then
        if node.type == "int" and large then call = call .. "_wide" end
        return ("%s(%s)"):format(call, table.concat(a, ", "))
    end
    if node.type == "int" and large then a[1] = "(i64)" .. a[1] end
    if #a == 1 then return ("(%s%s)"):format(op == "neg" and "-" or "!", a[1]) end
    return ("(%s %s %s)"):format(a[1], c_operators[op] or op, a[2])
end

-- ---- as Lua ----

local lua_operators = {["!="] = "~="}
local lua_calls = {min = true, max = true, abs = true, select = true, tanh = true, exp2 = true,
    log2 = true, sigmoid = true}

-- The formula as an expression of Lua over the functions of M.given.
function M.lua(node, names)
    local op, a = node.op, {}
    if op == "const" then return const_text(node) end
    if op == "name" then return names(node.name) end
    for i = 1, #node do a[i] = M.lua(node[i], names) end
    if op == "float" then return a[1] end
    if lua_calls[op] then return ("%s(%s)"):format(op, table.concat(a, ", ")) end
    if #a == 1 then return ("(%s %s)"):format(op == "neg" and "-" or "not", a[1]) end
    return ("(%s %s %s)"):format(a[1], lua_operators[op] or op, a[2])
end

M.given = {
    min = math.min, max = math.max, abs = arithmetic.abs, exp2 = arithmetic.exp2,
    select = function(c, a, b) if c then return a end return b end,
}

-- ---- the derivative of a score by s ----

local zero = M.const(0.0, {at = 1, from = 1, to = 1})
zero.derived = true
local one = M.const(1.0, zero)
local function is(node, value) return node.op == "const" and node.value == value end

local function plus(op, a, b)
    if is(b, 0.0) then return a end
    if is(a, 0.0) then return op == "+" and b or make("neg", "float", zero, b) end
    return make(op, "float", zero, a, b)
end

local function times(a, b)
    if is(a, 0.0) or is(b, 0.0) then return zero end
    if is(a, 1.0) then return b end
    if is(b, 1.0) then return a end
    return make("*", "float", zero, a, b)
end

local function over(a, b) return is(a, 0.0) and zero or make("/", "float", zero, a, b) end

local function pick(c, a, b)
    if is(a, 0.0) and is(b, 0.0) then return zero end
    return make("select", "float", zero, c, a, b)
end

local function compared(op, a, b) return make(op, "bool", zero, a, b) end

local ln2 = M.const(0.6931471805599453, zero)
local derivatives = {
    ["+"] = function(_, _, da, db) return plus("+", da, db) end,
    ["-"] = function(_, _, da, db) return plus("-", da, db) end,
    ["*"] = function(a, b, da, db) return plus("+", times(da, b), times(a, db)) end,
    ["/"] = function(a, b, da, db)
        return plus("-", over(da, b), over(times(a, db), times(b, b)))
    end,
    neg = function(_, _, da) return plus("-", zero, da) end,
    min = function(a, b, da, db) return pick(compared("<=", a, b), da, db) end,
    max = function(a, b, da, db) return pick(compared(">=", a, b), da, db) end,
    abs = function(a, _, da) return pick(compared(">=", a, zero), da, plus("-", zero, da)) end,
    tanh = function(a, _, da)
        local t = make("tanh", "float", zero, a)
        return times(plus("-", one, times(t, t)), da)
    end,
    exp2 = function(a, _, da) return times(times(make("exp2", "float", zero, a), ln2), da) end,
    log2 = function(a, _, da) return over(da, times(a, ln2)) end,
    sigmoid = function(a, _, da)
        local t = make("sigmoid", "float", zero, a)
        return times(times(t, plus("-", one, t)), da)
    end,
}

local function depends(node, name)
    if node.op == "name" then return node.name == name end
    for i = 1, #node do
        if depends(node[i], name) then return true end
    end
    return false
end
M.depends = depends

-- d node / d s. Where two branches meet (min, max, abs, select) it is that of the branch taken.
function M.derivative(node)
    if not depends(node, "s") then return zero end
    if node.op == "name" then return one end
    if node.op == "select" then
        return pick(node[1], M.derivative(node[2]), M.derivative(node[3]))
    end
    return derivatives[node.op](node[1], node[2], M.derivative(node[1]),
        node[2] and M.derivative(node[2]))
end

return M
