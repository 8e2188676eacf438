// Select-N's performance record: the offloading intervals that a latency SLO allows, the offloading intervals that
// memory needs, and whether an interval meets both.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "policies/parts/weight_stream.hpp"
#include "sim/core/units.hpp"

namespace spillway {

/// How a record finds its offloading intervals. The paper's formula assumes that compute and transfer overlap
/// perfectly: it ignores that a group's last layer computes after its copy. So its intervals can break the SLO.
enum class RecordKind { paper, exact };

/// The latency SLO that allows (1 + delta) times an iteration without offloading, rounded to the nearest nanosecond.
/// delta >= 0 ("SLO +50%": 0.5).
[[nodiscard]] Duration relative_slo(Duration unoffloaded, double delta);

/// The offloading interval of the paper's formula, for layers with equal `compute` and `transfer` times and an SLO of
/// (1 + delta) * layers * compute: floor(layers / n), where n = floor(SLO / transfer), at most `layers`, is the number
/// of copies that fit into the SLO. Empty when no copy fits. Source: Select-N's formula of L_off. The formula prints
/// the compute time of one layer but means the time of all layers (else n is 0 for every decode that the paper
/// reports). O(1).
[[nodiscard]] std::optional<std::int32_t> paper_interval(std::int32_t layers, Duration compute, Duration transfer,
                                                         double delta);

/// The smallest offloading interval in 1..layers whose iteration takes at most `limit`; empty when there is none. If
/// `iteration(interval)` is not monotone, larger intervals may break the limit. With streamed_iteration() every larger
/// interval meets the limit too. Up to `layers` calls.
[[nodiscard]] std::optional<std::int32_t> exact_interval(std::int32_t layers, Duration limit,
                                                         const std::function<Duration(std::int32_t)>& iteration);
/// exact_interval for streamed_iteration() and an SLO of (1 + delta) * layers * compute.
[[nodiscard]] std::optional<std::int32_t> exact_interval(std::int32_t layers, Duration compute, Duration transfer,
                                                         double delta);

/// Times of an iteration of one batch and sequence length.
struct LayerTiming {
  Duration compute{};   // of one layer
  Duration transfer{};  // of one layer's weights, from host to GPU
  Duration before{};    // of the work before the first layer
  Duration after{};     // of the work after the last layer
};

/// The entries of a record. Each axis includes its minimum and its maximum. Batch sizes and sequence lengths are powers
/// of two, SLOs are multiples of kSloStep.
struct RecordAxes {
  std::int64_t min_batch = 1;
  std::int64_t max_batch = 1;
  Tokens min_sequence{1};
  Tokens max_sequence{1};
  Duration min_slo{};
  Duration max_slo{};
};
inline constexpr Duration kSloStep{2'000'000};

/// One entry of a record.
struct RecordEntry {
  std::int64_t batch = 0;  // of the entry
  Tokens sequence{};
  Duration slo{};          // as requested, not rounded
  Duration unoffloaded{};  // best time: an iteration of this entry with every layer on the GPU
  /// The smallest offloading interval that the SLO allows; kAllResident when the SLO allows no offloading; empty when
  /// the SLO is below `unoffloaded`, which no interval meets.
  std::optional<std::int32_t> min_interval{};
};

/// The smallest offloading interval for every batch size, sequence length and SLO, for one phase, one model, one GPU
/// and one link. The phase is prefill, with an SLO on time to first token, or decode, with an SLO on time per token;
/// Select-N runs the phases on separate instances. The offline analyser fills the record once.
///
/// Source: Select-N, Table 1. Filling takes O(batches * sequences * (SLOs + layers)) time and calls the timing once per
/// batch and sequence. Memory is 4 bytes per entry; a lookup is O(1).
class PerformanceRecord {
 public:
  using Timing = std::function<LayerTiming(std::int64_t batch, Tokens sequence)>;

  /// An iteration takes before + streamed_iteration() + after. The paper's formula gets the SLO minus `before` and
  /// `after`. Throws InvariantError when an axis is off its grid or empty.
  PerformanceRecord(RecordKind kind, std::int32_t layers, const RecordAxes& axes, const Timing& timing);

  /// For values between and beyond the entries, returns the nearest entry on the safe side, which has the larger
  /// offloading interval; empty when the record has no such entry. The safe side depends on the kind of SLO, provided
  /// that no time falls as batch or sequence grow and the transfer time stays the same:
  ///
  /// * An SLO that is a time: more work leaves less time for stalls, so batch and sequence are rounded up. Empty above
  /// the largest batch or sequence. Below the smallest, uses the smallest.
  /// * An SLO that is a margin over the iteration's own best time (1 + delta times the best time): more work hides more
  /// of the transfers, so batch and sequence are rounded down, and the margin applies to that entry's best time
  /// (Select-N's rule). Empty below the smallest batch or sequence. Above the largest, uses the largest.
  ///
  /// The SLO is rounded down to the grid. Above the largest SLO of the grid, the largest is used. Below the smallest,
  /// only offloading without stalls is allowed. Whether the SLO can be met is decided before the rounding.
  [[nodiscard]] std::optional<RecordEntry> at_slo(std::int64_t batch, Tokens sequence, Duration slo) const;
  [[nodiscard]] std::optional<RecordEntry> at_margin(std::int64_t batch, Tokens sequence, double delta) const;

 private:
  [[nodiscard]] RecordEntry entry(std::int64_t batch, std::int64_t sequence, Duration slo) const;
  [[nodiscard]] std::size_t row(std::int64_t batch, std::int64_t sequence) const;

  RecordAxes axes_;
  std::int64_t slos_ = 0;                  // entries per row
  std::vector<Duration> unoffloaded_{};    // per row: a batch and a sequence
  std::vector<std::int32_t> unstalled_{};  // per row: the smallest offloading interval without stalls
  std::vector<std::int32_t> intervals_{};
};

/// The tightest SLO of a batch's requests, which the whole batch has to meet. Requires at least one SLO.
[[nodiscard]] Duration tightest_slo(std::span<const Duration> slos);

/// Memory of a GPU, and its uses other than KV.
struct WeightMemory {
  Bytes gpu{};    // memory for the engine
  Bytes layer{};  // weights of one layer
  std::int32_t layers = 0;
  Bytes embeddings{};   // and all other weights outside the layers
  Bytes activations{};  // the most that an iteration needs
  bool double_buffer = false;

  /// Layers' worth of weights on the GPU: resident layers and staging buffers.
  [[nodiscard]] std::int32_t gpu_layers(std::int32_t interval) const {
    return layers - host_layers(layers, interval) + staging_buffers(layers, interval, double_buffer);
  }
  /// Memory for KV at an offloading interval; negative when weights and activations alone do not fit.
  [[nodiscard]] Bytes room(std::int32_t interval) const {
    return gpu - gpu_layers(interval) * layer - embeddings - activations;
  }
};

/// The largest offloading interval at which `kv` bytes fit; kAllResident when they fit beside every layer; empty when
/// they do not fit even at interval 1. Every smaller interval fits too, because memory needs grow with the interval.
/// Source: Select-N, Fig. 8. O(layers).
[[nodiscard]] std::optional<std::int32_t> max_interval(const WeightMemory& memory, Bytes kv);

/// KV that fits at an offloading interval, >= 0, and the number of whole tokens of it: Select-N's maximum allocatable
/// length (Fig. 14). O(1).
[[nodiscard]] Bytes max_kv(const WeightMemory& memory, std::int32_t interval);
[[nodiscard]] Tokens max_kv_tokens(const WeightMemory& memory, std::int32_t interval, Bytes per_token);

/// The limit that excludes a request.
enum class Bound {
  none,
  slo,            // no interval meets the SLO: it is below the best time
  memory,         // no interval leaves enough memory
  slo_and_memory  // every interval that meets the SLO leaves too little memory
};

/// Whether a request can be served, and at which offloading intervals.
struct IntervalChoice {
  /// The smallest allowed offloading interval: most weights on the host, most free memory on the GPU. An instance with
  /// its own link uses it.
  std::optional<std::int32_t> interval{};
  /// The largest allowed offloading interval; all between are allowed too. Coordination of several GPUs on one link
  /// chooses among these.
  std::optional<std::int32_t> largest{};
  Bound bound = Bound::none;
  std::string reason{};  // reason of a rejection, one sentence with figures; else empty
};

/// Compares the smallest offloading interval of the SLO with the largest of memory, for the KV of everything that will
/// run, including the request. Source: Select-N, Fig. 8. O(layers); allocates only for a rejection.
[[nodiscard]] IntervalChoice choose_interval(const RecordEntry& entry, const WeightMemory& memory, Bytes kv);

}  // namespace spillway
