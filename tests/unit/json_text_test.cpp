#include "traces/readers/json_text.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "tests/unit/trace_test_files.hpp"
#include "traces/readers/json_array.hpp"
#include "traces/readers/json_cursor.hpp"

namespace spillway::traces {
namespace {

/// The text, or the problem with it.
std::string text_of(std::string_view written) {
  std::string buffer = "old";
  std::string complaint;
  const auto text = json_text(written, buffer, complaint);
  EXPECT_EQ(text.has_value(), complaint.empty());
  return text ? std::string(*text) : complaint;
}

TEST(JsonText, ATextWithoutEscapesIsNotCopied) {
  const std::string written = "na\u00efve \u4f60\u597d";
  std::string buffer;
  std::string complaint;
  EXPECT_EQ(json_text(written, buffer, complaint)->data(), written.data());
  EXPECT_EQ(text_of(""), "");
}

TEST(JsonText, EscapesAreDecoded) {
  using namespace std::string_literals;
  EXPECT_EQ(text_of(R"(\"\\\/\b\f\n\r\t)"), "\"\\/\b\f\n\r\t");
  EXPECT_EQ(text_of(R"(a\\nb\\)"), "a\\nb\\") << "an escaped backslash begins no escape";
  EXPECT_EQ(text_of(R"(\u0041\u0000\u007f)"), "A\0\x7f"s);
  EXPECT_EQ(text_of(R"(\u0080\u07ff\u0800\uFFFF)"), "\u0080\u07ff\u0800\uffff");
  EXPECT_EQ(text_of(R"(x\uD83D\ude00y)"), "x\U0001F600y") << "a surrogate pair is one character";
  EXPECT_EQ(text_of(R"(\ud800\udc00\udbff\udfff)"), "\U00010000\U0010FFFF");
}

TEST(JsonText, HalfASurrogatePairIsReplaced) {
  EXPECT_EQ(text_of(R"(\ud83d)"), "\ufffd");
  EXPECT_EQ(text_of(R"(\ude00\ud83d)"), "\ufffd\ufffd");
  EXPECT_EQ(text_of(R"(\ud83dx\ud83d\n\ud83d\u0041)"),
            "\ufffdx\ufffd\n\ufffd"
            "A");
  EXPECT_EQ(text_of(R"(\ud83d\ud83d\ude00)"), "\ufffd\U0001F600");
}

TEST(JsonText, WhatIsNoEscapeIsTold) {
  EXPECT_EQ(text_of(R"(a\xb)"), R"("\x" is not an escape of JSON)");
  EXPECT_EQ(text_of("a\\"), R"("\" is not an escape of JSON)");
  EXPECT_EQ(text_of(R"(\u12G4z)"), R"("\u12G4" is not an escape of JSON)");
  EXPECT_EQ(text_of(R"(\u12)"), R"("\u12" is not an escape of JSON)");
  EXPECT_EQ(text_of(R"(\u+123)"), R"("\u+123" is not an escape of JSON)");
  EXPECT_EQ(text_of(R"(\u 123)"), R"("\u 123" is not an escape of JSON)");
}

TEST(JsonText, EqualsALibraryOnEveryCharacter) {
  for (const bool ascii : {false, true}) {
    std::string text;
    for (int code = 0; code < 0x110000; code += code < 0x3000 ? 1 : 37) {
      const bool surrogate = code >= 0xD800 && code < 0xE000;
      if (surrogate) continue;
      const auto add = [&](int byte) { text += static_cast<char>(static_cast<unsigned char>(byte)); };
      if (code >= 0x10000) add(0xF0 | (code >> 18)), add(0x80 | ((code >> 12) & 0x3F));
      if (code >= 0x800 && code < 0x10000) add(0xE0 | (code >> 12));
      if (code >= 0x800) add(0x80 | ((code >> 6) & 0x3F));
      if (code >= 0x80 && code < 0x800) add(0xC0 | (code >> 6));
      add(code < 0x80 ? code : 0x80 | (code & 0x3F));
    }
    const std::string written = nlohmann::json(text).dump(-1, ' ', ascii);
    EXPECT_EQ(text_of(std::string_view(written).substr(1, written.size() - 2)), text);
  }
}

TEST(JsonCursor, StringsEndAtTheFirstQuoteThatIsNotEscaped) {
  const auto string_of = [](std::string_view text) {
    JsonCursor cursor(text);
    return cursor.string().value_or("no end");
  };
  EXPECT_EQ(string_of(R"("a","b")"), "a");
  EXPECT_EQ(string_of(R"("")"), "");
  EXPECT_EQ(string_of(R"("a\"b"c)"), R"(a\"b)");
  EXPECT_EQ(string_of(R"("a\\"b")"), R"(a\\)");
  EXPECT_EQ(string_of(R"("\\\"\\\\"x")"), R"(\\\"\\\\)");
  EXPECT_EQ(string_of(R"("\")"), "no end");
  EXPECT_EQ(string_of(R"("a\)"), "no end");
  EXPECT_EQ(string_of("\""), "no end");
}

TEST(JsonArray, BackslashesAcrossWindowsAreCounted) {
  // Windows end every 64 KiB: runs of backslashes before the quotes begin at, end at and cross the window edges.
  constexpr std::size_t kWindow = std::size_t{64} << 10U;
  for (std::size_t shift = 0; shift < 12; ++shift) {
    const std::string padding(kWindow - 16 + shift, 'x');
    const std::string first = R"({"a": ")" + padding + R"(\\\\\"]}\\"})";
    const std::string second = R"({"b": [{"c": "}\"{\\\\\\"}]})";
    const TempFile file("[" + first + ",\n" + second + "]", ".json");
    JsonArray items(file.path());
    BadRows bad(file.path());
    std::string_view object;
    ASSERT_TRUE(items.next(object, bad)) << shift;
    EXPECT_EQ(object, first) << shift;
    ASSERT_TRUE(items.next(object, bad)) << shift;
    EXPECT_EQ(object, second) << shift;
    EXPECT_EQ(items.row(), 2);
    EXPECT_FALSE(items.next(object, bad));
    EXPECT_FALSE(bad.is_bad());
  }
}

TEST(JsonArray, LinesWithinTextsCount) {
  const TempFile file("[{\"a\": \"1\n2\n\",\n\"b\": 0},\n{}]", ".json");
  JsonArray items(file.path());
  BadRows bad(file.path());
  std::string_view object;
  ASSERT_TRUE(items.next(object, bad));
  EXPECT_EQ(items.row(), 1);
  ASSERT_TRUE(items.next(object, bad));
  EXPECT_EQ(items.row(), 5);
}

}  // namespace
}  // namespace spillway::traces
