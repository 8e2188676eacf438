// GPT-2's tokenizer.
#pragma once

#include <memory>
#include <string>

#include "traces/tokenizers/tokenizer.hpp"

namespace spillway::traces {

/// Byte-level BPE, exact: text is cut into pieces by the published pattern (through PCRE2), each piece is the tokens of
/// its bytes, and the neighbours of the lowest rank are merged until none is left. Source: openai/gpt-2,
/// src/encoder.py. The classes of characters are those of PCRE2's Unicode version (14 with 10.42).
///
/// `folder` holds the vocabulary (encoder.json, vocab.json, gpt2-encoder.json or gpt2-vocab.json) and the merges
/// (merges.txt, vocab.bpe, gpt2-merges.txt or gpt2-vocab.bpe); of several, the first in this order counts. Throws
/// DataError if a file is missing or invalid: a merge must take tokens of earlier lines and make a new one, as in
/// training, and the vocabulary must contain all tokens.
///
/// O(n log n) in the length of a piece, O(1) for a short piece seen lately: these are kept in a table of fixed size.
/// Memory: 6 MB once it is open, and up to 40 bytes for each byte of the longest piece. Measured on ShareGPT's text,
/// one core of a busy 2.5 GHz Xeon: 39 to 54 MB/s in a long trace, 20 MB/s while no piece was seen before; opening
/// takes 0.15 s.
[[nodiscard]] std::unique_ptr<Tokenizer> open_gpt2(const std::string& folder);

}  // namespace spillway::traces
