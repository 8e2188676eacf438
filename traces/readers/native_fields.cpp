#include "traces/readers/native_fields.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "sim/core/random.hpp"
#include "sim/core/text.hpp"
#include "traces/readers/json_cursor.hpp"
#include "traces/readers/row_checks.hpp"

namespace spillway::traces {
namespace {

/// A number below 2^64 without leading zeros: "007" is a name, not 7.
std::optional<std::uint64_t> plain_number(std::string_view text) {
  if (text.size() > 1 && text.front() == '0') return std::nullopt;
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

std::string read_limit(std::string_view text, Duration& limit) {
  const auto value = parse_number(text);
  const double ns = value ? std::floor(*value * 1e6 + 0.5) : 0.0;
  if (!(ns >= 1.0 && ns <= kMaxTraceSeconds * 1e9)) {
    return fmt::format("\"{}\" is not a number of milliseconds above 0, at most {:.0f}", excerpt(text),
                       kMaxTraceSeconds * 1e3);
  }
  limit = Duration(static_cast<std::int64_t>(ns));
  return {};
}

}  // namespace

std::uint64_t name_id(std::string_view text) {
  if (const auto number = plain_number(text)) return *number;
  std::uint64_t state = fixed_hash(text);
  return split_mix(state);
}

std::string NativeFields::read(Field field, std::string_view text, TraceRow& row) {
  std::string complaint;
  switch (field) {
    case kConversation:
      row.conversation = name_id(text);
      break;
    case kTurn:
      row.turn = whole_number<std::int32_t>(text, 1, INT32_MAX, complaint).value_or(0);
      break;
    case kThink: {
      const auto value = parse_number(text);
      if (!value || !(*value >= 0.0 && *value <= kMaxTraceSeconds)) {
        return fmt::format("\"{}\" is not a number of seconds from 0 to {:.0f}", excerpt(text), kMaxTraceSeconds);
      }
      row.think = round_seconds(*value);
      break;
    }
    case kClass:
      return read_class(text, row.service_class);
    case kTtft:
      return read_limit(text, row.slo.ttft);
    case kTpot:
      return read_limit(text, row.slo.tpot);
    case kE2e:
      return read_limit(text, row.slo.e2e);
    case kFields:
      break;
  }
  return complaint;
}

std::string NativeFields::read_class(std::string_view text, std::uint32_t& service_class) {
  const auto number = plain_number(text);
  if (names_.empty() && number && *number >= 1 && *number <= kMaxClasses) {
    numbered_ = true;
    service_class = static_cast<std::uint32_t>(*number);
    return {};
  }
  if (names_.empty() && (numbered_ || number)) {
    return fmt::format("\"{}\" is not a number from 1 to {}{}", excerpt(text), kMaxClasses,
                       numbered_ ? ", like the classes of the rows before" : "");
  }
  std::string name(text);  // "7" among names is a name
  const auto known = numbers_.find(name);
  if (known != numbers_.end()) {
    service_class = known->second;
    return {};
  }
  if (names_.size() == kMaxClasses) {
    return fmt::format("\"{}\" is one class more than the {} that a file may name", excerpt(text), kMaxClasses);
  }
  names_.push_back(name);
  service_class = static_cast<std::uint32_t>(names_.size());
  numbers_.emplace(std::move(name), service_class);
  return {};
}

}  // namespace spillway::traces
