// Whether a run of the simulator is that of the naive engine.
#pragma once

#include <gtest/gtest.h>

#include "tests/oracle/fast_run.hpp"
#include "tests/oracle/naive_engine.hpp"

namespace spillway::oracle {

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
  ASSERT_EQ(naive.prefix_hit, totals.prefix_hit);
  ASSERT_EQ(naive.prefix_hit_host, totals.prefix_hit_host);
}

}  // namespace spillway::oracle
