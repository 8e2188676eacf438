// Whether a run was steady: whether what it served was what was offered.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/units.hpp"

namespace spillway {

/// The number of requests in the system over time, in buckets of equal width. The width doubles when the buckets are
/// used up, so memory is O(1) in the length of the run. O(1) per call, amortised.
class LoadSeries {
 public:
  /// A request was submitted. Times never decrease.
  void arrived(SimTime now) {
    ++at(now).arrived;
    ++in_system_;
  }
  /// A request has ended, with any outcome.
  void left(SimTime now) {
    ++at(now).left;
    --in_system_;
  }

  struct Bucket {
    double held = 0.0;  // request-seconds
    std::int64_t arrived = 0;
    std::int64_t left = 0;
  };
  [[nodiscard]] const std::vector<Bucket>& buckets() const { return buckets_; }
  [[nodiscard]] Duration width() const { return width_; }

 private:
  static constexpr std::size_t kMost = 2048;
  /// The bucket of `now`, after what is held until then has been added.
  Bucket& at(SimTime now) {
    if (now >= bucket_end_) return advance(now);
    buckets_[bucket_].held += static_cast<double>(in_system_) * to_seconds(now - at_);
    at_ = now;
    return buckets_[bucket_];
  }
  Bucket& advance(SimTime now);

  std::vector<Bucket> buckets_{};
  Duration width_{1'000'000};
  SimTime at_{};
  std::size_t bucket_ = 0;  // of at_
  SimTime bucket_end_{};
  std::int64_t in_system_ = 0;
};

/// What the requests of a run were meant to be.
struct OfferedLoad {
  double rate = 0.0;       // requests/s
  double variation = 1.0;  // coefficient of variation of the gaps between what arrives together
  double together = 1.0;   // requests that one arrival brings, in the mean: turns of a conversation
  std::int64_t requests = 0;
};

/// Of one run, or the mean of several replications.
struct SteadyState {
  enum class Verdict : std::uint8_t {
    steady,
    saturated,  // less is served than is offered, and the queue grows
    unsteady    // the run is too short to tell, or its requests did not come at the rate that was asked for
  };
  Verdict verdict = Verdict::unsteady;
  std::string sentence{};      // why, unless steady
  double transient_s = 0.0;    // the initial transient ends then
  double observed_s = 0.0;     // from there until the last request is due
  double offered_per_s = 0.0;  // in that time
  double served_per_s = 0.0;
  double growth = 0.0;        // of the number in the system, as a share of the offered requests
  double growth_error = 0.0;  // half-width of its 95% interval
};
[[nodiscard]] std::string_view verdict_name(SteadyState::Verdict verdict);

/// Judges the time in which requests arrive, 0 to requests / rate.
///
///  * The initial transient ends where MSER is least (White 1997; Franklin and White 2008): of the means of the number
///    in the system that follow, the squared error of their mean. It looks at the first half.
///  * The trend of the rest is that of 20 batch means, its error widened for their autocorrelation.
///  * saturated: it grows by more than 2% of what is offered, beyond the error; or at all, beyond 2.5 times the error,
///    while requests come at the offered rate
///  * steady: it grows by at most 2%, error included; the rest has at least 100 requests and is at least five times as
///  long as a request stays; and
///    requests came at the offered rate, within 2% and three standard errors
[[nodiscard]] SteadyState judge_steady_state(const LoadSeries& series, const OfferedLoad& offered);

/// Replications of one configuration: means, with the error of the mean. `runs` is not empty.
[[nodiscard]] SteadyState combine_steady_states(const std::vector<SteadyState>& runs);

}  // namespace spillway
