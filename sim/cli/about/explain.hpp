// The parts of `spillway explain`.
#pragma once

#include <string>
#include <string_view>

#include "sim/config/config.hpp"

namespace spillway::cli {

/// "  LABEL     text"; nothing for an empty text.
[[nodiscard]] std::string explain_field(std::string_view label, const std::string& text);

/// A key: description, values, unit, range, default, source, environment variable. `owner`: " of policy vllm".
[[nodiscard]] std::string explain_key(const Parameter& parameter, const std::string& owner);

/// A policy: description, source, limits, engine, other changed defaults, refused settings, and keys.
///
/// Changed defaults and refusals are found by trial: flags and choices of the policy, of engine.* and of memory.*,
/// alone and in pairs. Effects of numbers, or of three settings together, are not found.
[[nodiscard]] std::string explain_policy(const PolicyInfo& info);

/// A bundled experiment with its run sets and claims, or a bundled claim with its computation. Empty when no experiment
/// or claim has that name.
[[nodiscard]] std::string explain_experiment(const std::string& name);

/// What the line "Validity" of a result stands on: `spillway explain validity`.
[[nodiscard]] std::string explain_validity();
inline constexpr const char* kValidity = "validity";

}  // namespace spillway::cli
