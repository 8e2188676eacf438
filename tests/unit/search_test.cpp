// What a search says of its next values, against texts written from the order in which it must try them.
#include "sim/study/search.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "sim/study/parameter_table.hpp"

namespace spillway {
namespace {

using testing::ElementsAre;

using Settings = std::vector<std::pair<std::string, std::string>>;

SearchedConfiguration configuration(const Settings& settings) {
  SearchedConfiguration one;
  for (const auto& [key, text] : settings) {
    one.point.assignments.push_back({key, text, Origin::argument, "test", {}});
  }
  return one;
}

/// Searches the largest engine.max_num_seqs from 2 to 5 with p99_ttft_ms below `limit`.
std::vector<std::string> steps(std::size_t configurations, const std::string& limit, bool steady = false,
                               bool perturbed = false) {
  std::vector<Problem> problems;
  Criterion criterion{.conditions = parse_conditions("p99_ttft_ms<" + limit, "test", false, problems)};
  criterion.steady = steady;
  const SearchedConfiguration one = configuration({{"workload.trace", "uniform"},
                                                   {"workload.input_tokens", "10"},
                                                   {"workload.output_tokens", "2"},
                                                   {"workload.rate", "1"},
                                                   {"workload.requests", "5"},
                                                   {"replications", "1"}});
  SearchReport report{.key = "engine.max_num_seqs", .unit = "sequences"};
  if (perturbed) report.perturbation = 0.05;
  std::vector<std::string> said;
  PointRunner runner({.jobs = 1});
  Search search(std::vector(configurations, one), *find_parameter(parameter_table(), "engine.max_num_seqs"),
                std::move(criterion), std::move(report), {.start = 2.0, .high = 5.0, .whole = true}, runner,
                [&](const std::string& step) { said.push_back(step); });
  EXPECT_TRUE(search.run());
  return said;
}

// Any time to first token will do: 2, twice as much, and the limit.
TEST(SearchProgress, SaysTheNextValueAndWhatIsKnown) {
  EXPECT_THAT(steps(1, "1e9"), ElementsAre("engine.max_num_seqs=2", "engine.max_num_seqs=4; 2 meets the SLOs",
                                           "engine.max_num_seqs=5; 4 meets the SLOs"));
}

// None will do: 2, half of it, and no whole number is left.
TEST(SearchProgress, SaysWhatMisses) {
  EXPECT_THAT(steps(1, "1e-9"), ElementsAre("engine.max_num_seqs=2", "engine.max_num_seqs=1; 2 misses the SLOs"));
}

// Both searches try the same values; none has ended before the last of them.
TEST(SearchProgress, CountsSeveralSearches) {
  EXPECT_THAT(steps(2, "1e-9"), ElementsAre("engine.max_num_seqs=2 and 1 more; 0 of 2 searches have ended",
                                            "engine.max_num_seqs=1 and 1 more; 0 of 2 searches have ended"));
}

// 5 requests are too few to tell whether a run is steady, so the first value is tried again with twice as many.
TEST(SearchProgress, SaysHowLongRunsHaveBecome) {
  const std::vector<std::string> said = steps(1, "1e9", true);
  ASSERT_GE(said.size(), 3U);
  EXPECT_EQ(said[0], "engine.max_num_seqs=2");
  EXPECT_EQ(said[1], "engine.max_num_seqs=2, 10 requests");
  EXPECT_EQ(said[2], "engine.max_num_seqs=2, 20 requests");
  const std::vector<std::string> two = steps(2, "1e9", true);
  ASSERT_GE(two.size(), 3U);
  EXPECT_EQ(two[1], "engine.max_num_seqs=2 and 1 more, up to 10 requests; 0 of 2 searches have ended");
}

// After the 3 values above, 30 searches with other times begin at the value that was found, which is the limit.
TEST(SearchProgress, SaysThatTimesAreOthers) {
  const std::vector<std::string> said = steps(1, "1e9", false, true);
  ASSERT_EQ(said.size(), 4U);
  EXPECT_EQ(said[3], "with perturbed times: engine.max_num_seqs=5 and 29 more; 0 of 30 searches have ended");
}

// 0.4 is the default. One value is allowed and any time will do, so the search ends with it, and those with half and
// twice of the locality begin there.
TEST(SearchProgress, SaysWhichLocality) {
  std::vector<Problem> problems;
  Criterion criterion{.conditions = parse_conditions("p99_ttft_ms<1e9", "test", false, problems)};
  criterion.steady = false;
  SearchReport report{.key = "workload.concurrency", .unit = "requests", .other_localities = true};
  std::vector<std::string> said;
  PointRunner runner({.jobs = 1});
  Search search({configuration({{"model", "qwen3-30b-a3b"},
                                {"hardware", "hgx-h100-8"},
                                {"policy", "expert-cache"},
                                {"policy.slots", "16"},
                                {"workload.output_tokens", "2"},
                                {"workload.requests", "2"},
                                {"replications", "1"}})},
                *find_parameter(parameter_table(), "workload.concurrency"), std::move(criterion), std::move(report),
                {.start = 1.0, .high = 1.0, .whole = true}, runner,
                [&](const std::string& step) { said.push_back(step); });
  EXPECT_TRUE(search.run());
  EXPECT_THAT(said, ElementsAre("workload.concurrency=1",
                                "with experts.locality=0.2: workload.concurrency=1 and 1 more; 0 of 2 searches have "
                                "ended"));
}

}  // namespace
}  // namespace spillway
