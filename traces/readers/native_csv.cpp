#include "traces/readers/native_csv.hpp"

#include <fmt/format.h>

#include <array>

#include "sim/text.hpp"

namespace spillway::traces {
namespace {

enum Column : std::size_t { kInput, kOutput, kArrival, kMaxNew, kClient, kColumns };
constexpr std::array<CsvColumn, kColumns> kColumnNames{
    {{"input_tokens"}, {"output_tokens"}, {"arrival_s", false}, {"max_new_tokens", false}, {"client", false}}};
constexpr const char* kFix =
    "the first row must name the columns input_tokens and output_tokens, and may name arrival_s, max_new_tokens and "
    "client";

}  // namespace

bool NativeCsvReader::recognises(std::string_view head) {
  return names_columns(head, std::span(kColumnNames).first(kArrival), 1);
}

NativeCsvReader::NativeCsvReader(const std::string& path, const ReaderOptions& options)
    : CsvReader(path, {.columns = kColumnNames, .fix = kFix, .others_allowed = false}, options) {}

bool NativeCsvReader::has_times() const { return has(kArrival); }

std::optional<std::int64_t> NativeCsvReader::limit(std::optional<std::int64_t> output) {
  if (!has(kMaxNew) || field(kMaxNew).empty()) return output;
  const auto asked = tokens(kMaxNew, 1);
  if (!asked || !output || *asked >= *output) return asked;
  bad(kMaxNew,
      fmt::format("{} is below output_tokens = {}: a request cannot generate more than it asked for", *asked, *output),
      "correct or delete the row");
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
    bad(kClient,
        fmt::format("\"{}\" is not a number below 2^32, as the clients of the rows before are", printable(text)),
        "name all clients by numbers, or all by texts");
  }
}

void NativeCsvReader::parse(TraceRow& row) {
  const auto input = tokens(kInput, 1);
  const auto output = tokens(kOutput, 1);
  const auto max_new = limit(output);
  if (has(kArrival)) {
    const auto arrival = seconds(kArrival);
    if (arrival && !order_.accept(*arrival)) bad_order(kArrival);
    if (arrival) row.arrival = SimTime(*arrival);
  }
  if (has(kClient)) read_client(row.client);
  if (is_bad()) return;
  row.input = Tokens(*input);
  row.output = Tokens(*output);
  row.max_new_tokens = Tokens(*max_new);
}

}  // namespace spillway::traces
