-- Functions for the expressions of an experiment (sim/study/claim_script.hpp). The file returns the functions by name,
-- and `make_point` and `make_run_set`, which expressions cannot call.
--
-- A run set is a list of points in the order of its axes; the last axis varies fastest. A point has axis keys and
-- metrics by name: p["workload.rate"], p.mean_ttft_ms. A run set of one point can be used as that point.
--
-- A missing value, such as the latency of a run in which no request finished, is neither nil nor 0. Reading it ends the
-- evaluation, and the claim fails with this reason. has(p, "mean_ttft_ms") tests for a value.

local ipairs, pairs, type, error, rawget, setmetatable = ipairs, pairs, type, error, rawget, setmetatable
local abs, sort = math.abs, table.sort

-- Data of each point besides its values: texts by axis key, names without a value, and the label.
local behind = setmetatable({}, {__mode = "k"})

local function no_value(text)
  error({no_value = text}, 0)
end

local point_meta = {
  __index = function(point, name)
    local own = behind[point]
    if own.missing[name] then no_value(name .. " has no value at " .. own.label) end
    error({unknown = name, of = "a point"}, 0)
  end
}

local library = {}

-- A point. `missing` and `texts` are tables by name; `label` identifies the point in messages.
function library.make_point(values, missing, texts, label)
  behind[values] = {missing = missing, texts = texts, label = label}
  return setmetatable(values, point_meta)
end

local run_set_meta = {
  __index = function(points, name)
    if type(name) == "number" then return nil end
    if #points ~= 1 then
      error(name .. " of a run set with " .. #points .. " points: select one point with one(...)", 0)
    end
    return points[1][name]
  end
}

function library.make_run_set(points)
  return setmetatable(points, run_set_meta)
end

-- Whether a point has a value of that name.
function library.has(point, name)
  return behind[point].missing[name] == nil and point[name] ~= nil
end

-- Lists ---------------------------------------------------------------------------------------------------------------

-- f(x) for every x of a list.
function library.map(list, f)
  local out = {}
  for i, x in ipairs(list) do out[i] = f(x) end
  return out
end

-- The elements of a list for which f(x) holds.
function library.filter(list, f)
  local out = {}
  for _, x in ipairs(list) do
    if f(x) then out[#out + 1] = x end
  end
  return out
end

-- Whether f(x) holds for every element of a nonempty list.
function library.all(list, f)
  if #list == 0 then no_value("nothing to check: the list is empty") end
  for _, x in ipairs(list) do
    if not f(x) then return false end
  end
  return true
end

-- Whether f(x) holds for an element of a list.
function library.any(list, f)
  for _, x in ipairs(list) do
    if f(x) then return true end
  end
  return false
end

-- One metric or key of every point, as a list.
function library.values(points, name)
  return library.map(points, function(point) return point[name] end)
end

-- The list that the arguments mean: values(points, name), a list argument, or the arguments themselves.
local function numbers(first, ...)
  if type(first) ~= "table" then return {first, ...} end
  local name = ...
  local list = name and library.values(first, name) or first
  if #list == 0 then no_value("the list is empty") end
  return list
end

-- max(points, metric), max(list), max(a, b, ...). min, sum and mean take the same arguments.
function library.max(...)
  local list = numbers(...)
  local best = list[1]
  for _, x in ipairs(list) do
    if x > best then best = x end
  end
  return best
end

function library.min(...)
  local list = numbers(...)
  local best = list[1]
  for _, x in ipairs(list) do
    if x < best then best = x end
  end
  return best
end

function library.sum(...)
  local total = 0
  for _, x in ipairs(numbers(...)) do total = total + x end
  return total
end

function library.mean(...)
  local list = numbers(...)
  return library.sum(list) / #list
end

-- Points --------------------------------------------------------------------------------------------------------------

-- A number is compared with the axis value, a text with the value as written in the run set, or with the value.
local function matches(point, settings)
  for key, wanted in pairs(settings) do
    if point[key] ~= wanted and behind[point].texts[key] ~= wanted then return false end
  end
  return true
end

-- The points with these axis values: where(pie, {["memory.gpu_kv"] = "3GB"}). No such point is an error.
function library.where(points, settings)
  local found = library.filter(points, function(point) return matches(point, settings) end)
  if #found == 0 then
    local wanted = ""
    for key, value in pairs(settings) do wanted = wanted .. " " .. key .. "=" .. value end
    error("no point has" .. wanted, 0)
  end
  return found
end

-- The single point with these values; several points are an error.
function library.one(points, settings)
  local found = library.where(points, settings)
  if #found > 1 then
    error(#found .. " points match, but one(...) needs exactly one; the first is " .. behind[found[1]].label, 0)
  end
  return found[1]
end

-- A list of lists: the points for each value of a key, in the order of the values.
function library.group(points, key)
  local groups, place = {}, {}
  for _, point in ipairs(points) do
    local value = point[key]
    if not place[value] then
      groups[#groups + 1] = {}
      place[value] = #groups
    end
    local group = groups[place[value]]
    group[#group + 1] = point
  end
  return groups
end

-- The value of `key` at the largest `metric` (the first of equals), or at the smallest.
function library.argmax(points, metric, key)
  if #points == 0 then no_value("there are no points") end
  local best = points[1]
  for _, point in ipairs(points) do
    if point[metric] > best[metric] then best = point end
  end
  return best[key]
end

function library.argmin(points, metric, key)
  if #points == 0 then no_value("there are no points") end
  local best = points[1]
  for _, point in ipairs(points) do
    if point[metric] < best[metric] then best = point end
  end
  return best[key]
end

-- The highest x with y <= `limit`, on straight lines between the points. If y falls below the limit again at a higher
-- x, the last crossing counts. A curve that never or always exceeds the limit has no crossing.
function library.highest_at(points, x, y, limit)
  local curve = library.map(points, function(point) return point end)
  if #curve == 0 then no_value("there are no points") end
  sort(curve, function(a, b) return a[x] < b[x] end)
  local last = 0
  for i, point in ipairs(curve) do
    if i > 1 and point[x] == curve[i - 1][x] then error("several points have " .. x .. "=" .. point[x], 0) end
    if point[y] <= limit then last = i end
  end
  if last == 0 then no_value(y .. " exceeds " .. limit .. " already at " .. x .. "=" .. curve[1][x]) end
  if last == #curve then no_value(y .. " is at most " .. limit .. " up to the end, " .. x .. "=" .. curve[last][x]) end
  local below, above = curve[last], curve[last + 1]
  return below[x] + (limit - below[y]) / (above[y] - below[y]) * (above[x] - below[x])
end

-- Shapes --------------------------------------------------------------------------------------------------------------

-- Whether no element is more than `tolerance` (0.02 for 2%) below the largest earlier element.
function library.non_decreasing(list, tolerance)
  local highest = list[1]
  for _, x in ipairs(list) do
    if x < highest - abs(highest) * (tolerance or 0) then return false end
    if x > highest then highest = x end
  end
  return true
end

-- Whether no element is more than `tolerance` above the smallest earlier element.
function library.non_increasing(list, tolerance)
  local lowest = list[1]
  for _, x in ipairs(list) do
    if x > lowest + abs(lowest) * (tolerance or 0) then return false end
    if x < lowest then lowest = x end
  end
  return true
end

-- Whether a list rises to its maximum and then falls, both within `tolerance`.
function library.unimodal(list, tolerance)
  local peak = 1
  for i, x in ipairs(list) do
    if x > list[peak] then peak = i end
  end
  local rise, fall = {}, {}
  for i, x in ipairs(list) do
    if i <= peak then rise[#rise + 1] = x end
    if i >= peak then fall[#fall + 1] = x end
  end
  return library.non_decreasing(rise, tolerance) and library.non_increasing(fall, tolerance)
end

-- |x|
function library.abs(x)
  return abs(x)
end

-- Whether |value / reference - 1| is at most `tolerance`.
function library.within(value, reference, tolerance)
  return abs(value - reference) <= tolerance * abs(reference)
end

return library
