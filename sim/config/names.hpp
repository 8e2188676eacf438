// Names as people write them: "H100" for h100-80gb-sxm, "FlexGen" for flexgen.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/api/parameter.hpp"
#include "sim/core/error.hpp"

namespace spillway {

/// What a written name stands for.
struct NameMatch {
  std::string name{};                  // the only name that it can stand for; empty: none, or several
  std::vector<std::string> several{};  // the names that it can stand for, when there are several
};

/// Whether the first words of a name stand for the name, when no other name begins with them.
enum class Abbreviations : bool { refused, allowed };

/// Case and separators (- _ and blanks) do not count: "Select_N" is select-n. An abbreviation leaves out the last words
/// of a name, and sizes of memory: "H100" and "H100 SXM" are h100-80gb-sxm. Nothing else may be left out, because
/// llama-3-8b is not llama-3.1-8b. O(length of all names).
[[nodiscard]] NameMatch match_name(std::string_view written, std::span<const std::string> names,
                                   Abbreviations abbreviations);

/// The value of a key as its descriptor has it: `text` itself, unless it stands for one other of the key's names, or
/// other programs call one of them so. Files and folders stay. Keys that choose among settings, not names, take no
/// abbreviations.
[[nodiscard]] std::string resolved_name(const Parameter& parameter, const std::string& text);
/// "can mean a, b or c" for a text that stands for several names of the key; empty otherwise.
[[nodiscard]] std::string ambiguity(const Parameter& parameter, const std::string& text);

}  // namespace spillway
