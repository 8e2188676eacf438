// JSON in messages.
#pragma once

#include <exception>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace spillway::hwmodels {

/// What the JSON parser reports, without the parser's name for the error.
[[nodiscard]] std::string json_fault(const std::exception& error);

/// JSON text in ASCII, cut at 60 characters.
[[nodiscard]] std::string shown(const nlohmann::json& value);

}  // namespace spillway::hwmodels
