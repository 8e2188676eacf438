#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/property_tree/ptree.hpp>
#include <boost/property_tree/xml_parser.hpp>
#include <set>
#include <sstream>
#include <string>

#include "sim/core/utf8.hpp"
#include "sim/report/validation.hpp"

namespace spillway {
namespace {

using testing::HasSubstr;
using testing::Not;

/// Two requests, one of them with a TPOT. The figures do not follow from the requests, so a page that recomputes a
/// figure fails.
Validation example() {
  Validation validation;
  validation.log = {"logs/run", "vLLM 0.19.0", "Qwen/Qwen2.5-7B", "NVIDIA H200", "engine", "timeseries.csv"};
  validation.requests = {{"r-0", {100.0, 20.0, 1000.0}, {110.0, 21.0, 1100.0}},
                         {"r-1", {50.0, std::nullopt, 50.0}, {40.0, std::nullopt, 40.0}}};
  validation.measured_load = {{0.0, 1.0, 2.0, 0.25}, {1.0, 3.0, 0.0, 0.5}};
  validation.simulated_load = {{0.0, 2.0, 1.0, 0.25}, {2.0, 3.0, 0.0, 0.75}};
  validation.latencies = {{"mean_ttft_ms", "ms", 123.45, 0.125, 0.5},
                          {"p99_ttft_ms", "ms", 0.0, 7.0, std::nullopt},
                          {"p50_e2e_ms", "ms", 4321.0, 9.5, -0.0625}};
  validation.per_request = {{"ttft_ms", 77, 0.011, 0.022, 0.033, 0.044, -0.055, "r-0"}};
  validation.load = {{"mean_running_requests", "requests", 1.5, 2.25, 0.5},
                     {"peak_gpu_kv_fraction", "fraction", 0.875, 0.5, -0.4286}};
  validation.run.tool_version = "1.2.3";
  auto& setup = validation.run.setup;
  setup.model = "qwen2.5-7b";
  setup.hardware = "dgx";
  setup.gpu = "h200";
  setup.tensor_parallel = 2;
  setup.latency_model = "tables";
  setup.policy = "vllm";
  setup.engine = "vllm-0.19";
  setup.kv.gpu_blocks = Blocks(4567);
  setup.kv.prefix_caching = true;
  validation.run.inputs = {{"gpu", "h200.json", "ab", "NVIDIA H200", "GEMM 7%"}, {"workload", "w", "cd", "log", ""}};
  validation.run.warnings = {"an odd thing"};
  return validation;
}

/// Parses a page. Throws if a tag is not closed, an attribute is not quoted or a character is not escaped.
boost::property_tree::ptree parsed(const std::string& page) {
  std::istringstream text(page);
  boost::property_tree::ptree tree;
  boost::property_tree::read_xml(text, tree);
  return tree;
}

TEST(ValidationHtml, ShowsTheFiguresOfTheStruct) {
  const std::string page = to_validation_html(example());
  EXPECT_THAT(page, HasSubstr("<h1>Spillway validation: Qwen/Qwen2.5-7B on NVIDIA H200</h1>"));
  EXPECT_THAT(page, HasSubstr("<dt>Simulated</dt><dd>qwen2.5-7b on 2 x h200 of dgx (tables), policy vllm, engine "
                              "vllm-0.19</dd>"));
  EXPECT_THAT(page, HasSubstr("<dt>KV cache</dt><dd>4567 blocks of 16 tokens; prefix caching on</dd>"));
  EXPECT_THAT(page, HasSubstr(">measured</th><td>123.5</td><td>-</td><td>-</td><td>-</td><td>0</td></tr>"));
  EXPECT_THAT(page, HasSubstr(">simulated</th><td>0.125</td><td>-</td><td>-</td><td>-</td><td>7</td></tr>"));
  EXPECT_THAT(page, HasSubstr(">error</th><td>+50.0%</td><td>-</td><td>-</td><td>-</td><td>-</td></tr>"));
  EXPECT_THAT(page, HasSubstr(">error</th><td>-</td><td>-6.2%</td><td>-</td><td>-</td><td>-</td></tr>"));
  EXPECT_THAT(page, HasSubstr("<th scope=\"row\">TTFT</th><td>77</td><td>1.1%</td><td>2.2%</td><td>3.3%</td>"
                              "<td>4.4%</td><td>-5.5%</td><td class=\"text\">r-0</td></tr>"));
  EXPECT_THAT(page, HasSubstr(">Running requests, mean</th><td>1.50</td><td>2.25</td><td>+50.0%</td></tr>"));
  EXPECT_THAT(page, HasSubstr(">GPU KV in use, peak</th><td>87.5%</td><td>50.0%</td><td>-42.9%</td></tr>"));
  EXPECT_THAT(page, HasSubstr("Measured load: timeseries.csv."));
  EXPECT_THAT(page, HasSubstr("<dt>gpu</dt><dd>NVIDIA H200: GEMM 7%</dd>"));
  EXPECT_THAT(page, Not(HasSubstr("<dt>workload</dt>"))) << "the workload states no error";
  EXPECT_THAT(page, HasSubstr("<li>an odd thing</li>"));
  EXPECT_THAT(page, HasSubstr("<footer>Spillway 1.2.3</footer>"));
}

TEST(ValidationHtml, PartsComeInTheOrderOfReading) {
  const std::string page = to_validation_html(example());
  std::size_t last = 0;
  for (const char* part :
       {"<h1>", ">Set-up<", ">Latency<", ">Requests one by one<", ">Load<", ">Charts<", "cdf-ttft_ms-title\">",
        "cdf-tpot_ms-title\">", "cdf-e2e_ms-title\">", "load-running_requests-title\">",
        "load-waiting_requests-title\">", "load-gpu_kv_fraction-title\">", "error-e2e-title\">", ">Validity<",
        ">Warnings<", "<footer>"}) {
    const std::size_t at = page.find(part, last);
    ASSERT_NE(at, std::string::npos) << part;
    last = at;
  }
}

TEST(ValidationHtml, ChartsShowTheRequestsAndTheLoad) {
  const std::string page = to_validation_html(example());
  // Errors of E2E are +10% and -20%. The axis runs from -20 to 10 with labels of three characters, so the plot spans
  // x = 35.6 to 394 and y = 212 up to 40. Requests 1 and 2 are at its edges.
  EXPECT_THAT(page, HasSubstr("class=\"chart-dots chart-0\" d=\"M35.6 40.0h0M394.0 212.0h0\""));
  // Measured running requests: 1 at 0 s and 3 at 1 s. The right edge is 2 s, the top is 3. With labels of one digit,
  // the plot starts at 21.2.
  EXPECT_THAT(page, HasSubstr("class=\"chart-line chart-0\" d=\"M21.2 154.7H207.6V40.0\""));
  // One request has a TPOT. Its step from 0 to 100% is at 20 ms measured, the left edge, and at 21 ms simulated, the
  // right edge.
  EXPECT_THAT(page, HasSubstr("class=\"chart-line chart-0\" d=\"M35.6 212.0H35.6V40.0\""));
  EXPECT_THAT(page, HasSubstr("class=\"chart-line chart-1\" d=\"M334.0 212.0H334.0V40.0\""));
}

TEST(ValidationHtml, KvIsDrawnOnlyWhereBothSidesHaveIt) {
  Validation validation = example();
  for (LoadPoint& point : validation.measured_load) point.kv_fraction.reset();
  EXPECT_THAT(to_validation_html(validation), Not(HasSubstr("load-gpu_kv_fraction-title")));
}

TEST(ValidationHtml, NothingFromOutsideCanBeMarkup) {
  Validation validation = example();
  const std::string evil = "</title><script>alert(1)</script>\"'&\xff\x1b\n";
  validation.log = {evil, evil, evil, evil, "engine", evil};
  for (RequestPair& pair : validation.requests) pair.id = evil;
  for (ErrorDistribution& one : validation.per_request) one.metric = one.worst = evil;
  for (ComparedFigure& one : validation.load) one.name = one.unit = evil;
  auto& setup = validation.run.setup;
  setup.model = setup.hardware = setup.gpu = setup.latency_model = setup.policy = setup.engine = evil;
  validation.run.inputs = {{evil, evil, evil, evil, evil}};
  validation.run.warnings = {evil};
  validation.run.tool_version = evil;
  const std::string page = to_validation_html(validation);
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("\x1b")));
  EXPECT_EQ(valid_utf8(page), page.size());
  EXPECT_NO_THROW(static_cast<void>(parsed(page)));
  EXPECT_THAT(page, HasSubstr("<dt>Log</dt><dd>&lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;"
                              "\xef\xbf\xbd\\x1b\\n</dd>"));
}

TEST(ValidationHtml, IsOneWellFormedPageThatLoadsNothing) {
  const std::string page = to_validation_html(example());
  const boost::property_tree::ptree tree = parsed(page);
  EXPECT_EQ(tree.get<std::string>("html.<xmlattr>.lang"), "en");
  EXPECT_THAT(page, HasSubstr("<meta name=\"viewport\""));
  for (const char* word : {"<script", "<link", "<img", "@import", "url(", "src=", "href="}) {
    EXPECT_THAT(page, Not(HasSubstr(word)));
  }
  std::set<std::string> ids;
  for (std::size_t at = page.find(" id=\""); at != std::string::npos; at = page.find(" id=\"", at + 1)) {
    const std::string id = page.substr(at + 5, page.find('"', at + 5) - at - 5);
    EXPECT_TRUE(ids.insert(id).second) << id << " appears twice";
  }
  EXPECT_EQ(ids.size(), 14U) << "each of seven charts has a title and a description";
  EXPECT_EQ(page, to_validation_html(example()));
}

TEST(ValidationHtml, NothingAtAllIsAPageAsWell) {
  const std::string page = to_validation_html({});
  EXPECT_NO_THROW(static_cast<void>(parsed(page)));
  EXPECT_THAT(page, HasSubstr("<h2>Load</h2>\n<p>no data</p>"));
  EXPECT_THAT(page, HasSubstr(">no data</text>"));
  EXPECT_THAT(page, HasSubstr("<h2>Warnings</h2>\n<p>none</p>"));
  EXPECT_THAT(page, HasSubstr("<h2>Validity</h2>\n<p>none</p>"));
}

TEST(ValidationHtml, ManyRequestsAreASmallPage) {
  Validation validation = example();
  validation.requests.assign(200'000, validation.requests.front());
  for (std::size_t i = 0; i < validation.requests.size(); ++i) {
    validation.requests[i].measured.e2e_ms = static_cast<double>(1 + i % 1'000);
  }
  validation.simulated_load.clear();
  for (int i = 0; i < 200'000; ++i) {
    validation.simulated_load.push_back({i * 1e-3, static_cast<double>(i % 50), static_cast<double>(i % 70), 0.5});
  }
  const std::string page = to_validation_html(validation);
  EXPECT_LT(page.size(), 250'000U);
  EXPECT_THAT(page, HasSubstr("2000 of 200000 requests are shown."));
}

}  // namespace
}  // namespace spillway
