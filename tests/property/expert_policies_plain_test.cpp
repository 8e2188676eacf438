// The policies that place experts against the recurrences of tests/oracle/plain_experts.hpp, to the nanosecond, on
// random models, times and routers.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/oracle/plain_experts.hpp"
#include "tests/support/cases.hpp"
#include "tests/unit/expert_bench.hpp"

namespace spillway {
namespace {

using oracle::PlainExpertCounts;
using oracle::PlainExpertModel;
using oracle::PlainExpertPolicy;
using oracle::PlainExpertStep;
using oracle::PlainExpertTimes;

constexpr std::uint64_t kCases = 400;

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  /// `least` to `most`.
  std::int64_t in(std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(most - least + 1));
  }
  bool one_in(std::int64_t n) { return in(1, n) == 1; }
  template <class T>
  void shuffle(std::vector<T>& values) {
    for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[engine_() % i]);
  }

 private:
  std::mt19937_64 engine_;
};

/// Whole nanoseconds. Small ones, so that many events fall on one instant, or larger ones.
PlainExpertTimes random_times(Random& random) {
  const std::int64_t scale = random.one_in(2) ? 1 : random.in(2, 100);
  const auto some = [&](std::int64_t most) { return random.one_in(5) ? 0 : random.in(1, most * scale); };
  PlainExpertTimes times;
  times.step = some(8);
  times.gpu_weights = some(4);
  times.gpu_row = random.one_in(2) ? 0 : some(2);
  times.launch = random.one_in(2) ? 0 : some(2);
  times.copy = some(random.one_in(2) ? 4 : 16);
  times.cpu_weights = some(8);
  times.cpu_row = random.one_in(2) ? 0 : some(4);
  times.cpu_row_many = random.one_in(2) ? times.cpu_row : some(4);
  times.cpu_start = random.one_in(2) ? 0 : some(4);
  times.sync = random.one_in(2) ? 0 : some(3);
  times.hidden = random.one_in(2) || times.copy == 0 ? 0 : some(1);
  return times;
}

PlainExpertModel random_model(Random& random, bool many_experts) {
  PlainExpertModel model;
  model.count = static_cast<std::int32_t>(many_experts ? random.in(60, 140) : random.in(2, 16));
  model.top_k = static_cast<std::int32_t>(random.in(1, std::min<std::int64_t>(4, model.count)));
  model.matrices = random.in(2, 3);
  model.times = random_times(random);
  const std::int64_t layers = random.in(1, 6);
  for (std::int64_t l = 0; l < layers; ++l) model.has_experts.push_back(!random.one_in(5));
  model.has_experts.back() = model.has_experts.back() || random.one_in(2);
  if (std::find(model.has_experts.begin(), model.has_experts.end(), true) == model.has_experts.end()) {
    model.has_experts.front() = true;
  }
  for (const bool has_experts : model.has_experts) {
    if (!has_experts) continue;
    std::vector<std::int32_t> ranking(static_cast<std::size_t>(model.count));
    std::iota(ranking.begin(), ranking.end(), 0);
    random.shuffle(ranking);
    std::vector<double> popularity(ranking.size());
    for (double& one : popularity) one = static_cast<double>(random.in(1, 8)) / 8.0;
    std::stable_sort(ranking.begin(), ranking.end(), [&](std::int32_t a, std::int32_t b) {
      return popularity[static_cast<std::size_t>(a)] > popularity[static_cast<std::size_t>(b)];
    });
    model.rankings.push_back(ranking);
    model.popularity.push_back(popularity);
  }
  return model;
}

/// Requests of one to three kinds. Those of the first one like the experts that the routers like at first. Experts
/// of a layer may be equally popular. Those of different layers are not, so that no order hangs on how a product
/// is rounded.
void add_kinds(Random& random, PlainExpertModel& model) {
  const std::int64_t kinds = random.in(1, 3);
  for (std::int64_t kind = 0; kind < kinds; ++kind) {
    PlainExpertModel::Rows& rows = model.kinds.emplace_back();
    for (std::vector<std::int32_t> order : model.rankings) {
      if (kind > 0) random.shuffle(order);
      std::vector<double> drawn;
      while (drawn.size() < order.size()) {
        drawn.push_back(random.one_in(5) && !drawn.empty() ? drawn.back()
                                                           : static_cast<double>(random.in(1000, 1'000'000)));
      }
      std::sort(drawn.rbegin(), drawn.rend());
      const double per_unit = model.top_k / std::accumulate(drawn.begin(), drawn.end(), 0.0);
      std::vector<double>& row = rows.emplace_back(order.size());
      for (std::size_t i = 0; i < order.size(); ++i) row[static_cast<std::size_t>(order[i])] = drawn[i] * per_unit;
    }
  }
}

/// A token uses top_k different experts: most of them among a few, which change from time to time.
class RandomRouters {
 public:
  RandomRouters(Random& random, const PlainExpertModel& model)
      : random_(random), model_(model), preferred_(model.rankings) {}

  PlainExpertStep step() {
    PlainExpertStep step;
    const std::int64_t kind = random_.in(0, 9);
    step.decodes = kind < 5 ? 1 : kind < 7 ? random_.in(1, 6) : kind == 7 ? random_.in(28, 36) : random_.in(0, 3);
    step.prompt = kind > 7 ? random_.in(0, 40) : 0;
    if (!model_.kinds.empty()) step.shares = shares();
    const bool by_popularity = random_.one_in(2) && step.prompt * model_.top_k >= model_.count;
    for (std::size_t l = 0; by_popularity && l < preferred_.size(); ++l) step.used.push_back(all(l, step.tokens()));
    for (std::vector<std::int32_t>& preferred : preferred_) {
      if (random_.one_in(4)) random_.shuffle(preferred);
      if (by_popularity) {
        step.guesses.push_back(few(preferred, random_.in(0, model_.count)));
        continue;
      }
      std::vector<std::int32_t> tokens(preferred.size());
      for (std::int64_t token = 0; token < step.tokens(); ++token) {
        for (const std::int32_t expert : few(preferred, model_.top_k)) ++tokens[static_cast<std::size_t>(expert)];
      }
      std::vector<ExpertUse>& used = step.used.emplace_back();
      for (std::size_t e = 0; e < tokens.size(); ++e) {
        if (tokens[e] > 0) used.push_back({static_cast<std::int32_t>(e), tokens[e]});
      }
      step.guesses.push_back(few(preferred, step.tokens() > 0 ? random_.in(0, model_.count) : 0));
    }
    return step;
  }

 private:
  /// Of the tokens, by kind: often all are of one.
  std::vector<double> shares() {
    std::vector<double> shares(model_.kinds.size());
    if (random_.one_in(2)) {
      shares[static_cast<std::size_t>(random_.one_in(2) ? 0 : random_.in(0, std::ssize(shares) - 1))] = 1.0;
      return shares;
    }
    for (double& share : shares) share = static_cast<double>(random_.in(1, 1000));
    const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
    for (double& share : shares) share /= all;
    return shares;
  }
  /// All experts of a layer, by popularity: of two, the more popular one has as many tokens, or more.
  std::vector<ExpertUse> all(std::size_t layer, std::int64_t tokens) {
    const std::int64_t rows = model_.top_k * tokens;
    std::vector<std::int32_t> each(static_cast<std::size_t>(model_.count),
                                   static_cast<std::int32_t>(rows / model_.count));
    for (std::int64_t more = rows % model_.count; more > 0; --more) ++each[static_cast<std::size_t>(more - 1)];
    for (std::int64_t moves = random_.in(0, 40); moves > 0; --moves) {
      std::int32_t& from = each[static_cast<std::size_t>(random_.in(0, model_.count - 1))];
      std::int32_t& to = each[static_cast<std::size_t>(random_.in(0, model_.count - 1))];
      if (from == 1 || to == tokens) continue;
      --from;
      ++to;
    }
    std::ranges::sort(each, std::greater{});
    std::vector<ExpertUse> uses(each.size());
    for (std::size_t rank = 0; rank < each.size(); ++rank) {
      const std::int32_t expert = model_.rankings[layer][rank];
      uses[static_cast<std::size_t>(expert)] = {expert, each[rank]};
    }
    return uses;
  }
  /// Different experts, most of them from the front of `order`.
  std::vector<std::int32_t> few(std::vector<std::int32_t> order, std::int64_t number) {
    std::vector<std::int32_t> chosen;
    while (std::ssize(chosen) < number) {
      const std::int64_t at = random_.one_in(3) ? random_.in(0, std::ssize(order) - 1) : 0;
      chosen.push_back(order[static_cast<std::size_t>(at)]);
      order.erase(order.begin() + at);
    }
    return chosen;
  }

  Random& random_;
  const PlainExpertModel& model_;
  std::vector<std::vector<std::int32_t>> preferred_;
};

Deployment deployment_of(const PlainExpertModel& model) {
  const PlainExpertTimes& times = model.times;
  ExpertDeployment experts;
  experts.count = model.count;
  experts.top_k = model.top_k;
  for (std::size_t layer = 0; layer < model.has_experts.size(); ++layer) {
    if (model.has_experts[layer]) experts.layers.push_back(static_cast<std::int32_t>(layer));
  }
  experts.matrices = static_cast<std::int32_t>(model.matrices);
  // A byte crosses the link in 1 ns.
  experts.bytes = Bytes(times.copy > 0 ? times.copy : 1000);
  experts.parameters = 0.5;
  experts.hidden_bytes = times.hidden;
  const auto rate = [](double amount, std::int64_t ns) {
    return ns > 0 ? amount / (static_cast<double>(ns) * 1e-9) : 1e18;
  };
  const auto bytes = static_cast<double>(experts.bytes.count());
  experts.gpu_bandwidth = rate(bytes, times.gpu_weights);
  experts.gpu_flops = rate(1.0, times.gpu_row);
  experts.dram_peak = rate(bytes, times.cpu_weights);
  experts.cpu_flops = RateByRows({{static_cast<double>(oracle::kManyRows), rate(1.0, times.cpu_row)},
                                  {static_cast<double>(oracle::kManyRows) + 1e-9, rate(1.0, times.cpu_row_many)}});
  Deployment deployment;
  deployment.layers = static_cast<std::int32_t>(model.has_experts.size());
  deployment.weights = Bytes(100) + experts.all_bytes();
  deployment.memory = Bytes(1'000'000'000);
  deployment.block_bytes = Bytes(10);
  deployment.gpu_kv = Bytes(1000);
  deployment.gpu_kv_given = true;
  deployment.experts = experts;
  return deployment;
}

ExpertModel execution_model(const PlainExpertModel& model) {
  return {static_cast<std::int32_t>(model.has_experts.size()), Duration(model.times.step),
          model.times.copy > 0 ? 1e9 : 1e18, Duration(model.times.launch)};
}

/// A policy and its model.
struct Pair {
  std::string policy;
  Overrides overrides;
  std::unique_ptr<PlainExpertPolicy> plain;
};
using MakePair = std::function<Pair(Random&, const PlainExpertModel&)>;

Overrides on_cpu(const PlainExpertModel& model, Overrides overrides) {
  overrides.insert(overrides.end(), {{"policy.cpu_efficiency", 1.0},
                                     {"policy.sync", Duration(model.times.sync)},
                                     {"policy.cpu_start", Duration(model.times.cpu_start)}});
  return overrides;
}

void compare(const PlainExpertCounts& counts, const Figures& figures, std::int64_t bytes) {
  const auto all = static_cast<double>(counts.resident + counts.loaded + counts.on_cpu);
  const auto share = [&](const char* figure, std::int64_t count) {
    const auto found = figures.find(figure);
    ASSERT_EQ(found != figures.end(), all > 0.0) << figure;
    if (all > 0.0) {
      EXPECT_DOUBLE_EQ(found->second, static_cast<double>(count) / all) << figure;
    }
  };
  share("expert_hit_fraction", counts.resident);
  share("expert_load_fraction", counts.loaded);
  share("expert_cpu_fraction", counts.on_cpu);
  share("late_prefetch_fraction", counts.late);
  EXPECT_EQ(figures.at("unused_prefetches"), static_cast<double>(counts.unused));
  EXPECT_EQ(figures.at("demanded_expert_bytes"), static_cast<double>(counts.demanded * bytes));
  EXPECT_EQ(figures.at("prefetched_expert_bytes"), static_cast<double>(counts.prefetched * bytes));
  EXPECT_EQ(figures.at("cpu_expert_bytes"), static_cast<double>(counts.cpu_read * bytes));
  EXPECT_DOUBLE_EQ(figures.at("cpu_expert_seconds"), static_cast<double>(counts.cpu_busy) * 1e-9);
}

/// A kind of event that a case may meet.
struct Path {
  const char* name;
  std::int64_t PlainExpertCounts::*count;
};
constexpr Path kResident{"experts in use that were there", &PlainExpertCounts::resident};
constexpr Path kLoaded{"experts in use that were copied", &PlainExpertCounts::loaded};
constexpr Path kOnCpu{"experts on the CPU", &PlainExpertCounts::on_cpu};
constexpr Path kLate{"loads ahead that were late", &PlainExpertCounts::late};
constexpr Path kUnused{"loads ahead for nothing", &PlainExpertCounts::unused};
constexpr Path kDropped{"loads ahead dropped before they started", &PlainExpertCounts::dropped};
constexpr Path kKeptQueued{"loads ahead in use that had not started", &PlainExpertCounts::kept_queued};
constexpr Path kBeyondSlots{"more experts in use than slots", &PlainExpertCounts::beyond_slots};
constexpr Path kBeyondBuffers{"guesses without a buffer", &PlainExpertCounts::beyond_buffers};
constexpr Path kWaitedForCpu{"waits for the CPU", &PlainExpertCounts::waited_for_cpu};
constexpr Path kWaitedForGpu{"outputs of the CPU in time", &PlainExpertCounts::waited_for_gpu};
constexpr Path kDeferred{"deferred experts", &PlainExpertCounts::deferred};
constexpr Path kWaitedDeferred{"waits for deferred experts", &PlainExpertCounts::waited_deferred};
constexpr Path kAllDeferred{"layers with deferred experts alone", &PlainExpertCounts::all_deferred};
constexpr Path kPrompts{"prompts layer by layer", &PlainExpertCounts::prompts};
constexpr Path kArithmetic{"work bound by arithmetic", &PlainExpertCounts::arithmetic};
constexpr Path kUploadsCut{"more misses than uploads", &PlainExpertCounts::uploads_cut};
constexpr Path kByTokens{"layers whose experts were known by tokens", &PlainExpertCounts::by_tokens};
constexpr Path kWaitedForCopy{"waits for a copy", &PlainExpertCounts::waited_for_copy};
constexpr Path kEvicted{"evictions for experts in demand", &PlainExpertCounts::evicted};
constexpr Path kEvictedOfLayer{"evictions of the running layer's experts", &PlainExpertCounts::evicted_of_layer};
constexpr Path kReplaced{"evictions for predicted experts", &PlainExpertCounts::replaced};
constexpr Path kLeftUnused{"evictions of predicted experts before their layers", &PlainExpertCounts::left_unused};
constexpr Path kNotWorth{"no predicted expert worth a slot", &PlainExpertCounts::not_worth};
constexpr Path kPassedOver{"the likeliest expert passed over", &PlainExpertCounts::passed_over};
constexpr Path kMistaken{"requests taken for others", &PlainExpertCounts::mistaken};

/// The counts of each case.
using Cases = std::vector<PlainExpertCounts>;

/// Runs both for some iterations, with pauses in between, and compares after each.
void run_case(std::uint64_t seed, const MakePair& make, bool kinds, Cases& cases) {
  Random random(seed);
  PlainExpertModel model = random_model(random, kinds && random.one_in(4));
  if (kinds) add_kinds(random, model);
  ExpertModel times = execution_model(model);
  // Steps of the GPU that nothing slows down may be joined, and others are not.
  if (seed % 2 == 1) times.compute_slowdown = {3, 2};
  const Deployment deployment = deployment_of(model);
  const Pair pair = make(random, model);
  ExpertBench bench(pair.policy, times, deployment, pair.overrides, model.rankings, model.popularity, model.kinds);
  RandomRouters routers(random, model);
  std::int64_t now = 0;
  const std::int64_t iterations = random.in(3, 12);
  for (std::int64_t i = 0; i < iterations; ++i) {
    const PlainExpertStep step = routers.step();
    bench.routers.used = step.used;
    bench.routers.guesses = step.guesses;
    bench.routers.shares = step.shares;
    const Duration length = bench.iterate(step.decodes, step.prompt);
    const std::int64_t end = pair.plain->iterate(now, step);
    ASSERT_EQ(length.count(), end - now) << "iteration " << i << " of " << iterations;
    compare(pair.plain->counts(), bench.figures(), deployment.experts->bytes.count());
    if (testing::Test::HasFailure()) FAIL() << "iteration " << i << " of " << iterations;
    const std::int64_t pause = random.one_in(3) ? random.in(0, 20) : 0;
    bench.rest(Duration(pause));
    now = end + pause;
  }
  PlainExpertCounts counts = pair.plain->counts();
  counts.by_tokens = bench.routers.known_by_tokens;
  cases.push_back(counts);
}

/// `kinds`: requests of several kinds.
Cases run_cases(const MakePair& make, bool kinds = false) {
  Cases cases;
  for (std::uint64_t seed = 0; seed < random_cases(kCases); ++seed) {
    SCOPED_TRACE("case " + std::to_string(seed));
    run_case(seed, make, kinds, cases);
    if (testing::Test::HasFailure()) break;
  }
  return cases;
}

/// Prints how many cases met each path: at least one in `n`.
void expect_met(const Cases& cases, std::initializer_list<Path> paths, std::int64_t n) {
  for (const Path& path : paths) {
    const auto met =
        std::count_if(cases.begin(), cases.end(), [&](const PlainExpertCounts& one) { return one.*path.count > 0; });
    std::cout << "  " << met << " of " << cases.size() << " cases: " << path.name << "\n";
    EXPECT_GE(met * n, std::ssize(cases)) << path.name;
  }
}

/// top_k to all experts.
std::int64_t slots_of(Random& random, const PlainExpertModel& model) {
  return random.one_in(2) ? random.in(model.top_k, std::min(2 * model.top_k, model.count))
                          : random.in(model.top_k, model.count);
}

TEST(PlainExperts, MixtralOffloadingOfThePaper) {
  const Cases cases = run_cases([](Random& random, const PlainExpertModel& model) {
    const std::int64_t slots = slots_of(random, model);
    const std::int64_t ahead = random.one_in(2) ? 4 : random.in(0, 3);
    return Pair{"mixtral-offloading",
                {{"policy.slots", slots}, {"policy.prefetch", ahead}, {"policy.variant", std::string("paper")}},
                plain_mixtral_paper(model, static_cast<std::int32_t>(slots), static_cast<std::int32_t>(ahead))};
  });
  expect_met(cases, {kLate, kDropped, kKeptQueued, kUnused, kBeyondSlots, kBeyondBuffers, kArithmetic, kResident}, 20);
}

TEST(PlainExperts, MixtralOffloadingAsPublished) {
  const Cases cases = run_cases([](Random& random, const PlainExpertModel& model) {
    const std::int64_t slots = slots_of(random, model);
    return Pair{
        "mixtral-offloading",
        {{"policy.slots", slots}, {"policy.prefetch", random.in(0, 4)}, {"policy.variant", std::string("published")}},
        plain_mixtral_published(model, static_cast<std::int32_t>(slots))};
  });
  expect_met(cases, {kBeyondSlots, kArithmetic, kResident, kLoaded}, 20);
}

TEST(PlainExperts, ExpertCacheWithMissesOnTheCpu) {
  const Cases cases = run_cases([](Random& random, const PlainExpertModel& model) {
    const std::int64_t slots = slots_of(random, model);
    const std::int64_t uploads = random.in(0, 4);
    return Pair{
        "expert-cache",
        on_cpu(model, {{"policy.slots", slots}, {"policy.uploads", uploads}, {"policy.miss", std::string("cpu")}}),
        plain_cache_on_cpu(model, static_cast<std::int32_t>(slots), uploads)};
  });
  expect_met(
      cases,
      {kBeyondSlots, kLate, kResident, kOnCpu, kUploadsCut, kByTokens, kWaitedForCpu, kWaitedForGpu, kArithmetic}, 20);
}

TEST(PlainExperts, ExpertCacheWithAwaitedMisses) {
  const Cases cases = run_cases([](Random& random, const PlainExpertModel& model) {
    const std::int64_t slots = slots_of(random, model);
    return Pair{"expert-cache",
                {{"policy.slots", slots}, {"policy.miss", std::string("wait")}},
                plain_cache_awaited(model, static_cast<std::int32_t>(slots))};
  });
  expect_met(cases, {kBeyondSlots, kResident, kLoaded, kArithmetic}, 20);
}

TEST(PlainExperts, LlamaCppMoe) {
  const Cases cases = run_cases([](Random& random, const PlainExpertModel& model) {
    const std::int64_t layers = random.in(0, std::ssize(model.has_experts));
    const std::int64_t min_batch = random.one_in(4) ? random.in(0, 8) : 32;
    const bool mapped = random.one_in(2);
    return Pair{"llama-cpp-moe",
                on_cpu(model, {{"policy.n_cpu_moe", layers},
                               {"policy.op_offload_min_batch", min_batch},
                               {"policy.mmap", mapped},
                               {"policy.pageable", 0.5}}),
                plain_llama_cpp(model, static_cast<std::int32_t>(layers), min_batch, mapped ? 2 : 1)};
  });
  expect_met(cases, {kResident, kLoaded, kOnCpu, kArithmetic}, 10);
}

TEST(PlainExperts, KTransformers) {
  const Cases cases = run_cases([](Random& random, const PlainExpertModel& model) {
    oracle::PlainKTransformers with;
    with.on_gpu = static_cast<std::int32_t>(random.in(0, model.count));
    with.placement = static_cast<oracle::PlainPlacement>(random.in(0, 2));
    with.deferred = random.one_in(3) ? 0 : random.in(1, model.top_k);
    with.threshold = random.one_in(2) ? 0 : random.in(1, 40);
    with.update = random.one_in(2);
    constexpr std::array kPlacements{"uniform", "frequency", "front-loading"};
    return Pair{
        "ktransformers",
        on_cpu(model, {{"policy.gpu_experts", std::int64_t{with.on_gpu}},
                       {"policy.placement", std::string(kPlacements.at(static_cast<std::size_t>(with.placement)))},
                       {"policy.deferred_experts", with.deferred},
                       {"policy.gpu_prefill_threshold", with.threshold},
                       {"policy.dynamic_update", with.update}}),
        plain_ktransformers(model, with)};
  });
  expect_met(cases,
             {kResident, kOnCpu, kDeferred, kWaitedDeferred, kAllDeferred, kPrompts, kWaitedForCpu, kWaitedForGpu,
              kArithmetic},
             10);
}

TEST(PlainExperts, Fiddler) {
  const Cases cases = run_cases([](Random& random, const PlainExpertModel& model) {
    oracle::PlainFiddler with;
    with.on_gpu = random.in(0, static_cast<std::int64_t>(model.count) * model.expert_layers());
    with.token_time = random.one_in(3) ? -1 : random.in(0, 10);
    with.published = random.one_in(3);
    with.overlap = random.one_in(2);
    with.pageable = random.in(1, 2);
    Overrides overrides = on_cpu(model, {{"policy.gpu_experts", with.on_gpu},
                                         {"policy.constants", std::string(with.published ? "published" : "profile")},
                                         {"policy.overlap", with.overlap},
                                         {"policy.pageable", 1.0 / static_cast<double>(with.pageable)}});
    if (with.token_time >= 0) overrides.emplace_back("policy.cpu_token_time", Duration(with.token_time));
    return Pair{"fiddler", std::move(overrides), plain_fiddler(model, with)};
  });
  expect_met(cases, {kResident, kOnCpu, kLoaded, kWaitedForCpu, kWaitedForGpu, kArithmetic}, 10);
}

/// One more than the experts of a layer, to all experts.
std::int64_t slots_of_all(Random& random, const PlainExpertModel& model) {
  const std::int64_t all = static_cast<std::int64_t>(model.count) * model.expert_layers();
  const std::int64_t least = std::min<std::int64_t>(model.count + 1, all);
  return random.one_in(2) ? random.in(least, std::min<std::int64_t>(least + model.count, all)) : random.in(least, all);
}

TEST(PlainExperts, MoeInfinityOfThePaper) {
  const Cases cases = run_cases(
      [](Random& random, const PlainExpertModel& model) {
        oracle::PlainMoeInfinity with;
        with.slots = slots_of_all(random, model);
        with.ahead = !random.one_in(5);
        with.matched = random.in(0, 4);
        return Pair{"moe-infinity",
                    {{"policy.gpu_experts", with.slots},
                     {"policy.prefetch", with.ahead},
                     {"policy.matched_layers", with.matched},
                     {"policy.variant", std::string("paper")}},
                    plain_moe_infinity(model, with)};
      },
      true);
  expect_met(cases,
             {kResident, kLoaded, kLate, kUnused, kWaitedForCopy, kEvicted, kReplaced, kLeftUnused, kNotWorth,
              kPassedOver, kMistaken, kByTokens, kArithmetic},
             20);
}

TEST(PlainExperts, MoeInfinityAsPublished) {
  const Cases cases = run_cases(
      [](Random& random, const PlainExpertModel& model) {
        const std::int64_t slots = slots_of_all(random, model);
        return Pair{"moe-infinity",
                    {{"policy.gpu_experts", slots},
                     {"policy.prefetch", random.one_in(2)},
                     {"policy.matched_layers", random.in(0, 4)},
                     {"policy.variant", std::string("published")}},
                    plain_moe_infinity_published(model, slots)};
      },
      true);
  expect_met(cases, {kResident, kLoaded, kEvicted, kEvictedOfLayer, kWaitedForCopy, kArithmetic}, 10);
}

}  // namespace
}  // namespace spillway
