#include "traces/tokenizers/tokenizer.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sentencepiece_processor.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "sim/core/error.hpp"
#include "sim/core/utf8.hpp"
#include "tests/support/paths.hpp"
#include "tests/unit/trace_test_files.hpp"

namespace spillway::traces {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<std::uint32_t>;

const fs::path kShared = fs::path(source_dir()) / "../shared/data";

#define SKIP_WITHOUT_SHARED_DATA() \
  if (!fs::exists(kShared / "tokenizers")) GTEST_SKIP() << "../shared/data/tokenizers is missing"

std::string gpt2_spec() { return "gpt2:" + (kShared / "tokenizers").string(); }
std::string mistral_spec() { return (kShared / "tokenizers/mistral-v1.model").string(); }

Ids encoded(Tokenizer& tokenizer, std::string_view text) {
  Ids ids;
  tokenizer.encode(text, ids);
  EXPECT_EQ(tokenizer.count(text), Tokens(static_cast<std::int64_t>(ids.size()))) << text;
  return ids;
}

std::string problems_of_spec(const std::string& spec, const std::string& path) {
  return problems_of([&] { (void)open_tokenizer(spec); }, path);
}

/// Every text of the two shared files.
std::vector<std::string> shared_texts() {
  std::vector<std::string> texts;
  std::ifstream sharegpt(kShared / "traces/sharegpt-text-120.json");
  for (const auto& conversation : nlohmann::json::parse(sharegpt)) {
    for (const auto& turn : conversation.at("conversations")) texts.push_back(turn.at("value"));
  }
  std::ifstream alpaca(kShared / "traces/alpaca-text-200.json");
  for (const auto& item : nlohmann::json::parse(alpaca)) {
    for (const char* key : {"instruction", "input", "output"}) texts.push_back(item.at(key));
  }
  return texts;
}

/// Texts with unusual characters or lengths, all valid UTF-8.
std::vector<std::string> odd_texts() {
  using namespace std::string_literals;
  return {"",
          " ",
          "\n",
          "a\0b\0"s,
          "\0"s,
          "😀 👨‍👩‍👧‍👦 🇪🇺",
          "你好，世界。",
          "e\u0301 n\u0303 नमस्ते",
          "\u180e \u00a0\u3000x",
          "it's they'll I'D 'S ''s '",
          std::string(1000, ' ') + "x" + std::string(1000, ' '),
          std::string(1000, '\n') + "x",
          " \n \t\r\n  x",
          std::string(3000, 'a') + std::string(3000, '!') + std::string(3000, '7')};
}

// ---- UTF-8 and the estimate

TEST(RepairedUtf8, LeavesValidTextWhereItIs) {
  std::string buffer;
  for (const std::string& text : odd_texts()) {
    EXPECT_EQ(repaired_utf8(text, buffer).data(), text.data());
    EXPECT_EQ(repaired_utf8(text, buffer), text);
  }
  EXPECT_TRUE(buffer.empty());
}

TEST(RepairedUtf8, ReplacesMaximalSubpartsAsPythonDoes) {
  // Expected: bytes(...).decode("utf-8", errors="replace") in Python 3.11. R stands for U+FFFD.
  const std::vector<std::pair<std::string, std::string>> cases{
      {"\xff", "R"},
      {"a\x80z", "aRz"},
      {"\xc0\xaf", "RR"},                   // an overlong slash
      {"\xc3", "R"},                        // cut off at the end
      {"\xe2\x82", "R"},                    // two of three bytes are one subpart
      {"\xe2\x82 x", "R x"},                //
      {"\xe2\x82\xe2\x82\xac", "R\u20ac"},  // a broken euro sign, and a whole one
      {"\xed\xa0\x80", "RRR"},              // a surrogate
      {"\xf0\x9f\x98", "R"},                //
      {"\xf0\x8f\xbf\xbf", "RRRR"},         // overlong
      {"\xf4\x90\x80\x80", "RRRR"},         // beyond U+10FFFF
      {"\xf5\x80\x80\x80", "RRRR"},         //
      {"12345678\xff"
       "12345678\xe2",
       "12345678R12345678R"},
      {"\xf1\x80\x80\xe1\x80\xc2"
       "b\x80"
       "c\x80\xbf"
       "d",
       "RRRbRcRRd"}};  // the Unicode Standard, table 3-8 and the text before it
  for (const auto& [broken, expected] : cases) {
    std::string with_r = expected;
    for (std::size_t at = with_r.find('R'); at != std::string::npos; at = with_r.find('R')) {
      with_r.replace(at, 1, "\xEF\xBF\xBD");
    }
    std::string buffer = "old";
    EXPECT_EQ(repaired_utf8(broken, buffer), with_r) << expected;
  }
}

TEST(EstimateTokenizer, CountsFourCharactersPerTokenRoundedUp) {
  const auto estimate = open_tokenizer("estimate");
  const std::vector<std::pair<std::string, int>> cases{{"", 0},
                                                       {"a", 1},
                                                       {"abcd", 1},
                                                       {"abcde", 2},
                                                       {"12345678", 2},
                                                       {"123456789", 3},
                                                       {"你好世界", 1},
                                                       {"你好世界。", 2},
                                                       {"😀😀😀😀", 1},
                                                       {"\xff\xff\xff\xff", 1},
                                                       {"\xff\xff\xff\xff\xff", 2},
                                                       {std::string(5, '\0'), 2}};
  for (const auto& [text, tokens] : cases) EXPECT_EQ(estimate->count(text), Tokens(tokens)) << text;
}

TEST(EstimateTokenizer, WarnsAndHasNoIds) {
  const auto estimate = open_tokenizer("estimate");
  EXPECT_FALSE(estimate->has_ids());
  EXPECT_EQ(estimate->warning(),
            "token counts of the trace's text are estimated at 4 characters per token; for exact ones set "
            "workload.tokenizer to gpt2:FOLDER or FILE.model");
  EXPECT_TRUE(estimate->files().empty());
  Ids ids;
  EXPECT_THROW(estimate->encode("text", ids), InvariantError);
}

TEST(OpenTokenizer, AnUnknownFormIsAnError) {
  const std::string forms =
      "known forms: estimate, gpt2:FOLDER (with encoder.json and merges.txt) or FILE.model (SentencePiece)";
  const auto expect = [&](const std::string& spec, const std::string& near) {
    const std::string hint = near.empty() ? forms : fmt::format("did you mean \"{}\"? {}", near, forms);
    EXPECT_EQ(problems_of_spec(spec, ""),
              fmt::format("exit 2\nunknown tokenizer \"{}\" | workload.tokenizer | {}", spec, hint));
  };
  expect("", "");
  expect("tiktoken", "");
  expect("estimat", "estimate");
  expect("gpt2", "gpt2:FOLDER");
  expect("gpt2:", "gpt2:FOLDER");
  expect("gpt-2:some/folder", "gpt2:some/folder");
  expect("/", "gpt2:/");  // a folder that exists
  expect("estimate:4", "");
}

// ---- GPT-2's algorithm on a small vocabulary

/// File contents by file name.
using Files = std::map<std::string, std::string>;

/// A folder with files. The destructor removes it.
class TempFolder {
 public:
  explicit TempFolder(const Files& files) {
    const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
    path_ = testing::TempDir() + "/spillway_" + test->test_suite_name() + "_" + test->name();
    fs::create_directories(path_);
    for (const auto& [name, content] : files) std::ofstream(path_ + "/" + name, std::ios::binary) << content;
  }
  ~TempFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string spec() const { return "gpt2:" + path_; }

 private:
  std::string path_;
};

std::string utf8_of(unsigned int code) {
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0U | (code >> 6U)), static_cast<char>(0x80U | (code & 0x3FU))};
}

/// The character that stands for a byte: a second implementation of OpenAI's bytes_to_unicode.
std::string symbol_of(unsigned char byte) {
  const auto shows = [](unsigned int b) {
    return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
  };
  if (shows(byte)) return utf8_of(byte);
  unsigned int code = 256;
  for (unsigned int b = 0; b < byte; ++b) code += shows(b) ? 0U : 1U;
  return utf8_of(code);
}

/// A vocabulary: byte b has id b, and the ids of `more` start at 256.
nlohmann::json vocabulary(const std::vector<std::string>& more) {
  nlohmann::json tokens;
  for (unsigned int byte = 0; byte < 256; ++byte) tokens[symbol_of(static_cast<unsigned char>(byte))] = byte;
  for (std::size_t i = 0; i < more.size(); ++i) tokens[more[i]] = 256 + i;
  return tokens;
}

const std::vector<std::string> kSmall{"he", "ll", "hell", "hello", "Ġw", "aa", "aaaa"};
constexpr const char* kSmallMerges = "#version: 0.2\nh e\nl l\nhe ll\nhell o\nĠ w\na a\naa aa\n";

TEST(Gpt2Small, MergesByRankAndFromTheLeft) {
  const TempFolder folder(Files{{"encoder.json", vocabulary(kSmall).dump()}, {"merges.txt", kSmallMerges}});
  const auto tokenizer = open_tokenizer(folder.spec());
  EXPECT_TRUE(tokenizer->has_ids());
  EXPECT_EQ(tokenizer->warning(), "");
  EXPECT_EQ(tokenizer->files(),
            (std::vector<std::string>{folder.path() + "/encoder.json", folder.path() + "/merges.txt"}));
  EXPECT_EQ(encoded(*tokenizer, "hello"), (Ids{259}));
  EXPECT_EQ(encoded(*tokenizer, "hellohell"), (Ids{259, 258}));
  EXPECT_EQ(encoded(*tokenizer, "llll"), (Ids{257, 257}));
  EXPECT_EQ(encoded(*tokenizer, "lll"), (Ids{257, 'l'}));  // of two overlapping pairs, the left one is merged
  EXPECT_EQ(encoded(*tokenizer, "hello wow"), (Ids{259, 260, 'o', 'w'}));
  EXPECT_EQ(encoded(*tokenizer, "aaaaaaa"), (Ids{262, 261, 'a'}));
  EXPECT_EQ(encoded(*tokenizer, "he\nllo"), (Ids{256, '\n', 257, 'o'})) << "no merge crosses pieces";
}

TEST(Gpt2Small, AppendsToTheIds) {
  const TempFolder folder(Files{{"encoder.json", vocabulary(kSmall).dump()}, {"merges.txt", kSmallMerges}});
  const auto tokenizer = open_tokenizer(folder.spec());
  Ids ids{7};
  tokenizer->encode("he", ids);
  tokenizer->encode("", ids);
  tokenizer->encode("he", ids);
  EXPECT_EQ(ids, (Ids{7, 256, 256}));
}

TEST(Gpt2Small, FilesMayHaveOtherNamesAndEndsOfLine) {
  std::string merges;
  for (const char* line : {"h e", "l l", "he ll", "hell o"}) merges += fmt::format("{}\r\n", line);
  for (const auto& [vocabulary_name, merges_name] : std::vector<std::pair<std::string, std::string>>{
           {"vocab.json", "vocab.bpe"}, {"gpt2-encoder.json", "gpt2-merges.txt"}, {"gpt2-vocab.json", "merges.txt"}}) {
    const TempFolder folder(Files{{vocabulary_name, vocabulary(kSmall).dump()}, {merges_name, merges}});
    EXPECT_EQ(encoded(*open_tokenizer(folder.spec()), "hello"), (Ids{259})) << vocabulary_name;
  }
}

TEST(Gpt2Small, ALongPieceTakesNoQuadraticTime) {
  const TempFolder folder(Files{{"encoder.json", vocabulary(kSmall).dump()}, {"merges.txt", kSmallMerges}});
  const auto tokenizer = open_tokenizer(folder.spec());
  // One piece of 2,000,003 bytes: 500,000 times aaaa, then aa and a. A quadratic algorithm would need hours.
  EXPECT_EQ(tokenizer->count(std::string(2'000'003, 'a')), Tokens(500'002));
}

TEST(Gpt2Small, ALongRunOfAnyKindIsOnePiece) {
  const TempFolder folder(Files{{"encoder.json", vocabulary(kSmall).dump()}, {"merges.txt", kSmallMerges}});
  const auto tokenizer = open_tokenizer(folder.spec());
  for (const char* character : {"x", "7", "!", " ", "\n", "é", "你", "٣", "😀", "\u3000", "\u180e"}) {
    std::string run;
    for (int i = 0; i < 1'000'000; ++i) run += character;
    const auto bytes = static_cast<std::int64_t>(run.size());
    EXPECT_EQ(tokenizer->count(run), Tokens(bytes)) << character;
    EXPECT_EQ(tokenizer->count(run + "x"), Tokens(bytes + 1)) << character;
  }
}

TEST(Gpt2Small, MissingFilesAreErrors) {
  EXPECT_EQ(
      problems_of_spec("gpt2:/no/such", "/no/such"),
      "exit 3\nthere is no such folder | FILE | check the path; it is relative to the current folder and must contain "
      "encoder.json and merges.txt");
  const TempFolder folder(Files{{"merges", "x"}});
  EXPECT_EQ(problems_of_spec(folder.spec(), folder.path()),
            "exit 3\nthe folder has no vocabulary of GPT-2 | FILE | put one of these there: encoder.json, vocab.json, "
            "gpt2-encoder.json, gpt2-vocab.json\nthe folder has no merges of GPT-2 | FILE | put one of these there: "
            "merges.txt, vocab.bpe, gpt2-merges.txt, gpt2-vocab.bpe");
  EXPECT_EQ(problems_of_spec(folder.spec() + "/merges", folder.path()),
            "exit 3\nthis is not a folder | FILE/merges | name the folder that contains encoder.json and merges.txt");
}

std::string vocabulary_problem(const std::string& content) {
  const TempFolder folder(Files{{"encoder.json", content}, {"merges.txt", kSmallMerges}});
  return problems_of_spec(folder.spec(), folder.path() + "/encoder.json");
}

TEST(Gpt2Small, ABadVocabularyIsAnError) {
  const std::string fix = " | FILE | name the encoder.json (or vocab.json) of GPT-2: one object of token: id";
  EXPECT_EQ(vocabulary_problem(""), "exit 3\nthe file is empty | FILE | check that it was copied whole");
  EXPECT_TRUE(vocabulary_problem("{\"a\": 1").starts_with("exit 3\nthe vocabulary is not JSON: "));
  EXPECT_EQ(vocabulary_problem("[1]"), "exit 3\nthe vocabulary is not a JSON object" + fix);
  for (const nlohmann::json& id :
       {nlohmann::json("7"), nlohmann::json(-1), nlohmann::json(4294967295), nlohmann::json(1.5)}) {
    nlohmann::json tokens = vocabulary(kSmall);
    tokens["he"] = id;
    EXPECT_EQ(vocabulary_problem(tokens.dump()),
              "exit 3\nthe id of token \"he\" is not a whole number below 2^32 - 1" + fix);
  }
  nlohmann::json twice = vocabulary(kSmall);
  twice["he"] = 'a';
  EXPECT_EQ(
      vocabulary_problem(twice.dump()),
      "exit 3\ntwo tokens of the vocabulary have id 97 | FILE | check that it is the file that belongs to the merges");
  nlohmann::json lacking = vocabulary(kSmall);
  lacking.erase("Ċ");
  EXPECT_EQ(vocabulary_problem(lacking.dump()), "exit 3\nthe vocabulary has no token for byte 0x0a (\"Ċ\")" + fix);
}

std::string merges_problem(const std::string& content) {
  const TempFolder folder(Files{{"encoder.json", vocabulary(kSmall).dump()}, {"merges.txt", content}});
  return problems_of_spec(folder.spec(), folder.path() + "/merges.txt");
}

TEST(Gpt2Small, BadMergesAreErrorsWithTheirLines) {
  const std::string fix = " | check that the file was copied whole and belongs to the vocabulary";
  EXPECT_EQ(merges_problem("#version: 0.2\nh e\nl  l\nll\n l\nl \n"),
            "exit 3\n\"l  l\" is not two tokens with one blank between them | FILE, line 3" + fix +
                "\n\"ll\" is not two tokens with one blank between them | FILE, line 4" + fix +
                "\n\" l\" is not two tokens with one blank between them | FILE, line 5" + fix +
                "\n\"l \" is not two tokens with one blank between them | FILE, line 6" + fix);
  EXPECT_EQ(merges_problem("h e\nhe ll\n"),
            "exit 3\n\"ll\" is not a byte, and no earlier line makes it | FILE, line 2" + fix);
  EXPECT_EQ(merges_problem("h e\nx y\n"),
            "exit 3\n\"x y\" makes a token that the vocabulary lacks | FILE, line 2" + fix);
  EXPECT_EQ(merges_problem("h e\nh e\n"), "exit 3\n\"h e\" makes a token that exists already | FILE, line 2" + fix);
  EXPECT_EQ(merges_problem("#version: 0.2\n"),
            "exit 3\nthe file has no merges | FILE | check that it was copied whole");
  std::string many;
  for (int i = 0; i < 100; ++i) many += "x y z\n";
  const std::string problems = merges_problem(many);
  EXPECT_EQ(std::count(problems.begin(), problems.end(), '\n'), 10) << "the error reports the first ten problems";
}

// ---- GPT-2 itself

TEST(Gpt2, PublishedExamples) {
  SKIP_WITHOUT_SHARED_DATA();
  const auto tokenizer = open_tokenizer(gpt2_spec());
  EXPECT_EQ(encoded(*tokenizer, ""), Ids{});
  EXPECT_EQ(encoded(*tokenizer, "Hello world"), (Ids{15496, 995}));
  EXPECT_EQ(encoded(*tokenizer, " Hello"), (Ids{18435}));
  EXPECT_EQ(encoded(*tokenizer, "Hello, world!"), (Ids{15496, 11, 995, 0}));
}

TEST(Gpt2, IdsOfThePublishedAlgorithm) {
  using namespace std::string_literals;
  SKIP_WITHOUT_SHARED_DATA();
  const auto tokenizer = open_tokenizer(gpt2_spec());
  // Ids from src/encoder.py of openai/gpt-2 with these files; \p{L}, \p{N} and \s as in Python's unicodedata 14.0.
  const std::vector<std::pair<std::string, Ids>> cases{
      {"I'll say it's 2024, OK?", {40, 1183, 910, 340, 338, 48609, 11, 7477, 30}},
      {"😀", {47249, 222}},
      {"你好，世界", {19526, 254, 25001, 121, 171, 120, 234, 10310, 244, 45911, 234}},
      {"e\u0301", {68, 136, 223}},
      {"\n\n\n   x", {628, 198, 220, 220, 2124}},
      {"a\0b"s, {64, 188, 65}},
      {"\ufffd", {4210}},
      {"\xe2\x82", {4210}},
      {"<|endoftext|>", {27, 91, 437, 1659, 5239, 91, 29}},
      {"        return", {220, 220, 220, 220, 220, 220, 220, 1441}},
      {"नमस्ते", {11976, 101, 11976, 106, 11976, 116, 24231, 235, 11976, 97, 24231, 229}},
      {"l'été d'Élise", {75, 6, 25125, 2634, 288, 6, 38351, 75, 786}},
      {"x\u180ey", {87, 157, 254, 236, 88}},
      {" \u00a0 z", {5624, 1976}}};
  for (const auto& [text, ids] : cases) EXPECT_EQ(encoded(*tokenizer, text), ids) << text;
}

/// A plain GPT-2 encoder: splits text into pieces without regular expressions, then runs the published loop over
/// strings.
class NaiveGpt2 {
 public:
  explicit NaiveGpt2(const fs::path& folder) {
    std::ifstream encoder(folder / "gpt2-encoder.json");
    const nlohmann::json document = nlohmann::json::parse(encoder);
    for (const auto& [token, id] : document.items()) {
      ids_[token] = id.get<std::uint32_t>();
      tokens_[id.get<std::uint32_t>()] = token;
    }
    std::ifstream merges(folder / "gpt2-merges.txt");
    std::string line;
    std::getline(merges, line);
    for (int rank = 0; std::getline(merges, line); ++rank) {
      const std::size_t blank = line.find(' ');
      ranks_[{line.substr(0, blank), line.substr(blank + 1)}] = rank;
    }
    for (unsigned int byte = 0; byte < 256; ++byte) {
      bytes_[symbol_of(static_cast<unsigned char>(byte))] = static_cast<char>(byte);
    }
  }

  Ids encode(const std::string& text) {
    Ids ids;
    for (const std::string& piece : pieces(text)) {
      const auto [at, is_new] = known_.try_emplace(piece);
      if (is_new) {
        for (const std::string& token : merged(piece)) at->second.push_back(ids_.at(token));
      }
      ids.insert(ids.end(), at->second.begin(), at->second.end());
    }
    return ids;
  }

  std::string decode(const Ids& ids) const {
    std::string text;
    for (const std::uint32_t id : ids) {
      const std::string& token = tokens_.at(id);
      for (std::size_t i = 0; i < token.size();) {
        const std::size_t length = static_cast<unsigned char>(token[i]) < 0x80 ? 1 : 2;
        text += bytes_.at(token.substr(i, length));
        i += length;
      }
    }
    return text;
  }

 private:
  struct Character {
    char kind = 'o';  // letter, number, white space or other
    std::string bytes;
  };

  /// Covers ASCII, Latin, kana and the common Chinese characters. The texts contain no others.
  static char kind_of(unsigned int code) {
    if (code == ' ' || (code >= 9 && code <= 13) || code == 0x3000 || code == 0xA0) return 's';
    if (code >= '0' && code <= '9') return 'n';
    if ((code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z')) return 'l';
    if (code == 0xB2 || code == 0xB3 || code == 0xB9 || (code >= 0xBC && code <= 0xBE)) return 'n';
    if (code >= 0xC0 && code <= 0x24F) return code == 0xD7 || code == 0xF7 ? 'o' : 'l';
    if ((code >= 0x3041 && code <= 0x3096) || (code >= 0x30A1 && code <= 0x30FA)) return 'l';
    return code >= 0x4E00 && code <= 0x9FFF ? 'l' : 'o';
  }

  static std::vector<Character> characters(const std::string& text) {
    std::vector<Character> all;
    for (std::size_t i = 0; i < text.size();) {
      const auto lead = static_cast<unsigned char>(text[i]);
      const std::size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
      unsigned int code = length == 1 ? lead : lead & (0x7FU >> length);
      for (std::size_t j = 1; j < length; ++j) code = code * 64 + (static_cast<unsigned char>(text[i + j]) & 0x3FU);
      all.push_back({kind_of(code), text.substr(i, length)});
      i += length;
    }
    return all;
  }

  /// Characters of the piece that begins at `at`.
  static std::size_t length_at(const std::vector<Character>& text, std::size_t at) {
    const auto letter = [&](std::size_t i) { return i < text.size() ? text[i].bytes : std::string(); };
    if (letter(at) == "'") {
      const std::string one = letter(at + 1);
      const std::string two = one + letter(at + 2);
      if (one == "s" || one == "t" || one == "m" || one == "d") return 2;
      if (two == "re" || two == "ve" || two == "ll") return 3;
    }
    const std::size_t start = letter(at) == " " && at + 1 < text.size() && text[at + 1].kind != 's' ? at + 1 : at;
    std::size_t end = start;
    while (end < text.size() && text[end].kind == text[start].kind) ++end;
    // The last white-space character before a word belongs to the word's piece.
    if (text[start].kind == 's' && end < text.size() && end - at > 1) --end;
    return end - at;
  }

  static std::vector<std::string> pieces(const std::string& text) {
    const std::vector<Character> all = characters(text);
    std::vector<std::string> pieces;
    for (std::size_t at = 0; at < all.size();) {
      std::string piece;
      for (std::size_t left = length_at(all, at); left > 0; --left) piece += all[at++].bytes;
      pieces.push_back(piece);
    }
    return pieces;
  }

  std::vector<std::string> merged(const std::string& piece) const {
    std::vector<std::string> word;
    for (const char byte : piece) word.push_back(symbol_of(static_cast<unsigned char>(byte)));
    while (true) {
      auto best = ranks_.end();
      for (std::size_t i = 0; i + 1 < word.size(); ++i) {
        const auto found = ranks_.find({word[i], word[i + 1]});
        if (found != ranks_.end() && (best == ranks_.end() || found->second < best->second)) best = found;
      }
      if (best == ranks_.end()) return word;
      std::vector<std::string> next;
      for (std::size_t i = 0; i < word.size(); ++i) {
        const bool is_pair = i + 1 < word.size() && word[i] == best->first.first && word[i + 1] == best->first.second;
        next.push_back(is_pair ? word[i] + word[i + 1] : word[i]);
        if (is_pair) ++i;
      }
      word = next;
    }
  }

  std::map<std::string, std::uint32_t> ids_;
  std::map<std::uint32_t, std::string> tokens_;
  std::map<std::pair<std::string, std::string>, int> ranks_;
  std::map<std::string, char> bytes_;
  std::map<std::string, Ids> known_;
};

TEST(Gpt2, EqualsThePlainAlgorithmOnRealTexts) {
  SKIP_WITHOUT_SHARED_DATA();
  const auto tokenizer = open_tokenizer(gpt2_spec());
  NaiveGpt2 naive(kShared / "tokenizers");
  std::size_t tokens = 0;
  for (const std::string& text : shared_texts()) {
    const Ids ids = encoded(*tokenizer, text);
    ASSERT_EQ(ids, naive.encode(text)) << text;
    ASSERT_EQ(naive.decode(ids), text);
    tokens += ids.size();
  }
  EXPECT_GT(tokens, 200'000U);
}

TEST(Gpt2, OddTextsComeBackByteForByte) {
  SKIP_WITHOUT_SHARED_DATA();
  const auto tokenizer = open_tokenizer(gpt2_spec());
  const NaiveGpt2 naive(kShared / "tokenizers");
  for (const std::string& text : odd_texts()) EXPECT_EQ(naive.decode(encoded(*tokenizer, text)), text);
  EXPECT_EQ(naive.decode(encoded(*tokenizer, "a\xff\xe2\x82z")), "a\ufffd\ufffdz");
}

TEST(Gpt2, TheSameTextGivesTheSameTokensWhateverCameBefore) {
  SKIP_WITHOUT_SHARED_DATA();
  const auto used = open_tokenizer(gpt2_spec());
  // More different pieces than the cache keeps.
  std::string words;
  for (int i = 0; i < 200'000; ++i) words += fmt::format(" {}", i * 7919);
  const Ids first = encoded(*used, words);
  EXPECT_EQ(encoded(*used, words), first);
  const auto fresh = open_tokenizer(gpt2_spec());
  for (const std::string& text : odd_texts()) EXPECT_EQ(encoded(*used, text), encoded(*fresh, text));
}

// ---- SentencePiece

TEST(SentencePiece, EqualsItsLibraryOnRealAndOddTexts) {
  SKIP_WITHOUT_SHARED_DATA();
  const auto tokenizer = open_tokenizer(mistral_spec());
  EXPECT_TRUE(tokenizer->has_ids());
  EXPECT_EQ(tokenizer->warning(), "");
  EXPECT_EQ(tokenizer->files(), std::vector<std::string>{mistral_spec()});
  sentencepiece::SentencePieceProcessor library;
  ASSERT_TRUE(library.Load(mistral_spec()).ok());
  std::vector<std::string> texts = shared_texts();
  for (const std::string& text : odd_texts()) texts.push_back(text);
  for (const std::string& text : texts) {
    std::vector<int> expected;
    ASSERT_TRUE(library.Encode(text, &expected).ok());
    Ids ids{7};
    tokenizer->encode(text, ids);
    ASSERT_EQ(ids.size(), expected.size() + 1) << text;
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), ids.begin() + 1)) << text;
  }
}

TEST(SentencePiece, PublishedExample) {
  SKIP_WITHOUT_SHARED_DATA();
  const auto tokenizer = open_tokenizer(mistral_spec());
  EXPECT_EQ(encoded(*tokenizer, "Hello world"), (Ids{22557, 1526}));
  EXPECT_EQ(encoded(*tokenizer, ""), Ids{});
  EXPECT_EQ(encoded(*tokenizer, "a\xff\xe2\x82z"), encoded(*tokenizer, "a\ufffd\ufffdz"));
}

TEST(SentencePiece, BadModelsAreErrors) {
  const std::string not_a_model =
      "this is not a complete SentencePiece model | FILE | name a file that SentencePiece trained, often "
      "called tokenizer.model";
  EXPECT_EQ(problems_of_spec("/no/such.model", "/no/such.model"),
            "exit 3\nthere is no such file | FILE | check the path; it is relative to the current folder");
  const auto problem = [](const std::string& content) {
    const TempFile file(content, ".model");
    return problems_of_spec(file.path(), file.path());
  };
  EXPECT_EQ(problem(""), "exit 3\nthe file is empty | FILE | check that it was copied whole");
  for (const char* content : {"{\"model\": 1}", "\nsome text\n", "version https://git-lfs.github.com/spec/v1\n"}) {
    EXPECT_EQ(problem(content), "exit 3\n" + not_a_model) << content;
  }
  const TempFolder folder(Files{});
  fs::create_directories(folder.path() + "/a.model");
  EXPECT_EQ(problems_of_spec(folder.path() + "/a.model", folder.path() + "/a.model"),
            "exit 3\nthis is a folder, not a tokenizer file | FILE | name one file in it");
}

TEST(SentencePiece, AModelThatWasCutOffIsAnError) {
  SKIP_WITHOUT_SHARED_DATA();
  std::ifstream model(mistral_spec(), std::ios::binary);
  std::string content(100'000, '\0');
  model.read(content.data(), static_cast<std::streamsize>(content.size()));
  const TempFile file(content, ".model");
  EXPECT_TRUE(
      problems_of_spec(file.path(), file.path()).starts_with("exit 3\nthis is not a complete SentencePiece model"));
}

}  // namespace
}  // namespace spillway::traces
