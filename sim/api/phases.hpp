// Which part of a request an instance runs: a property of its surroundings, which no policy decides.
#pragma once

#include <cstdint>
#include <string>

#include "sim/api/parameter.hpp"

namespace spillway {

/// The phases that an instance runs, if prefill and decode run on separate instances.
enum class Phases : std::uint8_t {
  both,
  prefill,  // a request ends with its first token, so it needs KV for its prompt only
  decode    // a request arrives with the KV of its input except the last token, which it computes first
};

/// The keys that choose the phases, of every policy that lists one: its own key, or that of the part that streams the
/// weights beside it. Values: both, prefill, decode. At most one part of a policy lists such a key.
inline constexpr const char* kPhaseKey = "policy.phase";
inline constexpr const char* kWeightsPhaseKey = "policy.weights.phase";

/// The phases that these keys choose. Without them: both.
[[nodiscard]] inline Phases phases(const Settings& settings) {
  for (const char* const key : {kPhaseKey, kWeightsPhaseKey}) {
    if (!settings.has(key)) continue;
    const auto& phase = settings.get<std::string>(key);
    return phase == "prefill" ? Phases::prefill : phase == "decode" ? Phases::decode : Phases::both;
  }
  return Phases::both;
}

}  // namespace spillway
