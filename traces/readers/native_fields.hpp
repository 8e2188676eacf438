// The fields of Spillway's own text formats beside lengths, time and client.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "traces/readers/trace_reader.hpp"

namespace spillway::traces {

/// The most service classes of one file, as results are kept for each class.
inline constexpr std::uint32_t kMaxClasses = 1000;

/// The 64-bit id of a name: the number itself for a whole number below 2^64 without leading zeros, a hash for any other
/// text. Two of n distinct texts collide with probability n^2 / 2^65. `text` is not empty.
[[nodiscard]] std::uint64_t name_id(std::string_view text);

/// Reads and checks these fields, which are all optional; native_csv.hpp says what they mean. Memory: the names of the
/// service classes, kMaxClasses at most.
class NativeFields {
 public:
  enum Field : std::size_t { kConversation, kTurn, kThink, kClass, kTtft, kTpot, kE2e, kFields };
  static constexpr std::array<std::string_view, kFields> kNames{"conversation", "turn",        "think_s",   "class",
                                                                "slo_ttft_ms",  "slo_tpot_ms", "slo_e2e_ms"};
  /// True if the field's value may be a text.
  [[nodiscard]] static bool takes_text(Field field) { return field == kConversation || field == kClass; }

  /// Puts a value, which is not empty, into the row. Returns a complaint; empty if the value is valid.
  [[nodiscard]] std::string read(Field field, std::string_view text, TraceRow& row);

  /// Checks the fields of a complete row together and against the row before. Calls `complain(field, what)` for every
  /// problem.
  template <class Complain>
  void check(const TraceRow& row, Complain complain) {
    if (!row.conversation) {
      if (row.turn != 0) complain(kTurn, "a turn needs a conversation");
      if (row.think) complain(kThink, "a think time needs a conversation");
    } else if (row.conversation == conversation_ && row.turn != 0 && row.turn <= turn_) {
      complain(kTurn,
               "turn " + std::to_string(row.turn) + " of the conversation follows turn " + std::to_string(turn_));
    }
    turn_ = row.conversation == conversation_ && row.turn == 0 ? turn_ : row.turn;
    conversation_ = row.conversation;
  }
  /// True if the row may lack an arrival in a file with times: it arrives after the answer to the turn before.
  [[nodiscard]] static bool may_follow(const TraceRow& row) { return row.conversation && row.turn >= 2; }

  [[nodiscard]] const std::vector<std::string>& class_names() const { return names_; }

 private:
  std::string read_class(std::string_view text, std::uint32_t& service_class);

  std::optional<std::uint64_t> conversation_{};  // of the row before
  std::int32_t turn_ = 0;
  bool numbered_ = false;  // classes are named by numbers
  std::vector<std::string> names_;
  std::unordered_map<std::string, std::uint32_t> numbers_;  // by name
};

}  // namespace spillway::traces
