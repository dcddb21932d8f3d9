-- reader.lua - typed reading of a YAML tree: what was expected, what was got, all errors in order.
-- SPDX-License-Identifier: BSD-3-Clause

local common = require "common"

local X = {}
X.__index = X

local most_text = 7000 -- bytes of errors in one message, whose room is base.c's

function X.new(path, errors)
    return setmetatable({path = path, errors = errors}, X)
end

-- ---- errors ----

-- `place` is anything with line and col: a node, or a map's pair.
function X:fail(place, format, ...)
    self.errors[#self.errors + 1] = {line = place.line, col = place.col, text = format:format(...)}
end

-- Raises all errors, in the order of their places.
function X:finish()
    local errors = self.errors
    if #errors == 0 then return end
    for i, e in ipairs(errors) do e.order = i end
    table.sort(errors, function(a, b)
        if a.line ~= b.line then return a.line < b.line end
        if a.col ~= b.col then return a.col < b.col end
        return a.order < b.order
    end)
    local lines, size = {}, 0
    for i, e in ipairs(errors) do
        local line = ("%s:%d:%d: %s"):format(self.path, e.line, e.col, e.text)
        size = size + #line + 1
        if i > 1 and size > most_text then
            lines[i] = ("… and %d more errors"):format(#errors - i + 1)
            break
        end
        lines[i] = line
    end
    common.raise(common.ESPEC, "%s", table.concat(lines, "\n"))
end

-- ---- nodes ----

local function describe(node)
    if node.kind ~= "scalar" then return "a " .. node.kind end
    if node.text == "" then return "nothing" end
    local line = node.text:gsub("\n.*", "…"):gsub("%c", "?") -- a terminal obeys what it is shown
    local cut = utf8.offset(line, 41)
    return "'" .. (cut and cut <= #line and line:sub(1, cut - 1) .. "…" or line) .. "'"
end

function X:expected(node, thing, what)
    if node.kind ~= "alias" then -- an alias has its error already
        self:fail(node, "%s: expected %s, got %s", thing, what, describe(node))
    end
end

function X:word(node, thing)
    if node.kind == "scalar" and #node.text <= 32 and node.text:find("^[a-z][a-z0-9_]*$") then
        return node.text
    end
    self:expected(node, thing, "a word, [a-z][a-z0-9_]{0,31}")
end

function X:int(node, thing)
    if node.kind == "scalar" and #node.text <= 9 and
        (node.text == "0" or node.text:find("^[1-9]%d*$")) then
        return math.tointeger(node.text)
    end
    self:expected(node, thing, "a whole number below 10^9")
end

function X:text(node, thing)
    if node.kind == "scalar" and node.text:find("^[^\n]+$") then return node.text end
    self:expected(node, thing, "a line of text")
end

-- The items of a list, none of them missing.
function X:list(node, thing, what)
    if node.kind ~= "list" then return self:expected(node, thing, what) or {} end
    if #node == 0 then self:fail(node, "%s: the list is empty", thing) end
    return node
end

-- The pairs of a map, a key once (a second one has its error already).
function X:pairs(node, thing, what)
    if node.kind ~= "map" then return self:expected(node, thing, what or "a map") or {} end
    local list, seen = {}, {}
    for _, pair in ipairs(node) do
        if not seen[pair.key] then seen[pair.key], list[#list + 1] = true, pair end
    end
    return list
end

-- A map with the keys of `shape`, a list {key, must} each: key → pair.
function X:record(node, thing, shape)
    local keys, known, got = {}, {}, {}
    for i, row in ipairs(shape) do keys[i], known[row[1]] = row[1], true end
    for _, pair in ipairs(self:pairs(node, thing)) do
        if known[pair.key] then
            got[pair.key] = pair
        else
            self:fail(pair, "%s: unknown key '%s'%s", thing, pair.key,
                common.did_you_mean(pair.key, keys))
        end
    end
    for _, row in ipairs(shape) do
        if row[2] and not got[row[1]] and node.kind == "map" then
            self:fail(node, "%s: '%s' is missing", thing, row[1])
        end
    end
    return got
end

return X
