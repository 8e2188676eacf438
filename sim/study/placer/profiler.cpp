#include "sim/study/placer/profiler.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "sim/core/error.hpp"
#include "sim/io/lines.hpp"
#include "sim/study/assemble.hpp"
#include "sim/study/parameter_table.hpp"
#include "sim/study/placer/worth.hpp"
#include "sim/study/search.hpp"

namespace spillway::placer {
namespace {

constexpr double kLeastRate = 1.0;  // requests per second
constexpr double kMostRate = 10.0;
constexpr const char* kLimits = "p99_ttft_ms<1000,p99_itl_ms<=100";
constexpr const char* kRate = "workload.rate";
constexpr double kBurstSeconds = 60.0;
constexpr std::array<double, 3> kBursts{2.0, 3.0, 5.0};

std::string gigabytes(Bytes bytes) { return figure(static_cast<double>(bytes.count()) * 1e-9) + " GB"; }

/// Bytes on all GPUs of the model: `share` of the KV blocks of a tier, counted by `blocks` in the result's set-up.
Bytes kv_bytes(const PointOutcome& outcome, const char* blocks, double share, std::int64_t gpus) {
  const nlohmann::json setup = nlohmann::json::parse(outcome.json).at("setup");
  const double whole = setup.at(blocks).get<double>();
  const double used = std::floor(share * whole + 0.5);
  return Bytes(static_cast<std::int64_t>(used) * setup.at("block_bytes_per_gpu").get<std::int64_t>() * gpus);
}

class Profiler {
 public:
  Profiler(ClusterModel& model, std::size_t element, PointRunner& runner)
      : model_(model), runner_(runner), found_{.element = element, .balance = {}, .terms = {}} {}

  /// Empty when interrupted.
  std::optional<ProfiledModel> run() {
    if (model_.prompts > 0) {
      from_contexts();
    } else if (!measure()) {
      return std::nullopt;
    }
    model_.balance = found_.balance;
    return std::move(found_);
  }

 private:
  void from_contexts() {
    const Assembly assembly = assemble(resolve_config(parameter_table(), with_default_policy().assignments, {}));
    const KvLayout& kv = assembly.instance.kv;
    // A block is whole, and so are the bytes of its tokens.
    const Bytes per_token(kv.block_bytes.count() * model_.gpus / kv.block_tokens.count());
    found_.balance = Bytes(0) - context_demand(model_.prompts, model_.context, per_token);
    found_.terms = fmt::format("{} contexts of {} tokens at {} bytes per token: the model borrows {}", model_.prompts,
                               model_.context.count(), per_token.count(), gigabytes(Bytes(0) - found_.balance));
  }

  /// The steps below return false when interrupted.
  bool measure() {
    if (!find_rate() || !measure_free()) return false;
    if (balance_of(found_.free, Bytes(0)) <= Bytes(0)) return measure_demand();
    found_.balance = found_.free;
    found_.terms = at_rate() + ", which it lends";
    return true;
  }

  /// Keys policy.* are those of a consumer's scheduler.
  [[nodiscard]] Point with_default_policy() const {
    Point point{model_.assignments, {}};
    std::erase_if(point.assignments, [](const Assignment& one) { return one.key.starts_with("policy."); });
    return point;
  }
  /// A run at a rate that the caller adds.
  [[nodiscard]] static Point in_chunks(Point point) {
    std::erase_if(point.assignments, [](const Assignment& one) { return one.key == kRate; });
    point.assignments.push_back(placed("engine.max_num_batched_tokens", "512"));
    return point;
  }

  bool find_rate() {
    const std::vector<Parameter> table = parameter_table();
    std::vector<Problem> problems;
    Criterion criterion{.conditions = parse_conditions(kLimits, "place", false, problems)};
    SPILLWAY_CHECK(problems.empty(), "the profiler's limits are no conditions");
    PointGrid grid;
    grid.shared = in_chunks(with_default_policy()).assignments;
    SearchReport report;
    report.key = kRate;
    Search search(configurations_of(grid), *find_parameter(table, kRate), std::move(criterion), std::move(report),
                  {.start = 4.0, .low = kLeastRate, .high = kMostRate, .tolerance = 0.05}, runner_);
    if (!search.run()) return false;
    if (search.failure()) require_success(*search.failure(), model_.name);
    const FoundEdge& edge = search.report().edges.front();
    if (!edge.value) {
      const TriedValue* const closest = edge.closest();
      throw ConfigError::infeasible(
          fmt::format("{} misses the profiler's limits at {} request/s: {}", model_.name, kLeastRate,
                      closest != nullptr ? closest->reason : "no rate could be run"),
          model_.where, "raise tensor_parallel, or state what the model lends or borrows");
    }
    found_.stable_rate = *edge.value;
    return true;
  }

  bool measure_free() {
    Point run = in_chunks(with_default_policy());
    run.assignments.push_back(placed(kRate, fmt::format("{}", found_.stable_rate)));
    const std::vector<PointOutcome> outcomes = runner_.run({run});
    const PointOutcome& outcome = outcomes.front();
    if (outcome.code == ExitCode::interrupted) return false;
    require_success(outcome, model_.name);
    const double used = outcome.value("peak_gpu_kv_fraction").value_or(1.0);
    found_.free = kv_bytes(outcome, "gpu_kv_blocks", 1.0 - used, model_.gpus);
    return true;
  }

  bool measure_demand() {
    std::vector<Point> points;
    for (const double burst : kBursts) {
      Point run = in_chunks({model_.assignments, {}});
      const double rate = burst * found_.stable_rate;
      std::erase_if(run.assignments, [](const Assignment& one) { return one.key == "workload.requests"; });
      run.assignments.push_back(placed("policy", "cfs"));
      run.assignments.push_back(placed(kRate, fmt::format("{}", rate)));
      run.assignments.push_back(placed("workload.requests", fmt::format("{}", std::ceil(rate * kBurstSeconds))));
      points.push_back(std::move(run));
    }
    Bytes demand{};
    for (const PointOutcome& outcome : runner_.run(points)) {
      if (outcome.code == ExitCode::interrupted) return false;
      require_success(outcome, model_.name);
      const double used = outcome.value("peak_host_kv_fraction").value_or(0.0);
      demand = std::max(demand, kv_bytes(outcome, "host_kv_blocks", used, model_.gpus));
    }
    found_.balance = balance_of(found_.free, demand);
    found_.terms = at_rate() + (demand > Bytes(0) ? ", too little to lend; bursts swap " + gigabytes(demand)
                                                  : ", too little to lend; bursts swap nothing");
    return true;
  }

  [[nodiscard]] std::string at_rate() const {
    return fmt::format("stable up to {} requests/s with {} of KV memory free", figure(found_.stable_rate),
                       gigabytes(found_.free));
  }

  ClusterModel& model_;
  PointRunner& runner_;
  ProfiledModel found_;
};

}  // namespace

Bytes lendable_memory(std::span<const BatchPoint> curve) {
  if (curve.empty()) throw ConfigError("the curve of batch sizes is empty", "curve", "give at least one batch size");
  std::size_t reached = 0;
  while (reached + 1 < curve.size() &&
         curve[reached + 1].throughput >= (1.0 + kLeastBatchGain) * curve[reached].throughput) {
    ++reached;
  }
  return curve[reached].free;
}

Bytes balance_of(Bytes free, Bytes demand) { return free > kLeastProducer ? free : Bytes(0) - demand; }

Bytes context_demand(std::int64_t prompts, Tokens longest, Bytes bytes_per_token) {
  return bytes_per_token * longest.count() * prompts;
}

std::optional<std::vector<ProfiledModel>> profile(Cluster& cluster, PointRunner& runner) {
  std::vector<ProfiledModel> all;
  for (std::size_t i = 0; i < cluster.models.size(); ++i) {
    if (cluster.models[i].balance) continue;
    std::optional<ProfiledModel> one = Profiler(cluster.models[i], i, runner).run();
    if (!one) return std::nullopt;
    all.push_back(std::move(*one));
  }
  return all;
}

}  // namespace spillway::placer
