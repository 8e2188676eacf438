// Broken native-binary traces with intact lengths and checksums.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/core/random.hpp"
#include "traces/readers/trace_reader.hpp"

namespace spillway::fuzz {

/// A native-binary file with these rows.
[[nodiscard]] std::string native_binary_of(std::string_view name, const std::vector<traces::TraceRow>& rows,
                                           const traces::TraceReader& reader);

/// `file`, a valid native-binary trace, with its facts, its rows or a number of rows changed, and with lengths and
/// checksums that fit the change: the reader comes to decode what was changed. The same stream gives the same bytes.
[[nodiscard]] std::string sealed_mutation(const std::string& file, RandomStream& stream);

}  // namespace spillway::fuzz
