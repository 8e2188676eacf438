// Experiments by name: those inside the binary, and folders of the user's own.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "sim/study/experiment.hpp"

namespace spillway {

/// An experiment and where its other files are.
struct LoadedExperiment {
  Experiment experiment;
  std::string folder;  // empty: inside the binary

  /// The text of a file beside expected.json. Throws DataError when there is none.
  [[nodiscard]] std::string read(const std::string& file) const;
  /// Writes the files of an experiment inside the binary to a folder.
  void extract(const std::string& to) const;
};

/// Those inside the binary, in alphabetical order.
[[nodiscard]] const std::vector<LoadedExperiment>& bundled_experiments();
/// FOLDER/expected.json. Throws DataError when it cannot be read or is wrong.
[[nodiscard]] LoadedExperiment load_experiment(const std::string& folder);

/// Some of an experiment's claims.
struct ClaimSelection {
  LoadedExperiment experiment;
  std::vector<std::size_t> claims;  // their places in experiment.claims, ascending
};

/// The claims that the names stand for: claims, systems, experiments, or folders with an expected.json. No names: all
/// that are inside the binary. Throws ConfigError with the nearest name for each that is none of these.
[[nodiscard]] std::vector<ClaimSelection> select_claims(const std::vector<std::string>& names);

/// Every claim, system and experiment inside the binary.
[[nodiscard]] std::vector<std::string> reproducible_names();

}  // namespace spillway
