// A quantity over a whole run, however long the run is.
#pragma once

#include <cstddef>
#include <vector>

#include "sim/core/units.hpp"

namespace spillway {

/// Equally spaced samples of a run from 0 on: when there are kMost, every second one is dropped and the spacing
/// doubles. O(1) per sample.
template <class Value>
class SampleSeries {
 public:
  static constexpr std::size_t kMost = 256;
  static constexpr Duration kFirstSpacing{100'000'000};
  struct Sample {
    SimTime at{};
    Value counts{};
  };

  /// When the next sample is due.
  [[nodiscard]] SimTime next() const { return next_; }
  void add(const Value& value) {
    samples_.push_back({next_, value});
    if (samples_.size() == kMost) {
      for (std::size_t i = 0; 2 * i < kMost; ++i) samples_[i] = samples_[2 * i];
      samples_.resize(kMost / 2);
      spacing_ = spacing_ * 2;
    }
    next_ = samples_.back().at + spacing_;
  }
  [[nodiscard]] const std::vector<Sample>& samples() const { return samples_; }

 private:
  std::vector<Sample> samples_;
  Duration spacing_ = kFirstSpacing;
  SimTime next_{};
};

}  // namespace spillway
