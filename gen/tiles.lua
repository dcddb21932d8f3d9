-- tiles.lua - which tiles of rows and columns a mask keeps none, all or some of, told from `keep`
-- alone; as C for the kernels and as Lua.
-- SPDX-License-Identifier: BSD-3-Clause
--
-- Some pair of a tile may be kept when a term of `keep` in disjunctive form may hold there; it is
-- full when no term of `not keep` may. A term is a list of comparisons. Those that bound row, col
-- or row - col by what does not depend on the position narrow the tile's ranges of the three, which
-- are then made consistent: for these alone the answer is exact, and what is left of the columns is
-- their hull. The other comparisons are told by interval arithmetic over the narrowed ranges: that
-- may take an empty tile for one that isn't, never the reverse.

local formula = require "formula"

local M = {}

local most_terms = 64 -- beyond it nothing is narrowed, and every tile taken for mixed
local most = 0x1p61

-- ---- a linear form: row * row + col * col + the sum of coef * node + const ----

-- Adds `factor` times the node to `form`; false where it is not linear in row and col.
local function add_linear(form, node, factor)
    local op = node.op
    if op == "const" then
        form.const = form.const + factor * node.value
    elseif not node.row and not node.col then
        form[#form + 1] = {coef = factor, node = node}
        return math.abs(factor) * math.max(-node.low + 0.0, node.high + 0.0) < most
    elseif op == "name" then
        form[node.name] = form[node.name] + factor
    elseif op == "neg" then
        return add_linear(form, node[1], -factor)
    elseif op == "+" or op == "-" then
        return add_linear(form, node[1], factor) and
            add_linear(form, node[2], op == "+" and factor or -factor)
    elseif op == "*" and (node[1].op == "const" or node[2].op == "const") then
        local k, other = node[1], node[2]
        if k.op ~= "const" then k, other = other, k end
        if math.abs((k.value + 0.0) * factor) >= most then return false end
        return add_linear(form, other, factor * k.value)
    else
        return false
    end
    return math.abs(form.const + 0.0) < most
end

-- a - b as a form; nil where it is none.
local function difference(a, b)
    local form = {row = 0, col = 0, const = 0}
    if add_linear(form, a, 1) and (not b or add_linear(form, b, -1)) then return form end
end

-- What a step of row and one of col add to the node; nil where it is not linear.
function M.slopes(node)
    local form = difference(node)
    if form then return form.row, form.col end
end

-- The one variable of a form, "row", "col" or "gap" (row - col), and its factor; nil for others.
local function variable(form)
    if form.row ~= 0 and form.col == 0 then return "row", form.row end
    if form.col ~= 0 and form.row == 0 then return "col", form.col end
    if form.row ~= 0 and form.row == -form.col then return "gap", form.row end
end

-- ---- disjunctive form: a list of terms, each a list of comparisons ----
-- A comparison is {op = "<=" | "==" | "!=", a, b, plus}: a op b + plus; {condition = node, want}
-- of what does not depend on the position; or {tensor = node, want} of bools.

local always, never = {{}}, {}

local function either(a, b)
    local all = {}
    for _, list in ipairs {a, b} do
        for _, term in ipairs(list) do all[#all + 1] = term end
    end
    return all
end

local function too_many() error({terms = true}, 0) end

local function both(a, b)
    local all = {}
    if #a * #b > most_terms then too_many() end
    for _, x in ipairs(a) do
        for _, y in ipairs(b) do
            local term = {}
            for _, one in ipairs(x) do term[#term + 1] = one end
            for _, one in ipairs(y) do term[#term + 1] = one end
            all[#all + 1] = term
        end
    end
    return all
end

local terms_of

local function moves(node) return node.row or node.col end

-- a <= b + plus, taken apart at min, max, abs and select.
local function at_most(a, b, plus)
    local op_a, op_b = moves(a) and a.op, moves(b) and b.op
    if op_a == "max" then return both(at_most(a[1], b, plus), at_most(a[2], b, plus)) end
    if op_a == "min" then return either(at_most(a[1], b, plus), at_most(a[2], b, plus)) end
    if op_b == "min" then return both(at_most(a, b[1], plus), at_most(a, b[2], plus)) end
    if op_b == "max" then return either(at_most(a, b[1], plus), at_most(a, b[2], plus)) end
    if op_a == "abs" then
        return both(at_most(a[1], b, plus),
            at_most(formula.make("neg", "int", a, a[1]), b, plus))
    end
    if op_b == "abs" then
        return either(at_most(a, b[1], plus),
            at_most(a, formula.make("neg", "int", b, b[1]), plus))
    end
    if op_a == "select" then
        return either(both(terms_of(a[1], true), at_most(a[2], b, plus)),
            both(terms_of(a[1], false), at_most(a[3], b, plus)))
    end
    if op_b == "select" then
        return either(both(terms_of(b[1], true), at_most(a, b[2], plus)),
            both(terms_of(b[1], false), at_most(a, b[3], plus)))
    end
    return {{{op = "<=", a = a, b = b, plus = plus}}}
end

local function equal(a, b, want)
    local form = difference(a, b)
    if form and variable(form) then
        if want then return both(at_most(a, b, 0), at_most(b, a, 0)) end
        return either(at_most(a, b, -1), at_most(b, a, -1))
    end
    return {{{op = want and "==" or "!=", a = a, b = b, plus = 0}}}
end

local function compared(node, want)
    local op, a, b = node.op, node[1], node[2]
    if op == "==" then return equal(a, b, want) end
    if op == "!=" then return equal(a, b, not want) end
    if op == ">" or op == ">=" then a, b = b, a end
    local strict = op == "<" or op == ">"
    if want then return at_most(a, b, strict and -1 or 0) end
    return at_most(b, a, strict and 0 or -1)
end

-- The terms of `node`, or of its opposite when not `want`.
function terms_of(node, want)
    local op, a, b = node.op, node[1], node[2]
    if op == "const" then return node.value == want and always or never end
    if not moves(node) then return {{{condition = node, want = want}}} end
    if op == "not" then return terms_of(a, not want) end
    if op == "and" or op == "or" then
        local join = (op == "and") == want and both or either
        return join(terms_of(a, want), terms_of(b, want))
    end
    if op == "select" then
        return either(both(terms_of(a, true), terms_of(b, want)),
            both(terms_of(a, false), terms_of(node[3], want)))
    end
    if op == "tensor" then return {{{tensor = node, want = want}}} end
    if a.type == "bool" then
        local same = (op == "==") == want
        return either(both(terms_of(a, true), terms_of(b, same)),
            both(terms_of(a, false), terms_of(b, not same)))
    end
    return compared(node, want)
end

local function terms(node, want)
    local good, list = pcall(terms_of, node, want)
    if good and #list <= most_terms then return list end
    if not good and not (type(list) == "table" and list.terms) then error(list, 0) end
    return always
end

-- ---- code, the same for C and Lua but for what `syntax` has ----

local c = {var = "TYPE %s = %s;", let = "const TYPE %s = %s;", set = "%s = %s;", open = "{",
    begin = "if (%s) {", close = "}", ["and"] = " && ", ["not"] = "!",
    value = function(node, names, wide) return formula.c(node, names, wide) end}
local lua = {var = "local %s = %s", let = "local %s = %s", set = "%s = %s", open = "do",
    begin = "if %s then", close = "end", ["and"] = " and ", ["not"] = "not ", value = formula.lua}

local small_functions = {"least", "most", "floor_div", "floor_mod", "pick"}

-- `wide`: whole numbers are of 64 bits. Else positions are below 2^29, and all fits in 32.
local function writer(syntax, names, wide)
    local W = {lines = {}, depth = 1, count = 0, wide = wide, is_lua = syntax == lua}
    function W.line(format, ...)
        local text = format:format(...)
        if syntax == c then
            text = text:gsub("TYPE", wide and "i64" or "int")
            for _, name in ipairs(wide and small_functions or {}) do
                text = text:gsub("%f[%w_]" .. name .. "%(", name .. "_wide(")
            end
        end
        W.lines[#W.lines + 1] = ("    "):rep(W.depth) .. text
    end
    function W.value(node) return syntax.value(node, names, wide) end
    -- A name for an expression; numbers and names stay what they are.
    function W.let(text)
        if text:find("^-?%w+$") then return text end
        W.count = W.count + 1
        local name = "v" .. W.count
        W.line(syntax.let, name, text)
        return name
    end
    function W.enter(format, ...)
        W.line(format, ...)
        W.depth = W.depth + 1
    end
    function W.leave()
        W.depth = W.depth - 1
        W.line("%s", syntax.close)
    end
    return W
end

-- In 32 bits every part of a form's sum must fit, with room for a range's end.
local function check_room(W, form, limit)
    local sum = math.abs(form.const + 0.0)
    for _, part in ipairs(form) do
        local far = math.max(-part.node.low + 0.0, part.node.high + 0.0)
        sum = sum + math.abs(part.coef) * far
    end
    sum = sum + (math.abs(form.row) + math.abs(form.col)) * 0x1p29
    if not W.wide and sum > limit then error({wide = true}, 0) end
end
local most_scalar, most_sum = 0x1p30 + 0x1p20, 0x1p31 - 0x1p8

-- const + the sum of coef * node, as text; a form without row and col.
local function scalar_text(W, form, factor)
    local parts = {}
    for _, part in ipairs(form) do
        local coef = factor * part.coef
        parts[#parts + 1] = coef == 1 and W.value(part.node) or
            ("%d * (%s)"):format(coef, W.value(part.node))
    end
    local const = factor * form.const
    if const ~= 0 or #parts == 0 then parts[#parts + 1] = tostring(const) end
    return table.concat(parts, " + ")
end

-- ---- intervals ----

local bounds

local function linear_bounds(W, form)
    local name, factor = variable(form)
    local low, high = {}, {}
    check_room(W, form, most_sum)
    local function take(var, k)
        local from, to = var .. "0", var .. "1"
        if k < 0 then from, to = to, from end
        low[#low + 1] = k == 1 and from or ("%d * %s"):format(k, from)
        high[#high + 1] = k == 1 and to or ("%d * %s"):format(k, to)
    end
    if name then
        take(name, factor)
    else
        if form.row ~= 0 then take("row", form.row) end
        if form.col ~= 0 then take("col", form.col) end
    end
    local rest = scalar_text(W, form, 1)
    if rest ~= "0" or #low == 0 then low[#low + 1], high[#high + 1] = rest, rest end
    return W.let(table.concat(low, " + ")), W.let(table.concat(high, " + "))
end

local function quotient_bounds(W, node)
    local a0, a1 = bounds(W, node[1])
    local by = W.let(W.value(node[2]))
    if node.op == "//" then
        return W.let(("floor_div(%s, %s)"):format(a0, by)),
            W.let(("floor_div(%s, %s)"):format(a1, by))
    end
    return W.let(("pick(floor_div(%s, %s) * %s >= %s, 0, floor_mod(%s, %s))")
            :format(a1, by, by, a0, a0, by)),
        W.let(("pick(floor_div(%s + 1, %s) > floor_div(%s, %s), %s - 1, "
            .. "floor_mod(%s, %s))"):format(a1, by, a0, by, by, a1, by))
end

local function product_bounds(W, node)
    local a0, a1 = bounds(W, node[1])
    local b0, b1 = bounds(W, node[2])
    local function corner(f)
        return W.let(("%s(%s(%s * %s, %s * %s), %s(%s * %s, %s * %s))"):format(f, f, a0, b0, a0,
            b1, f, a1, b0, a1, b1))
    end
    return corner("least"), corner("most")
end

local function joined_bounds(W, low, high, a, b)
    local a0, a1 = bounds(W, a)
    local b0, b1 = bounds(W, b)
    return W.let(("%s(%s, %s)"):format(low, a0, b0)), W.let(("%s(%s, %s)"):format(high, a1, b1))
end

local function sum_bounds(W, node)
    local a0, a1 = bounds(W, node[1])
    local b0, b1 = bounds(W, node[2])
    if node.op == "-" then b0, b1 = b1, b0 end
    return W.let(("%s %s %s"):format(a0, node.op, b0)), W.let(("%s %s %s"):format(a1, node.op, b1))
end

local kinds = {["//"] = quotient_bounds, ["%"] = quotient_bounds, ["*"] = product_bounds,
    ["+"] = sum_bounds, ["-"] = sum_bounds,
    min = function(W, node)
        return joined_bounds(W, "least", "least", node[1], node[2])
    end,
    max = function(W, node)
        return joined_bounds(W, "most", "most", node[1], node[2])
    end,
    select = function(W, node)
        return joined_bounds(W, "least", "most", node[2], node[3])
    end,
    neg = function(W, node)
        local a0, a1 = bounds(W, node[1])
        return W.let(("-(%s)"):format(a1)), W.let(("-(%s)"):format(a0))
    end,
    abs = function(W, node)
        local a0, a1 = bounds(W, node[1])
        return W.let(("most(0, most(%s, -(%s)))"):format(a0, a1)),
            W.let(("most(%s, -(%s))"):format(a1, a0))
    end,
}

-- Of a tensor, over the ranges of the indexes that are positions.
function kinds.tensor(W, node)
    local bool = node.type == "bool"
    if W.is_lua then return bool and 0 or W.let(node.low .. ""), bool and 1 or node.high .. "" end
    local args = {}
    for i = 1, #node do
        if node.tensor.indexes[i]:find("p") then
            local low, high = bounds(W, node[i])
            args[#args + 1] = ("(int)%s, (int)%s"):format(low, high)
        end
    end
    W.count = W.count + 1
    local name = "v" .. W.count
    W.line("const Range %s = %s_range(s, p, item, %s);", name, node.name, table.concat(args, ", "))
    return name .. ".low", name .. ".high"
end

-- Two names or numbers: what the node's value is not below, and not above.
function bounds(W, node)
    if not moves(node) then
        local value = W.let(W.value(node))
        return value, value
    end
    local form = difference(node)
    if form then return linear_bounds(W, form) end
    return kinds[node.op](W, node)
end

-- ---- what may hold ----

-- "x % d == e" for an x that takes every value of its interval.
local function remainder(W, one)
    local mod, other = one.a, one.b
    if mod.op ~= "%" then mod, other = other, mod end
    if mod.op ~= "%" or moves(other) or one.op == "<=" then return nil end
    local form = difference(mod[1])
    local _, factor = variable(form or {row = 0, col = 0})
    if factor ~= 1 and factor ~= -1 then return nil end
    local a0, a1 = bounds(W, mod[1])
    local by, e = W.let(W.value(mod[2])), W.let(W.value(other))
    if one.op == "!=" then
        return ("not_both(floor_mod(%s, %s) == %s, %s == %s || %s == 1)"):format(a0, by, e,
            a0, a1, by)
    end
    return ("0 <= %s AND %s < %s AND floor_div(%s - %s, %s) > "
        .. "floor_div(%s - %s - 1, %s)"):format(e, e, by, a1, e, by, a0, e, by)
end

local function may_hold(W, syntax, one)
    if one.condition then
        return (one.want and "" or syntax["not"]) .. "(" .. W.value(one.condition) .. ")"
    end
    if one.tensor then
        local low, high = bounds(W, one.tensor)
        return one.want and ("%s > 0"):format(high) or ("%s < 1"):format(low)
    end
    local text = remainder(W, one)
    if not text then
        local a0, a1 = bounds(W, one.a)
        local b0, b1 = bounds(W, one.b)
        if one.op == "<=" then return ("%s <= %s + %d"):format(a0, b1, one.plus) end
        text = one.op == "==" and ("%s <= %s AND %s <= %s"):format(a0, b1, b0, a1) or
            ("not_both(%s == %s, %s == %s && %s == %s)"):format(a0, b0, a0, a1, b0, b1)
    end
    return text
end

-- Narrows a range by x * factor + rest <= plus.
local function narrow(W, syntax, form, plus)
    local name, factor = variable(form)
    form.const = form.const - plus
    check_room(W, {row = 0, col = 0, const = form.const, table.unpack(form)}, most_scalar)
    local most_of = W.let(scalar_text(W, form, -1))
    if factor > 0 then
        local bound = factor == 1 and most_of or
            ("floor_div(%s, %d)"):format(most_of, factor)
        W.line(syntax.set, name .. "1", ("least(%s1, %s)"):format(name, bound))
    else
        local bound = factor == -1 and ("-(%s)"):format(most_of) or
            ("-floor_div(%s, %d)"):format(most_of, -factor)
        W.line(syntax.set, name .. "0", ("most(%s0, %s)"):format(name, bound))
    end
end

-- Makes the ranges of row, col and gap = row - col consistent: what is left is taken on by pairs.
local consistent = {
    {"row1", "least(row1, gap1 + col1)"}, {"row0", "most(row0, gap0 + col0)"},
    {"col1", "least(col1, row1 - gap0)"}, {"col0", "most(col0, row0 - gap1)"},
    {"gap1", "least(gap1, row1 - col0)"}, {"gap0", "most(gap0, row0 - col1)"},
}

-- col // by == x // by: col is in the blocks that x may be in.
local function narrow_blocks(W, syntax, one)
    local block, other = one.a, one.b
    if one.op ~= "==" or block.op ~= "//" or other.op ~= "//" then return end
    if block[1].name ~= "col" then block, other = other, block end
    if block[1].name ~= "col" or formula.text(block[2]) ~= formula.text(other[2]) then return end
    local e0, e1 = bounds(W, other)
    local by = W.let(W.value(block[2]))
    W.line(syntax.set, "col0", ("most(col0, %s * %s)"):format(by, e0))
    W.line(syntax.set, "col1", ("least(col1, %s * %s + %s - 1)"):format(by, e1, by))
end

local function term_code(W, syntax, term)
    local late, narrowed = {}, false
    W.enter("%s", syntax.open)
    for _, row in ipairs {{"row0", "from0"}, {"row1", "from1"}, {"col0", "to0"}, {"col1", "to1"},
        {"gap0", "from0 - to1"}, {"gap1", "from1 - to0"}} do
        W.line(syntax.var, row[1], row[2])
    end
    for _, one in ipairs(term) do
        local form = one.op == "<=" and difference(one.a, one.b)
        if form and variable(form) then
            narrow(W, syntax, form, one.plus)
            narrowed = true
        else
            late[#late + 1] = one
        end
    end
    for _, row in ipairs(narrowed and consistent or {}) do W.line(syntax.set, row[1], row[2]) end
    local tests = {"row0 <= row1", "col0 <= col1", "gap0 <= gap1"}
    if #late > 0 then W.enter(syntax.begin, table.concat(tests, syntax["and"])) end
    if #late > 0 then
        for _, one in ipairs(late) do narrow_blocks(W, syntax, one) end
        tests = {"col0 <= col1"}
        for i, one in ipairs(late) do tests[i + 1] = may_hold(W, syntax, one) end
    end
    local joint = syntax["and"] .. "\n" .. ("    "):rep(W.depth + 1)
    W.enter(syntax.begin, (table.concat(tests, joint):gsub(" AND ", joint)))
    W.line(syntax.set, "low", "least(low, col0)")
    W.line(syntax.set, "high", "most(high, col1)")
    W.leave()
    if #late > 0 then W.leave() end
    W.leave()
end

-- Does all that is made of the node fit in 32 bits, when positions are below 2^29? What does not
-- depend on them is below 2^30 with room for a constant; the rest has its range.
local function is_small(node)
    if node.type == "int" then
        local limit = moves(node) and 0x7fffffff or (1 << 30) + (1 << 20)
        if node.low < -limit or node.high > limit then return false end
    end
    for i = 1, #node do
        if not is_small(node[i]) then return false end
    end
    return true
end

-- Without the names that nobody reads: NVRTC warns of one, and a warning rejects a kernel.
local function without_unread(lines)
    local read, out = {}, {}
    for i = #lines, 1, -1 do
        local name = lines[i]:match("^ *%l+[%w ]* (v%d+) = ")
        if not name or read[name] then
            table.insert(out, 1, lines[i])
            for used in lines[i]:gmatch("%f[%w_]v%d+") do read[used] = true end
        end
    end
    return out
end

-- Code that sets low and high to the hull of the columns in to0 … to1 where, for some row in
-- from0 … from1, `node` may be `want`; low > high when there is none.
local function code(node, want, syntax, names, wide)
    local W = writer(syntax, names, wide)
    W.line(syntax.var, "low", "to1 + 1")
    W.line(syntax.var, "high", "to0 - 1")
    for _, term in ipairs(terms(node, want)) do term_code(W, syntax, term) end
    return table.concat(without_unread(W.lines), "\n")
end

-- "int", or "i64" where the ranges of a tile's analysis need it.
function M.type(node)
    if not is_small(node) then return "i64" end
    for _, want in ipairs {true, false} do
        local good, why = pcall(code, node, want, c, function(name) return name end, false)
        if not good and type(why) == "table" and why.wide then return "i64" end
        if not good then error(why, 0) end
    end
    return "int"
end

-- The body of a C function over ranges of M.type; names(name) gives a name's expression.
function M.c(node, want, names)
    return code(node, want, c, names, M.type(node) == "i64")
end

local given = {
    least = math.min, most = math.max,
    floor_div = function(a, b) return a // b end,
    floor_mod = function(a, b) return a % b end,
    pick = function(condition, a, b) if condition then return a end return b end,
    not_both = function(a, b) return not (a and b) end,
}

-- A function of (names' values, from0, from1, to0, to1) that returns low and high.
function M.hull(node, want)
    local body = code(node, want, lua, function(name) return ("n[%q]"):format(name) end, true)
    local text = ("local n, from0, from1, to0, to1 = ...\n%s\nreturn low, high"):format(
        body:gsub("||", "or"):gsub("&&", "and"))
    local env = {}
    for _, from in ipairs {given, formula.given} do
        for name, f in sorted(from) do env[name] = f end
    end
    return assert(load(text, "=mask", "t", env))
end

return M
