#include "sim/io/file_reader.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/unit/trace_test_files.hpp"
#include "traces/readers/reader.hpp"

namespace spillway::traces {
namespace {

/// The whole text of a file, read in pieces of an odd size.
std::string text_of(const std::string& path) {
  FileReader file(path);
  std::string text;
  std::string piece(1009, '\0');
  while (const std::size_t got = file.read(piece.data(), piece.size())) text.append(piece, 0, got);
  EXPECT_EQ(file.read(piece.data(), piece.size()), 0U) << "the end is for ever";
  return text;
}

std::string problems_in(const std::string& content) {
  const TempFile file(content, ".gz");
  return problems_of([&] { (void)text_of(file.path()); }, file.path());
}

std::string rows(int count) {
  std::string text = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
  for (int i = 0; i < count; ++i) {
    text += fmt::format("2023-11-16 18:{:02}:{:02}.5,{},{}\n", i / 60 % 60, i % 60, i + 1, i % 7 + 1);
  }
  return text;
}

TEST(FileReader, GzipIsUnpacked) {
  const std::string text = rows(3000);
  const TempFile file(gzipped(text), ".gz");
  EXPECT_EQ(text_of(file.path()), text);
}

TEST(FileReader, TheNameDoesNotMatter) {
  const TempFile plain("abc\n", ".gz");
  EXPECT_EQ(text_of(plain.path()), "abc\n");
  const TempFile packed(gzipped("abc\n"), ".csv");
  EXPECT_EQ(text_of(packed.path()), "abc\n");
}

TEST(FileReader, MembersFollowOneAnother) {
  // cat a.gz b.gz > c.gz is a gzip file too; an empty member and zeros at the end change nothing.
  const TempFile file(gzipped("one\n") + gzipped("") + gzipped("two\n") + std::string(700'000, '\0'), ".gz");
  EXPECT_EQ(text_of(file.path()), "one\ntwo\n");
}

TEST(FileReader, ATruncatedFileIsTold) {
  const std::string packed = gzipped(rows(50));
  for (std::size_t length = 2; length < packed.size(); ++length) {
    ASSERT_EQ(problems_in(packed.substr(0, length)),
              fmt::format("exit 3\nthe gzip data ends in the middle | FILE, byte {} | it was cut off; copy the file "
                          "again",
                          length));
  }
}

TEST(FileReader, ACorruptFileIsTold) {
  const std::string packed = gzipped(rows(50));
  const std::string fix = " | copy the file again; gunzip -t FILE checks it";
  // Byte 2 of the header is the method, of which 8 is the only one (the flags in byte 3 are read with it); behind the
  // data stand four bytes of CRC and four of length (RFC 1952, section 2.3).
  std::string changed = packed;
  changed[2] = 7;
  EXPECT_EQ(problems_in(changed), "exit 3\nthe gzip data is corrupt (unknown compression method) | FILE, byte 4" + fix);
  changed = packed;
  changed[packed.size() - 8] ^= 1;
  EXPECT_EQ(
      problems_in(changed),
      fmt::format("exit 3\nthe gzip data is corrupt (incorrect data check) | FILE, byte {}", packed.size() - 4) + fix);
  changed = packed;
  changed[packed.size() - 1] ^= 1;
  EXPECT_EQ(
      problems_in(changed),
      fmt::format("exit 3\nthe gzip data is corrupt (incorrect length check) | FILE, byte {}", packed.size()) + fix);
  EXPECT_EQ(
      problems_in(packed + "rest"),
      fmt::format("exit 3\nthe gzip data is corrupt (incorrect header check) | FILE, byte {}", packed.size() + 2) +
          fix);
}

TEST(FileReader, OtherEncodingsAreTold) {
  const std::string told =
      "exit 3\nthe text is not UTF-8 but UTF-16 or UTF-32 | FILE | convert it: iconv -t UTF-8 FILE > NEW";
  using namespace std::string_literals;
  EXPECT_EQ(problems_in("\xFF\xFET\0I\0"s), told);
  EXPECT_EQ(problems_in("\xFE\xFF\0T\0I"s), told);
  EXPECT_EQ(problems_in("T\0I\0M\0"s), told) << "without a mark";
  EXPECT_EQ(problems_in("\0\0\0T\0\0\0I"s), told) << "UTF-32";
  EXPECT_EQ(problems_in(gzipped("\xFF\xFET\0I\0"s)), told);
}

TEST(FileReader, AMarkOfUtf8IsSkipped) {
  const TempFile plain(
      "\xEF\xBB\xBF"
      "abc",
      ".txt");
  EXPECT_EQ(text_of(plain.path()), "abc");
  const TempFile packed(gzipped("\xEF\xBB\xBF"
                                "abc"),
                        ".gz");
  EXPECT_EQ(text_of(packed.path()), "abc");
}

TEST(FileReader, NothingInsideIsTold) {
  EXPECT_EQ(problems_in(gzipped("")),
            "exit 3\nthe file is empty once unpacked | FILE | check that it was copied whole");
  EXPECT_EQ(problems_in(""), "exit 3\nthe file is empty | FILE | check that it was copied whole");
}

TEST(OpenTrace, ReadsThroughGzip) {
  const std::string text = rows(3000);
  const TempFile plain(text, ".csv");
  const TempFile packed(gzipped(text), ".csv.gz");
  const OpenedTrace trace = open_trace(packed.path(), "auto");
  EXPECT_EQ(trace.format, "azure-csv");
  const auto requests = drain(*trace.reader);
  const auto expected = drain(*open_trace(plain.path(), "auto").reader);
  ASSERT_EQ(requests.size(), 3000U);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    ASSERT_EQ(requests[i].arrival, expected[i].arrival);
    ASSERT_EQ(requests[i].input, expected[i].input);
    ASSERT_EQ(requests[i].output, expected[i].output);
  }
}

}  // namespace
}  // namespace spillway::traces
