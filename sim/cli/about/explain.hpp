// The parts of `spillway explain`.
#pragma once

#include <string>
#include <string_view>

#include "sim/config/config.hpp"

namespace spillway::cli {

/// "  LABEL     text"; nothing for an empty text.
[[nodiscard]] std::string explain_field(std::string_view label, const std::string& text);

/// A key: what it is, what it takes, unit, range, default, source, environment variable. `owner`: " of policy vllm".
[[nodiscard]] std::string explain_key(const Parameter& parameter, const std::string& owner);

/// A policy: what it is, source, limits, the engine and the other defaults that it brings, what it refuses, its keys.
///
/// Defaults and refusals are those that show when its own flags and choices, and those of engine.* and memory.*, are
/// tried alone and in pairs; what depends on numbers or on three settings at once does not show.
[[nodiscard]] std::string explain_policy(const PolicyInfo& info);

/// An experiment with its run sets and claims, and a claim with how it is computed: what is called so, inside the
/// binary. Empty when nothing is.
[[nodiscard]] std::string explain_experiment(const std::string& name);

}  // namespace spillway::cli
