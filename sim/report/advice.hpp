// The results of `advise` and `plan` as text, JSON and CSV.
#pragma once

#include <string>

#include "sim/study/advice.hpp"

namespace spillway {

/// At most 100 columns, unless a name is longer.
[[nodiscard]] std::string to_advice_table(const Advice& advice);
[[nodiscard]] std::string to_advice_json(const Advice& advice);
/// One row per configuration, the best first.
[[nodiscard]] std::string to_advice_csv(const Advice& advice);

/// The result of `plan`: fleets for a rate, those of the Pareto front first and marked.
[[nodiscard]] std::string to_plan_table(const Advice& advice);
[[nodiscard]] std::string to_plan_json(const Advice& advice);
[[nodiscard]] std::string to_plan_csv(const Advice& advice);

}  // namespace spillway
