// Conversations over time: means, peaks and samples by hand.
#include <gtest/gtest.h>

#include "sim/metrics/conversations.hpp"

namespace spillway {
namespace {

constexpr SimTime at_s(std::int64_t seconds) { return SimTime(seconds * 1'000'000'000); }

// Conversation 7 lives from 0 to 40 s with a turn to come from 10 to 30 s, conversation 8 from 20 to 50 s.
//   5 to 20 s: 1, 20 to 40 s: 2, 40 to 50 s: 1 -> 15 + 40 + 10 = 65 conversation-seconds from 5 s on
TEST(ConversationMeter, CountsFromTheFirstTurnToTheEndOfTheLast) {
  ConversationMeter meter;
  meter.measure_from(at_s(5));
  meter.arrived(7, at_s(0));
  meter.ended(7, true, at_s(10));
  EXPECT_EQ(meter.live(), 1) << "another turn is to come";
  meter.arrived(8, at_s(20));
  meter.arrived(7, at_s(30));
  EXPECT_EQ(meter.live(), 2);
  meter.ended(7, false, at_s(40));
  EXPECT_EQ(meter.live(), 1);
  meter.ended(8, false, at_s(50));
  EXPECT_EQ(meter.live(), 0);
  EXPECT_EQ(meter.live_time(), 0.0) << "nothing has reached the span's end yet";
  meter.reached(at_s(50));
  EXPECT_EQ(meter.live_time(), 65.0);
  EXPECT_EQ(meter.peak(), 2);
}

// Three conversations after the last completion belong to no span. A request of no conversation, and conversations that
// come and go at one instant, are not seen.
TEST(ConversationMeter, CountsNothingBeyondTheSpan) {
  ConversationMeter meter;
  meter.arrived(1, at_s(0));
  meter.measure_from(at_s(2));
  meter.arrived(-1, at_s(3));
  meter.ended(-1, false, at_s(3));
  meter.arrived(2, at_s(3));
  meter.ended(2, false, at_s(3));
  meter.reached(at_s(4));
  meter.arrived(2, at_s(4));
  meter.arrived(3, at_s(4));
  meter.ended(3, false, at_s(9));
  EXPECT_EQ(meter.live_time(), 2.0);
  EXPECT_EQ(meter.peak(), 1);
}

// Two turns of a conversation may be in flight at once: it lives until both have ended.
TEST(ConversationMeter, TurnsInFlightTogether_AreOneConversation) {
  ConversationMeter meter;
  meter.measure_from(at_s(0));
  meter.arrived(1, at_s(0));
  meter.arrived(1, at_s(1));
  EXPECT_EQ(meter.live(), 1);
  meter.ended(1, false, at_s(2));
  EXPECT_EQ(meter.live(), 1);
  meter.ended(1, false, at_s(3));
  EXPECT_EQ(meter.live(), 0);
}

// 256 samples 0.1 s apart: every second one goes, and 128 stay up to 25.4 s. The next one is due 0.2 s later.
TEST(ConversationSeries, HalvesItsResolutionWhenItIsFull) {
  ConversationSeries series;
  EXPECT_EQ(series.next(), at_s(0));
  for (std::int64_t i = 0; i < 255; ++i) series.add({.live = i});
  EXPECT_EQ(series.samples().size(), 255U);
  EXPECT_EQ(series.next(), SimTime(25'500'000'000));
  series.add({.live = 255});
  ASSERT_EQ(series.samples().size(), 128U);
  for (std::int64_t i = 0; i < 128; ++i) {
    const ConversationSample& sample = series.samples()[static_cast<std::size_t>(i)];
    ASSERT_EQ(sample.at, SimTime(i * 200'000'000));
    ASSERT_EQ(sample.counts.live, 2 * i);
  }
  EXPECT_EQ(series.next(), SimTime(25'600'000'000));
}

}  // namespace
}  // namespace spillway
