// Experiments by name: bundled experiments, and users' folders.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "sim/study/experiment.hpp"

namespace spillway {

/// An experiment and the location of its other files.
struct LoadedExperiment {
  Experiment experiment;
  std::string folder;  // empty: bundled

  /// The text of a file beside expected.json. Throws DataError when the file does not exist.
  [[nodiscard]] std::string read(const std::string& file) const;
  /// Writes the files of a bundled experiment to a folder.
  void extract(const std::string& to) const;
};

/// Bundled experiments, in alphabetical order.
[[nodiscard]] const std::vector<LoadedExperiment>& bundled_experiments();
/// Reads FOLDER/expected.json. Throws DataError when the file is unreadable or wrong.
[[nodiscard]] LoadedExperiment load_experiment(const std::string& folder);

/// Some of an experiment's claims.
struct ClaimSelection {
  LoadedExperiment experiment;
  std::vector<std::size_t> claims;  // indices in experiment.claims, ascending
};

/// The claims that the names select. A name is a claim, a system, an experiment, or a folder with an expected.json. No
/// names select all bundled claims. Throws ConfigError with the nearest known name for each unknown name.
[[nodiscard]] std::vector<ClaimSelection> select_claims(const std::vector<std::string>& names);

/// Every bundled claim, system and experiment.
[[nodiscard]] std::vector<std::string> reproducible_names();

}  // namespace spillway
