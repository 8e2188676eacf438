// FlexGen's cost model against its formulas written out plainly, and the linear program against an exhaustive grid.
#include "policies/parts/flexgen_cost_model.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "sim/core/error.hpp"

namespace spillway {
namespace {

constexpr double kGiB = 1073741824.0;
constexpr FlexgenModel kOpt30b{.layers = 48, .hidden = 7168, .ffn = 28672, .heads = 56, .query = 7168, .kv = 7168};
constexpr FlexgenModel kOpt1b{.layers = 24, .hidden = 2048, .ffn = 8192, .heads = 32, .query = 2048, .kv = 2048};
constexpr FlexgenShares kOnCpu{0.0, 1.0, 0.0};
constexpr FlexgenShares kOnGpu{1.0, 0.0, 0.0};

// ---------------------------------------------------------------------------------------------------------------------
// The formulas once more, in scalars: traffic = what each share sends through each channel, over its bandwidth.

struct Plain {
  double prefill, decode, throughput, gpu, cpu, disk;
};

Plain plain(const FlexgenModel& model, const FlexgenWorkload& workload, const FlexgenHardware& hw,
            const FlexgenPolicy& p) {
  const auto l = static_cast<double>(model.layers);
  const auto h1 = static_cast<double>(model.hidden);
  const auto h2 = static_cast<double>(model.ffn);
  const auto q = static_cast<double>(model.query);
  const auto k = static_cast<double>(model.kv);
  const auto nh = static_cast<double>(model.heads);
  const auto s = static_cast<double>(workload.prompt);
  const auto n = static_cast<double>(workload.generated);
  const auto gbs = static_cast<double>(p.gpu_batch);
  const double bls = gbs * static_cast<double>(p.batches);
  const double wi = 2 * (2 * h1 * q + 2 * h1 * k + 2 * h1 * h2);
  const auto& [wg, wc, wn] = p.weights;
  const auto& [cg, cc, cn] = p.cache;
  const auto& [hg, hc, hn] = p.hidden;

  const double ctog_p = ((wc + wn) * wi + (hc + hn) * 2 * s * h1 * bls) / hw.h2d;
  const double gtoc_p = (cc + cn) * 4 * (s + 1) * k * bls / hw.d2h_cache + (hc + hn) * 2 * s * h1 * bls / hw.d2h_hidden;
  const double dtoc_p = (wn * wi + hn * 2 * s * h1 * bls) / hw.disk_read;
  const double ctod_p =
      cn * 4 * (s + 1) * k * bls / hw.disk_write_cache_prefill + hn * 2 * s * h1 * bls / hw.disk_write_hidden_prefill;
  const double comp_p = bls * s * 2 * (2 * h1 * q + 2 * h1 * k + 2 * h1 * h2) / hw.gemm_prefill +
                        4 * bls * s * s * q / hw.attention_prefill;

  const double a = std::max(0.0, std::log2(64 / gbs));
  const double b = std::max(0.0, std::log2(4096 / h1));
  const double cpu_rate =
      hw.cpu_attention * std::max(0.1, 1 + hw.cpu_batch_and_hidden * a * b - hw.cpu_batch * a - hw.cpu_hidden * b);
  const double attention = 4 * bls * (s + n / 2) * q;
  const double ctog_g = ((wc + wn) * wi + (hc + hn) * 2 * h1 * bls) / hw.h2d;
  const double gtoc_g = (hc + hn) * 2 * h1 * bls / hw.d2h_hidden;
  const double dtoc_g = (cn * 4 * (s + n / 2) * k * bls + wn * wi + hn * 2 * h1 * bls) / hw.disk_read;
  const double ctod_g = (cn * 4 * k * bls + hn * 2 * h1 * bls) / hw.disk_write_decode;
  const double comp_g = bls * 4 * h1 * (q + k + h2) / hw.gemm_decode + cg * attention / hw.attention_decode +
                        (cc + cn) * attention / cpu_rate;

  Plain r{};
  r.prefill = std::max({ctog_p + dtoc_p, gtoc_p + ctod_p, comp_p});
  r.decode = ctog_g + std::max({gtoc_g, dtoc_g, ctod_g, comp_g});
  r.throughput = bls * n / (l * r.prefill + l * (n - 1) * r.decode);

  const double kv = 4 * (s + n) * k;  // bytes of a request's cache in one layer, at its end
  const double gpu_p = wi * l * wg + 2 * s * h1 * bls * hg + kv * bls * l * cg + 2 * wi * (1 - wg) +
                       (1 - hg) * 2 * s * h1 * gbs + gbs * s * (2 * h1 + 2 * q + 4 * k) +
                       gbs * (2 * s * q + 2 * s * k + 2 * nh * s * s) + gbs * 4 * s * h1 + 2 * gbs * s * (h1 + h2);
  const double gpu_g = wi * l * wg + 2 * h1 * bls * hg + kv * bls * l * cg + 2 * wi * (1 - wg) +
                       (1 - hg) * 2 * h1 * gbs + gbs * (2 * h1 + 2 * q + 4 * k) +
                       cg * gbs * (2 * q + 2 * (s + n) * k + 2 * nh * (s + n)) + 4 * gbs * h1 + 2 * gbs * (h1 + h2);
  const double cpu_p =
      wi * l * wc + 2 * s * h1 * bls * hc + kv * bls * l * cc + (1 - wg) * wi + (1 - hg) * 2 * s * h1 * gbs;
  const double cpu_g = wi * l * wc + 2 * h1 * bls * hc + kv * bls * l * cc + wn * wi + hn * 2 * h1 * gbs +
                       2 * cn * kv * gbs + (1 - cg) * (2 * nh * (s + n) * gbs + 2 * q * gbs);
  r.gpu = std::max(gpu_p, gpu_g);
  r.cpu = std::max(cpu_p, cpu_g);
  r.disk = wi * l * wn + 2 * s * h1 * bls * hn + kv * bls * l * cn;
  return r;
}

bool fits(const Plain& p, const FlexgenHardware& hw, double tolerance) {
  const double limit = hw.usable * (1.0 + tolerance);
  return p.gpu <= limit * hw.gpu_memory && p.cpu <= limit * hw.cpu_memory && p.disk <= limit * hw.disk_memory;
}

// ---------------------------------------------------------------------------------------------------------------------

TEST(FlexgenCostModel, Opt30bOnAT4_IsThePublishedEstimate) {
  // gbs 48 x 3, weights 20/80, cache and activations on the CPU, s = 512, n = 32; GB = 2^30, bls = 144, h2 = 4 h1:
  //   wi    = 8 * 7168^2 + 4 * 7168 * 28672 = 24 * 7168^2 = 1,233,125,376
  //   H2D   = (0.8 wi + 2 * 512 * 7168 * 144 = 1,056,964,608) / 12.89 GB = 2,043,464,909 / 13,840,532,111 = 0.14764
  //   D2H   = 4 * 513 * 7168 * 144 / 0.97 GB + 1,056,964,608 / 4.82 GB = 2.03360 + 0.20423 = 2.23783
  //   comp  = 144 * 512 wi / 21.24e12 + 4 * 144 * 512^2 * 7168 / 9.97e12 = 4.28042 + 0.10856 = 4.38897 when rounded
  //   last:
  //           the busiest, T_pre
  //   H2D'  = (0.8 wi + 2 * 7168 * 144 = 2,064,384) / 12.89 GB = 0.07143
  //   comp' = 144 wi / 4.3e12 = 0.04130; CPU attention 4 * 144 * 528 * 7168 = 2.17999e9 FLOP at
  //           0.0123e12 * (1 - 0.0328 * log2(64/48) = 0.98639) takes 0.17968; together 0.22098; D2H' is 0.00040
  //   T_gen = 0.07143 + 0.22098 = 0.29240; total 48 * (4.38897 + 31 * 0.29240) = 645.764 s; 144 * 32 / that = 7.1357.
  // On the GPU: 0.2 * 48 wi = 11.025 GiB, two buffers of 0.8 wi = 1.8375, and with u = 2 * 512 * 7168 * 48 bytes =
  // 0.328125 GiB one u of hidden states and intermediates of 4 + (2 + 4) + 2 + 5 = 17 u: 5.90625. Together 18.76875.
  EXPECT_EQ(kOpt30b.layer_bytes(), 1'233'125'376.0);
  const FlexgenPolicy policy{48, 3, {0.2, 0.8, 0.0}, kOnCpu, kOnCpu};
  const FlexgenEstimate e = flexgen_estimate(kOpt30b, {512, 32}, t4_constants(), policy);
  EXPECT_NEAR(e.prefill.h2d, 0.14764, 5e-6);
  EXPECT_NEAR(e.prefill.d2h, 2.23783, 5e-6);
  EXPECT_NEAR(e.prefill.compute, 4.38897, 5e-6);
  EXPECT_EQ(e.prefill_layer, e.prefill.compute);
  EXPECT_NEAR(e.decode.h2d, 0.07143, 5e-6);
  EXPECT_NEAR(e.decode.compute, 0.22098, 5e-6);
  EXPECT_NEAR(e.decode.d2h, 2'064'384 / (4.82 * kGiB), 1e-12);
  EXPECT_NEAR(e.decode_layer, 0.29240, 5e-6);
  EXPECT_NEAR(e.total, 645.764, 5e-4);
  EXPECT_NEAR(e.throughput, 7.1357, 5e-5);
  EXPECT_EQ(e.prefill.disk_read + e.prefill.disk_write + e.decode.disk_read + e.decode.disk_write + e.disk_peak, 0.0);
  EXPECT_NEAR(e.gpu_peak / kGiB, 18.76875, 1e-9);
  EXPECT_FALSE(e.fits);  // a T4 has 15 GiB, of which a policy may take 12
}

TEST(FlexgenCostModel, Estimate_IsTheFormulas) {
  std::mt19937_64 random(7);
  const auto integer = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
  };
  const auto shares = [&] {
    const std::int64_t gpu = integer(0, 16);
    const std::int64_t cpu = integer(0, 16 - gpu);
    return FlexgenShares{static_cast<double>(gpu) / 16, static_cast<double>(cpu) / 16,
                         static_cast<double>(16 - gpu - cpu) / 16};
  };
  const FlexgenHardware hw = t4_constants();
  int fit = 0;
  for (int i = 0; i < 2000; ++i) {
    FlexgenModel model{integer(1, 60), 64 * integer(1, 150), 64 * integer(1, 500), integer(1, 100)};
    model.query = i % 2 == 0 ? model.hidden : 64 * integer(1, 150);
    model.kv = i % 2 == 0 ? model.hidden : 64 * integer(1, 150);
    const FlexgenWorkload workload{integer(1, 2000), integer(1, 300)};
    const FlexgenPolicy policy{integer(1, 100), integer(1, 8), shares(), shares(), shares()};
    const FlexgenEstimate e = flexgen_estimate(model, workload, hw, policy);
    const Plain expected = plain(model, workload, hw, policy);
    const auto near = [](double actual, double wanted) { EXPECT_NEAR(actual, wanted, 1e-9 * (1e-9 + wanted)); };
    near(e.prefill_layer, expected.prefill);
    near(e.decode_layer, expected.decode);
    near(e.throughput, expected.throughput);
    near(e.gpu_peak, expected.gpu);
    near(e.cpu_peak, expected.cpu);
    near(e.disk_peak, expected.disk);
    EXPECT_EQ(e.fits, fits(expected, hw, 0.0));
    fit += e.fits ? 1 : 0;
  }
  EXPECT_GT(fit, 100);
  EXPECT_LT(fit, 1900);
}

TEST(FlexgenCostModel, CpuRate_FallsWithSmallBatchesAndModels) {
  // a = log2(64 / 1) = 6 and b = log2(4096 / 2048) = 1: 1 + 0.0168 * 6 - 0.0328 * 6 - 0.0621 = 0.8419. Neither counts
  // from a batch of 64 and a hidden size of 4096 on; a fit that goes below a tenth ends there.
  FlexgenHardware hw = t4_constants();
  EXPECT_NEAR(cpu_attention_rate(hw, 1, 2048), 0.8419 * 0.0123e12, 1.0);
  EXPECT_EQ(cpu_attention_rate(hw, 64, 4096), 0.0123e12);
  EXPECT_EQ(cpu_attention_rate(hw, 512, 12288), 0.0123e12);
  hw.cpu_batch = 1.0;
  EXPECT_NEAR(cpu_attention_rate(hw, 1, 4096), 0.1 * 0.0123e12, 1e-3);
}

TEST(FlexgenCostModel, ArgumentsOutOfRange_AreAllNamed) {
  FlexgenHardware hw = t4_constants();
  const FlexgenPolicy good{1, 1, kOnGpu, kOnGpu, kOnGpu};
  const auto problems = [&](const FlexgenModel& model, const FlexgenPolicy& policy) {
    try {
      static_cast<void>(flexgen_estimate(model, {512, 32}, hw, policy));
    } catch (const ConfigError& error) {
      return error.problems().size();
    }
    return std::size_t{0};
  };
  EXPECT_EQ(problems(kOpt1b, good), 0U);
  EXPECT_EQ(problems(FlexgenModel{}, good), 6U);
  EXPECT_EQ(problems(kOpt1b, {0, 0, kOnGpu, kOnGpu, kOnGpu}), 2U);
  EXPECT_EQ(problems(kOpt1b, {1, 1, {1.5, -0.5, 0.0}, {0.5, 0.4, 0.0}, kOnGpu}), 3U);
  hw.h2d = 0.0;
  hw.disk_memory = -1.0;
  hw.usable = 1.1;
  EXPECT_EQ(problems(kOpt1b, good), 3U);
  EXPECT_THROW(static_cast<void>(flexgen_search(kOpt1b, {512, 32}, hw)), ConfigError);
  EXPECT_THROW(static_cast<void>(flexgen_place(kOpt1b, {512, 32}, t4_constants(), 0, 1)), ConfigError);
}

// ---------------------------------------------------------------------------------------------------------------------

std::vector<FlexgenShares> grid(int parts, bool disk) {
  std::vector<FlexgenShares> points;
  for (int gpu = 0; gpu <= parts; ++gpu) {
    for (int cpu = 0; cpu <= parts - gpu; ++cpu) {
      const int rest = parts - gpu - cpu;
      if (rest > 0 && !disk) continue;
      points.push_back({1.0 * gpu / parts, 1.0 * cpu / parts, 1.0 * rest / parts});
    }
  }
  return points;
}

struct Case {
  const char* name;
  FlexgenModel model;
  FlexgenWorkload workload;
  FlexgenHardware hardware;
  std::int64_t gpu_batch;
  std::int64_t batches;
};

std::vector<Case> cases() {
  const FlexgenHardware t4 = t4_constants();
  FlexgenHardware no_disk = t4;
  no_disk.disk_memory = 0.0;
  FlexgenHardware small_cpu = t4;  // most of the model has to be on the disk
  small_cpu.cpu_memory = 30.0 * kGiB;
  FlexgenHardware fast = t4;  // compute that waits for the links, so that every gigabyte on the GPU counts
  fast.gemm_prefill = fast.attention_prefill = fast.gemm_decode = fast.attention_decode = 300e12;
  fast.cpu_attention = 0.5e12;
  fast.gpu_memory = 24.0 * kGiB;
  FlexgenHardware fast_disk = fast;
  fast_disk.disk_read = fast_disk.disk_write_cache_prefill = fast_disk.disk_write_hidden_prefill =
      fast_disk.disk_write_decode = 6.0 * kGiB;
  fast_disk.cpu_memory = 50.0 * kGiB;
  FlexgenHardware slow_writes = fast_disk;  // the disk is where data comes from, but should not go
  slow_writes.disk_write_cache_prefill = slow_writes.disk_write_hidden_prefill = 0.3 * kGiB;
  FlexgenHardware slow_reads = fast_disk;  // the other way round
  slow_reads.disk_read = 0.3 * kGiB;
  slow_reads.cpu_memory = 40.0 * kGiB;
  // A little has to be on the disk: weights, or cache, which takes the prefill longer but the many decodes less.
  FlexgenHardware spill = t4;
  spill.cpu_memory = 64.0 * kGiB;
  spill.disk_write_cache_prefill = 0.02 * kGiB;
  return {{"T4", kOpt30b, {512, 32}, t4, 8, 12},
          {"T4, no disk", kOpt30b, {512, 32}, no_disk, 8, 12},
          {"little CPU memory", kOpt30b, {512, 32}, small_cpu, 4, 8},
          {"fast compute", kOpt30b, {512, 128}, fast, 8, 4},
          {"fast disk", kOpt30b, {1024, 8}, fast_disk, 4, 16},
          {"slow disk writes", kOpt30b, {1024, 2}, slow_writes, 4, 16},
          {"slow disk reads", kOpt30b, {1024, 1}, slow_reads, 4, 16},
          {"a little on the disk", kOpt30b, {16, 512}, spill, 4, 5},
          {"fast compute, one token", kOpt30b, {512, 1}, fast, 8, 4},
          {"a model that fits the GPU", kOpt1b, {256, 64}, t4, 16, 2},
          {"cache that does not", kOpt1b, {1024, 64}, fast, 32, 16}};
}

TEST(FlexgenPlace, IsAtLeastAsGoodAsEveryPointOfAGrid) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const std::optional<FlexgenChoice> choice = flexgen_place(c.model, c.workload, c.hardware, c.gpu_batch, c.batches);
    ASSERT_TRUE(choice);
    const Plain taken = plain(c.model, c.workload, c.hardware, choice->policy);
    EXPECT_TRUE(fits(taken, c.hardware, 1e-7));
    EXPECT_TRUE(choice->estimate.fits);
    EXPECT_NEAR(choice->estimate.throughput, taken.throughput, 1e-9 * taken.throughput);
    for (const FlexgenShares& shares : {choice->policy.weights, choice->policy.cache, choice->policy.hidden}) {
      EXPECT_GE(std::min({shares.gpu, shares.cpu, shares.disk}), 0.0);
      EXPECT_NEAR(shares.gpu + shares.cpu + shares.disk, 1.0, 1e-12);
      EXPECT_TRUE(c.hardware.disk_memory > 0.0 || shares.disk == 0.0);
    }

    double best = 0.0;
    FlexgenPolicy policy = choice->policy;
    const std::vector<FlexgenShares> points = grid(8, c.hardware.disk_memory > 0.0);
    for (const FlexgenShares& weights : points) {
      for (const FlexgenShares& cache : points) {
        for (const FlexgenShares& hidden : points) {
          policy.weights = weights;
          policy.cache = cache;
          policy.hidden = hidden;
          const Plain point = plain(c.model, c.workload, c.hardware, policy);
          if (fits(point, c.hardware, 0.0)) best = std::max(best, point.throughput);
        }
      }
    }
    EXPECT_GT(best, 0.0);  // the grid has a feasible point
    EXPECT_GE(taken.throughput, best * (1.0 - 1e-9));
  }
}

TEST(FlexgenPlace, OfEquallyFastPlacements_TakesTheOneNearestToTheGpu) {
  // One request of a small model: the GPU holds all of it. 64 * 9 of OPT-6.7B: decode hides some reading from the disk
  // behind the CPU's attention, but the CPU has room for all that it would read.
  const auto small = flexgen_place(kOpt1b, {512, 32}, t4_constants(), 1, 1);
  ASSERT_TRUE(small);
  for (const FlexgenShares& shares : {small->policy.weights, small->policy.cache, small->policy.hidden}) {
    EXPECT_EQ(shares.gpu, 1.0);
  }
  const FlexgenModel opt6b{.layers = 32, .hidden = 4096, .ffn = 16384, .heads = 32, .query = 4096, .kv = 4096};
  const auto large = flexgen_place(opt6b, {512, 32}, t4_constants(), 64, 9);
  ASSERT_TRUE(large);
  EXPECT_EQ(large->policy.weights.disk + large->policy.cache.disk + large->policy.hidden.disk, 0.0);
  EXPECT_LT(large->policy.weights.gpu, 1.0);
}

TEST(FlexgenPlace, TooLittleMemory_IsNoPlacement) {
  // Two buffers for a layer's weights alone are 2.3 GiB unless all 55 GiB of weights are on the GPU.
  FlexgenHardware hw = t4_constants();
  hw.gpu_memory = 2.0 * kGiB;
  EXPECT_FALSE(flexgen_place(kOpt30b, {512, 32}, hw, 1, 1));
  EXPECT_FALSE(flexgen_search(kOpt30b, {512, 32}, hw));
  // 0.8 * (15 + 30) GiB do not hold the 55.1 GiB of weights, nor do 0.8 * (15 + 30 + 20); with a larger disk they fit.
  hw = t4_constants();
  hw.cpu_memory = 30.0 * kGiB;
  hw.disk_memory = 0.0;
  EXPECT_FALSE(flexgen_place(kOpt30b, {512, 32}, hw, 1, 1));
  EXPECT_FALSE(flexgen_search(kOpt30b, {512, 32}, hw));
  hw.disk_memory = 20.0 * kGiB;
  EXPECT_FALSE(flexgen_place(kOpt30b, {512, 32}, hw, 1, 1));
  hw.disk_memory = 100.0 * kGiB;
  EXPECT_TRUE(flexgen_place(kOpt30b, {512, 32}, hw, 1, 1));
  // A block whose cache is larger than all memory: 4 * 544 * 7168 * 48 bytes = 0.697 GiB per request.
  EXPECT_FALSE(flexgen_place(kOpt30b, {512, 32}, hw, 1, 300));
}

TEST(FlexgenSearch, IsTheBestOfAllBlocks) {
  for (Case c : cases()) {
    SCOPED_TRACE(c.name);
    c.hardware.disk_memory = std::min(c.hardware.disk_memory, 60.0 * kGiB);  // few enough blocks to try each
    double best = 0.0;
    FlexgenPolicy policy{};
    for (std::int64_t gpu_batch = 1; flexgen_place(c.model, c.workload, c.hardware, gpu_batch, 1);
         gpu_batch += gpu_batch < 4 ? 1 : gpu_batch) {
      std::optional<FlexgenChoice> of_batch;  // the first number of batches that none beats
      for (std::int64_t batches = 1;; ++batches) {
        const auto choice = flexgen_place(c.model, c.workload, c.hardware, gpu_batch, batches);
        if (!choice) break;
        if (!of_batch || choice->estimate.throughput > of_batch->estimate.throughput * (1.0 + 1e-9)) of_batch = choice;
      }
      if (of_batch->estimate.throughput < best * (1.0 - 1e-9)) continue;
      best = of_batch->estimate.throughput;
      policy = of_batch->policy;
    }
    const std::optional<FlexgenChoice> found = flexgen_search(c.model, c.workload, c.hardware);
    ASSERT_TRUE(found);
    EXPECT_NEAR(found->estimate.throughput, best, 1e-8 * best);
    EXPECT_EQ(found->policy.gpu_batch, policy.gpu_batch);
    EXPECT_EQ(found->policy.batches, policy.batches);
    // Repeating the search gives the same result to the last bit.
    const std::optional<FlexgenChoice> again = flexgen_search(c.model, c.workload, c.hardware);
    EXPECT_EQ(again->estimate.throughput, found->estimate.throughput);
    EXPECT_EQ(again->policy.weights.gpu, found->policy.weights.gpu);
    EXPECT_EQ(again->policy.cache.gpu, found->policy.cache.gpu);
    EXPECT_EQ(again->policy.hidden.gpu, found->policy.hidden.gpu);
  }
}

// ---------------------------------------------------------------------------------------------------------------------

TEST(SloAwareHostFraction, IsWhatTheBusCarriesWithinTheObjective) {
  // A layer of 1 ms with 50 % to spare; two GPUs share 24 GB/s: 1.5 ms * 12 GB/s = 18 MB of 36 MB. Without slack 12 MB.
  EXPECT_NEAR(slo_aware_host_fraction(1e-3, 0.5, 36e6, 24e9, 2), 0.5, 1e-12);
  EXPECT_NEAR(slo_aware_host_fraction(1e-3, 0.0, 36e6, 24e9, 2), 1.0 / 3.0, 1e-12);
  EXPECT_EQ(slo_aware_host_fraction(1e-3, 0.5, 36e6, 24e9, 1), 1.0);  // 36 MB
  EXPECT_EQ(slo_aware_host_fraction(1e-3, 9.0, 36e6, 24e9, 1), 1.0);
  EXPECT_EQ(slo_aware_host_fraction(0.0, 0.5, 36e6, 24e9, 1), 0.0);
  EXPECT_EQ(slo_aware_host_fraction(0.0, 0.5, 0.0, 24e9, 1), 1.0);
  // An A10 at 125 TFLOP/s, as in Select-N: the largest fraction, by bisection of the condition itself.
  for (const double delta : {0.0, 0.2, 1.0}) {
    const double t = 4e-4;
    const auto holds = [&](double f) { return std::max(t, f * 0.4e9 / (24e9 / 3)) <= (1.0 + delta) * t; };
    double low = 0.0;
    double high = 1.0;
    for (int i = 0; i < 60; ++i) (holds((low + high) / 2) ? low : high) = (low + high) / 2;
    EXPECT_NEAR(slo_aware_host_fraction(t, delta, 0.4e9, 24e9, 3), low, 1e-12);
  }
  EXPECT_THROW(static_cast<void>(slo_aware_host_fraction(1e-3, -0.1, 36e6, 24e9, 2)), ConfigError);
  EXPECT_THROW(static_cast<void>(slo_aware_host_fraction(1e-3, 0.1, 36e6, 0.0, 0)), ConfigError);
}

}  // namespace
}  // namespace spillway
