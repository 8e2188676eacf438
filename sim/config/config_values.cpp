// One value: from the user's text to a checked, typed value and its canonical text.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "sim/config/config.hpp"
#include "sim/config/names.hpp"
#include "sim/core/printable.hpp"
#include "sim/core/text.hpp"
#include "sim/core/utf8.hpp"

namespace spillway {
namespace {

constexpr std::string_view kByteUnits = "B, kB, MB, GB, TB, KiB, MiB, GiB, TiB";
constexpr std::string_view kTimeUnits = "ns, us, ms, s, min, h, d";
constexpr std::int64_t kMostBlocks = 1'000'000'000;

/// The number at the start of `text`, and the text after it.
struct NumberAndRest {
  double number = 0.0;
  std::string rest;
};
std::optional<NumberAndRest> split_number(const std::string& text) {
  const char* begin = text.data();
  const char* end = begin + text.size();
  while (begin != end && *begin == ' ') ++begin;
  NumberAndRest split;
  const auto [at, error] = std::from_chars(begin, end, split.number);
  if (error != std::errc()) return std::nullopt;
  split.rest.assign(at, end);
  std::erase(split.rest, ' ');
  return split;
}

/// Why a quantity with a unit cannot be read.
std::string quantity_fault(const std::string& text, std::string_view units) {
  const auto split = split_number(text);
  if (!split) return "is not a number with a unit";
  if (!std::isfinite(split->number)) return "is not a finite number";
  if (std::signbit(split->number)) return "is negative";
  if (split->rest.empty()) return "has no unit";
  if (fmt::format(", {},", units).find(", " + split->rest + ",") == std::string::npos) {
    return fmt::format("has the unit \"{}\", which is not one of {}", brief(split->rest), units);
  }
  return "is too large";
}

/// A decimal number as it is written: digits * 10^exponent. The digits neither begin nor end with a zero.
struct Decimal {
  bool negative = false;
  std::string digits;
  std::int64_t exponent = 0;
};
std::optional<Decimal> parse_decimal(std::string_view text) {
  constexpr std::int64_t kFar = 1'000'000'000;
  Decimal decimal;
  decimal.negative = text.starts_with('-');
  if (decimal.negative) text.remove_prefix(1);
  const std::size_t mark = std::min(text.find_first_of("eE"), text.size());
  if (mark != text.size()) {
    std::string_view written = text.substr(mark + 1);
    if (written.starts_with('+') && !written.starts_with("+-")) written.remove_prefix(1);
    const auto exponent = parse_integer(written);
    if (!exponent) return std::nullopt;
    decimal.exponent = std::clamp(*exponent, -kFar, kFar);
  }
  bool behind_point = false;
  for (const char c : text.substr(0, mark)) {
    const bool point = c == '.' && !behind_point;
    if (!point && (c < '0' || c > '9')) return std::nullopt;
    behind_point = behind_point || point;
    if (point) continue;
    decimal.digits += c;
    if (behind_point) --decimal.exponent;
  }
  if (decimal.digits.empty()) return std::nullopt;
  decimal.digits.erase(0, std::min(decimal.digits.find_first_not_of('0'), decimal.digits.size()));
  while (decimal.digits.ends_with('0')) {
    decimal.digits.pop_back();
    ++decimal.exponent;
  }
  if (decimal.digits.empty()) decimal.exponent = 0;
  return decimal;
}

/// Whole numbers may be written as 16, 16.0 or 1.6e1. Nothing is rounded.
std::optional<std::int64_t> parse_whole(const std::string& text) {
  if (const auto plain = parse_integer(text)) return plain;
  const auto decimal = parse_decimal(text);
  constexpr std::int64_t kMostZeros = 18;  // in 64 bits
  if (!decimal || decimal->exponent < 0 || decimal->exponent > kMostZeros) return std::nullopt;
  if (decimal->digits.empty()) return 0;
  return parse_integer((decimal->negative ? "-" : "") + decimal->digits +
                       std::string(static_cast<std::size_t>(decimal->exponent), '0'));
}

/// "2588 blocks", "1 block".
std::optional<Blocks> parse_blocks(std::string_view text) {
  for (const std::string_view unit : {"blocks", "block"}) {
    if (!trimmed(text).ends_with(unit)) continue;
    text = trimmed(text);
    text.remove_suffix(unit.size());
    const auto count = parse_whole(std::string(trimmed(text)));
    return count && *count >= 0 && *count <= kMostBlocks ? std::optional(Blocks(*count)) : std::nullopt;
  }
  return std::nullopt;
}

/// Why a size of KV memory cannot be read.
std::string kv_size_fault(const std::string& text) {
  const auto split = split_number(text);
  if (!split || (split->rest != "blocks" && split->rest != "block")) {
    return quantity_fault(text, fmt::format("{}, blocks", kByteUnits));
  }
  if (std::signbit(split->number)) return "is negative";
  return split->number > static_cast<double>(kMostBlocks) ? fmt::format("is more than {} blocks", kMostBlocks)
                                                          : "is not a whole number of blocks";
}

std::string whole_number_fault(const Decimal& decimal) {
  if (decimal.exponent < 0) return "is not a whole number";
  return decimal.negative ? "is too small" : "is too large";
}

std::string number_fault(const Parameter& parameter, const std::string& text) {
  const bool integer = parameter.type == ParameterType::integer;
  const auto decimal = parse_decimal(text);
  if (integer && decimal) return whole_number_fault(*decimal);
  const auto split = split_number(text);
  if (!split) return integer ? "is not a whole number" : "is not a number";
  if (!std::isfinite(split->number)) return "is not a finite number";
  if (!split->rest.empty())
    return fmt::format("has \"{}\" after the number: write the number alone", brief(split->rest));
  return integer ? "is not a whole number" : "is not a number";
}

/// A number in the parameter's stored unit, as a user would write it.
std::string number_text(const Parameter& parameter, double number) {
  switch (parameter.type) {
    case ParameterType::duration:
      return format_duration(Duration(static_cast<std::int64_t>(number)));
    case ParameterType::bytes:
      return format_bytes(Bytes(static_cast<std::int64_t>(number)));
    default:
      return number == std::floor(number) && std::abs(number) < 1e17 ? fmt::format("{:.0f}", number)
                                                                     : fmt::format("{}", number);
  }
}

std::optional<ParsedValue> parse_span(const std::string& text) {
  const auto split = split_number(text);
  if (!split || !std::isfinite(split->number) || std::signbit(split->number)) return std::nullopt;
  Span span;
  if (split->rest == "%" && split->number < 100.0) {
    span.kind = Span::Kind::share;
    span.share = split->number / 100.0;
    return ParsedValue{span, fmt::format("{}%", split->number)};
  }
  if (split->rest == "req" && split->number == std::floor(split->number) && split->number < 1e15) {
    span.kind = Span::Kind::requests;
    span.requests = static_cast<std::int64_t>(split->number);
    return ParsedValue{span, fmt::format("{}req", span.requests)};
  }
  if (const auto time = parse_duration(text)) {
    span.kind = Span::Kind::time;
    span.time = *time;
    return ParsedValue{span, format_duration(*time)};
  }
  return std::nullopt;
}

std::optional<ParsedValue> parse_typed(const Parameter& parameter, const std::string& text) {
  switch (parameter.type) {
    case ParameterType::boolean:
      if (text == "true") return ParsedValue{true, text};
      if (text == "false") return ParsedValue{false, text};
      return std::nullopt;
    case ParameterType::integer:
      if (const auto number = parse_whole(text)) return ParsedValue{*number, fmt::format("{}", *number)};
      return std::nullopt;
    case ParameterType::real:
      if (const auto number = parse_number(text)) return ParsedValue{*number, fmt::format("{}", *number)};
      return std::nullopt;
    case ParameterType::text:
      if (!text.empty() && valid_utf8(text) == text.size()) return ParsedValue{text, text};
      return std::nullopt;
    case ParameterType::choice:
      if (std::count(parameter.choices.begin(), parameter.choices.end(), text) > 0) return ParsedValue{text, text};
      return std::nullopt;
    case ParameterType::duration:
      if (const auto time = parse_duration(text)) return ParsedValue{*time, format_duration(*time)};
      return std::nullopt;
    case ParameterType::bytes:
      if (const auto bytes = parse_bytes(text)) return ParsedValue{*bytes, format_bytes(*bytes)};
      if (const auto blocks = parameter.takes_blocks ? parse_blocks(text) : std::nullopt) {
        return ParsedValue{*blocks, fmt::format("{} blocks", blocks->count())};
      }
      return std::nullopt;
    case ParameterType::span:
      return parse_span(text);
  }
  return std::nullopt;
}

/// Why parse_typed refused a text.
std::string fault(const Parameter& parameter, const std::string& text) {
  if (text.empty()) return "is empty";
  switch (parameter.type) {
    case ParameterType::boolean:
      return "is neither true nor false";
    case ParameterType::integer:
    case ParameterType::real:
      return number_fault(parameter, text);
    case ParameterType::duration:
      return quantity_fault(text, kTimeUnits);
    case ParameterType::bytes:
      return parameter.takes_blocks ? kv_size_fault(text) : quantity_fault(text, kByteUnits);
    case ParameterType::choice: {
      const std::string names = ambiguity(parameter, text);
      return names.empty() ? "is not known" : names;
    }
    case ParameterType::text:
      return "is not UTF-8, the encoding of results";
    case ParameterType::span:
      break;
  }
  return "is not a share below 100%, a number of requests or a time";
}

std::optional<std::int64_t> stored_integer(const Value& value) {
  if (const auto* number = std::get_if<std::int64_t>(&value)) return *number;
  if (const auto* time = std::get_if<Duration>(&value)) return time->count();
  if (const auto* bytes = std::get_if<Bytes>(&value)) return bytes->count();
  return std::nullopt;
}

/// Whether an integer is above a limit, compared as integers: as a double, 2^53 + 1 would be 2^53.
bool is_above(std::int64_t number, double limit) {
  constexpr double kBeyond64Bits = 9223372036854775808.0;
  if (limit >= kBeyond64Bits) return false;
  return limit < -kBeyond64Bits || number > static_cast<std::int64_t>(std::floor(limit));
}

bool in_range(const Parameter& parameter, const Value& value) {
  if (const auto integer = stored_integer(value)) {
    const auto number = static_cast<double>(*integer);
    return !is_above(*integer, parameter.maximum) &&
           (parameter.above_minimum ? number > parameter.minimum : number >= parameter.minimum);
  }
  const auto* number = std::get_if<double>(&value);
  return number == nullptr || (*number <= parameter.maximum &&
                               (parameter.above_minimum ? *number > parameter.minimum : *number >= parameter.minimum));
}

/// Whether the text is a list or a range of values that the parameter takes one by one.
bool holds_several(const Parameter& parameter, std::string_view text) {
  const auto all_parse = [&](char separator) {
    std::size_t parts = 0;
    for (std::string_view rest = text;; ++parts) {
      const std::size_t at = rest.find(separator);
      std::string_view part = trimmed(rest.substr(0, at));
      if (separator == ':' && parts == 2 && part.starts_with('x')) part.remove_prefix(1);
      const bool factor = separator == ':' && parts == 2 && parse_number(part);
      if (!factor && !parse_typed(parameter, std::string(part))) return false;
      if (at == std::string_view::npos) return parts > (separator == ':' ? 1U : 0U);
      rest.remove_prefix(at + 1);
    }
  };
  return all_parse(',') || all_parse(':');
}

std::string fix_for(const Parameter& parameter, const std::string& text) {
  const bool suggests = parameter.type == ParameterType::choice && ambiguity(parameter, text).empty();
  const std::string fix = suggests ? suggestion(text, parameter.choices) : "";
  return fix + fmt::format("{} takes {}", parameter.name, describe_type(parameter));
}

}  // namespace

std::string suggested_name(const std::string& word, const std::vector<std::string>& candidates) {
  std::string nearest = nearest_name(word, candidates);
  if (nearest.empty() && word.size() >= 3) {
    const auto containing = std::find_if(candidates.begin(), candidates.end(), [&](const std::string& candidate) {
      return candidate.find(word) != std::string::npos;
    });
    if (containing != candidates.end()) nearest = *containing;
  }
  return nearest;
}

std::string suggestion(const std::string& word, const std::vector<std::string>& candidates) {
  const std::string name = suggested_name(word, candidates);
  return name.empty() ? "" : fmt::format("did you mean \"{}\"?  ", name);
}

std::string describe_range(const Parameter& parameter) {
  std::string range;
  if (std::isfinite(parameter.minimum)) {
    range = (parameter.above_minimum ? "more than " : "at least ") + number_text(parameter, parameter.minimum);
  }
  if (std::isfinite(parameter.maximum)) {
    range += (range.empty() ? "at most " : ", at most ") + number_text(parameter, parameter.maximum);
  }
  return range;
}

std::string describe_type(const Parameter& parameter) {
  const std::string range = describe_range(parameter);
  return describe_form(parameter) + (range.empty() ? "" : ", " + range);
}

std::string describe_form(const Parameter& parameter) {
  const std::string of = parameter.unit.empty() || parameter.unit == "-" ? "" : " (" + parameter.unit + ")";
  switch (parameter.type) {
    case ParameterType::boolean:
      return "true or false";
    case ParameterType::integer:
      return "a whole number" + of;
    case ParameterType::real:
      return "a number" + of;
    case ParameterType::text:
      if (parameter.unit == kFileUnit) return "a file";
      if (parameter.unit == kListUnit) return "a JSON list of objects";
      return parameter.choices.empty() ? "text"
                                       : fmt::format("a file or one of {}", fmt::join(parameter.choices, ", "));
    case ParameterType::choice:
      return fmt::format("one of {}", fmt::join(parameter.choices, ", "));
    case ParameterType::duration:
      return fmt::format("a time such as 100ms ({})", kTimeUnits);
    case ParameterType::bytes:
      return fmt::format("a size such as 40GB ({}){}", kByteUnits,
                         parameter.takes_blocks ? ", or a number of KV blocks such as \"2588 blocks\"" : "");
    case ParameterType::span:
      return "a share such as 10%, a number of requests such as 500req, or a time such as 60s";
  }
  return {};
}

std::optional<ParsedValue> parse_value(const Parameter& parameter, const std::string& text, const std::string& where,
                                       std::vector<Problem>& problems) {
  auto parsed = parse_typed(parameter, text);
  if (!parsed) {
    const bool several = holds_several(parameter, text);
    problems.push_back({fmt::format("{}: \"{}\" {}", parameter.name, brief(text),
                                    several ? "is more than one value" : fault(parameter, text)),
                        where, several ? std::string(kSeveralValues) : fix_for(parameter, text)});
    return std::nullopt;
  }
  if (!in_range(parameter, parsed->value)) {
    problems.push_back(
        {fmt::format("{}: {} is out of range", parameter.name, brief(text)), where, fix_for(parameter, text)});
    return std::nullopt;
  }
  return parsed;
}

}  // namespace spillway
