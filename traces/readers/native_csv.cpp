#include "traces/readers/native_csv.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "sim/core/random.hpp"
#include "sim/core/text.hpp"

namespace spillway::traces {

bool NativeCsvReader::recognises(std::string_view head) {
  return names_columns(head, std::span(kColumnNames).first(kArrival), 1);
}

NativeCsvReader::NativeCsvReader(const std::string& path, const ReaderOptions& options)
    : CsvReader(path, {.columns = kColumnNames, .fix = kFix, .others_allowed = false}, options) {
  for (std::size_t i = 0; i < NativeFields::kFields; ++i) has_extras_ = has_extras_ || has(kFirstField + i);
}

bool NativeCsvReader::has_times() const { return has(kArrival); }

std::optional<std::int64_t> NativeCsvReader::limit(std::optional<std::int64_t> output) {
  if (!has(kMaxNew) || field(kMaxNew).empty()) return output;
  const auto asked = tokens(kMaxNew, 1);
  if (!asked || !output || *asked >= *output) return asked;
  bad(kMaxNew,
      fmt::format("{} is below output_tokens = {}: a request cannot generate more than it asked for", *asked, *output),
      kCorrectRow);
  return std::nullopt;
}

void NativeCsvReader::read_client(std::uint32_t& client) {
  const std::string_view text = field(kClient);
  if (text.empty()) return;
  const auto number = parse_integer(text);
  const bool is_number = number && *number >= 0 && *number <= UINT32_MAX;
  if (clients_.named() || (!is_number && !clients_.numbered())) {
    (void)clients_.name(text, client);  // "7" among names is a name
  } else if (is_number) {
    (void)clients_.number(static_cast<std::uint32_t>(*number), client);
  } else {
    bad(kClient, fmt::format("\"{}\" is not a number below 2^32, like the clients of the rows before", excerpt(text)),
        "name all clients by numbers, or all by texts");
  }
}

void NativeCsvReader::read_arrival(TraceRow& row) {
  if (field(kArrival).empty() && NativeFields::may_follow(row)) return;
  const auto arrival = seconds(kArrival);
  if (!arrival) return;
  if (!order_.fits(*arrival)) bad_order(kArrival);
  row.arrival = SimTime(*arrival);
}

void NativeCsvReader::read_prefix(std::optional<std::int64_t> input, TraceRow& row) {
  const std::string_view name = has(kPrefix) ? field(kPrefix) : std::string_view();
  const std::string_view length = has(kPrefixTokens) ? field(kPrefixTokens) : std::string_view();
  if (name.empty() && length.empty()) return;
  if (name.empty() || length.empty()) {
    bad(name.empty() ? kPrefixTokens : kPrefix,
        name.empty() ? "prefix_tokens is given without a prefix" : "the prefix has no prefix_tokens",
        "state prefix and prefix_tokens, or neither");
    return;
  }
  const auto count = tokens(kPrefixTokens, 1);
  if (!count || !input) return;
  if (*count > *input) {
    bad(kPrefixTokens, fmt::format("{} is above input_tokens = {}, of which it is a part", *count, *input),
        kCorrectRow);
    return;
  }
  row.prefix_id_tokens = kPrefixPieceTokens;
  const std::uint64_t prefix = name_id(name);
  for (std::int64_t i = 0; i < *count / kPrefixPieceTokens; ++i) {
    std::uint64_t state = prefix;
    state = split_mix(state) + static_cast<std::uint64_t>(i);
    row.prefix_ids.push_back(split_mix(state));
  }
}

void NativeCsvReader::read_extras(TraceRow& row) {
  for (std::size_t i = 0; i < NativeFields::kFields; ++i) {
    const std::size_t column = kFirstField + i;
    if (!has(column) || field(column).empty()) continue;
    std::string complaint = extras_.read(static_cast<NativeFields::Field>(i), field(column), row);
    if (!complaint.empty()) bad(column, std::move(complaint), kCorrectRow);
  }
  extras_.check(
      row, [this](NativeFields::Field at, std::string what) { bad(kFirstField + at, std::move(what), kCorrectRow); });
}

void NativeCsvReader::parse(TraceRow& row) {
  const auto input = tokens(kInput, 1);
  const auto output = tokens(kOutput, 1);
  const auto max_new = limit(output);
  if (has_extras_) read_extras(row);
  if (has(kArrival)) read_arrival(row);
  if (has(kClient)) read_client(row.client);
  if (has(kPrefix) || has(kPrefixTokens)) read_prefix(input, row);
  if (is_bad()) return;
  if (row.arrival != kNever) order_.note(row.arrival.ns());
  row.input = Tokens(*input);
  row.output = Tokens(*output);
  row.max_new_tokens = Tokens(*max_new);
}

}  // namespace spillway::traces
