// What a turn's prompt repeats of its conversation, told from lengths.
#pragma once

#include "sim/core/units.hpp"

namespace spillway::traces {

/// Leading tokens of a prompt of `input` tokens that repeat the turn before, which had `prompt` and was answered by
/// `answer`: both where there is room for them and for something new, else the prompt alone; none where the prompt is
/// shorter than that, so that history was dropped.
constexpr Tokens repeated_tokens(Tokens input, Tokens prompt, Tokens answer) {
  if (input > prompt + answer) return prompt + answer;
  return input >= prompt ? prompt : Tokens();
}

}  // namespace spillway::traces
