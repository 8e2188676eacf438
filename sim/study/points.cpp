#include "sim/study/points.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

#include "sim/core/text.hpp"
#include "sim/io/lines.hpp"
#include "sim/io/output.hpp"
#include "sim/study/assemble.hpp"
#include "sim/study/parameter_table.hpp"
#include "sim/study/prices.hpp"
#include "sim/study/replicated_run.hpp"
#include "sim/study/result_json.hpp"
#include "sim/study/result_version.hpp"
#include "sim/study/run_plan.hpp"
#include "sim/study/trust.hpp"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

/// Parses a result.json with all parts of an identity.
Json parse_result(std::string_view text, const std::string& where) {
  Json json = Json::parse(text, nullptr, false);
  const bool result = json.is_object() && json.contains("complete") && json["complete"] == true &&
                      json.contains("config") && json.contains("inputs") && json.contains("metrics") &&
                      json.contains("bottleneck") && json.contains("conservation");
  if (!result) throw DataError("not a complete result of a run", where, "delete the file and run the point again");
  if (const Json version = json.value("schema_version", Json()); version != kResultSchemaVersion) {
    throw DataError(fmt::format("the result has schema version {}, and this program reads version {}",
                                version.is_null() ? "none" : version.dump(), kResultSchemaVersion),
                    where, "delete the file and run the point again");
  }
  return json;
}

/// `json` has the keys config, inputs, tool_version, tool_build and, unless all scales are 1, op_scales, as in
/// result.json.
std::string id_of(const Json& json, bool other_localities) {
  Json identity;
  for (const char* key : {"tool_version", "tool_build", "config", "op_scales"}) {
    if (json.contains(key)) identity[key] = json[key];
  }
  for (const Json& input : json.at("inputs")) {
    identity["inputs"].push_back({{"role", input.at("role")}, {"sha256", input.at("sha256")}});
  }
  if (other_localities) identity["other_localities"] = true;
  return sha256_hex(identity.dump()).substr(0, 32);
}

std::optional<double> number(const Json& json) {
  return json.is_number() ? std::optional(json.get<double>()) : std::nullopt;
}

Metric read_metric(const std::string& name, const Json& json) {
  Metric metric{.name = name, .unit = json.at("unit"), .value = number(json.at("value")), .n = json.at("n")};
  if (json.contains("half_width")) metric.half_width = number(json["half_width"]);
  if (json.contains("relative_error")) metric.relative_error = json["relative_error"];
  if (json.contains("replications")) {
    for (const Json& value : json["replications"]) metric.replications.push_back(number(value));
  }
  return metric;
}

RangeUse read_range(const Json& json) {
  RangeUse use;
  use.op = json.at("op");
  use.quantity = json.at("quantity");
  use.low = json.at("measured").at(0);
  use.high = json.at("measured").at(1);
  use.reached = json.at("reached");
  use.beyond = json.value("beyond", std::string());
  // result.json stores only the share of the calls outside the range, so the total is arbitrary.
  constexpr std::int64_t kCalls = 1'000'000;
  use.calls = kCalls;
  use.outside = std::llround(json.at("fraction").get<double>() * static_cast<double>(kCalls));
  return use;
}

Trust read_trust(const Json& json) {
  Trust trust;
  trust.expected_error = json.at("setup").value("expected_error", std::string());
  trust.accuracy = json.value("warnings_of_accuracy", std::vector<std::string>());
  for (const Json& entry : json.at("validity")) {
    trust.validity.push_back(
        fmt::format("{}: {}", entry.at("role").get<std::string>(), entry.at("error").get<std::string>()));
  }
  std::vector<RangeUse> uses;
  for (const Json& use : json.at("outside_measured_range")) uses.push_back(read_range(use));
  if (!uses.empty()) trust.outside_range = range_text(std::move(uses));
  return trust;
}

PointOutcome failure(ExitCode code, std::vector<Problem> problems) {
  PointOutcome outcome;
  outcome.code = code;
  outcome.problems = std::move(problems);
  return outcome;
}

PointOutcome interrupted() { return failure(ExitCode::interrupted, {{"interrupted", "", ""}}); }

}  // namespace

const Metric* PointOutcome::find(std::string_view name) const { return find_metric(metrics, name); }

std::optional<double> PointOutcome::value(std::string_view name) const {
  const Metric* metric = find(name);
  return metric != nullptr ? metric->value : std::nullopt;
}

std::string PointOutcome::error() const {
  std::string text;
  for (const Problem& problem : problems) text += (text.empty() ? "" : "; ") + problem.what;
  return text;
}

PointOutcome outcome_from_json(std::string text, const std::string& where) {
  const Json json = parse_result(text, where);
  PointOutcome outcome;
  try {
    outcome.id = id_of(json, json.contains("other_localities"));
    for (const auto& [name, metric] : json["metrics"].items()) outcome.metrics.push_back(read_metric(name, metric));
    for (const Json& instance : json.value("instances", Json::array())) {
      std::vector<Metric>& metrics = outcome.instances[instance.at("name").get<std::string>()];
      for (const auto& [name, metric] : instance.at("metrics").items()) metrics.push_back(read_metric(name, metric));
    }
    outcome.warnings = json.at("warnings").get<std::vector<std::string>>();
    outcome.engine = json.at("setup").at("engine");
    if (const Json& state = json.at("steady_state"); !state.is_null()) {
      outcome.steadiness = state.at("verdict");
      outcome.steadiness_reason = state.at("reason");
    }
    outcome.requests = json.at("setup").at("requests");
    outcome.locality = read_assumed_locality(json.at("setup"));
    outcome.assumed_text = read_assumed_text(json);
    outcome.other_localities = read_locality_check(json);
    outcome.resource = json["bottleneck"].at("resource");
    outcome.bottleneck = json["bottleneck"].at("sentence");
    outcome.trust = read_trust(json);
    const Json& counts = json["conservation"].at("measured");
    outcome.measured = {counts.at("submitted"), counts.at("finished"),   counts.at("rejected"),
                        counts.at("timed_out"), counts.at("unfinished"), counts.at("lost")};
  } catch (const nlohmann::json::exception& error) {
    throw DataError(fmt::format("not a result of this version: {}", error.what()), where,
                    "delete the file and run the point again");
  }
  outcome.json = std::move(text);
  return outcome;
}

std::string point_id(const ResolvedConfig& config, const std::vector<InputFile>& inputs, const OpScales& scales,
                     bool other_localities) {
  Result result;
  result.tool_version = tool_version();
  result.tool_build = tool_build();
  result.config = config;
  result.inputs = inputs;
  result.scales = scales;
  return id_of(Json::parse(to_setup_json(result)), other_localities);
}

/// Progress of a batch of points, shared by all threads.
class PointRunner::Tally {
 public:
  Tally(const Options& options, const std::vector<double>& sizes, std::size_t workers)
      : options_(options), size_(std::accumulate(sizes.begin(), sizes.end(), 0.0)), running_(workers) {
    progress_.points = std::ssize(sizes);
  }

  void begin(std::size_t worker, double size) {
    const std::lock_guard lock(mutex_);
    running_[worker] = {.size = size};
  }
  /// The worker's point has `ended` of `requests` requests, over all its simulations.
  void advance(std::size_t worker, std::int64_t run, const Progress& progress, std::int64_t requests) {
    const std::lock_guard lock(mutex_);
    Running& point = running_[worker];
    const auto at = static_cast<std::size_t>(run);
    if (point.ended.size() <= at) {
      point.ended.resize(at + 1);
      point.seconds.resize(at + 1);
    }
    point.ended[at] = progress.ended;
    point.seconds[at] = to_seconds(progress.now);
    std::int64_t ended = 0;
    for (const std::int64_t one : point.ended) ended += one;
    point.fraction = requests > 0 ? std::min(1.0, static_cast<double>(ended) / static_cast<double>(requests)) : 0.0;
    report();
  }
  /// Passes the outcome to `done`, one call at a time.
  void end(std::size_t worker, PointOutcome outcome, const std::function<void(PointOutcome)>& done) {
    const std::lock_guard lock(mutex_);
    ++progress_.done;
    progress_.failed += outcome.failed() ? 1 : 0;
    progress_.stored += outcome.stored ? 1 : 0;
    // Stored points cost no work. Counting them would make the remaining points look fast.
    (outcome.stored ? size_ : done_size_) += outcome.stored ? -running_[worker].size : running_[worker].size;
    if (!outcome.stored) done_seconds_ += simulated_seconds(outcome);
    running_[worker] = {};
    done(std::move(outcome));
    report();
  }

 private:
  struct Running {
    double size = 0.0;
    double fraction = 0.0;
    std::vector<std::int64_t> ended{};  // by simulation
    std::vector<double> seconds{};
  };

  /// Simulated time of all replications, and of other localities, which take about as long.
  static double simulated_seconds(const PointOutcome& outcome) {
    const Metric* duration = outcome.find("duration_s");
    if (duration == nullptr || !duration->value) return 0.0;
    const std::size_t variants = 1 + (outcome.other_localities ? outcome.other_localities->runs.size() : 0);
    return *duration->value * static_cast<double>(variants * std::max<std::size_t>(1, duration->replications.size()));
  }

  void report() {
    if (!options_.on_progress) return;
    double size = done_size_;
    progress_.simulated_seconds = done_seconds_;
    for (const Running& point : running_) {
      size += point.size * point.fraction;
      for (const double seconds : point.seconds) progress_.simulated_seconds += seconds;
    }
    progress_.fraction = size_ > 0.0 ? std::min(1.0, size / size_) : 1.0;
    options_.on_progress(progress_);
  }

  const Options& options_;
  double size_;  // total size of the points to run
  double done_size_ = 0.0;
  double done_seconds_ = 0.0;
  std::vector<Running> running_;  // by worker
  PointsProgress progress_;
  std::mutex mutex_;
};

PointRunner::PointRunner(Options options) : options_(std::move(options)), table_(parameter_table()) {}

std::vector<InputFile> PointRunner::inputs_of(const ResolvedConfig& config) {
  constexpr std::array kFileKeys{"model",          "hardware",           "topology",        "engine", "tensor_parallel",
                                 "workload.trace", "workload.tokenizer", "workload.format", "events", kInstancesKey,
                                 kPriceKey};
  std::vector<std::string> texts;
  texts.reserve(kFileKeys.size());
  for (const char* key : kFileKeys) texts.push_back(config.key(key).text);
  {
    const std::lock_guard lock(inputs_mutex_);
    const auto known = inputs_.find(texts);
    if (known != inputs_.end()) return known->second;
  }
  std::vector<InputFile> inputs = assemble(config).inputs;
  const std::lock_guard lock(inputs_mutex_);
  return inputs_.emplace(std::move(texts), std::move(inputs)).first->second;
}

PointOutcome PointRunner::simulate_point(const Point& point, int jobs, Tally& tally, std::size_t worker) {
  ResolvedConfig config = resolve_config(table_, point.assignments, {});
  const bool localities = point.other_localities && !assumed_localities(config).empty();
  const std::string id = point_id(config, inputs_of(config), point.scales, localities);
  if (options_.store != nullptr) {
    if (auto text = options_.store->load(id)) {
      try {
        PointOutcome outcome = outcome_from_json(*std::move(text), options_.store->point_path(id));
        outcome.stored = true;
        if (outcome.id == id) return outcome;
      } catch (const DataError&) {
        // The file was not written by a run of this point. Run the point again and replace the file.
      }
    }
  }
  Assembly assembly = assemble(std::move(config));
  if (point_id(assembly.config, assembly.inputs, point.scales, localities) != id) {
    throw DataError("an input file was changed while points were run on it", assembly.config.place("workload.trace"),
                    "run again");
  }
  RunPlan plan{.scales = point.scales};
  if (localities) plan_localities(assembly, plan);
  ReplicationHooks hooks;
  hooks.stop = options_.stop;
  if (options_.on_progress) {
    const std::int64_t requests = assembly.setup.requests * planned_simulations(assembly, plan);
    hooks.on_progress = [&tally, worker, requests](std::int64_t run, const Progress& progress) {
      tally.advance(worker, run, progress, requests);
    };
  }
  const Result result = planned_result(assembly, plan, simulate_plan(assembly, plan, jobs, {}, hooks));
  if (!result.complete) return interrupted();
  PointOutcome outcome = outcome_from_json(to_json(result), "result");
  SPILLWAY_CHECK(outcome.id == id, "a result has the identity of its point");
  return outcome;
}

PointOutcome PointRunner::run_point(const Point& point, int jobs, Tally& tally, std::size_t worker) {
  PointOutcome outcome;
  try {
    outcome = simulate_point(point, jobs, tally, worker);
  } catch (const UserError& error) {
    outcome = failure(error.code(), error.problems());
  } catch (const BrokenPromise& error) {
    outcome = failure(ExitCode::invariant, {{error.what(), "", "correct the policy"}});
    outcome.broken_promise = true;
  } catch (const std::exception& error) {
    outcome = failure(ExitCode::invariant,
                      {{fmt::format("internal error: {}", error.what()), "", "this is a defect in Spillway"}});
  }
  if (options_.store != nullptr && !outcome.failed() && !outcome.stored) options_.store->save(outcome.id, outcome.json);
  return outcome;
}

/// The threads of one batch. Threads take points one by one, in order.
class PointRunner::Batch {
 public:
  Batch(PointRunner& runner, const std::vector<std::int64_t>& order, const std::vector<double>& sizes,
        const std::function<Point(std::int64_t)>& point_at, const std::function<void(std::int64_t, PointOutcome)>& done)
      : runner_(runner),
        order_(order),
        sizes_(sizes),
        point_at_(point_at),
        done_(done),
        workers_(std::clamp<std::size_t>(static_cast<std::size_t>(runner.options_.jobs), 1,
                                         std::max<std::size_t>(1, order.size()))),
        tally_(runner.options_, sizes, workers_),
        errors_(workers_) {}

  /// Returns false when stopped early.
  bool run() {
    std::vector<std::thread> threads;
    for (std::size_t i = 1; i < workers_; ++i) threads.emplace_back([this, i] { work(i); });
    work(0);
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& error : errors_) {
      if (error) std::rethrow_exception(error);
    }
    return !early_;
  }

 private:
  void work(std::size_t worker) {
    try {
      for (std::size_t i = next_++; i < order_.size() && !broken_ && !early_; i = next_++) run_one(worker, i);
    } catch (...) {
      errors_[worker] = std::current_exception();
      broken_ = true;
    }
  }

  void run_one(std::size_t worker, std::size_t i) {
    const std::atomic<bool>* stop = runner_.options_.stop;
    if (stop != nullptr && stop->load()) {
      early_ = true;
      return;
    }
    // Threads without a point of their own help with the replications.
    const int jobs = runner_.options_.jobs / static_cast<int>(workers_);
    tally_.begin(worker, sizes_[i]);
    PointOutcome outcome = runner_.run_point(point_at_(order_[i]), jobs, tally_, worker);
    if (outcome.code == ExitCode::interrupted) {
      early_ = true;
      return;
    }
    tally_.end(worker, std::move(outcome), [&](PointOutcome ended) { done_(order_[i], std::move(ended)); });
  }

  PointRunner& runner_;
  const std::vector<std::int64_t>& order_;
  const std::vector<double>& sizes_;
  const std::function<Point(std::int64_t)>& point_at_;
  const std::function<void(std::int64_t, PointOutcome)>& done_;
  std::size_t workers_;
  Tally tally_;
  std::vector<std::exception_ptr> errors_;  // by worker
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> broken_{false};
  std::atomic<bool> early_{false};
};

bool PointRunner::run(const std::vector<std::int64_t>& order, const std::vector<double>& sizes,
                      const std::function<Point(std::int64_t)>& point_at,
                      const std::function<void(std::int64_t, PointOutcome)>& done) {
  return Batch(*this, order, sizes, point_at, done).run();
}

std::vector<PointOutcome> PointRunner::run(const std::vector<Point>& points) {
  std::vector<std::int64_t> order(points.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i);
  std::vector<PointOutcome> outcomes(points.size(), interrupted());
  run(
      order, std::vector<double>(points.size(), 1.0),
      [&](std::int64_t i) { return points[static_cast<std::size_t>(i)]; },
      [&](std::int64_t i, PointOutcome outcome) { outcomes[static_cast<std::size_t>(i)] = std::move(outcome); });
  return outcomes;
}

}  // namespace spillway
