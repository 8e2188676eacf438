// Conversations of a trace that names none, read from the prefixes that its prompts share.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "traces/readers/changed_rows.hpp"

namespace spillway::traces {

/// Sets the conversation and the turn of every row, from its prefix ids.
///
///  * A row continues an earlier row of the file if its prompt is longer, and its ids begin with those of all whole
///    blocks of the earlier prompt, at least one. A partial last block is not compared: its id changes as the prompt
///    grows.
///  * An earlier row whose ids end before its whole blocks do is never continued: the rest of its prompt is not shared.
///  * The latest row that matches is continued. A row is continued once: if the latest match has been continued, the
///    latest match that has not been is. A row that continues none is the first turn of a conversation.
///
/// Prefixes are compared by hashes of 64 bits; n of them collide with probability n^2 / 2^65. Ids of blocks of
/// different sizes never match.
///
/// Rows keep their times and ids. What a turn repeats of the turn before follows from lengths, as in any file: see
/// repeated_tokens. Ids tell it to the block only, so up to one block of it (511 tokens of Mooncake's) is a guess, and
/// so is the answer.
///
/// Memory: some 150 bytes for each row that may still be continued, which is O(rows). Cost: O(ids) per row, and the
/// lengths between two blocks at worst.
class PrefixSessions final : public ChangedRows {
 public:
  /// Throws ConfigError if the rows have no times.
  PrefixSessions(const std::string& path, std::unique_ptr<TraceReader> reader);

  /// Throws ConfigError for a row with a conversation of its own, for ids whose size is not stated, and at the end if
  /// no row has ids.
  bool next(TraceRow& row) override;

 private:
  struct Last {  // turn of a conversation so far
    std::int64_t row = 0;
    std::uint64_t conversation = 0;
    std::int32_t turn = 0;
  };
  /// Last turns whose whole blocks are the same, by the length of their prompts. Turns of one length: the latest last.
  using ByLength = std::map<Tokens, std::vector<Last>>;
  struct Match {
    std::unordered_map<std::uint64_t, ByLength>::iterator key{};
    ByLength::iterator length{};
  };

  [[noreturn]] void refuse(const char* what, const char* fix) const;
  void check(const TraceRow& row) const;
  [[nodiscard]] Last take_latest(const TraceRow& row);

  std::string path_;
  std::unordered_map<std::uint64_t, ByLength> open_;  // by a hash of the ids of all whole blocks
  std::vector<std::uint64_t> prefixes_;               // of the current row: hashes of its first 1, 2, ... whole blocks
  std::int64_t rows_ = 0;
  std::uint64_t conversations_ = 0;
  bool any_ids_ = false;
};

}  // namespace spillway::traces
