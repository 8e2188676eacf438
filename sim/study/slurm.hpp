// Sweeps on a Slurm cluster.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace spillway {

struct SlurmSweep {
  std::string program;                 // program to call
  std::vector<std::string> arguments;  // of `spillway sweep`, without -o, --shard and --emit
  std::string directory;               // folder for results
  std::int64_t points = 0;
  std::int64_t shards = 1;
  int jobs = 1;  // CPUs per task
};

/// A bash script that submits a job array, one task per shard, and a job that merges the shards' results. The script
/// prints both job ids. Submitting the script again continues with the points that are missing.
[[nodiscard]] std::string slurm_script(const SlurmSweep& sweep);

/// Quotes `text` as one shell word.
[[nodiscard]] std::string shell_word(const std::string& text);

}  // namespace spillway
