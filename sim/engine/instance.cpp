// How an instance runs an iteration and keeps the books.
#include "sim/engine/instance.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace spillway {
namespace {

constexpr std::int64_t kMostSilentIterations = 1'000'000;
std::string blocks_text(Blocks blocks) { return std::to_string(blocks.count()) + " KV blocks"; }

constexpr auto kLater = [](const auto& a, const auto& b) { return a.step > b.step; };

}  // namespace

Instance::Instance(const SimulationConfig& config, MetricsCollector& metrics)
    : model_(*config.model),
      kv_(config.kv),
      deployment_(config.deployment),
      metrics_(metrics),
      source_(*config.source),
      on_request_(config.on_request),
      policy_name_(config.policy->name),
      members_(config.kv.block_tokens, config.kv.prefix_caching),
      executor_(config.model->copy_sharing()) {
  block_tokens_ = kv_.block_tokens;
  max_model_len_ = config.max_model_len;
  tiers_[0] = TierState{kv_.gpu_blocks, kv_.gpu_blocks, kv_.most()};
  tiers_[1] = TierState{kv_.host_blocks, kv_.host_blocks, kv_.host_blocks};
  if (kv_.prefix_caching) cached_ = std::make_unique<CachedBlocks>(kv_.gpu_blocks);
  if (kv_.prefix_caching && kv_.host_cache_blocks > Blocks(0)) {
    host_ = std::make_unique<HostCache>(kv_.host_cache_blocks);
  }
  policy_ = config.policy->make(PolicyContext{*config.settings, *this, deployment_});
  SPILLWAY_CHECK(!policy_.padding || (!cached_ && policy_.phases == Phases::both),
                 "padded requests have no prefix cache and no phases");
  if (!policy_.layers) return;
  capacities_.push_back({SimTime{}, kv_.gpu_blocks});
  executor_ = Executor(config.model->copy_sharing(), this);
  SPILLWAY_CHECK(!host_ && kv_.host_blocks == Blocks(0),
                 "a policy that streams layers has the links to itself: no KV can be swapped or kept on the host");
  if (!policy_.traffic) return;
  // Two flows share a link max-min fairly: the other one takes what it needs, up to half.
  const double left = std::max(0.5, 1.0 - policy_.traffic->share);
  constexpr std::int64_t kParts = 1'000'000;
  link_changes_ = {{policy_.traffic->until, {}},
                   {policy_.traffic->from, {kParts, static_cast<std::int64_t>(std::floor(left * kParts + 0.5))}}};
}

// --- arrivals and departures
// ------------------------------------------------------------------------------------------

RequestId Instance::submit(const RequestSpec& spec, std::uint32_t serial, SimTime now) {
  advance(now);
  now_ = now;
  RequestSlot slot;
  slot.arrival = now;
  slot.serial = serial;
  slot.client = spec.client;
  slot.input = static_cast<std::int32_t>(spec.input.count());
  slot.output = static_cast<std::int32_t>(spec.output.count());
  slot.max_new = static_cast<std::int32_t>(spec.max_new_tokens.count());
  if (policy_.phases == Phases::prefill) slot.output = slot.max_new = 1;
  slot.details = keep_details(spec);
  const RequestId id = table_.add(slot);
  totals_.peak_waiting = std::max(totals_.peak_waiting, waiting());
  const std::optional<Padding>& padding = policy_.padding;
  const bool longer = padding && (spec.input > padding->input || spec.max_new_tokens > padding->output);
  // A prefill instance answers with one token, so it needs capacity for no more.
  if (longer || spec.input + Tokens(slot.max_new) > max_model_len_) {
    end_request(id, Outcome::rejected, now);
  } else {
    table_[id].client_number = fairness_.arrived(spec.client, now);
    policy_.scheduler->arrived(request(id));
  }
  return id;
}

std::int32_t Instance::keep_details(const RequestSpec& spec) {
  const bool shares = cached_ && !spec.prefix_ids.empty();
  if (!shares && spec.traits == RequestTraits()) return -1;
  if (free_details_.empty()) {
    free_details_.push_back(static_cast<std::int32_t>(details_.size()));
    details_.emplace_back();
  }
  const std::int32_t index = free_details_.back();
  free_details_.pop_back();
  Details& details = details_[static_cast<std::size_t>(index)];
  details.traits = spec.traits;
  details.prefix_ids.clear();
  if (shares) details.prefix_ids = spec.prefix_ids;
  return index;
}

void Instance::expire(RequestId id, SimTime now) {
  if (!table_.alive(id)) return;
  const std::int32_t m = table_[id].member;
  const bool in_batch = m >= 0 && (members_[m].phase == Phase::decoding || members_[m].phase == Phase::prefilling);
  if (busy_ && in_batch) {
    expired_.push_back(id);
    return;
  }
  advance(now);
  now_ = now;
  if (in_batch) {
    finish_member(m, Outcome::timed_out, now);
  } else {
    end_request(id, Outcome::timed_out, now);
    policy_.scheduler->ended(id, Outcome::timed_out);
  }
}

void Instance::finish_member(std::int32_t m, Outcome outcome, SimTime now) {
  if (members_[m].phase == Phase::decoding) {
    if (policy_.padding) {
      end_answer(m);
    } else {
      fairness_.stopped_decoding(members_[m].client_number);
    }
    members_.stop_decoding(m, Phase::prefilling);
  }
  const RequestId id = members_[m].id;
  release_blocks(m);
  members_.unlink(m);
  promised_ -= Blocks(members_[m].promised);
  end_request(id, outcome, now);
  policy_.scheduler->ended(id, outcome);
}

void Instance::end_request(RequestId id, Outcome outcome, SimTime now) {
  const RequestSlot slot = table_[id];
  bool in_batch = false;
  if (slot.member >= 0) {
    Member& member = members_[slot.member];
    in_batch = member.phase == Phase::decoding || member.phase == Phase::prefilling;
    if (member.phase == Phase::swapped) tiers_[static_cast<std::size_t>(Tier::host)].free += Blocks(member.held);
    record(slot, &member, outcome, now);
    members_.destroy(slot.member);
  } else {
    record(slot, nullptr, outcome, now);
  }
  if (slot.client_number >= 0) fairness_.ended(slot.client_number, in_batch, now);
  if (slot.details >= 0) free_details_.push_back(slot.details);
  table_.remove(id);
}

void Instance::record(const RequestSlot& slot, const Member* member, Outcome outcome, SimTime now) {
  RequestRecord record;
  record.index = slot.serial;
  record.client = slot.client;
  record.outcome = outcome;
  record.arrival = slot.arrival;
  record.end = now;
  record.input = Tokens(slot.input);
  record.output = Tokens(slot.output);
  if (slot.details >= 0) record.traits = details_[static_cast<std::size_t>(slot.details)].traits;
  if (member != nullptr) {
    record.first_scheduled = member->first_scheduled;
    record.first_token = member->first_token;
    record.computing = members_.computing(*member);
    record.generated = std::min(record.output, Tokens(members_.known(*member) - member->input));
    record.cached = member->cached;
    record.preempted_recompute = member->preempted_recompute;
    record.preempted_swap = member->preempted_swap;
  }
  if (outcome == Outcome::rejected && !first_rejected_) first_rejected_ = record;
  metrics_.ended(record);
  if (on_request_) on_request_(record);
  source_.ended(record);
}

void Instance::stop(SimTime now) {
  advance(now);
  count_idle_time();
  for (const RequestId id : table_.all()) {
    const bool given_up = std::find(expired_.begin(), expired_.end(), id) != expired_.end();
    end_request(id, given_up ? Outcome::timed_out : Outcome::unfinished, now);
  }
}

void Instance::idles_for_ever() const {
  broken(kNothing, "idle", "no event is to come and " + oldest() + " is unfinished");
}

std::string Instance::oldest() const {
  const std::vector<RequestId> live = table_.all();
  return live.empty() ? "none" : "request " + std::to_string(live.front().serial);
}

// --- one iteration
// ----------------------------------------------------------------------------------------------------

std::optional<SimTime> Instance::decide(SimTime now) {
  SPILLWAY_CHECK(!busy_, "a decision during an iteration");
  advance(now);
  now_ = now;
  if (host_) collect_stored(now);
  // A decision that only takes requests out of the batch (the last one preempts itself, say) is followed by another.
  std::int64_t tries_left = 2 * table_.live() + 2;
  while (!stage()) {
    if (!changed_) {
      if (policy_.layers && members_.size() == 0 && waiting() > 0 && policy_.layers->expand()) {
        tries_left = 2 * table_.live() + 2;
        continue;
      }
      if (!idle_ && table_.live() > 0)
        broken(kNothing, "run nothing", oldest() + " is unfinished and idle() was not called");
      return std::nullopt;
    }
    if (--tries_left <= 0) {
      broken(kProgress, "take requests out again and again", "nothing ran and " + oldest() + " is stuck");
    }
  }
  if (++silent_iterations_ > kMostSilentIterations) {
    broken(kProgress, "run " + std::to_string(kMostSilentIterations) + " iterations without a token",
           oldest() + " is stuck");
  }
  count_idle_time();
  busy_ = true;
  start_ = now;
  ++totals_.iterations;
  totals_.peak_batch = std::max(totals_.peak_batch, members_.size());
  return run(shape());
}

bool Instance::stage() {
  staged_decodes_ = -1;
  chunk_members_.clear();
  idle_ = false;
  changed_ = false;
  blocked_.reset();
  refresh();
  if (policy_.layers) resize_gpu();
  policy_.scheduler->decide(*this, *policy_.space, *this);
  if (staged_decodes_ < 0) decodes(members_.decoding());
  return staged_decodes_ > 0 || !chunk_members_.empty();
}

BatchShape Instance::shape() {
  BatchShape shape;
  shape.decode_sequences = staged_decodes_;
  if (staged_decodes_ == members_.decoding()) {
    shape.decode_context = Tokens(members_.decode_context());
    shape.decode_longest = Tokens(members_.longest_decode());
  } else {
    visit_decodes(staged_decodes_, [&](std::int32_t m) {
      const Tokens attended(members_.computed(members_[m]) + 1);
      shape.decode_context += attended;
      shape.decode_longest = std::max(shape.decode_longest, attended);
    });
  }
  shape.sampled_sequences = staged_decodes_;
  chunks_.clear();
  for (const std::int32_t m : chunk_members_) {
    const Member& member = members_[m];
    if (member.delivered) {
      const Tokens attended(member.computed + 1);
      ++shape.decode_sequences;
      shape.decode_context += attended;
      shape.decode_longest = std::max(shape.decode_longest, attended);
    } else {
      chunks_.push_back(PrefillChunk{Tokens(member.staged), Tokens(member.computed)});
    }
    if (member.computed + member.staged == member.known) ++shape.sampled_sequences;
  }
  shape.chunks = chunks_;
  return shape;
}

void Instance::queue_copies() {
  const auto queue = [this](Stream stream, Blocks blocks, std::int64_t copies_per_block, bool blocking) {
    if (blocks.count() == 0) return;
    const Bytes bytes = kv_.block_bytes * blocks.count();
    const CopyTime time = model_.copy(stream, copies_per_block * blocks.count(), bytes, CopyMechanism::many);
    const Copy copy{stream, 0, 0, bytes, time.launch, time.transfer};
    (stream == Stream::h2d ? totals_.moved_h2d : totals_.moved_d2h) += bytes;
    charged_[stream == Stream::h2d ? 0 : 1] += bytes;
    blocking ? copies_.add(copy) : copies_.add_background(copy);
  };
  queue(Stream::h2d, moves_[0], kv_.copies_per_block, true);
  queue(Stream::d2h, moves_[1], kv_.copies_per_block, true);
  moves_ = {};
  if (!host_) return;
  queue(Stream::h2d, std::exchange(loads_, Blocks(0)), kv_.host_cache_copies_per_block, true);
  queue(Stream::d2h, host_->take_stores(), kv_.host_cache_copies_per_block, false);
}

void Instance::collect_stored(SimTime now) {
  executor_.run_copies(&copies_, now);
  for (std::int64_t done = copies_.take_background_done(); done > 0; --done) host_->stored();
}

void Instance::store_named(SimTime now) {
  collect_stored(now);
  for (const BlockHash hash : named_) host_->store(hash);
  named_.clear();
}

void Instance::add_sub_batch(const BatchShape& shape, Duration cpu_attention, IterationTime& sum) {
  const IterationTime time = model_.iteration(shape);
  sub_batches_.push_back({time.before, LayerTimes(time.layer + cpu_attention), LayerTimes(), time.after});
  sum.before += time.before;
  sum.layer += time.layer + cpu_attention;
  sum.after += time.after;
  sum.shares.compute += time.shares.compute;
  sum.shares.memory += time.shares.memory;
  sum.shares.network += time.shares.network;
  sum.shares.host += time.shares.host + to_seconds(cpu_attention * model_.layers());
}

IterationTime Instance::time_sub_batches(const BatchShape& shape) {
  IterationTime sum;
  sub_batches_.clear();
  if (policy_.layers) {
    for (const SubBatchShape& part : policy_.layers->split(shape)) add_sub_batch(part.shape, part.cpu_attention, sum);
  }
  if (sub_batches_.empty()) add_sub_batch(shape, Duration{}, sum);
  return sum;
}

SimTime Instance::run(const BatchShape& batch) {
  const IterationTime time = time_sub_batches(batch);
  IterationPlan plan{model_.layers(), sub_batches_, nullptr};
  Resource link = Resource::h2d;
  if (policy_.layers) {
    plan.rule = policy_.layers->begin(batch, time.layer);
  } else {
    queue_copies();
    if (!copies_.none()) plan.rule = &copies_;
  }
  const Duration stalled = executor_.use(Stream::compute).stall;
  const std::array<Bytes, 2> moved{executor_.issued(Stream::h2d), executor_.issued(Stream::d2h)};
  const std::array<Duration, 2> busy{executor_.use(Stream::h2d).busy, executor_.use(Stream::d2h).busy};
  const SimTime end = execute(plan);
  const Duration stall = executor_.use(Stream::compute).stall - stalled;
  const std::array<Duration, 2> worked{executor_.use(Stream::h2d).busy - busy[0],
                                       executor_.use(Stream::d2h).busy - busy[1]};
  if (policy_.layers) {
    layer_report_ = LayerReport{.layer = time.layer, .stall = stall};
    if (!totals_.layers) totals_.layers.emplace();
    totals_.layers->stall_time += to_seconds(stall);
    totals_.layers->h2d_busy += worked[0];
    totals_.layers->d2h_busy += worked[1];
    totals_.moved_h2d += executor_.issued(Stream::h2d) - moved[0];
    totals_.moved_d2h += executor_.issued(Stream::d2h) - moved[1];
    // A layer that is waited for comes in; it could not before another was out, when that direction worked for longer.
    if (worked[1] > worked[0]) link = Resource::d2h;
  } else if (copies_.held_by() == Stream::d2h) {
    link = Resource::d2h;
  }
  account(time, end - start_, stall, link);
  return end;
}

void Instance::change_link() {
  const Slowdown slowdown = link_changes_.back().slowdown;
  for (const Stream stream : {Stream::h2d, Stream::d2h}) executor_.set_slowdown(stream, slowdown.num, slowdown.den);
  link_changes_.pop_back();
}

SimTime Instance::execute(const IterationPlan& plan) {
  while (!link_changes_.empty() && link_changes_.back().at <= start_) {
    executor_.run_copies(plan.rule, std::max(link_changes_.back().at, executor_.now()));
    change_link();
  }
  executor_.begin(plan, start_);
  while (!link_changes_.empty()) {
    const RunOutcome outcome = executor_.run(plan, link_changes_.back().at);
    if (outcome.finished) return outcome.time;
    change_link();
  }
  return executor_.run(plan, kNever).time;
}

void Instance::resize_gpu() {
  TierState& gpu = tiers_[0];
  const Blocks capacity = policy_.layers->capacity();
  if (capacity == gpu.total) return;
  if (cached_) broken(kOffer, "offer " + blocks_text(capacity), "the capacity must not change beside a prefix cache");
  if (capacity > gpu.most)
    broken(kOffer, "offer " + blocks_text(capacity), "its layout announced " + blocks_text(gpu.most));
  gpu.free += capacity - gpu.total;
  gpu.total = capacity;
  if (capacities_.size() <= LayerTotals::kMostChanges) capacities_.push_back({now_, capacity});
}

void Instance::report_layers(Duration length) {
  layer_report_.length = length;
  layer_report_.tokens = tokens_;
  layer_report_.prefills = !chunks_.empty();
  layer_report_.waiting = waiting();
  layer_report_.free_share =
      static_cast<double>(std::max(tiers_[0].free, Blocks(0)).count()) / static_cast<double>(tiers_[0].total.count());
  policy_.layers->iteration_ended(layer_report_);
}

EngineTotals Instance::totals() const {
  EngineTotals totals = measuring_ ? totals_ : EngineTotals{};
  if (!policy_.layers) return totals;
  if (!totals.layers) totals.layers.emplace();
  totals.layers->resident_blocks = std::max(0.0, static_cast<double>(deployment_.gpu_kv.count())) /
                                   static_cast<double>(deployment_.block_bytes.count());
  totals.layers->figures = policy_.layers->figures();
  totals.layers->changes = capacities_;
  return totals;
}

void Instance::complete(SimTime now) {
  SPILLWAY_CHECK(busy_, "an iteration completes that was not started");
  advance(now);
  now_ = now;
  busy_ = false;
  policy_.scheduler->iteration_ended();
  const Duration duration = now - start_;
  tokens_ = policy_.padding ? answering_ : staged_decodes_;
  if (staged_decodes_ > 0) complete_decodes(now, duration);
  complete_chunks(now, duration);
  if (host_) store_named(now);
  for (const RequestId id : expired_) expire(id, now);
  expired_.clear();
  if (policy_.layers) report_layers(duration);
  fairness_.iteration_ended();
}

void Instance::complete_decodes(SimTime now, Duration duration) {
  silent_iterations_ = 0;
  if (staged_decodes_ == members_.decoding()) {
    std::int64_t on_time = tokens_;
    for (const std::int32_t m : members_.late()) {
      if (members_[m].answered) continue;
      metrics_.token_gap(now - members_[m].last_token, 1, now);
      --on_time;
    }
    metrics_.token_gap(now - members_.last_step_end(), on_time, now);
    members_.clear_late();
    fairness_.stepped();
  } else {
    SPILLWAY_CHECK(!policy_.padding, "padded requests decode together");
    // The others rest: they become late, with the time of the last token that they did emit.
    std::vector<std::pair<std::int32_t, SimTime>> resting;
    std::int64_t position = 0;
    visit_decodes(members_.decoding(), [&](std::int32_t m) {
      const SimTime last = members_.last_token(members_[m]);
      if (position++ < staged_decodes_) {
        metrics_.token_gap(now - last, 1, now);
        fairness_.emitted(members_[m].client_number);
      } else {
        resting.emplace_back(m, last);
      }
    });
    members_.clear_late();
    for (const auto& [m, last] : resting) {
      members_.skip(m, duration);
      members_.mark_late(m, last);
    }
  }
  members_.step(duration);
  members_.set_last_step_end(now);
  if (policy_.padding) end_answers();
  for (const std::int32_t m : members_.finishing()) finish_member(m, Outcome::finished, now);
}

void Instance::complete_chunks(SimTime now, Duration duration) {
  for (const std::int32_t m : chunk_members_) {
    Member& member = members_[m];
    member.computed += member.staged;
    member.staged = 0;
    member.computing += duration;
    if (member.computed == member.known) emit_token(m, now);
  }
}

void Instance::emit_token(std::int32_t m, SimTime now) {
  silent_iterations_ = 0;
  ++tokens_;
  Member& member = members_[m];
  fairness_.emitted(member.client_number);
  if (member.first_token == kNever) {
    member.first_token = now;
  } else {
    metrics_.token_gap(now - member.last_token, 1, now);
  }
  member.last_token = now;
  ++member.known;
  if (member.known - member.input == member.output) {
    finish_member(m, Outcome::finished, now);
    return;
  }
  members_.start_decoding(m);
  fairness_.started_decoding(member.client_number);
  if (policy_.padding) start_answer(m);
  if (!member.covered && members_.held(member) != member.held) {
    broken(kReserve, member.id, "it covers some tokens of the answer, but not all");
  }
  if (members_.last_step_end() != now) members_.mark_late(m, now);
}

void Instance::start_answer(std::int32_t m) {
  const RequestId id = members_[m].id;
  ++answering_;
  const std::int64_t left = table_[id].output - 1;
  if (left == 0) return end_answer(m);
  answer_ends_.push_back({members_.steps() + left, id});
  std::push_heap(answer_ends_.begin(), answer_ends_.end(), kLater);
}

void Instance::end_answer(std::int32_t m) {
  if (members_[m].answered) return;
  members_[m].answered = true;
  fairness_.stopped_decoding(members_[m].client_number);
  --answering_;
}

void Instance::end_answers() {
  while (!answer_ends_.empty() && answer_ends_.front().step <= members_.steps()) {
    const RequestId id = answer_ends_.front().id;
    std::pop_heap(answer_ends_.begin(), answer_ends_.end(), kLater);
    answer_ends_.pop_back();
    if (table_.alive(id)) end_answer(table_[id].member);
  }
}

// --- books
// ------------------------------------------------------------------------------------------------------------

void Instance::advance(SimTime now) {
  if (!measuring_ && now >= metrics_.begin()) {
    measuring_ = true;
    totals_ = EngineTotals{};
    idle_time_ = IdleTime{};
    advanced_ = std::max(advanced_, metrics_.begin());
    fairness_.begin(metrics_.begin());
  }
  const double seconds = to_seconds(now - advanced_);
  advanced_ = now;
  if (seconds <= 0.0) return;
  const Blocks used = tiers_[0].total - tiers_[0].free;
  const Blocks host_used = tiers_[1].total - tiers_[1].free;
  totals_.peak_kv = std::max(totals_.peak_kv, used);
  totals_.peak_host_kv = std::max(totals_.peak_host_kv, host_used);
  if (policy_.layers) advance_layers(seconds);
  const double waiting_time = static_cast<double>(waiting()) * seconds;
  const double kv_time = static_cast<double>(used.count()) * seconds;
  const double host_kv_time = static_cast<double>(host_used.count()) * seconds;
  if (!busy_) {
    idle_time_.seconds += seconds;
    idle_time_.waiting += waiting_time;
    idle_time_.kv += kv_time;
    idle_time_.host_kv += host_kv_time;
    return;
  }
  totals_.waiting_time += waiting_time;
  totals_.kv_time += kv_time;
  totals_.host_kv_time += host_kv_time;
  totals_.busy_time += seconds;
  totals_.batch_time += static_cast<double>(members_.size()) * seconds;
  for (std::size_t r = 0; r < spending_.size(); ++r) totals_.resource_time[r] += spending_[r] * seconds;
}

void Instance::advance_layers(double seconds) {
  const Blocks capacity = tiers_[0].total;
  const auto used = static_cast<double>((capacity - tiers_[0].free).count());
  totals_.peak_kv_fraction = std::max(totals_.peak_kv_fraction, used / static_cast<double>(capacity.count()));
  const double capacity_time = static_cast<double>(capacity.count()) * seconds;
  if (!totals_.layers) totals_.layers.emplace();
  LayerTotals& layers = *totals_.layers;
  layers.peak_capacity = std::max(layers.peak_capacity, capacity);
  layers.last_capacity = capacity;
  if (!busy_) {
    idle_time_.capacity += capacity_time;
    return;
  }
  layers.capacity_time += capacity_time;
}

void Instance::count_idle_time() {
  totals_.resource_time[static_cast<std::size_t>(Resource::load)] += idle_time_.seconds;
  totals_.waiting_time += idle_time_.waiting;
  totals_.kv_time += idle_time_.kv;
  totals_.host_kv_time += idle_time_.host_kv;
  if (totals_.layers) totals_.layers->capacity_time += idle_time_.capacity;
  idle_time_ = IdleTime{};
}

void Instance::account(const IterationTime& time, Duration length, Duration stall, Resource link) {
  spending_.fill(0.0);
  const double seconds = to_seconds(length);
  if (seconds <= 0.0) return;
  const auto spend = [&](Resource resource, double share) {
    spending_[static_cast<std::size_t>(resource)] += share / seconds;
  };
  spend(link, to_seconds(stall));
  const Duration alone = time.before + time.layer * model_.layers() + time.after;
  // Work that copies slow down waits for the memory that they read and write.
  spend(Resource::memory, to_seconds(length - stall - alone));
  if (blocked_ == Blocked::kv_capacity) {
    // More memory would let more requests share this time, whatever it was spent on.
    spend(Resource::kv_capacity, to_seconds(alone));
    return;
  }
  spend(Resource::compute, time.shares.compute);
  spend(Resource::memory, time.shares.memory);
  spend(Resource::network, time.shares.network);
  spend(Resource::host, time.shares.host);
}

void Instance::settle_links() {
  // Without its rule nothing that streams layers starts another copy.
  executor_.run_copies(policy_.layers ? nullptr : &copies_, kNever);
  if (policy_.layers) charged_ = {executor_.issued(Stream::h2d), executor_.issued(Stream::d2h)};
  SPILLWAY_CHECK(executor_.use(Stream::h2d).bytes == charged_[0] && executor_.use(Stream::d2h).bytes == charged_[1],
                 "bytes moved differ from bytes charged on the links");
}

}  // namespace spillway
