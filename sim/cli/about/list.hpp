// `spillway list` and `spillway explain`: names and descriptions.
#pragma once

#include <string>
#include <vector>

#include "sim/core/error.hpp"

namespace spillway::cli {

/// A name and a one-sentence description.
struct Listed {
  std::string name;
  std::string summary;
  std::string details{};  // workloads: statistics and source; experiments: claims; keys: default
  std::string kind{};     // hardware: GPU or server; keys: the policy or router whose key it is, or any
};
/// policies, hardware, models, engines, workloads, metrics, experiments, keys.
[[nodiscard]] const std::vector<std::string>& list_kinds();
/// The items of one kind, in alphabetical order (metrics: in the order of results). Throws ConfigError for an unknown
/// kind.
[[nodiscard]] std::vector<Listed> listed(const std::string& kind);

/// `spillway list KIND`
[[nodiscard]] ExitCode list(const std::string& kind, bool json);
/// Every name that `explain` accepts: all listed names, claims of experiments, all keys, and the keys of every policy.
[[nodiscard]] std::vector<std::string> explainable_names();
/// The output of `spillway explain NAME`: every item of that name, of any kind, else the model in the file or folder of
/// that name. Throws ConfigError for an unknown name, with the nearest name or the keys of a group ("memory"), and
/// DataError when the file is not a supported model.
[[nodiscard]] std::string explanation(const std::string& name);
[[nodiscard]] ExitCode explain(const std::string& name);

}  // namespace spillway::cli
