// The policies that leave tensors of layers on the host against the recurrences of tests/oracle/plain_offload.hpp,
// to the nanosecond, on random models: dense ones, mixtures of experts, and layers that differ.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "tests/oracle/plain_offload.hpp"
#include "tests/support/cases.hpp"
#include "tests/unit/expert_bench.hpp"

namespace spillway {
namespace {

using oracle::PlainOffloadCounts;
using oracle::PlainOffloadModel;
using oracle::PlainPrefetch;
using oracle::PlainTensor;
using oracle::PlainUva;

constexpr std::uint64_t kCases = 400;
constexpr std::int64_t kExperts = 16;  // of a layer, so that shares are exact
constexpr std::int64_t kBeside = 100;  // bytes of weights outside the layers

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  /// `least` to `most`.
  std::int64_t in(std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(most - least + 1));
  }
  bool one_in(std::int64_t n) { return in(1, n) == 1; }

 private:
  std::mt19937_64 engine_;
};

/// Small whole numbers, so that many events fall on one instant, or larger ones. Layers are alike, or each is
/// drawn.
PlainOffloadModel random_model(Random& random) {
  const std::int64_t scale = random.one_in(2) ? 1 : random.in(2, 100);
  const bool dense = random.one_in(3);
  const std::int64_t longest = random.in(1, 8) * scale;
  const std::int64_t largest = random.in(1, 12) * scale;
  const auto tensors = [&] {
    std::vector<PlainTensor> drawn(static_cast<std::size_t>(random.in(random.one_in(8) ? 0 : 1, 4)));
    for (PlainTensor& tensor : drawn) tensor = {random.in(1, largest), !dense && random.one_in(2)};
    return drawn;
  };
  PlainOffloadModel model;
  model.launch = random.one_in(2) ? 0 : random.in(1, 2 * scale);
  const std::int64_t layers = random.in(1, 12);
  const bool alike = random.one_in(3);
  const bool same_time = random.one_in(2);
  for (std::int64_t l = 0; l < layers; ++l) {
    model.tensors.push_back(alike && l > 0 ? model.tensors.front() : tensors());
    model.compute.push_back(same_time && l > 0 ? model.compute.front() : random.in(0, longest));
  }
  const bool has_experts = std::any_of(model.tensors.begin(), model.tensors.end(), [](const auto& layer) {
    return std::any_of(layer.begin(), layer.end(), [](const PlainTensor& tensor) { return tensor.experts; });
  });
  model.experts_only = has_experts && random.one_in(3);
  return model;
}

/// Experts of a layer that an iteration uses.
std::int64_t used_by(std::int64_t tokens) { return std::min(kExperts, 3 * tokens); }

class Bench {
 public:
  Bench(const std::string& policy, const PlainOffloadModel& model, Overrides overrides)
      : times_(static_cast<std::int32_t>(model.tensors.size()), Duration(model.compute.front()), 1e9,
               Duration(model.launch)),
        bench_(policy, times_, deployment_of(model), with_params(model, std::move(overrides))) {
    // Layers of one time take the executor's way past those that start no copy.
    const auto differs = [&](std::int64_t time) { return time != model.compute.front(); };
    if (std::none_of(model.compute.begin(), model.compute.end(), differs)) return;
    for (const std::int64_t time : model.compute) bench_.layer_times.emplace_back(time);
  }
  ExpertBench& operator*() { return bench_; }
  ExpertBench* operator->() { return &bench_; }

  static Bytes weights_of(const PlainOffloadModel& model) {
    Bytes all(kBeside);
    for (const auto& layer : model.tensors) {
      for (const PlainTensor& tensor : layer) all += Bytes(tensor.bytes);
    }
    return all;
  }

 private:
  static Deployment deployment_of(const PlainOffloadModel& model) {
    Deployment deployment;
    deployment.layers = static_cast<std::int32_t>(model.tensors.size());
    bool has_experts = false;
    for (const auto& layer : model.tensors) {
      std::vector<LayerTensor>& tensors = deployment.tensors.emplace_back();
      for (const PlainTensor& tensor : layer) {
        tensors.push_back({Bytes(tensor.bytes), tensor.experts});
        has_experts = has_experts || tensor.experts;
      }
    }
    if (has_experts) {
      deployment.active_experts = [](std::int64_t tokens) {
        return static_cast<double>(used_by(tokens)) / static_cast<double>(kExperts);
      };
    }
    deployment.weights = weights_of(model);
    deployment.memory = deployment.weights + Bytes(1'000'000);
    deployment.block_bytes = Bytes(10);
    deployment.gpu_kv = Bytes(1000);
    deployment.gpu_kv_given = true;
    deployment.experts.emplace();  // the bench's routers, which no policy here asks
    return deployment;
  }
  static Overrides with_params(const PlainOffloadModel& model, Overrides overrides) {
    overrides.emplace_back("policy.offload_params", std::string(model.experts_only ? "experts" : "all"));
    return overrides;
  }

  ExpertModel times_;
  ExpertBench bench_;
};

/// A kind of event that a case may meet.
struct Path {
  const char* name;
  std::int64_t PlainOffloadCounts::*count;
};
constexpr Path kHost{"tensors on the host", &PlainOffloadCounts::host};
constexpr Path kSplit{"layers on both sides", &PlainOffloadCounts::split};
constexpr Path kOvershot{"budgets that the last tensor exceeds", &PlainOffloadCounts::overshot};
constexpr Path kInPart{"tensors read in part", &PlainOffloadCounts::in_part};
constexpr Path kWaited{"waits for a copy", &PlainOffloadCounts::waited};
constexpr Path kArrived{"copies in time", &PlainOffloadCounts::arrived};
constexpr Path kQueued{"copies that waited for the one before", &PlainOffloadCounts::queued};
constexpr Path kRanOn{"copies that ran into the next iteration", &PlainOffloadCounts::ran_on};
constexpr Path kUnequal{"unequal layers on the host", &PlainOffloadCounts::unequal};
constexpr Path kTurned{"slots that do not divide the layers", &PlainOffloadCounts::turned};
constexpr Path kSpare{"more slots than layers", &PlainOffloadCounts::spare};

/// The counts of each case.
using Cases = std::vector<PlainOffloadCounts>;

void uva_case(std::uint64_t seed, Cases& cases) {
  Random random(seed);
  const PlainOffloadModel model = random_model(random);
  const std::int64_t budget = random.in(0, Bench::weights_of(model).count());
  const bool in_place = !random.one_in(3);
  struct Efficiency {
    double value;
    std::int64_t faster;
    std::int64_t slower;
  };
  constexpr std::array<Efficiency, 4> kEfficiencies{{{1.0, 1, 1}, {0.5, 1, 2}, {0.6, 3, 5}, {0.75, 3, 4}}};
  const Efficiency efficiency = kEfficiencies.at(static_cast<std::size_t>(random.in(0, 3)));
  Bench bench(
      "vllm-uva", model,
      {{"policy.cpu_offload", Bytes(budget)}, {"policy.uva", in_place}, {"policy.uva_efficiency", efficiency.value}});
  PlainUva plain(model, budget, in_place, efficiency.faster, efficiency.slower);
  const Bytes buffer(in_place ? 0 : plain.counts().largest);
  ASSERT_EQ(bench->layout().host, Bytes(plain.counts().host));
  ASSERT_EQ(bench->layout().weights, Bench::weights_of(model) - Bytes(plain.counts().host) + buffer);
  std::int64_t now = 0;
  const std::int64_t iterations = random.in(2, 8);
  for (std::int64_t i = 0; i < iterations; ++i) {
    const std::int64_t tokens = random.in(1, 4);
    const std::int64_t prompt = random.one_in(4) ? random.in(1, 40) : 0;
    const Duration length = bench->iterate(tokens, prompt);
    const std::int64_t end = plain.iterate(now, used_by(tokens + prompt), kExperts);
    ASSERT_EQ(length.count(), end - now) << "iteration " << i << " of " << iterations;
    ASSERT_EQ(bench->copied(Stream::h2d), Bytes(plain.counts().copied)) << "iteration " << i;
    now = end;
  }
  cases.push_back(plain.counts());
}

void prefetch_case(std::uint64_t seed, Cases& cases) {
  Random random(seed);
  const PlainOffloadModel model = random_model(random);
  const std::int64_t group = random.in(0, std::min<std::int64_t>(std::ssize(model.tensors) + 1, 5));
  const std::int64_t in_group = random.in(1, std::max<std::int64_t>(group, 1));
  const std::int64_t ahead = random.in(1, 4);
  Bench bench("vllm-prefetch", model,
              {{"policy.group_size", group}, {"policy.num_in_group", in_group}, {"policy.prefetch_step", ahead}});
  PlainPrefetch plain(model, group, in_group, ahead);
  ASSERT_EQ(bench->layout().host, Bytes(plain.counts().host));
  ASSERT_EQ(bench->layout().weights,
            Bench::weights_of(model) - Bytes(plain.counts().host) + Bytes(plain.counts().largest) * ahead);
  std::int64_t now = 0;
  const std::int64_t iterations = random.in(3, 12);
  for (std::int64_t i = 0; i < iterations; ++i) {
    const Duration length = bench->iterate(random.in(1, 4), random.one_in(4) ? random.in(1, 40) : 0);
    const std::int64_t end = plain.iterate(now);
    ASSERT_EQ(length.count(), end - now) << "iteration " << i << " of " << iterations;
    ASSERT_EQ(bench->copied(Stream::h2d), Bytes(plain.counts().copied)) << "iteration " << i;
    const std::int64_t pause = random.one_in(3) ? random.in(0, 20) : 0;
    bench->rest(Duration(pause));
    now = end + pause;
  }
  cases.push_back(plain.counts());
}

template <class Case>
Cases run_cases(const Case& run) {
  Cases cases;
  for (std::uint64_t seed = 0; seed < random_cases(kCases); ++seed) {
    SCOPED_TRACE("case " + std::to_string(seed));
    run(seed, cases);
    if (testing::Test::HasFailure()) break;
  }
  return cases;
}

/// Prints how many cases met each path: at least one in `n`.
void expect_met(const Cases& cases, std::initializer_list<Path> paths, std::int64_t n) {
  for (const Path& path : paths) {
    const auto met =
        std::count_if(cases.begin(), cases.end(), [&](const PlainOffloadCounts& one) { return one.*path.count > 0; });
    std::cout << "  " << met << " of " << cases.size() << " cases: " << path.name << "\n";
    EXPECT_GE(met * n, std::ssize(cases)) << path.name;
  }
}

TEST(PlainOffload, VllmUva) { expect_met(run_cases(uva_case), {kHost, kSplit, kOvershot, kInPart, kUnequal}, 10); }

TEST(PlainOffload, VllmPrefetch) {
  expect_met(run_cases(prefetch_case), {kHost, kWaited, kArrived, kQueued, kRanOn, kUnequal, kTurned, kSpare}, 20);
}

}  // namespace
}  // namespace spillway
