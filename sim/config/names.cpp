#include "sim/config/names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>

#include "sim/api/registry.hpp"

namespace spillway {
namespace {

bool is_separator(char c) { return c == '-' || c == '_' || c == ' '; }

/// "H100-80GB_SXM" -> "h100", "80gb", "sxm". Dots belong to words: 3.1 is one number.
std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (!is_separator(c)) {
      words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

std::string joined(std::span<const std::string> words) {
  std::string text;
  for (const std::string& word : words) text += word;
  return text;
}

/// "80gb".
bool is_memory_size(std::string_view word) {
  if (!word.ends_with("gb") || word.size() == 2) return false;
  word.remove_suffix(2);
  return std::ranges::all_of(word, [](unsigned char c) { return std::isdigit(c) != 0; });
}

/// Whether `text`, without separators, is made of words of the name: of its first ones, or also without a size.
bool abbreviates(std::string_view text, std::span<const std::string> words) {
  if (text.empty()) return true;
  if (words.empty()) return false;
  if (text.starts_with(words.front()) && abbreviates(text.substr(words.front().size()), words.subspan(1))) return true;
  return is_memory_size(words.front()) && abbreviates(text, words.subspan(1));
}

/// Keys of the type `choice` whose values are names. Other choices are settings.
bool takes_names(const Parameter& parameter) {
  constexpr std::array<std::string_view, 3> kKeys{"policy", kWeightsKey, kSchedulerKey};
  return parameter.type == ParameterType::text || std::ranges::find(kKeys, parameter.name) != kKeys.end() ||
         parameter.name.ends_with("router");
}

/// Whether the text is a path, or names an existing file or folder that the key takes.
bool is_file(const Parameter& parameter, const std::string& text) {
  std::error_code none;
  if (text.find('/') != std::string::npos) return true;
  if (parameter.takes_folder && std::filesystem::is_directory(text, none)) return true;
  return text.find('.') != std::string::npos && std::filesystem::exists(text, none);
}

NameMatch match_value(const Parameter& parameter, const std::string& text) {
  const bool names =
      parameter.type == ParameterType::choice || (parameter.type == ParameterType::text && !parameter.choices.empty());
  if (!names) return {};
  if (parameter.type == ParameterType::text && is_file(parameter, text)) return {};
  NameMatch match =
      match_name(text, parameter.choices, takes_names(parameter) ? Abbreviations::allowed : Abbreviations::refused);
  if (match.name.empty() && match.several.empty() && parameter.known_elsewhere != nullptr) {
    match.name = parameter.known_elsewhere(text);
  }
  return match;
}

}  // namespace

NameMatch match_name(std::string_view written, std::span<const std::string> names, Abbreviations abbreviations) {
  constexpr std::size_t kLongest = 200;  // no name is that long, but a file given by mistake is
  if (written.size() > kLongest) return {};
  if (std::ranges::find(names, written) != names.end()) return {.name = std::string(written)};
  const std::string text = joined(words_of(written));
  if (text.empty()) return {};
  std::vector<std::string> same;
  std::vector<std::string> shortened;
  for (const std::string& name : names) {
    const std::vector<std::string> words = words_of(name);
    if (joined(words) == text) {
      same.push_back(name);
    } else if (abbreviations == Abbreviations::allowed && !words.empty() && text.starts_with(words.front()) &&
               abbreviates(text, words)) {
      shortened.push_back(name);
    }
  }
  std::vector<std::string>& found = same.empty() ? shortened : same;
  if (found.size() == 1) return {.name = std::move(found.front())};
  return {.several = std::move(found)};
}

std::string resolved_name(const Parameter& parameter, const std::string& text) {
  std::string name = match_value(parameter, text).name;
  return name.empty() ? text : name;
}

std::string ambiguity(const Parameter& parameter, const std::string& text) {
  const std::vector<std::string> several = match_value(parameter, text).several;
  if (several.empty()) return {};
  const std::span<const std::string> first(several.data(), several.size() - 1);
  return fmt::format("can mean {} or {}", fmt::join(first, ", "), several.back());
}

}  // namespace spillway
