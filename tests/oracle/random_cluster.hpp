// Random clusters: their routers, failures and what their requests share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sim/engine/pool_config.hpp"
#include "tests/oracle/fast_run.hpp"
#include "tests/oracle/naive_cluster.hpp"
#include "tests/oracle/random_case.hpp"

namespace spillway::oracle {

/// Few conversations, and some requests of none. No request follows an answer.
void number_conversations(Dice& dice, NaiveConfig& config);

/// Prompts of few families: each begins as the others of its family do, and goes on as no other.
void name_prompts(Dice& dice, NaiveConfig& config);

/// Some requests come at once with others.
void make_bursts(Dice& dice, NaiveConfig& config);

/// Requests are sent at the instants at which others have passed the front end.
void meet_in_front_end(NaiveConfig& config);

NaiveRouting draw_routing(Dice& dice, const std::string& rule);

/// Replicas go down, at times all of them and at the instant of an arrival, and mostly come up again.
std::vector<NaiveFailure> draw_failures(Dice& dice, const std::vector<RequestSpec>& requests, std::size_t replicas);

/// The simulator's router of the same rule, which draws from the stream of `seed`.
MakeRouter router_of(const NaiveRouting& routing, Tokens block_tokens, std::int64_t seed);
/// The plain router draws the same.
void draw_from(NaiveRouting& routing, std::int64_t seed);

/// Fails the test unless every field of every record is the same. In which order requests end at one instant is not
/// compared, as replicas may end iterations at the same instant.
inline void expect_same_records(std::vector<RequestRecord> naive, std::vector<RequestRecord> fast) {
  const auto in_words = [](const RequestRecord& record) {
    return text(record) + "at " + std::to_string(record.replica) + " " + std::to_string(record.decode_replica);
  };
  for (std::vector<RequestRecord>* const records : {&naive, &fast}) {
    std::sort(records->begin(), records->end(), [](const RequestRecord& a, const RequestRecord& b) {
      return std::pair(a.end, a.index) < std::pair(b.end, b.index);
    });
  }
  ASSERT_EQ(naive.size(), fast.size());
  for (std::size_t i = 0; i < naive.size(); ++i) {
    ASSERT_EQ(in_words(naive[i]), in_words(fast[i]));
    ASSERT_EQ(naive[i], fast[i]);
  }
}

}  // namespace spillway::oracle
