// Checks that the rows of every format share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "traces/readers/trace_reader.hpp"

namespace spillway::traces {

/// The latest time since the start of a run that a trace may state: three years in seconds, far below the clock's end.
inline constexpr double kMaxTraceSeconds = 1e8;

/// The fix for a row that is not a request.
inline constexpr const char* kCorrectRow = "correct or delete the row";

/// Sets the lengths of a request whose client asks for what it generates. An output of 0 tokens counts as 1.
inline void set_lengths(TraceRow& row, std::int64_t input, std::int64_t output) {
  row.input = Tokens(input);
  row.output = row.max_new_tokens = Tokens(std::max<std::int64_t>(output, 1));
}

/// Why ArrivalOrder refuses a time.
inline constexpr const char* kTooEarly = "more than 1 s earlier than a previous row";

/// Arrival times in the order of the rows.
class ArrivalOrder {
 public:
  /// False if the time is more than kReorderWindow before the latest so far.
  [[nodiscard]] bool fits(std::int64_t ns) const { return !started_ || ns >= latest_ - kReorderWindow.count(); }
  /// Records the time of a good row.
  void note(std::int64_t ns) {
    if (!started_) first_ = latest_ = ns;
    started_ = true;
    latest_ = std::max(latest_, ns);
  }
  [[nodiscard]] std::int64_t first() const { return first_; }

 private:
  bool started_ = false;
  std::int64_t first_ = 0;
  std::int64_t latest_ = 0;
};

/// Clients of a file, named by numbers or by texts. Texts are numbered from 1 in order of appearance. Memory: the
/// distinct texts.
class ClientNames {
 public:
  [[nodiscard]] bool numbered() const { return kind_ == Kind::numbers; }
  [[nodiscard]] bool named() const { return kind_ == Kind::names; }
  /// Both return false if earlier rows named clients in the other way.
  bool number(std::uint32_t number, std::uint32_t& client) {
    if (kind_ == Kind::names) return false;
    kind_ = Kind::numbers;
    client = number;
    return true;
  }
  bool name(std::string_view name, std::uint32_t& client) {
    if (kind_ == Kind::numbers) return false;
    kind_ = Kind::names;
    client = numbers_.try_emplace(std::string(name), static_cast<std::uint32_t>(numbers_.size() + 1)).first->second;
    return true;
  }

 private:
  enum class Kind : std::uint8_t { unknown, numbers, names } kind_ = Kind::unknown;
  std::unordered_map<std::string, std::uint32_t> numbers_;
};

}  // namespace spillway::traces
