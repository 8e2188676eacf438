// The JSON Schema of results.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace spillway {

/// JSON Schema 2020-12 of what to_json() of result_json.hpp writes. Metrics and their units come from the table of
/// metrics, keys from the table of keys. It is closed: a key that it does not have is an error.
[[nodiscard]] nlohmann::ordered_json result_schema();

}  // namespace spillway
