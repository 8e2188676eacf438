// `spillway list` and `spillway explain`: what there is, and what it is.
#pragma once

#include <string>
#include <vector>

#include "sim/core/error.hpp"

namespace spillway::cli {

/// A name and one sentence on it.
struct Listed {
  std::string name;
  std::string summary;
  std::string details{};  // workloads: statistics and source; experiments: their claims
  std::string kind{};     // hardware: GPU or server
};
/// policies, hardware, models, engines, workloads, metrics, experiments.
[[nodiscard]] const std::vector<std::string>& list_kinds();
/// The things of one kind, in alphabetical order (metrics: in the order of results). Throws ConfigError for another
/// kind.
[[nodiscard]] std::vector<Listed> listed(const std::string& kind);

/// `spillway list KIND`
[[nodiscard]] ExitCode list(const std::string& kind, bool json);
/// Whatever `explain` knows: what list prints, the claims of experiments, every key, and the keys of every policy.
[[nodiscard]] std::vector<std::string> explainable_names();
/// What `spillway explain NAME` prints: everything of that name, whatever its kind; else the model in the file or
/// folder of that name. ConfigError with the nearest name, or with the keys of a group ("memory"), when there is none;
/// DataError when the file is no model that is understood.
[[nodiscard]] std::string explanation(const std::string& name);
[[nodiscard]] ExitCode explain(const std::string& name);

}  // namespace spillway::cli
