// The Python module spillway._core: what the package spillway calls. Texts go in and out as JSON; the package
// makes Python objects of them.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/api/key_owners.hpp"
#include "sim/cli/about/list.hpp"
#include "sim/cli/arguments.hpp"
#include "sim/cli/grid_arguments.hpp"
#include "sim/cli/simulate/sweep_points.hpp"
#include "sim/cli/table_metrics.hpp"
#include "sim/config/config.hpp"
#include "sim/core/error.hpp"
#include "sim/io/output.hpp"
#include "sim/io/problem_text.hpp"
#include "sim/python/request_table.hpp"
#include "sim/python/watched_work.hpp"
#include "sim/report/html.hpp"
#include "sim/report/report.hpp"
#include "sim/report/sweep.hpp"
#include "sim/study/parameter_table.hpp"
#include "sim/study/perturb.hpp"
#include "sim/study/result_schema.hpp"
#include "sim/study/result_store.hpp"
#include "sim/study/result_version.hpp"
#include "sim/study/run_plan.hpp"

namespace spillway::python {
namespace {

namespace py = pybind11;

/// A configuration as Python gives it.
struct Given {
  std::string config;             // a JSON object
  std::string path;               // of a configuration file; empty: none
  std::string keywords;           // a JSON object of settings that override the others
  std::vector<std::string> slos;  // as of --slo
};

/// Underscores may stand for the dots of a key, as in its environment variable: workload_rate is workload.rate.
class KeywordNames {
 public:
  KeywordNames() : table_(parameter_table()) {
    for (const Parameter& parameter : table_) add(parameter.name);
    for (const KeyOwner& owner : key_owners()) {
      for (const Parameter& parameter : *owner.parameters) add(parameter.name);
    }
  }
  [[nodiscard]] std::string key(const std::string& keyword) const {
    if (find_parameter(table_, keyword) != nullptr) return keyword;
    const auto found = keys_.find(environment_variable(keyword));
    return found != keys_.end() ? found->second : keyword;
  }

 private:
  void add(const std::string& key) { keys_.emplace(environment_variable(key), key); }

  std::vector<Parameter> table_;
  std::map<std::string, std::string> keys_;  // by variable
};

std::vector<Assignment> assignments_of(const Given& given, std::vector<Problem>& problems) {
  std::vector<Assignment> assignments =
      given.path.empty() ? parse_config(given.config, "config", problems) : read_config_file(given.path, problems);
  const KeywordNames names;
  for (Assignment& one : parse_config(given.keywords, "keywords", problems)) {
    one.key = names.key(one.key);
    one.origin = Origin::argument;
    assignments.push_back(std::move(one));
  }
  for (Assignment& one : cli::slo_assignments(given.slos, "slo", problems)) assignments.push_back(std::move(one));
  return assignments;
}

ResolvedConfig resolve(const Given& given, std::vector<Problem> problems) {
  const std::vector<Assignment> assignments = assignments_of(given, problems);
  return resolve_config(parameter_table(), assignments, std::move(problems));
}

/// The progress of simulations that run side by side.
class RunProgress {
 public:
  RunProgress(Watch& watch, std::int64_t requests, std::int64_t runs)
      : watch_(watch), total_(requests * runs), ended_(static_cast<std::size_t>(runs)), seconds_(ended_.size()) {}

  void update(std::int64_t run, const Progress& progress) {
    const std::lock_guard lock(mutex_);
    ended_[static_cast<std::size_t>(run)] = progress.ended;
    seconds_[static_cast<std::size_t>(run)] = to_seconds(progress.now);
    report(progress.running, progress.waiting);
  }
  /// Short runs do not report, so what they simulated is known only now: in each variant, the mean of its replications.
  void finish(const std::vector<ReplicationResults>& variants) {
    const std::lock_guard lock(mutex_);
    const std::size_t replications = ended_.size() / variants.size();
    std::ranges::fill(ended_, 0);
    std::ranges::fill(seconds_, 0.0);
    ended_.front() = total_;
    for (const ReplicationResults& one : variants) {
      const Metric* const duration = one.statistics.find("duration_s");
      if (duration != nullptr) seconds_.front() += duration->value.value_or(0.0) * static_cast<double>(replications);
    }
    report(0, 0);
  }

 private:
  void report(std::int64_t running, std::int64_t waiting) {
    const std::int64_t ended = std::accumulate(ended_.begin(), ended_.end(), std::int64_t{0});
    watch_.update({.done = ended,
                   .total = total_,
                   .fraction = total_ > 0 ? static_cast<double>(ended) / static_cast<double>(total_) : 1.0,
                   .simulated_seconds = std::accumulate(seconds_.begin(), seconds_.end(), 0.0),
                   .running = running,
                   .waiting = waiting});
  }

  Watch& watch_;
  std::int64_t total_;
  std::mutex mutex_;
  std::vector<std::int64_t> ended_;  // by run
  std::vector<double> seconds_;
};

struct RunTexts {
  std::string json;
  std::string table;
  std::string csv;
  std::shared_ptr<RequestTable> requests;  // null: not asked for
};

struct RunRequest {
  Given given;
  std::optional<std::string> perturb;
  bool fixed_locality = false;
  bool requests = true;
  int jobs = 1;
};

RunTexts simulated(const RunRequest& request, Watch& watch) {
  std::vector<Problem> problems;
  RunPlan plan;
  if (request.perturb) plan.perturbation = parse_perturbation(*request.perturb, problems);
  Assembly assembly = assemble(resolve(request.given, std::move(problems)));
  if (!request.fixed_locality) plan_localities(assembly, plan);
  std::vector<RequestTable> tables;  // by replication
  ReplicationHooks hooks;
  if (request.requests) {
    std::vector<std::string> instances;
    for (const AssembledKind& kind : assembly.kinds) instances.push_back(kind.name);
    const auto replications = assembly.config.settings.get<std::int64_t>("replications");
    tables.assign(static_cast<std::size_t>(replications), RequestTable(instances));
    hooks.on_request = [&tables](std::int64_t replication, const RequestRecord& record) {
      tables[static_cast<std::size_t>(replication)].add(replication, record);
    };
  }
  RunProgress progress(watch, assembly.setup.requests, planned_simulations(assembly, plan));
  hooks.on_progress = [&progress](std::int64_t run, const Progress& p) { progress.update(run, p); };
  hooks.stop = &watch.stop();
  std::vector<ReplicationResults> runs = simulate_plan(assembly, plan, request.jobs, {}, hooks);
  if (watch.stop().load()) return {};
  progress.finish(runs);
  const Result result = planned_result(assembly, plan, std::move(runs));
  RunTexts texts{to_json(result), to_table(result), to_csv(result), {}};
  if (request.requests) {
    texts.requests = std::make_shared<RequestTable>(std::move(tables.front()));
    for (std::size_t i = 1; i < tables.size(); ++i) texts.requests->append(tables[i]);
  }
  return texts;
}

py::tuple run(const RunRequest& request, const py::object& on_progress) {
  RunTexts texts;
  do_watched([&](Watch& watch) { texts = simulated(request, watch); }, on_progress);
  return py::make_tuple(py::str(texts.json), py::str(texts.table), py::str(texts.csv), py::cast(texts.requests));
}

/// {name: (array, texts)}. The arrays view the table's memory, and keep it alive. They are read-only.
py::dict arrays_of(const std::shared_ptr<RequestTable>& table) {
  py::dict arrays;
  const py::object owner = py::cast(table);
  for (const RequestTable::Column& column : table->columns()) {
    const py::array array = std::visit(
        [&](const auto& values) -> py::array { return py::array(py::ssize_t(values.size()), values.data(), owner); },
        column.values);
    array.attr("setflags")(py::arg("write") = false);
    arrays[py::str(column.name)] = py::make_tuple(array, column.texts);
  }
  return arrays;
}

struct SweepRequest {
  Given given;
  std::vector<std::string> zips;
  std::vector<std::string> metrics;  // of the table; empty: the usual ones
  std::string directory;             // empty: nothing is kept
  bool fixed_locality = false;
  int jobs = 1;
};

struct SweepTexts {
  std::string json;
  std::string table;
  std::string csv;
  std::string values;  // a JSON list of rows: the values of the axes, in their JSON types
  std::int64_t failed = 0;
};

/// The values of the axes of each row: numbers and truth values as such, others as texts.
std::string typed_values(const Sweep& sweep) {
  const std::vector<Parameter> table = parameter_table();
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const SweepRow& row : sweep.rows) {
    nlohmann::ordered_json values = nlohmann::ordered_json::array();
    for (std::size_t i = 0; i < sweep.keys.size(); ++i) {
      std::vector<Problem> ignored;
      const Parameter* const parameter = find_parameter(table, sweep.keys[i]);
      std::optional<ParsedValue> value;
      if (row.values[i] != "null" && parameter != nullptr) value = parse_value(*parameter, row.values[i], "", ignored);
      if (value) {
        values.push_back(canonical_value({.parameter = *parameter, .value = value->value, .text = row.values[i]}));
      } else {
        values.push_back(row.values[i] == "null" ? nlohmann::ordered_json() : nlohmann::ordered_json(row.values[i]));
      }
    }
    rows.push_back(std::move(values));
  }
  return rows.dump();
}

SweepTexts swept(const SweepRequest& request, Watch& watch) {
  std::vector<Problem> problems;
  std::vector<std::string> metrics = cli::parse_metrics(request.metrics, problems);
  std::vector<Assignment> given = assignments_of(request.given, problems);
  PointGrid grid = cli::grid_of(std::move(given), request.zips, std::move(problems));
  grid.other_localities = !request.fixed_locality;
  cli::refuse_if_none_resolves(grid);
  if (request.metrics.empty()) metrics = cli::standard_metrics(grid);
  std::unique_ptr<ResultStore> store;
  if (!request.directory.empty()) store = std::make_unique<ResultStore>(request.directory);
  Sweep sweep = cli::new_sweep(grid, std::nullopt);
  if (store) store->write("sweep.json", to_sweep_manifest(sweep, false));
  const auto progress = [&watch](const PointsProgress& p) {
    watch.update({.done = p.done,
                  .total = p.points,
                  .fraction = p.fraction,
                  .simulated_seconds = p.simulated_seconds,
                  .failed = p.failed});
  };
  PointRunner runner({.jobs = request.jobs, .store = store.get(), .stop = &watch.stop(), .on_progress = progress});
  cli::SweepCount count;
  if (!cli::run_sweep(grid, cli::largest_first(grid.grid, Shard{}), runner, sweep, count)) return {};
  if (store) write_results(*store, sweep);
  return {to_sweep_json(sweep), to_sweep_table(sweep, metrics), to_sweep_csv(sweep), typed_values(sweep),
          sweep.failed()};
}

py::tuple sweep(const SweepRequest& request, const py::object& on_progress) {
  SweepTexts texts;
  do_watched([&](Watch& watch) { texts = swept(request, watch); }, on_progress);
  return py::make_tuple(texts.json, texts.table, texts.csv, texts.values);
}

/// Raises the package's exception of an error.
void raise(const char* name, const std::vector<Problem>& problems) {
  py::list list;
  for (const Problem& problem : problems) list.append(py::make_tuple(problem.what, problem.where, problem.fix));
  const py::object type = py::module_::import("spillway._errors").attr(name);
  PyErr_SetObject(type.ptr(), type(list, problem_text(problems)).ptr());
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): pybind11 calls it so
void translate(std::exception_ptr pointer) {
  try {
    if (pointer) std::rethrow_exception(pointer);
  } catch (const UserError& error) {
    raise(error.code() == ExitCode::data ? "DataError" : "ConfigError", error.problems());
  } catch (const InvariantError& error) {
    raise("InvariantError", {{error.what(), "", ""}});
  }
}

std::vector<std::tuple<std::string, std::string, std::string, std::string>> listed_rows(const std::string& kind) {
  std::vector<std::tuple<std::string, std::string, std::string, std::string>> rows;
  for (const cli::Listed& one : cli::listed(kind)) rows.emplace_back(one.name, one.summary, one.details, one.kind);
  return rows;
}

}  // namespace
}  // namespace spillway::python

PYBIND11_MODULE(_core, module) {
  namespace py = pybind11;
  using namespace py::literals;
  using namespace spillway;
  using namespace spillway::python;
  py::register_exception_translator(translate);
  const py::class_<RequestTable, std::shared_ptr<RequestTable>> rows(module, "RequestTable");
  module.def("version", [] { return std::string(tool_version()); });
  module.def("build", [] { return std::string(tool_build()); });
  module.def(
      "run",
      [](std::string config, std::string path, std::string keywords, std::vector<std::string> slos,
         std::optional<std::string> perturb, bool fixed_locality, bool requests, int jobs, const py::object& progress) {
        return run({{std::move(config), std::move(path), std::move(keywords), std::move(slos)},
                    std::move(perturb),
                    fixed_locality,
                    requests,
                    jobs},
                   progress);
      },
      "config"_a, "path"_a, "keywords"_a, "slos"_a, "perturb"_a, "fixed_locality"_a, "requests"_a, "jobs"_a,
      "progress"_a);
  module.def("arrays", &arrays_of, "requests"_a);
  module.def(
      "sweep",
      [](std::string config, std::string path, std::string keywords, std::vector<std::string> slos,
         std::vector<std::string> zips, std::vector<std::string> metrics, std::string directory, bool fixed_locality,
         int jobs, const py::object& progress) {
        return sweep({{std::move(config), std::move(path), std::move(keywords), std::move(slos)},
                      std::move(zips),
                      std::move(metrics),
                      std::move(directory),
                      fixed_locality,
                      jobs},
                     progress);
      },
      "config"_a, "path"_a, "keywords"_a, "slos"_a, "zips"_a, "metrics"_a, "directory"_a, "fixed_locality"_a, "jobs"_a,
      "progress"_a);
  module.def("explain", &cli::explanation, "name"_a);
  module.def("list_kinds", &cli::list_kinds);
  module.def("listed", &listed_rows, "kind"_a);
  module.def("config_schema", [] { return config_schema(parameter_table()).dump(); });
  module.def("result_schema", [] { return result_schema().dump(); });
  module.attr("schema_version") = kResultSchemaVersion;
  module.def(
      "html", [](const std::string& name, const std::string& json) { return to_html({{.name = name, .json = json}}); },
      "name"_a, "json"_a);
}
