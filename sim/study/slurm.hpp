// Sweeps on a Slurm cluster.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace spillway {

struct SlurmSweep {
  std::string program;                 // what to call
  std::vector<std::string> arguments;  // of `spillway sweep`, without -o, --shard and --emit
  std::string directory;               // results
  std::int64_t points = 0;
  std::int64_t shards = 1;
  int jobs = 1;  // CPUs of a task
};

/// A bash script that submits a job array, a task per shard, and a job that merges what they wrote; it prints both
/// jobs' ids. Submitting it again goes on from what is there.
[[nodiscard]] std::string slurm_script(const SlurmSweep& sweep);

/// `text` as a shell takes it for one word.
[[nodiscard]] std::string shell_word(const std::string& text);

}  // namespace spillway
