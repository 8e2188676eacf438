#include "traces/tokenizers/byte_pairs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "sim/core/error.hpp"
#include "sim/io/line_reader.hpp"
#include "traces/tokenizers/tokenizer_file.hpp"

namespace spillway::traces {
namespace {

constexpr std::uint32_t kNone = UINT32_MAX;

/// The character for each byte in the files, as UTF-8: the byte itself if it is printable Latin-1, else the next
/// character from U+0100 on. Source: openai/gpt-2, src/encoder.py, bytes_to_unicode.
std::array<std::string, 256> byte_symbols() {
  std::array<std::string, 256> symbols;
  unsigned int next = 0x100;
  for (unsigned int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte > ' ' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
    const unsigned int code = printable ? byte : next++;
    std::string& symbol = symbols[byte];
    if (code < 0x80) {
      symbol = static_cast<char>(code);
    } else {
      symbol = {static_cast<char>(0xC0U | (code >> 6U)), static_cast<char>(0x80U | (code & 0x3FU))};
    }
  }
  return symbols;
}

}  // namespace

void BytePairs::Table::reserve(std::size_t count) { entries_.assign(std::bit_ceil(2 * count), {}); }

/// Position of the pair, or of the empty slot for it.
std::size_t BytePairs::Table::place_of(std::uint32_t left, std::uint32_t right) const {
  // Odd constants with well mixed bits; the product's upper half depends on all bits of both.
  const std::uint64_t mixed = (left * 0x9E3779B97F4A7C15U) ^ (right * 0xC2B2AE3D27D4EB4FU);
  std::size_t place = mixed >> 32U;
  while (true) {
    place &= entries_.size() - 1;
    const Entry& entry = entries_[place];
    if ((entry.left == left && entry.right == right) || entry.left == kNone) return place;
    ++place;
  }
}

void BytePairs::Table::insert(std::uint32_t left, std::uint32_t right, Merge merge) {
  entries_[place_of(left, right)] = {left, right, merge};
}

BytePairs::Merge BytePairs::Table::find(std::uint32_t left, std::uint32_t right) const {
  return entries_[place_of(left, right)].merge;
}

/// Reads the two files into a BytePairs.
class BytePairs::Files {
 public:
  explicit Files(BytePairs& target) : target_(target) {}

  void read_vocabulary(const std::string& path);
  void read_merges(const std::string& path);

 private:
  struct Token {
    std::uint32_t id = 0;
    bool made = false;  // is a byte, or the result of a merge read so far
  };

  void check_ids(const std::string& path) const;
  void read_merge(std::string_view line);
  Token* part(std::string_view symbol);
  void bad(std::string what);

  BytePairs& target_;
  std::unordered_map<std::string, Token> tokens_;
  std::vector<std::uint32_t> ids_;
  std::string path_;
  std::int64_t line_ = 0;
  std::uint32_t rank_ = 0;
  std::vector<Problem> problems_;
};

void BytePairs::Files::read_vocabulary(const std::string& path) {
  const std::string content = read_tokenizer_file(path);
  nlohmann::json document;
  try {
    document = nlohmann::json::parse(content);
  } catch (const nlohmann::json::exception& error) {
    throw DataError(fmt::format("the vocabulary is not JSON: {}", excerpt(error.what())), path,
                    "check that it was copied whole");
  }
  constexpr const char* kFix = "name the encoder.json (or vocab.json) of GPT-2: one object of token: id";
  if (!document.is_object()) throw DataError("the vocabulary is not a JSON object", path, kFix);
  for (const auto& [token, id] : document.items()) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= kNone) {
      throw DataError(fmt::format("the id of token \"{}\" is not a whole number below 2^32 - 1", excerpt(token)), path,
                      kFix);
    }
    tokens_[token] = {id.get<std::uint32_t>()};
    ids_.push_back(id.get<std::uint32_t>());
  }
  check_ids(path);
  const auto symbols = byte_symbols();
  for (std::size_t byte = 0; byte < symbols.size(); ++byte) {
    const auto found = tokens_.find(symbols[byte]);
    if (found == tokens_.end()) {
      throw DataError(fmt::format("the vocabulary has no token for byte 0x{:02x} (\"{}\")", byte, symbols[byte]), path,
                      kFix);
    }
    found->second.made = true;
    target_.byte_ids_[byte] = found->second.id;
  }
}

void BytePairs::Files::check_ids(const std::string& path) const {
  std::vector<std::uint32_t> sorted = ids_;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) {
    throw DataError(fmt::format("two tokens of the vocabulary have id {}", *twice), path,
                    "check that it is the file that belongs to the merges");
  }
}

void BytePairs::Files::read_merges(const std::string& path) {
  constexpr std::size_t kMostProblems = 10;
  const std::string content = read_tokenizer_file(path);
  path_ = path;
  target_.merges_.reserve(tokens_.size());
  for (std::string_view rest = content; !rest.empty() && problems_.size() < kMostProblems;) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    ++line_;
    const bool is_header = line_ == 1 && line.starts_with("#version");
    if (!is_header && !line.empty()) read_merge(line);
  }
  if (!problems_.empty()) throw DataError(std::move(problems_));
  if (rank_ == 0) throw DataError("the file has no merges", path, "check that it was copied whole");
}

void BytePairs::Files::read_merge(std::string_view line) {
  const std::size_t blank = line.find(' ');
  if (blank == std::string_view::npos || blank == 0 || blank + 1 == line.size() ||
      line.find(' ', blank + 1) != std::string_view::npos) {
    return bad(fmt::format("\"{}\" is not two tokens with one blank between them", excerpt(line)));
  }
  const Token* left = part(line.substr(0, blank));
  const Token* right = part(line.substr(blank + 1));
  if (left == nullptr || right == nullptr) return;
  const auto made = tokens_.find(std::string(line.substr(0, blank)) + std::string(line.substr(blank + 1)));
  if (made == tokens_.end()) return bad(fmt::format("\"{}\" makes a token that the vocabulary lacks", excerpt(line)));
  if (made->second.made) return bad(fmt::format("\"{}\" makes a token that exists already", excerpt(line)));
  made->second.made = true;
  target_.merges_.insert(left->id, right->id, {rank_++, made->second.id});
}

/// One side of a merge; null after a complaint.
BytePairs::Files::Token* BytePairs::Files::part(std::string_view symbol) {
  const auto found = tokens_.find(std::string(symbol));
  if (found != tokens_.end() && found->second.made) return &found->second;
  bad(fmt::format("\"{}\" is not a byte, and no earlier line makes it", excerpt(symbol)));
  return nullptr;
}

void BytePairs::Files::bad(std::string what) {
  problems_.push_back({std::move(what), fmt::format("{}, line {}", path_, line_),
                       "check that the file was copied whole and belongs to the vocabulary"});
}

BytePairs::BytePairs(const std::string& vocabulary_path, const std::string& merges_path) {
  Files files(*this);
  files.read_vocabulary(vocabulary_path);
  files.read_merges(merges_path);
}

void BytePairs::encode(std::string_view piece, std::vector<std::uint32_t>& ids) {
  start(piece);
  while (!candidates_.empty()) {
    std::pop_heap(candidates_.begin(), candidates_.end(), std::greater<>());
    const Candidate best = candidates_.back();
    candidates_.pop_back();
    // A rank belongs to one pair, so a place whose rank is still the same still holds that pair.
    if (nodes_[best.place].merge.rank == best.rank) merge(best.place);
  }
  for (std::uint32_t place = 0; place != kNone; place = nodes_[place].next) ids.push_back(nodes_[place].id);
}

/// One node for each byte.
void BytePairs::start(std::string_view piece) {
  SPILLWAY_CHECK(!piece.empty() && piece.size() < kNone, "a piece of 1 to 2^32 - 2 bytes is expected");
  const auto size = static_cast<std::uint32_t>(piece.size());
  nodes_.resize(size);
  candidates_.clear();
  for (std::uint32_t i = 0; i < size; ++i) {
    nodes_[i] = {byte_ids_[static_cast<unsigned char>(piece[i])], i == 0 ? kNone : i - 1, i + 1 == size ? kNone : i + 1,
                 Merge{}};
  }
  for (std::uint32_t i = 0; i < size; ++i) look(i);
}

/// Adds the merge of the token at `place` with the next one as a candidate.
void BytePairs::look(std::uint32_t place) {
  Node& node = nodes_[place];
  node.merge = node.next == kNone ? Merge{kNone, 0} : merges_.find(node.id, nodes_[node.next].id);
  if (node.merge.rank == kNone) return;
  candidates_.push_back({node.merge.rank, place});
  std::push_heap(candidates_.begin(), candidates_.end(), std::greater<>());
}

/// Merges the token at `place` with the next one, whose place then has no token.
void BytePairs::merge(std::uint32_t place) {
  Node& node = nodes_[place];
  Node& eaten = nodes_[node.next];
  node.id = node.merge.id;
  node.next = eaten.next;
  eaten.merge.rank = kNone;
  if (node.next != kNone) nodes_[node.next].previous = place;
  look(place);
  if (node.previous != kNone) look(node.previous);
}

}  // namespace spillway::traces
