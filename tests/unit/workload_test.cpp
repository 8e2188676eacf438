#include "traces/workload.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <variant>

#include "sim/config/config.hpp"
#include "sim/core/text.hpp"
#include "tests/unit/trace_test_files.hpp"
#include "traces/generators/quantile_table.hpp"

namespace spillway::traces {
namespace {

/// Settings as the configuration resolves them: the descriptors' defaults, overridden by `changes`.
Settings settings_with(const std::map<std::string, std::string>& changes) {
  Settings settings;
  settings.set("seed", std::int64_t{1});
  settings.set("memory.block_tokens", std::int64_t{16});
  for (const Parameter& parameter : workload_parameters()) {
    const auto change = changes.find(parameter.name);
    const std::string text = change == changes.end() ? parameter.default_value : change->second;
    if (text.empty()) continue;
    if (parameter.type == ParameterType::integer) {
      settings.set(parameter.name, parse_integer(text).value());
    } else if (parameter.type == ParameterType::real) {
      settings.set(parameter.name, parse_number(text).value());
    } else if (parameter.type == ParameterType::boolean) {
      settings.set(parameter.name, text == "true");
    } else if (parameter.type == ParameterType::duration) {
      std::vector<Problem> problems;
      settings.set(parameter.name, std::get<Duration>(parse_value(parameter, text, "", problems).value().value));
    } else {
      settings.set(parameter.name, text);
    }
  }
  return settings;
}

Workload open(const std::map<std::string, std::string>& changes, std::int64_t replication = 0) {
  return open_workload(settings_with(changes), replication);
}

std::vector<RequestSpec> requests_of(const std::map<std::string, std::string>& changes, std::int64_t replication = 0) {
  const Workload workload = open(changes, replication);
  auto requests = drain(*workload.stream);
  EXPECT_EQ(static_cast<std::int64_t>(requests.size()), workload.requests);
  EXPECT_EQ(workload.stream->expected(), workload.requests);
  return requests;
}

std::vector<std::int64_t> arrivals_of(const std::map<std::string, std::string>& changes) {
  std::vector<std::int64_t> times;
  for (const RequestSpec& request : requests_of(changes)) times.push_back(request.arrival.ns());
  return times;
}

std::string problems_with(const std::map<std::string, std::string>& changes, const std::string& path = {}) {
  return problems_of([&] { (void)open(changes); }, path);
}

constexpr const char* kTimed =
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:00:00,100,10\n2023-11-16 18:00:01,200,20\n"
    "2023-11-16 18:00:01,300,30\n2023-11-16 18:00:06,400,40\n";
constexpr const char* kUntimed =
    "{\"input_tokens\": 100, \"output_tokens\": 10, \"max_new_tokens\": 64, \"client\": 5, \"prefix_ids\": [1, 2, 3]}\n"
    "{\"input_tokens\": 200, \"output_tokens\": 20}\n{\"input_tokens\": 300, \"output_tokens\": 30}\n";

TEST(WorkloadParameters, AreDescribed) {
  std::map<std::string, Parameter> table;
  for (const Parameter& parameter : workload_parameters()) {
    EXPECT_TRUE(parameter.name.starts_with("workload."));
    EXPECT_FALSE(parameter.doc.empty()) << parameter.name;
    EXPECT_FALSE(parameter.source.empty()) << parameter.name;
    EXPECT_FALSE(parameter.unit.empty()) << parameter.name;
    table[parameter.name] = parameter;
  }
  ASSERT_EQ(table.size(), 25U);
  EXPECT_EQ(table["workload.trace"].choices, bundled_names());
  EXPECT_EQ(table["workload.trace"].default_value, "azure-conv");
  EXPECT_EQ(table["workload.requests"].minimum, 1.0) << "zero requests are refused";
  EXPECT_TRUE(table["workload.rate"].above_minimum) << "a rate of zero is refused";
  EXPECT_EQ(table["workload.rate"].minimum, 0.0);
  EXPECT_EQ(table["workload.clients"].minimum, 1.0);
  EXPECT_EQ(table["workload.clients"].maximum, 1e6);
}

TEST(Workload, DefaultIsAzureConvWithTwoThousandPoissonArrivals) {
  const Workload workload = open({});
  EXPECT_EQ(workload.name, "azure-conv");
  EXPECT_EQ(workload.format, "quantile-table");
  EXPECT_EQ(workload.arrival, "poisson");
  EXPECT_EQ(workload.rate, 4.0);
  EXPECT_EQ(workload.requests, 2000);
  EXPECT_TRUE(workload.random);
  EXPECT_FALSE(workload.prefix_ids);
  EXPECT_TRUE(workload.warnings.empty());
  EXPECT_EQ(workload.sha256, sha256_hex(bundled_file("azure-conv")->content));
  EXPECT_TRUE(workload.source_text.starts_with("Azure/AzurePublicDataset"));
  const auto requests = drain(*workload.stream);
  ASSERT_EQ(requests.size(), 2000U);
  EXPECT_EQ(requests.front().arrival, SimTime(0));
  double gaps = 0.0;
  double squares = 0.0;
  for (std::size_t i = 1; i < requests.size(); ++i) {
    const double gap = to_seconds(requests[i].arrival - requests[i - 1].arrival);
    ASSERT_GE(gap, 0.0);
    gaps += gap;
    squares += gap * gap;
    ASSERT_EQ(requests[i].max_new_tokens, requests[i].output);
  }
  // 1,999 gaps with a mean of 0.25 s and a CV of 1. The standard deviation of the mean is 0.25 / sqrt(1999) = 0.0056,
  // that of the CV about 1 / sqrt(1999) = 0.022. Each may be off by four deviations.
  const double mean = gaps / 1999.0;
  EXPECT_NEAR(mean, 0.25, 0.0224);
  EXPECT_NEAR(std::sqrt(squares / 1999.0 - mean * mean) / mean, 1.0, 0.09);
}

TEST(Workload, SameSeedSameRequests) {
  const auto first = requests_of({});
  const auto again = requests_of({});
  const auto faster = requests_of({{"workload.rate", "8"}});
  const auto other = requests_of({}, 1);
  std::size_t same = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    ASSERT_EQ(first[i].arrival, again[i].arrival);
    ASSERT_EQ(first[i].input, again[i].input);
    ASSERT_EQ(first[i].output, again[i].output);
    // Twice the rate halves every gap, except for rounding.
    ASSERT_EQ(faster[i].input, first[i].input);
    ASSERT_NEAR(static_cast<double>(faster[i].arrival.ns()), static_cast<double>(first[i].arrival.ns()) / 2.0,
                static_cast<double>(i));
    if (other[i].input == first[i].input) ++same;
  }
  EXPECT_LT(same, 100U) << "another replication draws other requests";
}

TEST(Workload, LengthsCanBeReplaced) {
  const auto plain = requests_of({});
  const auto fixed_input = requests_of({{"workload.input_tokens", "512"}});
  for (std::size_t i = 0; i < plain.size(); ++i) {
    ASSERT_EQ(fixed_input[i].input, Tokens(512));
    ASSERT_EQ(fixed_input[i].output, plain[i].output) << "the output length does not change";
  }
  const auto drawn = requests_of({{"workload.output_tokens", "lognormal(300,0.5)"}, {"workload.requests", "50000"}});
  double sum = 0.0;
  for (const RequestSpec& request : drawn) {
    ASSERT_EQ(request.max_new_tokens, request.output);
    sum += static_cast<double>(request.output.count());
  }
  EXPECT_NEAR(sum / 50000.0, 300.0, 2.7);  // four deviations: 4 * 150 / sqrt(50,000)
}

TEST(Workload, MaxNewTokensIsWhatClientsAskForAndCutsOutputs) {
  const auto plain = requests_of({});
  const auto cut = requests_of({{"workload.max_new_tokens", "128"}});
  for (std::size_t i = 0; i < plain.size(); ++i) {
    ASSERT_EQ(cut[i].max_new_tokens, Tokens(128));
    ASSERT_EQ(cut[i].output, std::min(plain[i].output, Tokens(128)));
  }
}

TEST(Workload, ClientsAreDrawnEachAsLikelyAndChangeNothingElse) {
  const auto plain = requests_of({});
  const auto drawn = requests_of({{"workload.clients", "4"}});
  const auto again = requests_of({{"workload.clients", "4"}}, 1);
  std::map<std::uint32_t, int> counts;
  std::size_t same = 0;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    ASSERT_EQ(plain[i].client, 0U);
    ASSERT_EQ(drawn[i].arrival, plain[i].arrival);
    ASSERT_EQ(drawn[i].input, plain[i].input);
    ASSERT_EQ(drawn[i].output, plain[i].output);
    ++counts[drawn[i].client];
    if (drawn[i].client == again[i].client) ++same;
  }
  ASSERT_EQ(counts.size(), 4U);
  EXPECT_EQ(counts.rbegin()->first, 3U);
  // 2,000 draws with probability 1/4: 500 are expected, with a standard deviation of sqrt(375) = 19. Each count may be
  // off by four deviations. As many draws are expected to agree with the next replication.
  for (const auto& [client, count] : counts) EXPECT_NEAR(count, 500, 78) << client;
  EXPECT_NEAR(static_cast<double>(same), 500.0, 78.0);
}

TEST(Workload, DrawnClientsReplaceThoseOfAFile) {
  const TempFile file(kUntimed, ".jsonl");
  std::map<std::string, std::string> changes{{"workload.trace", file.path()}, {"workload.arrival", "all-at-once"}};
  EXPECT_FALSE(open(changes).random);
  EXPECT_EQ(requests_of(changes)[0].client, 5U);
  changes["workload.clients"] = "1";
  EXPECT_FALSE(open(changes).random);
  EXPECT_EQ(requests_of(changes)[0].client, 0U);
  changes["workload.clients"] = "1000000";
  EXPECT_TRUE(open(changes).random);
  EXPECT_LT(requests_of(changes)[0].client, 1'000'000U);
}

TEST(Workload, ConstantAndAllAtOnceArrivals) {
  EXPECT_EQ(arrivals_of({{"workload.arrival", "constant"}, {"workload.rate", "3"}, {"workload.requests", "4"}}),
            (std::vector<std::int64_t>{0, 333'333'333, 666'666'667, 1'000'000'000}));
  EXPECT_EQ(arrivals_of({{"workload.arrival", "all-at-once"}, {"workload.requests", "3"}}),
            (std::vector<std::int64_t>{0, 0, 0}));
  const Workload all = open({{"workload.arrival", "all-at-once"}, {"workload.rate", "3"}});
  EXPECT_FALSE(all.rate.has_value());
  EXPECT_EQ(all.warnings, (std::vector<std::string>{"workload.rate is not used: workload.arrival is all-at-once"}));
}

TEST(Workload, UniformTakesItsLengthsAsMiddles) {
  const auto requests = requests_of({{"workload.trace", "uniform"},
                                     {"workload.input_tokens", "2000"},
                                     {"workload.output_tokens", "50"},
                                     {"workload.requests", "20000"}});
  const auto [least_in, most_in] = std::minmax_element(
      requests.begin(), requests.end(), [](const RequestSpec& a, const RequestSpec& b) { return a.input < b.input; });
  const auto [least_out, most_out] = std::minmax_element(
      requests.begin(), requests.end(), [](const RequestSpec& a, const RequestSpec& b) { return a.output < b.output; });
  // There are 401 possible inputs. 20,000 draws miss a given one with probability e^-50.
  EXPECT_EQ(least_in->input, Tokens(1800));
  EXPECT_EQ(most_in->input, Tokens(2200));
  EXPECT_EQ(least_out->output, Tokens(45));
  EXPECT_EQ(most_out->output, Tokens(55));
  // Other workloads accept uniform(...) written in full, and `uniform` accepts other distributions.
  EXPECT_EQ(requests_of({{"workload.input_tokens", "uniform(2000,0.1)"}})[5].input, requests[5].input);
  EXPECT_EQ(requests_of({{"workload.trace", "uniform"}, {"workload.input_tokens", "uniform(70,0)"}})[5].input,
            Tokens(70));
}

TEST(Workload, GammaArrivalsHaveTheirRateAndCv) {
  const std::map<std::string, std::string> changes{
      {"workload.arrival", "gamma"}, {"workload.cv", "2"}, {"workload.rate", "8"}, {"workload.requests", "100000"}};
  const Workload workload = open(changes);
  EXPECT_EQ(workload.arrival, "gamma");
  EXPECT_EQ(workload.arrival_details, "CV 2");
  EXPECT_EQ(workload.rate, 8.0);
  EXPECT_TRUE(workload.random);
  const auto times = arrivals_of(changes);
  // The mean gap is 0.125 s, within four deviations: 4 * 2 / sqrt(99,999) of it.
  EXPECT_NEAR(static_cast<double>(times.back()) / 99'999.0 * 1e-9, 0.125, 0.125 * 0.0253);
  EXPECT_EQ(open({{"workload.arrival", "gamma"}, {"workload.cv", "2"}}).rate, 4.0)
      << "the default rate is that of poisson";
}

TEST(Workload, ABurstIsAquasByDefault) {
  const Workload workload = open({{"workload.arrival", "burst"}, {"workload.burst_after", "25"}});
  EXPECT_EQ(workload.arrival, "burst");
  EXPECT_EQ(workload.arrival_details, "x2 for 60 s after 25 prompts");
  EXPECT_EQ(workload.rate, 4.0);
  EXPECT_TRUE(workload.random);
  EXPECT_TRUE(workload.warnings.empty());
  const Workload other = open({{"workload.arrival", "burst"},
                               {"workload.burst_after", "25"},
                               {"workload.burst_factor", "3.5"},
                               {"workload.burst_time", "90s"},
                               {"workload.requests", "25"}});
  EXPECT_EQ(other.arrival_details, "x3.5 for 90 s after 25 prompts");
  EXPECT_EQ(
      other.warnings,
      (std::vector<std::string>{"workload.burst_after = 25, but there are 25 requests: the burst changes nothing"}));
}

TEST(Workload, KeysOfOneArrivalProcessAreNeededThereAndRefusedElsewhere) {
  EXPECT_EQ(problems_with({{"workload.arrival", "gamma"}, {"workload.burst_time", "5s"}}),
            "exit 2\n"
            "workload.burst_time is for workload.arrival=burst, and it is gamma | workload.burst_time | "
            "set workload.arrival=burst, or leave workload.burst_time out\n"
            "workload.arrival=gamma needs workload.cv, the coefficient of variation of the gaps between arrivals | "
            "workload.cv | "
            "set workload.cv, e.g. workload.cv=2 (1 is poisson)");
  EXPECT_EQ(problems_with({{"workload.arrival", "poisson"}, {"workload.cv", "2"}}),
            "exit 2\nworkload.cv is for workload.arrival=gamma, and it is poisson | workload.cv | "
            "set workload.arrival=gamma, or leave workload.cv out");
  EXPECT_EQ(problems_with({{"workload.cv", "2"}}),
            "exit 2\nworkload.cv is for workload.arrival=gamma | workload.cv | "
            "set workload.arrival=gamma, or leave workload.cv out");
  EXPECT_EQ(problems_with({{"workload.arrival", "burst"}, {"workload.burst_factor", "3"}}),
            "exit 2\nworkload.arrival=burst needs workload.burst_after, the number of the prompt that starts the burst "
            "| workload.burst_after | "
            "set workload.burst_after, e.g. workload.burst_after=25");
}

TEST(Workload, GammaOnAFileKeepsItsLengths) {
  const TempFile file(kUntimed, ".jsonl");
  const std::map<std::string, std::string> changes{
      {"workload.trace", file.path()}, {"workload.arrival", "gamma"}, {"workload.cv", "3"}};
  const Workload workload = open(changes);
  EXPECT_TRUE(workload.random);
  EXPECT_EQ(workload.warnings,
            (std::vector<std::string>{"workload.rate is not set: arrivals are drawn at 4 requests/s, the default"}));
  EXPECT_EQ(requests_of(changes)[2].input, Tokens(300));
}

TEST(Workload, AFileWithTimesIsReplayedAsItIs) {
  const TempFile file(kTimed, ".csv");
  const Workload workload = open({{"workload.trace", file.path()}});
  EXPECT_EQ(workload.name, file.path());
  EXPECT_EQ(workload.format, "azure-csv");
  EXPECT_EQ(workload.arrival, "trace");
  EXPECT_EQ(workload.rate, 0.5) << "three gaps in six seconds";
  EXPECT_EQ(workload.requests, 4);
  EXPECT_FALSE(workload.random);
  EXPECT_EQ(workload.sha256, sha256_hex(kTimed));
  EXPECT_TRUE(workload.warnings.empty());
  const auto requests = drain(*workload.stream);
  ASSERT_EQ(requests.size(), 4U);
  EXPECT_EQ(requests[3].arrival, SimTime(6'000'000'000));
  EXPECT_EQ(requests[3].input, Tokens(400));
}

TEST(Workload, ARateScalesTheTimesOfAFile) {
  const TempFile file(kTimed, ".csv");
  // The mean rate rises from 0.5/s to 1.5/s, so times are divided by 3. An explicit arrival=trace equals the default.
  const std::vector<std::int64_t> expected{0, 333'333'333, 333'333'333, 2'000'000'000};
  EXPECT_EQ(arrivals_of({{"workload.trace", file.path()}, {"workload.rate", "1.5"}}), expected);
  EXPECT_EQ(arrivals_of({{"workload.trace", file.path()}, {"workload.rate", "1.5"}, {"workload.arrival", "trace"}}),
            expected);
  // Fewer requests are the first requests of the same stream. The rate is still that of the whole file.
  EXPECT_EQ(arrivals_of({{"workload.trace", file.path()}, {"workload.rate", "1.5"}, {"workload.requests", "2"}}),
            (std::vector<std::int64_t>{0, 333'333'333}));
}

TEST(Workload, DrawnArrivalsOnAFileKeepItsLengths) {
  const TempFile file(kTimed, ".csv");
  const Workload workload = open({{"workload.trace", file.path()}, {"workload.arrival", "poisson"}});
  EXPECT_TRUE(workload.random);
  EXPECT_EQ(workload.rate, 0.5);
  EXPECT_EQ(workload.warnings, (std::vector<std::string>{
                                   "workload.rate is not set: arrivals are drawn at 0.5 requests/s, the mean rate of "
                                   "the trace"}));
  const auto requests = drain(*workload.stream);
  ASSERT_EQ(requests.size(), 4U);
  EXPECT_EQ(requests[2].input, Tokens(300));
  EXPECT_NE(requests[1].arrival, requests[2].arrival);
  EXPECT_EQ(arrivals_of({{"workload.trace", file.path()}, {"workload.arrival", "constant"}, {"workload.rate", "2"}}),
            (std::vector<std::int64_t>{0, 500'000'000, 1'000'000'000, 1'500'000'000}));
}

TEST(Workload, AFileWithoutTimesNeedsARateOrAnArrival) {
  const TempFile file(kUntimed, ".jsonl");
  EXPECT_EQ(problems_with({{"workload.trace", file.path()}}, file.path()),
            "exit 2\nFILE has no arrival times, so a rate or an arrival process is needed | workload.rate | "
            "set workload.rate (requests/s) or workload.arrival, e.g. workload.rate=4");
  EXPECT_EQ(problems_with({{"workload.trace", file.path()}, {"workload.arrival", "trace"}}, file.path()),
            "exit 2\nFILE has no arrival times to replay | workload.arrival | use poisson, gamma, constant, burst or "
            "all-at-once");
  EXPECT_EQ(open({{"workload.trace", file.path()}, {"workload.rate", "2"}}).arrival, "poisson");
  EXPECT_EQ(arrivals_of({{"workload.trace", file.path()}, {"workload.arrival", "all-at-once"}}),
            (std::vector<std::int64_t>{0, 0, 0}));
  const Workload drawn = open({{"workload.trace", file.path()}, {"workload.arrival", "poisson"}});
  EXPECT_EQ(drawn.rate, 4.0);
  EXPECT_EQ(drawn.warnings,
            (std::vector<std::string>{"workload.rate is not set: arrivals are drawn at 4 requests/s, the default"}));
}

TEST(Workload, AFileWithoutInputLengthsNeedsThem) {
  const TempFile file("[{\"L_gt\": 160}, {\"L_gt\": 49}]", ".json");
  EXPECT_EQ(problems_with({{"workload.trace", file.path()}}, file.path()),
            "exit 2\nFILE states output lengths only | workload.input_tokens | set the lengths of its prompts, e.g. "
            "workload.input_tokens=64 or lognormal(64,1)\n"
            "FILE has no arrival times, so a rate or an arrival process is needed | workload.rate | "
            "set workload.rate (requests/s) or workload.arrival, e.g. workload.rate=4");
  const auto requests =
      requests_of({{"workload.trace", file.path()}, {"workload.rate", "2"}, {"workload.input_tokens", "64"}});
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[0].input, Tokens(64));
  EXPECT_EQ(requests[0].output, Tokens(160));
}

TEST(Workload, AFileKeepsItsClientsPrefixesAndLimits) {
  const TempFile file(kUntimed, ".jsonl");
  const std::map<std::string, std::string> base{{"workload.trace", file.path()}, {"workload.rate", "2"}};
  EXPECT_TRUE(open(base).prefix_ids);
  const auto requests = requests_of(base);
  EXPECT_EQ(requests[0].client, 5U);
  EXPECT_EQ(requests[0].max_new_tokens, Tokens(64));
  EXPECT_EQ(requests[0].prefix_ids, (std::vector<std::uint64_t>{1, 2, 3}));
  auto shorter = base;
  shorter["workload.input_tokens"] = "40";
  EXPECT_EQ(requests_of(shorter)[0].prefix_ids, (std::vector<std::uint64_t>{1, 2}))
      << "40 tokens have two whole blocks";
  auto replaced = base;
  replaced["workload.output_tokens"] = "7";
  EXPECT_EQ(requests_of(replaced)[0].max_new_tokens, Tokens(7)) << "the file's limit belongs to the file's output";
}

TEST(Workload, RequestsOfAFileCanBeFewerAndNotMore) {
  const TempFile file(kTimed, ".csv");
  EXPECT_EQ(requests_of({{"workload.trace", file.path()}, {"workload.requests", "3"}}).size(), 3U);
  const Workload more = open({{"workload.trace", file.path()}, {"workload.requests", "9"}});
  EXPECT_EQ(more.requests, 4);
  EXPECT_EQ(more.warnings, (std::vector<std::string>{"workload.requests = 9, but " + file.path() +
                                                     " has 4 requests: all are replayed"}));
}

TEST(Workload, OutputsOfZeroTokensAreTold) {
  const TempFile file("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:00:00,100,0\n", ".csv");
  EXPECT_EQ(open({{"workload.trace", file.path()}}).warnings,
            (std::vector<std::string>{"1 of 1 requests in " + file.path() +
                                      " generated 0 tokens; they are replayed with 1 token, to keep the load of their "
                                      "prompts"}));
}

TEST(Workload, OneInstantCannotBeScaled) {
  const TempFile file("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:00:00,1,1\n2023-11-16 18:00:00,1,1\n",
                      ".csv");
  EXPECT_FALSE(open({{"workload.trace", file.path()}}).rate.has_value());
  EXPECT_EQ(problems_with({{"workload.trace", file.path()}, {"workload.rate", "2"}}, file.path()),
            "exit 2\nall requests of FILE arrive at the same instant, so workload.rate cannot scale its times | "
            "workload.rate | draw new arrivals with workload.arrival=poisson");
}

TEST(Workload, TimesThatDoNotFitAreTold) {
  const TempFile file(kTimed, ".csv");
  EXPECT_EQ(
      problems_with({{"workload.trace", file.path()}, {"workload.rate", "1e-10"}}, file.path()),
      "exit 2\nthe last request of FILE would arrive after 3e+10 s; at most 4e+09 s fit one run | workload.rate | "
      "use a higher rate");
  EXPECT_EQ(problems_with({{"workload.rate", "1e-9"}}),
            "exit 2\n2000 requests at 1e-09 requests/s last longer than 1e+08 s | workload.rate | "
            "use a higher rate or fewer requests");
  EXPECT_EQ(problems_with({{"workload.rate", "1e-3"}, {"workload.arrival", "gamma"}, {"workload.cv", "10"}}),
            "exit 2\n2000 requests at 0.001 requests/s last longer than 1e+06 s, the most at a CV of 10 | "
            "workload.rate | use a higher rate or fewer requests");
}

TEST(Workload, ATraceWithoutRequestsIsTold) {
  const TempFile file("TIMESTAMP,ContextTokens,GeneratedTokens\n", ".csv");
  EXPECT_EQ(problems_with({{"workload.trace", file.path()}}, file.path()),
            "exit 3\nthe trace holds no request | FILE | check that it was copied whole");
}

TEST(Workload, AMissingFileIsTold) {
  EXPECT_EQ(problems_with({{"workload.trace", "./nowhere"}}),
            "exit 3\nthere is no such file | ./nowhere | check the path; it is relative to the current folder");
}

TEST(Workload, UnknownNamesAreTold) {
  EXPECT_EQ(
      problems_with({{"workload.trace", "azure-con"}}),
      "exit 2\nthere is no bundled workload \"azure-con\" | workload.trace | did you mean \"azure-conv\"?  bundled: "
      "alpaca, arxiv, azure-code, azure-conv, osc, sharegpt, sharegpt-chat, sharegpt-real, ultrachat-chat, uniform; a "
      "file in the current folder is written ./azure-con");
}

TEST(Workload, AllProblemsAreToldAtOnce) {
  const TempFile file("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:00:00,x,1\n", ".csv");
  EXPECT_EQ(problems_with({{"workload.trace", file.path()},
                           {"workload.input_tokens", "0"},
                           {"workload.output_tokens", "many"},
                           {"workload.max_new_tokens", "-1"}},
                          file.path()),
            "exit 2\n"
            "0 tokens: a length is from 1 to 16777216 tokens | workload.input_tokens | "
            "use a whole number of tokens (512), uniform(MIDDLE,SPREAD), e.g. uniform(512,0.1), or lognormal(MEAN,CV), "
            "e.g. lognormal(512,0.8)\n"
            "\"many\" is not a length | workload.output_tokens | "
            "use a whole number of tokens (512), uniform(MIDDLE,SPREAD), e.g. uniform(512,0.1), or lognormal(MEAN,CV), "
            "e.g. lognormal(512,0.8)\n"
            "\"-1\" is neither \"actual\" nor a whole number of tokens from 1 to 16777216 | workload.max_new_tokens | "
            "use actual (each request asks for what it generates) or a number such as 1024\n"
            "\"x\" is not a whole number of tokens | FILE, row 2, column ContextTokens | correct or delete the row");
  EXPECT_EQ(problems_with({{"workload.format", "azure-csv"}, {"workload.arrival", "trace"}}),
            "exit 2\n"
            "workload.format is for trace files, but workload.trace names a bundled workload | workload.format | "
            "leave workload.format out\n"
            "the bundled workloads have no arrival times | workload.arrival | "
            "use poisson, gamma, constant, burst or all-at-once, or a trace file with times");
}

// --- conversations

constexpr const char* kChats =
    "input_tokens,output_tokens,conversation,turn,think_s\n100,50,a,1,\n200,50,a,2,5\n300,20,a,3,2\n80,10,b,1,\n"
    "120,10,b,2,1\n";

TEST(WorkloadConversations, ChatWorkloadsAreConversationsWithTheirOwnThinkTime) {
  const Workload workload = open({{"workload.trace", "sharegpt-chat"}, {"workload.rate", "2"}});
  EXPECT_TRUE(workload.conversations);
  EXPECT_TRUE(workload.prefix_ids) << "so that prefix caching is on by default";
  EXPECT_EQ(workload.mean_turns, 5.56);
  EXPECT_EQ(workload.think_time, "exponential(60s)");
  EXPECT_TRUE(workload.warnings.empty());
}

// First turns arrive at rate / mean turns = 4 / 5.56 per second. The mean of n exponential gaps of 1.39 s may be off by
// four deviations of 1.39 / sqrt(n).
TEST(WorkloadConversations, ConversationsStartAtTheRateOverTheirTurns) {
  const auto rows = [] {
    const auto reader = open_workload_rows(
        settings_with({{"workload.trace", "sharegpt-chat"}, {"workload.requests", "50000"}, {"workload.rate", "4"}}),
        0);
    return drain(*reader);
  }();
  ASSERT_EQ(rows.size(), 50'000U);
  std::vector<SimTime> starts;
  double thinks = 0.0;
  for (const TraceRow& row : rows) {
    if (row.turn == 1) starts.push_back(row.arrival);
    if (row.turn > 1) thinks += to_seconds(row.think.value());
  }
  const auto gaps = static_cast<double>(starts.size() - 1);
  const double mean = to_seconds(starts.back() - starts.front()) / gaps;
  EXPECT_NEAR(mean, 1.39, 4 * 1.39 / std::sqrt(gaps));
  const auto later = static_cast<double>(rows.size() - starts.size());
  EXPECT_NEAR(thinks / later, 60.0, 4 * 60.0 / std::sqrt(later));
}

TEST(WorkloadConversations, AFileOfTurnsStatesItsThinkTimes) {
  const TempFile file(kChats, ".csv");
  const Workload workload = open({{"workload.trace", file.path()}, {"workload.rate", "5"}});
  EXPECT_TRUE(workload.conversations);
  EXPECT_EQ(workload.mean_turns, 2.5);
  EXPECT_EQ(workload.think_time, "");
  EXPECT_TRUE(workload.warnings.empty());
  const Workload drawn =
      open({{"workload.trace", file.path()}, {"workload.rate", "5"}, {"workload.think_time", "10s"}});
  EXPECT_EQ(drawn.think_time, "10s");
  const Workload alone =
      open({{"workload.trace", file.path()}, {"workload.rate", "5"}, {"workload.conversations", "false"}});
  EXPECT_FALSE(alone.conversations);
  EXPECT_EQ(drain(*alone.stream).size(), 5U) << "no turn waits for an answer";
}

TEST(WorkloadConversations, ThinkTimesThatNobodyStatesAreTold) {
  const TempFile file("input_tokens,output_tokens,conversation,turn\n100,50,a,1\n200,50,a,2\n", ".csv");
  const Workload workload = open({{"workload.trace", file.path()}, {"workload.rate", "5"}});
  EXPECT_EQ(workload.think_time, "exponential(60s)");
  ASSERT_EQ(workload.warnings.size(), 1U);
  EXPECT_EQ(workload.warnings[0],
            "workload.think_time is not set: the time from an answer to the next turn is exponential(60s)");
  EXPECT_EQ(problems_with({{"workload.trace", file.path()}, {"workload.rate", "5"}, {"workload.think_time", "trace"}},
                          file.path()),
            "exit 2\nFILE does not state the think time of every later turn | workload.think_time | "
            "draw them, e.g. workload.think_time=exponential(60s)");
}

TEST(WorkloadConversations, KeysThatWouldChangeNothingAreRefused) {
  EXPECT_EQ(problems_with({{"workload.think_time", "10s"}, {"workload.max_context", "100"}}),
            "exit 2\nthe workload has no conversations, so workload.think_time changes nothing | workload.think_time | "
            "leave workload.think_time out\n"
            "the workload has no conversations, so workload.max_context changes nothing | workload.max_context | "
            "leave workload.max_context out");
  EXPECT_EQ(
      problems_with(
          {{"workload.trace", "sharegpt-chat"}, {"workload.conversations", "false"}, {"workload.drop_history", "0.5"}}),
      "exit 2\nworkload.conversations=false, so workload.drop_history changes nothing | workload.drop_history | "
      "leave workload.drop_history out");
  const TempFile file(kTimed, ".csv");
  EXPECT_EQ(problems_with({{"workload.trace", file.path()}, {"workload.think_time", "10s"}}),
            "exit 2\nthe trace has no conversations of several turns, so workload.think_time changes nothing | "
            "workload.think_time | leave workload.think_time out");
  EXPECT_EQ(problems_with({{"workload.tokenizer", "x.model"}, {"workload.skip_bad_rows", "true"}}),
            "exit 2\nworkload.tokenizer is for trace files with texts, but workload.trace names a bundled workload | "
            "workload.tokenizer | leave workload.tokenizer out\n"
            "a bundled workload has no bad rows to skip | workload.skip_bad_rows | leave it out");
}

TEST(WorkloadConversations, TurnsThatDoNotStandTogetherAreTold) {
  const TempFile torn("input_tokens,output_tokens,conversation,turn\n100,50,a,1\n80,10,b,1\n200,50,a,2\n120,10,b,2\n",
                      ".csv");
  EXPECT_EQ(problems_with({{"workload.trace", torn.path()}, {"workload.rate", "5"}}, torn.path()),
            "exit 3\na later turn does not follow the turn before it, so its conversation is incomplete when it starts "
            "| FILE, row 4 | sort the rows by conversation and turn");
}

TEST(WorkloadConversations, ALogKeepsItsTimes) {
  const TempFile log(
      "arrival_s,input_tokens,output_tokens,conversation,turn\n0,100,50,a,1\n1,80,10,b,1\n2,200,50,a,2\n"
      "3,120,10,b,2\n",
      ".csv");
  const Workload workload = open({{"workload.trace", log.path()}});
  EXPECT_TRUE(workload.conversations);
  EXPECT_EQ(workload.think_time, "");
  EXPECT_EQ(workload.arrival, "trace");
  EXPECT_TRUE(workload.warnings.empty());
  EXPECT_EQ(
      problems_with({{"workload.trace", log.path()}, {"workload.think_time", "10s"}}, log.path()),
      "exit 2\nFILE states the times of later turns: they arrive then, but not before the answer to the turn before "
      "and its think time | "
      "workload.think_time | leave it out, or draw new arrivals with workload.arrival=poisson");
}

TEST(WorkloadConversations, AContextIsAtMostWhatTheUserAllows) {
  for (const char* limit : {"300", "2000"}) {
    const auto reader =
        open_workload_rows(settings_with({{"workload.trace", "sharegpt-chat"}, {"workload.max_context", limit}}), 0);
    std::int64_t longest = 0;
    for (const TraceRow& row : drain(*reader)) {
      longest = std::max(longest, (row.input + row.max_new_tokens).count());
    }
    EXPECT_EQ(std::to_string(longest), limit);
    EXPECT_EQ(reader->warnings().size(), 1U) << "a warning says that histories were cut";
  }
  EXPECT_EQ(
      problems_with(
          {{"workload.trace", "sharegpt-chat"}, {"workload.max_context", "512"}, {"workload.max_new_tokens", "512"}}),
      "exit 2\nanswers of up to 512 tokens leave no space for a prompt in a context of 512 tokens | "
      "workload.max_new_tokens | lower it, or raise workload.max_context");
}

TEST(WorkloadConversations, WhatTheEngineTakesCutsOnlyTheHistory) {
  const Settings settings = settings_with({{"workload.trace", "sharegpt-chat"}});
  const auto whole = drain(*open_workload_rows(settings, 0));
  const auto cut = drain(*open_workload_rows(settings, 0, Tokens(600)));
  ASSERT_EQ(whole.size(), cut.size());
  std::int64_t shorter = 0;
  Tokens before;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const Tokens fresh = whole[i].turn == 1 ? whole[i].input : whole[i].input - before;
    before = whole[i].input + whole[i].output;
    ASSERT_GE(cut[i].input, fresh) << i << ": new input is never cut";
    ASSERT_EQ(cut[i].output, whole[i].output);
    ASSERT_TRUE(cut[i].input == fresh || cut[i].input + cut[i].output <= Tokens(600)) << i;
    shorter += cut[i].input < whole[i].input ? 1 : 0;
  }
  EXPECT_GT(shorter, 500);
}

// --- shares of clients, skipped rows

TEST(Workload, ClientsSendTheirShares) {
  std::map<std::uint32_t, double> sent;
  for (const RequestSpec& request :
       requests_of({{"workload.client_shares", "70/20/10"}, {"workload.requests", "100000"}})) {
    sent[request.client] += 1e-5;
  }
  // Each share may be off by four deviations of sqrt(p (1 - p) / 100,000).
  EXPECT_NEAR(sent[0], 0.7, 0.0058);
  EXPECT_NEAR(sent[1], 0.2, 0.0051);
  EXPECT_NEAR(sent[2], 0.1, 0.0038);
  EXPECT_EQ(sent.size(), 3U);
  EXPECT_EQ(problems_with({{"workload.client_shares", "70/x"}}),
            "exit 2\n\"70/x\" is not a list of numbers above 0 | workload.client_shares | "
            "write a share for each client, e.g. 70/20/10");
  EXPECT_EQ(problems_with({{"workload.client_shares", "1/1"}, {"workload.clients", "3"}}),
            "exit 2\n2 shares for workload.clients=3 | workload.client_shares | "
            "write a share for each client, e.g. 70/20/10");
}

TEST(Workload, SkippedRowsAreCountedAndTold) {
  const TempFile file(std::string(kTimed) + "2023-11-16 18:00:07,-1,40\nnonsense\n2023-11-16 18:00:08,500,50\n",
                      ".csv");
  EXPECT_NE(problems_with({{"workload.trace", file.path()}}), "");
  Workload workload = open({{"workload.trace", file.path()}, {"workload.skip_bad_rows", "true"}});
  EXPECT_EQ(workload.skipped_rows, 2);
  EXPECT_EQ(workload.requests, 5);
  ASSERT_EQ(workload.warnings.size(), 1U);
  EXPECT_EQ(workload.warnings[0], "2 of 7 rows of " + file.path() +
                                      " were skipped because they are not requests; the first: " + file.path() +
                                      ", row 6, column ContextTokens: -1 tokens: from 1 to 16777216 are possible");
  const auto requests = drain(*workload.stream);
  ASSERT_EQ(requests.size(), 5U);
  EXPECT_EQ(requests.back().input, Tokens(500));
  const TempFile hopeless("TIMESTAMP,ContextTokens,GeneratedTokens\nx,1,1\n", ".csv");
  EXPECT_EQ(problems_with({{"workload.trace", hopeless.path()}, {"workload.skip_bad_rows", "true"}}, hopeless.path()),
            "exit 3\nall 1 rows are bad; the first: FILE, row 2, column TIMESTAMP: \"x\" is not a time stamp | FILE | "
            "check workload.format");
}

TEST(Workload, TimesThatGoBackALittleAreSorted) {
  const TempFile file("arrival_s,input_tokens,output_tokens\n5,1,1\n4.5,2,1\n5.2,3,1\n4.4,4,1\n9,5,1\n8.1,6,1\n",
                      ".csv");
  const auto requests = requests_of({{"workload.trace", file.path()}});
  std::vector<std::pair<std::int64_t, std::int64_t>> got;
  got.reserve(requests.size());
  for (const RequestSpec& request : requests) got.emplace_back(request.arrival.ns() / 1'000'000, request.input.count());
  EXPECT_EQ(got, (std::vector<std::pair<std::int64_t, std::int64_t>>{
                     {4400, 4}, {4500, 2}, {5000, 1}, {5200, 3}, {8100, 6}, {9000, 5}}));
  const TempFile azure("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:00:01,1,1\n2023-11-16 18:00:00.5,2,1\n",
                       ".csv");
  const auto shifted = requests_of({{"workload.trace", azure.path()}});
  EXPECT_EQ(shifted[0].arrival, SimTime(0)) << "the earliest row starts the run";
  EXPECT_EQ(shifted[0].input, Tokens(2));
  EXPECT_EQ(shifted[1].arrival, SimTime(500'000'000));
}

TEST(Workload, SessionsOfPrefixesAreALog) {
  // The first two prompts of Mooncake's blocks of 512 tokens are a conversation: 1,000 tokens and their answer of 50
  // are repeated and 50 are new. The fourth has no space for the answer of the second, so it repeats its prompt alone.
  const TempFile file(
      "{\"timestamp\": 0, \"input_length\": 1000, \"output_length\": 50, \"hash_ids\": [1, 2]}\n"
      "{\"timestamp\": 1000, \"input_length\": 1100, \"output_length\": 80, \"hash_ids\": [1, 3, 4]}\n"
      "{\"timestamp\": 2000, \"input_length\": 700, \"output_length\": 5, \"hash_ids\": [8, 9]}\n"
      "{\"timestamp\": 6000, \"input_length\": 1180, \"output_length\": 5, \"hash_ids\": [1, 3, 5]}\n",
      ".jsonl");
  const std::map<std::string, std::string> sessions{{"workload.trace", file.path()}, {"workload.sessions", "prefix"}};
  const Workload workload = open(sessions);
  EXPECT_TRUE(workload.conversations);
  EXPECT_TRUE(workload.prefix_ids);
  EXPECT_FALSE(workload.random);
  EXPECT_EQ(workload.mean_turns, 2.0);
  std::vector<RequestSpec> got;
  RequestRecord answered;
  const auto send_until = [&](std::int64_t seconds) {
    const SimTime end(seconds * 1'000'000'000);
    while (workload.stream->next_arrival() <= end) {
      RequestSpec request;
      if (workload.stream->next(request)) got.push_back(request);
    }
  };
  const auto answer = [&](std::size_t request, std::int64_t seconds) {
    answered.traits = got[request].traits;
    answered.end = SimTime(seconds * 1'000'000'000);
    answered.outcome = Outcome::finished;
    workload.stream->ended(answered);
  };
  send_until(2);
  ASSERT_EQ(got.size(), 2U) << "the second turn waits for the answer to the first";
  answer(0, 3);
  send_until(3);
  answer(2, 4);
  send_until(9);
  ASSERT_EQ(got.size(), 4U);
  using Sent = std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int32_t, std::int64_t>>;
  Sent sent;  // ms, prompt, conversation, turn, repeated tokens
  for (const RequestSpec& request : got) {
    const RequestTraits& traits = request.traits;
    sent.emplace_back(request.arrival.ns() / 1'000'000, request.input.count(), traits.conversation, traits.turn,
                      traits.repeats.count());
  }
  EXPECT_EQ(sent, (Sent{{0, 1000, 0, 1, 0}, {2000, 700, 1, 1, 0}, {3000, 1100, 0, 2, 1050}, {6000, 1180, 0, 3, 1100}}));
  EXPECT_EQ(got[2].prefix_ids.size(), 68U) << "whole blocks of 16 tokens, named by the file";
  auto faster = sessions;
  faster["workload.rate"] = "1";  // the file has 3 gaps in 6 s
  faster["workload.requests"] = "3";
  const auto scaled = open(faster);
  EXPECT_EQ(scaled.requests, 3);
  (void)scaled.stream->next(got[0]);
  EXPECT_EQ(scaled.stream->next_arrival(), SimTime(500'000'000));
}

TEST(Workload, SessionsThatCannotBeAreRefused) {
  EXPECT_EQ(problems_with({{"workload.sessions", "prefix"}}),
            "exit 2\nworkload.sessions reads the conversations of a trace file, but workload.trace names a bundled "
            "workload | workload.sessions | leave workload.sessions out, or use a trace with prefix ids, such as "
            "mooncake-jsonl (hash_ids)");
  const TempFile azure(kTimed, ".csv");
  EXPECT_EQ(problems_with({{"workload.trace", azure.path()}, {"workload.sessions", "prefix"}}, azure.path()),
            "exit 2\nFILE has no prefix ids that tell which prompt extends another | workload.sessions | use a trace "
            "with them, such as mooncake-jsonl (hash_ids), or leave workload.sessions out");
  const TempFile alone(
      "{\"timestamp\": 0, \"input_length\": 1000, \"output_length\": 50, \"hash_ids\": [1, 2]}\n"
      "{\"timestamp\": 1, \"input_length\": 1100, \"output_length\": 50, \"hash_ids\": [5, 2, 3]}\n",
      ".mooncake.jsonl");
  const std::map<std::string, std::string> sessions{{"workload.trace", alone.path()}, {"workload.sessions", "prefix"}};
  EXPECT_EQ(problems_with(sessions),
            "exit 2\nthe trace has no conversations of several turns, so workload.sessions=prefix changes nothing | "
            "workload.sessions | leave workload.sessions out");
  auto single = sessions;
  single["workload.conversations"] = "false";
  EXPECT_THAT(problems_with(single), testing::HasSubstr("so workload.sessions=prefix changes nothing"));
  auto drawn = sessions;
  drawn["workload.arrival"] = "poisson";
  EXPECT_THAT(
      problems_with(drawn),
      testing::HasSubstr(
          "workload.sessions=prefix keeps the times of the trace: its turns arrive at them | workload.arrival | "
          "leave workload.arrival out; workload.rate scales the times of the trace"));
}

TEST(Workload, TheRealTraceIsReplayed) {
  const std::string path = shared_trace("azure-2023-code.csv");
  if (path.empty()) GTEST_SKIP() << "../shared/data/traces/azure-2023-code.csv is missing";
  const auto requests = requests_of({{"workload.trace", path}, {"workload.rate", "4"}});
  ASSERT_EQ(requests.size(), 8819U);
  // The last of 8,819 requests follows 8,818 gaps of 0.25 s.
  EXPECT_EQ(requests.back().arrival, SimTime(2'204'500'000'000));
}

}  // namespace
}  // namespace spillway::traces
