// Probes: figures of parts of the simulator that no run of a workload shows, for claims about them.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/config/config.hpp"

namespace spillway {

/// A figure by name; no value where there is none.
using ProbeFigures = std::map<std::string, std::optional<double>>;

/// Contract: pure; the same settings give the same figures.
struct Probe {
  std::string name;
  std::string doc;  // what it computes, one sentence
  std::vector<Parameter> parameters;
  bool takes_configuration = false;  // every key of a run, too
  /// Its own parameters in `own`; the assignments of a run in `configuration`. Throws ConfigError or DataError.
  std::function<ProbeFigures(const Settings& own, const std::vector<Assignment>& configuration)> compute;
};

/// Null when there is none of that name.
[[nodiscard]] const Probe* find_probe(std::string_view name);
[[nodiscard]] std::vector<std::string> probe_names();

}  // namespace spillway
