#include "traces/readers/native_jsonl.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "sim/core/text.hpp"
#include "traces/length.hpp"

namespace spillway::traces {
namespace {

/// The value of a text as written between its quotes; nothing if an escape is not valid JSON.
std::optional<std::string> unescaped(std::string_view written) {
  if (written.find('\\') == std::string_view::npos) return std::string(written);
  const auto value = nlohmann::json::parse(fmt::format("\"{}\"", written), nullptr, false);
  return value.is_string() ? std::optional(value.get<std::string>()) : std::nullopt;
}

bool possible(double arrival_s) { return arrival_s >= 0.0 && arrival_s <= kMaxTraceSeconds; }

}  // namespace

bool NativeJsonlReader::takes_text(std::size_t key) {
  return key == kClient || (key >= kFirstField && NativeFields::takes_text(field_of(key)));
}

std::size_t NativeJsonlReader::key_index(std::string_view name) {
  std::size_t key = 0;
  while (key < kKeys && kNames[key] != name) ++key;
  return key;
}

void NativeJsonlReader::Row::clear() {
  arrival_s.reset();
  input.reset();
  output.reset();
  max_new_tokens.reset();
  client.reset();
  client_name.reset();
  prefix_block_tokens.reset();
  prefix_ids.clear();
  fields.clear();
  keys_seen = 0;
}

bool NativeJsonlReader::recognises(std::string_view head) { return head.starts_with('{'); }

NativeJsonlReader::NativeJsonlReader(const std::string& path, const ReaderOptions& options)
    : lines_(path), bad_(path, options.skip_bad_rows) {
  pending_ = read_row();
  if (pending_) has_times_ = row_.arrival_s.has_value();
}

void NativeJsonlReader::bad(std::string_view key, std::string what, std::string fix) {
  bad_.add(lines_.row(), key.empty() ? std::string() : fmt::format("key \"{}\"", key), std::move(what), std::move(fix));
}

/// Reads up to the next row that can be delivered; false at the end of the file or after too many bad rows.
bool NativeJsonlReader::read_row() {
  std::string_view line;
  while (!ended_ && lines_.next(line)) {
    if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
    bad_.begin();
    if (scan(line)) check();
    if (bad_.accepts()) return true;
    if (bad_.full()) break;
  }
  ended_ = true;
  return false;
}

bool NativeJsonlReader::next(TraceRow& row) {
  const bool have = std::exchange(pending_, false) || read_row();
  if (!have) {
    bad_.raise();
    return false;
  }
  fill(row);
  return true;
}

bool NativeJsonlReader::scan(std::string_view line) {
  row_.clear();
  JsonCursor cursor(line);
  const std::string_view wanted = scan_object(cursor, [&](std::string_view name) -> std::string_view {
    const std::size_t key = key_index(name);
    if (key != kKeys) return scan_value(cursor, key);
    const std::vector<std::string> names(kNames.begin(), kNames.end());
    const std::string near = nearest_name(name, names);
    bad("", fmt::format("unknown key \"{}\"", excerpt(name)),
        near.empty() ? fmt::format("known keys: {}", fmt::join(names, ", "))
                     : fmt::format("did you mean \"{}\"?", near));
    return cursor.pass_value();
  });
  if (!wanted.empty()) add_broken(bad_, lines_.row(), "", cursor, wanted);
  return wanted.empty();
}

/// Reads the value of a known key. Returns what should stand at the cursor when the text is broken, else nothing.
std::string_view NativeJsonlReader::scan_value(JsonCursor& cursor, std::size_t key) {
  if ((row_.keys_seen >> key & 1U) != 0) bad(kNames[key], "the key appears twice", kCorrectRow);
  row_.keys_seen |= 1U << key;
  const char first = cursor.peek();
  if (key == kPrefixIds && first == '[') {
    std::string complaint;
    const std::string_view wanted = cursor.ids(row_.prefix_ids, complaint);
    if (!complaint.empty()) bad(kNames[kPrefixIds], std::move(complaint), kCorrectRow);
    return wanted;
  }
  if (first == '"' && takes_text(key)) return scan_text(cursor, key);
  if (first == '"' || first == '{' || first == '[') {
    if (const std::string_view rest = cursor.pass_value(); !rest.empty()) return rest;
    const char* wanted = key == kPrefixIds ? "a list of whole numbers"
                         : takes_text(key) ? "a number or a text"
                                           : "a number";
    bad(kNames[key], fmt::format("the value must be {}", wanted), kCorrectRow);
    return {};
  }
  const std::string_view word = cursor.word();
  if (word.empty()) return "a value";
  const bool required = key == kInput || key == kOutput;
  if (word != "null" || required) read_number(key, word);
  return {};
}

/// Reads the text of a client, a conversation or a class.
std::string_view NativeJsonlReader::scan_text(JsonCursor& cursor, std::size_t key) {
  const auto written = cursor.string();
  if (!written) return "the text's closing quote";
  if (key == kClient) {
    row_.client_name = written;
    return {};
  }
  const auto text = unescaped(*written);
  std::string complaint = !text           ? "the text has an escape that JSON does not know"
                          : text->empty() ? "the text is empty"
                                          : extras_.read(field_of(key), *text, row_.fields);
  if (!complaint.empty()) bad(kNames[key], std::move(complaint), kCorrectRow);
  return {};
}

void NativeJsonlReader::read_number(std::size_t key, std::string_view word) {
  std::string complaint;
  switch (key) {
    case kArrival:
      row_.arrival_s = parse_number(word);
      if (!row_.arrival_s || !possible(*row_.arrival_s)) {
        complaint = fmt::format("{} is not a number of seconds from 0 to {:.0f} since the start of the run",
                                excerpt(word), kMaxTraceSeconds);
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
    case kPrefixIds:
      complaint = fmt::format("{} is not a list of whole numbers", excerpt(word));
      break;
    default:
      if (takes_text(key)) (void)whole_number<std::uint64_t>(word, 0, UINT64_MAX, complaint);
      if (complaint.empty()) complaint = extras_.read(field_of(key), word, row_.fields);
  }
  if (!complaint.empty()) bad(kNames[key], std::move(complaint), kCorrectRow);
}

/// Checks the values together, and records the row's time and client.
void NativeJsonlReader::check() {
  for (const Key key : {kInput, kOutput}) {
    if ((row_.keys_seen >> key & 1U) == 0) bad("", fmt::format("key \"{}\" is missing", kNames[key]), kCorrectRow);
  }
  if (row_.max_new_tokens && row_.output && *row_.max_new_tokens < *row_.output) {
    bad(kNames[kMaxNew],
        fmt::format("{} is below output_tokens = {}: a request cannot generate more than it asked for",
                    *row_.max_new_tokens, *row_.output),
        kCorrectRow);
  }
  extras_.check(row_.fields, [this](NativeFields::Field field, std::string what) {
    bad(kNames[kFirstField + field], std::move(what), kCorrectRow);
  });
  check_arrival();
  check_client();
  check_prefix();
  if (bad_.is_bad()) return;
  started_ = true;
  if (row_.arrival_s) order_.note(round_seconds(*row_.arrival_s).count());
}

void NativeJsonlReader::check_arrival() {
  const bool timed = row_.arrival_s.has_value();
  if (!started_) has_times_ = timed;
  const bool follows = !timed && NativeFields::may_follow(row_.fields);
  if (timed != has_times_ && !follows && !bad_.is_bad()) {
    bad(kNames[kArrival],
        timed ? "the row has an arrival time and the rows before have none"
              : "the row has no arrival time and the rows before have one",
        "give every row an arrival_s, or none; turns from the second on may always leave it out");
  }
  if (!timed || !possible(*row_.arrival_s)) return;
  if (!order_.fits(round_seconds(*row_.arrival_s).count())) {
    bad(kNames[kArrival], fmt::format("{} s is {}", *row_.arrival_s, kTooEarly), "sort the rows by arrival_s");
  }
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
  if (!row_.input) return;
  const std::int64_t per_id = row_.prefix_block_tokens.value_or(1);  // a block holds one token at least
  const std::int64_t most = (*row_.input + per_id - 1) / per_id;
  const auto ids = static_cast<std::int64_t>(row_.prefix_ids.size());
  if (ids <= most) return;
  bad(kNames[kPrefixIds],
      fmt::format("{} ids of {} tokens each are too many for a prompt of {} tokens", ids, per_id, *row_.input),
      "check prefix_block_tokens");
}

void NativeJsonlReader::fill(TraceRow& row) {
  row.clear();
  if (row_.arrival_s) row.arrival = SimTime() + round_seconds(*row_.arrival_s);
  row.input = Tokens(*row_.input);
  row.output = Tokens(*row_.output);
  row.max_new_tokens = Tokens(row_.max_new_tokens.value_or(*row_.output));
  row.client = client_;
  row.service_class = row_.fields.service_class;
  row.conversation = row_.fields.conversation;
  row.turn = row_.fields.turn;
  row.think = row_.fields.think;
  row.slo = row_.fields.slo;
  row.prefix_ids = row_.prefix_ids;
  row.prefix_id_tokens = row_.prefix_block_tokens.value_or(0);
}

}  // namespace spillway::traces
