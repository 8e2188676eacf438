// Which part of a sweep this process runs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/core/error.hpp"
#include "sim/study/axes.hpp"

namespace spillway {

/// "i/n" with 1 <= i <= n; appends a Problem for anything else.
[[nodiscard]] std::optional<Shard> parse_shard(const std::string& text, const std::string& where,
                                               std::vector<Problem>& problems);

/// The shard that --shard names, else the one that Slurm's variables of a job array say (SLURM_ARRAY_TASK_ID, _MIN,
/// _STEP, _COUNT), which is said on stderr; --shard 1/1 takes all in spite of them. Empty: all of the sweep.
[[nodiscard]] std::optional<Shard> chosen_shard(const std::optional<std::string>& flag, std::vector<Problem>& problems);

}  // namespace spillway
