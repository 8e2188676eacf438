#include "traces/readers/native_jsonl.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "sim/random.hpp"
#include "sim/text.hpp"
#include "traces/length.hpp"

namespace spillway::traces {
namespace {

enum Key : std::size_t { kArrival, kInput, kOutput, kMaxNew, kClient, kPrefixIds, kPrefixBlock, kKeys };
constexpr std::array<std::string_view, kKeys> kNames{
    "arrival_s", "input_tokens", "output_tokens", "max_new_tokens", "client", "prefix_ids", "prefix_block_tokens"};
constexpr const char* kRest = "the rest of the value";
constexpr const char* kCorrect = "correct or delete the row";
constexpr const char* kCutOff = "complete or delete the row; a file that was cut off while being copied ends like this";

bool ends_word(char c) { return c == ',' || c == '}' || c == ']' || c == ':' || c == ' ' || c == '\t'; }

bool possible(double arrival_s) { return arrival_s >= 0.0 && arrival_s <= kMaxTraceSeconds; }

std::size_t key_index(std::string_view name) {
  std::size_t key = 0;
  while (key < kKeys && kNames[key] != name) ++key;
  return key;
}

/// Block `part` of an id that covers several. Any fixed scrambling does, as long as distinct (id, part) stay distinct
/// but for chance.
std::uint64_t split_id(std::uint64_t id, std::uint64_t part) {
  std::uint64_t state = id;
  state = split_mix(state) + part;
  return split_mix(state);
}

}  // namespace

/// A position in one line of JSON.
class NativeJsonlReader::Cursor {
 public:
  explicit Cursor(std::string_view line) : line_(line) {}
  [[nodiscard]] std::size_t column() const { return at_ + 1; }
  [[nodiscard]] bool at_end() const { return at_ >= line_.size(); }

  char peek() {
    while (at_ < line_.size() && (line_[at_] == ' ' || line_[at_] == '\t')) ++at_;
    return at_ < line_.size() ? line_[at_] : '\0';
  }
  /// The next character for a message.
  [[nodiscard]] std::string shown() const { return printable(line_.substr(at_, 1)); }
  bool take(char wanted) {
    if (peek() != wanted || at_end()) return false;
    ++at_;
    return true;
  }
  /// A string without its quotes, escapes left as written; the cursor stands on its opening quote. Empty when it has no
  /// end.
  std::optional<std::string_view> string() {
    const std::size_t start = ++at_;
    while (at_ < line_.size() && line_[at_] != '"') at_ += line_[at_] == '\\' ? 2U : 1U;
    if (at_end()) return std::nullopt;
    return line_.substr(start, at_++ - start);
  }
  /// A number, true, false or null, or whatever else stands up to the next delimiter.
  std::string_view word() {
    (void)peek();
    const std::size_t start = at_;
    while (at_ < line_.size() && !ends_word(line_[at_])) ++at_;
    return line_.substr(start, at_ - start);
  }
  /// Passes any value by; false when the line ends within it.
  bool skip_value() {
    std::size_t depth = 0;
    do {
      const char c = peek();
      if (at_end()) return false;
      if (c == '"') {
        if (!string()) return false;
      } else if (c == '{' || c == '[') {
        ++depth;
        ++at_;
      } else if (depth > 0 && (c == '}' || c == ']')) {
        --depth;
        ++at_;
      } else if (depth > 0 && (c == ',' || c == ':')) {
        ++at_;
      } else if (word().empty()) {
        return true;  // a delimiter where a value should be: the caller's complaint
      }
    } while (depth > 0);
    return true;
  }

 private:
  std::string_view line_;
  std::size_t at_ = 0;
};

void NativeJsonlReader::Row::clear() {
  arrival_s.reset();
  input.reset();
  output.reset();
  max_new_tokens.reset();
  client.reset();
  client_name.reset();
  prefix_block_tokens.reset();
  prefix_ids.clear();
  keys_seen = 0;
}

bool NativeJsonlReader::recognises(std::string_view first_line) {
  const std::size_t at = first_line.find_first_not_of(" \t");
  return at != std::string_view::npos && first_line[at] == '{';
}

NativeJsonlReader::NativeJsonlReader(const std::string& path, Tokens block_tokens)
    : lines_(path), bad_(path), block_tokens_(block_tokens.count()) {
  pending_ = read_row();
  if (!bad_.any()) has_times_ = row_.arrival_s.has_value();
}

void NativeJsonlReader::bad(std::string_view key, std::string what, std::string fix) {
  bad_.add(lines_.row(), key.empty() ? std::string() : fmt::format("key \"{}\"", key), std::move(what), std::move(fix));
}

/// Reads lines up to the next good row; false at the end of the file or after too many bad ones. Once a row was bad no
/// row counts as good, but the rest is looked through for more.
bool NativeJsonlReader::read_row() {
  std::string_view line;
  while (!ended_ && lines_.next(line)) {
    if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
    const bool good = scan(line) && check();
    if (good && !bad_.any()) return true;
    if (bad_.full()) break;
  }
  ended_ = true;
  return false;
}

bool NativeJsonlReader::next(RequestSpec& request) {
  const bool have = std::exchange(pending_, false) || read_row();
  if (!have) {
    bad_.raise();
    return false;
  }
  fill(request);
  return true;
}

bool NativeJsonlReader::scan(std::string_view line) {
  row_.clear();
  Cursor cursor(line);
  const auto broken = [&](std::string_view wanted) {
    const std::string part = fmt::format("column {}", cursor.column());
    if (cursor.at_end()) {
      bad_.add(lines_.row(), part, fmt::format("the line ends where {} should be", wanted), kCutOff);
    } else {
      bad_.add(lines_.row(), part, fmt::format("'{}' stands where {} should be", cursor.shown(), wanted),
               "write one JSON object per line");
    }
    return false;
  };
  if (!cursor.take('{')) return broken("'{'");
  if (cursor.take('}')) return cursor.peek() == '\0' || broken("the end of the line");
  do {
    if (cursor.peek() != '"') return broken("a key in double quotes");
    const auto name = cursor.string();
    if (!name) return broken("the key's closing quote");
    if (!cursor.take(':')) return broken("':'");
    const std::size_t key = key_index(*name);
    if (key == kKeys) {
      const std::vector<std::string> names(kNames.begin(), kNames.end());
      const std::string near = nearest_name(*name, names);
      bad("", fmt::format("unknown key \"{}\"", printable(*name)),
          near.empty() ? fmt::format("known keys: {}", fmt::join(names, ", "))
                       : fmt::format("did you mean \"{}\"?", near));
      if (!cursor.skip_value()) return broken(kRest);
    } else if (const std::string_view wanted = scan_value(cursor, key); !wanted.empty()) {
      return broken(wanted);
    }
  } while (cursor.take(','));
  if (!cursor.take('}')) return broken("',' or '}'");
  if (cursor.peek() != '\0' || !cursor.at_end()) return broken("the end of the line");
  return true;
}

namespace {

/// A whole number in [least, most]. When `word` is none, `complaint` says so.
template <class T>
std::optional<T> whole_number(std::string_view word, T least, T most, std::string& complaint) {
  T value{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error == std::errc() && end == word.data() + word.size() && value >= least && value <= most) return value;
  complaint = fmt::format("{} is not a whole number from {} to {}", printable(word), least, most);
  return std::nullopt;
}

}  // namespace

/// Reads the value of a known key. Empty, or what should stand at the cursor.
std::string_view NativeJsonlReader::scan_value(Cursor& cursor, std::size_t key) {
  if ((row_.keys_seen >> key & 1U) != 0) bad(kNames[key], "the key appears twice", kCorrect);
  row_.keys_seen |= 1U << key;
  const char first = cursor.peek();
  if (key == kPrefixIds && first == '[') return scan_ids(cursor);
  if (key == kClient && first == '"') {
    row_.client_name = cursor.string();
    return row_.client_name ? "" : "the text's closing quote";
  }
  if (first == '"' || first == '{' || first == '[') {
    if (!cursor.skip_value()) return kRest;
    const char* wanted = key == kPrefixIds ? "a list of whole numbers"
                         : key == kClient  ? "a number or a text"
                                           : "a number";
    bad(kNames[key], fmt::format("the value must be {}", wanted), kCorrect);
    return {};
  }
  const std::string_view word = cursor.word();
  if (word.empty()) return "a value";
  const bool required = key == kInput || key == kOutput;
  if (word != "null" || required) read_number(key, word);
  return {};
}

void NativeJsonlReader::read_number(std::size_t key, std::string_view word) {
  std::string complaint;
  switch (key) {
    case kArrival:
      row_.arrival_s = parse_number(word);
      if (!row_.arrival_s || !possible(*row_.arrival_s)) {
        complaint = fmt::format("{} is not a number of seconds from 0 to {:.0f} since the start of the run",
                                printable(word), kMaxTraceSeconds);
      }
      break;
    case kInput:
      row_.input = whole_number<std::int64_t>(word, 1, kMaxTokens, complaint);
      break;
    case kOutput:
      row_.output = whole_number<std::int64_t>(word, 1, kMaxTokens, complaint);
      break;
    case kMaxNew:
      row_.max_new_tokens = whole_number<std::int64_t>(word, 1, kMaxTokens, complaint);
      break;
    case kPrefixBlock:
      row_.prefix_block_tokens = whole_number<std::int64_t>(word, 1, kMaxTokens, complaint);
      break;
    case kClient:
      row_.client = whole_number<std::int64_t>(word, 0, UINT32_MAX, complaint);
      break;
    default:
      complaint = fmt::format("{} is not a list of whole numbers", printable(word));
  }
  if (!complaint.empty()) bad(kNames[key], std::move(complaint), kCorrect);
}

/// Reads the list; the cursor stands on its bracket. Empty, or what should stand at the cursor.
std::string_view NativeJsonlReader::scan_ids(Cursor& cursor) {
  (void)cursor.take('[');
  if (cursor.take(']')) return {};
  std::string first_complaint;
  do {
    const char first = cursor.peek();
    std::string complaint;
    if (first == '"' || first == '{' || first == '[') {
      if (!cursor.skip_value()) return kRest;
      complaint = "an element is not a whole number";
    } else {
      const std::string_view word = cursor.word();
      if (word.empty()) return "a whole number";
      const auto id = whole_number<std::uint64_t>(word, 0, UINT64_MAX, complaint);
      if (id) row_.prefix_ids.push_back(*id);
    }
    if (first_complaint.empty()) first_complaint = std::move(complaint);
  } while (cursor.take(','));
  if (!first_complaint.empty()) bad(kNames[kPrefixIds], std::move(first_complaint), kCorrect);
  return cursor.take(']') ? "" : "',' or ']'";
}

/// Checks what one value alone does not show, and takes note of the row's time and client. True when the row is good.
bool NativeJsonlReader::check() {
  for (const Key key : {kInput, kOutput}) {
    if ((row_.keys_seen >> key & 1U) == 0) bad("", fmt::format("key \"{}\" is missing", kNames[key]), kCorrect);
  }
  if (row_.max_new_tokens && row_.output && *row_.max_new_tokens < *row_.output) {
    bad(kNames[kMaxNew],
        fmt::format("{} is below output_tokens = {}: a request cannot generate more than it asked for",
                    *row_.max_new_tokens, *row_.output),
        kCorrect);
  }
  check_arrival();
  check_client();
  check_prefix();
  started_ = true;
  return !bad_.has(lines_.row());
}

void NativeJsonlReader::check_arrival() {
  const bool timed = row_.arrival_s.has_value();
  if (!started_) has_times_ = timed;
  if (timed != has_times_ && !bad_.has(lines_.row())) {
    bad(kNames[kArrival],
        timed ? "the row has an arrival time and the rows before have none"
              : "the row has no arrival time and the rows before have one",
        "give every row an arrival_s, or none");
  }
  if (!timed || !possible(*row_.arrival_s)) return;
  const std::int64_t ns = round_seconds(*row_.arrival_s).count();
  if (started_ && ns < previous_ns_) {
    bad(kNames[kArrival], fmt::format("{} s is earlier than the row before", *row_.arrival_s),
        "sort the rows by arrival_s");
  }
  previous_ns_ = ns;
}

void NativeJsonlReader::check_client() {
  client_ = 0;
  const bool one_kind = row_.client        ? clients_.number(static_cast<std::uint32_t>(*row_.client), client_)
                        : row_.client_name ? clients_.name(*row_.client_name, client_)
                                           : true;
  if (!one_kind) {
    bad(kNames[kClient], "some rows name the client by a number and some by a text", "use one kind in the whole file");
  }
}

void NativeJsonlReader::check_prefix() {
  const std::int64_t per_id = row_.prefix_block_tokens.value_or(block_tokens_);
  if (per_id % block_tokens_ != 0) {
    bad(kNames[kPrefixBlock], fmt::format("{} is not a multiple of memory.block_tokens = {}", per_id, block_tokens_),
        fmt::format("set memory.block_tokens to a divisor of {}", per_id));
    return;
  }
  if (!row_.input) return;
  const std::int64_t most = (*row_.input + per_id - 1) / per_id;
  const auto ids = static_cast<std::int64_t>(row_.prefix_ids.size());
  if (ids <= most) return;
  bad(kNames[kPrefixIds],
      fmt::format("{} ids of {} tokens each are more than the prompt of {} tokens holds", ids, per_id, *row_.input),
      "check prefix_block_tokens");
}

void NativeJsonlReader::fill(RequestSpec& request) {
  request.arrival = SimTime(previous_ns_);
  request.input = Tokens(*row_.input);
  request.output = Tokens(*row_.output);
  request.max_new_tokens = Tokens(row_.max_new_tokens.value_or(*row_.output));
  request.client = client_;
  request.prefix_ids.clear();
  const std::int64_t parts = row_.prefix_block_tokens.value_or(block_tokens_) / block_tokens_;
  const auto whole_blocks = static_cast<std::size_t>(*row_.input / block_tokens_);
  for (const std::uint64_t id : row_.prefix_ids) {
    for (std::int64_t part = 0; part < parts && request.prefix_ids.size() < whole_blocks; ++part) {
      request.prefix_ids.push_back(parts == 1 ? id : split_id(id, static_cast<std::uint64_t>(part)));
    }
  }
}

}  // namespace spillway::traces
