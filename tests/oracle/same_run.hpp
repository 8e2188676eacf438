// Whether a run of the simulator is that of the naive engine.
#pragma once

#include <gtest/gtest.h>

#include "tests/oracle/fast_run.hpp"
#include "tests/oracle/naive_engine.hpp"

namespace spillway::oracle {

/// Fails the test unless KV was on its way for the same times.
inline void expect_same_kv_copies(const NaiveResult& naive, const EngineTotals& totals) {
  ASSERT_EQ(naive.kv_beside, totals.kv_copied_beside);
  ASSERT_EQ(naive.kv_waited, totals.kv_waited_for);
  ASSERT_EQ(naive.kv_idle, totals.kv_copied_idle);
}

/// Fails the test unless as many conversations were live and cached over time.
inline void expect_same_conversations(const NaiveResult& naive, const EngineTotals& totals) {
  ASSERT_NEAR(naive.live_time, totals.live_time, 1e-12 * std::max(1.0, naive.live_time));
  ASSERT_NEAR(naive.cached_time, totals.cached_time, 1e-12 * std::max(1.0, naive.cached_time));
  ASSERT_EQ(naive.peak_live, totals.peak_live);
  ASSERT_EQ(naive.peak_cached, totals.peak_cached);
}

/// Fails the test unless both runs have the same records, iterations, copies and prefix hits.
inline void expect_same_run(const NaiveResult& naive, const FastRun& fast) {
  ASSERT_EQ(naive.records.size(), fast.records.size());
  for (std::size_t i = 0; i < naive.records.size(); ++i) ASSERT_EQ(text(naive.records[i]), text(fast.records[i]));
  const EngineTotals& totals = fast.result.statistics.engine;
  ASSERT_EQ(naive.iterations, totals.iterations);
  ASSERT_EQ(naive.moved_h2d, totals.moved_h2d);
  ASSERT_EQ(naive.moved_d2h, totals.moved_d2h);
  ASSERT_EQ(naive.moved_peer_in, totals.moved_peer_in);
  ASSERT_EQ(naive.moved_peer_out, totals.moved_peer_out);
  expect_same_kv_copies(naive, totals);
  expect_same_conversations(naive, totals);
  ASSERT_EQ(naive.prefix_hit, totals.prefix_hit);
  ASSERT_EQ(naive.prefix_hit_host, totals.prefix_hit_host);
}

}  // namespace spillway::oracle
