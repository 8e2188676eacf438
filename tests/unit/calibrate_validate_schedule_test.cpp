// A machine executes what the simulator simulates: schedules against timelines by hand, and against the executor under
// the policies' own rules.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "cuda_calibrate/validate/launches.hpp"
#include "cuda_calibrate/validate/schedule.hpp"
#include "policies/parts/weight_stream.hpp"
#include "tests/unit/calibrate_schedule_interpreter.hpp"

namespace spillway::calibrate {
namespace {

using testing::ElementsAre;

constexpr Duration ns(std::int64_t count) { return Duration(count); }
constexpr CopyTime copy(std::int64_t transfer, std::int64_t launch = 0) { return {ns(launch), ns(transfer)}; }

const CopyWork& copy_work(const Operation& operation) { return std::get<CopyWork>(operation.work); }

/// "3: out3" for each copy that starts by `until`, in the order of time, outs first; layers count from 1.
std::vector<std::string> swap_starts(const Simulated& simulated, double until) {
  const std::vector<OperationSpan> spans = interpret(simulated);
  std::map<double, std::array<std::string, 2>> by_time;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const Operation& operation = simulated.schedule.operations[i];
    if (!std::holds_alternative<CopyWork>(operation.work) || spans[i].start > until) continue;
    const bool out = operation.stream == Stream::d2h;
    by_time[spans[i].start][out ? 0 : 1] = fmt::format("{}{}", out ? "out" : "in", operation.layer + 1);
  }
  std::vector<std::string> texts;
  texts.reserve(by_time.size());
  for (const auto& [time, names] : by_time) {
    texts.push_back(
        fmt::format("{}: {}{}{}", time, names[0], names[0].empty() || names[1].empty() ? "" : ",", names[1]));
  }
  return texts;
}

LayerSwapping swapping(std::int32_t layers, std::int32_t on_host, std::int32_t iterations) {
  return {.layers = layers,
          .on_host = on_host,
          .compute = {.m = 1, .n = 1, .k = 1},
          .slot_bytes = 1,
          .iterations = iterations};
}

TEST(ValidateSchedule, Pie_NineLayersTwoOnTheHost_SwapAsInTheExampleOfItsPaper) {
  // Pie, Fig. 4: n = 9 layers, m = 2 on the host, t_c = 1, t_in = t_out = 2. Six tokens take exactly 6 * 9 = 54.
  const Simulated simulated = simulate(swapping(9, 2, 6), {.compute = ns(1), .in = copy(2), .out = copy(2)});
  EXPECT_EQ(simulated.length, ns(54));
  EXPECT_THAT(
      swap_starts(simulated, 23.0),
      ElementsAre("1: out1", "3: out3,in8", "5: out5,in9", "7: out7,in1", "9: out9,in3", "11: out2,in5", "13: out4,in7",
                  "15: out6,in9", "17: out8,in2", "19: out1,in4", "21: out3,in6", "23: out5,in8"));
  EXPECT_EQ(length_of(simulated.schedule, interpret(simulated)), 54.0);
}

TEST(ValidateSchedule, Pie_ThreeOnTheHost_StallsAsItsRuleDoes) {
  // Section 1.7: with m = 3 eight tokens in steady state stall 3, 3, 2, 2, 2, 2, 2, 2, 11.25 each on average. So 16
  // tokens from any point of the steady state on take 180, which 24 tokens and 8 tokens differ by.
  const StepTimes times{.compute = ns(1), .in = copy(2), .out = copy(2)};
  EXPECT_EQ(simulate(swapping(9, 3, 32), times).length - simulate(swapping(9, 3, 16), times).length, ns(180));
}

TEST(ValidateSchedule, Pie_EveryCopyTakesASlotThatTheOneBeforeItHasLeft) {
  // Replays the schedule in its own order. At each copy the source has the layer, and the target has no live data.
  const LayerSwapping setting = swapping(18, 7, 5);
  const Simulated simulated = simulate(setting, {.compute = ns(10), .in = copy(13), .out = copy(17)});
  std::map<std::int32_t, std::int32_t> on_gpu;   // slot -> layer
  std::map<std::int32_t, std::int32_t> on_host;  // slot -> layer
  for (std::int32_t layer = 0; layer < 11; ++layer) on_gpu[layer] = layer;
  for (std::int32_t layer = 11; layer < 18; ++layer) on_host[layer - 11] = layer;
  std::vector<OperationSpan> spans = interpret(simulated);
  int copies = 0;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const Operation& operation = simulated.schedule.operations[i];
    if (!std::holds_alternative<CopyWork>(operation.work)) continue;
    ++copies;
    const CopyWork& work = copy_work(operation);
    EXPECT_GE(work.gpu_slot, 0);
    EXPECT_LT(work.gpu_slot, simulated.schedule.gpu_slots);
    EXPECT_GE(work.host_slot, 0);
    EXPECT_LT(work.host_slot, simulated.schedule.host_slots);
    const bool in = operation.stream == Stream::h2d;
    auto& from = in ? on_host : on_gpu;
    auto& to = in ? on_gpu : on_host;
    const std::int32_t source = in ? work.host_slot : work.gpu_slot;
    const std::int32_t target = in ? work.gpu_slot : work.host_slot;
    ASSERT_TRUE(from.contains(source)) << i;
    EXPECT_EQ(from[source], operation.layer) << i;
    EXPECT_FALSE(to.contains(target)) << i;
    from.erase(source);
    to[target] = operation.layer;
  }
  EXPECT_GT(copies, 50);
}

TEST(ValidateSchedule, Pie_WithOtherDurationsThanPredicted_NothingTouchesDataThatIsNotThere) {
  // A machine's durations never equal the predicted ones. Whatever they are, a layer computes only while its KV is on
  // the GPU and stays there; a copy starts when its source is complete and its target is free.
  const LayerSwapping setting = swapping(12, 5, 4);
  const Simulated predicted = simulate(setting, {.compute = ns(100), .in = copy(130), .out = copy(170)});
  const auto& operations = predicted.schedule.operations;
  std::mt19937_64 random(2);
  for (int round = 0; round < 100; ++round) {
    Simulated real = predicted;
    for (OperationTime& time : real.times) time.work = ns(1 + static_cast<std::int64_t>(random() % 400));
    const std::vector<OperationSpan> spans = interpret(real);
    struct Event {
      double time;
      bool starts;  // ends come first
      std::size_t operation;
    };
    std::vector<Event> events;
    for (std::size_t i = 0; i < spans.size(); ++i) {
      ASSERT_GT(spans[i].end, spans[i].start) << "operation " << i << " never ran";
      events.push_back({spans[i].start, true, i});
      events.push_back({spans[i].end, false, i});
    }
    std::ranges::sort(events, [](const Event& a, const Event& b) {
      return std::tuple(a.time, a.starts, a.operation) < std::tuple(b.time, b.starts, b.operation);
    });
    constexpr std::int32_t kTaken = -2;  // a copy comes in
    std::map<std::int32_t, std::int32_t> on_gpu;
    std::map<std::int32_t, std::int32_t> on_host;
    for (std::int32_t layer = 0; layer < 7; ++layer) on_gpu[layer] = layer;
    for (std::int32_t layer = 7; layer < 12; ++layer) on_host[layer - 7] = layer;
    std::set<std::int32_t> leaving;
    std::int32_t computing = -1;
    for (const Event& event : events) {
      const Operation& operation = operations[event.operation];
      if (operation.stream == Stream::compute) {
        const auto holds = [&](const auto& slot) { return slot.second == operation.layer; };
        EXPECT_TRUE(std::ranges::any_of(on_gpu, holds)) << "layer " << operation.layer;
        EXPECT_FALSE(leaving.contains(operation.layer));
        computing = event.starts ? operation.layer : -1;
        continue;
      }
      const CopyWork& work = copy_work(operation);
      const bool in = operation.stream == Stream::h2d;
      auto& from = in ? on_host : on_gpu;
      auto& to = in ? on_gpu : on_host;
      const std::int32_t source = in ? work.host_slot : work.gpu_slot;
      const std::int32_t target = in ? work.gpu_slot : work.host_slot;
      EXPECT_EQ(from.contains(source) ? from.at(source) : -1, operation.layer);
      if (event.starts) {
        EXPECT_FALSE(to.contains(target));
        EXPECT_NE(computing, operation.layer);
        to[target] = kTaken;
        if (!in) leaving.insert(operation.layer);
      } else {
        from.erase(source);
        to[target] = operation.layer;
        if (!in) leaving.erase(operation.layer);
      }
    }
  }
}

TEST(ValidateSchedule, OperationsWaitForEarlierOnesOfOtherStreamsOnly) {
  const Simulated simulated = simulate(swapping(12, 5, 4), {.compute = ns(10), .in = copy(25), .out = copy(20)});
  const auto& operations = simulated.schedule.operations;
  ASSERT_EQ(operations.size(), simulated.times.size());
  for (std::size_t i = 0; i < operations.size(); ++i) {
    std::set<Stream> streams{operations[i].stream};
    for (const std::int32_t other : operations[i].waits) {
      ASSERT_LT(other, static_cast<std::int32_t>(i));
      EXPECT_TRUE(streams.insert(operations[static_cast<std::size_t>(other)].stream).second)
          << "one of a stream is enough";
    }
  }
}

/// Streams that follow the schedule take as long as the executor under the rule.
void expect_agreement(const Experiment& experiment, const StepTimes& times, const std::string& what) {
  const Simulated simulated = simulate(experiment, times);
  const std::vector<OperationSpan> spans = interpret(simulated, times.sharing);
  EXPECT_EQ(length_of(simulated.schedule, spans), static_cast<double>(simulated.length.count())) << what;
}

TEST(ValidateSchedule, Pie_StreamsAgreeWithTheExecutorWhateverTheTimes) {
  std::mt19937_64 random(1);
  const auto draw = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
  };
  for (int round = 0; round < 400; ++round) {
    const auto layers = static_cast<std::int32_t>(draw(4, 40));
    const auto on_host = static_cast<std::int32_t>(draw(0, layers - 3));
    const StepTimes times{
        .compute = ns(draw(1, 50)), .in = copy(draw(1, 120), draw(0, 5)), .out = copy(draw(1, 120), draw(0, 5))};
    expect_agreement(swapping(layers, on_host, 4), times,
                     fmt::format("n={} m={} compute {} in {} out {}", layers, on_host, times.compute.count(),
                                 times.in.transfer.count(), times.out.transfer.count()));
  }
}

TEST(ValidateSchedule, Pie_DirectionsThatSlowEachOtherAgreeWithTheExecutor) {
  // Twice as long beside each other: with even times every share of a copy is whole nanoseconds. Layers beside copies
  // take a quarter longer, of multiples of four.
  CopySharing sharing{.h2d = {2, 1}, .d2h = {2, 1}, .compute = {5, 4}};
  for (const std::int32_t on_host : {1, 2, 5, 9}) {
    for (const std::int64_t in : {16, 40, 96}) {
      for (const std::int64_t out : {16, 56, 96}) {
        expect_agreement(swapping(14, on_host, 5),
                         {.compute = ns(32), .in = copy(in, 4), .out = copy(out, 8), .sharing = sharing},
                         fmt::format("m={} in {} out {}", on_host, in, out));
      }
    }
  }
}

TEST(ValidateSchedule, SelectN_StreamsAgreeWithTheClosedFormAndTheExecutor) {
  // L = 32, t_c = 1, t_x = 4: interval 2 takes 16 (4 + 1) = 80, interval 3 takes 10 (4 + 1) + 2 = 52, interval 4 takes
  // 8 (4 + 1) = 40. Times are in units of 10 ns. The second pass starts anew.
  const StepTimes times{.compute = ns(10), .in = copy(40)};
  const auto setting = [](std::int32_t interval, bool double_buffer = false, std::int32_t iterations = 1) {
    return WeightPrefetch{.layers = 32,
                          .interval = interval,
                          .double_buffer = double_buffer,
                          .compute = {.m = 1, .n = 1, .k = 1},
                          .iterations = iterations};
  };
  EXPECT_EQ(simulate(setting(2), times).length, ns(800));
  EXPECT_EQ(simulate(setting(3), times).length, ns(520));
  EXPECT_EQ(simulate(setting(4), times).length, ns(400));
  EXPECT_EQ(simulate(setting(4, false, 3), times).length, ns(1200));
  for (std::int32_t interval = 1; interval <= 33; ++interval) {
    EXPECT_EQ(simulate(setting(interval), times).length, streamed_iteration(32, interval, ns(10), ns(40)));
    for (const bool double_buffer : {false, true}) {
      expect_agreement(setting(interval, double_buffer, 3), times, fmt::format("interval {}", interval));
      expect_agreement(setting(interval, double_buffer, 3), {.compute = ns(13), .in = copy(29, 3)},
                       fmt::format("interval {}", interval));
    }
  }
}

TEST(ValidateSchedule, SelectN_ALayerComputesWithTheBufferThatItsCopyFilled) {
  // Interval 4 of 13 layers: layers 4, 8 and 12 stream through one buffer, or through two in turns.
  for (const bool double_buffer : {false, true}) {
    const WeightPrefetch setting{.layers = 13,
                                 .interval = 4,
                                 .double_buffer = double_buffer,
                                 .compute = {.m = 1, .n = 1, .k = 1},
                                 .iterations = 2};
    const Simulated simulated = simulate(setting, {.compute = ns(10), .in = copy(40)});
    EXPECT_EQ(simulated.schedule.gpu_slots, double_buffer ? 2 : 1);
    EXPECT_EQ(simulated.schedule.host_slots, 3);
    std::map<std::int32_t, std::int32_t> held;  // buffer -> layer
    int streamed = 0;
    for (const Operation& operation : simulated.schedule.operations) {
      if (operation.stream == Stream::h2d) {
        EXPECT_EQ(copy_work(operation).host_slot, operation.layer / 4);
        held[copy_work(operation).gpu_slot] = operation.layer;
      } else if (const auto slot = std::get<ComputeWork>(operation.work).gpu_slot; slot >= 0) {
        EXPECT_EQ(held.at(slot), operation.layer);
        ++streamed;
      }
    }
    EXPECT_EQ(streamed, 2 * 3);
  }
}

TEST(ValidateSchedule, Pensieve_PipelinedAndBlocking_TakeWhatItsPaperSays) {
  // 4 layers of 1 ms, KV of 1.5 ms each: the layers start at 1.5, 3.0, 4.5 and 6.0 ms, and the last ends at 7.0 ms.
  // Blocking takes 4 * 1.5 + 4 * 1 = 10.0 ms. With 0.5 ms of KV for each layer, the pipeline takes 4.5 ms.
  const auto setting = [](bool pipelined) {
    return SwapIn{.layers = 4, .pipelined = pipelined, .compute = {.m = 1, .n = 1, .k = 1}, .block_bytes = 1};
  };
  const StepTimes slow{.compute = ns(1'000'000), .in = copy(1'500'000)};
  const StepTimes fast{.compute = ns(1'000'000), .in = copy(500'000)};
  EXPECT_EQ(simulate(setting(true), slow).length, ns(7'000'000));
  EXPECT_EQ(simulate(setting(false), slow).length, ns(10'000'000));
  EXPECT_EQ(simulate(setting(true), fast).length, ns(4'500'000));
  const Simulated simulated = simulate(setting(true), slow);
  const std::vector<OperationSpan> spans = interpret(simulated);
  std::vector<double> starts;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    if (simulated.schedule.operations[i].stream == Stream::compute) starts.push_back(spans[i].start);
  }
  EXPECT_THAT(starts, ElementsAre(1.5e6, 3.0e6, 4.5e6, 6.0e6));
  for (const bool pipelined : {true, false}) {
    for (const StepTimes& times : {slow, fast})
      expect_agreement(setting(pipelined), times, pipelined ? "pipelined" : "blocking");
  }
}

TEST(ValidateSchedule, PageOut_CallsFollowEachOther) {
  // Three calls of 20 + 300 ns.
  const PageOut setting{.mechanism = CopyMechanism::gather, .blocks = 7, .block_bytes = 4096, .calls = 3};
  const StepTimes times{.out = copy(300, 20)};
  const Simulated simulated = simulate(setting, times);
  EXPECT_EQ(simulated.length, ns(960));
  EXPECT_EQ(simulated.schedule.slot_bytes, 7 * 4096);
  EXPECT_EQ(copy_work(simulated.schedule.operations.front()).mechanism, CopyMechanism::gather);
  EXPECT_EQ(copy_work(simulated.schedule.operations.front()).blocks, 7);
  std::vector<std::int32_t> slots;  // of five calls in turns
  const PageOut five{.blocks = 7, .block_bytes = 4096, .calls = 5};
  for (const Operation& operation : simulate(five, times).schedule.operations) {
    if (operation.stream == Stream::d2h) slots.push_back(copy_work(operation).host_slot);
  }
  EXPECT_THAT(slots, ElementsAre(0, 1, 2, 3, 0));
  expect_agreement(setting, times, "page-out");
}

CpuOverlap overlap(std::int64_t first_batch) {
  return {.layers = 32,
          .first = {.m = 1, .n = 1, .k = 1},
          .second = {.m = 2, .n = 1, .k = 1},
          .first_attention = {.batch = first_batch, .context = 1},
          .second_attention = {.batch = 1, .context = 1}};
}

TEST(ValidateSchedule, Neo_TwoStages_TakeTheLongerOfBothSides) {
  // 32 layers with stages of max(11.2, 3.2) and max(2.8, 0) ms take 448.0 ms. The last layer's CPU attention of 3.2 ms
  // follows, with no GPU work left beside it.
  const StepTimes example{.compute = ns(11'200'000), .second_compute = ns(2'800'000), .second_cpu = ns(3'200'000)};
  EXPECT_EQ(simulate(overlap(0), example).length, ns(451'200'000));
  expect_agreement(overlap(0), example, "example A");
  // Bound by the CPU in both stages: 32 * (5 + 11) and the min(2, 11) that the two ends cannot overlap.
  const StepTimes bound{.compute = ns(2), .second_compute = ns(3), .first_cpu = ns(5), .second_cpu = ns(11)};
  EXPECT_EQ(simulate(overlap(1), bound).length, ns(32 * 16 + 2));
  for (const std::int64_t first : {2, 7}) {
    for (const std::int64_t second : {3, 8}) {
      for (const std::int64_t cpu : {1, 5, 11}) {
        expect_agreement(
            overlap(1), {.compute = ns(first), .second_compute = ns(second), .first_cpu = ns(4), .second_cpu = ns(cpu)},
            fmt::format("{} {} {}", first, second, cpu));
      }
    }
  }
}

TEST(ValidateSchedule, Neo_TheNextLayerWaitsForItsOwnAttentionOnTheCpu) {
  const Simulated simulated =
      simulate(overlap(1), {.compute = ns(2), .second_compute = ns(3), .first_cpu = ns(5), .second_cpu = ns(11)});
  // compute 0.0, CPU 0.0, compute 0.1, CPU 0.1, compute 1.0, ...
  const auto& operations = simulated.schedule.operations;
  EXPECT_EQ(operations[1].stream, Stream::cpu);
  EXPECT_THAT(operations[1].waits, ElementsAre(0));
  EXPECT_THAT(operations[2].waits, testing::IsEmpty());
  EXPECT_THAT(operations[3].waits, ElementsAre(2));
  EXPECT_THAT(operations[4].waits, ElementsAre(1)) << "not for the other sub-batch's";
  EXPECT_THAT(operations[6].waits, ElementsAre(3));
  EXPECT_EQ(simulated.schedule.ends.size(), 3U) << "the last compute, and the last CPU work of both";
}

TEST(ValidateLaunches, EventsForWhatIsWaitedFor) {
  // Pensieve's pipeline of two layers: copies 0 and 1, of which layer 0 and layer 1 wait; the end waits for layer 1.
  const SwapIn setting{.layers = 2, .pipelined = true, .compute = {.m = 1, .n = 1, .k = 1}, .block_bytes = 1};
  const Simulated simulated = simulate(setting, {.compute = ns(10), .in = copy(5)});
  ASSERT_EQ(simulated.schedule.operations[2].stream, Stream::compute);
  EXPECT_THAT(waited_for(simulated.schedule), ElementsAre(true, true, false, true));
}

TEST(ValidateLaunches, Gate_HoldsAllButThousandsOfCopiesOneByOne) {
  // 5 calls of 80 blocks are 400 copies.
  const auto page_out = [](CopyMechanism mechanism, std::int32_t calls) {
    return simulate(PageOut{.mechanism = mechanism, .blocks = 80, .block_bytes = 4096, .calls = calls},
                    {.out = copy(1)})
        .schedule;
  };
  EXPECT_TRUE(gated(page_out(CopyMechanism::many, 5), 400));
  EXPECT_FALSE(gated(page_out(CopyMechanism::many, 6), 400));
  EXPECT_TRUE(gated(page_out(CopyMechanism::gather, 6), 400));
}

}  // namespace
}  // namespace spillway::calibrate
