// workload.columns: which columns of a file mean what.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/error.hpp"

namespace spillway::traces {

/// What a column may mean. Times are in seconds after the factor; stamps are on one clock with any zero.
enum class Column : std::size_t {
  input_tokens,
  output_tokens,
  arrival_s,      // stamp: when the client sent the request
  first_token_s,  // stamp
  end_s,          // stamp of the last token
  ttft_s,         // from the arrival
  e2e_s,          // from the arrival
  client,         // any text
  conversation,   // any text
  turn,           // in the conversation, from 1
  count,
};
inline constexpr std::array<std::string_view, static_cast<std::size_t>(Column::count)> kColumnTargets{
    "input_tokens", "output_tokens", "arrival_s", "first_token_s", "end_s",
    "ttft_s",       "e2e_s",         "client",    "conversation",  "turn"};

struct MappedColumn {
  Column target = Column::input_tokens;
  std::string source;   // the column's name, or the keys of nested objects joined by dots
  double factor = 1.0;  // for the value
};

/// Reads "input_tokens=prompt_tokens,output_tokens=gen,arrival_s=ts/1000": target=source, with /N or *N behind a source
/// of numbers. input_tokens and output_tokens are required. Adds what is wrong to `problems` (where: workload.columns).
[[nodiscard]] std::vector<MappedColumn> parse_columns(std::string_view text, std::vector<Problem>& problems);

}  // namespace spillway::traces
