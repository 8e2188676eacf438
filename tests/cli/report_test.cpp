// Timelines, time series and HTML reports of the binary; the pages in a browser, if there is one.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "sim/io/file_reader.hpp"
#include "tests/cli/command.hpp"
#include "tests/support/trace_events.hpp"

namespace spillway::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
namespace fs = std::filesystem;

/// A small run with swaps, on two instances.
const std::vector<std::string> kSwapping{"run",
                                         "policy=vllm-v0",
                                         "engine.preemption=swap",
                                         "memory.gpu_kv=1GB",
                                         "memory.host_kv=4GB",
                                         "workload.trace=sharegpt",
                                         "workload.rate=30",
                                         "workload.requests=60",
                                         "replicas=2",
                                         "--progress",
                                         "off"};

class Report : public CliTest {
 protected:
  [[nodiscard]] Output with(std::vector<std::string> arguments, const std::vector<std::string>& more) const {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return spillway(arguments);
  }
  /// The page as the browser builds it; `errors` gets what its console says. Skips the test without a browser.
  struct Rendered {
    std::string page;
    std::string console;
  };
  [[nodiscard]] Rendered rendered(const std::string& name) const {
    const pid_t browser = start_program(
        {"chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
         "--user-data-dir=" + file("browser").string(), "--enable-logging=stderr", "--virtual-time-budget=10000",
         "--window-size=1400,1000", "--dump-dom", "file://" + file(name).string()});
    const Output output = wait_for(browser);
    EXPECT_EQ(output.code, 0) << output.err;
    std::string console;
    std::istringstream lines(output.err);
    for (std::string line; std::getline(lines, line);) {
      if (line.find("CONSOLE") != std::string::npos) console += line + "\n";
    }
    return {output.out, console};
  }
  [[nodiscard]] static bool has_browser() { return std::system("command -v chromium > /dev/null 2>&1") == 0; }
};
#define SKIP_WITHOUT_BROWSER() \
  if (!has_browser()) GTEST_SKIP() << "chromium is not installed, which packages.sh browser does"

std::int64_t count(const std::string& text, const std::string& part) {
  std::int64_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

/// The page without its data and scripts, which stand at its end.
std::string text_of(const std::string& page) { return page.substr(0, page.find("<footer>")); }

TEST_F(Report, Timeline_IsAValidTraceOfTheRun) {
  const Output run = with(kSwapping, {"--timeline", "t.json", "--json", "--requests-out", "rows.jsonl"});
  ASSERT_EQ(run.code, 0) << run.err;
  const json result = json::parse(run.out);
  const json trace = json::parse(read_file(file("t.json")));
  EXPECT_THAT(trace_problems(trace), IsEmpty());
  std::int64_t iterations = 0;
  std::int64_t bytes = 0;
  std::map<std::int64_t, std::int64_t> phases;  // preemptions
  std::int64_t requests = 0;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "X" && event["name"] == "iteration") ++iterations;
    if (event["ph"] == "X" && event["name"] == "KV") bytes += event["args"]["bytes"].get<std::int64_t>();
    if (event["ph"] == "b" && event["name"] == "preempted: swap") ++phases[0];
    if (event["ph"] == "b" && event["args"].contains("outcome")) ++requests;
  }
  const auto value = [&](const char* name) { return result["metrics"][name]["value"].get<double>(); };
  EXPECT_EQ(iterations, value("iterations"));
  EXPECT_EQ(requests, 60);
  EXPECT_GT(phases[0], 0) << "the case is no test of swaps";
  EXPECT_EQ(phases[0], value("swap_preemptions"));
  EXPECT_EQ(bytes, value("moved_h2d_bytes") + value("moved_d2h_bytes"));
}

// KV that goes from a prefill to a decode replica shows at both, and as many bytes come as go.
TEST_F(Report, Timeline_ShowsHandovers) {
  const Output run =
      spillway({"run", "hardware=hgx-h100-8", "prefill_replicas=2", "decode_replicas=1", "workload.requests=40",
                "workload.rate=8", "--progress", "off", "--json", "--timeline", "t.json", "--series", "s.csv"});
  ASSERT_EQ(run.code, 0) << run.err;
  const json metrics = json::parse(run.out)["metrics"];
  const json trace = json::parse(read_file(file("t.json")));
  EXPECT_THAT(trace_problems(trace), IsEmpty());
  std::map<std::string, std::int64_t> bytes;
  std::map<std::string, double> begun;
  double moved_ms = 0.0;
  std::int64_t came = 0;
  for (const json& event : trace["traceEvents"]) {
    if (!event.contains("cat") || event["cat"] != "handover") continue;
    const std::string name = event["name"];
    const std::string way = name.substr(name.rfind(' ') + 1);
    // The decode replica comes after the two that compute prompts.
    EXPECT_EQ(event["pid"].get<int>() == 3, way == "comes");
    if (event["ph"] == "b") {
      bytes[way] += event["args"]["bytes"].get<std::int64_t>();
      begun[event["id"]] = event["ts"];
    } else if (way == "comes") {
      moved_ms += 1e-3 * (event["ts"].get<double>() - begun.at(event["id"]));
      ++came;
    }
  }
  EXPECT_EQ(came, 40);
  EXPECT_EQ(bytes["comes"], metrics["handed_over_bytes"]["value"].get<std::int64_t>());
  EXPECT_EQ(bytes["goes"], bytes["comes"]);
  EXPECT_NEAR(moved_ms / 40.0, metrics["mean_handover_ms"]["value"].get<double>(), 1e-6);

  std::istringstream lines(read_file(file("s.csv")));
  std::string line;
  std::vector<std::string> heads;
  std::map<std::string, double> sums;  // of the columns times the lengths of the bins
  const auto cells_of = [](const std::string& text) {
    std::vector<std::string> cells;
    std::istringstream row(text);
    for (std::string cell; std::getline(row, cell, ',');) cells.push_back(cell);
    return cells;
  };
  while (std::getline(lines, line)) {
    const std::vector<std::string> cells = cells_of(line);
    if (heads.empty()) {
      heads = cells;
      continue;
    }
    const double length = std::stod(cells[2]) - std::stod(cells[1]);
    for (std::size_t i = 3; i < cells.size(); ++i) {
      if (!cells[i].empty()) sums[heads[i]] += std::stod(cells[i]) * length;
    }
  }
  const auto total = static_cast<double>(bytes["comes"]);
  EXPECT_NEAR(sums["handover_in_bytes_per_s"], total, 1e-6 * total);
  EXPECT_NEAR(sums["handover_out_bytes_per_s"], total, 1e-6 * total);
  EXPECT_NEAR(1e3 * sums["handover_in_transfers"], moved_ms, 1e-6 * moved_ms);
}

TEST_F(Report, Timeline_ChangesNothingAndDependsOnNoThreads) {
  const Output plain = with(kSwapping, {"--json", "replications=2"});
  const auto files = [&](const std::string& jobs) {
    const Output run = with(kSwapping, {"--json", "replications=2", "-j", jobs, "--timeline", "t" + jobs + ".json.gz",
                                        "--series", "s" + jobs + ".csv", "--html", "p" + jobs + ".html"});
    EXPECT_EQ(run.out, plain.out);
    return read_file(file("t" + jobs + ".json.gz")) + read_file(file("s" + jobs + ".csv")) +
           read_file(file("p" + jobs + ".html"));
  };
  const std::string one = files("1");
  EXPECT_EQ(one.substr(0, 2), "\x1f\x8b");
  EXPECT_EQ(one, files("2"));
}

TEST_F(Report, Timeline_LimitSaysWhatIsLeftOut) {
  const Output run = with(kSwapping, {"--timeline", "t.json", "--timeline-events", "100"});
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_TRUE(std::regex_search(run.err, std::regex("warning: the timeline leaves out [0-9]+ events, all that start at "
                                                    "[0-9.e-]+ s or later\\. Narrow it with --timeline-window "
                                                    "[0-9.e-]+s:[0-9.]+s, say, or raise --timeline-events")))
      << run.err;
  const json trace = json::parse(read_file(file("t.json")));
  EXPECT_THAT(trace_problems(trace), IsEmpty());
  std::int64_t events = 0;
  for (const json& event : trace["traceEvents"]) events += event["ph"] != "M" ? 1 : 0;
  EXPECT_LE(events, 100);
  EXPECT_GT(events, 50);
}

TEST_F(Report, Timeline_BadInput) {
  const auto refused = [&](const std::vector<std::string>& more, const std::string& what) {
    const Output run = with(kSwapping, more);
    EXPECT_EQ(run.code, 2) << run.err;
    EXPECT_THAT(run.out, IsEmpty());
    EXPECT_THAT(run.err, HasSubstr(what));
    EXPECT_EQ(files_left(), 0);
  };
  refused({"--timeline", "t.json", "--timeline-window", "20s:10s"}, "\"20s:10s\" is not a window of time");
  refused({"--timeline", "t.json", "--timeline-window", "10:20"}, "give two times, the earlier one first");
  refused({"--timeline-window", "1s:2s"}, "--timeline-window narrows a timeline, and there is none");
  refused({"--timeline", "t.json", "--timeline-window", "1h:2h"},
          "the window 1h:2h lies outside the run, which ends at ");
  refused({"--timeline", "none/t.json"}, "cannot create the file none/t.json");
  refused({"--series", "none/s.csv"}, "cannot create the file none/s.csv");
  refused({"--html", "none/p.html"}, "cannot create the file none/p.html");
}

TEST_F(Report, Series_HasARowForEachBinOfEachInstance) {
  const Output run = with(kSwapping, {"--series", "s.csv"});
  ASSERT_EQ(run.code, 0) << run.err;
  std::istringstream lines(read_file(file("s.csv")));
  std::string head;
  std::getline(lines, head);
  EXPECT_THAT(head, HasSubstr("instance,begin_s,end_s,running_requests,waiting_requests,"));
  for (const char* const column : {"gpu_kv_fraction", "host_kv_fraction", "h2d_bytes_per_s", "waits_for_kv_fraction"}) {
    EXPECT_THAT(head, HasSubstr(std::string(",") + column));
  }
  const std::int64_t columns = std::count(head.begin(), head.end(), ',');
  std::map<char, std::int64_t> rows;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_EQ(std::count(line.begin(), line.end(), ','), columns);
    ++rows[line[0]];
  }
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows['0'], rows['1']);
  EXPECT_LE(rows['0'], 2000);
  EXPECT_GE(rows['0'], 400);
}

TEST_F(Report, OfAFolder_IsThePageOfTheRun) {
  const Output run = with(kSwapping, {"-o", "out", "--html", "page.html"});
  ASSERT_EQ(run.code, 0) << run.err;
  const Output report = spillway({"report", "out/result.json", "-o", "report.html"});
  ASSERT_EQ(report.code, 0) << report.err;
  EXPECT_THAT(report.out, IsEmpty());
  std::string page = read_file(file("page.html"));
  std::string same = read_file(file("report.html"));
  EXPECT_LT(page.size(), 1'000'000U);
  const std::string name = "\"name\":\"out/result.json\"";
  ASSERT_THAT(same, HasSubstr(name));
  same.replace(same.find(name), name.size(), "\"name\":\"run\"");
  EXPECT_EQ(page, same);
}

TEST_F(Report, BadInput) {
  const auto refused = [&](const std::vector<std::string>& arguments, int code, const std::string& what) {
    const Output run = spillway(arguments);
    EXPECT_EQ(run.code, code) << run.err;
    EXPECT_THAT(run.err, HasSubstr(what));
    EXPECT_FALSE(fs::exists(file("p.html")));
  };
  write_text(file("later.json"), R"({"schema_version": 9, "setup": {}, "metrics": {}})");
  write_text(file("other.json"), "{}");
  refused({"report", "-o", "p.html"}, 2, "there is no result to report");
  refused({"report", "other.json"}, 2, "give -o FILE");
  refused({"report", "missing.json", "-o", "p.html"}, 3, "the result cannot be read: it does not exist");
  refused({"report", "other.json", "later.json", "-o", "p.html"}, 3, "schema version 9, and this program reads");
  refused({"report", "other.json", "-o", "p.html"}, 3, "give a result.json, sweep.json or comparison.json");
}

// --- in a browser

TEST_F(Report, Page_OfARun) {
  SKIP_WITHOUT_BROWSER();
  ASSERT_EQ(with(kSwapping, {"--html", "page.html"}).code, 0);
  const Rendered page = rendered("page.html");
  EXPECT_EQ(page.console, "");
  // Four distributions, two charts of the whole span, and for each of two instances six or seven over time: all have
  // points but the waits for what does not happen.
  EXPECT_EQ(count(text_of(page.page), "<h3>Distribution of "), 4);
  EXPECT_EQ(count(text_of(page.page), "<h3>Queue and batch</h3>"), 2);
  EXPECT_EQ(count(text_of(page.page), "<canvas"), 4 + 2 + 2 * 7);
  EXPECT_EQ(count(text_of(page.page), "<details"), count(text_of(page.page), "<canvas")) << "each chart has its table";
  EXPECT_THAT(page.page, HasSubstr("replica 1"));
  for (const char* const mistake : {"NaN", "undefined", "[object"})
    EXPECT_THAT(text_of(page.page), Not(HasSubstr(mistake)));
}

TEST_F(Report, Page_WithoutACompletedRequest) {
  SKIP_WITHOUT_BROWSER();
  const Output run = spillway({"run", "workload.requests=3", "until=3ms", "workload.arrival=all-at-once",
                               "workload.input_tokens=2000", "--html", "page.html"});
  ASSERT_EQ(run.code, 0) << run.err;
  const Rendered page = rendered("page.html");
  EXPECT_EQ(page.console, "");
  EXPECT_EQ(count(text_of(page.page), "No data: no request finished, so there is no latency."), 4);
  EXPECT_THAT(page.page, HasSubstr("3 unfinished"));
  EXPECT_THAT(text_of(page.page), Not(HasSubstr("NaN")));
}

TEST_F(Report, Page_OfASweep) {
  SKIP_WITHOUT_BROWSER();
  const Output one = spillway({"sweep", "workload.rate=4", "workload.requests=20", "--html", "one.html"});
  ASSERT_EQ(one.code, 0) << one.err;
  Rendered page = rendered("one.html");
  EXPECT_EQ(page.console, "");
  EXPECT_THAT(page.page, HasSubstr("1 point."));
  const Output many = spillway({"sweep", "policy=vllm,sarathi", "workload.rate=4:8:1", "workload.requests=20", "--slo",
                                "ttft_ms<500", "--html", "many.html", "-j", "2"});
  ASSERT_EQ(many.code, 0) << many.err;
  page = rendered("many.html");
  EXPECT_EQ(page.console, "");
  EXPECT_THAT(page.page, HasSubstr("<h3>Goodput (requests/s) against workload.rate</h3>"));
  EXPECT_EQ(count(text_of(page.page), "class=\"heat\""), 3 * 10);
  EXPECT_EQ(count(text_of(page.page), "<caption>The Pareto front."), 2);
}

/// The cells of a table with this caption, row by row.
std::vector<std::vector<std::string>> cells_of(const std::string& page, const std::string& caption) {
  const std::size_t begin = page.find("<caption>" + caption);
  std::string body = page.substr(begin, page.find("</table>", begin) - begin);
  body = body.substr(body.find("<tbody>"));
  std::vector<std::vector<std::string>> rows;
  const std::regex cell("(<tr>)|<t[hd][^>]*>([^<]*)<");
  for (std::sregex_iterator at(body.begin(), body.end(), cell), end; at != end; ++at) {
    if ((*at)[1].matched) rows.emplace_back();
    if ((*at)[2].matched) rows.back().push_back((*at)[2]);
  }
  return rows;
}

// Each row of the table is what the result says, to the four figures that a page shows.
TEST_F(Report, Page_NamesTheLocalityOfExperts) {
  SKIP_WITHOUT_BROWSER();
  const std::vector<std::string> small{"model=qwen3-30b-a3b",    "hardware=hgx-h100-8",      "policy=expert-cache",
                                       "workload.requests=3",    "workload.input_tokens=50", "replications=1",
                                       "workload.concurrency=1", "workload.output_tokens=12"};
  const auto page_and_json = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--html", "page.html", "--json"});
    const Output run = spillway(arguments);
    EXPECT_EQ(run.code, 0) << run.err;
    const Rendered page = rendered("page.html");
    EXPECT_EQ(page.console, "");
    for (const char* const mistake : {"NaN", "undefined", "[object"}) {
      EXPECT_THAT(text_of(page.page), Not(HasSubstr(mistake)));
    }
    return std::pair(text_of(page.page), json::parse(run.out));
  };
  const auto with_small = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), small.begin(), small.end());
    return page_and_json(std::move(arguments));
  };
  const std::string caption = "The locality that was assumed, and half and twice of it, at most 1";
  const auto shown = [](const json& number) {
    const auto value = number.get<double>();
    return value >= 100.0 ? fmt::format("{:.1f}", value) : fmt::format("{:.4g}", value);
  };
  const auto expected = [&](const std::string& label, const std::vector<std::string>& localities, const json& metrics,
                            const json& other) {
    std::vector<std::vector<std::string>> rows{{label, localities[0],
                                                shown(metrics["output_throughput_tokens_per_s"]["value"]),
                                                shown(metrics["p50_tpot_ms"]["value"])}};
    for (std::size_t i = 0; i < 2; ++i) {
      const json& run = other["runs"][i];
      rows.push_back(
          {label, localities[i + 1], shown(run["output_throughput_tokens_per_s"]), shown(run["p50_tpot_ms"])});
    }
    return rows;
  };
  const auto [run_page, run] = with_small({"run", "policy.slots=32"});
  EXPECT_EQ(cells_of(run_page, caption),
            expected("expert-cache", {"0.4 (default)", "0.2", "0.8"}, run["metrics"], run["other_localities"]));
  const auto [still_page, still] = with_small({"run", "policy.slots=32", "experts.locality=0"});
  EXPECT_EQ(cells_of(still_page, caption)[1],
            (std::vector<std::string>{"expert-cache", "not halved and doubled: half and twice of 0 are 0", "-", "-"}));
  for (const char* const command : {"sweep", "compare"}) {
    const auto [page, result] = with_small({command, "policy.slots=16,32"});
    const bool swept = result.contains("points");
    std::vector<std::vector<std::string>> rows;
    for (const json& one : result[swept ? "points" : "runs"]) {
      const std::string label = "policy.slots=" + std::string(rows.empty() ? "16" : "32");
      for (auto& row :
           expected(label, {swept ? "0.4" : "0.4 (default)", "0.2", "0.8"}, one["metrics"], one["other_localities"])) {
        rows.push_back(std::move(row));
      }
    }
    EXPECT_EQ(cells_of(page, caption), rows) << command;
  }
  const auto [search_page, search] =
      with_small({"search", "--min", "policy.slots", "--from", "8", "--to", "9", "--slo", "p50_tpot_ms<100000"});
  EXPECT_EQ(cells_of(search_page, "What is found with the locality that was assumed"),
            (std::vector<std::vector<std::string>>{{"this configuration", "0.4 (default)", "8"},
                                                   {"this configuration", "0.2", "8"},
                                                   {"this configuration", "0.8", "8"}}));
  // Of instances that assume different ones, each is named.
  json elements = json::array();
  for (const auto& [name, locality] : {std::pair("a", 0.3), std::pair("b", 0.6)}) {
    elements.push_back({{"name", name},
                        {"gpus", elements.size()},
                        {"model", "qwen3-30b-a3b"},
                        {"experts", {{"locality", locality}}},
                        {"policy", {{"name", "expert-cache"}, {"slots", 32}}},
                        {"workload", {{"requests", 3}, {"input_tokens", 50}, {"output_tokens", 12}, {"rate", 1}}}});
  }
  write_text(file("kinds.json"), json{{"hardware", "hgx-h100-8"}, {"instances", elements}}.dump());
  const auto [kinds_page, kinds] = page_and_json({"run", "kinds.json"});
  EXPECT_EQ(cells_of(kinds_page, caption),
            expected(kinds["setup"]["policy"], {"a 0.3 (given), b 0.6 (given)", "half of each", "twice of each"},
                     kinds["metrics"], kinds["other_localities"]));
  // At the capacity of each configuration.
  const auto [advice_page, advice] =
      page_and_json({"advise", "model=qwen3-30b-a3b", "hardware=hgx-h100-8", "policy=expert-cache", "policy.slots=32",
                     "workload.requests=60", "workload.input_tokens=50", "workload.output_tokens=12", "--quick",
                     "--slo", "p99_ttft_ms<400"});
  const json& best = advice["configurations"][0];
  EXPECT_EQ(cells_of(advice_page, caption + ": of one replica, at the rate that it sustains."),
            expected("this configuration", {"0.4 (default)", "0.2", "0.8"}, best["metrics"], best["other_localities"]));
  // Without half and twice, the page of a run names what was assumed, and no page has such a table.
  const auto [fixed_page, fixed] = with_small({"run", "policy.slots=32", "--fixed-locality"});
  EXPECT_THAT(fixed_page, HasSubstr("<dt>Locality</dt><dd>0.4 (default)</dd>"));
  EXPECT_THAT(fixed_page, Not(HasSubstr("Locality of experts")));
  const auto [axis_page, axis] = with_small({"sweep", "policy.slots=16", "experts.locality=0.2,0.4"});
  EXPECT_THAT(axis_page, Not(HasSubstr("Locality of experts")));
  // Nor has that of a policy that places no experts.
  const auto [dense_page, dense] = page_and_json({"run", "workload.requests=3"});
  EXPECT_THAT(dense_page, Not(HasSubstr("Locality of experts")));
}

TEST_F(Report, Page_OfOtherCommands) {
  SKIP_WITHOUT_BROWSER();
  const auto page_of = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--html", "page.html"});
    const Output run = spillway(arguments);
    EXPECT_THAT(run.code, testing::AnyOf(0, 5)) << run.err;
    const Rendered page = rendered("page.html");
    EXPECT_EQ(page.console, "");
    for (const char* const mistake : {"NaN", "undefined", "[object"}) {
      EXPECT_THAT(text_of(page.page), Not(HasSubstr(mistake)));
    }
    return text_of(page.page);
  };
  EXPECT_THAT(page_of({"compare", "policy=vllm,sarathi", "workload.requests=20"}),
              HasSubstr("Differences from policy=vllm"));
  EXPECT_THAT(page_of({"search", "--max", "workload.rate", "--slo", "p99_ttft_ms<1000", "workload.requests=30",
                       "replications=1", "--tolerance", "20%"}),
              HasSubstr("Search for the largest workload.rate"));
  EXPECT_THAT(page_of({"validate", source_dir() + "/experiments/validation/sample-log"}),
              HasSubstr("Distribution of TTFT"));
  EXPECT_THAT(page_of({"reproduce", "AQUA-19", "--quick"}),
              HasSubstr("No data: no claim states a number that was simulated."));
  const std::string advice =
      page_of({"advise", "policy=vllm,neo,fastdecode", "--quick", "--slo", "p99_ttft_ms<2000", "-j", "2"});
  EXPECT_THAT(advice, HasSubstr("<h3>Requests/s per GPU under the SLOs</h3>"));
  EXPECT_THAT(advice,
              HasSubstr("<li>neo, fastdecode: the policy attends on the CPU, and h100-80gb-sxm states no host"));
  const std::string plan = page_of({"plan", "hardware=a10-24gb,h100-80gb-sxm", "tensor_parallel=1,2,4",
                                    "workload.rate=10", "--quick", "--slo", "p99_ttft_ms<2000", "-j", "2"});
  EXPECT_THAT(plan, HasSubstr("<h3>p99 TTFT against GPUs</h3>"));
  EXPECT_THAT(plan, HasSubstr("<li>a10-24gb 2, a10-24gb 4: a10-24gb has no figures for all-reduce, which several GPUs "
                              "need</li>"));
}

}  // namespace
}  // namespace spillway::test
