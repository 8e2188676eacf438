// Select-N's performance record: the offloading intervals that a latency SLO allows, those that memory needs, and
// whether an interval meets both.
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

/// How a record finds its intervals. The paper's formula assumes that compute and transfer overlap perfectly (it leaves
/// out that a group's last layer computes after its copy), so its intervals can break the SLO.
enum class RecordKind { paper, exact };

/// The latency SLO that allows (1 + delta) times an iteration that offloads nothing, to the nearest nanosecond;
/// delta >= 0 ("SLO +50%": 0.5).
[[nodiscard]] Duration relative_slo(Duration unoffloaded, double delta);

/// The interval of the paper's formula, for layers of one `compute` and one `transfer` time and an SLO of (1 + delta) *
/// layers * compute: floor(layers / n), where n = floor(SLO / transfer), at most `layers`, copies fit into the SLO;
/// empty when no copy fits. Source: Select-N's formula of L_off, which prints the compute time of one layer but means
/// that of all layers (else n is 0 for every decode it reports). O(1).
[[nodiscard]] std::optional<std::int32_t> paper_interval(std::int32_t layers, Duration compute, Duration transfer,
                                                         double delta);

/// The smallest interval in 1..layers whose iteration takes at most `limit`; empty when there is none. If
/// `iteration(interval)` is not monotone, larger intervals may break the limit. With streamed_iteration() every larger
/// interval meets it too. Up to `layers` calls.
[[nodiscard]] std::optional<std::int32_t> exact_interval(std::int32_t layers, Duration limit,
                                                         const std::function<Duration(std::int32_t)>& iteration);
/// The same for streamed_iteration() and an SLO of (1 + delta) * layers * compute.
[[nodiscard]] std::optional<std::int32_t> exact_interval(std::int32_t layers, Duration compute, Duration transfer,
                                                         double delta);

/// Times of an iteration of one batch and sequence length.
struct LayerTiming {
  Duration compute{};   // of one layer
  Duration transfer{};  // of one layer's weights, from host to GPU
  Duration before{};    // of the work before the first layer
  Duration after{};     // of the work after the last layer
};

/// The entries of a record, each axis from its minimum to its maximum, both included. Batch sizes and sequence lengths
/// are powers of two, SLOs are multiples of kSloStep.
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
  Duration slo{};          // as asked for, not rounded
  Duration unoffloaded{};  // an iteration of this entry with every layer on the GPU: the best time
  /// The smallest interval that the SLO allows; kAllResident when it allows no offloading; empty when the SLO is below
  /// `unoffloaded`, so no interval meets it.
  std::optional<std::int32_t> min_interval{};
};

/// The smallest interval for every batch size, sequence length and SLO, of one phase (prefill, with time to first
/// token as SLO, or decode, with time per token: Select-N serves them on instances of their own) and one model on one
/// GPU and link. Filled once, by the offline analyser.
///
/// Source: Select-N, Table 1. Filling takes O(batches * sequences * (SLOs + layers)) time and one call of the
/// timing per batch and sequence; memory is 4 bytes an entry; a lookup is O(1).
class PerformanceRecord {
 public:
  using Timing = std::function<LayerTiming(std::int64_t batch, Tokens sequence)>;

  /// An iteration takes before + streamed_iteration() + after. The paper's formula gets what the SLO leaves beside
  /// `before` and `after`. Throws InvariantError when an axis is off its grid or empty.
  PerformanceRecord(RecordKind kind, std::int32_t layers, const RecordAxes& axes, const Timing& timing);

  /// For values between and beyond the entries, the nearest entry that errs on the safe side, which is the larger
  /// interval; empty when the record has none on that side. Which side it is depends on how the SLO is meant, provided
  /// that no time falls as batch or sequence grow and the transfer's stays:
  ///
  ///  * An SLO that is a time: more work leaves less of it for the stalls, so batch and sequence are rounded up. None
  ///    above the largest batch or sequence; below the smallest, that one.
  ///  * An SLO that is a margin over the iteration's own best time, 1 + delta times it: more work hides more of the
  ///    transfers, so batch and sequence are rounded down, and the margin is applied to that entry's best time
  ///    (Select-N's rule). None below the smallest batch or sequence; above the largest, that one.
  ///
  /// The SLO is rounded down to the grid; above the largest it is that one, and below the smallest nothing may be
  /// offloaded that costs time. Whether it can be met at all is judged before it is rounded.
  [[nodiscard]] std::optional<RecordEntry> at_slo(std::int64_t batch, Tokens sequence, Duration slo) const;
  [[nodiscard]] std::optional<RecordEntry> at_margin(std::int64_t batch, Tokens sequence, double delta) const;

 private:
  [[nodiscard]] RecordEntry entry(std::int64_t batch, std::int64_t sequence, Duration slo) const;
  [[nodiscard]] std::size_t row(std::int64_t batch, std::int64_t sequence) const;

  RecordAxes axes_;
  std::int64_t slos_ = 0;                  // entries per row
  std::vector<Duration> unoffloaded_{};    // per row: a batch and a sequence
  std::vector<std::int32_t> unstalled_{};  // per row: the smallest interval that costs no time
  std::vector<std::int32_t> intervals_{};
};

/// The tightest of the SLOs of a batch's requests, which is what the whole batch has to meet; at least one.
[[nodiscard]] Duration tightest_slo(std::span<const Duration> slos);

/// Memory of a GPU, and its parts other than KV.
struct WeightMemory {
  Bytes gpu{};    // for the engine
  Bytes layer{};  // weights of one layer
  std::int32_t layers = 0;
  Bytes embeddings{};   // and every other weight outside the layers
  Bytes activations{};  // the most that an iteration takes
  bool double_buffer = false;

  /// Layers' worth of weights on the GPU: those that live there, and the staging buffers.
  [[nodiscard]] std::int32_t gpu_layers(std::int32_t interval) const {
    return layers - host_layers(layers, interval) + staging_buffers(layers, interval, double_buffer);
  }
  /// Memory that an interval leaves to KV; negative when weights and activations alone do not fit.
  [[nodiscard]] Bytes room(std::int32_t interval) const {
    return gpu - gpu_layers(interval) * layer - embeddings - activations;
  }
};

/// The largest interval with which `kv` bytes fit, kAllResident when they do beside every layer; empty when they do not
/// even at interval 1. Every smaller one fits too: none needs more than a larger one. Source: Select-N, Fig. 8.
/// O(layers).
[[nodiscard]] std::optional<std::int32_t> max_interval(const WeightMemory& memory, Bytes kv);

/// KV that fits at an interval, >= 0, and whole tokens of it: Select-N's maximum allocatable length (Fig. 14). O(1).
[[nodiscard]] Bytes max_kv(const WeightMemory& memory, std::int32_t interval);
[[nodiscard]] Tokens max_kv_tokens(const WeightMemory& memory, std::int32_t interval, Bytes per_token);

/// The limit that keeps a request out.
enum class Bound {
  none,
  slo,            // no interval meets the SLO: it is below the best time
  memory,         // no interval leaves enough memory
  slo_and_memory  // every interval that meets the SLO leaves too little memory
};

/// Whether a request can be served, and at which intervals.
struct IntervalChoice {
  /// The smallest allowed interval: most weights on the host, most free memory on the GPU. An instance with a link of
  /// its own uses it.
  std::optional<std::int32_t> interval{};
  /// The largest allowed; all between them are. Coordinating several GPUs on one link chooses among these.
  std::optional<std::int32_t> largest{};
  Bound bound = Bound::none;
  std::string reason{};  // of a rejection, one sentence with its figures; else empty
};

/// The SLO's smallest interval against memory's largest one, for the KV of everything that is to run, the request
/// included. Source: Select-N, Fig. 8. O(layers); allocates only for a rejection.
[[nodiscard]] IntervalChoice choose_interval(const RecordEntry& entry, const WeightMemory& memory, Bytes kv);

}  // namespace spillway
