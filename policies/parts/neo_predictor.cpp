#include "policies/parts/neo_predictor.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "sim/core/error.hpp"

namespace spillway {

NeoAxis::NeoAxis(std::int64_t each, std::int64_t most) : each_(each) {
  SPILLWAY_CHECK(std::has_single_bit(static_cast<std::uint64_t>(each + 1)), "an axis of NEO's with other powers");
  while (numbers_.back() < std::min(each, most)) numbers_.push_back(numbers_.back() + 1);
  for (std::int64_t power = each + 1; numbers_.back() < most; power *= 2) numbers_.push_back(power);
  last_ = numbers_.back();
  // each is 2^n - 1 and its index is each. Behind it come 2^n, 2^(n + 1), ...
  first_power_ = each - static_cast<std::int64_t>(std::bit_width(static_cast<std::uint64_t>(each)));
}

NeoTable::NeoTable(NeoAxis axis, std::vector<double> values) : axis_(std::move(axis)), values_(std::move(values)) {
  SPILLWAY_CHECK(axis_.numbers().size() == values_.size() && values_.front() == 0.0,
                 "a table of NEO's without f(0) = 0");
}

namespace {

double nanoseconds(Duration duration) { return static_cast<double>(duration.count()); }

/// The table of `time(x)` for x > 0.
template <class Time>
NeoTable table_of(const NeoAxis& axis, Time time) {
  std::vector<double> values;
  values.reserve(axis.numbers().size());
  for (const std::int64_t x : axis.numbers()) values.push_back(x == 0 ? 0.0 : nanoseconds(time(x)));
  return {axis, std::move(values)};
}

}  // namespace

NeoTables::NeoTables(const ExecutionModel& model, const NeoRanges& ranges, double cpu_error)
    : sequences_(1, ranges.sequences), context_(1, ranges.cpu_context.count()) {
  constexpr std::int64_t kEach = 511;
  // What decodes without attention on the GPU take there is linear layers.
  linear_ = table_of(NeoAxis(kEach, ranges.batch.count()), [&](std::int64_t tokens) {
    return model.iteration({.cpu_sequences = tokens, .cpu_context = Tokens(tokens)}).layer;
  });
  prompt_ = table_of(NeoAxis(1, ranges.batch.count()), [&](std::int64_t length) {
    const std::array<PrefillChunk, 1> whole{{{.new_tokens = Tokens(length)}}};
    return model.iteration({.chunks = whole}).attention;
  });
  const std::int64_t usual = std::max<std::int64_t>(1, ranges.longest.count() / 2);
  gpu_decodes_ = table_of(NeoAxis(1, ranges.gpu_context.count()), [&](std::int64_t context) {
    const std::int64_t sequences = 1 + (context - 1) / usual;
    return model.iteration({.decode_sequences = sequences, .decode_context = Tokens(context)}).attention;
  });
  for (const std::int64_t sequences : sequences_.numbers()) {
    for (const std::int64_t context : context_.numbers()) {
      const bool none = sequences == 0 || context == 0;
      cpu_decodes_.push_back(
          none ? 0.0 : (1.0 + cpu_error) * nanoseconds(model.cpu_attention(sequences, Tokens(context)).attention));
    }
  }
}

}  // namespace spillway
