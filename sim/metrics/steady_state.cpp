#include "sim/metrics/steady_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace spillway {
namespace {

constexpr double kServed = 0.02;  // largest share of the offered requests that may stay behind
constexpr std::size_t kBatches = 20;
constexpr double kStudent = 2.1;  // 95%, 18 degrees of freedom
constexpr double kCertain = 2.5;  // times that error: any growth
constexpr double kStays = 5.0;    // least length of the observed time, in times in the system
constexpr std::int64_t kFewestRequests = 100;
constexpr std::size_t kFewest = 100;  // buckets, of which the first half may be transient

double as_real(std::int64_t count) { return static_cast<double>(count); }

/// Where the means that follow have the least squared error of their mean. At most half of them are left out.
std::size_t transient(const std::vector<double>& means) {
  std::size_t best = 0;
  double least = -1.0;
  double sum = 0.0;
  double squares = 0.0;
  for (std::size_t from = means.size(); from-- > 0;) {
    sum += means[from];
    squares += means[from] * means[from];
    if (from > means.size() / 2) continue;
    const auto n = static_cast<double>(means.size() - from);
    const double error = std::max(0.0, squares - sum * sum / n) / (n * n);
    if (least >= 0.0 && error > least) continue;
    least = error;
    best = from;
  }
  return best;
}

struct Trend {
  double slope = 0.0;  // per batch
  double error = 0.0;  // half-width
};

Trend trend_of(const std::vector<double>& means) {
  const auto n = static_cast<double>(means.size());
  const double middle = (n - 1.0) / 2.0;
  double mean = 0.0;
  for (const double one : means) mean += one / n;
  double across = 0.0;
  double along = 0.0;
  for (std::size_t i = 0; i < means.size(); ++i) {
    const double x = static_cast<double>(i) - middle;
    across += x * (means[i] - mean);
    along += x * x;
  }
  Trend trend{.slope = across / along};
  double squares = 0.0;
  double neighbours = 0.0;
  double before = 0.0;
  for (std::size_t i = 0; i < means.size(); ++i) {
    const double rest = means[i] - mean - trend.slope * (static_cast<double>(i) - middle);
    squares += rest * rest;
    neighbours += rest * before;
    before = rest;
  }
  const double correlation = squares > 0.0 ? std::clamp(neighbours / squares, 0.0, 0.9) : 0.0;
  const double wider = (1.0 + correlation) / (1.0 - correlation);
  trend.error = kStudent * std::sqrt(squares / (n - 2.0) / along * wider);
  return trend;
}

/// Decides from the figures; `stay`: seconds that a request is in the system, `due`: offered requests/s.
void decide(SteadyState& state, double stay, double due, double due_error) {
  const double growth = state.growth;
  const bool as_asked = std::abs(state.offered_per_s - due) <= kServed * due + due_error;
  const bool much = growth - state.growth_error > kServed;
  const bool certain = growth > kCertain * state.growth_error && growth > 0.1 * kServed;
  state.verdict = SteadyState::Verdict::unsteady;
  if (much || (certain && as_asked)) {
    state.verdict = SteadyState::Verdict::saturated;
    state.sentence = fmt::format("{:.4g} requests/s are offered and {:.4g} served, so the queue grows",
                                 state.offered_per_s, state.served_per_s);
  } else if (!as_asked) {
    state.sentence = fmt::format("requests came at {:.4g}/s, not at {:.4g}/s", state.offered_per_s, due);
  } else if (growth + state.growth_error > kServed) {
    state.sentence =
        fmt::format("the run is too short to tell whether the queue grows: by {:+.1f}% +-{:.1f}% of what is offered",
                    100.0 * growth, 100.0 * state.growth_error);
  } else if (state.observed_s < kStays * stay) {
    state.sentence = fmt::format(
        "the run is too short: it lasts {:.3g} s after the transient, and a request stays {:.3g} s in the system",
        state.observed_s, stay);
  } else {
    state.verdict = SteadyState::Verdict::steady;
  }
}

}  // namespace

std::string_view verdict_name(SteadyState::Verdict verdict) {
  switch (verdict) {
    case SteadyState::Verdict::steady:
      return "steady";
    case SteadyState::Verdict::saturated:
      return "saturated";
    default:
      return "unsteady";
  }
}

LoadSeries::Bucket& LoadSeries::advance(SimTime now) {
  const auto index = [this](SimTime time) { return static_cast<std::size_t>((time - SimTime{}) / width_); };
  while (index(now) >= kMost) {
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      const Bucket one = buckets_[i];
      if (i % 2 == 0) {
        buckets_[i / 2] = one;
      } else {
        Bucket& half = buckets_[i / 2];
        half.held += one.held;
        half.arrived += one.arrived;
        half.left += one.left;
      }
    }
    buckets_.resize((buckets_.size() + 1) / 2);
    width_ += width_;
  }
  if (buckets_.size() <= index(now)) buckets_.resize(index(now) + 1);
  for (std::size_t bucket = index(at_); at_ < now; ++bucket) {
    const SimTime end = std::min(now, SimTime{} + width_ * static_cast<std::int64_t>(bucket + 1));
    buckets_[bucket].held += as_real(in_system_) * to_seconds(end - at_);
    at_ = end;
  }
  bucket_ = index(now);
  bucket_end_ = SimTime{} + width_ * static_cast<std::int64_t>(bucket_ + 1);
  return buckets_[bucket_];
}

SteadyState judge_steady_state(const LoadSeries& series, const OfferedLoad& offered) {
  SteadyState state;
  const double width = to_seconds(series.width());
  const double due = as_real(offered.requests) / offered.rate;
  const auto whole = static_cast<std::size_t>(std::min(due / width, as_real(std::ssize(series.buckets()))));
  if (whole < kFewest) {
    state.sentence = "the run is too short to tell whether the queue grows";
    return state;
  }
  std::vector<double> means;
  means.reserve(whole);
  for (std::size_t i = 0; i < whole; ++i) means.push_back(series.buckets()[i].held / width);
  std::size_t from = transient(means);
  const std::size_t each = (whole - from) / kBatches;
  from = whole - each * kBatches;
  std::vector<double> batches(kBatches, 0.0);
  std::int64_t arrived = 0;
  std::int64_t left = 0;
  double held = 0.0;
  for (std::size_t i = from; i < whole; ++i) {
    batches[(i - from) / each] += means[i] / static_cast<double>(each);
    arrived += series.buckets()[i].arrived;
    left += series.buckets()[i].left;
    held += series.buckets()[i].held;
  }
  state.transient_s = static_cast<double>(from) * width;
  state.observed_s = static_cast<double>(each * kBatches) * width;
  state.offered_per_s = as_real(arrived) / state.observed_s;
  state.served_per_s = as_real(left) / state.observed_s;
  if (arrived < kFewestRequests) {
    state.sentence =
        fmt::format("the run is too short to tell: {} requests came after the initial transient of {:.3g} s", arrived,
                    state.transient_s);
    return state;
  }
  const Trend trend = trend_of(batches);
  const double per_batch = as_real(arrived) / static_cast<double>(kBatches);
  state.growth = trend.slope / per_batch;
  state.growth_error = trend.error / per_batch;
  const double clusters = as_real(arrived) / offered.together;
  decide(state, held / std::max(1.0, as_real(left)), offered.rate,
         3.0 * offered.variation * offered.rate / std::sqrt(clusters));
  return state;
}

SteadyState combine_steady_states(const std::vector<SteadyState>& runs) {
  // The runs agree, or the worst of them says what is wrong.
  SteadyState all = runs.front();
  const auto n = static_cast<double>(runs.size());
  const auto count = [&](SteadyState::Verdict verdict) {
    return std::ranges::count(runs, verdict, &SteadyState::verdict);
  };
  const bool saturated = 2 * count(SteadyState::Verdict::saturated) > std::ssize(runs);
  const bool steady = 2 * count(SteadyState::Verdict::steady) > std::ssize(runs);
  all.verdict = saturated ? SteadyState::Verdict::saturated
                : steady  ? SteadyState::Verdict::steady
                          : SteadyState::Verdict::unsteady;
  const auto like = std::ranges::find(runs, all.verdict, &SteadyState::verdict);
  all.sentence = like != runs.end() ? like->sentence : "its replications disagree";
  const auto mean = [&](double SteadyState::*field) {
    double sum = 0.0;
    for (const SteadyState& run : runs) sum += run.*field;
    return sum / n;
  };
  for (double SteadyState::*const field :
       {&SteadyState::transient_s, &SteadyState::observed_s, &SteadyState::offered_per_s, &SteadyState::served_per_s,
        &SteadyState::growth}) {
    all.*field = mean(field);
  }
  double squares = 0.0;
  for (const SteadyState& run : runs) squares += run.growth_error * run.growth_error;
  all.growth_error = std::sqrt(squares) / n;
  return all;
}

}  // namespace spillway
