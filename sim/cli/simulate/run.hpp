// `spillway run`: one what-if.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/core/error.hpp"

namespace spillway::cli {

struct RunOptions {
  std::vector<std::string> arguments;  // CONFIG.json and key=value
  std::vector<std::string> slos;
  std::vector<std::string> gates;  // --fail-if
  std::string format = "table";
  std::string directory;               // -o; empty: none
  std::string requests_file;           // --requests-out; empty: none
  std::optional<std::string> perturb;  // --perturb
  std::string progress = "auto";
  int jobs = 1;
  bool dry_run = false;
  std::vector<Problem> problems;  // found before: reported together with the run's own
};

/// Runs, prints the result on stdout and writes the files asked for. Throws UserError when nothing could be run; an
/// error after the run began is reported here, and nothing is written then.
[[nodiscard]] ExitCode run(const RunOptions& options);

}  // namespace spillway::cli
