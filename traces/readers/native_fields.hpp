// What both of spillway's own text formats may say of a request beside its lengths, its time and its client.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "traces/readers/trace_reader.hpp"

namespace spillway::traces {

/// The most service classes of one file: results are kept for each class, and nobody reads a table of more.
inline constexpr std::uint32_t kMaxClasses = 1000;

/// The 64 bits that stand for a name: of a whole number below 2^64 without leading zeros that number, of any other text
/// a hash. Distinct texts among n get the same id with a chance of n^2 / 2^65. `text` is not empty.
[[nodiscard]] std::uint64_t name_id(std::string_view text);

/// Reads and checks these fields, which are all optional; native_csv.hpp says what they mean. Memory: the names of the
/// service classes, kMaxClasses at most.
class NativeFields {
 public:
  enum Field : std::size_t { kConversation, kTurn, kThink, kClass, kTtft, kTpot, kE2e, kFields };
  static constexpr std::array<std::string_view, kFields> kNames{"conversation", "turn",        "think_s",   "class",
                                                                "slo_ttft_ms",  "slo_tpot_ms", "slo_e2e_ms"};
  /// May the field's value be a text?
  [[nodiscard]] static bool takes_text(Field field) { return field == kConversation || field == kClass; }

  /// Puts a value, which is not empty, into the row. Returns what is wrong with it; empty when nothing is.
  [[nodiscard]] std::string read(Field field, std::string_view text, TraceRow& row);

  /// Checks the fields of a row against one another and against the row before, once all are read. Calls
  /// `complain(field, what)` for what is wrong.
  template <class Complain>
  void check(const TraceRow& row, Complain complain) {
    if (!row.conversation) {
      if (row.turn != 0) complain(kTurn, "a turn needs a conversation that it is a turn of");
      if (row.think) complain(kThink, "a think time needs a conversation in whose pause it is");
    } else if (row.conversation == conversation_ && row.turn != 0 && row.turn <= turn_) {
      complain(kTurn,
               "turn " + std::to_string(row.turn) + " of the conversation follows turn " + std::to_string(turn_));
    }
    turn_ = row.conversation == conversation_ && row.turn == 0 ? turn_ : row.turn;
    conversation_ = row.conversation;
  }
  /// May the row leave out its arrival although the file has times? It then comes when the turn before is answered.
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
