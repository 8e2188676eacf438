#include "sim/study/advice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <tuple>

#include "sim/config/config.hpp"
#include "sim/study/assemble.hpp"
#include "sim/study/axes.hpp"
#include "sim/study/parameter_table.hpp"
#include "sim/study/serve_flags.hpp"

namespace spillway {
namespace {

constexpr double kAllAtOnce = 1e6;        // requests/s: all arrive before the first has ended
constexpr double kHeadroom = 1.25;        // a run of all requests at once understates what is sustained by less
constexpr double kNotTried = 1e300;       // miss of what was not searched
constexpr double kWorthwhile = 1.05;      // a setting is kept if it raises the capacity by more
constexpr double kLeastShare = 1.0 / 64;  // of the rate at which a search starts: what sustains less misses the SLOs
constexpr std::int64_t kSettled = 4;      // requests of a fleet's run, in those of a replica
constexpr double kFarthest = 8.0;         // crossovers are looked for up to so many times slower and faster
constexpr std::size_t kContenders = 4;    // of a crossover
constexpr std::int64_t kMoreReplicas = 3;

void set(Point& point, const std::string& key, const std::string& text) {
  std::erase_if(point.assignments, [&](const Assignment& given) { return given.key == key; });
  point.assignments.push_back({key, text, Origin::argument, "advise", {}});
}

std::string number(double value) { return fmt::format("{:.6g}", value); }

const char* const kHostCache = "memory.host_cache";
const char* const kDropHistory = "workload.drop_history";
const char* const kTriedCache = "64GiB";  // where no host cache was chosen

}  // namespace

std::vector<Knob> knobs_for(const std::vector<std::string>& given, bool quick) {
  const auto each = [](const std::string& key, const std::vector<std::string>& texts) {
    std::vector<Knob::Value> values;
    values.reserve(texts.size());
    for (const std::string& text : texts) values.push_back({{key, text}});
    return values;
  };
  std::vector<Knob> all;
  all.push_back(
      {each("engine.max_num_batched_tokens",
            quick ? std::vector<std::string>{"8192"} : std::vector<std::string>{"512", "4096", "8192", "16384"})});
  all.push_back({each("engine.max_num_seqs",
                      quick ? std::vector<std::string>{"1024"} : std::vector<std::string>{"64", "512", "1024"})});
  all.push_back({each("engine.preemption", {"swap"})});
  all.push_back({{{{"engine.prefix_caching", "true"}}}});
  // A tier holds blocks of the prefix cache. How little of it is enough is searched for the winner.
  all.push_back({each(
      kHostCache, quick ? std::vector<std::string>{"64GiB"} : std::vector<std::string>{"16GiB", "64GiB", "256GiB"})});
  if (!quick) all.push_back({each("memory.kv_dtype", {"fp8"}), true});
  std::erase_if(all, [&](const Knob& knob) {
    return std::ranges::any_of(knob.values.front(), [&](const auto& setting) {
      return std::ranges::find(given, setting.first) != given.end();
    });
  });
  return all;
}

const AdvisedConfiguration* Advice::winner() const {
  if (configurations.empty() || configurations.front().standing != Standing::ranked) return nullptr;
  return &configurations.front();
}

FleetFigures figures_of(const Fleet& fleet) {
  const auto value = [&](const char* name) -> std::optional<double> {
    const Metric* const metric = find_metric(fleet.metrics, name);
    return metric == nullptr ? std::nullopt : metric->value;
  };
  FleetFigures figures{.gpus = static_cast<double>(fleet.gpus),
                       .p99_ttft_ms = value("p99_ttft_ms"),
                       .mean_tpot_ms = value("mean_tpot_ms")};
  const auto cost = value("cost_per_million_output_tokens");
  const auto rate = value("output_throughput_tokens_per_s");
  if (cost && rate) figures.cost_per_hour = *cost * *rate * 3600.0 / 1e6;
  return figures;
}

std::vector<std::size_t> pareto_front(const std::vector<Fleet>& fleets) {
  std::vector<FleetFigures> figures;
  figures.reserve(fleets.size());
  for (const Fleet& fleet : fleets) figures.push_back(figures_of(fleet));
  const auto counts = [&](std::size_t i) {
    return fleets[i].holds && figures[i].p99_ttft_ms && figures[i].mean_tpot_ms;
  };
  bool priced = true;
  for (std::size_t i = 0; i < fleets.size(); ++i) priced = priced && (!counts(i) || figures[i].cost_per_hour);
  const auto cost = [&](std::size_t i) { return priced ? figures[i].cost_per_hour.value_or(0.0) : figures[i].gpus; };
  const auto beats = [&](std::size_t a, std::size_t b) {
    const std::array<double, 3> one{cost(a), *figures[a].p99_ttft_ms, *figures[a].mean_tpot_ms};
    const std::array<double, 3> other{cost(b), *figures[b].p99_ttft_ms, *figures[b].mean_tpot_ms};
    bool better = false;
    for (std::size_t k = 0; k < one.size(); ++k) {
      if (one[k] > other[k]) return false;
      better = better || one[k] < other[k];
    }
    return better;
  };
  std::vector<std::size_t> front;
  for (std::size_t i = 0; i < fleets.size(); ++i) {
    if (!counts(i)) continue;
    bool beaten = false;
    for (std::size_t j = 0; j < fleets.size() && !beaten; ++j) beaten = j != i && counts(j) && beats(j, i);
    if (!beaten) front.push_back(i);
  }
  return front;
}

Adviser::Adviser(AdviceTask task, PointRunner& runner, AdviceProgress progress)
    : task_(std::move(task)), runner_(runner), progress_(std::move(progress)), rough_(task_.criterion) {
  rough_.steady = false;
  advice_.conditions = task_.criterion.texts();
  advice_.quick = task_.quick;
  advice_.rate = task_.rate;
  advice_.tolerance = task_.tolerance;
  for (std::int64_t i = 0; i < task_.grid.grid.size(); ++i) {
    advice_.configurations.push_back({.label = task_.grid.grid.label(i)});
  }
}

void Adviser::say(const std::string& phase, double fraction) const {
  if (progress_) progress_(phase, fraction);
}

Point Adviser::point(const Candidate& candidate) const {
  Point point = task_.grid.point(static_cast<std::int64_t>(candidate.configuration));
  for (const auto& [key, text] : candidate.settings) set(point, key, text);
  return point;
}

Point Adviser::short_point(const Candidate& candidate) const {
  Point point = this->point(candidate);
  const bool given = std::ranges::any_of(
      point.assignments, [](const Assignment& one) { return one.key == "workload.requests" && one.text; });
  if (!given) set(point, "workload.requests", fmt::format("{}", task_.requests));
  set(point, "replications", "1");
  return point;
}

Point Adviser::point_at(const Candidate& candidate, double rate) const {
  Point point = short_point(candidate);
  set(point, task_.key.name, numeric_text(task_.key, rate));
  return point;
}

std::optional<std::vector<PointOutcome>> Adviser::run_all(const std::vector<Point>& points) {
  if (points.empty()) return std::vector<PointOutcome>{};
  std::vector<PointOutcome> outcomes = runner_.run(points);
  advice_.runs += std::ssize(points);
  const bool cut = std::ranges::any_of(outcomes, [](const auto& one) { return one.code == ExitCode::interrupted; });
  if (cut) return std::nullopt;
  return outcomes;
}

std::optional<std::vector<Adviser::Found>> Adviser::search(const std::vector<std::pair<Point, double>>& points,
                                                           const Criterion& criterion, double factor,
                                                           double tolerance) {
  std::vector<SearchedConfiguration> configurations;
  for (const auto& [point, start] : points) {
    configurations.push_back({.point = point, .start = start, .low = start * kLeastShare});
    std::erase_if(configurations.back().point.assignments,
                  [&](const Assignment& one) { return one.key == task_.key.name; });
  }
  SearchReport report;
  report.key = task_.key.name;
  Search search(std::move(configurations), task_.key, criterion, std::move(report),
                {.factor = factor, .tolerance = tolerance}, runner_);
  if (!search.run()) return std::nullopt;
  std::vector<Found> found;
  for (const FoundEdge& edge : search.report().edges) {
    advice_.runs += std::ssize(edge.probes);
    Found& one = found.emplace_back(Found{.capacity = edge.value});
    if (const TriedValue* best = edge.probe(edge.value)) one.requests = best->requests;
    if (edge.value && *edge.value >= kAllAtOnce) {
      throw ConfigError(
          fmt::format("{} requests meet the limits even if all arrive at once, so they show no highest rate",
                      one.requests),
          "workload.requests", fmt::format("raise it, for example to {}", 20 * one.requests));
    }
    if (const TriedValue* closest = edge.closest(); !edge.value && closest != nullptr) {
      one.reason =
          fmt::format("{} at {} requests/s, the closest of {}", closest->reason, closest->text, edge.probes.size());
      one.miss = closest->miss;
      one.closest_rate = closest->value;
    } else if (!edge.value && !edge.probes.empty()) {
      one.reason = edge.probes.back().reason;
    }
  }
  return found;
}

bool Adviser::run() {
  if (!ceilings()) return false;
  if (!scout()) return false;
  keep_best();
  if (!tune() || !settle() || !describe()) return false;
  const bool none = std::ranges::none_of(candidates_, [](const Candidate& one) { return one.capacity.has_value(); });
  if (none && !find_help()) return false;
  rank();
  if (none) return true;
  if (!fleets()) return false;
  return !task_.explain || (find_least_memory() && check_ranks() && find_crossovers());
}

bool Adviser::plays_stationary() const {
  for (std::size_t i = 0; i < advice_.configurations.size(); ++i) {
    try {
      const Point one = point_at({.configuration = i}, 1.0);
      return assemble(resolve_config(parameter_table(), one.assignments, {})).workload.stationary;
    } catch (const ConfigError&) {
      continue;  // what it cannot do is said where it is to run
    } catch (const DataError&) {
      continue;
    }
  }
  return false;
}

bool Adviser::ceilings() {
  say("the most that each can answer", 0.0);
  const std::vector<std::string> given = given_keys();
  const auto is_given = [&](const char* key) { return std::ranges::find(given, key) != given.end(); };
  const bool vary = !is_given("tensor_parallel") && !is_given("data_parallel") && !is_given("expert_parallel");
  // Conversations that are in balance at that rate would be too many to be live. Without think times each begins at
  // once and goes on as fast as it is answered.
  const bool stationary = plays_stationary();
  std::vector<Point> points;
  for (std::size_t i = 0; i < advice_.configurations.size(); ++i) {
    for (const char* const gpus : {"1", "2", "4", "8"}) {
      Candidate candidate{.configuration = i};
      if (vary) candidate.settings = {{"tensor_parallel", gpus}};
      Point all_at_once = point_at(candidate, kAllAtOnce);
      if (stationary) {
        set(all_at_once, "workload.start", "empty");
        set(all_at_once, "workload.think_time", "constant(0s)");
      }
      points.push_back(std::move(all_at_once));
      candidates_.push_back(std::move(candidate));
      if (!vary) break;
    }
  }
  const auto outcomes = run_all(points);
  if (!outcomes) return false;
  for (std::size_t i = 0; i < outcomes->size(); ++i) {
    const PointOutcome& outcome = (*outcomes)[i];
    Candidate& candidate = candidates_[i];
    AdvisedConfiguration& configuration = advice_.configurations[candidate.configuration];
    if (outcome.failed()) {
      candidate.reason = outcome.error();
      if (configuration.reason.empty()) configuration.reason = candidate.reason;
      if (!failure_) failure_ = outcome;
      continue;
    }
    const auto result = nlohmann::json::parse(outcome.json);
    candidate.ran = true;
    candidate.gpus = result.at("config").at("tensor_parallel").get<std::int64_t>() *
                     result.at("config").at("data_parallel").get<std::int64_t>();
    candidate.ceiling = outcome.value("request_throughput_per_s");
  }
  std::erase_if(candidates_, [](const Candidate& one) { return !one.ran || !one.ceiling; });
  if (!candidates_.empty()) failure_.reset();
  return true;
}

std::string Adviser::hardware_of(const Candidate& candidate) const {
  const std::vector<std::string> keys = task_.grid.grid.keys();
  const auto at = std::ranges::find(keys, "hardware");
  if (at == keys.end()) return "";
  return task_.grid.grid.values(static_cast<std::int64_t>(candidate.configuration))
      .at(static_cast<std::size_t>(at - keys.begin()));
}

bool Adviser::scout() {
  const auto per_gpu = [](const Candidate& one) { return *one.ceiling / static_cast<double>(one.gpus); };
  std::ranges::stable_sort(candidates_, std::ranges::greater{}, per_gpu);
  std::map<std::string, double> best;  // by hardware: what wins on one may be the choice of whoever has it
  // Waves, so that what the first find spares later ones their search: the one with the highest ceiling, then several.
  constexpr std::size_t kWave = 6;
  for (std::size_t first = 0, end = 0; first < candidates_.size(); first = end) {
    say("capacities", 0.1 + 0.3 * static_cast<double>(first) / static_cast<double>(candidates_.size()));
    end = std::min(candidates_.size(), first + (first == 0 ? 1 : kWave));
    std::vector<std::pair<Point, double>> points;
    std::vector<Candidate*> searched;
    for (std::size_t i = first; i < end; ++i) {
      Candidate& candidate = candidates_[i];
      if (task_.prune && per_gpu(candidate) * kHeadroom < best[hardware_of(candidate)]) continue;
      points.emplace_back(short_point(candidate), std::stod(number(0.5 * *candidate.ceiling)));
      searched.push_back(&candidate);
    }
    const auto found = search(points, rough_, 1.5, 0.1);
    if (!found) return false;
    for (std::size_t i = 0; i < searched.size(); ++i) {
      Candidate& candidate = *searched[i];
      candidate.capacity = (*found)[i].capacity;
      candidate.reason = candidate.capacity ? "" : (*found)[i].reason;
      candidate.miss = (*found)[i].miss;
      candidate.closest_rate = (*found)[i].closest_rate;
      candidate.tried = 1;
      double& most = best[hardware_of(candidate)];
      most = std::max(most, candidate.capacity.value_or(0.0) / static_cast<double>(candidate.gpus));
    }
  }
  return true;
}

// Of each configuration the number of GPUs that does best, per GPU, or else comes closest to the SLOs.
void Adviser::keep_best() {
  std::vector<Candidate> kept;
  for (std::size_t i = 0; i < advice_.configurations.size(); ++i) {
    const Candidate* best = nullptr;
    const auto better = [](const Candidate& a, const Candidate& b) {
      const auto figure = [](const Candidate& one) {
        const double gpus = static_cast<double>(one.gpus);
        return std::tuple(one.capacity.value_or(0.0) / gpus, -one.miss.value_or(kNotTried), *one.ceiling / gpus);
      };
      return figure(a) > figure(b);
    };
    for (const Candidate& one : candidates_) {
      if (one.configuration == i && (best == nullptr || better(one, *best))) best = &one;
    }
    if (best == nullptr) continue;
    AdvisedConfiguration& configuration = advice_.configurations[i];
    configuration.ceiling = best->ceiling;
    configuration.gpus = best->gpus;
    configuration.standing = best->tried == 0 ? Standing::pruned : Standing::misses;
    configuration.reason = best->reason;
    kept.push_back(*best);
  }
  candidates_ = std::move(kept);
}

bool Adviser::tune() {
  if (!task_.tune) return true;
  const std::vector<Knob> knobs = knobs_for(given_keys(), task_.quick);
  for (std::size_t k = 0; k < knobs.size(); ++k) {
    say("settings", 0.4 + 0.2 * static_cast<double>(k) / static_cast<double>(knobs.size()));
    for (const Knob::Value& value : knobs[k].values) {
      if (!try_value(value, knobs[k].changes_answers)) return false;
    }
  }
  return true;
}

std::vector<std::string> Adviser::given_keys() const {
  std::vector<std::string> given;
  for (const Assignment& one : task_.grid.shared) given.push_back(one.key);
  for (const std::string& key : task_.grid.grid.keys()) given.push_back(key);
  return given;
}

Adviser::Candidate Adviser::with(const Candidate& candidate, const Knob::Value& value) {
  Candidate other = candidate;
  for (const auto& [key, text] : value) {
    std::erase_if(other.settings, [&key = key](const auto& setting) { return setting.first == key; });
    other.settings.emplace_back(key, text);
  }
  return other;
}

bool Adviser::find_help() {
  const Candidate* closest = nullptr;
  for (const Candidate& one : candidates_) {
    if (one.miss && (closest == nullptr || *one.miss < *closest->miss)) closest = &one;
  }
  if (closest == nullptr) return true;
  say("what would help", 0.75);
  std::vector<ClosestMiss::Help> tried;
  std::vector<Point> points{point_at(*closest, closest->closest_rate)};
  for (const Knob& knob : knobs_for(given_keys(), /*quick=*/false)) {
    for (const Knob::Value& value : knob.values) {
      tried.push_back({.settings = value, .changes_answers = knob.changes_answers});
      points.push_back(point_at(with(*closest, value), closest->closest_rate));
    }
  }
  const auto outcomes = run_all(points);
  if (!outcomes) return false;
  const std::optional<double> as_it_is = rough_.miss(outcomes->front());
  if (!as_it_is) return true;
  advice_.closest = {.label = advice_.configurations[closest->configuration].label,
                     .gpus = closest->gpus,
                     .rate = closest->closest_rate,
                     .reason = rough_.fault(outcomes->front())};
  constexpr double kCloser = 0.95;  // what comes closer by less is not worth a word
  std::vector<std::pair<double, ClosestMiss::Help>> closer;
  for (std::size_t i = 0; i < tried.size(); ++i) {
    const std::optional<double> miss = rough_.miss((*outcomes)[i + 1]);
    if (!miss || *miss >= kCloser * *as_it_is) continue;
    tried[i].reason = rough_.fault((*outcomes)[i + 1]);
    closer.emplace_back(*miss, std::move(tried[i]));
  }
  std::ranges::stable_sort(closer, {}, [](const auto& one) { return one.first; });
  for (auto& [miss, help] : closer) advice_.closest->help.push_back(std::move(help));
  return true;
}

bool Adviser::try_value(const Knob::Value& value, bool changes_answers) {
  std::vector<Candidate> changed;
  std::vector<Candidate*> of;
  std::vector<Point> points;
  for (Candidate& candidate : candidates_) {
    if (!candidate.capacity) continue;
    Candidate other = with(candidate, value);
    other.changes_answers = candidate.changes_answers || changes_answers;
    points.push_back(point_at(other, *candidate.capacity * kWorthwhile));
    changed.push_back(std::move(other));
    of.push_back(&candidate);
    ++advice_.configurations[candidate.configuration].settings_tried;
  }
  const auto outcomes = run_all(points);
  if (!outcomes) return false;
  std::vector<std::pair<Point, double>> better;
  std::vector<std::size_t> which;
  for (std::size_t i = 0; i < outcomes->size(); ++i) {
    if (!rough_.fault((*outcomes)[i]).empty()) continue;
    better.emplace_back(short_point(changed[i]), *of[i]->capacity * kWorthwhile);
    which.push_back(i);
  }
  const auto found = search(better, rough_, 1.2, 0.05);
  if (!found) return false;
  for (std::size_t i = 0; i < which.size(); ++i) {
    if (!(*found)[i].capacity) continue;
    changed[which[i]].capacity = (*found)[i].capacity;
    *of[which[i]] = std::move(changed[which[i]]);
  }
  return true;
}

bool Adviser::settle() {
  say(task_.quick ? "capacities, closer" : "capacities in steady state", 0.6);
  std::vector<std::pair<Point, double>> points;
  std::vector<Candidate*> searched;
  for (Candidate& candidate : candidates_) {
    if (!candidate.capacity) continue;
    Point searched_point = task_.quick ? short_point(candidate) : point(candidate);
    set(searched_point, "replications", "1");  // the runs grow until they are steady; describe() checks the rest
    points.emplace_back(std::move(searched_point), *candidate.capacity);
    searched.push_back(&candidate);
  }
  const auto found = search(points, task_.quick ? rough_ : task_.criterion, 1.1, task_.tolerance);
  if (!found) return false;
  for (std::size_t i = 0; i < searched.size(); ++i) {
    AdvisedConfiguration& configuration = advice_.configurations[searched[i]->configuration];
    searched[i]->capacity = (*found)[i].capacity;
    configuration.standing = searched[i]->capacity ? Standing::ranked : Standing::misses;
    configuration.reason = (*found)[i].reason;
    configuration.requests = (*found)[i].requests;
  }
  return true;
}

// Runs each at its capacity in every replication, for what a search does not keep. Where the replications together miss
// the SLOs, the capacity comes down until they do not.
bool Adviser::describe() {
  say("all replications", 0.68);
  const Criterion& criterion = task_.quick ? rough_ : task_.criterion;
  std::vector<Candidate*> open;
  for (Candidate& candidate : candidates_) {
    if (candidate.capacity) open.push_back(&candidate);
  }
  constexpr int kMostSteps = 10;
  for (int step = 0; step < kMostSteps && !open.empty(); ++step) {
    std::vector<Point> points;
    points.reserve(open.size());
    for (const Candidate* candidate : open) points.push_back(described_point(*candidate));
    const auto outcomes = run_all(points);
    if (!outcomes) return false;
    std::vector<Candidate*> missing;
    for (std::size_t i = 0; i < open.size(); ++i) {
      const std::string fault = criterion.fault((*outcomes)[i]);
      AdvisedConfiguration& configuration = advice_.configurations[open[i]->configuration];
      if (fault.empty()) {
        take_description(*open[i], (*outcomes)[i], configuration);
        continue;
      }
      configuration.standing = Standing::misses;
      configuration.reason = fmt::format("{} at {} requests/s", fault, number(*open[i]->capacity));
      open[i]->capacity = *open[i]->capacity * (1.0 - task_.tolerance);
      missing.push_back(open[i]);
    }
    open = std::move(missing);
  }
  for (Candidate* const candidate : open) candidate->capacity.reset();
  return vary_localities();
}

// Once the capacities are known, so that no run at another rate is repeated.
bool Adviser::vary_localities() {
  if (!task_.other_localities || task_.grid.varies(kLocalityKey)) return true;
  std::vector<Point> points;
  std::vector<AdvisedConfiguration*> varied;
  for (const Candidate& candidate : candidates_) {
    AdvisedConfiguration& configuration = advice_.configurations[candidate.configuration];
    if (!candidate.capacity || !configuration.locality) continue;
    if (const std::string& why = configuration.locality->no_effect; !why.empty()) {
      configuration.other_localities = LocalityCheck{.not_run = why};
      continue;
    }
    points.push_back(described_point(candidate));
    points.back().other_localities = true;
    varied.push_back(&configuration);
  }
  const auto outcomes = run_all(points);
  if (!outcomes) return false;
  for (std::size_t i = 0; i < varied.size(); ++i) varied[i]->other_localities = (*outcomes)[i].other_localities;
  return true;
}

Point Adviser::described_point(const Candidate& candidate) const {
  Point point = task_.quick ? short_point(candidate) : this->point(candidate);
  set(point, task_.key.name, numeric_text(task_.key, *candidate.capacity));
  set(point, "workload.requests", fmt::format("{}", advice_.configurations[candidate.configuration].requests));
  return point;
}

void Adviser::take_description(const Candidate& candidate, const PointOutcome& outcome,
                               AdvisedConfiguration& configuration) const {
  configuration.standing = Standing::ranked;
  configuration.reason.clear();
  configuration.capacity = candidate.capacity;
  configuration.gpus = candidate.gpus;
  configuration.settings = candidate.settings;
  configuration.changes_answers = candidate.changes_answers;
  configuration.metrics = outcome.metrics;
  configuration.noise = task_.criterion.noise(outcome.metrics);
  configuration.resource = outcome.resource;
  configuration.bottleneck = outcome.bottleneck;
  configuration.steadiness = outcome.steadiness;
  configuration.trust = outcome.trust;
  configuration.locality = outcome.locality;
  const auto result = nlohmann::json::parse(outcome.json);
  const auto& setup = result.at("setup");
  if (const auto flags = serve_flags(result)) {
    configuration.flags = fmt::format("{}: {} ({})", flags->engine, flags->command, flags->source);
  }
  const double block = setup.at("block_bytes_per_gpu").get<double>();
  const double kv = setup.at("host_kv_blocks").get<double>() * outcome.value("peak_host_kv_fraction").value_or(0.0);
  const double cache = setup.at("host_cache_blocks").get<double>();
  const double layers = outcome.value("peak_host_layer_bytes").value_or(0.0) +
                        outcome.value("weights_peak_host_layer_bytes").value_or(0.0);
  configuration.host_bytes = std::llround(((kv + cache) * block + layers) * static_cast<double>(configuration.gpus));
}

void Adviser::rank() {
  const auto figure = [](const AdvisedConfiguration& one) {
    return std::tuple(static_cast<int>(one.standing), -one.per_gpu(), -one.ceiling_per_gpu());
  };
  std::vector<std::size_t> order(advice_.configurations.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return figure(advice_.configurations[i]); });
  std::vector<std::size_t> place(order.size());
  std::vector<AdvisedConfiguration> ranked;
  for (std::size_t i = 0; i < order.size(); ++i) {
    place[order[i]] = i;
    ranked.push_back(std::move(advice_.configurations[order[i]]));
  }
  // Candidates name configurations by their place in the grid, which `point` needs.
  std::ranges::stable_sort(candidates_, {}, [&](const Candidate& one) { return place[one.configuration]; });
  advice_.configurations = std::move(ranked);
}

bool Adviser::fleets() {
  if (!task_.rate) return true;
  say("replicas for the rate", 0.7);
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    const Candidate& candidate = candidates_[i];
    if (!candidate.capacity) continue;
    Fleet fleet;
    const auto least = static_cast<std::int64_t>(std::ceil(*task_.rate / *candidate.capacity));
    for (std::int64_t replicas = std::max<std::int64_t>(1, least); replicas <= least + kMoreReplicas; ++replicas) {
      Point point = point_at(candidate, *task_.rate);
      set(point, "replicas", fmt::format("{}", replicas));
      set(point, "workload.requests", fmt::format("{}", std::max(task_.requests, kSettled * 100 * replicas)));
      const auto outcomes = run_all({point});
      if (!outcomes) return false;
      const PointOutcome& outcome = outcomes->front();
      fleet = {.replicas = replicas,
               .gpus = replicas * candidate.gpus,
               .fault = rough_.fault(outcome),
               .metrics = outcome.metrics};
      fleet.holds = fleet.fault.empty();
      if (fleet.holds || outcome.failed()) break;
    }
    advice_.configurations[i].fleet = std::move(fleet);
  }
  return true;
}

bool Adviser::find_least_memory() {
  const AdvisedConfiguration* const winner = advice_.winner();
  if (winner == nullptr) return true;
  const Candidate& candidate = candidates_.front();
  const auto cache = std::ranges::find(candidate.settings, kHostCache, &std::pair<std::string, std::string>::first);
  if (cache == candidate.settings.end()) return true;
  say("the least host memory", 0.75);
  const std::vector<Parameter> table = parameter_table();
  const Parameter& key = *find_parameter(table, kHostCache);
  const double most = numeric_value(key, cache->second).value_or(0.0);
  constexpr double kShare = 0.97;
  Point point = point_at(candidate, kShare * *candidate.capacity);
  std::erase_if(point.assignments, [&](const Assignment& one) { return one.key == kHostCache; });
  SearchReport report;
  report.key = key.name;
  report.largest = false;
  Search search({{.point = std::move(point), .start = most}}, key, rough_, std::move(report),
                {.goal = EdgeSearch::Goal::smallest, .low = 1e6, .high = most, .tolerance = 0.1}, runner_);
  if (!search.run()) return false;
  const FoundEdge& edge = search.report().edges.front();
  advice_.runs += std::ssize(edge.probes);
  if (const TriedValue* const best = edge.probe(edge.value)) {
    const Metric* const hits = find_metric(best->metrics, "host_cache_hit_fraction");
    advice_.memory.push_back({kHostCache, best->text, kShare, hits == nullptr ? std::nullopt : hits->value});
  }
  return true;
}

std::optional<std::vector<Adviser::Lead>> Adviser::leads(const Candidate& first, const Candidate& second,
                                                         const std::vector<OpScales>& scales) {
  const double a = *first.capacity / static_cast<double>(first.gpus);
  const double b = *second.capacity / static_cast<double>(second.gpus);
  std::vector<Lead> result(scales.size(), Lead::none);
  std::vector<double> rates(scales.size(), std::sqrt(a * b));
  std::vector<std::size_t> open(scales.size());
  for (std::size_t i = 0; i < open.size(); ++i) open[i] = i;
  // At a rate that one of the two sustains and the other does not, the first leads. Where both do, or neither does, a
  // rate further up or down may tell them apart.
  constexpr int kSteps = 8;
  for (int step = 0; step < kSteps && !open.empty(); ++step) {
    std::vector<Point> points;
    for (const std::size_t i : open) {
      for (const Candidate* one : {&first, &second}) {
        points.push_back(point_at(*one, rates[i] * static_cast<double>(one->gpus)));
        points.back().scales = scales[i];
      }
    }
    const auto outcomes = run_all(points);
    if (!outcomes) return std::nullopt;
    std::vector<std::size_t> still;
    for (std::size_t n = 0; n < open.size(); ++n) {
      const bool one = rough_.fault((*outcomes)[2 * n]).empty();
      const bool other = rough_.fault((*outcomes)[2 * n + 1]).empty();
      if (one != other) {
        result[open[n]] = one ? Lead::first : Lead::second;
        continue;
      }
      rates[open[n]] *= one ? 1.0 + task_.tolerance : 1.0 - task_.tolerance;
      still.push_back(open[n]);
    }
    open = std::move(still);
  }
  return result;
}

bool Adviser::check_ranks() {
  advice_.perturbation = task_.perturbation;
  if (!task_.perturbation || advice_.winner() == nullptr) return true;
  const std::vector<Perturbation> all = perturbations(*task_.perturbation);
  std::vector<OpScales> scales{OpScales{}};
  for (const Perturbation& one : all) scales.push_back(one.scales);
  // Only what is near can overtake: the winner slowed down against a rival sped up, and twice that for queueing.
  const double near = 1.0 - 4.0 * *task_.perturbation;
  constexpr std::size_t kRivals = 3;
  for (std::size_t i = 1; i < std::min(candidates_.size(), kRivals + 1); ++i) {
    const AdvisedConfiguration& rival = advice_.configurations[i];
    if (rival.standing != Standing::ranked) break;
    if (i > 1 && rival.per_gpu() < near * advice_.configurations.front().per_gpu()) break;
    say("perturbed times", 0.8 + 0.03 * static_cast<double>(i));
    const auto found = leads(candidates_.front(), candidates_[i], scales);
    if (!found) return false;
    RankCheck check{.rival = rival.label, .perturbations = std::ssize(all)};
    // These runs are shorter than those of the ranking. Where they do not tell the two apart unchanged, changes say
    // nothing.
    const bool told_apart = found->front() == Lead::first;
    for (std::size_t p = 0; p < all.size(); ++p) {
      const Lead lead = (*found)[p + 1];
      if (!told_apart || lead == Lead::none) {
        ++check.ties;
      } else if (lead == Lead::second) {
        check.overtaken.push_back(all[p].label);
      }
    }
    advice_.checks.push_back(std::move(check));
  }
  return true;
}

bool Adviser::find_crossovers() {
  const AdvisedConfiguration* const winner = advice_.winner();
  if (winner == nullptr || task_.quick) return true;
  const auto uses = [&](std::size_t i, std::initializer_list<const char*> names) {
    const AdvisedConfiguration& one = advice_.configurations[i];
    return std::ranges::any_of(names, [&](const char* name) {
      const Metric* const metric = find_metric(one.metrics, name);
      return metric != nullptr && metric->value.value_or(0.0) > 0.0;
    });
  };
  // The winner, and the best of those that use what is varied.
  const auto contenders = [&](std::initializer_list<const char*> names) {
    std::vector<std::size_t> all{0};
    bool any = uses(0, names);
    for (std::size_t i = 1; i < candidates_.size() && all.size() < kContenders; ++i) {
      if (advice_.configurations[i].standing != Standing::ranked) break;
      const bool user = uses(i, names);
      any = any || user;
      if (user || (i == 1 && uses(0, names))) all.push_back(i);
    }
    return any && all.size() > 1 ? all : std::vector<std::size_t>{};
  };
  const auto copying = contenders({"moved_h2d_bytes", "moved_d2h_bytes"});
  if (!copying.empty()) {
    say("crossovers", 0.9);
    const Assembly assembly =
        assemble(resolve_config(parameter_table(), point_at(candidates_.front(), 1.0).assignments, {}));
    constexpr std::int64_t kGigabyte = 1'000'000'000;
    const CopyTime copy = assembly.make_model({})->copy(Stream::h2d, 1, Bytes(kGigabyte), CopyMechanism::single);
    const double base = 1e-9 * static_cast<double>(kGigabyte) / to_seconds(copy.transfer);
    if (!cross_times("bandwidth between host and GPU", &OpScales::copies, base, "GB/s", copying)) return false;
  }
  const auto on_cpu = contenders({"cpu_attention_tokens", "cpu_expert_bytes"});
  if (!on_cpu.empty()) {
    say("crossovers", 0.95);
    if (!cross_times("speed of the host's CPU and memory", &OpScales::cpu, 1.0, "times what it is", on_cpu))
      return false;
  }
  return cross_hits();
}

bool Adviser::cross_times(const std::string& quantity, double OpScales::*scale, double base, const std::string& unit,
                          const std::vector<std::size_t>& contenders) {
  std::vector<Contender> all;
  all.reserve(contenders.size());
  for (const std::size_t i : contenders) all.push_back({candidates_[i], advice_.configurations[i].label});
  // Slower by these factors, so bandwidths ascend.
  std::vector<double> slower;
  for (double factor = kFarthest; factor > 0.9 / kFarthest; factor /= 2.0) slower.push_back(factor);
  return cross({.quantity = quantity,
                .unit = unit,
                .steps = std::move(slower),
                .apply = [scale](Point& point, double factor) { point.scales.*scale = factor; },
                .middle = [](double a, double b) { return std::sqrt(a * b); },
                .value = [](double factor, double now) { return now / factor; },
                .base = base,
                .now = 1.0},
               all);
}

// Clients that drop the history of their conversation before a turn leave less to find again.
bool Adviser::cross_hits() {
  const AdvisedConfiguration& winner = *advice_.winner();
  const Metric* const hits = find_metric(winner.metrics, "prefix_cache_hit_fraction");
  const Candidate& candidate = candidates_.front();
  const std::vector<Parameter> table = parameter_table();
  const Point as_it_is = short_point(candidate);
  const auto given = [&](const char* key) {
    return std::ranges::any_of(as_it_is.assignments, [&](const Assignment& one) { return one.key == key && one.text; });
  };
  if (hits == nullptr || hits->value.value_or(0.0) <= 0.0 || given(kDropHistory)) return true;
  if (!assemble(resolve_config(table, point_at(candidate, 1.0).assignments, {})).workload.conversations) return true;
  const auto chosen = std::ranges::find(candidate.settings, kHostCache, &std::pair<std::string, std::string>::first);
  const bool tuned = chosen != candidate.settings.end();
  if (!tuned && given(kHostCache)) return true;
  const std::string size = tuned ? chosen->second : kTriedCache;
  const auto with = [&](const std::string& text, const std::string& what) {
    Candidate other = candidate;
    std::erase_if(other.settings, [](const auto& setting) { return setting.first == kHostCache; });
    other.settings.emplace_back(kHostCache, text);
    return Contender{std::move(other), (winner.label.empty() ? "this configuration" : winner.label) + what};
  };
  say("hit rates", 0.97);
  const std::vector<Contender> contenders{with("0B", " without a host cache"),
                                          with(size, " with a host cache of " + size)};
  // The set-up may have no place for a cache, under this policy or on this host.
  const auto possible = run_all({point_at(contenders.back().candidate, *candidate.capacity)});
  if (!possible) return false;
  if (possible->front().failed()) return true;
  const auto apply = [](Point& point, double share) { set(point, kDropHistory, number(share)); };
  const auto hits_at = [&](double share) -> std::optional<std::string> {
    Point point = point_at(contenders.back().candidate, *candidate.capacity);
    apply(point, share);
    const auto outcome = run_all({point});
    if (!outcome) return std::nullopt;
    const double found = outcome->front().value("prefix_cache_hit_fraction").value_or(0.0);
    return fmt::format("there {:.0f}% of the prompt tokens are in a cache, with {}={}", 100.0 * found, kHostCache,
                       size);
  };
  return cross({.quantity = fmt::format("later turns that keep their history (1 - {})", kDropHistory),
                .unit = "%",
                .steps = {1.0, 0.9, 0.75, 0.5, 0.25, 0.0},
                .apply = apply,
                .middle = [](double a, double b) { return 0.5 * (a + b); },
                .value = [](double share, double all) { return all * (1.0 - share); },
                .base = 100.0,
                .now = 0.0,
                .note = hits_at},
               contenders);
}

bool Adviser::cross(const Axis& axis, const std::vector<Contender>& contenders) {
  const auto leaders = [&](const std::vector<double>& steps) -> std::optional<std::vector<std::size_t>> {
    std::vector<std::pair<Point, double>> points;
    for (const double step : steps) {
      for (const Contender& one : contenders) {
        Point point = short_point(one.candidate);
        axis.apply(point, step);
        points.emplace_back(std::move(point), *one.candidate.capacity);
      }
    }
    const auto found = search(points, rough_, 1.5, task_.tolerance);
    if (!found) return std::nullopt;
    std::vector<std::size_t> best;
    for (std::size_t s = 0; s < steps.size(); ++s) {
      std::size_t leader = 0;
      double most = -1.0;
      for (std::size_t c = 0; c < contenders.size(); ++c) {
        const double capacity = (*found)[s * contenders.size() + c].capacity.value_or(0.0) /
                                static_cast<double>(contenders[c].candidate.gpus);
        // Within the tolerance the two are equal, and the one that leads here keeps the lead.
        if (capacity <= most * (1.0 + 2.0 * task_.tolerance)) continue;
        most = capacity;
        leader = c;
      }
      best.push_back(leader);
    }
    return best;
  };
  const auto best = leaders(axis.steps);
  if (!best) return false;
  const double now = axis.value(axis.now, axis.base);
  bool changes = false;
  for (std::size_t i = 0; i + 1 < axis.steps.size(); ++i) {
    if ((*best)[i] == (*best)[i + 1]) continue;
    changes = true;
    double low = axis.steps[i];
    double high = axis.steps[i + 1];
    std::size_t below = (*best)[i];
    const std::size_t above = (*best)[i + 1];
    constexpr int kHalvings = 3;
    for (int halving = 0; halving < kHalvings; ++halving) {
      const double middle = axis.middle(low, high);
      const auto there = leaders({middle});
      if (!there) return false;
      if (there->front() == above) {
        high = middle;
      } else {
        low = middle;
        below = there->front();
      }
    }
    const double at = axis.middle(low, high);
    std::optional<std::string> note("");
    if (axis.note) note = axis.note(at);
    if (!note) return false;
    advice_.crossovers.push_back({axis.quantity, axis.unit, now, axis.value(at, axis.base), contenders[below].label,
                                  contenders[above].label, *note});
  }
  if (changes) return true;
  const double low = axis.value(axis.steps.front(), axis.base);
  const double high = axis.value(axis.steps.back(), axis.base);
  advice_.steady_leads.push_back({axis.quantity, axis.unit, now, low, high, contenders[best->front()].label});
  return true;
}

}  // namespace spillway
