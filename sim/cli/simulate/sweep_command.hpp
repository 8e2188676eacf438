// `spillway sweep` and `spillway merge`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/cli/grid_arguments.hpp"
#include "sim/core/error.hpp"

namespace spillway::cli {

struct SweepOptions : GridOptions {
  std::optional<std::string> shard;  // "i/n"
  std::string emit;                  // "slurm"; empty: run
  std::optional<int> shards;         // for emit
  bool yes = false;
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
