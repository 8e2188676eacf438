#include "traces/tokenizers/sentence_piece.hpp"

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include <utility>

#include "sim/core/error.hpp"
#include "sim/core/utf8.hpp"
#include "traces/tokenizers/tokenizer_file.hpp"

namespace spillway::traces {
namespace {

class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(std::string path) : path_(std::move(path)) {
    if (!processor_.LoadFromSerializedProto(read_tokenizer_file(path_)).ok()) {
      throw DataError("this is not a complete SentencePiece model", path_,
                      "name a file that SentencePiece trained, often called tokenizer.model");
    }
  }

  Tokens count(std::string_view text) override {
    cut(text);
    return Tokens(static_cast<std::int64_t>(pieces_.size()));
  }

  void encode(std::string_view text, std::vector<std::uint32_t>& ids) override {
    cut(text);
    ids.insert(ids.end(), pieces_.begin(), pieces_.end());
  }

  [[nodiscard]] std::vector<std::string> files() const override { return {path_}; }

 private:
  /// Fills pieces_.
  void cut(std::string_view text) {
    const auto status = processor_.Encode(repaired_utf8(text, repaired_), &pieces_);
    if (!status.ok()) {
      throw DataError(fmt::format("SentencePiece cannot cut a text with this model: {}", status.error_message()),
                      path_);
    }
  }

  std::string path_;
  sentencepiece::SentencePieceProcessor processor_;
  std::string repaired_;
  std::vector<int> pieces_;  // ids
};

}  // namespace

std::unique_ptr<Tokenizer> open_sentence_piece(const std::string& path) {
  return std::make_unique<SentencePieceTokenizer>(path);
}

}  // namespace spillway::traces
