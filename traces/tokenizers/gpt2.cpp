#define PCRE2_CODE_UNIT_WIDTH 8
#include "traces/tokenizers/gpt2.hpp"

#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <utility>

#include "sim/core/error.hpp"
#include "sim/core/utf8.hpp"
#include "traces/tokenizers/byte_pairs.hpp"

namespace spillway::traces {
namespace {

/// Cuts text into pieces; no merge crosses the border of a piece.
class PieceSplitter {
 public:
  PieceSplitter() {
    // 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
    // with Unicode's white space for \s, as the original has it; PCRE2's own \s has U+180E as well. ASCII words, which
    // most pieces are, come first, for speed: \p{L}+ would match the same where the word ends before ASCII.
    constexpr std::string_view kPattern =
        R"( ?[A-Za-z]++(?![^\x00-\x7F])|'(?:[stmd]|re|ve|ll)| ?\p{L}+| ?\p{N}+| ?[^\p{Z}\t-\r\x{85}\p{L}\p{N}]+)"
        R"(|[\p{Z}\t-\r\x{85}]+(?![^\p{Z}\t-\r\x{85}])|[\p{Z}\t-\r\x{85}]+)";
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(kPattern.data()), kPattern.size(),
                              PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error, &offset, nullptr));
    SPILLWAY_CHECK(code_ != nullptr, fmt::format("PCRE2 refuses GPT-2's pattern at {}: error {}", offset, error));
    // If PCRE2 cannot compile to machine code, it interprets: slower, with equal results.
    if (pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE) == 0) next_ = pcre2_jit_match;
    match_.reset(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
    SPILLWAY_CHECK(match_ != nullptr, "PCRE2 is out of memory");
  }

  /// Calls use(piece) for each piece of `utf8`, which is valid. Every character is in a piece.
  template <class Use>
  void split(std::string_view utf8, Use use) {
    const auto* const text = reinterpret_cast<PCRE2_SPTR>(utf8.data());
    const PCRE2_SIZE* const bounds = pcre2_get_ovector_pointer(match_.get());
    for (std::size_t at = 0; at < utf8.size(); at = bounds[1]) {
      const int matched = next_(code_.get(), text, utf8.size(), at, PCRE2_NO_UTF_CHECK, match_.get(), nullptr);
      SPILLWAY_CHECK(matched > 0 && bounds[1] > at, fmt::format("GPT-2's pattern does not match: error {}", matched));
      use(utf8.substr(at, bounds[1] - at));
    }
  }

 private:
  struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
    void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
  };
  std::unique_ptr<pcre2_code, Free> code_;
  decltype(&pcre2_match) next_ = pcre2_match;
  std::unique_ptr<pcre2_match_data, Free> match_;
};

/// The ids of short pieces seen lately: each piece has two places, the newer and the older of those that share them.
class PieceCache {
 public:
  static constexpr std::size_t kLongestPiece = 23;  // bytes
  static constexpr std::size_t kMostIds = 9;

  using Key = std::array<std::uint64_t, 3>;

  /// One line of the processor's cache. The key's last byte is the piece's length, and 0 in a place not yet used.
  struct alignas(64) Place {
    Key key{};
    std::uint32_t count = 0;
    std::array<std::uint32_t, kMostIds> ids{};

    [[nodiscard]] std::span<const std::uint32_t> tokens() const { return std::span(ids).first(count); }
  };

  PieceCache() : places_(std::size_t{2} << kBits) {}

  /// `piece` has 1 to kLongestPiece bytes.
  static Key key_of(std::string_view piece) {
    std::array<char, sizeof(Key)> bytes{};
    std::memcpy(bytes.data(), piece.data(), piece.size());
    bytes.back() = static_cast<char>(piece.size());
    Key key;
    std::memcpy(key.data(), bytes.data(), bytes.size());
    return key;
  }

  /// Null when it is not there. Valid until the next insert().
  [[nodiscard]] const Place* find(const Key& key) const {
    const Place* newer = &places_[newer_of(key)];
    if (same(newer->key, key)) return newer;
    const Place* older = newer + 1;
    return same(older->key, key) ? older : nullptr;
  }

  /// `ids`: at most kMostIds.
  void insert(const Key& key, std::span<const std::uint32_t> ids) {
    Place& newer = places_[newer_of(key)];
    places_[newer_of(key) + 1] = newer;
    newer.key = key;
    newer.count = static_cast<std::uint32_t>(ids.size());
    std::copy(ids.begin(), ids.end(), newer.ids.begin());
  }

 private:
  static constexpr unsigned int kBits = 15;

  /// As ==, which would call memcmp for these 24 bytes.
  static bool same(const Key& a, const Key& b) { return ((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2])) == 0; }

  static std::size_t newer_of(const Key& key) {
    // Odd constants with well mixed bits; the product's high bits depend on all bits of the key.
    std::uint64_t mixed = (key[0] ^ (key[1] * 0x9E3779B97F4A7C15U)) + key[2] * 0xC2B2AE3D27D4EB4FU;
    mixed ^= mixed >> 32U;
    return 2 * ((mixed * 0xD6E8FEB86659FD93U) >> (64U - kBits));
  }

  std::vector<Place> places_;
};

class Gpt2Tokenizer final : public Tokenizer {
 public:
  Gpt2Tokenizer(std::string vocabulary, std::string merges)
      : files_{std::move(vocabulary), std::move(merges)}, pairs_(files_[0], files_[1]) {}

  Tokens count(std::string_view text) override {
    std::size_t tokens = 0;
    for_each_piece(text, [&](std::span<const std::uint32_t> ids) { tokens += ids.size(); });
    return Tokens(static_cast<std::int64_t>(tokens));
  }

  void encode(std::string_view text, std::vector<std::uint32_t>& ids) override {
    for_each_piece(text,
                   [&](std::span<const std::uint32_t> piece) { ids.insert(ids.end(), piece.begin(), piece.end()); });
  }

  [[nodiscard]] std::vector<std::string> files() const override { return files_; }

 private:
  /// Calls use(ids) for each piece of `text`.
  template <class Use>
  void for_each_piece(std::string_view text, Use use) {
    splitter_.split(repaired_utf8(text, repaired_), [&](std::string_view piece) { use(ids_of(piece)); });
  }

  /// Valid until the next call.
  std::span<const std::uint32_t> ids_of(std::string_view piece) {
    if (piece.size() > PieceCache::kLongestPiece) return merged(piece);
    const PieceCache::Key key = PieceCache::key_of(piece);
    if (const PieceCache::Place* place = cache_.find(key); place != nullptr) return place->tokens();
    const std::span<const std::uint32_t> ids = merged(piece);
    if (ids.size() <= PieceCache::kMostIds) cache_.insert(key, ids);
    return ids;
  }

  std::span<const std::uint32_t> merged(std::string_view piece) {
    ids_.clear();
    pairs_.encode(piece, ids_);
    return ids_;
  }

  std::vector<std::string> files_;
  BytePairs pairs_;
  PieceSplitter splitter_;
  PieceCache cache_;
  std::string repaired_;
  std::vector<std::uint32_t> ids_;
};

/// The first of `names` that is a file in `folder`.
std::optional<std::string> first_of(const std::filesystem::path& folder, std::span<const char* const> names) {
  std::error_code ignored;
  for (const char* name : names) {
    if (std::filesystem::exists(folder / name, ignored)) return (folder / name).string();
  }
  return std::nullopt;
}

Problem missing(const std::string& folder, const char* what, std::span<const char* const> names) {
  return {fmt::format("the folder has no {} of GPT-2", what), folder,
          fmt::format("put one of these there: {}", fmt::join(names, ", "))};
}

}  // namespace

std::unique_ptr<Tokenizer> open_gpt2(const std::string& folder) {
  static constexpr std::array<const char*, 4> kVocabularies{"encoder.json", "vocab.json", "gpt2-encoder.json",
                                                            "gpt2-vocab.json"};
  static constexpr std::array<const char*, 4> kMerges{"merges.txt", "vocab.bpe", "gpt2-merges.txt", "gpt2-vocab.bpe"};
  std::error_code ignored;
  const auto kind = std::filesystem::status(folder, ignored).type();
  if (kind == std::filesystem::file_type::not_found) {
    throw DataError(
        "there is no such folder", folder,
        "check the path; it is relative to the current folder and must contain encoder.json and merges.txt");
  }
  if (kind != std::filesystem::file_type::directory) {
    throw DataError("this is not a folder", folder, "name the folder that contains encoder.json and merges.txt");
  }
  const auto vocabulary = first_of(folder, kVocabularies);
  const auto merges = first_of(folder, kMerges);
  std::vector<Problem> problems;
  if (!vocabulary) problems.push_back(missing(folder, "vocabulary", kVocabularies));
  if (!merges) problems.push_back(missing(folder, "merges", kMerges));
  if (!problems.empty()) throw DataError(std::move(problems));
  return std::make_unique<Gpt2Tokenizer>(*vocabulary, *merges);
}

}  // namespace spillway::traces
