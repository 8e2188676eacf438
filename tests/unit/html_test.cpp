// Pages of results: what they contain, what they must not, and results that they refuse. tests/cli opens them in a
// browser.
#include "sim/report/html.hpp"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "sim/core/error.hpp"
#include "sim/report/run_charts.hpp"

namespace spillway {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

json small_run() {
  return {{"schema_version", 1},
          {"setup", {{"model", "m"}, {"gpu", "g"}, {"policy", "p"}}},
          {"metrics", {{"mean_ttft_ms", {{"value", 12.5}, {"unit", "ms"}, {"n", 3}}}}},
          {"config", {{"seed", 1}}},
          {"warnings", {"</script><img src=x onerror=alert(1)>"}}};
}

/// The results in a page.
json data_of(const std::string& page) {
  const std::string open = "<script type=\"application/json\" id=\"results\">";
  const std::size_t begin = page.find(open) + open.size();
  return json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

/// Why a page is refused.
std::vector<Problem> refused(const std::vector<PageResult>& results) {
  try {
    static_cast<void>(to_html(results));
  } catch (const UserError& error) {
    return error.problems();
  }
  return {};
}

TEST(Html, ContainsTheResultAndNothingThatActs) {
  const std::string page = to_html({{.name = "r.json", .json = small_run().dump()}});
  EXPECT_TRUE(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
  const json data = data_of(page);
  ASSERT_EQ(data.size(), 1U);
  EXPECT_EQ(data[0]["kind"], "run");
  EXPECT_EQ(data[0]["name"], "r.json");
  EXPECT_EQ(data[0]["result"]["metrics"]["mean_ttft_ms"]["value"], 12.5);
  EXPECT_EQ(data[0]["result"]["warnings"][0], "</script><img src=x onerror=alert(1)>") << "as text";
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_FALSE(data[0]["result"].contains("config")) << "nobody reads it there";
  EXPECT_LT(page.size(), 1'000'000U);
}

// The policy allows the page's own two scripts by their hashes, styles, and nothing else. The only address in the page
// stands in the comment of the library's licence.
TEST(Html, NeedsNoNetwork) {
  json run = small_run();
  run["warnings"] = json::array();
  const std::string page = to_html({{.name = "r.json", .json = run.dump()}});
  EXPECT_TRUE(std::regex_search(page.substr(0, 1000),
                                std::regex("content=\"default-src 'none'; style-src 'unsafe-inline'; "
                                           "script-src 'sha256-[A-Za-z0-9+/]{43}=' 'sha256-[A-Za-z0-9+/]{43}='\"")));
  const std::size_t library = page.find("<script>");
  const std::size_t script = page.find("<script>", library + 1);
  ASSERT_NE(script, std::string::npos);
  EXPECT_THAT(page.substr(0, library), Not(HasSubstr("http:")));
  EXPECT_THAT(page.substr(0, library), Not(HasSubstr("https:")));
  EXPECT_THAT(page.substr(script), Not(HasSubstr("http")));
  EXPECT_THAT(page.substr(library, 200), HasSubstr("Chart.js v3"));
  for (const char* const loads : {"<link", " src=", "@import", "url("}) {
    EXPECT_THAT(page.substr(0, library), Not(HasSubstr(loads)));
  }
}

TEST(Html, RefusesWhatIsNoResult) {
  EXPECT_THAT(refused({}).at(0).what, "there is no result to report");
  EXPECT_THAT(refused({{.name = "a", .json = "{"}}).at(0).what, "this is no JSON");
  EXPECT_THAT(refused({{.name = "a", .json = "[1]"}}).at(0).what, HasSubstr("the file is not a result of run, sweep"));
  // All problems at once, each with its file.
  const auto problems = refused({{.name = "a", .json = "{}"}, {.name = "b", .json = "nil"}});
  ASSERT_EQ(problems.size(), 2U);
  EXPECT_EQ(problems[0].where, "a");
  EXPECT_EQ(problems[1].where, "b");
}

TEST(Html, RefusesAnotherSchemaVersion) {
  json later = small_run();
  later["schema_version"] = 2;
  const auto problems = refused({{.name = "r.json", .json = later.dump()}});
  EXPECT_EQ(problems.at(0).what, "the result has schema version 2, and this program reads version 1");
  EXPECT_EQ(problems.at(0).fix, "run it again with this program, or use the one that wrote it");
  json unversioned = small_run();
  unversioned.erase("schema_version");
  EXPECT_THAT(refused({{.name = "r.json", .json = unversioned.dump()}}).at(0).what, HasSubstr("schema version none"));
}

TEST(Html, RefusesAResultWithNothingInIt) {
  const json sweep{{"schema_version", 1}, {"axes", json::array()}, {"points", json::array()}};
  EXPECT_EQ(refused({{.name = "s", .json = sweep.dump()}}).at(0).what,
            "the result has no points, so there is nothing to report");
  const json claims{{"claims", json::array()}, {"summary", json::object()}};
  EXPECT_EQ(refused({{.name = "c", .json = claims.dump()}}).at(0).what,
            "the result has no claims, so there is nothing to report");
}

// 5,000 points: every third stays, 1,667 of them; and of their metrics only what the page shows.
TEST(Html, LongSweep_IsThinned) {
  json sweep{{"schema_version", 1}, {"axes", json::array()}, {"points", json::array()}};
  for (int i = 0; i < 5000; ++i) {
    sweep["points"].push_back({{"point", i},
                               {"values", {{"seed", i}}},
                               {"metrics", {{"p99_ttft_ms", {{"value", i}}}, {"std_ttft_ms", {{"value", i}}}}}});
  }
  const json shown = data_of(to_html({{.name = "s", .json = sweep.dump()}}))[0]["result"];
  EXPECT_EQ(shown["points"].size(), 1667U);
  EXPECT_EQ(shown["omitted_points"], 3333);
  EXPECT_EQ(shown["points"][1]["point"], 3);
  EXPECT_TRUE(shown["points"][1]["metrics"].contains("p99_ttft_ms"));
  EXPECT_FALSE(shown["points"][1]["metrics"].contains("std_ttft_ms"));
}

// Of instances, only what their experts assume; of a file that was changed by hand, whatever has a name and says it.
TEST(Html, InstancesAreTheirNamesAndLocalities) {
  const json locality{{"value", 0.4}, {"origin", "default"}};
  json run = small_run();
  run["instances"] = {{{"name", "a"}, {"setup", {{"policy", "p"}, {"expert_locality", locality}}}, {"metrics", 1}},
                      {{"name", "b"}, {"setup", {{"policy", "p"}}}},
                      {{"setup", {{"expert_locality", locality}}}},
                      {{"name", "c"}},
                      nullptr,
                      3};
  const json shown = data_of(to_html({{.name = "r.json", .json = run.dump()}}))[0]["result"]["instances"];
  EXPECT_EQ(shown, (json::array({{{"name", "a"}, {"setup", {{"expert_locality", locality}}}}})));
}

Metric metric(const std::string& name, std::optional<double> value) {
  return {.name = name, .unit = "ms", .value = value};
}

TEST(RunCharts, Curves_AreThePercentilesOfTheRun) {
  // 101 points, of which 50, 90, 95 and 99 are always there; 75 was asked for.
  const std::vector<double> more = curve_percentiles({75.0});
  EXPECT_EQ(more.size(), 101U - 4U - 1U);
  std::vector<Metric> metrics{metric("min_ttft_ms", 1.0),          metric("p1_ttft_ms", 2.0),
                              metric("p75_ttft_ms", 3.0),          metric("p99.9_ttft_ms", 4.0),
                              metric("max_ttft_ms", 5.0),          metric("mean_ttft_ms", 9.0),
                              metric("p50_tpot_ms", std::nullopt), metric("peak_batch_requests", 7.0)};
  const std::vector<LatencyCurve> curves = latency_curves(metrics);
  ASSERT_EQ(curves.size(), 1U) << "no request has a TPOT";
  EXPECT_EQ(curves[0].metric, "ttft_ms");
  EXPECT_THAT(curves[0].points, ElementsAre(std::pair(0.0, 1.0), std::pair(1.0, 2.0), std::pair(75.0, 3.0),
                                            std::pair(99.9, 4.0), std::pair(100.0, 5.0)));
  remove_percentiles(more, metrics);
  std::vector<std::string> left;
  left.reserve(metrics.size());
  for (const Metric& one : metrics) left.push_back(one.name);
  EXPECT_THAT(left, ElementsAre("min_ttft_ms", "p75_ttft_ms", "max_ttft_ms", "mean_ttft_ms", "p50_tpot_ms",
                                "peak_batch_requests"));
}

// 3 s in bins of 1 ms become 300 of 10 ms: at most 400. Four instances are shown of five. Values have six digits.
TEST(RunCharts, Json_HasAFewBinsAndInstances) {
  TimeSeries series;
  const std::vector<std::string> tiers{"gpu", "host"};
  const std::vector<TierLevel> levels{{Blocks(3), Blocks(1)}, {}};
  for (std::size_t i = 0; i < 5; ++i) {
    InstanceObserver& observer = *series.observer(i);
    observer.begins(tiers, SimTime(0));
    observer.lasted(SimTime(0), SimTime(3'000'000'000), {static_cast<std::int64_t>(i), 0, levels});
  }
  series.finish();
  const std::string text = to_charts_json({{"ttft_ms", "ms", {{50.0, 1.23456789}}}}, series, {"first"}, 2, "result");
  const json charts = json::parse(text);
  EXPECT_EQ(charts["latency"][0]["points"], json::parse("[[50.0,1.23457]]"));
  EXPECT_EQ(charts["replications"], 2);
  const json& over_time = charts["series"];
  EXPECT_EQ(over_time["width_s"], 0.01);
  EXPECT_EQ(over_time["omitted_instances"], 1);
  ASSERT_EQ(over_time["instances"].size(), 4U);
  EXPECT_EQ(over_time["instances"][0]["name"], "first");
  EXPECT_EQ(over_time["instances"][3]["columns"]["running_requests"], std::vector<double>(300, 3.0));
  EXPECT_EQ(over_time["instances"][3]["columns"]["gpu_kv_fraction"], std::vector<double>(300, 0.333333));
  EXPECT_TRUE(over_time["instances"][3]["columns"]["host_kv_fraction"][0].is_null());
  EXPECT_TRUE(belongs_to(text, "result"));
  EXPECT_FALSE(belongs_to(text, "another result"));
  EXPECT_FALSE(belongs_to("nil", "result"));
}

}  // namespace
}  // namespace spillway
