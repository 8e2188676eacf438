// What instances did over time, in equal bins: their load, their memory, their links and their waits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sim/api/layer_rule.hpp"
#include "sim/core/units.hpp"
#include "sim/engine/instance_observer.hpp"

namespace spillway {

/// A column of the series: a name with its unit and what it means.
struct SeriesColumn {
  std::string name;
  std::string definition;
};

/// Means over time of each bin, of one run. Bins are as wide for all instances: 1 ms, 2 ms, 10 ms, 20 ms, ..., the
/// least width for which no instance has more bins than the limit. Sums are integers, so they do not depend on how
/// often bins were joined.
///
/// What an iteration computes is spread evenly over its length, and the bytes of a copy over the time in which it was
/// under way, launch included. A copy that is under way at the end of the run counts up to there.
///
/// O(bins that it covers) per report; memory O(instances x bins).
class TimeSeries {
 public:
  static constexpr std::size_t kMostBins = 2000;     // of an instance
  static constexpr std::size_t kMostRows = 100'000;  // of all
  static constexpr Duration kFirstWidth{1'000'000};

  TimeSeries();
  ~TimeSeries();
  TimeSeries(const TimeSeries&) = delete;
  TimeSeries& operator=(const TimeSeries&) = delete;

  /// The observer of a replica; it lives as long as the series. All are made before the run.
  [[nodiscard]] InstanceObserver* observer(std::size_t replica);
  /// The run is over.
  void finish();

  // After finish():
  [[nodiscard]] SimTime end() const { return end_; }
  [[nodiscard]] Duration width() const { return width_; }
  [[nodiscard]] std::size_t bins() const;
  [[nodiscard]] std::size_t instances() const { return instances_.size(); }
  /// Joins bins until there are at most so many.
  void coarsen(std::size_t most);
  /// The same for every instance; an instance without such a tier has no value.
  [[nodiscard]] std::vector<SeriesColumn> columns() const;
  /// The means of an instance by column and bin. NaN: no value.
  [[nodiscard]] std::vector<std::vector<double>> values(std::size_t instance) const;
  [[nodiscard]] SimTime begin_of(std::size_t bin) const;
  [[nodiscard]] SimTime end_of(std::size_t bin) const;
  /// instance,begin_s,end_s and the columns: a row for each bin of each instance, whose numbers count from 0.
  [[nodiscard]] std::string csv() const;

 private:
  __extension__ using Wide = __int128;
  class Instance;
  /// Sums over a bin.
  enum Sum : std::size_t {
    kRunning,  // request-nanoseconds
    kWaiting,
    kPromptTokens,
    kDecodeTokens,
    kBusy,                           // nanoseconds of each stream; compute: of iterations, waits included
    kBytes = kBusy + kStreams,       // of each stream
    kWaited = kBytes + kStreams,     // nanoseconds by cause
    kHandedOver = kWaited + kWaits,  // transfer-nanoseconds and bytes of KV that came, then of KV that went
    kUsed = kHandedOver + 4          // block-nanoseconds of each tier: in use, and there
  };
  static constexpr std::size_t kMostTiers = 8;
  static constexpr std::size_t kSums = kUsed + 2 * kMostTiers;
  using Bin = std::array<Wide, kSums>;
  struct Column;

  /// Makes the bins wide enough for an interval that ends then.
  void reach(SimTime end);
  void join(std::int64_t factor);
  [[nodiscard]] std::size_t most_bins() const;
  [[nodiscard]] std::vector<Column> all_columns() const;

  std::map<std::size_t, std::unique_ptr<Instance>> instances_;
  std::vector<std::string> tiers_;  // of all instances
  bool hands_over_ = false;         // some KV was handed over
  Duration width_ = kFirstWidth;
  bool doubled_ = false;  // the width is 2 * 10^n
  SimTime end_{};
};

}  // namespace spillway
