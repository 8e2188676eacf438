// What a result says of experts.locality.
#include "sim/study/locality.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace spillway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Locality, DefaultsByTheNumberOfExperts) {
  const ExpertLocality few = assumed_locality(Settings{}, 16, 2);
  EXPECT_EQ(few.value, 0.2);
  EXPECT_FALSE(few.given);
  EXPECT_THAT(few.source, HasSubstr("Mixtral"));
  EXPECT_EQ(few.no_effect, "");
  const ExpertLocality many = assumed_locality(Settings{}, 17, 2);
  EXPECT_EQ(many.value, 0.4);
  EXPECT_THAT(many.source, HasSubstr("PR 27861"));
  Settings settings;
  settings.set("experts.locality", 0.6);
  const ExpertLocality given = assumed_locality(settings, 16, 2);
  EXPECT_EQ(given.value, 0.6);
  EXPECT_TRUE(given.given);
  EXPECT_EQ(given.source, "");
}

TEST(Locality, SaysWhereItCannotMatter) {
  Settings settings;
  settings.set("experts.locality", 0.0);
  EXPECT_EQ(assumed_locality(settings, 16, 2).no_effect, "half and twice of 0 are 0");
  EXPECT_EQ(assumed_locality(Settings{}, 4, 4).no_effect, "a token uses all 4 experts of a layer");
}

TEST(Locality, TwiceOfItIsAtMostOne) {
  EXPECT_THAT(half_and_twice(0.4), ElementsAre(0.2, 0.8));
  EXPECT_THAT(half_and_twice(0.6), ElementsAre(0.3, 1.0));
}

TEST(Locality, OneLineAndItsJson) {
  ExpertLocality assumed{.value = 0.4, .given = false, .source = "a paper"};
  const LocalityRun base{1.0, 0.4, 12.5, 80.0};
  EXPECT_EQ(locality_text(assumed_text(assumed), base, {}), "0.4 (default)");
  const LocalityCheck check{.runs = {{0.5, 0.2, 10.0, 100.0}, {2.0, 0.8, std::nullopt, 50.0}}};
  EXPECT_EQ(locality_text(assumed_text(assumed), base, check),
            "0.4 (default): 12.50 output tokens/s, p50 TPOT 80 ms; at 0.2: 10 and 100; at 0.8: - and 50");
  EXPECT_EQ(locality_check_json(check).dump(),
            R"({"runs":[{"times":0.5,"value":0.2,"output_throughput_tokens_per_s":10.0,"p50_tpot_ms":100.0},)"
            R"({"times":2.0,"value":0.8,"output_throughput_tokens_per_s":null,"p50_tpot_ms":50.0}]})");
  // Instances of several kinds.
  const LocalityCheck several{.runs = {{0.5, {}, 10.0, 100.0}, {2.0, {}, 14.0, 50.0}}};
  EXPECT_EQ(locality_text("a 0.4 (default), b 0.9 (given)", base, several),
            "a 0.4 (default), b 0.9 (given): 12.50 output tokens/s, p50 TPOT 80 ms; at half of each: 10 and 100; at "
            "twice of each: 14 and 50");
  EXPECT_EQ(locality_check_json(several)["runs"][0].dump(),
            R"({"times":0.5,"output_throughput_tokens_per_s":10.0,"p50_tpot_ms":100.0})");
  EXPECT_EQ(assumed_locality_json(assumed).dump(), R"({"value":0.4,"origin":"default","source":"a paper"})");
  assumed = {.value = 0.0, .given = true, .no_effect = "no reason"};
  EXPECT_EQ(locality_text(assumed_text(assumed), base, LocalityCheck{.not_run = "no reason"}),
            "0 (given); not run with this value halved and doubled: no reason");
  EXPECT_EQ(locality_check_json({.not_run = "no reason"}).dump(), R"({"not_run":"no reason"})");
  for (const LocalityCheck& one : {check, several, LocalityCheck{.not_run = "no reason"}}) {
    const auto again = read_locality_check({{"other_localities", locality_check_json(one)}});
    ASSERT_TRUE(again.has_value());
    EXPECT_EQ(locality_check_json(*again), locality_check_json(one));
  }
  EXPECT_FALSE(read_locality_check({{"policy", "vllm"}}).has_value());
  // Older results do not say how many times the locality it was.
  nlohmann::ordered_json older{{"other_localities", locality_check_json(check)}};
  for (nlohmann::ordered_json& run : older["other_localities"]["runs"]) run.erase("times");
  EXPECT_EQ(locality_check_json(*read_locality_check(older)), locality_check_json(check));
  const auto read = read_assumed_locality({{"expert_locality", assumed_locality_json(assumed)}});
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->value, 0.0);
  EXPECT_TRUE(read->given);
  EXPECT_EQ(read->no_effect, "no reason");
  EXPECT_FALSE(read_assumed_locality({{"policy", "vllm"}}).has_value());
}

}  // namespace
}  // namespace spillway
