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
  std::string emit;                  // "slurm"; empty: run the sweep
  std::optional<int> shards;         // for --emit
  bool yes = false;
};

/// Runs a grid of configurations. Throws UserError when nothing ran. A failed point does not stop the others; then the
/// exit code is `partial`.
[[nodiscard]] ExitCode sweep(const SweepOptions& options);

struct MergeOptions {
  std::vector<std::string> folders;
  std::string directory;  // -o
  std::vector<std::string> metrics;
  std::string format = "table";
};

/// Joins the parts of a sweep from several machines. Afterwards -o contains the files that one machine would have
/// written. Throws DataError with all problems: missing, interrupted or repeated parts, and parts of another sweep,
/// version or input.
[[nodiscard]] ExitCode merge(const MergeOptions& options);

}  // namespace spillway::cli
