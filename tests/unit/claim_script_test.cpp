// Expressions of experiments: what they can and cannot do, and every function of the library.
#include "sim/study/claim_script.hpp"

#include <gmock/gmock.h>

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

/// The text of the ScriptError or NoValue that `expression` ends in.
template <class Error>
std::string error_of(ClaimScript& script, const std::string& expression) {
  try {
    const Json value = script.evaluate(expression);
    ADD_FAILURE() << expression << " gives " << value;
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

/// A curve y over x, and a metric that exists only at x = 1.
std::vector<ScriptPoint> curve(const std::vector<std::pair<double, double>>& xy) {
  std::vector<ScriptPoint> points;
  points.reserve(xy.size());
  for (const auto& [x, y] : xy) {
    points.push_back({"curve at x=" + std::to_string(static_cast<int>(x)),
                      {{"x", x}, {"y", y}, {"rare", x == 1.0 ? Json(7.0) : Json(nullptr)}},
                      {{"x", std::to_string(static_cast<int>(x)) + "GB"}}});
  }
  return points;
}

TEST(ClaimScript, Values_OfEveryKind) {
  ClaimScript script;
  script.set("limit", 200);
  script.set("engine", nullptr);
  script.set("part", {{"best", 1.5}, {"names", {"a", "b"}}});
  EXPECT_EQ(script.evaluate("limit / 8"), Json(25.0));
  EXPECT_EQ(script.evaluate("limit .. 'GB'"), Json("200GB"));
  EXPECT_EQ(script.evaluate("engine"), Json(nullptr));
  EXPECT_EQ(script.evaluate("engine == nil and part.best > 1"), Json(true));
  EXPECT_EQ(script.evaluate("{part.best, {part.names[2], 3}}"), (Json{1.5, {"b", 3}}));
  script.set("engine", "none");
  EXPECT_EQ(script.evaluate("engine"), Json("none"));
  script.set("engine", nullptr);
  EXPECT_EQ(script.evaluate("engine"), Json(nullptr));
}

TEST(ClaimScript, NothingOfTheMachineIsInReach) {
  ClaimScript script;
  for (const char* name :
       {"io",     "os",    "require",        "load",      "loadstring", "dofile",       "debug",        "package",
        "string", "table", "math",           "pcall",     "pairs",      "next",         "setmetatable", "getmetatable",
        "rawget", "_G",    "collectgarbage", "coroutine", "make_point", "make_run_set", "tostring",     "print"}) {
    EXPECT_THAT(error_of<ScriptError>(script, name), HasSubstr(std::string("there is no name \"") + name + "\""))
        << name;
  }
  EXPECT_THAT(error_of<ScriptError>(script, "('x'):rep(3)"), HasSubstr("attempt to index a string value"));
}

TEST(ClaimScript, EndlessAndGreedyOnesAreErrors) {
  ClaimScript script;
  EXPECT_THAT(error_of<ScriptError>(script, "(function() while true do end end)()"), HasSubstr("it runs too long"));
  EXPECT_THAT(error_of<ScriptError>(script, "(function() local s = 'x' while true do s = s .. s end end)()"),
              HasSubstr("not enough memory"));
  EXPECT_THAT(error_of<ScriptError>(script, "(function() local function f() return 1 + f() end return f() end)()"),
              HasSubstr("stack overflow"));
  EXPECT_EQ(script.evaluate("1 + 1"), Json(2)) << "and the script goes on to work";
}

TEST(ClaimScript, MistakesAreNamed) {
  ClaimScript script;
  script.set("vllm", 1);
  EXPECT_THAT(error_of<ScriptError>(script, "vlm + 1"), HasSubstr(R"(there is no name "vlm"; did you mean "vllm"?)"));
  EXPECT_THAT(error_of<ScriptError>(script, "highest_a(vllm)"), HasSubstr(R"(did you mean "highest_at"?)"));
  EXPECT_THAT(error_of<ScriptError>(script, "{1}+1"), HasSubstr("attempt to perform arithmetic on a table value"));
  EXPECT_THAT(error_of<ScriptError>(script, "{a = 1}"), HasSubstr("a table with names"));
  EXPECT_THAT(error_of<ScriptError>(script, "max"), HasSubstr("gives a function"));
  EXPECT_THAT(error_of<ScriptError>(script, "{{{{{1}}}}}"), HasSubstr("too deep"));
  EXPECT_EQ(ClaimScript::syntax_error("1 + 1"), std::nullopt);
  EXPECT_THAT(ClaimScript::syntax_error("1 +").value_or(""), HasSubstr("unexpected symbol near <eof>"));
  EXPECT_NE(ClaimScript::syntax_error("1; vllm = 2"), std::nullopt) << "an expression, not a program";
}

TEST(ClaimScript, WhatHasNoValueIsNoZero) {
  ClaimScript script;
  script.set_points("run", curve({{1, 10}, {2, 20}}));
  EXPECT_EQ(script.evaluate("run[1].rare"), Json(7.0));
  EXPECT_EQ(error_of<NoValue>(script, "run[2].rare + 1"), "rare has no value at curve at x=2");
  EXPECT_EQ(error_of<NoValue>(script, "max(run, 'rare')"), "rare has no value at curve at x=2");
  EXPECT_EQ(script.evaluate("has(run[1], 'rare') and not has(run[2], 'rare')"), Json(true));
  EXPECT_EQ(error_of<NoValue>(script, "1 / 0"), "the value is infinite");
  EXPECT_EQ(error_of<NoValue>(script, "{0 / 0}"), "the value is undefined, as 0 / 0 is");
  EXPECT_THAT(error_of<ScriptError>(script, "run[1].rar"), HasSubstr(R"(a point has no "rar"; did you mean "rare")"));
  EXPECT_THAT(error_of<ScriptError>(script, "has(run[1], 'rar')"), HasSubstr("a point has no \"rar\""));
  EXPECT_EQ(error_of<ScriptError>(script, "run.y"), "y of a run set with 2 points: select one point with one(...)");
  script.set_points("single", curve({{1, 10}}));
  EXPECT_EQ(script.evaluate("single.y + #single"), Json(11.0));
}

TEST(ClaimScript, Lists) {
  ClaimScript script;
  script.set("list", {3, 1, 2});
  EXPECT_EQ(script.evaluate("{max(list), min(list), sum(list), mean(list), max(4, 9), min(4, 9)}"),
            (Json{3, 1, 6, 2.0, 9, 4}));
  EXPECT_EQ(script.evaluate("map(list, function(x) return 2 * x end)"), (Json{6, 2, 4}));
  EXPECT_EQ(script.evaluate("filter(list, function(x) return x > 1 end)"), (Json{3, 2}));
  EXPECT_EQ(script.evaluate("{all(list, function(x) return x > 0 end), any(list, function(x) return x > 3 end)}"),
            (Json{true, false}));
  EXPECT_EQ(error_of<NoValue>(script, "max({})"), "the list is empty");
  EXPECT_EQ(error_of<NoValue>(script, "all({}, function(x) return true end)"), "nothing to check: the list is empty");
}

TEST(ClaimScript, Points_AreFoundByTheirAxes) {
  ClaimScript script;
  script.set_points("run", curve({{1, 10}, {2, 30}, {3, 20}, {2, 40}}));
  EXPECT_EQ(script.evaluate("values(where(run, {x = 2}), 'y')"), (Json{30.0, 40.0}));
  EXPECT_EQ(script.evaluate("one(run, {x = '3GB'}).y"), Json(20.0)) << "as the run set writes it";
  EXPECT_EQ(script.evaluate("map(group(run, 'x'), function(g) return max(g, 'y') end)"), (Json{10.0, 40.0, 20.0}));
  EXPECT_EQ(script.evaluate("{argmax(run, 'y', 'x'), argmin(run, 'y', 'x')}"), (Json{2.0, 1.0}));
  EXPECT_EQ(error_of<ScriptError>(script, "where(run, {x = 5})"), "no point has x=5");
  EXPECT_EQ(error_of<ScriptError>(script, "one(run, {x = 2})"),
            "2 points match, but one(...) needs exactly one; the first is curve at x=2");
}

TEST(ClaimScript, HighestAt_InterpolatesTheLastCrossing) {
  ClaimScript script;
  // Between (2, 40) and (4, 80), y reaches 50 after a quarter of the way: x = 2.5. The order of the points does not
  // matter.
  script.set_points("rising", curve({{4, 80}, {1, 10}, {2, 40}}));
  EXPECT_EQ(script.evaluate("highest_at(rising, 'x', 'y', 50)"), Json(2.5));
  EXPECT_EQ(script.evaluate("highest_at(rising, 'x', 'y', 40)"), Json(2.0)) << "a limit that a point meets exactly";
  // Down again at 3, then from (3, 45) to (4, 85) it reaches 50 after an eighth.
  script.set_points("bump", curve({{1, 10}, {2, 60}, {3, 45}, {4, 85}}));
  EXPECT_EQ(script.evaluate("highest_at(bump, 'x', 'y', 50)"), Json(3.125));
  // Preemptions: none up to 2, 5 at 3. The highest x with none is 2.
  script.set_points("steps", curve({{1, 0}, {2, 0}, {3, 5}}));
  EXPECT_EQ(script.evaluate("highest_at(steps, 'x', 'y', 0)"), Json(2.0));
  EXPECT_EQ(error_of<NoValue>(script, "highest_at(rising, 'x', 'y', 5)"), "y exceeds 5 already at x=1.0");
  EXPECT_EQ(error_of<NoValue>(script, "highest_at(rising, 'x', 'y', 90)"), "y is at most 90 up to the end, x=4.0");
  script.set_points("twice", curve({{1, 0}, {1, 5}}));
  EXPECT_EQ(error_of<ScriptError>(script, "highest_at(twice, 'x', 'y', 1)"), "several points have x=1.0");
}

TEST(ClaimScript, Shapes) {
  ClaimScript script;
  // 99 is 1% below the 100 before it; 97.5 then 1.5% below 99 but 2.5% below the largest.
  EXPECT_EQ(script.evaluate("non_decreasing({90, 100, 99, 110}, 0.02)"), Json(true));
  EXPECT_EQ(script.evaluate("non_decreasing({90, 100, 99, 97.5}, 0.02)"), Json(false));
  EXPECT_EQ(script.evaluate("non_decreasing({90, 100, 99})"), Json(false));
  EXPECT_EQ(script.evaluate("non_increasing({100, 101, 90}, 0.02)"), Json(true));
  EXPECT_EQ(script.evaluate("non_increasing({90, 100})"), Json(false));
  EXPECT_EQ(script.evaluate("unimodal({1, 3, 2, 1})"), Json(true));
  EXPECT_EQ(script.evaluate("unimodal({1, 3, 2, 2.5})"), Json(false));
  EXPECT_EQ(script.evaluate("unimodal({1, 2, 3})"), Json(true));
  EXPECT_EQ(script.evaluate("{within(102, 100, 0.02), within(97.9, 100, 0.02)}"), (Json{true, false}));
}

/// Throughput over GPU KV a (3, 7 GB) and expansion e (1, 1.5, 2), as papers sweep two settings at once.
std::vector<ScriptPoint> two_axes() {
  std::vector<ScriptPoint> points;
  for (const auto& [a, curve] :
       std::vector<std::pair<double, std::vector<double>>>{{3e9, {10, 15, 18}}, {7e9, {20, 25, 24}}}) {
    for (std::size_t i = 0; i < curve.size(); ++i) {
      points.push_back({"pie",
                        {{"memory.gpu_kv", a}, {"e", 1.0 + 0.5 * static_cast<double>(i)}, {"rate", curve[i]}},
                        {{"memory.gpu_kv", a == 3e9 ? "3GB" : "7GB"}}});
    }
  }
  return points;
}

TEST(ClaimScript, PublishedForms) {
  ClaimScript script;
  script.set_points("pie", two_axes());
  // The best over a of (the best expansion over none): 18 / 10 against 25 / 20.
  EXPECT_EQ(script.evaluate("max(map(group(pie, 'memory.gpu_kv'), function(g) "
                            "return max(g, 'rate') / one(g, {e = 1}).rate end))"),
            Json(1.8));
  // At 3 GB the curve rises over the whole range; at 7 GB it has an inner peak and then falls.
  EXPECT_EQ(script.evaluate("non_decreasing(values(where(pie, {['memory.gpu_kv'] = '3GB'}), 'rate'), 0.02)"),
            Json(true));
  EXPECT_EQ(script.evaluate("(function(g) local peak = argmax(g, 'rate', 'e') return peak >= 1.33 and peak <= 1.67 and "
                            "one(g, {e = 2}).rate < max(g, 'rate') end)(where(pie, {['memory.gpu_kv'] = '7GB'}))"),
            Json(true));
  // Against a baseline, point by point.
  script.set_points("baseline", two_axes());
  EXPECT_EQ(script.evaluate("all(pie, function(p) return p.rate >= one(baseline, {['memory.gpu_kv'] = "
                            "p['memory.gpu_kv'], e = p.e}).rate end)"),
            Json(true));
}

TEST(ClaimScript, NamesInAnExpression) {
  EXPECT_EQ(names_in("max(pie_1, 'y') + 2*x"), (std::set<std::string>{"max", "pie_1", "y", "2", "x"}));
  EXPECT_TRUE(may_be_named("vllm_12gb"));
  for (const char* name : {"", "3gb", "vllm-v0", "end", "max", "abs", "a b"}) EXPECT_FALSE(may_be_named(name)) << name;
}

}  // namespace
}  // namespace spillway
