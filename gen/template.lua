-- template.lua - renders a template: CUDA with a few `$` lines.
-- SPDX-License-Identifier: BSD-3-Clause
--
-- The whole language:
--   $ CODE            a line of Lua; its block's body is indented 4 more, and dedented on output
--   ${EXPR}           the value of EXPR: a string or an integer
--   $ include "NAME"  the part templates/parts/NAME.in, at the indentation of this line
-- An undefined name, a value that is neither string nor integer (128/2 is a float: use //), a wrong
-- indentation and a block that is not closed are errors at the template's file and line. Each
-- template line becomes one line of a Lua chunk, so Lua's own line numbers are the template's.

local M = {}

local function fail(path, line, format, ...)
    error(("%s:%d: " .. format):format(path, line, ...), 0)
end

-- The Lua call that emits one line of text, at `indent` columns.
local function text_line(path, line, text)
    local args, from = {}, 1
    while true do
        local a, b, expr = text:find("%$(%b{})", from)
        if not a then break end
        args[#args + 1] = ("%q"):format(text:sub(from, a - 1))
        args[#args + 1] = "(" .. expr:sub(2, -2) .. ")"
        from = b + 1
    end
    if text:find("${", from, true) then fail(path, line, "`${` has no `}` on its line") end
    args[#args + 1] = ("%q"):format(text:sub(from))
    return ("__emit(%d, %s)"):format(line, table.concat(args, ", "))
end

-- What a `$` line does to the block structure: -1 closes, 0 neither, 1 opens; `else` does both.
local function block_effect(code)
    local word = code:match("^%s*(%a+)")
    if word == "end" then return -1, 0 end
    if word == "else" or word == "elseif" then return -1, 1 end
    if word == "if" or word == "for" or word == "while" then
        return 0, code:match("%f[%a]end%s*$") and 0 or 1
    end
    return 0, 0
end

-- A line inside a block stands 4 columns or more to the right of it.
local function inside(path, line, block, indent)
    if block and indent < block.indent + 4 then
        fail(path, line, "indented %d, inside the block of line %d it must be %d or more", indent,
             block.line, block.indent + 4)
    end
end

-- Template text to the text of a Lua chunk with the same number of lines.
local function translate(path, text)
    local out, blocks, line = {}, {}, 0
    for raw in (text:gsub("\n$", "") .. "\n"):gmatch("(.-)\n") do
        line = line + 1
        local lead, code = raw:match("^( *)%$ (.*)$")
        if raw:find("\t", 1, true) then fail(path, line, "a tab: indent with spaces") end
        if code then
            local close, open = block_effect(code)
            if close < 0 then
                local top = table.remove(blocks)
                if not top then fail(path, line, "`$ %s` closes no block", code) end
                if #lead ~= top.indent then
                    fail(path, line, "`$ %s` is indented %d, its block began at line %d with %d",
                         code, #lead, top.line, top.indent)
                end
            end
            inside(path, line, blocks[#blocks], #lead)
            local part = code:match('^include "([%w_]+)"%s*$')
            if part then
                code = ("__include(%d, %q, %d)"):format(line, part, #lead - 4 * #blocks)
            end
            out[line] = code
            if open > 0 then blocks[#blocks + 1] = {indent = #lead, line = line, code = code} end
        elseif raw:match("^ *$") then
            out[line] = ("__emit(%d, '')"):format(line)
        else
            inside(path, line, blocks[#blocks], #raw:match("^ *"))
            out[line] = text_line(path, line, raw:sub(4 * #blocks + 1))
        end
    end
    local top = blocks[#blocks]
    if top then fail(path, top.line, "`$ %s` has no `$ end`", top.code) end
    return table.concat(out, "\n")
end

-- Renders the template at `path`; read(path) gives a file's text or nil. Returns the text and, for
-- each of its lines, "FILE:LINE" of the template line it came from.
function M.render(path, read, env)
    local lines, map = {}, {}
    local scope = setmetatable({}, {
        __index = function(_, name)
            local value = env[name]
            if value == nil then error(("undefined name '%s'"):format(name), 2) end
            return value
        end,
    })
    local function run(file, indent)
        local function emit(line, ...)
            local pieces = {...}
            for i, piece in ipairs(pieces) do
                if math.type(piece) ~= "integer" and type(piece) ~= "string" then
                    fail(file, line, "${…} is %s: it must be a string or an integer (divide by //)",
                         math.type(piece) or type(piece))
                end
                pieces[i] = piece
            end
            local text = table.concat(pieces)
            for one in (text .. "\n"):gmatch("(.-)\n") do
                lines[#lines + 1] = one == "" and "" or (" "):rep(indent) .. one
                map[#map + 1] = ("%s:%d"):format(file, line)
            end
        end
        local function include(line, part, extra)
            local name = ("templates/parts/%s.in"):format(part)
            if not read(name) then fail(file, line, "include %q: there is no %s", part, name) end
            local keep_emit, keep_include = scope.__emit, scope.__include
            run(name, indent + extra)
            rawset(scope, "__emit", keep_emit)
            rawset(scope, "__include", keep_include)
        end
        rawset(scope, "__emit", emit)
        rawset(scope, "__include", include)
        local chunk, why = load(translate(file, read(file)), "=" .. file, "t", scope)
        if not chunk then error(why, 0) end
        chunk()
    end
    run(path, 0)
    return #lines > 0 and table.concat(lines, "\n") .. "\n" or "", map
end

return M
