-- common.lua - what every module of the generator uses: errors, near words, values as text.
-- SPDX-License-Identifier: BSD-3-Clause

local M = {}

-- Statuses of warploom.h.
M.EINVAL, M.ESPEC = 2, 3

-- Raises {status, text}, which gen.c turns into a message.
function M.raise(status, format, ...)
    error({status, format:format(...)}, 0)
end

-- "; did you mean 'x'?" or "".
function M.did_you_mean(word, words)
    local near = nearest(word, words)
    return near and ("; did you mean '%s'?"):format(near) or ""
end

function M.value_text(value)
    return type(value) == "table" and "[" .. table.concat(value, ", ") .. "]" or tostring(value)
end

-- A field's values for people: "64, 128, 256" or "16 to 256 in steps of 8".
function M.values_text(field)
    if field.range then
        local r = field.range
        return ("%d to %d in steps of %d"):format(r.from, r.to, r.step)
    end
    local texts = {}
    for i, value in ipairs(field.values) do texts[i] = M.value_text(value) end
    return table.concat(texts, ", ")
end

-- The field's own value that equals `value` (lists are compared by content), or nil.
function M.allowed(field, value)
    if field.range and math.type(value) == "integer" then
        local r = field.range
        return value >= r.from and value <= r.to and (value - r.from) % r.step == 0 and value or nil
    end
    return field.has[M.value_text(value)]
end

-- Reading a name that isn't there is an error at the reader's line.
function M.strict(table_, what)
    return setmetatable(table_, {
        __index = function(_, name) error(("%s has no '%s'"):format(what, tostring(name)), 2) end,
    })
end

return M
