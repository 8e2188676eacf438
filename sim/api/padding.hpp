// Lengths to which an engine pads every request: a property of its surroundings, which no policy decides.
#pragma once

#include <cstdint>
#include <optional>

#include "sim/api/parameter.hpp"
#include "sim/core/units.hpp"

namespace spillway {

/// A request is computed and ends as if it were this long. Longer requests are rejected on arrival. A policy sees
/// padded lengths only. Records, token gaps and service count the request's own tokens, without padding. Excludes
/// preemption, prefix cache and phases.
struct Padding {
  Tokens input{};
  Tokens output{};
};

/// The keys that state these lengths, of every policy that lists both.
inline constexpr const char* kPadInputKey = "policy.pad_input";
inline constexpr const char* kPadOutputKey = "policy.pad_output";

/// The lengths that these keys state; empty: requests are not padded.
[[nodiscard]] inline std::optional<Padding> padding(const Settings& settings) {
  if (!settings.has(kPadInputKey)) return std::nullopt;
  return Padding{Tokens(settings.get<std::int64_t>(kPadInputKey)), Tokens(settings.get<std::int64_t>(kPadOutputKey))};
}

}  // namespace spillway
