// Writers of a result. Each returns the whole text, ending in a newline; the figures are the same in all.
#pragma once

#include <string>

#include "sim/study/result.hpp"
#include "sim/study/result_json.hpp"

namespace spillway {

/// One screen for people: at most 100 columns and 40 lines.
[[nodiscard]] std::string to_table(const Result& result);
/// The set-up and the warnings alone: what --dry-run shows.
[[nodiscard]] std::string to_setup_table(const Result& result);
/// name,value,unit,n: a row per metric, whatever the run; the value is empty when there is none.
[[nodiscard]] std::string to_csv(const Result& result);
/// One flat JSON object, numbers only, with the key names of vLLM's serving benchmark; metrics without value are
/// absent.
[[nodiscard]] std::string to_vllm(const Result& result);
}  // namespace spillway