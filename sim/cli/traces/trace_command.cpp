#include "sim/cli/traces/trace_command.hpp"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <utility>

#include "sim/cli/arguments.hpp"
#include "sim/cli/traces/trace_report.hpp"
#include "sim/cli/traces/trace_rows.hpp"
#include "sim/core/interrupt.hpp"
#include "sim/core/printable.hpp"
#include "sim/io/atomic_file.hpp"
#include "sim/io/output.hpp"
#include "sim/io/work_done.hpp"
#include "traces/generators/quantile_table.hpp"
#include "traces/readers/native_binary.hpp"

namespace spillway::cli {
namespace {

TraceRows rows_of(const TraceOptions& options) {
  const std::string& name = options.input;
  std::vector<std::string> arguments = options.arguments;
  if (traces::bundled_file(name) != nullptr) {
    arguments.push_back("workload.trace=" + name);
    return rows_of_workload(resolve_arguments(arguments, {}, {}));
  }
  std::error_code ignored;
  if (name.find_first_of("/.") == std::string::npos && !std::filesystem::exists(name, ignored)) {
    throw ConfigError(fmt::format("there is neither a file nor a bundled workload \"{}\"", name), "trace info " + name,
                      suggestion(name, traces::bundled_names()) +
                          fmt::format("bundled: {}", fmt::join(traces::bundled_names(), ", ")));
  }
  return rows_of_file(name, resolve_arguments(arguments, {}, {}), options.skip_bad_rows);
}

std::string format_to_write(const TraceOptions& options) {
  if (!options.format.empty()) return options.format;
  constexpr std::array<std::pair<const char*, const char*>, 3> kSuffixes{
      {{".bin", "native-binary"}, {".csv", "native-csv"}, {".jsonl", "native-jsonl"}}};
  for (const auto& [suffix, format] : kSuffixes) {
    if (std::filesystem::path(options.out).extension() == suffix) return format;
  }
  throw ConfigError(fmt::format("the name {} ends in no known suffix, so the format is unknown", options.out),
                    "-o " + options.out,
                    fmt::format("use the suffix .bin, .csv or .jsonl, or give --format {}",
                                fmt::join(traces::written_formats(), "|")));
}

void print_warnings(const traces::TraceFacts& facts) {
  for (const std::string& warning : facts.warnings) fmt::print(stderr, "warning: {}\n", printable(warning));
  if (facts.zero_outputs > 0) {
    fmt::print(stderr, "warning: {} of {} requests generated 0 tokens; they are written with 1\n", facts.zero_outputs,
               facts.rows);
  }
  if (facts.skipped > 0) {
    fmt::print(stderr, "warning: {} bad rows were skipped; the first: {}\n", facts.skipped,
               printable(facts.first_skipped));
  }
}

/// Writes the rows to the output file. Calls `rows` only after the output has proved writable.
ExitCode write_rows(const TraceOptions& options, const std::function<TraceRows()>& rows_to_write) {
  try {
    const std::string format = format_to_write(options);
    const std::atomic<bool>& stopped = stop_on_interrupt();
    AtomicFile file(options.out);
    const TraceRows rows = rows_to_write();
    traces::TraceFacts facts = survey(rows, [&stopped](const traces::TraceRow&) { return !stopped; });
    if (rows.format == "native-binary") {  // a copy keeps the original source
      const traces::TraceFacts first = traces::NativeBinaryReader(rows.name).facts();
      facts.source_name = first.source_name;
      facts.source_format = first.source_format;
      facts.source_sha256 = first.source_sha256;
    }
    const auto writer = traces::open_writer(format, facts, [&file](std::string_view bytes) { file.write(bytes); });
    const auto reader = rows.open();
    traces::TraceRow row;
    std::int64_t written = 0;
    while (!stopped && written < facts.rows && reader->next(row)) {
      writer->add(row);
      ++written;
    }
    if (stopped) {
      fmt::print(stderr, "interrupted; nothing was written\n");
      return ExitCode::interrupted;
    }
    if (written < facts.rows) {
      throw DataError("the trace changed while it was read", rows.name,
                      "run the command again when no other program writes to the trace");
    }
    writer->finish();
    file.commit();
    print_warnings(facts);
    fmt::print(stderr, "{} requests are in {} ({})\n", written, printable(options.out), format);
    return ExitCode::ok;
  } catch (const UserError& error) {
    print_problems(error.problems(), work_done("nothing was written"));
    return error.code();
  }
}

}  // namespace

ExitCode trace_info(const TraceOptions& options) {
  const TraceRows rows = rows_of(options);
  TraceReport report{rows.name, {}, {}, {}};
  report.facts = survey(rows, [&report](const traces::TraceRow& row) {
    report.statistics.add(row);
    return true;
  });
  report.statistics.finish();
  if (rows.format == "native-binary") report.converted_from = traces::NativeBinaryReader(rows.name).facts();
  print_result(options.json ? to_json(report) : to_table(report));
  return ExitCode::ok;
}

ExitCode trace_convert(const TraceOptions& options) {
  return write_rows(options, [&options] {
    std::error_code ignored;
    if (std::filesystem::equivalent(options.input, options.out, ignored)) {
      throw ConfigError("the output would replace the trace that it is converted from", "-o " + options.out,
                        "give the new file another name");
    }
    return rows_of_file(options.input, resolve_arguments(options.arguments, {}, {}), options.skip_bad_rows);
  });
}

ExitCode trace_synth(const TraceOptions& options) {
  return write_rows(options, [&options] { return rows_of_workload(resolve_arguments(options.arguments, {}, {})); });
}

}  // namespace spillway::cli
