// The part of a sweep that this process runs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/core/error.hpp"
#include "sim/study/axes.hpp"

namespace spillway {

/// Parses "i/n" with 1 <= i <= n; appends a Problem for any other text.
[[nodiscard]] std::optional<Shard> parse_shard(const std::string& text, const std::string& where,
                                               std::vector<Problem>& problems);

/// The shard that --shard names, else the shard of Slurm's job array (SLURM_ARRAY_TASK_ID, _MIN, _STEP, _COUNT), with a
/// note on stderr. --shard 1/1 selects the whole sweep in spite of these variables. Empty: the whole sweep.
[[nodiscard]] std::optional<Shard> chosen_shard(const std::optional<std::string>& flag, std::vector<Problem>& problems);

}  // namespace spillway
