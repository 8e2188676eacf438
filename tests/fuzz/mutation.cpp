#include "tests/fuzz/mutation.hpp"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <vector>

#include "sim/core/error.hpp"

namespace spillway::fuzz {
namespace {

using namespace std::string_view_literals;

/// Numbers at limits of types and formats, and unusual notations.
constexpr std::array kNumbers{"-1"sv,
                              "0"sv,
                              "-0"sv,
                              "1"sv,
                              "1e308"sv,
                              "-1e308"sv,
                              "1e309"sv,
                              "1e-400"sv,
                              "1e999999999999"sv,
                              "NaN"sv,
                              "nan"sv,
                              "Infinity"sv,
                              "-inf"sv,
                              "99999999999999999999"sv,
                              "-99999999999999999999"sv,
                              "9223372036854775807"sv,
                              "9223372036854775808"sv,
                              "-9223372036854775808"sv,
                              "18446744073709551615"sv,
                              "18446744073709551616"sv,
                              "9007199254740993"sv,
                              "2147483648"sv,
                              "4294967295"sv,
                              "4294967296"sv,
                              "16777216"sv,
                              "16777217"sv,
                              "100000000"sv,
                              "100000001"sv,
                              "0.5"sv,
                              "0.000000001"sv,
                              "1e-9"sv,
                              "1."sv,
                              ".5"sv,
                              "+1"sv,
                              "007"sv,
                              "0x10"sv,
                              "1e"sv,
                              "1_000"sv,
                              "1,000"sv,
                              ""sv};

/// Pieces with a meaning in JSON, CSV, gzip, UTF-8 or the units of the configuration.
constexpr std::array kPieces{"\""sv,
                             "\"\""sv,
                             ","sv,
                             ":"sv,
                             "{"sv,
                             "}"sv,
                             "["sv,
                             "]"sv,
                             "[]"sv,
                             "{}"sv,
                             "\n"sv,
                             "\r\n"sv,
                             "\r"sv,
                             "\n\n"sv,
                             " "sv,
                             "\t"sv,
                             "\0"sv,
                             "\\"sv,
                             "\\\""sv,
                             "\\u0000"sv,
                             "\\ud800"sv,
                             "\\udc00\\ud800"sv,
                             "\\u00"sv,
                             "\xff"sv,
                             "\xc0\x80"sv,
                             "\xed\xa0\x80"sv,
                             "\xf4\x90\x80\x80"sv,
                             "\xe2\x82"sv,
                             "\xef\xbb\xbf"sv,
                             "\xff\xfe"sv,
                             "\x1f\x8b\x08"sv,
                             "null"sv,
                             "true"sv,
                             "//"sv,
                             "/*"sv,
                             "%s%n"sv,
                             "{}{0}{:99}"sv,
                             "../"sv,
                             "-"sv,
                             "GiB"sv,
                             "h"sv,
                             "%"sv};

/// Replacements for the value of a JSON member.
constexpr std::array kValues{"null"sv,        "true"sv, "false"sv,  "[]"sv,      "{}"sv,         "\"\""sv,
                             "\"\\u0000\""sv, "-1"sv,   "[1, 2]"sv, "[[]]"sv,    "{\"a\": 1}"sv, "1e400"sv,
                             "\"x\""sv,       "0"sv,    "\"1\""sv,  "\"\xc3\""sv};

/// Positions at which lines begin, and the end of the text.
std::vector<std::size_t> line_starts(const std::string& text) {
  std::vector<std::size_t> starts{0};
  for (std::size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 1))
    starts.push_back(at + 1);
  if (starts.back() != text.size()) starts.push_back(text.size());
  return starts;
}

/// A part of `text`; small parts are more likely than large parts.
struct Part {
  std::size_t begin = 0;
  std::size_t size = 0;
};

Part part_of(const std::string& text, RandomStream& stream) {
  const std::size_t begin = below(text.size() + 1, stream);
  const std::size_t most = std::min(text.size() - begin, std::size_t{1} << below(12, stream));
  return {begin, below(most + 1, stream)};
}

void flip_bit(std::string& text, RandomStream& stream) {
  if (text.empty()) return;
  char& byte = text[below(text.size(), stream)];
  byte = static_cast<char>(static_cast<unsigned char>(byte) ^ (1U << below(8, stream)));
}

void insert_byte(std::string& text, RandomStream& stream) {
  text.insert(below(text.size() + 1, stream), 1, static_cast<char>(below(256, stream)));
}

void insert_piece(std::string& text, RandomStream& stream) {
  const std::size_t at = below(text.size() + 1, stream);
  text.insert(at, kPieces[below(kPieces.size(), stream)]);
}

void delete_part(std::string& text, RandomStream& stream) {
  const Part part = part_of(text, stream);
  text.erase(part.begin, part.size);
}

void repeat_part(std::string& text, RandomStream& stream) {
  const Part part = part_of(text, stream);
  const std::string copy = text.substr(part.begin, part.size);
  text.insert(below(text.size() + 1, stream), copy);
}

void truncate(std::string& text, RandomStream& stream) { text.resize(below(text.size() + 1, stream)); }

void splice(std::string& text, std::span<const std::string> others, RandomStream& stream) {
  if (others.empty()) return;
  const std::string& other = others[below(others.size(), stream)];
  text.resize(below(text.size() + 1, stream));
  text += other.substr(below(other.size() + 1, stream));
}

void change_lines(std::string& text, RandomStream& stream) {
  const std::vector<std::size_t> starts = line_starts(text);
  if (starts.size() < 2) return;
  const auto line = [&](std::size_t i) { return text.substr(starts[i], starts[i + 1] - starts[i]); };
  const std::size_t from = below(starts.size() - 1, stream);
  const std::size_t to = below(starts.size() - 1, stream);
  const std::string moved = line(from);
  switch (below(3, stream)) {
    case 0:
      for (std::size_t times = std::size_t{1} << below(8, stream); times > 0; --times) text.insert(starts[to], moved);
      break;
    case 1:
      text.erase(starts[from], moved.size());
      break;
    default:
      text.replace(starts[to], line(to).size(), moved);
  }
}

void change_number(std::string& text, RandomStream& stream) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  std::vector<Part> numbers;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!digit(text[i])) continue;
    const std::size_t begin = i;
    while (i < text.size() && (digit(text[i]) || text[i] == '.')) ++i;
    numbers.push_back({begin, i - begin});
  }
  if (numbers.empty()) return;
  const Part number = numbers[below(numbers.size(), stream)];
  text.replace(number.begin, number.size, kNumbers[below(kNumbers.size(), stream)]);
}

/// Roughly the value of some JSON member: from a colon to the next delimiter.
Part value_of(const std::string& text, RandomStream& stream) {
  std::vector<std::size_t> colons;
  for (std::size_t at = text.find(':'); at != std::string::npos; at = text.find(':', at + 1)) colons.push_back(at);
  if (colons.empty()) return {};
  const std::size_t begin = colons[below(colons.size(), stream)] + 1;
  return {begin, std::min(text.find_first_of(",}\n", begin), text.size()) - begin};
}

void change_value(std::string& text, std::span<const std::string> others, RandomStream& stream) {
  const Part value = value_of(text, stream);
  if (value.begin == 0) return;
  if (others.empty() || below(2, stream) == 0) {
    text.replace(value.begin, value.size, kValues[below(kValues.size(), stream)]);
    return;
  }
  // The value of another member has a valid form.
  const std::string& other = others[below(others.size(), stream)];
  const Part taken = value_of(other, stream);
  text.replace(value.begin, value.size, other.substr(taken.begin, taken.size));
}

void nest(std::string& text, RandomStream& stream) {
  constexpr std::array kOpeners{"["sv, "{\"a\":"sv, "[{\"prompt\":"sv, "{\"memory\":"sv};
  const std::string_view opener = kOpeners[below(kOpeners.size(), stream)];
  std::string levels;
  for (std::size_t depth = std::size_t{1} << below(16, stream); depth > 0; --depth) levels += opener;
  text.insert(below(text.size() + 1, stream), levels);
}

void lengthen(std::string& text, RandomStream& stream) {
  constexpr std::string_view kBytes = "a0\"[ ,\n\xe9\\-.";
  const std::size_t at = below(text.size() + 1, stream);
  const char byte = below(4, stream) == 0 && at < text.size() ? text[at] : kBytes[below(kBytes.size(), stream)];
  text.insert(at, std::size_t{1} << below(19, stream), byte);
}

/// Mostly keeps the syntax of the text, so that the code behind the parser is reached.
void change_content(std::string& text, std::span<const std::string> others, RandomStream& stream) {
  switch (below(4, stream)) {
    case 0:
      return change_value(text, others, stream);
    case 1:
      return change_lines(text, stream);
    default:
      return change_number(text, stream);
  }
}

void change(std::string& text, std::span<const std::string> others, RandomStream& stream) {
  switch (below(16, stream)) {
    case 0:
    case 1:
      return flip_bit(text, stream);
    case 2:
      return insert_byte(text, stream);
    case 3:
    case 4:
      return insert_piece(text, stream);
    case 5:
      return delete_part(text, stream);
    case 6:
      return repeat_part(text, stream);
    case 7:
      return splice(text, others, stream);
    case 8:
      return truncate(text, stream);
    case 9:
      return change_lines(text, stream);
    case 10:
    case 11:
    case 12:
      return change_number(text, stream);
    case 13:
      return change_value(text, others, stream);
    case 14:
      return nest(text, stream);
    default:
      return lengthen(text, stream);
  }
}

}  // namespace

std::string mutated(std::string text, std::span<const std::string> others, RandomStream& stream) {
  // Half of the inputs get a single change, so that they pass the first checks.
  std::size_t changes = 1;
  while (changes < 8 && below(2, stream) == 0) ++changes;
  const bool content_alone = below(2, stream) == 0;
  for (; changes > 0; --changes) {
    if (content_alone) {
      change_content(text, others, stream);
    } else {
      change(text, others, stream);
    }
    if (text.size() > kMaxInput) text.resize(kMaxInput);
  }
  return text;
}

std::string gzipped(std::string_view text) {
  z_stream stream{};
  constexpr int kOnlyGzip = 16;
  SPILLWAY_CHECK(deflateInit2(&stream, 1, Z_DEFLATED, kOnlyGzip + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK,
                 "zlib does not start");
  std::string source(text);
  std::string packed(deflateBound(&stream, source.size()) + 32, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(source.data());
  stream.avail_in = static_cast<uInt>(source.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  const int code = deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  (void)deflateEnd(&stream);
  SPILLWAY_CHECK(code == Z_STREAM_END, "zlib does not end");
  return packed;
}

}  // namespace spillway::fuzz
