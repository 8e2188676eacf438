// The result of `search` as text, JSON and CSV.
#pragma once

#include <string>

#include "sim/study/search.hpp"

namespace spillway {

[[nodiscard]] std::string to_search_table(const SearchReport& report);
[[nodiscard]] std::string to_search_json(const SearchReport& report);
/// One row per probe: configuration, the value of each axis, the value of the searched key, requests, whether the SLOs
/// hold, whether it is the value found, whether that is the best of all configurations, the reason, and the table's
/// metrics with their half-widths.
[[nodiscard]] std::string to_search_csv(const SearchReport& report);

}  // namespace spillway
