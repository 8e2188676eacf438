#include "policies/parts/interval_coordinator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "policies/parts/quantities.hpp"
#include "policies/parts/weight_stream.hpp"
#include "sim/core/error.hpp"

namespace spillway {
namespace {

/// An interval, and what it does.
struct Option {
  std::int32_t interval = 1;
  Bytes on_host{};
  double rate = 0.0;  // bytes/s
};
using Options = std::vector<Option>;  // of one GPU, ascending intervals

Options options_of(const BusUser& gpu) {
  Options options;
  for (std::int32_t interval = gpu.least; interval <= gpu.most; ++interval) {
    const Bytes on_host = gpu.layer * host_layers(gpu.layers, interval);
    if (!options.empty() && options.back().on_host == on_host) continue;
    options.push_back({interval, on_host, streaming_rate(gpu, interval).value()});
  }
  return options;
}

/// The least rate at which the first GPUs reach a sum of bytes on the host, for each sum that stays below the bus.
using Reach = std::map<Bytes, double>;

/// One step for each GPU; a window of intervals restricts them all.
std::vector<Reach> reaches(const std::vector<Options>& gpus, double bus, std::int32_t low, std::int32_t high) {
  std::vector<Reach> steps{{{Bytes(0), 0.0}}};
  for (const Options& options : gpus) {
    Reach next;
    for (const auto& [bytes, rate] : steps.back()) {
      for (const Option& option : options) {
        if (option.interval < low || option.interval > high || rate + option.rate >= bus) continue;
        const auto [at, added] = next.try_emplace(bytes + option.on_host, rate + option.rate);
        if (!added) at->second = std::min(at->second, rate + option.rate);
      }
    }
    steps.push_back(std::move(next));
  }
  return steps;
}

/// From the last GPU on, the smallest interval that still reaches the sum below the bus.
std::vector<std::int32_t> smallest_from_the_last(const std::vector<Options>& gpus, const std::vector<Reach>& steps,
                                                 double bus, std::int32_t low, std::int32_t high, Bytes sum) {
  std::vector<std::int32_t> intervals(gpus.size());
  double behind = 0.0;
  for (std::size_t gpu = gpus.size(); gpu-- > 0;) {
    for (const Option& option : gpus[gpu]) {
      if (option.interval < low || option.interval > high) continue;
      const auto before = steps[gpu].find(sum - option.on_host);
      if (before == steps[gpu].end() || before->second + option.rate + behind >= bus) continue;
      intervals[gpu] = option.interval;
      sum -= option.on_host;
      behind += option.rate;
      break;
    }
  }
  return intervals;
}

BusChoice refuse(std::string why, double rate) { return {{}, BytesPerSecond(rate), std::move(why)}; }

}  // namespace

BytesPerSecond streaming_rate(const BusUser& gpu, std::int32_t interval) {
  const Bytes loaded = gpu.layer * host_layers(gpu.layers, interval);
  return BytesPerSecond(static_cast<double>(loaded.count()) / to_seconds(gpu.iteration));
}

BusChoice coordinate_intervals(std::span<const BusUser> gpus, BytesPerSecond bus) {
  SPILLWAY_CHECK(!gpus.empty(), "a bus without GPUs");
  const BusUser& newcomer = gpus.back();
  if (newcomer.least > newcomer.most) {
    return refuse(fmt::format("its SLO needs an interval of {} or more, its memory one of {} or less", newcomer.least,
                              newcomer.most),
                  0.0);
  }
  std::vector<Options> options;
  std::set<std::int32_t> intervals;
  double least_rate = 0.0;
  for (const BusUser& gpu : gpus) {
    SPILLWAY_CHECK(gpu.iteration > Duration{} && 1 <= gpu.least && gpu.least <= gpu.most && gpu.most <= gpu.layers + 1,
                   "a GPU on a bus whose intervals are not in order");
    options.push_back(options_of(gpu));
    least_rate += options.back().back().rate;
    for (const Option& option : options.back()) intervals.insert(option.interval);
  }
  const std::int32_t largest = *intervals.rbegin();
  const std::vector<Reach> all = reaches(options, bus.value(), 1, largest);
  if (all.back().empty()) {
    return refuse(fmt::format("the GPUs on its bus need {:.2f} GB/s even at their largest intervals, and it carries "
                              "{:.2f} GB/s",
                              least_rate * 1e-9, bus.value() * 1e-9),
                  least_rate);
  }
  const Bytes most = all.back().rbegin()->first;
  // The narrowest window of intervals in which the same sum is reached; of several, that with the smallest newcomer.
  BusChoice best;
  for (std::int32_t spread = 0; best.intervals.empty(); ++spread) {
    for (const std::int32_t low : intervals) {
      const std::vector<Reach> steps = reaches(options, bus.value(), low, low + spread);
      if (!steps.back().contains(most)) continue;
      std::vector<std::int32_t> found = smallest_from_the_last(options, steps, bus.value(), low, low + spread, most);
      const bool better =
          best.intervals.empty() || std::ranges::lexicographical_compare(
                                        found.rbegin(), found.rend(), best.intervals.rbegin(), best.intervals.rend());
      if (better) best.intervals = std::move(found);
    }
  }
  double rate = 0.0;
  for (std::size_t gpu = 0; gpu < gpus.size(); ++gpu) rate += streaming_rate(gpus[gpu], best.intervals[gpu]).value();
  best.rate = BytesPerSecond(rate);
  return best;
}

}  // namespace spillway
