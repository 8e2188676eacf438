// Pie and Select-N against their plain models where a case of draw_case does not lead: expansions that rise and fall,
// links that others use, intervals and SLOs at the edge. The policy runs in the engine, the model in the naive engine.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/models/pie.hpp"
#include "tests/models/plain_policy.hpp"
#include "tests/models/select-n.hpp"
#include "tests/oracle/fast_run.hpp"
#include "tests/oracle/list_source.hpp"
#include "tests/oracle/naive_engine.hpp"
#include "tests/oracle/random_case.hpp"
#include "tests/oracle/route_by.hpp"
#include "tests/support/cases.hpp"

namespace spillway {
namespace {

using oracle::Dice;
using oracle::FastRun;
using oracle::NaiveConfig;
using oracle::NaiveResult;
using oracle::PlainPolicy;

/// A model whose times a case chooses.
struct Times {
  std::int32_t layers = 6;
  std::int64_t before = 5;
  std::int64_t layer = 20;        // of an empty layer
  std::int64_t token = 3;         // of each token in it
  std::int64_t context = 8;       // tokens that it attends to for one unit more
  std::int64_t launch = 1;        // of a copy
  std::int64_t in_per_1000 = 30;  // for 1000 bytes
  std::int64_t out_per_1000 = 40;
  std::int64_t unit = 1;  // ns
  CopySharing sharing{};
};

class ChosenModel final : public ExecutionModel {
 public:
  explicit ChosenModel(const Times& times) : times_(times) {}
  [[nodiscard]] std::int32_t layers() const override { return times_.layers; }
  [[nodiscard]] IterationTime iteration(const BatchShape& shape) const override {
    std::int64_t tokens = shape.decode_sequences;
    std::int64_t context = shape.decode_context.count();
    for (const PrefillChunk& chunk : shape.chunks) {
      tokens += chunk.new_tokens.count();
      context += chunk.context.count() + chunk.new_tokens.count();
    }
    IterationTime time;
    time.before = Duration(times_.unit * times_.before);
    time.layer = Duration(times_.unit * (times_.layer + times_.token * tokens + context / times_.context));
    time.after = Duration(times_.unit * (1 + shape.sampled_sequences));
    time.shares.compute = to_seconds(time.before + time.layer * times_.layers + time.after);
    return time;
  }
  [[nodiscard]] CopyTime copy(Stream direction, std::int64_t copies, Bytes bytes, CopyMechanism) const override {
    const std::int64_t rate = direction == Stream::h2d ? times_.in_per_1000 : times_.out_per_1000;
    return {Duration(times_.unit * times_.launch * copies), Duration(times_.unit * (rate * bytes.count() / 1000))};
  }
  [[nodiscard]] CopySharing copy_sharing() const override { return times_.sharing; }

 private:
  Times times_;
};

/// A layout, or the key that it is refused for.
std::string outcome(const std::function<Layout()>& lay_out) {
  try {
    const Layout layout = lay_out();
    return std::to_string(layout.blocks.count()) + " of " + std::to_string(layout.most.count()) + " blocks, host " +
           std::to_string(layout.host.count());
  } catch (const ConfigError& error) {
    return "refused for " + error.problems().front().where;
  }
}

/// Beside those of models_test.cpp.
constexpr std::uint64_t kCases = random_cases(2500);
constexpr std::int64_t kLeast = kFewerCases ? 0 : 20;  // decisions of each kind, so that none goes untested

/// One of `choices`.
template <class T>
T one_of(Dice& dice, const std::vector<T>& choices) {
  return choices[static_cast<std::size_t>(dice.between(0, static_cast<std::int64_t>(choices.size()) - 1))];
}

/// Both sides of a case, and what differs between them.
class Comparison {
 public:
  Comparison(const std::string& name, const std::string& scheduler = {})
      : policy_(*(scheduler.empty() ? PolicyRegistry::instance().find(name)
                                    : PolicyRegistry::instance().find(name, scheduler))),
        model_(*oracle::find_plain(name)),
        scheduler_(scheduler) {}

  [[nodiscard]] const PolicyInfo& policy() const { return policy_; }

  /// Lays a case out by both; what comes of it if it cannot run, else empty.
  std::string lay_out(const Deployment& deployment, const Settings& settings, NaiveConfig& config) {
    std::string real = outcome([&] { return policy_.layout(deployment, settings); });
    const std::string plain = outcome([&] { return model_.layout(deployment, settings); });
    if (real != plain) differs_ = "layouts: plain " + plain + ", real " + real;
    if (real != plain || real.starts_with("refused")) return real;
    config.deployment = deployment;
    const Layout layout = policy_.layout(deployment, settings);
    config.gpu_blocks = layout.blocks;
    config.most_gpu_blocks = layout.most;
    return {};
  }

  /// `planned` is the model that the policies see; null: the one that runs.
  void run(NaiveConfig config, const ExecutionModel* planned = nullptr) {
    // The models are made over vllm-v0 first.
    Settings settings = *config.settings;
    for (const Parameter& parameter : PolicyRegistry::instance().find("vllm-v0")->parameters) {
      if (!settings.all().contains(parameter.name)) settings.set(parameter.name, oracle::default_value(parameter));
    }
    config.settings = &settings;
    oracle::read_surroundings(config);
    Deployment seen = config.deployment;
    if (planned != nullptr) seen.model = planned;
    const auto over = [&](const std::function<Policy(const PolicyContext&)>& make) {
      PolicyInfo info = policy_;
      info.make = [&seen, make](const PolicyContext& context) {
        return make(PolicyContext{context.settings, context.view, seen, context.graph});
      };
      return info;
    };
    const PolicyInfo real = over(policy_.make);
    const PolicyInfo plain = over([&](const PolicyContext& context) {
      Policy made = model_.make(context);
      if (scheduler_.empty()) return made;
      // The same on both sides: what is compared is the layers.
      Policy host = PolicyRegistry::instance().find(scheduler_)->make(context);
      made.scheduler = std::move(host.scheduler);
      made.space = std::move(host.space);
      return made;
    });
    try {
      config.policy = &plain;
      naive = oracle::run_naive(config);
      config.policy = &real;
      fast = oracle::run_fast(config);
    } catch (const std::exception& error) {
      differs_ = error.what();
      return;
    }
    compare();
  }
  [[nodiscard]] const std::string& differs() const { return differs_; }

  NaiveResult naive;
  FastRun fast;

 private:
  void compare() {
    if (naive.records.size() != fast.records.size()) differs_ = "numbers of records";
    for (std::size_t i = 0; i < naive.records.size() && differs_.empty(); ++i) {
      if (oracle::text(naive.records[i]) == oracle::text(fast.records[i])) continue;
      differs_ = "records\n  plain " + oracle::text(naive.records[i]) + "\n  real  " + oracle::text(fast.records[i]);
    }
    const EngineTotals& totals = fast.result.statistics.engine;
    same("iterations", naive.iterations, totals.iterations);
    same("bytes moved in", naive.moved_h2d.count(), totals.moved_h2d.count());
    same("bytes moved out", naive.moved_d2h.count(), totals.moved_d2h.count());
    same("preempted to recompute", naive.preempted_recompute, totals.preempted_recompute);
    std::size_t reported = 0;
    for (const PolicyFigure& real : totals.figures) {
      const auto plain = naive.layers.find(real.definition.name);
      const bool has = plain != naive.layers.end();
      near(real.definition.name.c_str(), has ? std::optional(plain->second) : std::nullopt, real.value);
      reported += has ? 1 : 0;
    }
    same("figures", std::ssize(naive.layers), static_cast<std::int64_t>(reported));
  }
  void same(const char* what, std::int64_t plain, std::int64_t real) {
    if (plain == real) return;
    differs_ += std::string("\n") + what + ": plain " + std::to_string(plain) + ", real " + std::to_string(real);
  }
  /// Sums of doubles in another order.
  void near(const char* what, const std::optional<double>& plain, const std::optional<double>& real) {
    if (plain.has_value() == real.has_value() && std::abs(plain.value_or(0) - real.value_or(0)) <= 1e-9) return;
    const auto text = [](const std::optional<double>& value) { return value ? std::to_string(*value) : "none"; };
    differs_ += std::string("\n") + what + ": plain " + text(plain) + ", real " + text(real);
  }

  const PolicyInfo& policy_;
  const PlainPolicy& model_;
  std::string scheduler_;
  std::string differs_;
};

/// Requests that are long beside the room, so that a run has many iterations.
void draw_long_requests(Dice& dice, std::int64_t capacity, std::int64_t pace, NaiveConfig& config) {
  config.requests.clear();
  const std::int64_t count = dice.between(1, 40);
  const std::int64_t longest = dice.between(2, std::max<std::int64_t>(3, capacity / 2));
  const std::int64_t gap = dice.chance(40) ? 0 : dice.between(1, 20 * pace);
  SimTime now;
  for (std::int64_t i = 0; i < count; ++i) {
    RequestSpec request;
    now = now + Duration(dice.between(0, gap));
    // A pause now and then: what runs comes to its end.
    if (dice.chance(5)) now = now + Duration(pace * dice.between(0, 200));
    request.arrival = now;
    request.input = Tokens(dice.chance(5) ? dice.between(1, capacity) : dice.between(1, longest));
    request.output = Tokens(dice.between(1, longest));
    request.max_new_tokens = request.output + Tokens(dice.chance(20) ? dice.between(0, longest) : 0);
    request.traits.conversation = i;
    config.requests.push_back(request);
  }
  config.follows.assign(config.requests.size(), {});
}

/// Adds requests that come one after another and take at most a quarter of `capacity`, for a thousand iterations.
void add_trickle(Dice& dice, std::int64_t capacity, std::int64_t pace, NaiveConfig& config) {
  SimTime now = config.requests.back().arrival;
  for (std::int64_t iterations = 0; iterations < 1000;) {
    RequestSpec request;
    request.input = Tokens(1);
    request.output = request.max_new_tokens =
        Tokens(dice.between(1, std::clamp<std::int64_t>(capacity / 4 - 1, 1, 50)));
    now = now + Duration(pace * request.output.count());
    request.arrival = now;
    request.traits.conversation = static_cast<std::int64_t>(config.requests.size());
    iterations += request.output.count();
    config.requests.push_back(request);
  }
  config.follows.assign(config.requests.size(), {});
}

/// What engines have in common.
NaiveConfig draw_engine(Dice& dice, const ExecutionModel& model, const Settings& settings) {
  NaiveConfig config;
  config.model = &model;
  config.settings = &settings;
  config.block_tokens = Tokens(dice.between(1, 4) == 1 ? 1 : dice.between(2, 16));
  config.block_bytes = Bytes(64 * dice.between(1, 40));
  return config;
}

Settings engine_settings(Dice& dice, const PolicyInfo& policy, const std::string& scheduler) {
  return oracle::policy_settings(
      policy, {{kSchedulerKey, scheduler.empty() ? std::string("vllm-v0") : scheduler},
               {"engine.max_num_batched_tokens", dice.chance(50) ? dice.between(1, 40) : dice.between(40, 2000)},
               {"engine.max_num_seqs", dice.chance(20) ? dice.between(1, 3) : dice.between(4, 40)},
               {"engine.chunked_prefill", dice.chance(50)}});
}

/// Layers, swaps and settings of a Pie that has to adapt.
std::string compare_pie(std::uint64_t seed, const std::string& scheduler = {}) {
  Dice dice(seed);
  Comparison comparison("pie", scheduler);
  Times times;
  times.layers = static_cast<std::int32_t>(dice.chance(85) ? dice.between(4, 14) : dice.between(15, 140));
  times.before = dice.between(0, 30);
  times.layer = dice.between(10, 100);
  times.token = dice.chance(50) ? 0 : dice.between(1, 8);
  times.context = dice.between(1, 64);
  times.launch = dice.between(0, 3);
  Settings settings = engine_settings(dice, comparison.policy(), scheduler);
  const ChosenModel unused(times);
  NaiveConfig config = draw_engine(dice, unused, settings);
  const std::int64_t blocks = dice.between(4, 40);
  // One swap takes so many hundredths of a layer, with nothing on the host.
  const std::int64_t slot = std::max<std::int64_t>(1, config.block_bytes.count() * blocks / times.layers);
  times.in_per_1000 = times.layer * dice.between(1, 200) * 10 / slot;
  times.out_per_1000 = dice.chance(50) ? times.in_per_1000 : times.in_per_1000 * dice.between(50, 200) / 100;
  const ChosenModel model(times);
  config.model = &model;
  if (dice.chance(40)) times.sharing = {.h2d = {dice.between(4, 8), 4}, .d2h = {dice.between(4, 8), 4}};
  const ChosenModel planned(times);

  settings.set("policy.check_at", std::string(dice.chance(50) ? "completion" : "layer-start"));
  settings.set("policy.copy_used_only", dice.chance(25));
  const std::int64_t n = times.layers;
  if (dice.chance(25)) {
    // At the limit of some m, or a little beside it.
    const double limit = static_cast<double>(n) / static_cast<double>(n - dice.between(0, n - 3));
    settings.set("policy.expansion", std::max(1.0, limit + one_of<double>(dice, {0.0, 0.0, -1e-4, 1e-4})));
  }
  // At the limit of some m, or a byte less.
  if (dice.chance(25)) {
    const std::int64_t m = dice.between(1, n - 3);
    const std::int64_t bytes = config.block_bytes.count() * blocks / (n - m) * (m + 2);
    settings.set("memory.host_kv", Bytes(std::max<std::int64_t>(0, bytes - dice.between(0, 1))));
  }
  if (dice.chance(40)) {
    settings.set("policy.link_traffic", 0.01 * static_cast<double>(dice.between(dice.chance(50) ? 1 : 60, 100)));
    const std::int64_t from = dice.between(0, 200 * n * times.layer);
    if (dice.chance(50)) settings.set("policy.link_traffic_from", Duration(from));
    if (dice.chance(70)) {
      // A few iterations at times: compute has waited then, and nothing would wait now.
      const std::int64_t iterations = dice.chance(50) ? 3 : 200;
      settings.set("policy.link_traffic_until", Duration(from + dice.between(1, iterations * n * times.layer)));
    }
  }
  Deployment deployment = oracle::snug_deployment(model, Blocks(blocks), config.block_bytes, config.block_tokens,
                                                  Bytes(64 * dice.between(1, 40)));
  if (dice.chance(5)) deployment.memory = deployment.memory - Bytes(dice.between(0, 1));
  if (dice.chance(50)) deployment.host_memory.reset();
  deployment.gpu_kv_given = dice.chance(50);
  if (!comparison.policy().check(settings).empty()) return {};
  const bool refused = !comparison.lay_out(deployment, settings, config).empty();
  if (refused || !comparison.differs().empty()) return comparison.differs();
  const std::int64_t capacity = config.most_gpu_blocks.count() * config.block_tokens.count();
  config.max_model_len = Tokens(capacity);
  draw_long_requests(dice, std::min<std::int64_t>(capacity, 300), n * times.layer, config);
  if (dice.chance(5)) {
    add_trickle(dice, config.gpu_blocks.count() * config.block_tokens.count(), n * times.layer, config);
  }
  if (dice.chance(20)) config.request_timeout = Duration(n * times.layer * dice.between(1, 200));
  comparison.run(config, &planned);
  return comparison.differs();
}

TEST(PlainPie, DecidesAsThePolicyWhereItAdapts) {
  oracle::PieBranches& seen = oracle::pie_branches();
  seen = {};
  for (std::uint64_t seed = 1; seed <= kCases; ++seed) {
    const std::string differs = compare_pie(seed);
    ASSERT_TRUE(differs.empty()) << "seed " << seed << ": " << differs;
  }
  // Every branch of the controller decided something.
  for (const auto& [count, what] : std::vector<std::pair<std::int64_t, const char*>>{
           {seen.raises, "raises"},
           {seen.quick_raises, "raises before a window was over"},
           {seen.large_raises, "raises by several layers"},
           {seen.unneeded_raises, "raises that nobody needed"},
           {seen.paused_raises, "raises to a level that failed"},
           {seen.unpaid_raises, "raises that would not pay"},
           {seen.early_raises, "raises that had to wait for a window"},
           {seen.distrusted_plans, "raises that had to wait although nothing would by plan"},
           {seen.slow_links, "dwells beyond the plan"},
           {seen.failures, "lowers after waits"},
           {seen.repeated_failures, "levels that failed again"},
           {seen.idle_failures, "lowers after waits, without need for the room"},
           {seen.worthwhile_waits, "waits that a layer was worth"},
           {seen.probes, "probes down"},
           {seen.early_probes, "layers that were not spare for long"},
           {seen.kept_out, "probes that requests kept out prevented"},
           {seen.lowers_refused, "lowers that were refused"},
           {seen.expansions, "expansions for a request"},
           {seen.finished_raises, "expansions that ended a raise"},
           {seen.released, "requests that needed the room and are gone"},
           {seen.new_slots_stayed, "layers with a new slot that stayed"},
           {seen.made_way, "layers that made way"},
           {seen.waits, "copies that ended while a layer waited"}}) {
    EXPECT_GE(count, kLeast) << what;
  }
  // A raise of at least four layers is half of it too much: rare.
  EXPECT_GE(seen.large_lowers, kLeast / 4) << "lowers by several layers";
  EXPECT_GE(seen.most_on_host, 8);
}

TEST(PlainPie, DecidesAsThePolicyUnderEveryScheduler) {
  for (const PolicyInfo* const host : PolicyRegistry::instance().all()) {
    if (PolicyRegistry::instance().find("pie", host->name) == nullptr) continue;
    if (!oracle::accepts_preemption(*host, "recompute")) continue;
    for (std::uint64_t seed = 1; seed <= 150; ++seed) {
      const std::string differs = compare_pie(seed, host->name);
      ASSERT_TRUE(differs.empty()) << host->name << " seed " << seed << ": " << differs;
    }
  }
}

/// Weights and SLOs around those that an instance can just meet.
std::string compare_select_n(std::uint64_t seed, const std::string& scheduler = {}) {
  Dice dice(seed);
  Comparison comparison("select-n", scheduler);
  Times times;
  times.layers = static_cast<std::int32_t>(dice.chance(90) ? dice.between(1, 12) : dice.between(13, 80));
  times.unit = dice.between(1, 3) == 1 ? 1000 : one_of<std::int64_t>(dice, {10'000, 50'000, 100'000, 99'991});
  times.before = dice.between(0, 10);
  times.layer = dice.between(1, 40);
  times.token = dice.chance(30) ? 0 : dice.between(1, 4);
  times.context = dice.between(1, 64);
  times.launch = dice.between(0, 3);
  Settings settings = engine_settings(dice, comparison.policy(), scheduler);
  const ChosenModel unused(times);
  NaiveConfig config = draw_engine(dice, unused, settings);
  const Bytes weights(64 * dice.between(1, 60));
  // A copy takes so many hundredths of a layer.
  times.in_per_1000 = times.layer * dice.between(0, 800) * 10 / weights.count();
  const ChosenModel model(times);
  config.model = &model;
  const std::int64_t n = times.layers;

  settings.set("policy.double_buffer", dice.chance(40));
  settings.set("policy.phase", one_of<std::string>(dice, {"both", "both", "prefill", "decode"}));
  settings.set("policy.record", one_of<std::string>(dice, {"exact", "exact", "paper"}));
  if (dice.chance(25)) {
    settings.set("policy.interval", one_of<std::int64_t>(dice, {0, 1, n, n + 1, dice.between(1, n)}));
  } else if (dice.chance(45)) {
    // The best time of some batch, a whole number of copies later, on the grid or a nanosecond beside it.
    const BatchShape some{.decode_sequences = dice.between(1, 16),
                          .decode_context = Tokens(dice.between(4, 400)),
                          .decode_longest = Tokens(16),
                          .sampled_sequences = 1};
    const IterationTime time = model.iteration(some);
    const CopyTime copy = model.copy(Stream::h2d, 1, weights, CopyMechanism::single);
    std::int64_t slo = (time.before + time.layer * n + time.after).count() +
                       (copy.launch + copy.transfer).count() * dice.between(0, 2 * n) / 2;
    if (dice.chance(50)) slo = slo / 2'000'000 * 2'000'000 + (dice.chance(50) ? 2'000'000 : 0);
    settings.set("policy.slo", Duration(std::max<std::int64_t>(1, slo + dice.between(-1, 1))));
  } else if (dice.chance(80)) {
    settings.set("policy.slo_margin", one_of<double>(dice, {0.0, 0.01, 0.1, 0.25, 0.5, 1.0, 3.0, 100.0}));
  }
  if (dice.chance(30)) {
    const Bytes host = weights * dice.between(0, n) + Bytes(dice.between(-1, 0));
    settings.set("policy.host_memory", std::max(Bytes(0), host));
  }
  Deployment deployment =
      oracle::snug_deployment(model, Blocks(dice.between(1, 40)), config.block_bytes, config.block_tokens, weights);
  // Not every layer fits, or some more would.
  if (dice.chance(40)) deployment.memory = deployment.memory - weights * dice.between(0, n);
  if (dice.chance(20)) deployment.memory += weights * dice.between(0, n);
  if (dice.chance(30)) deployment.host_memory.reset();
  if (dice.chance(20)) {
    deployment.gpu_kv_given = true;
    deployment.gpu_kv = config.block_bytes * dice.between(1, 40) + Bytes(dice.between(0, 1));
  }
  if (!comparison.policy().check(settings).empty()) return {};
  const bool refused = !comparison.lay_out(deployment, settings, config).empty();
  if (refused || !comparison.differs().empty()) return comparison.differs();
  const std::int64_t capacity = config.most_gpu_blocks.count() * config.block_tokens.count();
  config.max_model_len = Tokens(capacity);
  draw_long_requests(dice, std::min<std::int64_t>(capacity, 300), n * times.layer * times.unit, config);
  if (dice.chance(20)) config.request_timeout = Duration(n * times.layer * times.unit * dice.between(1, 200));
  comparison.run(config);
  return comparison.differs();
}

TEST(PlainSelectN, DecidesAsThePolicyAtTheEdgeOfItsSlo) {
  oracle::SelectNBranches& seen = oracle::select_n_branches();
  seen = {};
  for (std::uint64_t seed = 1; seed <= kCases; ++seed) {
    const std::string differs = compare_select_n(seed);
    ASSERT_TRUE(differs.empty()) << "seed " << seed << ": " << differs;
  }
  for (const auto& [count, what] : std::vector<std::pair<std::int64_t, const char*>>{
           {seen.kept, "intervals that stayed"},
           {seen.moved, "intervals that changed"},
           {seen.at_once, "layers that left at once from a GPU that held all"},
           {seen.both, "iterations that streamed layers of two intervals"},
           {seen.for_kv, "intervals that KV forced"},
           {seen.too_small, "iterations that streamed more than the SLO allows"},
           {seen.prefill_decides, "batches whose prompts want the larger interval"},
           {seen.decode_decides, "batches whose decodes do"},
           {seen.waiting_decides, "batches that have waited, and so want another interval"},
           {seen.no_entry, "batches that the record does not know"},
           {seen.slo_below_best, "entries whose best time is above the SLO"},
           {seen.rounded_slo, "SLOs that the grid rounds below the best time"},
           {seen.outgrown, "batches that have outgrown their room"},
           {seen.offered, "batches that have not"},
           {seen.part_of_batch, "entries whose room ends within their batches"},
           {seen.smallest_binds, "intervals that the host holds no more layers for"}}) {
    EXPECT_GE(count, kLeast) << what;
  }
}

TEST(PlainSelectN, DecidesAsThePolicyUnderEveryScheduler) {
  for (const PolicyInfo* const host : PolicyRegistry::instance().all()) {
    if (PolicyRegistry::instance().find("select-n", host->name) == nullptr) continue;
    if (!oracle::accepts_preemption(*host, "recompute")) continue;
    for (std::uint64_t seed = 1; seed <= 150; ++seed) {
      const std::string differs = compare_select_n(seed, host->name);
      ASSERT_TRUE(differs.empty()) << host->name << " seed " << seed << ": " << differs;
    }
  }
}

// --- instances on one bus

/// Everything that one of them is built from.
struct OnOneBus {
  Settings settings;
  std::optional<ChosenModel> model;
  InstanceConfig config;
};

/// Times, memory and SLO of one instance; false: it cannot run.
bool draw_on_bus(Dice& dice, const PolicyInfo& policy, Times times, OnOneBus& one) {
  times.layer = dice.between(1, 20);
  times.token = dice.chance(50) ? 0 : dice.between(1, 3);
  const Bytes weights(64 * dice.between(1, 20));
  // A copy takes 0 to 8 layers.
  times.in_per_1000 = 1 + times.layer * dice.between(0, 800) * 10 / weights.count();
  one.model.emplace(times);
  one.settings = engine_settings(dice, policy, {});
  // Plain instances have no scheduler's keys of their own.
  for (const Parameter& parameter : PolicyRegistry::instance().find("vllm-v0")->parameters) {
    if (!one.settings.all().contains(parameter.name))
      one.settings.set(parameter.name, oracle::default_value(parameter));
  }
  one.settings.set("policy.phase", one_of<std::string>(dice, {"both", "both", "prefill", "decode"}));
  one.settings.set("policy.record", one_of<std::string>(dice, {"exact", "exact", "paper"}));
  if (dice.chance(50)) {
    const IterationTime time = one.model->iteration({.decode_sequences = 4, .decode_context = Tokens(100)});
    const std::int64_t best = (time.before + time.layer * times.layers + time.after).count();
    one.settings.set("policy.slo", Duration(best * dice.between(100, 400) / 100 + 2'000'000));
    if (dice.chance(50)) one.settings.set("policy.slo_counts_waiting", false);
  } else {
    one.settings.set("policy.slo_margin", one_of<double>(dice, {0.1, 0.5, 1.0, 3.0}));
  }
  if (dice.chance(10)) one.settings.set("policy.interval", dice.between(1, times.layers));
  if (dice.chance(10)) one.settings.set("policy.coordinate", false);
  if (!policy.check(one.settings).empty()) return false;
  one.config.kv.block_tokens = Tokens(dice.between(1, 16));
  one.config.kv.block_bytes = Bytes(64 * dice.between(1, 20));
  Deployment deployment = oracle::snug_deployment(*one.model, Blocks(dice.between(1, 40)), one.config.kv.block_bytes,
                                                  one.config.kv.block_tokens, weights);
  if (dice.chance(60)) deployment.memory = deployment.memory - weights * dice.between(0, times.layers);
  try {
    const Layout layout = policy.layout(deployment, one.settings);
    one.config.kv.gpu_blocks = layout.blocks;
    one.config.kv.most_gpu_blocks = layout.most;
  } catch (const ConfigError&) {
    return false;
  }
  one.config.model = &*one.model;
  one.config.settings = &one.settings;
  one.config.deployment = deployment;
  one.config.max_model_len = one.config.kv.block_tokens * one.config.kv.most().count();
  read_surroundings(one.settings, one.config);
  return true;
}

/// What is seen of instances on a bus, as text.
std::string seen_on_bus(const SimulationConfig& config, const std::vector<RequestSpec>& requests) {
  oracle::ListSource source(requests);
  SimulationConfig simulation = config;
  std::string seen;
  simulation.source = &source;
  simulation.on_request = [&](const RequestRecord& record) {
    seen += fmt::format("{}{}\n", oracle::text(record), record.refused ? "refused" : "");
  };
  const SimulationResult result = simulate(simulation);
  for (const EngineTotals& totals : result.instances) {
    seen += fmt::format("{}", totals.moved_h2d.count());
    for (const PolicyFigure& figure : totals.figures) {
      seen += figure.value ? fmt::format(" {:.9g}", *figure.value) : " none";
    }
    seen += "\n";
  }
  return seen;
}

std::string compare_on_a_bus(std::uint64_t seed) {
  Dice dice(seed);
  const PolicyInfo& real = *PolicyRegistry::instance().find("select-n");
  PolicyInfo plain = real;
  plain.make = [](const PolicyContext& context) {
    // Plain schedulers do not ask whether a request may join.
    Policy made = PolicyRegistry::instance().find("vllm-v0")->make(context);
    made.layers = oracle::find_plain("select-n")->make(context).layers;
    return made;
  };
  Times times;
  times.layers = static_cast<std::int32_t>(dice.between(2, 12));
  times.unit = one_of<std::int64_t>(dice, {10'000, 50'000, 99'991});
  std::vector<OnOneBus> instances(static_cast<std::size_t>(dice.between(2, 4)));
  const bool equal = dice.chance(50);
  const std::uint64_t common = dice.roll();
  for (OnOneBus& one : instances) {
    Dice own(equal ? common : dice.roll());
    if (!equal) times.layers = static_cast<std::int32_t>(own.between(2, 12));
    if (!draw_on_bus(own, real, times, one)) return {};
    one.config.route.h2d = {{.link = 0, .gpus = dice.chance(20) ? 2 : 1}};
  }
  SimulationConfig config;
  // From a fraction of what the copies of one GPU take to more than all take.
  const Deployment& first = instances.front().config.deployment;
  const CopyTime copy = first.model->copy(Stream::h2d, 1, first.layer_weights, CopyMechanism::single);
  const double rate = static_cast<double>(first.layer_weights.count()) / std::max(1e-9, to_seconds(copy.transfer));
  config.links = {BytesPerSecond(rate * 0.01 * static_cast<double>(dice.between(20, 400)))};
  std::vector<RequestSpec> requests;
  SimTime now;
  const std::int64_t pace = times.layers * times.layer * times.unit;
  for (std::int64_t count = dice.between(2, 40); count > 0; --count) {
    now = now + Duration(dice.between(0, dice.chance(20) ? 200 * pace : 4 * pace));
    RequestSpec request;
    request.arrival = now;
    request.client = static_cast<std::uint32_t>(dice.between(0, std::ssize(instances) - 1));
    const std::int64_t most = std::min<std::int64_t>(200, instances[request.client].config.max_model_len.count());
    request.input = Tokens(dice.between(1, std::max<std::int64_t>(1, most / 2)));
    request.output = request.max_new_tokens = Tokens(dice.between(1, std::max<std::int64_t>(1, most / 4)));
    requests.push_back(request);
  }
  config.router = oracle::route_by([](const RequestSpec& request) { return request.client; });
  const auto run = [&](const PolicyInfo& policy) {
    config.instances.clear();
    for (const OnOneBus& one : instances) config.instances.push_back(one.config);
    for (InstanceConfig& instance : config.instances) instance.policy = &policy;
    return seen_on_bus(config, requests);
  };
  try {
    const std::string by_model = run(plain);
    const std::string by_policy = run(real);
    return by_model == by_policy ? "" : fmt::format("plain\n{}real\n{}", by_model, by_policy);
  } catch (const std::exception& error) {
    return error.what();
  }
}

TEST(PlainSelectN, DecidesAsThePolicyOnASharedBus) {
  oracle::SelectNBranches& seen = oracle::select_n_branches();
  seen = {};
  for (std::uint64_t seed = 1; seed <= kCases; ++seed) {
    const std::string differs = compare_on_a_bus(seed);
    ASSERT_TRUE(differs.empty()) << "seed " << seed << ": " << differs;
  }
  for (const auto& [count, what] : std::vector<std::pair<std::int64_t, const char*>>{
           {seen.alone_on_bus, "instances that were alone"},
           {seen.bus_shared, "choices for several"},
           {seen.bus_full, "buses that were too small for any choice"},
           {seen.refused_for_memory, "requests that memory cannot serve"},
           {seen.refused_for_bus, "requests that the bus cannot serve"},
           {seen.served_at_its_own_risk, "requests that harm nobody else"}}) {
    EXPECT_GE(count, kLeast) << what;
  }
}

}  // namespace
}  // namespace spillway
