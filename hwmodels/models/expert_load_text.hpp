// An expert load as the key expert_load gives it.
#pragma once

#include <cstdint>
#include <string>

#include "hwmodels/models/expert_load.hpp"

namespace spillway::hwmodels {

/// "balanced": every token chooses among `experts` experts at random, all with the same probability, so that a small
/// batch leaves some of them idle. "dealt": tokens are dealt out evenly, as microbenchmarks do. "power_law:1.2". Or the
/// path of a JSON file: a list with the share of each expert, which sum to 1. Throws ConfigError for another text and
/// for shares that are not a distribution, DataError for a file that cannot be read.
[[nodiscard]] ExpertLoad read_expert_load(const std::string& text, std::int64_t experts);

}  // namespace spillway::hwmodels
