// Values that JSON has no word for.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

namespace spillway {

/// Null where there is no value.
[[nodiscard]] inline nlohmann::ordered_json nullable(const std::optional<double>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

}  // namespace spillway
