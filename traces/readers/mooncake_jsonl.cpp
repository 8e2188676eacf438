#include "traces/readers/mooncake_jsonl.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "traces/length.hpp"
#include "traces/readers/prefix_blocks.hpp"

namespace spillway::traces {
namespace {

enum Field : std::size_t { kTime, kInput, kOutput, kIds, kFields };
constexpr std::array<JsonField, kFields> kFieldList{
    {{"timestamp", JsonField::Kind::real, 0, static_cast<std::int64_t>(kMaxTraceSeconds) * 1000},
     {"input_length", JsonField::Kind::whole, 1, kMaxTokens},
     {"output_length", JsonField::Kind::whole, 0, kMaxTokens},
     {"hash_ids", JsonField::Kind::ids}}};

}  // namespace

bool MooncakeJsonlReader::recognises(std::string_view head) {
  constexpr std::array<std::string_view, 3> kTelling{"input_length", "output_length", "hash_ids"};
  return head.starts_with('{') && first_object_has(head, kTelling, 2);
}

MooncakeJsonlReader::MooncakeJsonlReader(const std::string& path, Tokens block_tokens)
    : JsonlReader(path, kFieldList), block_tokens_(block_tokens.count()) {
  if (kBlockTokens % block_tokens_ == 0) return;
  throw ConfigError(fmt::format("{} names its prefixes in blocks of {} tokens, which blocks of {} tokens do not divide",
                                path, kBlockTokens, block_tokens_),
                    "memory.block_tokens", fmt::format("use a divisor of {}, such as 16", kBlockTokens));
}

void MooncakeJsonlReader::parse(JsonRow& row, RequestSpec& request) {
  const auto ns = static_cast<std::int64_t>(std::floor(row.real(kTime) * 1e6 + 0.5));
  if (!order_.accept(ns)) {
    row.complain(kTime, fmt::format("{} ms is earlier than the row before", row.real(kTime)),
                 "sort the rows by timestamp");
  }
  const std::int64_t input = row.whole(kInput);
  const std::int64_t blocks = (input + kBlockTokens - 1) / kBlockTokens;
  const auto ids = static_cast<std::int64_t>(row.ids(kIds).size());
  if (ids > blocks) {
    row.complain(
        kIds, fmt::format("{} ids where a prompt of {} tokens has {} blocks of {}", ids, input, blocks, kBlockTokens),
        "only ids of 512-token blocks can be read; bring other sizes into native-jsonl with prefix_block_tokens");
  }
  if (is_bad()) return;
  if (row.whole(kOutput) == 0) ++zero_outputs_;
  request.arrival = SimTime(ns);
  request.input = Tokens(input);
  request.output = Tokens(std::max<std::int64_t>(row.whole(kOutput), 1));
  request.max_new_tokens = request.output;
  split_ids(row.ids(kIds), kBlockTokens / block_tokens_, input / block_tokens_, request.prefix_ids);
}

}  // namespace spillway::traces
