// Tokenizers, with which the readers of text traces count tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/units.hpp"

namespace spillway::traces {

/// Cuts text into the tokens of one model. Nothing is trimmed, no token for the beginning or the end is
/// added, and names of special tokens ("<|endoftext|>", "</s>") are ordinary text.
///
/// Text is UTF-8 and may hold NUL. What is not UTF-8 is read as Python's errors="replace" does: each maximal part that
/// could have begun a character, or else each byte, stands for one U+FFFD. So every tokenizer sees equal text.
///
/// An object serves one thread at a time.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Number of tokens of `text`.
  [[nodiscard]] virtual Tokens count(std::string_view text) = 0;
  /// Appends the tokens' ids to `ids`, as many as count() says. Throws InvariantError without has_ids().
  virtual void encode(std::string_view text, std::vector<std::uint32_t>& ids) = 0;
  /// True if it knows the tokens themselves; the estimate knows only their number.
  [[nodiscard]] virtual bool has_ids() const { return true; }
  /// A warning for users of the counts; empty if they are exact.
  [[nodiscard]] virtual std::string warning() const { return {}; }
  /// The files of the tokenizer, on which the counts depend.
  [[nodiscard]] virtual std::vector<std::string> files() const { return {}; }
};

/// Opens the tokenizer that `workload.tokenizer` names:
///
///   estimate      4 characters (code points) per token, rounded up; has no ids, and has a warning. Measured: 1.8 GB/s
///   gpt2:FOLDER   byte-level BPE of GPT-2, see open_gpt2
///   FILE.model    a SentencePiece model, see open_sentence_piece
///
/// Throws ConfigError for any other text, with the nearest of these forms, and DataError if a named file is missing or
/// invalid.
[[nodiscard]] std::unique_ptr<Tokenizer> open_tokenizer(const std::string& spec);

}  // namespace spillway::traces
