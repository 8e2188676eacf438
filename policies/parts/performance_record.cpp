#include "policies/parts/performance_record.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "sim/core/error.hpp"

namespace spillway {
namespace {

std::uint64_t bits(std::int64_t value) { return static_cast<std::uint64_t>(value); }
bool power_of_two(std::int64_t value) { return value > 0 && std::has_single_bit(bits(value)); }
/// log2(high / low) of two powers of two.
std::int64_t doublings(std::int64_t low, std::int64_t high) {
  return std::countr_zero(bits(high)) - std::countr_zero(bits(low));
}

std::optional<std::int32_t> paper_interval_within(std::int32_t layers, Duration limit, Duration transfer) {
  const std::int64_t copies = transfer == Duration{} ? layers : std::min<std::int64_t>(layers, limit / transfer);
  if (copies <= 0) return std::nullopt;
  return layers / static_cast<std::int32_t>(copies);
}

double ms(Duration duration) { return static_cast<double>(duration.count()) / 1e6; }
double gb(Bytes bytes) { return static_cast<double>(bytes.count()) / 1e9; }

std::string requirement(const WeightMemory& memory, std::int32_t interval, Bytes kv) {
  return fmt::format(
      "{} layers of {:.3f} GB, {:.3f} GB of embeddings, {:.3f} GB of activations and {:.3f} GB of KV take {:.3f} GB of "
      "the GPU's {:.3f} GB",
      memory.gpu_layers(interval), gb(memory.layer), gb(memory.embeddings), gb(memory.activations), gb(kv),
      gb(memory.gpu - memory.room(interval) + kv), gb(memory.gpu));
}

std::string named(std::int32_t interval) {
  return interval == kAllResident ? std::string("all layers on the GPU")
                                  : fmt::format("offloading interval {}", interval);
}

IntervalChoice rejection(Bound bound, std::string reason) { return {.bound = bound, .reason = std::move(reason)}; }

}  // namespace

Duration relative_slo(Duration unoffloaded, double delta) {
  SPILLWAY_CHECK(delta >= 0.0, fmt::format("an SLO of {} times the best time", 1.0 + delta));
  return unoffloaded +
         Duration(static_cast<std::int64_t>(std::floor(static_cast<double>(unoffloaded.count()) * delta + 0.5)));
}

std::optional<std::int32_t> paper_interval(std::int32_t layers, Duration compute, Duration transfer, double delta) {
  return paper_interval_within(layers, relative_slo(layers * compute, delta), transfer);
}

std::optional<std::int32_t> exact_interval(std::int32_t layers, Duration limit,
                                           const std::function<Duration(std::int32_t)>& iteration) {
  for (std::int32_t interval = 1; interval <= layers; ++interval) {
    if (iteration(interval) <= limit) return interval;
  }
  return std::nullopt;
}

std::optional<std::int32_t> exact_interval(std::int32_t layers, Duration compute, Duration transfer, double delta) {
  return exact_interval(layers, relative_slo(layers * compute, delta),
                        [&](std::int32_t interval) { return streamed_iteration(layers, interval, compute, transfer); });
}

PerformanceRecord::PerformanceRecord(RecordKind kind, std::int32_t layers, const RecordAxes& axes, const Timing& timing)
    : axes_(axes) {
  SPILLWAY_CHECK(layers >= 1, fmt::format("a model of {} layers", layers));
  SPILLWAY_CHECK(power_of_two(axes.min_batch) && power_of_two(axes.max_batch) && axes.min_batch <= axes.max_batch,
                 fmt::format("batches {} to {}", axes.min_batch, axes.max_batch));
  const std::int64_t shortest = axes.min_sequence.count();
  const std::int64_t longest = axes.max_sequence.count();
  SPILLWAY_CHECK(power_of_two(shortest) && power_of_two(longest) && shortest <= longest,
                 fmt::format("sequences {} to {}", shortest, longest));
  const auto on_grid = [](Duration slo) { return slo.count() % kSloStep.count() == 0; };
  SPILLWAY_CHECK(
      Duration{} <= axes.min_slo && axes.min_slo <= axes.max_slo && on_grid(axes.min_slo) && on_grid(axes.max_slo),
      fmt::format("SLOs of {} ms to {} ms", ms(axes.min_slo), ms(axes.max_slo)));

  slos_ = (axes.max_slo - axes.min_slo) / kSloStep + 1;
  for (std::int64_t batch = axes.min_batch; batch <= axes.max_batch; batch *= 2) {
    for (std::int64_t sequence = shortest; sequence <= longest; sequence *= 2) {
      const LayerTiming times = timing(batch, Tokens(sequence));
      const Duration others = times.before + times.after;
      const Duration unoffloaded = others + layers * times.compute;
      unoffloaded_.push_back(unoffloaded);
      const auto unstalled = exact_interval(layers, times.compute, times.transfer, 0.0);
      unstalled_.push_back(kind == RecordKind::exact ? unstalled.value_or(kAllResident) : kAllResident);
      // A looser SLO allows every offloading interval that a tighter SLO allows, and no smaller interval takes less
      // time.
      std::int32_t exact = layers + 1;
      for (Duration slo = axes.min_slo; slo <= axes.max_slo; slo += kSloStep) {
        const Duration limit = slo - others;
        while (exact > 1 && streamed_iteration(layers, exact - 1, times.compute, times.transfer) <= limit) --exact;
        std::optional<std::int32_t> interval;
        if (kind == RecordKind::exact) {
          if (exact <= layers) interval = exact;
        } else if (slo >= unoffloaded) {
          interval = paper_interval_within(layers, limit, times.transfer);
        }
        intervals_.push_back(interval.value_or(kAllResident));
      }
    }
  }
}

std::optional<RecordEntry> PerformanceRecord::at_slo(std::int64_t batch, Tokens sequence, Duration slo) const {
  if (batch > axes_.max_batch || sequence > axes_.max_sequence) return std::nullopt;
  const std::int64_t most = std::max(batch, axes_.min_batch);
  const Tokens longest = std::max(sequence, axes_.min_sequence);
  return entry(static_cast<std::int64_t>(std::bit_ceil(bits(most))),
               static_cast<std::int64_t>(std::bit_ceil(bits(longest.count()))), slo);
}

std::optional<RecordEntry> PerformanceRecord::at_margin(std::int64_t batch, Tokens sequence, double delta) const {
  if (batch < axes_.min_batch || sequence < axes_.min_sequence) return std::nullopt;
  const auto least = static_cast<std::int64_t>(std::bit_floor(bits(std::min(batch, axes_.max_batch))));
  const Tokens within = std::min(sequence, axes_.max_sequence);
  const auto shortest = static_cast<std::int64_t>(std::bit_floor(bits(within.count())));
  return entry(least, shortest, relative_slo(unoffloaded_[row(least, shortest)], delta));
}

RecordEntry PerformanceRecord::entry(std::int64_t batch, std::int64_t sequence, Duration slo) const {
  const std::size_t at = row(batch, sequence);
  RecordEntry found{batch, Tokens(sequence), slo, unoffloaded_[at], std::nullopt};
  if (slo < found.unoffloaded) return found;
  found.min_interval = kAllResident;
  if (slo >= axes_.min_slo) {
    const std::int64_t step = (std::min(slo, axes_.max_slo) - axes_.min_slo) / kSloStep;
    found.min_interval = intervals_[at * static_cast<std::size_t>(slos_) + static_cast<std::size_t>(step)];
  }
  // An offloading interval without stalls meets every SLO that can be met, even an SLO that the grid rounds below the
  // best time.
  found.min_interval = std::min(*found.min_interval, unstalled_[at]);
  return found;
}

std::size_t PerformanceRecord::row(std::int64_t batch, std::int64_t sequence) const {
  const std::int64_t sequences = doublings(axes_.min_sequence.count(), axes_.max_sequence.count()) + 1;
  return static_cast<std::size_t>(doublings(axes_.min_batch, batch) * sequences +
                                  doublings(axes_.min_sequence.count(), sequence));
}

Duration tightest_slo(std::span<const Duration> slos) {
  SPILLWAY_CHECK(!slos.empty(), "a batch has a request");
  return *std::min_element(slos.begin(), slos.end());
}

std::optional<std::int32_t> max_interval(const WeightMemory& memory, Bytes kv) {
  if (memory.room(kAllResident) >= kv) return kAllResident;
  for (std::int32_t interval = memory.layers; interval >= 1; --interval) {
    if (memory.room(interval) >= kv) return interval;
  }
  return std::nullopt;
}

Bytes max_kv(const WeightMemory& memory, std::int32_t interval) { return std::max(Bytes(0), memory.room(interval)); }

Tokens max_kv_tokens(const WeightMemory& memory, std::int32_t interval, Bytes per_token) {
  return Tokens(max_kv(memory, interval) / per_token);
}

IntervalChoice choose_interval(const RecordEntry& entry, const WeightMemory& memory, Bytes kv) {
  if (!entry.min_interval) {
    return rejection(Bound::slo,
                     fmt::format("the SLO of {:.3f} ms is below the {:.3f} ms that an iteration of batch "
                                 "{} and sequence {} takes with every layer on the GPU",
                                 ms(entry.slo), ms(entry.unoffloaded), entry.batch, entry.sequence.count()));
  }
  const std::optional<std::int32_t> largest = max_interval(memory, kv);
  if (!largest) {
    return rejection(Bound::memory, fmt::format("at offloading interval 1, {}", requirement(memory, 1, kv)));
  }
  const std::int32_t smallest = *entry.min_interval;
  if (smallest > *largest) {
    return rejection(Bound::slo_and_memory,
                     fmt::format("the SLO of {:.3f} ms, {:.3f} ms above the best time of batch {} and sequence {}, "
                                 "needs {}{}, but the memory needs interval {} or less: with {}, {}",
                                 ms(entry.slo), ms(entry.slo - entry.unoffloaded), entry.batch, entry.sequence.count(),
                                 named(smallest), smallest == kAllResident ? "" : " or more", *largest, named(smallest),
                                 requirement(memory, smallest, kv)));
  }
  return {.interval = smallest, .largest = largest};
}

}  // namespace spillway
