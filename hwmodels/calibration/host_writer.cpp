#include "hwmodels/calibration/host_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "hwmodels/calibration/citation.hpp"
#include "hwmodels/calibration/host_gemm_rates.hpp"
#include "hwmodels/catalog.hpp"
#include "sim/core/error.hpp"

namespace spillway::hwmodels {
namespace {

using nlohmann::ordered_json;

ordered_json field(const ordered_json& value, const char* unit, const char* kind, const std::string& cite) {
  return {{"value", value}, {"unit", unit}, {"source", {{"kind", kind}, {"cite", cite}}}};
}

/// The rows by threads.
std::map<std::int64_t, std::vector<HostStreamRow>> by_threads(const Measurements& in) {
  std::map<std::int64_t, std::vector<HostStreamRow>> rows;
  for (const HostStreamRow& row : in.host_streams) rows[row.threads].push_back(row);
  return rows;
}

/// Throws DataError when rows or facts are missing that the host's file requires.
void require_all(const std::string& path, const Measurements& in, const FittedKernels& fitted) {
  std::vector<Problem> problems;
  const auto require = [&](bool there, const char* what, const char* fix) {
    if (!there)
      problems.push_back({fmt::format("a host's file needs {}, but the measurements have none", what), path, fix});
  };
  constexpr const char* kMeasure = "measure the host's sections as well";
  require(!in.host_streams.empty(), "host_stream rows of reading", kMeasure);
  require(fitted.cpu_attention.has_value(), "rows of CPU attention", kMeasure);
  require(in.machine.physical_cores && in.machine.threads && in.machine.memory_bytes,
          "the machine's cores, threads and memory",
          "give the measuring tool's own file, whose provenance states them");
  if (!problems.empty()) throw DataError(std::move(problems));
}

}  // namespace

ordered_json host_gemm_values(const Measurements& measurements) {
  ordered_json values = ordered_json::object();
  for (const HostGemmRate& rate : host_gemm_rates(measurements)) {
    values[fmt::format("gemm_flops_{}_rows", rate.rows)] =
        field(rate.flops ? ordered_json(*rate.flops) : ordered_json(nullptr), "FLOP/s", "measured", rate.citation);
  }
  return values;
}

std::string host_text(const std::string& name, const std::string& path, const Measurements& measurements,
                      const FittedKernels& fitted) {
  require_all(path, measurements, fitted);
  const MeasuredHost& machine = measurements.machine;
  const auto rows = by_threads(measurements);
  const auto best = std::max_element(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return fastest_read(a.second) < fastest_read(b.second);
  });
  const double bandwidth = fastest_read(best->second);
  const Fitted<CpuAttentionModel>& attention = *fitted.cpu_attention;
  const std::string tool = "stated by the measuring tool";
  const std::int64_t cores = std::min(*machine.physical_cores, *machine.threads);
  ordered_json values;
  values["cores"] = field(cores, "1", "measured",
                          cores < *machine.physical_cores ? fmt::format("{}: {} cores, of which the run had {} threads",
                                                                        tool, *machine.physical_cores, *machine.threads)
                                                          : tool);
  values["threads"] = field(*machine.threads, "1", "measured", tool);
  values["dram"] = field(*machine.memory_bytes, "bytes", "measured", tool);
  values["dram_bandwidth"] =
      field(bandwidth, "bytes/s", "measured",
            fmt::format("{} threads, which read fastest: {}", best->first, citation(measurements, best->second)));
  const auto one = rows.find(1);
  values["dram_bandwidth_per_thread"] =
      one == rows.end() ? field(nullptr, "bytes/s", "assumed", "no reading by one thread was measured")
                        : field(fastest_read(one->second), "bytes/s", "measured", citation(measurements, one->second));
  values["dram_peak"] = field(nullptr, "bytes/s", "assumed", "the measuring tool does not know the memory channels");
  values["cpu_attention_efficiency"] = field(
      std::min(attention.model.bandwidth / bandwidth, 1.0), "1", "measured",
      fmt::format("CPU attention reaches {:.4g} bytes/s: {}", attention.model.bandwidth, attention.record.citation));
  values["cpu_attention_launch"] = field(attention.model.launch_seconds, "s", "measured", attention.record.citation);
  values.update(host_gemm_values(measurements));
  values["sockets"] = machine.sockets ? field(std::min(*machine.sockets, cores), "1", "measured", tool)
                                      : field(1, "1", "assumed", "the measuring tool does not state them");
  const ErrorSummary& held = attention.record.held_out;
  const ordered_json document{
      {"schema_version", 1},
      {"kind", "host"},
      {"name", name},
      {"stands_for",
       fmt::format("{}, {} cores, {:.0f} GB; fitted to measurements", machine.cpu_model.value_or("an unstated CPU"),
                   cores, static_cast<double>(*machine.memory_bytes) / 1e9)},
      {"error", held.n == 0 ? std::string("fitted, but no row was held out to judge it")
                            : fmt::format("median / p95 of |simulated/measured - 1| on held-out rows: cpu_attention "
                                          "{:.1f}% / {:.1f}% (n = {})",
                                          100.0 * held.median, 100.0 * held.p95, held.n)},
      {"values", std::move(values)}};
  return document.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace spillway::hwmodels
