// AQUA's profiler: how much memory a model can lend, or wants to borrow (AQUA section 4).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/core/units.hpp"
#include "sim/study/placer/cluster_file.hpp"
#include "sim/study/points.hpp"

namespace spillway::placer {

/// A model that is not a language model, at one batch size.
struct BatchPoint {
  std::int64_t batch = 0;   // requests
  double throughput = 0.0;  // requests per second
  Bytes free{};             // HBM that the model leaves
};

/// Gain of throughput below which a larger batch is not worth its memory. The paper gives no figure.
inline constexpr double kLeastBatchGain = 0.05;

/// What a model that is not a language model can lend: its batch grows along the curve, in ascending order, until the
/// next size gains less than kLeastBatchGain; the memory that is free at the size reached. Throws ConfigError for an
/// empty curve. O(points).
[[nodiscard]] Bytes lendable_memory(std::span<const BatchPoint> curve);

/// A language model lends what it leaves free if that is more than this; section 4.
inline constexpr Bytes kLeastProducer{10'000'000'000};

/// > 0: a producer lends `free`. < 0: a consumer borrows `demand`. 0: a producer that offers nothing.
[[nodiscard]] Bytes balance_of(Bytes free, Bytes demand);

/// Demand of a model that keeps `prompts` prompts, or shared prefixes, beyond its HBM: each with the longest context.
[[nodiscard]] Bytes context_demand(std::int64_t prompts, Tokens longest, Bytes bytes_per_token);

/// What the profiler found for one element of a cluster.
struct ProfiledModel {
  std::size_t element = 0;  // of Cluster::models
  Bytes balance{};
  double stable_rate = 0.0;  // requests per second; 0: not searched, because the file states prompts and their context
  Bytes free{};              // KV memory never used at that rate, on all GPUs of the model
  std::string terms;         // how the balance came about, one line
};

/// Measures the elements that state no balance, and sets their balance.
///
/// With `prompts` and `context`: context_demand. Else it searches the largest request rate from 1 to 10 requests/s, to
/// 5%, at which p99 TTFT < 1 s and p99 ITL <= 100 ms in chunks of 512 tokens (the paper bisects, then tries steps of up
/// to 0.5 requests/s; it does not say of which TTFT it speaks). `free` is the KV memory that a run at this rate never
/// uses. If that makes no producer, the demand is the largest swap memory that policy=cfs uses in bursts of 2, 3 and 5
/// times this rate for 60 s.
///
/// Returns nothing when interrupted. Throws UserError when a run is refused, or a model misses the limits at 1
/// request/s.
[[nodiscard]] std::optional<std::vector<ProfiledModel>> profile(Cluster& cluster, PointRunner& runner);

}  // namespace spillway::placer
