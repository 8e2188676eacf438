// Tokenizers of SentencePiece models (Llama 2, Mistral, ...).
#pragma once

#include <memory>
#include <string>

#include "traces/tokenizers/tokenizer.hpp"

namespace spillway::traces {

/// Cuts text as the SentencePiece library does with the model in `path`, its normalisation and dummy prefix included.
/// Throws DataError when the file is missing or is no such model.
[[nodiscard]] std::unique_ptr<Tokenizer> open_sentence_piece(const std::string& path);

}  // namespace spillway::traces
