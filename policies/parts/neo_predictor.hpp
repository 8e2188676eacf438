// What NEO expects the parts of a layer to take: tables filled before the run, separate from what the run is charged.
//
// Source: NEO's public code (NEO-MLSys25/NEO, b55aaab), swiftllm/perfpredictor.py.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/api/execution_model.hpp"
#include "sim/core/error.hpp"
#include "sim/core/units.hpp"

namespace spillway {

/// Predicted times of one layer. All in one unit, which the caller chooses. Each is 0 for no work.
class NeoPredictor {
 public:
  virtual ~NeoPredictor() = default;
  /// Linear layers over so many tokens.
  [[nodiscard]] virtual double linear(Tokens tokens) const = 0;
  /// The GPU's attention of one prompt. Prompts add up.
  [[nodiscard]] virtual double prompt(Tokens length) const = 0;
  /// The GPU's attention of decodes that attend to so many tokens together.
  [[nodiscard]] virtual double gpu_decodes(Tokens context) const = 0;
  /// The CPU's attention of so many decodes that attend to so many tokens together, without the launch.
  [[nodiscard]] virtual double cpu_decodes(std::int64_t sequences, Tokens context) const = 0;
};

/// Whole numbers at which a table knows its function: 0, 1 to `each`, then powers of two, the last one at least `most`.
/// each + 1 is a power of two.
class NeoAxis {
 public:
  NeoAxis() = default;
  NeoAxis(std::int64_t each, std::int64_t most);
  [[nodiscard]] const std::vector<std::int64_t>& numbers() const { return numbers_; }
  /// Between two numbers: the index of the lower one, and how far it is to the next one.
  struct Position {
    std::size_t lower = 0;
    double way = 0.0;  // in [0, 1)
  };
  /// O(1). Throws InvariantError beyond the last number.
  [[nodiscard]] Position find(std::int64_t x) const {
    SPILLWAY_CHECK(x >= 0 && x <= last_, "NEO's predictor is asked beyond its tables");
    if (x <= each_) return {static_cast<std::size_t>(x), 0.0};
    const auto width = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(x)));
    const std::int64_t power = std::int64_t{1} << (width - 1);
    return {static_cast<std::size_t>(first_power_ + width), static_cast<double>(x - power) * inverse_power(width - 1)};
  }

 private:
  /// 2^-exponent: the product with it is the quotient by 2^exponent, without a division.
  static double inverse_power(int exponent) {
    constexpr std::uint64_t kBias = 1023;
    constexpr unsigned kMantissaBits = 52;
    return std::bit_cast<double>((kBias - static_cast<std::uint64_t>(exponent)) << kMantissaBits);
  }

  std::int64_t each_ = 0;
  std::int64_t last_ = 0;
  std::int64_t first_power_ = 0;  // index of each_ + 1, less the bits of that
  std::vector<std::int64_t> numbers_{0};
};

/// A function known at the numbers of an axis, a straight line in between. f(0) = 0.
class NeoTable {
 public:
  NeoTable() = default;
  NeoTable(NeoAxis axis, std::vector<double> values);
  /// Throws InvariantError beyond the end of the table. O(1).
  [[nodiscard]] double at(std::int64_t x) const {
    const NeoAxis::Position position = axis_.find(x);
    const double lower = values_[position.lower];
    return position.way == 0.0 ? lower : lower + position.way * (values_[position.lower + 1] - lower);
  }

 private:
  NeoAxis axis_;
  std::vector<double> values_{0.0};
};

/// The largest arguments of a run.
struct NeoRanges {
  Tokens batch{};              // of an iteration
  Tokens longest{};            // a request
  Tokens gpu_context{};        // in the KV of the GPU
  std::int64_t sequences = 0;  // of an iteration
  Tokens cpu_context{};        // in the KV of the host
};

/// Tables of an execution model, in nanoseconds. linear: 1 to 511 tokens, then powers of two; the others: powers of
/// two, cpu_decodes bilinear over both of its arguments. The GPU's decodes are timed as sequences of half the longest
/// request. A wrong predictor multiplies the times of the CPU by 1 + cpu_error.
class NeoTables final : public NeoPredictor {
 public:
  /// O(511 + log^2) calls of the model, which is not kept.
  NeoTables(const ExecutionModel& model, const NeoRanges& ranges, double cpu_error);

  [[nodiscard]] double linear(Tokens tokens) const override { return linear_.at(tokens.count()); }
  [[nodiscard]] double prompt(Tokens length) const override { return prompt_.at(length.count()); }
  [[nodiscard]] double gpu_decodes(Tokens context) const override { return gpu_decodes_.at(context.count()); }
  [[nodiscard]] double cpu_decodes(std::int64_t sequences, Tokens context) const override {
    const NeoAxis::Position row = sequences_.find(sequences);
    const NeoAxis::Position column = context_.find(context.count());
    const auto along = [&](std::size_t of_row) {
      const double* const values = &cpu_decodes_[of_row * context_.numbers().size() + column.lower];
      return column.way == 0.0 ? values[0] : values[0] + column.way * (values[1] - values[0]);
    };
    const double lower = along(row.lower);
    return row.way == 0.0 ? lower : lower + row.way * (along(row.lower + 1) - lower);
  }

 private:
  NeoTable linear_;
  NeoTable prompt_;
  NeoTable gpu_decodes_;
  NeoAxis sequences_;                // rows
  NeoAxis context_;                  // columns
  std::vector<double> cpu_decodes_;  // row by row
};

}  // namespace spillway
