-- What the expressions of an experiment can call (sim/study/claim_script.hpp). It returns the functions by name, and
-- `make_point` and `make_run_set`, which are not for expressions.
--
-- A run set is a list of points, in the order of its axes, the last of which varies fastest. A point has its axis keys
-- and its metrics by name: p["workload.rate"], p.mean_ttft_ms. A run set of one point can be read as that point.
--
-- What does not exist, such as the latency of a run in which nothing finished, is never nil nor 0: reading it ends the
-- evaluation, and the claim fails with that as its reason. has(p, "mean_ttft_ms") asks.

local ipairs, pairs, type, error, rawget, setmetatable = ipairs, pairs, type, error, rawget, setmetatable
local abs, sort = math.abs, table.sort

-- What stands behind each point beside its values: its texts by axis key, the names without a value, what it is called.
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

-- A point. `missing` and `texts` are tables by name, `label` says which point it is.
function library.make_point(values, missing, texts, label)
  behind[values] = {missing = missing, texts = texts, label = label}
  return setmetatable(values, point_meta)
end

local run_set_meta = {
  __index = function(points, name)
    if type(name) == "number" then return nil end
    if #points ~= 1 then error(name .. " of a run set that has " .. #points .. " points: one(...) finds one of them", 0) end
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

-- Those of a list for which f(x) holds.
function library.filter(list, f)
  local out = {}
  for _, x in ipairs(list) do
    if f(x) then out[#out + 1] = x end
  end
  return out
end

-- Whether f(x) holds for all of a list that is not empty.
function library.all(list, f)
  if #list == 0 then no_value("nothing to check: the list is empty") end
  for _, x in ipairs(list) do
    if not f(x) then return false end
  end
  return true
end

-- Whether f(x) holds for one of a list.
function library.any(list, f)
  for _, x in ipairs(list) do
    if f(x) then return true end
  end
  return false
end

-- One metric or key of every point.
function library.values(points, name)
  return library.map(points, function(point) return point[name] end)
end

-- The list that is meant: values(points, name), the list itself, or the arguments.
local function numbers(first, ...)
  if type(first) ~= "table" then return {first, ...} end
  local name = ...
  local list = name and library.values(first, name) or first
  if #list == 0 then no_value("the list is empty") end
  return list
end

-- max(points, metric), max(list), max(a, b, ...); so min, sum and mean.
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

-- A number is the axis's value; a text is how the value is written in the run set, or the value itself.
local function matches(point, settings)
  for key, wanted in pairs(settings) do
    if point[key] ~= wanted and behind[point].texts[key] ~= wanted then return false end
  end
  return true
end

-- The points with these values of their axes: where(pie, {["memory.gpu_kv"] = "3GB"}). None is an error.
function library.where(points, settings)
  local found = library.filter(points, function(point) return matches(point, settings) end)
  if #found == 0 then
    local wanted = ""
    for key, value in pairs(settings) do wanted = wanted .. " " .. key .. "=" .. value end
    error("no point has" .. wanted, 0)
  end
  return found
end

-- The one point with these values; several are an error.
function library.one(points, settings)
  local found = library.where(points, settings)
  if #found > 1 then error(#found .. " points match where one is meant; the first is " .. behind[found[1]].label, 0) end
  return found[1]
end

-- A list of lists: the points of each value of a key, in the order in which the values come.
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

-- The value of `key` where `metric` is largest (the first of equals), or smallest.
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

-- The highest x whose y is at most `limit`, on the straight lines between the points. Where y falls below the limit
-- again at a higher x, the last crossing counts. A curve that never exceeds the limit, or always does, has none.
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

-- Whether no element lies more than `tolerance` (0.02 for 2%) below the largest one before it.
function library.non_decreasing(list, tolerance)
  local highest = list[1]
  for _, x in ipairs(list) do
    if x < highest - abs(highest) * (tolerance or 0) then return false end
    if x > highest then highest = x end
  end
  return true
end

-- Whether no element lies more than `tolerance` above the smallest one before it.
function library.non_increasing(list, tolerance)
  local lowest = list[1]
  for _, x in ipairs(list) do
    if x > lowest + abs(lowest) * (tolerance or 0) then return false end
    if x < lowest then lowest = x end
  end
  return true
end

-- Whether a list rises to its maximum and falls behind it, both within `tolerance`.
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
