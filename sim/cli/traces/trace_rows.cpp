#include "sim/cli/traces/trace_rows.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <set>
#include <utility>

#include "sim/io/file_reader.hpp"
#include "traces/readers/reader.hpp"
#include "traces/readers/shifted_rows.hpp"
#include "traces/workload.hpp"

namespace spillway::cli {
namespace {

/// Opens rows with `open`. Errors name the location of the settings.
template <class Open>
auto placing_problems(const ResolvedConfig& config, Open open) {
  const auto placed = [&config](std::vector<Problem> problems) {
    for (Problem& problem : problems) problem.where = config.place(problem.where);
    return problems;
  };
  try {
    return open(config.settings);
  } catch (const ConfigError& error) {
    throw ConfigError(placed(error.problems()));
  } catch (const DataError& error) {
    throw DataError(placed(error.problems()));
  }
}

}  // namespace

TraceRows rows_of_file(const std::string& path, const ResolvedConfig& config, bool skip_bad_rows) {
  const std::set<std::string> known{"workload.format", "workload.tokenizer", "workload.columns", "workload.sessions"};
  std::vector<Problem> problems;
  for (const ResolvedKey& key : config.keys) {
    if (key.origin != Origin::argument || known.contains(key.parameter.name)) continue;
    problems.push_back({fmt::format("{} has no effect on the rows of a file", key.parameter.name), key.where,
                        "leave it out; spillway trace synth writes the requests of a run"});
  }
  if (!problems.empty()) throw ConfigError(std::move(problems));
  const auto text = [&config](const std::string& key, const std::string& otherwise) {
    return config.settings.has(key) ? config.settings.get<std::string>(key) : otherwise;
  };
  traces::ReaderOptions options;
  options.tokenizer = text("workload.tokenizer", options.tokenizer);
  options.columns = text("workload.columns", options.columns);
  options.skip_bad_rows = skip_bad_rows;
  options.prefix_sessions = text("workload.sessions", "none") == "prefix";
  const traces::OpenedTrace trace = traces::open_trace(path, text("workload.format", "auto"), options);
  const Duration shift = traces::time_before_start(*trace.reader);
  return {path, trace.format, file_sha256(path),
          [path, format = trace.format, options, shift]() -> std::unique_ptr<traces::TraceReader> {
            auto reader = traces::open_trace(path, format, options).reader;
            if (shift == Duration(0)) return reader;
            return std::make_unique<traces::ShiftedRows>(std::move(reader), shift);
          }};
}

TraceRows rows_of_workload(ResolvedConfig config) {
  const traces::Workload workload =
      placing_problems(config, [](const Settings& settings) { return traces::open_workload(settings, 0); });
  const auto shared = std::make_shared<const ResolvedConfig>(std::move(config));
  return {workload.name, workload.format, workload.sha256, [shared] {
            return placing_problems(*shared,
                                    [](const Settings& settings) { return traces::open_workload_rows(settings, 0); });
          }};
}

traces::TraceFacts survey(const TraceRows& rows, const std::function<bool(const traces::TraceRow&)>& on_row) {
  traces::TraceFacts facts;
  facts.source_name = std::filesystem::path(rows.name).filename().string();
  facts.source_format = rows.format;
  facts.source_sha256 = rows.sha256;
  const auto reader = rows.open();
  traces::TraceRow row;
  while (reader->next(row)) {
    facts.add(row);
    if (!on_row(row)) break;
  }
  facts.finish(*reader);
  if (facts.rows == 0) {
    throw DataError("the trace holds no request", rows.name,
                    facts.skipped == 0
                        ? "check that it was copied whole"
                        : fmt::format("all {} rows are bad; the first: {}", facts.skipped, facts.first_skipped));
  }
  return facts;
}

}  // namespace spillway::cli
