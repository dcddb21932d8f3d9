-- draw.lua - a mask as a picture: which tiles are empty, full or mixed, and the pairs it keeps.
-- SPDX-License-Identifier: BSD-3-Clause
--
-- SVG, the same bytes for the same question. A path is in positions, a row down, a column across.

local common = require "common"
local formula = require "formula"
local variants = require "variants"

local M = {}

local side, small_side, least_side = 384, 184, 24 -- pixels; small: of each of several panels
local gap = 16 -- between them
local most_heads = 4
local most_across = 1024 -- tiles
local most_pairs_across = 128 -- more are not drawn one by one
local columns = 62 -- of the formula
local kinds = {{"full", "#7fb2dd"}, {"mixed", "#f2c066"}, {"empty", "#eeeeee"}}
local dark = "#1d5a96" -- pairs that are kept

local function escaped(text)
    return (text:gsub("[&<>]", {["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;"}))
end

local function box(x, y, width, height)
    return ("M%d %dh%dv%dh-%dz"):format(x, y, width, height, width)
end

-- Is the pair kept? f(names' values, row, col).
local function keeper(tree)
    local text = formula.lua(tree, function(name)
        return (name == "row" or name == "col") and name or ("n[%q]"):format(name)
    end)
    return assert(load("local n, row, col = ...\nreturn " .. text, "=mask", "t", formula.given))
end

-- The pairs that are kept, in runs.
local function pairs_path(one, n)
    local keeps, path = keeper(one.tree), {}
    for i = 0, n.seq_q - 1 do
        local start
        for col = 0, n.seq_k do
            local kept = col < n.seq_k and keeps(n, i + n.seq_k - n.seq_q, col)
            if kept and not start then start = col end
            if start and not kept then
                path[#path + 1] = box(start, i, col - start, 1)
                start = nil
            end
        end
    end
    return table.concat(path)
end

-- Paths of the full and of the mixed tiles, alike neighbours of a row as one; how many there are.
local function tile_paths(one, n, first, tile_n)
    local path, count, run = {full = {}, mixed = {}}, {full = 0, mixed = 0}, nil
    local function finish()
        if not run then return end
        local x, end_x = run.from * tile_n, math.min((run.to + 1) * tile_n, n.seq_k)
        local y, end_y = first(run.row), math.min(first(run.row + 1), n.seq_q)
        table.insert(path[run.kind], box(x, y, end_x - x, end_y - y))
    end
    variants.each_tile(one, n, first, tile_n, function(i, j, full)
        local kind = full and "full" or "mixed"
        count[kind] = count[kind] + 1
        if run and run.row == i and run.to == j - 1 and run.kind == kind then
            run.to = j
        else
            finish()
            run = {row = i, from = j, to = j, kind = kind}
        end
    end)
    finish()
    return table.concat(path.full), table.concat(path.mixed), count
end

local function grid_path(n, first, tile_n)
    local path, i = {}, 1
    while first(i) < n.seq_q do
        path[i] = ("M0 %dh%d"):format(first(i), n.seq_k)
        i = i + 1
    end
    for x = tile_n, n.seq_k - 1, tile_n do path[#path + 1] = ("M%d 0v%d"):format(x, n.seq_q) end
    return table.concat(path)
end

-- ---- text ----

local function text_at(out, x, y, text)
    out[#out + 1] = ('<text x="%d" y="%d">%s</text>'):format(x, y, escaped(text))
end

-- The formula in lines.
local function wrapped(text)
    local lines = {""}
    for word in text:gmatch("%S+") do
        local line = lines[#lines]
        if line ~= "" and #line + 1 + #word > columns then
            lines[#lines + 1] = word
        else
            lines[#lines] = line == "" and word or line .. " " .. word
        end
    end
    return lines
end

local function title(one, n, name)
    local given = {}
    for i, row in ipairs(one.params) do given[i] = row.name .. " " .. n[row.name] end
    return name .. (#given > 0 and ": " .. table.concat(given, ", ") or "")
end

-- Below the panels at y: what the colours are, and the formula. Returns the height.
local function legend(out, one, y, count, drawn)
    local x = 0
    for _, kind in ipairs(kinds) do
        out[#out + 1] = ('<rect x="%d" y="%d" width="10" height="10" fill="%s"/>'):format(x, y - 9,
            kind[2])
        text_at(out, x + 14, y, ("%d %s"):format(count[kind[1]], kind[1]))
        x = x + 88
    end
    if drawn then
        out[#out + 1] = ('<rect x="%d" y="%d" width="10" height="10" fill="%s"/>'):format(x, y - 9,
            dark)
        text_at(out, x + 14, y, "kept pairs")
    end
    out[#out + 1] = '<g font-family="monospace" font-size="10">'
    for i, line in ipairs(one.text and wrapped(one.text) or {}) do
        text_at(out, 0, y + 4 + 14 * i, line)
        count.lines = i
    end
    out[#out + 1] = "</g>"
    return y + 12 + 14 * (count.lines or 0)
end

-- ---- a picture ----

-- Of a picture of the mask alone, params whose defaults would not show in it are a third of it.
local function show_params(one, n, given)
    for i, row in ipairs(one.params) do
        if i > given and n[row.name] >= n.seq_k then
            n[row.name] = math.max(row.low, n.seq_k // 3)
        end
    end
end

-- One head's panel at x, below the line y. Adds its tiles to `count`.
local function panel(out, one, n, first, tile_n, at, count)
    local full, mixed, found = tile_paths(one, n, first, tile_n)
    out[#out + 1] = ('<g transform="translate(%d %d) scale(%.6g %.6g)">'):format(at.x, at.y,
        at.width / n.seq_k, at.height / n.seq_q)
    local function path(fill, d)
        if d ~= "" then out[#out + 1] = ('<path fill="%s" d="%s"/>'):format(fill, d) end
    end
    path(kinds[3][2], box(0, 0, n.seq_k, n.seq_q))
    path(kinds[2][2], mixed)
    if at.drawn then path(dark, pairs_path(one, n)) end -- of a full tile: beneath it
    path(kinds[1][2], full)
    out[#out + 1] = ('<path stroke="#fff" stroke-opacity=".6" stroke-width="%.4g" d="%s"/></g>')
        :format(n.seq_k / at.width, grid_path(n, first, tile_n))
    for kind, number in sorted(found) do count[kind] = count[kind] + number end
end

-- `c` has the mask and the tile, `p` what decides where row tiles begin (variants.asked); `alone`:
-- a mask's own picture, not a launch's.
function M.svg(spec, c, p, values, alone)
    local one, n, first, row_tiles, given = variants.asked(spec, c, p, values)
    if #(one.tensors or {}) > 0 then
        common.raise(common.EINVAL, "draw: mask %s reads tensors: what it keeps, they decide",
            c.mask)
    end
    local across = -(-n.seq_k // c.tile_n)
    if alone then show_params(one, n, given) end
    if math.max(row_tiles, across) > most_across then
        common.raise(common.EINVAL, "draw: %d x %d tiles: at most %d a side; take fewer rows or "
            .. "keys", row_tiles, across, most_across)
    end
    local longest = math.max(n.seq_q, n.seq_k)
    local differ = formula.depends(one.tree, "head") or formula.depends(one.tree, "kv_head")
    local heads = differ and math.min(n.heads, most_heads) or 1
    local long_side = heads > 1 and small_side or side
    local at = {x = 0, y = 44, width = math.max(least_side, long_side * n.seq_k // longest),
        height = math.max(least_side, long_side * n.seq_q // longest),
        drawn = longest <= most_pairs_across}
    local out, count = {}, {full = 0, mixed = 0}
    text_at(out, 0, 14, title(one, n, c.mask))
    text_at(out, 0, 32, ("%d rows down, %d keys across; tiles of %d x %d"):format(n.seq_q, n.seq_k,
        c.tile_m, c.tile_n))
    n.batch = 0
    for head = 0, heads - 1 do
        n.head, n.kv_head = head, head // (n.heads // n.kv_heads)
        if differ then text_at(out, at.x, at.y + at.height + 16, "head " .. head) end
        panel(out, one, n, first, c.tile_n, at, count)
        at.x = at.x + at.width + gap
    end
    count.empty = heads * row_tiles * across - count.full - count.mixed
    local height = legend(out, one, at.y + at.height + (differ and 36 or 20), count, at.drawn)
    local width = math.max(side, at.x - gap)
    return ('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="-8 -4 %d %d" '
        .. 'font-family="sans-serif" font-size="12">\n<title>mask %s</title>\n'
        .. '<path fill="#fff" d="M-8-4h%dv%dh-%dz"/>\n%s\n</svg>\n'):format(width + 16, height + 8,
        width + 16, height + 8, escaped(title(one, n, c.mask)), width + 16, height + 8, width + 16,
        table.concat(out, "\n"))
end

return M
