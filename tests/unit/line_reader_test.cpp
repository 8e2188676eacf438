// Lines of files, and text in CSV.
#include "sim/io/line_reader.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "sim/io/csv_text.hpp"
#include "tests/unit/trace_test_files.hpp"

namespace spillway::traces {
namespace {

std::vector<std::string> lines_of(const std::string& content) {
  const TempFile file(content, ".txt");
  LineReader reader(file.path());
  std::vector<std::string> lines;
  for (std::string_view line; reader.next(line);) lines.emplace_back(line);
  return lines;
}

TEST(LineReader, ALastLineOfOneByteNeedsNoBreak) {
  EXPECT_EQ(lines_of("ab\nc"), (std::vector<std::string>{"ab", "c"}));
  EXPECT_EQ(lines_of("ab\r\n\nc\n"), (std::vector<std::string>{"ab", "", "c"}));
}

// Lines of 0 to 6 bytes in no order, 4 MB of them: breaks fall on every place of the reader's window, its first byte
// included.
TEST(LineReader, LinesComeWholeWhereverTheWindowEnds) {
  std::string content;
  std::vector<std::string> expected;
  std::minstd_rand lengths;
  for (std::size_t i = 0; content.size() < 4'000'000; ++i) {
    expected.push_back(std::to_string(100'000 + i).substr(0, lengths() % 7));
    content += expected.back() + '\n';
  }
  EXPECT_EQ(lines_of(content), expected);
}

TEST(CsvText, IsQuotedAsInRfc4180) {
  EXPECT_EQ(csv_text("plain text"), "plain text");
  EXPECT_EQ(csv_text("a,b"), "\"a,b\"");
  EXPECT_EQ(csv_text("say \"no\""), "\"say \"\"no\"\"\"");
  EXPECT_EQ(csv_text("two\nlines"), "\"two\nlines\"");
}

}  // namespace
}  // namespace spillway::traces
