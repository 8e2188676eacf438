#include "sim/engine/iteration_runner.hpp"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

namespace spillway {

IterationRunner::IterationRunner(const ExecutionModel& model, const KvLayout& kv, Surroundings surroundings)
    : model_(model), kv_(kv), surroundings_(std::move(surroundings)), executor_(make_executor()) {}

Executor IterationRunner::make_executor() {
  const CopySharing sharing = model_.copy_sharing();
  return {CopyLinks(sharing, surroundings_.route, surroundings_.links), sharing.compute,
          layers_ != nullptr ? this : nullptr, surroundings_.others_copy};
}

void IterationRunner::stream_layers(LayerPolicy& layers) {
  layers_ = &layers;
  executor_ = make_executor();
}

void IterationRunner::set_traffic(std::span<const LinkTraffic> traffic) {
  std::set<SimTime, std::greater<>> instants;
  for (const LinkTraffic& flow : traffic) instants.insert({flow.from, flow.until});
  instants.erase(kNever);
  for (const SimTime at : instants) {
    LinkChange& change = link_changes_.emplace_back(LinkChange{.at = at});
    for (const LinkTraffic& flow : traffic) {
      if (flow.from <= at && at < flow.until) change.shares.push_back(flow.share);
    }
  }
}

void IterationRunner::add_sub_batch(const BatchShape& shape, Duration cpu_attention) {
  const IterationTime time = model_.iteration(shape);
  const Duration layer = time.layer + cpu_attention;
  sub_batches_.push_back({time.before, LayerTimes(layer), LayerTimes(), time.after});
  times_.before += time.before;
  times_.layer += layer;
  times_.after += time.after;
  times_.shares.compute += time.shares.compute;
  times_.shares.memory += time.shares.memory;
  times_.shares.network += time.shares.network;
  times_.shares.host += time.shares.host;
  result_.cpu_attention += cpu_attention * model_.layers();
}

void IterationRunner::time_sub_batches(const BatchShape& shape) {
  times_ = IterationTime{};
  sub_batches_.clear();
  if (layers_ != nullptr) {
    for (const SubBatchShape& part : layers_->split(shape)) add_sub_batch(part.shape, part.cpu_attention);
  }
  if (sub_batches_.empty()) add_sub_batch(shape, Duration{});
  result_.layer = times_.layer;
  result_.alone = times_.before + times_.layer * model_.layers() + times_.after;
  result_.shares = times_.shares;
}

void IterationRunner::queue_copies(Blocks stored) {
  if (swapped_in_ + swapped_out_ + loaded_ + stored == Blocks(0)) return;
  const auto queue = [this](Stream stream, Blocks blocks, std::int64_t copies_per_block, bool blocking) {
    if (blocks.count() == 0) return;
    const Bytes bytes = kv_.block_bytes * blocks.count();
    const CopyTime time = model_.copy(stream, copies_per_block * blocks.count(), bytes, CopyMechanism::many);
    const Copy copy{stream, 0, 0, bytes, time.launch, time.transfer};
    (stream == Stream::h2d ? result_.issued.h2d : result_.issued.d2h) += bytes;
    blocking ? copies_.add(copy) : copies_.add_background(copy);
  };
  queue(Stream::h2d, std::exchange(swapped_in_, Blocks(0)), kv_.copies_per_block, true);
  queue(Stream::d2h, std::exchange(swapped_out_, Blocks(0)), kv_.copies_per_block, true);
  queue(Stream::h2d, std::exchange(loaded_, Blocks(0)), kv_.host_cache_copies_per_block, true);
  queue(Stream::d2h, stored, kv_.host_cache_copies_per_block, false);
}

LayerRule* IterationRunner::rule() {
  if (layers_ == nullptr) return copies_.none() ? nullptr : &copies_;
  const bool alone = kv_.host_blocks == Blocks(0) && kv_.host_cache_blocks == Blocks(0);
  if (alone) return layer_rule_;
  both_.set(kLayerCopies, layer_rule_);
  both_.set(kRequestCopies, &copies_);
  return &both_;
}

void IterationRunner::begin(const BatchShape& shape, SimTime start, Blocks stored) {
  result_ = ExecutedIteration{.start = start};
  time_sub_batches(shape);
  if (layers_ != nullptr) layer_rule_ = layers_->begin(shape, times_.layer);
  queue_copies(stored);
  plan_ = {model_.layers(), sub_batches_, rule()};
  at_start_.stalled = executor_.use(Stream::compute).stall;
  at_start_.held = executor_.held(kRequestCopies);
  if (layers_ != nullptr || surroundings_.others_copy) {
    at_start_.issued = issued();
    at_start_.busy = {executor_.use(Stream::h2d).busy, executor_.use(Stream::d2h).busy};
  }
  if (layers_ != nullptr || !link_changes_.empty()) copy_until(start);
  if (layers_ != nullptr) {
    at_start_.copying = copying();
    result_.copied_before = {at_start_.copying.h2d - copied_at_end_.h2d, at_start_.copying.d2h - copied_at_end_.d2h};
  }
  executor_.begin(plan_, start);
  running_ = true;
  finished_ = false;
}

bool IterationRunner::go_to(SimTime until) {
  if (!running_) {
    if (!finished_) copy_and_charge(until);
    return finished_;
  }
  for (;;) {
    const RunOutcome outcome = executor_.run(plan_, std::min(until, next_change()));
    if (outcome.finished) {
      account(outcome.time);
      running_ = false;
      finished_ = true;
      if (layers_ != nullptr) copied_at_end_ = copying();
      between_ = {};
      return true;
    }
    if (next_change() > until) return false;
    change_link();
  }
}

void IterationRunner::account(SimTime end) {
  result_.end = end;
  result_.request_stall = executor_.held(kRequestCopies) - at_start_.held;
  result_.layer_stall = executor_.use(Stream::compute).stall - at_start_.stalled - result_.request_stall;
  if (copies_.held_by() == Stream::d2h) result_.requests_wait_for = Resource::d2h;
  if (layers_ == nullptr) return;
  result_.issued = issued_since(at_start_.issued) + between_;
  // A layer that is waited for comes in. When the way out was busy for longer, the layer had to wait for its room.
  const Duration in = executor_.use(Stream::h2d).busy - at_start_.busy.h2d;
  const Duration out = executor_.use(Stream::d2h).busy - at_start_.busy.d2h;
  if (out > in) result_.layers_wait_for = Resource::d2h;
  const LinkTimes now = copying();
  result_.copying = {now.h2d - at_start_.copying.h2d, now.d2h - at_start_.copying.d2h};
}

const ExecutedIteration& IterationRunner::cut(SimTime now) {
  if (go_to(now)) return result_;
  account(now);
  result_.issued = issued_since(at_start_.issued) + between_;
  between_ = {};
  return result_;
}

SimTime IterationRunner::next_event() const {
  if (finished_) return result_.end;
  const SimTime own = executor_.next_event();
  return running_ || own != kNever ? std::min(own, next_change()) : kNever;
}

void IterationRunner::settle(SimTime now) {
  if (running_) {
    while (!go_to(now) && executor_.end_instant(plan_.rule)) {
    }
    return;
  }
  copy_and_charge(now, true);
}

void IterationRunner::change_link() {
  executor_.set_traffic(std::move(link_changes_.back().shares));
  link_changes_.pop_back();
}

void IterationRunner::copy_until(SimTime now) {
  while (next_change() <= now) {
    executor_.run_copies(rule(), std::max(next_change(), executor_.now()));
    change_link();
  }
  executor_.run_copies(rule(), now);
}

void IterationRunner::copy_and_charge(SimTime now, bool instant_is_over) {
  const LinkBytes before = issued();
  copy_until(now);
  if (instant_is_over) executor_.end_instant(rule());
  between_ = between_ + issued_since(before);
}

std::int64_t IterationRunner::take_stored(SimTime now) {
  if (layers_ != nullptr || !copies_.none()) copy_and_charge(now);
  return copies_.take_background_done();
}

LinkTimes IterationRunner::copied_until(SimTime now) {
  if (layers_ == nullptr || now < executor_.now()) return {};
  layer_rule_ = nullptr;  // it starts no copies that no iteration is charged with
  executor_.run_copies(rule(), now);
  return {executor_.copying(Stream::h2d) - copied_at_end_.h2d, executor_.copying(Stream::d2h) - copied_at_end_.d2h};
}

LinkBytes IterationRunner::issued() const { return {executor_.issued(Stream::h2d), executor_.issued(Stream::d2h)}; }

LinkBytes IterationRunner::drain() {
  layer_rule_ = nullptr;
  executor_.run_copies(rule(), kNever);
  return {executor_.use(Stream::h2d).bytes, executor_.use(Stream::d2h).bytes};
}

}  // namespace spillway
