// Offloading intervals from SLOs and from memory: the paper's tables and examples, arithmetic by hand, and records
// against their definition.
#include "policies/parts/performance_record.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "policies/parts/weight_stream.hpp"
#include "sim/core/error.hpp"
#include "sim/exec/executor.hpp"

namespace spillway {
namespace {

constexpr Duration ns(std::int64_t count) { return Duration(count); }
constexpr Duration us(std::int64_t count) { return Duration(count * 1000); }
constexpr Duration ms(std::int64_t count) { return Duration(count * 1'000'000); }

/// An iteration of the executor.
Duration executed(std::int32_t layers, std::int32_t interval, Duration compute, Duration transfer) {
  WeightStream rule(layers);
  rule.stream({.interval = interval, .weights = {.bytes = Bytes(1), .transfer = transfer}});
  const std::vector<SubBatchTimes> times{{.gpu = compute}};
  const IterationPlan plan{layers, times, &rule};
  Executor executor;
  executor.begin(plan, SimTime{});
  return executor.run(plan, kNever).time - SimTime{};
}

// ---------------------------------------------------------------------------------------------------------------------
// One interval

TEST(PaperInterval, GivesSelectNsTable1) {
  // Rows batch 4..64, columns sequence 128..1024. With L = 32 and f = L * t_c * (1 + delta) / t_x = 5.6 + 0.9 * tokens
  // / 512 the table comes out: a transfer of 320 us and delta = 0 need a compute of f * 10 us per layer.
  constexpr std::array<std::array<std::int32_t, 4>, 5> kTable{
      {{5, 4, 3, 2}, {4, 3, 2, 1}, {3, 2, 1, 1}, {2, 1, 1, 1}, {1, 1, 1, 1}}};
  for (std::int64_t row = 0; row < 5; ++row) {
    for (std::int64_t column = 0; column < 4; ++column) {
      const std::int64_t tokens = (4LL << row) * (128LL << column);
      EXPECT_EQ(paper_interval(32, us(56 + 9 * tokens / 512), us(320), 0.0),
                kTable[static_cast<std::size_t>(row)][static_cast<std::size_t>(column)])
          << tokens << " tokens";
    }
  }
}

TEST(Intervals, OfThePapersExample) {
  // L = 32, t_c = 1, t_x = 4, SLO +50% = 48. Paper: 12 copies fit, floor(32 / 12) = 2, which takes 16 * (4 + 1) = 80.
  // Exact: 3 takes 10 * (4 + 1) + 2 = 52, 4 takes 8 * (4 + 1) = 40.
  EXPECT_EQ(paper_interval(32, ns(1), ns(4), 0.5), 2);
  EXPECT_EQ(exact_interval(32, ns(1), ns(4), 0.5), 4);
  EXPECT_EQ(exact_interval(32, ns(48), [](std::int32_t i) { return executed(32, i, ns(1), ns(4)); }), 4);
  EXPECT_EQ(executed(32, 2, ns(1), ns(4)), ns(80));
  EXPECT_EQ(executed(32, 3, ns(1), ns(4)), ns(52));
  EXPECT_EQ(executed(32, 4, ns(1), ns(4)), ns(40));
}

TEST(Intervals, OfSelectNsSection54) {
  // OPT-6.7B on an A10 with the constants of Fig. 2b: 86 TFLOP/s, 331 GB/s of HBM, 24 GB/s of PCIe; SLO +50%.
  //   layer      4 h^2 + 2 * h * 4h = 12 h^2 parameters, h = 4096: 201,326,592, or 402,653,184 bytes; t_x = 16.777 ms.
  //   prefill    16 * 64 tokens * 2 FLOP * 201,326,592 = 412.3 GFLOP, t_c = 4.794 ms (attention would add 0.012).
  //     paper    floor(32 * 4.794 * 1.5 / 16.777) = floor(13.7) copies: floor(32 / 13) = 2
  //     exact    2: 16 stalls of 16.777 - 4.794 = 191.7 ms, 3: 10 of 16.777 - 9.588 = 71.9, of the 0.5 * 153.4 = 76.7
  //   decode     weights and the KV of 128 * 64 tokens, 2 * 4096 * 2 bytes each: 402.7 + 134.2 MB, t_c = 1.622 ms
  //     paper    floor(32 * 1.622 * 1.5 / 16.777) = floor(4.64): floor(32 / 4) = 8
  //     exact    7: 4 stalls of 16.777 - 9.732 = 28.2 ms, 8: 4 of 16.777 - 11.354 = 21.7, of the 0.5 * 51.9 = 25.95
  const double parameters = 12.0 * 4096 * 4096;
  const Duration transfer = round_seconds(2 * parameters / 24e9);
  const Duration prefill = round_seconds(16 * 64 * 2 * parameters / 86e12);
  const Duration decode = round_seconds((2 * parameters + 128 * 64 * 2 * 4096 * 2) / 331e9);
  EXPECT_EQ(transfer, ns(16'777'216));
  EXPECT_EQ(prefill, ns(4'794'382));
  EXPECT_EQ(decode, ns(1'621'967));
  EXPECT_EQ(paper_interval(32, prefill, transfer, 0.5), 2);
  EXPECT_EQ(exact_interval(32, prefill, transfer, 0.5), 3);
  EXPECT_EQ(paper_interval(32, decode, transfer, 0.5), 8);
  EXPECT_EQ(exact_interval(32, decode, transfer, 0.5), 8);
  // Where a layer's time has to lie for that: 32 * t_c * 0.5 >= x * (t_x - (i - 1) * t_c) at i, and not at i - 1:
  // 10 * t_x / 36 = 4.660 ms to 16 * t_x / 32 = 8.389; 4 * t_x / 44 = 1.525 to 4 * t_x / 40 = 1.678.
  EXPECT_EQ(exact_interval(32, us(4661), transfer, 0.5), 3);
  EXPECT_EQ(exact_interval(32, us(8388), transfer, 0.5), 3);
  EXPECT_NE(exact_interval(32, us(4660), transfer, 0.5), 3);
  EXPECT_NE(exact_interval(32, us(8389), transfer, 0.5), 3);
  EXPECT_EQ(exact_interval(32, us(1526), transfer, 0.5), 8);
  EXPECT_EQ(exact_interval(32, us(1677), transfer, 0.5), 8);
  EXPECT_NE(exact_interval(32, us(1525), transfer, 0.5), 8);
  EXPECT_NE(exact_interval(32, us(1678), transfer, 0.5), 8);
}

TEST(Intervals, AtTheEnds) {
  // Nothing may be offloaded: a transfer of more than the whole SLO; for the exact one, of more than its stall.
  EXPECT_EQ(paper_interval(4, ns(10), ns(61), 0.5), std::nullopt);
  EXPECT_EQ(paper_interval(4, ns(10), ns(60), 0.5), 4);
  // i = 4: max(30, t_x) + 10 <= 60.
  EXPECT_EQ(exact_interval(4, ns(10), ns(50), 0.5), 4);
  EXPECT_EQ(exact_interval(4, ns(10), ns(51), 0.5), std::nullopt);
  // Everything may: more copies fit than there are layers; i = 1 takes t_x + 3 * 10 + 10 <= 60.
  EXPECT_EQ(paper_interval(4, ns(10), ns(1), 0.5), 1);
  EXPECT_EQ(paper_interval(4, ns(10), ns(0), 0.5), 1);
  EXPECT_EQ(exact_interval(4, ns(10), ns(10), 0.5), 1);
  EXPECT_EQ(exact_interval(4, ns(10), ns(0), 0.0), 1);
  // 1.1 * 30 is 33 and not the 33.000000000000004 of floating point, nor 32.
  EXPECT_EQ(relative_slo(ns(30), 0.1), ns(33));
  EXPECT_EQ(relative_slo(ns(48), 0.0), ns(48));
  EXPECT_THROW(static_cast<void>(relative_slo(ns(30), -0.1)), InvariantError);
}

TEST(ExactInterval, IsTheSmallestThatHolds_WhateverLargerOnesDo) {
  const std::vector<std::int64_t> times{90, 50, 60, 40};
  const auto iteration = [&](std::int32_t i) { return ns(times[static_cast<std::size_t>(i - 1)]); };
  EXPECT_EQ(exact_interval(4, ns(55), iteration), 2);
  EXPECT_EQ(exact_interval(4, ns(50), iteration), 2);
  EXPECT_EQ(exact_interval(4, ns(49), iteration), 4);
  EXPECT_EQ(exact_interval(4, ns(39), iteration), std::nullopt);
}

// ---------------------------------------------------------------------------------------------------------------------
// The record

/// A layer of 0.5 ms and 10 us per thousand tokens; transfers of 4 ms; 1 ms and 0.3 ms around the 8 layers.
LayerTiming timing(std::int64_t batch, Tokens sequence) {
  return {.compute = us(500) + ns(10 * batch * sequence.count()), .transfer = ms(4), .before = ms(1), .after = us(300)};
}
constexpr RecordAxes kAxes{.min_batch = 2,
                           .max_batch = 16,
                           .min_sequence = Tokens(64),
                           .max_sequence = Tokens(4096),
                           .min_slo = ms(6),
                           .max_slo = ms(60)};

TEST(PerformanceRecord, HoldsTheSmallestIntervalOfEveryEntry) {
  const PerformanceRecord exact(RecordKind::exact, 8, kAxes, timing);
  const PerformanceRecord paper(RecordKind::paper, 8, kAxes, timing);
  int reachable = 0;
  for (std::int64_t batch = 2; batch <= 16; batch *= 2) {
    for (std::int64_t sequence = 64; sequence <= 4096; sequence *= 2) {
      for (std::int64_t slo = 6; slo <= 60; slo += 2) {
        const LayerTiming times = timing(batch, Tokens(sequence));
        const Duration others = us(1300);
        const Duration best = others + 8 * times.compute;
        std::optional<std::int32_t> exact_min;
        std::optional<std::int32_t> paper_min;
        if (ms(slo) >= best) {
          exact_min = paper_min = kAllResident;
          for (std::int32_t i = 8; i >= 1; --i) {
            if (others + executed(8, i, times.compute, times.transfer) <= ms(slo)) exact_min = i;
          }
          const std::int64_t copies = std::min<std::int64_t>(8, (ms(slo) - others).count() / 4'000'000);
          if (copies > 0) paper_min = static_cast<std::int32_t>(8 / copies);
          ++reachable;
        }
        const auto found = exact.at_slo(batch, Tokens(sequence), ms(slo));
        ASSERT_TRUE(found.has_value());
        EXPECT_EQ(found->batch, batch);
        EXPECT_EQ(found->sequence, Tokens(sequence));
        EXPECT_EQ(found->slo, ms(slo));
        EXPECT_EQ(found->unoffloaded, best);
        EXPECT_EQ(found->min_interval, exact_min) << batch << " x " << sequence << ", " << slo << " ms";
        EXPECT_EQ(paper.at_slo(batch, Tokens(sequence), ms(slo))->min_interval, paper_min);
      }
    }
  }
  EXPECT_GT(reachable, 100);
}

TEST(PerformanceRecord, AbsoluteSlo_RoundsWorkUpAndTheSloDown) {
  const PerformanceRecord record(RecordKind::exact, 8, kAxes, timing);
  const auto expect = [&](std::int64_t batch, std::int64_t sequence, Duration slo, std::int64_t entry_batch,
                          std::int64_t entry_sequence, Duration entry_slo) {
    const auto found = record.at_slo(batch, Tokens(sequence), slo);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->batch, entry_batch);
    EXPECT_EQ(found->sequence, Tokens(entry_sequence));
    EXPECT_EQ(found->slo, slo);
    EXPECT_EQ(found->min_interval, record.at_slo(entry_batch, Tokens(entry_sequence), entry_slo)->min_interval);
  };
  expect(5, 200, us(15'999), 8, 256, ms(14));
  expect(8, 257, us(16'000), 8, 512, ms(16));
  expect(1, 1, us(14'001), 2, 64, ms(14));
  expect(9, 2049, ms(500), 16, 4096, ms(60));
  EXPECT_EQ(record.at_slo(17, Tokens(64), ms(20)), std::nullopt);
  EXPECT_EQ(record.at_slo(2, Tokens(4097), ms(20)), std::nullopt);

  // An iteration of 2 x 64 takes 1.3 + 8 * 0.50128 = 5.31024 ms. Below the smallest SLO of 6 ms nothing is offloaded.
  EXPECT_EQ(record.at_slo(2, Tokens(64), us(5999))->min_interval, kAllResident);
  EXPECT_EQ(record.at_slo(2, Tokens(64), ns(5'310'240))->min_interval, kAllResident);
  EXPECT_EQ(record.at_slo(2, Tokens(64), ns(5'310'239))->min_interval, std::nullopt);
  // 4 x 4096: 1.3 + 8 * 0.66384 = 6.61072 ms. An SLO of 7 ms is met, though that of the grid, 6 ms, is not; what it
  // allows costs no time: at interval 8 a transfer hides behind 7 * 0.66384 ms, which at 2 x 64 it does not.
  EXPECT_EQ(record.at_slo(4, Tokens(4096), ms(7))->min_interval, 8);
}

TEST(PerformanceRecord, Margin_RoundsWorkAndTheSloDown) {
  const PerformanceRecord record(RecordKind::exact, 8, kAxes, timing);
  // 5 x 200 takes the entry 4 x 128: 1.3 + 8 * 0.50512 = 5.34096 ms; twice that is 10.68192, on the grid 10 ms. The
  // stalls of i = 5 are 4 - 4 * 0.50512, 7.32048 ms in all; of i = 4 2 * (4 - 3 * 0.50512), 10.31024 ms, within the SLO
  // but not within the grid's; of i = 3 2 * (4 - 2 * 0.50512), 11.32048 ms; of i = 2 4 * (4 - 0.50512), 19.32048 ms.
  const auto found = record.at_margin(5, Tokens(200), 1.0);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->batch, 4);
  EXPECT_EQ(found->sequence, Tokens(128));
  EXPECT_EQ(found->slo, ns(10'681'920));
  EXPECT_EQ(found->min_interval, 5);
  // 2.25 times: 12.01716 ms, on the grid 12.
  EXPECT_EQ(record.at_margin(5, Tokens(200), 1.25)->min_interval, 3);
  // A margin of zero is always met, without offloading.
  EXPECT_EQ(record.at_margin(2, Tokens(64), 0.0)->min_interval, kAllResident);
  EXPECT_EQ(record.at_margin(1, Tokens(64), 1.0), std::nullopt);
  EXPECT_EQ(record.at_margin(2, Tokens(63), 1.0), std::nullopt);
  EXPECT_EQ(record.at_margin(99, Tokens(99'999), 1.0)->batch, 16);
  EXPECT_EQ(record.at_margin(99, Tokens(99'999), 1.0)->sequence, Tokens(4096));
}

TEST(PerformanceRecord, Lookups_NeverBreakTheSlo) {
  const PerformanceRecord record(RecordKind::exact, 8, kAxes, timing);
  int offloaded = 0;
  for (std::int64_t batch = 1; batch <= 20; ++batch) {
    for (std::int64_t sequence = 32; sequence <= 6000; sequence += 211) {
      const LayerTiming times = timing(batch, Tokens(sequence));
      const Duration best = times.before + times.after + 8 * times.compute;
      for (std::int64_t slo = 5000; slo <= 70'000; slo += 1700) {
        const double delta = static_cast<double>(slo) / 10'000.0;
        const auto holds = [&](const std::optional<RecordEntry>& entry, Duration limit) {
          if (!entry || !entry->min_interval) return;
          EXPECT_LE(times.before + times.after + executed(8, *entry->min_interval, times.compute, times.transfer),
                    limit)
              << batch << " x " << sequence;
          offloaded += *entry->min_interval <= 8 ? 1 : 0;
        };
        holds(record.at_slo(batch, Tokens(sequence), us(slo)), us(slo));
        holds(record.at_margin(batch, Tokens(sequence), delta), relative_slo(best, delta));
      }
    }
  }
  EXPECT_GT(offloaded, 10'000);
}

TEST(PerformanceRecord, Axes_OffTheirGrid) {
  const auto record = [](RecordAxes axes) { return PerformanceRecord(RecordKind::exact, 8, axes, timing); };
  const auto with = [](auto change) {
    RecordAxes axes = kAxes;
    change(axes);
    return axes;
  };
  EXPECT_THROW(record(with([](RecordAxes& a) { a.min_batch = 3; })), InvariantError);
  EXPECT_THROW(record(with([](RecordAxes& a) { a.max_batch = 1; })), InvariantError);
  EXPECT_THROW(record(with([](RecordAxes& a) { a.max_sequence = Tokens(4095); })), InvariantError);
  EXPECT_THROW(record(with([](RecordAxes& a) { a.min_sequence = Tokens(0); })), InvariantError);
  EXPECT_THROW(record(with([](RecordAxes& a) { a.min_slo = ms(7); })), InvariantError);
  EXPECT_THROW(record(with([](RecordAxes& a) { a.max_slo = ms(4); })), InvariantError);
}

TEST(PerformanceRecord, BatchOfRequests_HasTheTightestSlo) {
  const std::vector<Duration> slos{ms(40), ms(12), ms(90)};
  EXPECT_EQ(tightest_slo(slos), ms(12));
  EXPECT_THROW(static_cast<void>(tightest_slo({})), InvariantError);
}

// ---------------------------------------------------------------------------------------------------------------------
// Memory

/// 8 layers of 2 GB on a GPU of 20 GB with 1 GB of embeddings and 3 GB of activations: 16 GB for layers and KV.
constexpr WeightMemory kMemory{.gpu = Bytes(20'000'000'000),
                               .layer = Bytes(2'000'000'000),
                               .layers = 8,
                               .embeddings = Bytes(1'000'000'000),
                               .activations = Bytes(3'000'000'000)};
constexpr Bytes gb(std::int64_t count) { return Bytes(count * 1'000'000'000); }

TEST(WeightMemory, LayersOnTheGpuAtEveryInterval) {
  // Those that live there and the staging buffers: i = 1: 0 + 2; 2: 4 + 1; 3: 6 + 1; 4: 6 + 1; 5..8: 7 + 1.
  const std::vector<std::int32_t> single{2, 5, 7, 7, 8, 8, 8, 8, 8};
  // With two buffers for two layers or more on the host: 2: 4 + 2; 3 and 4: 6 + 2.
  const std::vector<std::int32_t> twice{2, 6, 8, 8, 8, 8, 8, 8, 8};
  WeightMemory memory = kMemory;
  memory.double_buffer = true;
  for (std::int32_t i = 1; i <= 9; ++i) {
    EXPECT_EQ(kMemory.gpu_layers(i), single[static_cast<std::size_t>(i - 1)]) << "interval " << i;
    EXPECT_EQ(memory.gpu_layers(i), twice[static_cast<std::size_t>(i - 1)]) << "interval " << i;
  }
  EXPECT_EQ(kMemory.gpu_layers(kAllResident), 8);
}

TEST(WeightMemory, LargestInterval) {
  // KV beside 16 GB: no KV leaves 8 layers, 2 GB leave 7 (i = 4), 6 GB leave 5 (i = 2), 12 GB leave 2 (i = 1), and 12
  // GB plus one byte leave none.
  EXPECT_EQ(max_interval(kMemory, gb(0)), kAllResident);
  EXPECT_EQ(max_interval(kMemory, Bytes(1)), 4);
  EXPECT_EQ(max_interval(kMemory, gb(2)), 4);
  EXPECT_EQ(max_interval(kMemory, gb(2) + Bytes(1)), 2);
  EXPECT_EQ(max_interval(kMemory, gb(6)), 2);
  EXPECT_EQ(max_interval(kMemory, gb(6) + Bytes(1)), 1);
  EXPECT_EQ(max_interval(kMemory, gb(12)), 1);
  EXPECT_EQ(max_interval(kMemory, gb(12) + Bytes(1)), std::nullopt);
}

TEST(WeightMemory, MaximumAllocatableLength) {
  EXPECT_EQ(max_kv(kMemory, kAllResident), gb(0));
  EXPECT_EQ(max_kv(kMemory, 4), gb(2));
  EXPECT_EQ(max_kv(kMemory, 2), gb(6));
  EXPECT_EQ(max_kv(kMemory, 1), gb(12));
  EXPECT_EQ(max_kv_tokens(kMemory, 4, Bytes(700'000)), Tokens(2857));  // 2857.1
  WeightMemory small = kMemory;
  small.gpu = gb(19);
  EXPECT_EQ(max_kv(small, 8), gb(0));

  // Qwen1.5-7B: a layer is (4 * 4096^2 + 3 * 4096 * 11008) * 2 = 404,750,336 bytes, a token's KV 2 * 32 * 4096 * 2 =
  // 524,288: each layer that moves to the host makes room for 772.0 tokens (Fig. 14), but for the staging buffers.
  const WeightMemory qwen{.gpu = gb(22),
                          .layer = Bytes(404'750'336),
                          .layers = 32,
                          .embeddings = Bytes(2L * 151'936 * 4096 * 2),
                          .activations = gb(1)};
  const Bytes token(524'288);
  const Tokens all = max_kv_tokens(qwen, kAllResident, token);
  // 22e9 - 32 * 404,750,336 - 2,489,319,424 - 1e9 = 5,558,669,824 bytes: 10,602.3 tokens.
  EXPECT_EQ(all, Tokens(10'602));
  for (std::int32_t i = 1; i <= 32; ++i) {
    const std::int64_t moved = 32 / i - (i == 1 ? 2 : 1);
    EXPECT_EQ(max_kv_tokens(qwen, i, token), all + Tokens(772 * moved)) << "interval " << i;
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// Both

RecordEntry entry(std::optional<std::int32_t> interval) {
  return {.batch = 4, .sequence = Tokens(128), .slo = ms(48), .unoffloaded = ms(40), .min_interval = interval};
}

TEST(ChooseInterval, BetweenWhatTheSloAllowsAndWhatMemoryNeeds) {
  // 2 GB of KV need offloading interval 4 or less.
  const auto expect = [](std::int32_t min, Bytes kv, std::int32_t largest) {
    const IntervalChoice choice = choose_interval(entry(min), kMemory, kv);
    EXPECT_EQ(choice.interval, min);
    EXPECT_EQ(choice.largest, largest);
    EXPECT_EQ(choice.bound, Bound::none);
    EXPECT_EQ(choice.reason, "");
  };
  expect(1, gb(2), 4);
  expect(4, gb(2), 4);
  expect(8, gb(0), kAllResident);
  expect(kAllResident, gb(0), kAllResident);
}

TEST(ChooseInterval, Rejection_NamesWhatBinds) {
  const auto expect = [](const IntervalChoice& choice, Bound bound, const std::string& reason) {
    EXPECT_EQ(choice.interval, std::nullopt);
    EXPECT_EQ(choice.largest, std::nullopt);
    EXPECT_EQ(choice.bound, bound);
    EXPECT_EQ(choice.reason, reason);
  };
  RecordEntry below = entry(std::nullopt);
  below.unoffloaded = us(48'001);
  expect(choose_interval(below, kMemory, gb(0)), Bound::slo,
         "the SLO of 48.000 ms is below the 48.001 ms that an iteration of batch 4 and sequence 128 takes with every "
         "layer on the GPU");
  expect(
      choose_interval(entry(1), kMemory, gb(13)), Bound::memory,
      "at offloading interval 1, 2 layers of 2.000 GB, 1.000 GB of embeddings, 3.000 GB of activations and 13.000 GB "
      "of KV take 21.000 GB of the GPU's 20.000 GB");
  expect(
      choose_interval(entry(5), kMemory, gb(2)), Bound::slo_and_memory,
      "the SLO of 48.000 ms, 8.000 ms above the best time of batch 4 and sequence 128, needs offloading interval 5 or "
      "more, but the memory needs interval 4 or less: with offloading interval 5, 8 layers of 2.000 GB, 1.000 GB of "
      "embeddings, 3.000 GB of activations and 2.000 GB of KV take 22.000 GB of the GPU's 20.000 GB");
  expect(choose_interval(entry(kAllResident), kMemory, gb(12)), Bound::slo_and_memory,
         "the SLO of 48.000 ms, 8.000 ms above the best time of batch 4 and sequence 128, needs all layers on the GPU, "
         "but the memory needs interval 1 or less: with all layers on the GPU, 8 layers of 2.000 GB, 1.000 GB of "
         "embeddings, "
         "3.000 GB of activations and 12.000 GB of KV take 32.000 GB of the GPU's 20.000 GB");
}

}  // namespace
}  // namespace spillway
