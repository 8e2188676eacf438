// Probes compute figures of parts of the simulator that no run of a workload shows. Claims use these figures.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/config/config.hpp"

namespace spillway {

/// Figures by name; an empty figure has no value.
using ProbeFigures = std::map<std::string, std::optional<double>>;

/// Contract: pure. Equal settings give equal figures.
struct Probe {
  std::string name;
  std::string doc;  // one sentence: what the probe computes
  std::vector<Parameter> parameters;
  bool takes_configuration = false;  // true: also accepts every key of a run
  /// `own` has the probe's own parameters, `configuration` the assignments of a run. Throws ConfigError or DataError.
  std::function<ProbeFigures(const Settings& own, const std::vector<Assignment>& configuration)> compute;
};

/// Null for an unknown name.
[[nodiscard]] const Probe* find_probe(std::string_view name);
[[nodiscard]] std::vector<std::string> probe_names();

}  // namespace spillway
