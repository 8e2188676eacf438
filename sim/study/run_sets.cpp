#include "sim/study/run_sets.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <utility>

#include "sim/api/registry.hpp"
#include "sim/core/text.hpp"
#include "sim/io/atomic_file.hpp"
#include "sim/study/assemble.hpp"
#include "sim/study/log_replay.hpp"
#include "sim/study/parameter_table.hpp"
#include "sim/study/probes.hpp"
#include "sim/study/profile_fit.hpp"

namespace spillway {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::int64_t kMostPoints = 100'000;

/// The text of a setting's value; empty for null.
std::optional<std::string> text_of(const Json& value) {
  if (value.is_null()) return std::nullopt;
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (value.is_number_integer()) return fmt::format("{}", value.get<std::int64_t>());
  if (value.is_structured()) return value.dump();
  return fmt::format("{}", value.get<double>());
}

/// An axis value as expressions compute with it: a number (bytes for sizes, ns for durations), else its text.
Json axis_value(const Parameter* parameter, const std::string& text) {
  std::vector<Problem> ignored;  // reported when the point runs
  const auto parsed = parameter == nullptr ? std::nullopt : parse_value(*parameter, text, "", ignored);
  if (!parsed) return text;
  if (const auto* flag = std::get_if<bool>(&parsed->value)) return *flag;
  if (const auto* count = std::get_if<std::int64_t>(&parsed->value)) return *count;
  if (const auto* number = std::get_if<double>(&parsed->value)) return *number;
  if (const auto* bytes = std::get_if<Bytes>(&parsed->value)) return bytes->count();
  if (const auto* duration = std::get_if<Duration>(&parsed->value)) return duration->count();
  return text;
}

/// The elements of `instances` with the values of their expressions.
Json filled_in(const Json& value, ClaimScript& script) {
  if (const auto expression = expression_of(value)) return script.evaluate(*expression);
  Json filled = value;
  if (value.is_structured()) {
    for (Json& part : filled) part = filled_in(part, script);
  }
  return filled;
}

void require_file(const std::string& path) {
  std::error_code none;
  if (fs::exists(path, none)) return;
  throw MissingInput(fmt::format("there is no {} (searched from {})", path, fs::current_path(none).string()));
}

/// A missing policy or file skips the claim. Any other problem is an error of the experiment.
void require_input(const std::string& key, const std::string& text) {
  if (key == "policy" || key == "policy.name") {
    if (PolicyRegistry::instance().find(text) == nullptr) {
      throw MissingInput(fmt::format("policy {} is not in this build", text));
    }
    return;
  }
  constexpr std::array kFileKeys{"workload.trace", "workload.tokenizer", "hardware", "model", "engine"};
  if (std::find(kFileKeys.begin(), kFileKeys.end(), key) == kFileKeys.end()) return;
  constexpr std::string_view kGpt2 = "gpt2:";
  const std::string path = text.starts_with(kGpt2) ? text.substr(kGpt2.size()) : text;
  if (path.find('/') != std::string::npos) require_file(path);
}

/// Adds the metrics of one seed, or over all seeds.
void add_metrics(const std::vector<Metric>& metrics, const std::string& prefix, std::optional<std::size_t> seed,
                 ScriptPoint& point) {
  for (const Metric& metric : metrics) {
    std::optional<double> value = metric.value;
    if (seed) value = *seed < metric.replications.size() ? metric.replications[*seed] : std::nullopt;
    point.values[prefix + metric.name] = value && std::isfinite(*value) ? Json(*value) : Json(nullptr);
  }
}
/// Also those of each element of `instances`, as NAME.METRIC.
void add_metrics(const PointOutcome& outcome, std::optional<std::size_t> seed, ScriptPoint& point) {
  add_metrics(outcome.metrics, "", seed, point);
  for (const auto& [name, metrics] : outcome.instances) add_metrics(metrics, name + ".", seed, point);
}

ScriptPoint point_of(const std::string& label, const Validation& validation) {
  ScriptPoint point{label, {}, {}};
  for (const auto* figures : {&validation.latencies, &validation.load}) {
    for (const ComparedFigure& figure : *figures) {
      point.values[figure.name] = figure.simulated;
      point.values["measured_" + figure.name] = figure.measured;
      point.values["error_" + figure.name] = figure.error ? Json(*figure.error) : Json(nullptr);
    }
  }
  return point;
}

const Parameter* own_parameter(const Probe& probe, const std::string& key) {
  const auto& own = probe.parameters;
  const auto it = std::find_if(own.begin(), own.end(), [&](const Parameter& one) { return one.name == key; });
  return it == own.end() ? nullptr : &*it;
}

/// Throws Infeasible when nothing else is wrong with a point.
void check_infeasible(const std::string& label, const std::vector<Problem>& problems) {
  const bool all = std::ranges::all_of(problems, [](const Problem& problem) { return problem.infeasible; });
  if (all && !problems.empty()) throw Infeasible(fmt::format("{}: {}", label, problems.front().what));
}

/// Reports a failed run as an error of the experiment.
[[noreturn]] void refuse(const RunSet& run, const Experiment& experiment, const PointOutcome& outcome) {
  if (outcome.code == ExitCode::interrupted) throw Interrupted();
  if (outcome.broken_promise) throw BrokenPromise(outcome.error());
  if (outcome.code == ExitCode::invariant) throw InvariantError(outcome.error());
  std::vector<Problem> problems = outcome.problems;
  check_infeasible(run.name, problems);
  for (Problem& problem : problems) {
    if (problem.where.empty()) problem.where = experiment.place(run.pointer);
  }
  throw DataError(std::move(problems));
}

}  // namespace

RunSets::RunSets(const LoadedExperiment& experiment, RunSetOptions options)
    : experiment_(experiment), options_(std::move(options)), table_(parameter_table()) {
  check_keys();
}

void RunSets::check_keys() const {
  std::vector<std::string> names;
  std::transform(table_.begin(), table_.end(), std::back_inserter(names),
                 [](const Parameter& one) { return one.name; });
  std::vector<Problem> problems;
  for (const RunSet& run : experiment_.experiment.runs) {
    const Probe* probe = run.source == RunSet::Source::probe ? find_probe(run.probe) : nullptr;
    if (run.source == RunSet::Source::probe && probe == nullptr) {
      problems.push_back({fmt::format("unknown probe \"{}\"", run.probe),
                          experiment_.experiment.place(run.pointer + "/probe"),
                          fmt::format("probes: {}", fmt::join(probe_names(), ", "))});
      continue;
    }
    for (const auto* settings : {&run.settings, &run.quick_settings}) {
      for (const RunSetting& setting : *settings) {
        // Keys of a policy that this build lacks skip their claims.
        const bool configures = probe == nullptr || probe->takes_configuration;
        if ((configures && setting.key.starts_with("policy.")) || parameter_of(run, setting.key) != nullptr) continue;
        problems.push_back({fmt::format("unknown key \"{}\"", setting.key),
                            experiment_.experiment.place(setting.pointer), suggestion(setting.key, names)});
      }
    }
  }
  if (!problems.empty()) throw DataError(std::move(problems));
}

const Parameter* RunSets::parameter_of(const RunSet& run, const std::string& key) const {
  const Probe* probe = run.source == RunSet::Source::probe ? find_probe(run.probe) : nullptr;
  if (probe == nullptr) return find_parameter(table_, key);
  const Parameter* own = own_parameter(*probe, key);
  return own != nullptr || !probe->takes_configuration ? own : find_parameter(table_, key);
}

std::string RunSets::folder() {
  if (!experiment_.folder.empty()) return experiment_.folder;
  if (!temporary_) {
    temporary_ = std::make_unique<TemporaryFolder>();
    experiment_.extract(temporary_->path());
  }
  return temporary_->path();
}

std::vector<std::optional<std::string>> RunSets::texts_of(const RunSet& run, const RunSetting& setting,
                                                          ClaimScript& script, std::vector<Problem>& problems) const {
  const std::string place = experiment_.experiment.place(setting.pointer);
  const Parameter* parameter = parameter_of(run, setting.key);
  std::vector<std::optional<std::string>> texts;
  const auto add = [&](const Json& value) {
    const std::optional<std::string> text = text_of(value);
    if (!value.is_string() || parameter == nullptr) return texts.push_back(text);
    for (std::string& one : axis_values(*parameter, *text, place, problems)) texts.emplace_back(std::move(one));
  };
  for (const Json& value : setting.values) {
    const auto expression = expression_of(value);
    try {
      if (!expression) {
        add(filled_in(value, script));
        continue;
      }
      const Json computed = script.evaluate(*expression);
      if (!computed.is_array()) {
        add(computed);
      } else {
        for (const Json& one : computed) add(one);
        if (computed.empty()) problems.push_back({"gives no values", place, *expression});
      }
    } catch (const ScriptError& error) {
      problems.push_back({error.what(), place, expression.value_or("")});
    }
  }
  return texts;
}

void RunSets::add_config(const RunSet& run, Settings& settings, std::vector<Problem>& problems) const {
  if (run.config.empty()) return;
  settings.shared = parse_config(experiment_.read(run.config), run.config, problems);
  for (const Assignment& one : settings.shared) {
    if (!one.text) continue;
    require_input(one.key, *one.text);
  }
}

void RunSets::add_setting(const RunSet& run, const RunSetting& setting, ClaimScript& script, Settings& settings,
                          std::vector<Problem>& problems) const {
  const std::vector<std::optional<std::string>> texts = texts_of(run, setting, script, problems);
  const std::string place = experiment_.experiment.place(setting.pointer);
  for (const auto& text : texts) {
    if (text) require_input(setting.key, *text);
  }
  std::erase_if(settings.shared, [&](const Assignment& one) { return one.key == setting.key; });
  std::erase_if(settings.axes, [&](const Axis& one) { return one.keys.front() == setting.key; });
  settings.places[setting.key] = place;
  if (texts.size() == 1) {
    settings.shared.push_back({setting.key, texts.front(), Origin::file, place});
    return;
  }
  Axis axis{{setting.key}, {}};
  for (const auto& text : texts) axis.values.push_back({text.value_or("null")});
  if (!texts.empty()) settings.axes.push_back(std::move(axis));
}

RunSets::Settings RunSets::settings_of(const RunSet& run, ClaimScript& script) {
  Settings settings;
  std::vector<Problem> problems;
  add_config(run, settings, problems);
  for (const RunSetting& setting : run.settings) add_setting(run, setting, script, settings, problems);
  if (options_.quick) {
    for (const RunSetting& setting : run.quick_settings) add_setting(run, setting, script, settings, problems);
  }
  for (const std::string& zip : run.zips) {
    zip_axes(zip, experiment_.experiment.place(run.pointer + "/zip"), settings.axes, problems);
  }
  if (!problems.empty()) throw DataError(std::move(problems));
  return settings;
}

ScriptPoint RunSets::axes_of(const RunSet& run, const Grid& grid, std::int64_t index) const {
  ScriptPoint point{run.name, {}, {}};
  const std::vector<std::string> keys = grid.keys();
  const std::vector<std::string> values = grid.values(index);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    point.label += fmt::format("{}{}={}", i == 0 ? " at " : ", ", keys[i], values[i]);
    point.values[keys[i]] = axis_value(parameter_of(run, keys[i]), values[i]);
    point.texts[keys[i]] = values[i];
  }
  return point;
}

std::vector<ScriptPoint> RunSets::grid_points(const RunSet& run, const Settings& settings) const {
  const Grid grid(settings.axes);
  if (grid.size() > kMostPoints) {
    throw DataError(fmt::format("has more than {} points", kMostPoints), experiment_.experiment.place(run.pointer));
  }
  std::vector<ScriptPoint> points;
  points.reserve(static_cast<std::size_t>(grid.size()));
  for (std::int64_t i = 0; i < grid.size(); ++i) points.push_back(axes_of(run, grid, i));
  return points;
}

std::vector<Assignment> RunSets::assignments_of(const ScriptPoint& point, const Settings& settings) {
  std::vector<Assignment> assignments = settings.shared;
  for (const auto& [key, text] : point.texts) {
    const auto given = text == "null" ? std::nullopt : std::optional(text);
    assignments.push_back({key, given, Origin::file, settings.places.at(key)});
  }
  return assignments;
}

RunSetPoints RunSets::compute(const RunSet& run, const Settings& settings) {
  const Probe& probe = *find_probe(run.probe);
  RunSetPoints result{grid_points(run, settings), {}};
  std::vector<Problem> problems;
  for (ScriptPoint& point : result.mean) {
    spillway::Settings own;
    std::vector<Assignment> configuration = assignments_of(point, settings);
    for (const Parameter& parameter : probe.parameters) {
      std::string text = parameter.default_value;
      std::string place = experiment_.experiment.place(run.pointer);
      std::erase_if(configuration, [&](const Assignment& one) {
        if (one.key != parameter.name) return false;
        text = one.text.value_or(parameter.default_value);
        place = one.where;
        return true;
      });
      if (const auto parsed = parse_value(parameter, text, place, problems)) own.set(parameter.name, parsed->value);
    }
    if (!problems.empty()) throw DataError(std::move(problems));
    try {
      for (const auto& [name, value] : probe.compute(own, configuration)) {
        point.values[name] = value ? Json(*value) : Json(nullptr);
      }
    } catch (const UserError& error) {
      check_infeasible(point.label, error.problems());
      for (Problem problem : error.problems()) {
        if (problem.where.empty()) problem.where = experiment_.experiment.place(run.pointer);
        problems.push_back(std::move(problem));
      }
      throw DataError(std::move(problems));
    }
  }
  return result;
}

RunSetPoints RunSets::simulate(const RunSet& run, const Settings& settings) {
  const std::int64_t seeds = run.replications(options_.quick);
  std::vector<Point> points;
  RunSetPoints result{grid_points(run, settings), {}};
  for (const ScriptPoint& one : result.mean) {
    Point point{assignments_of(one, settings), {}};
    point.assignments.push_back(
        {"replications", fmt::format("{}", seeds), Origin::file, experiment_.experiment.place(run.pointer + "/seeds")});
    points.push_back(std::move(point));
  }
  if (seeds > 1) result.by_seed.assign(static_cast<std::size_t>(seeds), result.mean);
  PointRunner::Options options{.jobs = options_.jobs, .stop = options_.stop};
  if (options_.on_progress) {
    options.on_progress = [&](const PointsProgress& progress) { options_.on_progress(run.name, progress); };
  }
  const std::vector<PointOutcome> outcomes = PointRunner(std::move(options)).run(points);
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    if (outcomes[i].failed()) refuse(run, experiment_.experiment, outcomes[i]);
    add_metrics(outcomes[i], std::nullopt, result.mean[i]);
    for (std::size_t seed = 0; seed < result.by_seed.size(); ++seed) {
      add_metrics(outcomes[i], seed, result.by_seed[seed][i]);
    }
  }
  return result;
}

RunSetPoints RunSets::replay(const RunSet& run, const Settings& settings) {
  LogReplay log;
  log.folder = run.log;
  const TemporaryFolder temporary;
  if (!run.fit.empty()) {
    ProfileFit fit;
    fit.files = run.fit;
    fit.base = run.fit_base;
    fit.model = run.fit_model;
    fit.out = temporary.file(run.name + ".json");
    write_file(fit.out, fit_profile(fit).profile);
    log.arguments.push_back("hardware=" + fit.out);
  }
  for (const Assignment& one : settings.shared) {
    log.arguments.push_back(fmt::format("{}={}", one.key, one.text.value_or("null")));
  }
  return {{point_of(run.name, validate_log(log))}, {}};
}

const RunSetPoints* RunSets::points(const RunSet& run, ClaimScript& script, bool may_run) {
  const bool replayed = run.source == RunSet::Source::validation;
  if (replayed) require_file(run.log);
  for (const std::string& table : run.fit) require_file(table);
  const Settings settings = settings_of(run, script);
  Json key{run.name};
  for (const Assignment& one : settings.shared) key.push_back({one.key, one.text ? Json(*one.text) : Json(nullptr)});
  for (const Axis& axis : settings.axes) key.push_back({axis.keys, axis.values});
  const std::string id = key.dump(-1, ' ', false, Json::error_handler_t::replace);
  const auto known = done_.find(id);
  if (known != done_.end()) return &known->second;
  if (!may_run) return nullptr;
  RunSetPoints points = replayed                              ? replay(run, settings)
                        : run.source == RunSet::Source::probe ? compute(run, settings)
                                                              : simulate(run, settings);
  return &done_.emplace(id, std::move(points)).first->second;
}

}  // namespace spillway
