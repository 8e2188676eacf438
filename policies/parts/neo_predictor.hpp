// What NEO expects the parts of a layer to take: tables filled before the run, separate from what the run is charged.
//
// Source: NEO's public code (NEO-MLSys25/NEO, b55aaab), swiftllm/perfpredictor.py.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/api/execution_model.hpp"
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
  [[nodiscard]] Position find(std::int64_t x) const;

 private:
  std::int64_t each_ = 0;
  std::vector<std::int64_t> numbers_{0};
};

/// A function known at the numbers of an axis, a straight line in between. f(0) = 0.
class NeoTable {
 public:
  NeoTable() = default;
  NeoTable(NeoAxis axis, std::vector<double> values);
  /// Throws InvariantError beyond the end of the table. O(1).
  [[nodiscard]] double at(std::int64_t x) const;

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
  [[nodiscard]] double cpu_decodes(std::int64_t sequences, Tokens context) const override;

 private:
  NeoTable linear_;
  NeoTable prompt_;
  NeoTable gpu_decodes_;
  NeoAxis sequences_;                // rows
  NeoAxis context_;                  // columns
  std::vector<double> cpu_decodes_;  // row by row
};

}  // namespace spillway
