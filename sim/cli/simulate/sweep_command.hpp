// `spillway sweep` and `spillway merge`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/core/error.hpp"

namespace spillway::cli {

struct SweepOptions {
  std::vector<std::string> arguments;  // CONFIG.json and key=value, some with several values
  std::vector<std::string> slos;
  std::vector<std::string> zips;
  std::vector<std::string> metrics;  // of the table; empty: a choice
  std::string format = "table";
  std::string directory;             // -o; empty: nothing is kept
  std::optional<std::string> shard;  // "i/n"
  std::string emit;                  // "slurm"; empty: run
  std::optional<int> shards;         // for emit
  std::string progress = "auto";
  int jobs = 1;
  bool yes = false;
  bool dry_run = false;
  std::vector<Problem> problems;  // found before
};

/// Runs a grid of configurations. Throws UserError when nothing was run. A point that fails does not stop the others:
/// then the code is `partial`.
[[nodiscard]] ExitCode sweep(const SweepOptions& options);

struct MergeOptions {
  std::vector<std::string> folders;
  std::string directory;  // -o
  std::vector<std::string> metrics;
  std::string format = "table";
};

/// Puts the parts of a sweep that several machines ran together, so that -o holds what one machine would have written.
/// Throws DataError with everything that is missing, interrupted, there twice, or of another sweep, version or input.
[[nodiscard]] ExitCode merge(const MergeOptions& options);

}  // namespace spillway::cli
