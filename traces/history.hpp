// What a turn's prompt repeats of its conversation, derived from lengths.
#pragma once

#include "sim/core/units.hpp"

namespace spillway::traces {

/// Leading tokens of a prompt of `input` tokens that repeat the turn before, with its `prompt` and `answer`. Both are
/// repeated if they and a new token fit into the input; else only the prompt, if it fits; else nothing: the history was
/// dropped.
constexpr Tokens repeated_tokens(Tokens input, Tokens prompt, Tokens answer) {
  if (input > prompt + answer) return prompt + answer;
  return input >= prompt ? prompt : Tokens();
}

}  // namespace spillway::traces
