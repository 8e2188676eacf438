// The result of `search` as text, JSON and CSV.
#pragma once

#include <string>

#include "sim/study/search.hpp"

namespace spillway {

[[nodiscard]] std::string to_search_table(const SearchReport& report);
[[nodiscard]] std::string to_search_json(const SearchReport& report);
/// One row per probe: configuration, value, holds, reason, and the table's metrics.
[[nodiscard]] std::string to_search_csv(const SearchReport& report);

}  // namespace spillway
