// Writers of a result. Each returns the whole text, ending in a newline. All formats have the same figures.
#pragma once

#include <string>

#include "sim/study/result.hpp"
#include "sim/study/result_json.hpp"

namespace spillway {

/// One screen for people: at most 100 columns and 40 lines.
[[nodiscard]] std::string to_table(const Result& result);
/// Only the set-up and the warnings, as --dry-run shows them.
[[nodiscard]] std::string to_setup_table(const Result& result);
/// name,value,unit,n: one row per metric, for every run; an empty value means that the metric does not exist.
[[nodiscard]] std::string to_csv(const Result& result);
/// One flat JSON object of numbers, with the key names of vLLM's serving benchmark. Metrics without a value are absent.
[[nodiscard]] std::string to_vllm(const Result& result);
}  // namespace spillway