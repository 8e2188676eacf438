#include "sim/engine/iteration_runner.hpp"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

namespace spillway {
namespace {

/// Starts copies at once.
class Starting final : public CopySink {
 public:
  explicit Starting(Executor& executor) : executor_(executor) {}
  void issue(const Copy& copy) override { executor_.start_copy(copy); }

 private:
  Executor& executor_;
};

/// Tells the instance's observer alone.
class Telling final : public CopyObserver {
 public:
  explicit Telling(InstanceObserver& observer) : observer_(observer) {}
  void copied(const Copy& copy, SimTime started, SimTime ended) override { observer_.copied(copy, started, ended); }
  void waited(Wait what, SimTime from, SimTime until) override { observer_.waited(what, from, until); }

 private:
  InstanceObserver& observer_;
};

Resource link_of(Stream stream) {
  if (stream == Stream::h2d) return Resource::h2d;
  return stream == Stream::d2h ? Resource::d2h : Resource::peer;
}

}  // namespace

IterationRunner::IterationRunner(const ExecutionModel& model, const KvLayout& kv, const TierGraph& graph,
                                 Surroundings surroundings)
    : surroundings_(std::move(surroundings)),
      model_(model),
      clock_(model.sustained_clock()),
      cache_is_lent_(kv.cache_is_lent),
      several_kinds_(model.layer_kinds().several()),
      executor_(make_executor()),
      kv_(kv),
      graph_(graph) {
  part(kRequestCopies).rule = &copies_;
}

Executor IterationRunner::make_executor() {
  const CopySharing sharing = model_.copy_sharing();
  return {CopyLinks(sharing, surroundings_.route, surroundings_.links), sharing.compute,
          layers_ != nullptr || observer_ != nullptr ? this : nullptr, surroundings_.others_copy};
}

void IterationRunner::went_round(const CopyRounds& rounds) {
  // The policy knows: its rule has skipped them.
  if (observer_ != nullptr) Telling(*observer_).went_round(rounds);
}

void IterationRunner::stream_layers(const Policy& policy) {
  layers_ = part(kLayerCopies).policy = policy.layers.get();
  part(kWeightCopies).policy = policy.weights.get();
  several_ =
      policy.weights || kv_.host_blocks > Blocks(0) || kv_.host_cache_blocks > Blocks(0) || !kv_.further.tiers.empty();
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

IterationTime IterationRunner::time_of(const BatchShape& shape, Duration cpu_attention, Times& sums) {
  IterationTime time = model_.iteration(shape);
  const std::int32_t layers = model_.layers();
  sums.least += model_.least(time);
  clock_.slow(time, layers);
  const Duration on_cpu = cpu_attention * layers;
  sums.before += time.before;
  sums.layer += time.layer + cpu_attention;
  sums.after += time.after;
  sums.all_layers += (several_kinds_ ? model_.all_layers(time) : time.layer * layers) + on_cpu;
  sums.shares.compute += time.shares.compute;
  sums.shares.memory += time.shares.memory;
  sums.shares.network += time.shares.network;
  sums.shares.host += time.shares.host;
  sums.cpu_attention += on_cpu;
  return time;
}

void IterationRunner::add_sub_batch(const BatchShape& shape, Duration cpu_attention) {
  IterationTime time = time_of(shape, cpu_attention, times_);
  if (layers_ != nullptr) add_compute(time);
  sub_batches_.push_back({time.before, LayerTimes(time.layer + cpu_attention), time.after});
  if (several_kinds_) {
    for (Duration& kind : time.kinds) kind += cpu_attention;
    kinds_.push_back(time.kinds);
  }
  attention_of_.push_back(time.attention);
  if (observer_ != nullptr)
    report_sub_batch(shape, time.before + (sub_batches_.size() == 1 ? memory_busy_ : Duration{}));
}

void IterationRunner::add_compute(const IterationTime& time) {
  if (several_kinds_) {
    const LayerKinds& kinds = model_.layer_kinds();
    for (std::size_t kind = 0; kind < kMostLayerKinds; ++kind) {
      compute_.kinds[kind] += time.kinds[kind] * kinds.layers[kind];
    }
  } else {
    compute_.kinds.front() += time.layer * model_.layers();
  }
  compute_.attention += time.attention * model_.layers();
}

void IterationRunner::report_sub_batch(const BatchShape& shape, Duration before) {
  SubBatchWork work{.decodes = shape.decodes(),
                    .decodes_on_cpu = shape.cpu_sequences,
                    .context = shape.decode_context + shape.cpu_context,
                    .before = before};
  for (const PrefillChunk& chunk : shape.chunks) work.prompt += chunk.new_tokens;
  observer_->sub_batch(work);
}

Duration IterationRunner::make_up(Times& sums) {
  const Duration busy = std::exchange(memory_busy_, {});
  sums.before += busy;
  sums.shares.memory += to_seconds(busy);
  return busy;
}

void IterationRunner::fill(ExecutedIteration& iteration, const Times& sums) {
  iteration.layer = sums.layer;
  iteration.alone = sums.before + sums.all_layers + sums.after;
  iteration.around = sums.before + sums.after;
  iteration.shares = sums.shares;
  iteration.cpu_attention = sums.cpu_attention;
}

void IterationRunner::time_sub_batches(std::span<const BatchShape> shapes) {
  times_ = {};
  compute_ = {};
  sub_batches_.clear();
  attention_of_.clear();
  kinds_.clear();
  if (layers_ != nullptr && shapes.size() == 1) {
    for (const SubBatchShape& part : layers_->split(shapes.front())) add_sub_batch(part.shape, part.cpu_attention);
  }
  if (sub_batches_.empty()) {
    for (const BatchShape& shape : shapes) add_sub_batch(shape, Duration{});
  }
  if (memory_busy_ > Duration{}) sub_batches_.front().before += make_up(times_);
}

void IterationRunner::tell_layers_apart() {
  const std::vector<std::uint8_t>& kinds = model_.layer_kinds().of_layer;
  layer_times_.clear();
  for (const auto& times : kinds_) {
    for (const std::uint8_t kind : kinds) layer_times_.push_back(times[kind]);
  }
  for (std::size_t s = 0; s < sub_batches_.size(); ++s) {
    sub_batches_[s].gpu = LayerTimes(std::span(layer_times_).subspan(s * kinds.size(), kinds.size()));
  }
}

// While the CPU attends for a sub-batch, the GPU attends for it, too, and computes the next one.
void IterationRunner::attend_beside_next() {
  for (std::size_t s = 0; s + 1 < sub_batches_.size(); ++s) {
    const Duration moved = attention_of_[s];
    sub_batches_[s].gpu = LayerTimes(sub_batches_[s].gpu.at(0) - moved);
    sub_batches_[s + 1].gpu = LayerTimes(sub_batches_[s + 1].gpu.at(0) + moved);
  }
}

void IterationRunner::prepare_cpu_attention(std::span<const BatchShape> shapes) {
  SPILLWAY_CHECK(sub_batches_.size() == shapes.size(), "sub-batches that attend on the CPU are split further");
  attend_beside_next();
  attention_work_.clear();
  for (const BatchShape& shape : shapes) {
    CpuAttentionWork& work = attention_work_.emplace_back();
    if (shape.cpu_sequences == 0) continue;
    const CpuAttentionTime time = model_.cpu_attention(shape.cpu_sequences, shape.cpu_context);
    const auto copy = [this](Stream stream, Bytes bytes) -> Copy {
      const CopyTime alone = model_.copy(stream, 1, bytes, CopyMechanism::single);
      return {.stream = stream, .bytes = bytes, .launch = alone.launch, .transfer = alone.transfer};
    };
    work = {.queries = copy(Stream::d2h, time.queries),
            .attention = {.stream = Stream::cpu, .bytes = time.kv, .launch = time.launch, .transfer = time.attention},
            .outputs = copy(Stream::h2d, time.outputs)};
  }
  attention_.begin(attention_work_);
  part(kCpuAttention).rule = &attention_;
}

void IterationRunner::move(std::size_t route, const Move& move, std::int32_t ticket) {
  // What is waited for goes as one copy; what is not ends on its own.
  const auto one_copy = [&](const Pending& other) {
    return other.route == route && other.mechanism == move.mechanism && other.waits == move.waits &&
           other.in_turn == move.in_turn;
  };
  const auto same = ticket < 0 ? std::ranges::find_if(moves_, one_copy) : moves_.end();
  if (same != moves_.end()) {
    same->blocks += move.range.count();
  } else {
    moves_.push_back({route, move.mechanism, move.waits, move.yields, move.in_turn, move.range.count(), ticket});
  }
}

Duration IterationRunner::start_time(std::size_t route, const Move& move) const {
  const Route& way = graph_.routes[route];
  const std::int64_t blocks = move.range.count().count();
  return model_.copy_start(way.stream, way.copies_per_block * blocks, kv_.block_bytes * blocks, move.mechanism);
}

Copy IterationRunner::copy_of(Stream stream, Bytes all_bytes, Blocks blocks, std::int64_t copies_per_block,
                              CopyMechanism mechanism, std::int32_t share, std::int32_t shares) const {
  const auto part = [&](std::int64_t all) {
    const std::int64_t each = all / shares;
    return share + 1 < shares ? each : all - each * (shares - 1);
  };
  const bool gathered = mechanism == CopyMechanism::gather || mechanism == CopyMechanism::single;
  const std::int64_t copies = gathered ? 1 : std::max<std::int64_t>(1, part(copies_per_block * blocks.count()));
  const Bytes bytes(part(all_bytes.count()));
  const CopyTime time = model_.copy(stream, copies, bytes, mechanism);
  return {.stream = stream,
          .layer = share,
          .bytes = bytes,
          .launch = time.launch,
          .transfer = time.transfer,
          .owner = kRequestCopies};
}

void IterationRunner::queue(const Pending& move) {
  const Route& route = graph_.routes[move.route];
  const auto copy = [&](std::int32_t share, std::int32_t shares) {
    return copy_of(route.stream, move.blocks, route.copies_per_block, move.mechanism, share, shares);
  };
  if (move.waits == Waits::iteration) {
    copies_.add(copy(0, 1), move.in_turn);
  } else if (move.waits == Waits::layers) {
    for (std::int32_t layer = 0; layer < model_.layers(); ++layer) copies_.add_for_layer(copy(layer, model_.layers()));
  } else if (move.yields) {
    copies_.add_yielding(copy(0, 1), move.ticket);
  } else {
    copies_.add_background(copy(0, 1), move.ticket);
  }
}

void IterationRunner::queue_copies(Blocks stored) {
  if (moves_.empty() && loaded_ + stored + leaving_blocks_ == Blocks(0)) return;
  const bool in_order = std::ranges::is_sorted(moves_, {}, &Pending::route);
  if (!in_order) std::ranges::stable_sort(moves_, {}, &Pending::route);
  for (const Pending& move : moves_) queue(move);
  moves_.clear();
  const std::int64_t copies_per_block = kv_.host_cache_copies_per_block;
  const CopyMechanism mechanism = kv_.host_cache_mechanism;
  if (loaded_ > Blocks(0)) {
    const Stream in = loads_lent_ ? Stream::peer_in : Stream::h2d;
    copies_.add(copy_of(in, std::exchange(loaded_, Blocks(0)), copies_per_block, mechanism));
  }
  if (stored > Blocks(0)) {
    const Stream out = cache_is_lent_ ? Stream::peer_out : Stream::d2h;
    copies_.add_background(copy_of(out, stored, copies_per_block, mechanism), kStored);
  }
  if (leaving_blocks_ > Blocks(0)) send_computed();
}

void IterationRunner::send_computed() {
  const Bytes bytes(quotient(kv_.block_bytes.count() * leaving_tokens_.count(), kv_.block_tokens.count()));
  for (std::int32_t layer = 0; layer < model_.layers(); ++layer) {
    copies_.add_after_layer(copy_of(Stream::d2h, bytes, leaving_blocks_, kv_.copies_per_block, CopyMechanism::many,
                                    layer, model_.layers()));
  }
  leaving_tokens_ = Tokens(0);
  leaving_blocks_ = Blocks(0);
}

void IterationRunner::start_moves(SimTime now) {
  const auto waited_for = [](const Pending& move) { return move.ticket < 0; };
  if (std::ranges::all_of(moves_, waited_for)) return;
  std::ranges::stable_sort(moves_, {}, &Pending::route);
  const auto beside = std::stable_partition(moves_.begin(), moves_.end(), waited_for);
  std::for_each(beside, moves_.end(), [this](const Pending& move) { queue(move); });
  moves_.erase(beside, moves_.end());
  copy_and_charge(now);
  const LinkBytes before = issued();
  Starting starting(executor_);
  copies_.issue_background(starting);
  between_ = between_ + issued_since(before);
}

SimTime IterationRunner::next_copy_event() const {
  const SimTime copy = executor_.next_copy_event();
  return copy == kNever ? kNever : std::min(copy, next_change());
}

LayerRule* IterationRunner::rule() {
  if (part(kCpuAttention).rule == nullptr) {
    if (layers_ == nullptr) return copies_.none() ? nullptr : &copies_;
    if (!several_) return part(kLayerCopies).rule;
  }
  for (std::int32_t owner = 0; owner < kCopyOwners; ++owner) rules_.set(owner, part(owner).rule);
  return &rules_;
}

void IterationRunner::stop_layers() {
  for (Part& one : parts_) {
    if (one.policy != nullptr) one.rule = nullptr;
  }
}

ExecutedIteration IterationRunner::run(std::span<const BatchShape> shapes, SimTime start, Blocks stored) {
  if (only_computes(shapes, stored)) return run_alone(shapes, start);
  prepare(shapes, start);
  begin_prepared(shapes, stored);
  go_to(kNever);
  return result_;
}

ExecutedIteration IterationRunner::run_alone(std::span<const BatchShape> shapes, SimTime start) {
  if (std::exchange(attends_on_cpu_, false)) part(kCpuAttention).rule = nullptr;
  clock_.start(start);
  Times sums;
  for (const BatchShape& shape : shapes) {
    const IterationTime time = time_of(shape, Duration{}, sums);
    if (observer_ != nullptr) report_sub_batch(shape, time.before);
  }
  if (memory_busy_ > Duration{}) make_up(sums);
  ExecutedIteration iteration{.start = start};
  fill(iteration, sums);
  least_ = sums.least;
  iteration.end = executor_.run_alone(start, iteration.alone);
  iteration.copied_before.kv = executor_.copying_for_requests() - copied_at_end_.kv;
  copied_at_end_.kv += iteration.copied_before.kv;
  if (between_ != LinkBytes{}) iteration.issued = std::exchange(between_, {});
  return iteration;
}

void IterationRunner::prepare(std::span<const BatchShape> shapes, SimTime start) {
  result_ = ExecutedIteration{.start = start};
  least_ = {};
  clock_.start(start);
  time_sub_batches(shapes);
  fill(result_, times_);
  part(kCpuAttention).rule = nullptr;
  const auto on_cpu = [](const BatchShape& shape) { return shape.cpu_sequences > 0; };
  attends_on_cpu_ = std::ranges::any_of(shapes, on_cpu);
  if (attends_on_cpu_) prepare_cpu_attention(shapes);
}

void IterationRunner::begin_prepared(std::span<const BatchShape> shapes, Blocks stored) {
  const SimTime start = result_.start;
  if (draw_ != nullptr) draw_->begin(shapes.front());
  if (layers_ != nullptr) {
    for (Part& one : parts_) {
      if (one.policy != nullptr) one.rule = one.policy->begin(shapes.front(), compute_);
    }
  }
  queue_copies(stored);
  if (!kinds_.empty()) tell_layers_apart();
  plan_ = {model_.layers(), sub_batches_, rule()};
  copies_count_ = layers_ != nullptr || plan_.rule != nullptr;
  if (copies_count_) {
    at_start_.stalled = executor_.use(Stream::compute).stall;
    at_start_.waited = executor_.waited();
    at_start_.bubbles = executor_.bubbles();
    at_start_.cpu_busy = executor_.copying(Stream::cpu);
    at_start_.worked = executor_.worked_in_layers();
    at_start_.issued = issued();
  }
  if (layers_ != nullptr) at_start_.busy = busy_links();
  if (layers_ != nullptr || !link_changes_.empty()) copy_until(start);
  executor_.begin(plan_, start);
  at_start_.copying = copying();
  result_.copied_before = at_start_.copying - copied_at_end_;
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
      copied_at_end_ = copying();
      between_ = {};
      return true;
    }
    if (next_change() > until) return false;
    change_link();
  }
}

void IterationRunner::account(SimTime end) {
  result_.end = end;
  result_.issued = between_;
  if (!copies_count_) return;
  const auto waited = [this](Wait wait) {
    const auto i = static_cast<std::size_t>(wait);
    return executor_.waited()[i] - at_start_.waited[i];
  };
  part(kWeightCopies).stall = waited(Wait::weights);
  part(kLayerCopies).stall = waited(Wait::layers);
  result_.request_stall = waited(Wait::requests);
  result_.cpu_stall = {waited(Wait::queries), waited(Wait::cpu_attention), waited(Wait::outputs)};
  for (std::size_t i = 0; i < result_.bubbles.size(); ++i) {
    result_.bubbles[i] = executor_.bubbles()[i] - at_start_.bubbles[i];
  }
  if (part(kCpuAttention).rule != nullptr) result_.cpu_busy = executor_.copying(Stream::cpu) - at_start_.cpu_busy;
  result_.expert_stall = waited(Wait::experts);
  const Executor::Worked& worked = executor_.worked_in_layers();
  const Duration experts = worked.all - at_start_.worked.all;
  const double arithmetic = to_seconds(worked.arithmetic - at_start_.worked.arithmetic);
  result_.alone += experts;
  result_.shares.compute += arithmetic;
  result_.shares.memory += to_seconds(experts) - arithmetic;
  result_.layer_stall = Duration{};
  result_.layer_stall = executor_.use(Stream::compute).stall - at_start_.stalled - result_.stall();
  result_.requests_wait_for = link_of(copies_.waited_on());
  result_.issued = result_.issued + issued_since(at_start_.issued);
  result_.copying = copying() - at_start_.copying;
  if (layers_ == nullptr) return;
  // A layer that is waited for comes in. When the way out was busy for longer, the layer had to wait for its room.
  const Busy now = busy_links();
  const Duration in = now.h2d - at_start_.busy.h2d;
  const Duration out = now.d2h - at_start_.busy.d2h;
  if (out > in) result_.layers_wait_for = Resource::d2h;
  if (now.peer - at_start_.busy.peer > std::max(in, out)) result_.layers_wait_for = Resource::peer;
}

const ExecutedIteration& IterationRunner::cut(SimTime now) {
  if (go_to(now)) return result_;
  account(now);
  between_ = {};
  return result_;
}

SimTime IterationRunner::next_event() const {
  if (finished_) return result_.end;
  const SimTime own = running_ ? executor_.next_event(plan_) : executor_.next_event();
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

void IterationRunner::report(LayerReport report) {
  for (const Part& one : parts_) {
    if (one.policy == nullptr) continue;
    report.stall = one.stall;
    one.policy->iteration_ended(report);
  }
}

const std::vector<std::int32_t>& IterationRunner::take_ended(SimTime now) {
  if (layers_ != nullptr || !copies_.none()) copy_and_charge(now);
  return copies_.take_ended();
}

LinkTimes IterationRunner::copied_until(SimTime now) {
  if (now < executor_.now()) return {};
  stop_layers();
  copy_and_charge(now);
  return copying() - copied_at_end_;
}

LinkBytes IterationRunner::issued() const {
  return {executor_.issued(Stream::h2d), executor_.issued(Stream::d2h), executor_.issued(Stream::peer_in),
          executor_.issued(Stream::peer_out), executor_.issued(Stream::cpu)};
}

LinkBytes IterationRunner::drain() {
  stop_layers();
  copies_.stop();
  LayerRule* const last = rule();
  // An iteration that was cut attends no further on the CPU.
  if (std::exchange(part(kCpuAttention).rule, nullptr) != nullptr) rules_.set(kCpuAttention, nullptr);
  executor_.run_copies(last, kNever);
  return {executor_.use(Stream::h2d).bytes, executor_.use(Stream::d2h).bytes, executor_.use(Stream::peer_in).bytes,
          executor_.use(Stream::peer_out).bytes, executor_.use(Stream::cpu).bytes};
}

}  // namespace spillway
