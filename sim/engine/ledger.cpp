#include "sim/engine/ledger.hpp"

#include <algorithm>
#include <string>

#include "sim/core/error.hpp"

namespace spillway {
namespace {

__extension__ using Wide = __int128;  // holds every product of two int64

/// The share of `amount` that `part` has in `whole`, rounded down; all of it when there is nothing to cut.
std::int64_t share(std::int64_t amount, Duration part, Duration whole) {
  if (part >= whole) return amount;
  return static_cast<std::int64_t>(Wide{amount} * part.count() / whole.count());
}
Duration share(Duration amount, Duration part, Duration whole) { return Duration(share(amount.count(), part, whole)); }
Bytes share(Bytes amount, Duration part, Duration whole) { return Bytes(share(amount.count(), part, whole)); }

}  // namespace

void Ledger::stream_layers(Blocks gpu_blocks) {
  streams_layers_ = true;
  totals_ = zero();
  capacities_.push_back({SimTime{}, gpu_blocks});
}

EngineTotals Ledger::zero() const {
  EngineTotals totals;
  if (streams_layers_) totals.layers.emplace();
  return totals;
}

bool Ledger::advance(SimTime now, SimTime span_begin, const Levels& levels) {
  const bool begins = !measuring_ && now >= span_begin;
  if (begins) {
    measuring_ = true;
    begin_ = span_begin;
    totals_ = zero();
    idle_ = IdleTime{};
    unspent_ = 0.0;
    advanced_ = std::max(advanced_, begin_);
  }
  const double seconds = to_seconds(now - advanced_);
  advanced_ = now;
  if (seconds <= 0.0) return begins;
  totals_.peak_kv = std::max(totals_.peak_kv, levels.gpu_used);
  totals_.peak_host_kv = std::max(totals_.peak_host_kv, levels.host_used);
  totals_.peak_waiting = std::max(totals_.peak_waiting, levels.waiting);
  if (streams_layers_) advance_layers(seconds, levels);
  const double waiting_time = static_cast<double>(levels.waiting) * seconds;
  const double kv_time = static_cast<double>(levels.gpu_used.count()) * seconds;
  const double host_kv_time = static_cast<double>(levels.host_used.count()) * seconds;
  const double cached_time = static_cast<double>(levels.cached) * seconds;
  if (!running_) {
    idle_.cached += cached_time;
    idle_.peak_cached = std::max(idle_.peak_cached, levels.cached);
    idle_.seconds += seconds;
    idle_.waiting += waiting_time;
    idle_.kv += kv_time;
    idle_.host_kv += host_kv_time;
    return begins;
  }
  totals_.waiting_time += waiting_time;
  totals_.kv_time += kv_time;
  totals_.host_kv_time += host_kv_time;
  totals_.cached_time += cached_time;
  totals_.peak_cached = std::max(totals_.peak_cached, levels.cached);
  totals_.busy_time += seconds;
  totals_.batch_time += static_cast<double>(levels.running) * seconds;
  totals_.peak_batch = std::max(totals_.peak_batch, levels.running);
  if (iteration_.end == kNever) {
    unspent_ += seconds;
    return begins;
  }
  spend_time(seconds);
  return begins;
}

void Ledger::advance_layers(double seconds, const Levels& levels) {
  const auto capacity = static_cast<double>(levels.gpu_total.count());
  const auto used = static_cast<double>(levels.gpu_used.count());
  totals_.peak_kv_fraction = std::max(totals_.peak_kv_fraction, used / capacity);
  LayerTotals& layers = *totals_.layers;
  layers.peak_capacity = std::max(layers.peak_capacity, levels.gpu_total);
  layers.last_capacity = levels.gpu_total;
  (running_ ? layers.capacity_time : idle_.capacity) += capacity * seconds;
}

void Ledger::count_idle_time() {
  if (idle_.seconds == 0.0) return;
  totals_.resource_time[static_cast<std::size_t>(Resource::load)] += idle_.seconds;
  totals_.waiting_time += idle_.waiting;
  totals_.kv_time += idle_.kv;
  totals_.host_kv_time += idle_.host_kv;
  totals_.cached_time += idle_.cached;
  totals_.peak_cached = std::max(totals_.peak_cached, idle_.peak_cached);
  if (streams_layers_) totals_.layers->capacity_time += idle_.capacity;
  idle_ = IdleTime{};
}

void Ledger::started(SimTime now) {
  count_idle_time();
  previous_end_ = iteration_.end;
  iteration_.start = now;
  iteration_.end = kNever;
  running_ = true;
}

void Ledger::executed(const ExecutedIteration& iteration, bool short_of_kv) {
  iteration_.end = iteration.end;
  iteration_.copies = streams_layers_ || iteration.issued != LinkBytes{} || iteration.copying.kv > Duration{};
  if (iteration_.copies) {
    copied_.layer_stall = iteration.layer_stall;
    copied_.request_stall = iteration.request_stall;
    copied_.issued = iteration.issued;
    copied_.copying = iteration.copying;
    copied_.bubbles = iteration.bubbles;
    copied_.cpu_busy = iteration.cpu_busy;
    charged_ = charged_ + iteration.issued;
  }
  book_copying(iteration.copied_before, previous_end_, iteration.start, iteration.start, totals_.kv_copied_idle);
  spend(iteration, short_of_kv);
  if (unspent_ == 0.0) return;
  spend_time(unspent_);
  unspent_ = 0.0;
}

void Ledger::spend(const ExecutedIteration& iteration, bool short_of_kv) {
  spending_.fill(0.0);
  if (short_of_kv) spending_short_of_kv_.fill(0.0);
  short_of_kv_ = short_of_kv;
  on_gpu_ = in_layers_ = 0.0;
  const Duration length = iteration.end - iteration.start;
  const double seconds = to_seconds(length);
  if (seconds <= 0.0) return;
  // A run that ends within an iteration has done only a part of what the iteration was to do.
  const double computing = to_seconds(length - iteration.stall() - iteration.cpu_attention) - iteration.shares.host;
  on_gpu_ = std::max(0.0, computing / seconds);
  in_layers_ = std::max(0.0, to_seconds(length - iteration.around) / seconds);
  auto* spending = &spending_;
  const auto spend_on = [&](Resource resource, double share_seconds) {
    if (share_seconds == 0.0) return;  // most resources take no part in an iteration, and a division is slow
    (*spending)[static_cast<std::size_t>(resource)] += share_seconds / seconds;
  };
  spend_on(iteration.layers_wait_for, to_seconds(iteration.layer_stall));
  spend_on(iteration.requests_wait_for, to_seconds(iteration.request_stall));
  if (iteration.cpu_stall.sum() > Duration{}) {
    spend_on(Resource::d2h, to_seconds(iteration.cpu_stall.queries));
    spend_on(Resource::cpu_attention, to_seconds(iteration.cpu_stall.attention));
    spend_on(Resource::h2d, to_seconds(iteration.cpu_stall.outputs));
  }
  spend_on(Resource::cpu_experts, to_seconds(iteration.expert_stall));
  // Work that copies slow down waits for the memory that they read and write.
  spend_on(Resource::memory, to_seconds(length - iteration.stall() - iteration.alone));
  if (short_of_kv) {
    // More memory would let more requests share this time, whatever it was spent on.
    spend_on(Resource::kv_capacity, to_seconds(iteration.alone));
    spending = &spending_short_of_kv_;
  }
  spend_on(Resource::compute, iteration.shares.compute);
  spend_on(Resource::memory, iteration.shares.memory);
  spend_on(Resource::network, iteration.shares.network);
  spend_on(Resource::host, iteration.shares.host);
  spend_on(Resource::cpu_attention, to_seconds(iteration.cpu_attention));
}

void Ledger::ended() {
  book_iteration(iteration_.end);
  running_ = false;
  ++totals_.iterations;
}

void Ledger::book_iteration(SimTime end) {
  if (!iteration_.copies) return;
  const Duration length = iteration_.end - iteration_.start;
  const Duration part = std::max(Duration{}, end - std::max(iteration_.start, begin_));
  totals_.moved_h2d += share(copied_.issued.h2d, part, length);
  totals_.moved_d2h += share(copied_.issued.d2h, part, length);
  totals_.moved_peer_in += share(copied_.issued.peer_in, part, length);
  totals_.moved_peer_out += share(copied_.issued.peer_out, part, length);
  totals_.read_by_cpu += share(copied_.issued.cpu, part, length);
  totals_.kv_waited_for += share(copied_.request_stall, part, length);
  book_copying(copied_.copying, iteration_.start, end, iteration_.end, totals_.kv_copied_beside);
  if (streams_layers_) totals_.layers->stall_time += to_seconds(share(copied_.layer_stall, part, length));
  if (copied_.cpu_busy == Duration{}) return;
  if (!totals_.on_cpu) totals_.on_cpu.emplace();
  CpuAttentionTotals& on_cpu = *totals_.on_cpu;
  on_cpu.busy += share(copied_.cpu_busy, part, length);
  for (std::size_t i = 0; i < on_cpu.bubbles.size(); ++i) {
    on_cpu.bubbles[i] += share(copied_.bubbles[i], part, length);
  }
}

void Ledger::book_copying(const LinkTimes& copying, SimTime start, SimTime end, SimTime whole_end, Duration& kv) {
  if (!streams_layers_ && copying.kv == Duration{}) return;
  const Duration part = std::max(Duration{}, end - std::max(start, begin_));
  kv += share(copying.kv, part, whole_end - start);
  if (!streams_layers_) return;
  totals_.layers->h2d_busy += share(copying.h2d, part, whole_end - start);
  totals_.layers->d2h_busy += share(copying.d2h, part, whole_end - start);
}

void Ledger::stop(SimTime now, const LinkTimes& copied) {
  if (running_) {
    book_iteration(now);
  } else {
    count_idle_time();
    book_copying(copied, iteration_.end, now, now, totals_.kv_copied_idle);
  }
}

void Ledger::rest_until(SimTime end, SimTime span_begin, const Levels& levels) {
  if (advanced_ <= end) {
    advance(end, span_begin, levels);
  } else {
    const double beyond = to_seconds(advanced_ - end);
    idle_ = IdleTime{.seconds = std::max(0.0, idle_.seconds - beyond)};
  }
  count_idle_time();
}

void Ledger::preempted(Leave how) {
  ++(how == Leave::preempt_swap ? totals_.preempted_swap : totals_.preempted_recompute);
}

void Ledger::asked_prefix(Tokens asked, const Hit& hit) {
  totals_.prefix_asked += asked;
  totals_.prefix_hit += hit.all;
  totals_.prefix_hit_host += hit.on_host;
  totals_.prefix_hit_disk += hit.on_disk;
}

void Ledger::asked_history(Tokens asked, Tokens on_gpu, Tokens on_host) {
  totals_.history_asked += asked;
  totals_.history_on_gpu += on_gpu;
  totals_.history_on_host += on_host;
}

void Ledger::capacity_changed(SimTime now, Blocks capacity) {
  if (capacities_.size() <= LayerTotals::kMostChanges) capacities_.push_back({now, capacity});
}

void Ledger::check_links(const LinkBytes& carried, const LinkBytes& after_them) const {
  const LinkBytes all = charged_ + after_them;
  const auto text = [](const LinkBytes& bytes) {
    return std::to_string(bytes.h2d.count()) + " bytes from the host, " + std::to_string(bytes.d2h.count()) +
           " to it, " + std::to_string(bytes.peer_in.count()) + " from other GPUs and " +
           std::to_string(bytes.peer_out.count()) + " to them, and the CPU read " + std::to_string(bytes.cpu.count());
  };
  SPILLWAY_CHECK(carried == all,
                 "the links carried " + text(carried) + "; the iterations were charged with " + text(all));
}

EngineTotals Ledger::totals() const {
  EngineTotals totals = measuring_ ? totals_ : zero();
  if (totals.layers) totals.layers->changes = capacities_;
  return totals;
}

}  // namespace spillway
