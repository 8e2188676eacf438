#include "sim/study/sweep_results.hpp"

#include <utility>

#include "sim/core/text.hpp"

namespace spillway {

void add_outcome(Sweep& sweep, SweepRow row, const PointOutcome& outcome) {
  row.id = outcome.id;
  row.error = outcome.error();
  row.sha256 = outcome.failed() ? "" : sha256_hex(outcome.json);
  row.bottleneck = outcome.resource;
  row.warnings = outcome.warnings;
  row.trust = outcome.trust;
  sweep.add(std::move(row), outcome.metrics);
}

std::string render(const Sweep& sweep, const std::string& format, const std::vector<std::string>& metrics) {
  if (format == "csv") return to_sweep_csv(sweep);
  if (format == "json") return to_sweep_json(sweep);
  return to_sweep_table(sweep, metrics);
}

void write_results(const ResultStore& store, const Sweep& sweep) {
  store.write("sweep.csv", to_sweep_csv(sweep));
  store.write("sweep.json", to_sweep_manifest(sweep, true));
}

}  // namespace spillway
