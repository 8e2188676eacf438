#include "sim/engine/iteration_runner.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace spillway {

IterationRunner::IterationRunner(const ExecutionModel& model, const KvLayout& kv)
    : model_(model), kv_(kv), executor_(model.copy_sharing()) {
  part(kRequestCopies).rule = &copies_;
}

void IterationRunner::stream_layers(const Policy& policy) {
  layers_ = part(kLayerCopies).policy = policy.layers.get();
  part(kWeightCopies).policy = policy.weights.get();
  several_ = policy.weights || kv_.host_blocks > Blocks(0) || kv_.host_cache_blocks > Blocks(0);
  executor_ = Executor(model_.copy_sharing(), this);
  const std::optional<LinkTraffic>& traffic = policy.traffic;
  if (!traffic) return;
  // Two flows share a link max-min fairly: the other traffic takes what it needs, up to half.
  const double left = std::max(0.5, 1.0 - traffic->share);
  constexpr std::int64_t kParts = 1'000'000;
  link_changes_ = {{traffic->until, {}},
                   {traffic->from, {kParts, static_cast<std::int64_t>(std::floor(left * kParts + 0.5))}}};
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
  if (!several_) return part(kLayerCopies).rule;
  for (std::int32_t owner = 0; owner < kCopyOwners; ++owner) rules_.set(owner, part(owner).rule);
  return &rules_;
}

void IterationRunner::stop_layers() {
  for (Part& one : parts_) {
    if (one.policy != nullptr) one.rule = nullptr;
  }
}

const ExecutedIteration& IterationRunner::run(const BatchShape& shape, SimTime start, Blocks stored) {
  result_ = ExecutedIteration{.start = start};
  time_sub_batches(shape);
  for (Part& one : parts_) {
    if (one.policy != nullptr) one.rule = one.policy->begin(shape, times_.layer);
  }
  queue_copies(stored);
  const IterationPlan plan{model_.layers(), sub_batches_, rule()};
  const Duration stalled = executor_.use(Stream::compute).stall;
  for (std::int32_t owner = 0; owner < kCopyOwners; ++owner) part(owner).stall = executor_.held(owner);
  const LinkBytes before = issued();
  const LinkTimes busy{executor_.use(Stream::h2d).busy, executor_.use(Stream::d2h).busy};
  result_.end = execute(plan);
  for (std::int32_t owner = 0; owner < kCopyOwners; ++owner) {
    part(owner).stall = executor_.held(owner) - part(owner).stall;
  }
  result_.request_stall = part(kRequestCopies).stall;
  result_.layer_stall = executor_.use(Stream::compute).stall - stalled - result_.request_stall;
  if (copies_.held_by() == Stream::d2h) result_.requests_wait_for = Resource::d2h;
  if (layers_ != nullptr) {
    result_.issued = issued_since(before) + std::exchange(between_, {});
    // A layer that is waited for comes in. When the way out was busy for longer, the layer had to wait for its room.
    const Duration in = executor_.use(Stream::h2d).busy - busy.h2d;
    const Duration out = executor_.use(Stream::d2h).busy - busy.d2h;
    if (out > in) result_.layers_wait_for = Resource::d2h;
  }
  return result_;
}

void IterationRunner::report(LayerReport report) {
  for (const Part& one : parts_) {
    if (one.policy == nullptr) continue;
    report.stall = one.stall;
    one.policy->iteration_ended(report);
  }
}

void IterationRunner::change_link() {
  const Slowdown slowdown = link_changes_.back().slowdown;
  for (const Stream stream : {Stream::h2d, Stream::d2h}) executor_.set_slowdown(stream, slowdown.num, slowdown.den);
  link_changes_.pop_back();
}

void IterationRunner::go_on(SimTime now) {
  while (!link_changes_.empty() && link_changes_.back().at <= now) {
    executor_.run_copies(rule(), std::max(link_changes_.back().at, executor_.now()));
    change_link();
  }
  executor_.run_copies(rule(), now);
}

SimTime IterationRunner::execute(const IterationPlan& plan) {
  LinkTimes at_start;
  if (layers_ != nullptr || !link_changes_.empty()) go_on(result_.start);
  if (layers_ != nullptr) {
    at_start = copying();
    result_.copied_before = {at_start.h2d - copied_at_end_.h2d, at_start.d2h - copied_at_end_.d2h};
  }
  executor_.begin(plan, result_.start);
  RunOutcome outcome;
  while (!outcome.finished) {
    outcome = executor_.run(plan, link_changes_.empty() ? kNever : link_changes_.back().at);
    if (!outcome.finished) change_link();
  }
  if (layers_ != nullptr) {
    copied_at_end_ = copying();
    result_.copying = {copied_at_end_.h2d - at_start.h2d, copied_at_end_.d2h - at_start.d2h};
  }
  return outcome.time;
}

std::int64_t IterationRunner::take_stored(SimTime now) {
  const LinkBytes before = issued();
  if (layers_ != nullptr || !copies_.none()) go_on(now);
  between_ = between_ + issued_since(before);
  return copies_.take_background_done();
}

LinkTimes IterationRunner::copied_until(SimTime now) {
  if (layers_ == nullptr || now <= executor_.now()) return {};
  stop_layers();
  executor_.run_copies(rule(), now);
  return {executor_.copying(Stream::h2d) - copied_at_end_.h2d, executor_.copying(Stream::d2h) - copied_at_end_.d2h};
}

LinkBytes IterationRunner::issued() const { return {executor_.issued(Stream::h2d), executor_.issued(Stream::d2h)}; }

LinkBytes IterationRunner::drain() {
  stop_layers();
  executor_.run_copies(rule(), kNever);
  return {executor_.use(Stream::h2d).bytes, executor_.use(Stream::d2h).bytes};
}

}  // namespace spillway
