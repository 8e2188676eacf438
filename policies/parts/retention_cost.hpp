// What it costs to compute a chunk of KV again.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/api/execution_model.hpp"
#include "sim/core/units.hpp"

namespace spillway {

/// Time that the GPU needs for a chunk at the end of a context: c + A(l) of Pensieve, section 4.3.3, where c is the
/// time of everything but attention and A(l) attention to a context of l tokens, the chunk included. It is profiled at
/// powers of two, and linear between them. O(1) per call for such samples, O(samples) for any others.
class RetentionCost {
 public:
  struct Sample {
    Tokens context{};
    double seconds = 0.0;
  };
  /// In ascending order of their contexts; at least one.
  explicit RetentionCost(std::vector<Sample> samples);
  /// Asks `model` for chunks of so many tokens, at every power of two up to the first that is not below `longest`: what
  /// each adds to an iteration with `beside` tokens of another prompt; 0: it has the iteration to itself. CPU time of
  /// the engine does not count: it is the same for every chunk.
  [[nodiscard]] static RetentionCost profile(const ExecutionModel& model, Tokens chunk, Tokens longest,
                                             Tokens beside = Tokens(0));

  /// Below the first sample: that sample. Beyond the last: along its last line.
  [[nodiscard]] double at(Tokens context) const;

 private:
  /// The number of bits of the context before: equal for the contexts above one power of two, up to the next.
  static std::size_t magnitude(Tokens context) {
    return static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(context.count() - 1)));
  }

  std::vector<Sample> samples_;
  std::array<std::size_t, 65> first_;  // by magnitude of a context above 0: no sample before this one is as long
};

}  // namespace spillway
