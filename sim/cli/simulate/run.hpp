// `spillway run`: one what-if.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/cli/simulate/recordings.hpp"
#include "sim/core/error.hpp"

namespace spillway::cli {

struct RunOptions {
  std::vector<std::string> arguments;  // CONFIG.json and key=value
  std::vector<std::string> slos;
  std::vector<std::string> gates;  // --fail-if
  std::string format = "table";
  std::string directory;      // -o; empty: no folder
  std::string requests_file;  // --requests-out; empty: no file
  RecordingOptions recordings;
  std::string html;                    // --html; empty: no page
  std::optional<std::string> perturb;  // --perturb
  std::string progress = "auto";
  int jobs = 1;
  bool dry_run = false;
  bool fixed_locality = false;    // no runs with half and twice of experts.locality
  std::vector<Problem> problems;  // found earlier; reported together with the run's own problems
};

/// Runs the simulation, prints the result on stdout and writes the requested files. Throws UserError when nothing could
/// run. An error after the start is reported here, and no file is written.
[[nodiscard]] ExitCode run(const RunOptions& options);

}  // namespace spillway::cli
