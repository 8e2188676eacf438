// The life of requests, and what an iteration does to them.
#include "sim/engine/instance.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "sim/core/prefetch.hpp"
#include "sim/engine/guarded_space.hpp"

namespace spillway {
namespace {

constexpr std::int64_t kMostSilentIterations = 1'000'000;
/// Iterations without a token after which a request that waits with KV of another instance gives its blocks back: a
/// request that runs may need them, and be preempted and computed again for ever.
constexpr std::int64_t kPatience = 100;
std::string blocks_text(Blocks blocks) { return std::to_string(blocks.count()) + " KV blocks"; }

/// The deployment of an instance whose policy asks `draw` which experts an iteration uses.
Deployment drawing(const Deployment& planned, ExpertDraw* draw) {
  Deployment deployment = planned;
  if (deployment.experts) deployment.experts->activation = draw;
  return deployment;
}

constexpr auto kLater = [](const auto& a, const auto& b) { return a.step > b.step; };

}  // namespace

Instance::Instance(const InstanceConfig& config, InstanceSink& sink, std::span<const BytesPerSecond> links,
                   bool stepped, std::pmr::memory_resource* memory)
    : kv_(config.kv),
      graph_(kv_.graph()),
      draw_(config.experts ? std::make_unique<ExpertDraw>(*config.experts) : nullptr),
      deployment_(drawing(config.deployment, draw_.get())),
      policy_name_(config.policy->name),
      figures_(config.policy->figures),
      future_(config.future),
      borrowed_tier_(graph_.find(kPeerTier)),
      residency_(graph_.tiers, /*pool_on_gpu=*/kv_.prefix_caching, memory),
      cpu_attention_(config.policy->cpu_attention),
      keeps_conversations_(config.policy->keeps_conversations),
      phases_(config.phases),
      hands_over_(config.hands_over),
      schedules_ahead_(config.schedules_ahead),
      stepped_(stepped),
      may_put_off_(!stepped && config.observer == nullptr && config.borrows == nullptr && config.lends == nullptr &&
                   !config.experts && !config.padding && !config.policy->cpu_attention &&
                   !config.policy->keeps_conversations && !config.policy->rests_decodes &&
                   config.kv.host_cache_blocks == Blocks(0)),
      steady_decodes_(may_put_off_ && config.policy->steady_decodes && !config.kv.prefix_caching && !config.kv.window),
      sink_(sink),
      observer_(config.observer),
      borrows_(config.borrows),
      lends_(config.lends),
      informer_(config.lends != nullptr ? config.informer() : nullptr),
      padding_(config.padding),
      table_(memory),
      members_(config.kv.block_tokens, config.kv.prefix_caching, config.kv.window, memory),
      runner_(*config.model, kv_, graph_, {config.route, links, stepped}) {
  block_tokens_ = kv_.block_tokens;
  max_model_len_ = config.max_model_len;
  caches_prefixes_ = kv_.prefix_caching;
  window_ = kv_.window;
  SPILLWAY_CHECK(!window_ || (!kv_.prefix_caching && phases_ == Phases::both && !padding_ && !cpu_attention_ &&
                              !keeps_conversations_),
                 "KV beyond a window is freed only where all of it is simply on the GPU");
  tiers_ = residency_.tiers();
  policy_ = config.policy->make(PolicyContext{*config.settings, *this, deployment_, graph_, config.on_bus});
  if (kv_.prefix_caching) {
    retention_ = policy_.space->retention();
    cached_ = std::make_unique<CachedBlocks>(kv_.gpu_blocks, kv_.most(),
                                             retention_ ? Reuse::smallest_value : Reuse::least_recent);
  }
  if (kv_.prefix_caching && kv_.host_cache_blocks > Blocks(0)) {
    if (kv_.connector) {
      connector_ = std::make_unique<Connector>(Connector{OffloadingTier(kv_.host_cache_blocks), {}, *kv_.connector});
      if (kv_.disk) {
        connector_->disk = std::make_unique<DiskTier>(kv_.disk->blocks, kv_.block_bytes, kv_.disk->speed);
      }
    } else {
      host_ = std::make_unique<HostCache>(kv_.host_cache_blocks);
    }
  }
  SPILLWAY_CHECK(!cpu_attention_ || !connector_, "a KV connector stores no blocks that the CPU attends to");
  SPILLWAY_CHECK(!padding_ || (!cached_ && phases_ == Phases::both),
                 "padded requests have no prefix cache and no phases");
  if (policy_.layers) {
    runner_.stream_layers(policy_);
    ledger_.stream_layers(kv_.gpu_blocks);
  }
  if (draw_) runner_.draw_experts(*draw_);
  if (observer_ != nullptr) {
    runner_.observe(*observer_);
    begin_observed(SimTime{});
  }
  runner_.set_traffic(config.traffic);
}

void Instance::begin_at(SimTime now) {
  now_ = now;
  ledger_.begin_at(now);
  if (observer_ != nullptr) begin_observed(now);
  // What an instance before this one held went with it.
  if (borrows_ != nullptr) report_held(/*copying=*/false);
}

void Instance::prefetch_members() const {
  const auto up_to = [](const void* first, const void* last) {
    prefetch(first, static_cast<std::size_t>(static_cast<const char*>(last) - static_cast<const char*>(first)));
  };
  prefetch(static_cast<const View*>(this), sizeof(View));
  up_to(&cpu_attention_, &ledger_);
  ledger_.prefetch_members();
  runner_.prefetch_members();
}

void Instance::prefetch_pointees() const {
  // The decision: what most schedulers and offload policies read of themselves when nothing waits.
  prefetch(policy_.scheduler.get(), 256);
  prefetch(policy_.space.get(), 64);
  prefetch(tiers_.data(), tiers_.size_bytes());
  members_.prefetch_pointees();
}

// --- arrivals and departures
// ------------------------------------------------------------------------------------------

RequestId Instance::submit(const RequestSpec& spec, std::uint32_t number, std::uint32_t content, SimTime sent,
                           SimTime now) {
  keep_books(now);
  now_ = now;
  RequestSlot slot;
  slot.arrival = sent;
  slot.serial = number;
  slot.content = content;
  slot.client = spec.client;
  slot.input = static_cast<std::int32_t>(spec.input.count());
  slot.output = static_cast<std::int32_t>(spec.output.count());
  slot.max_new = static_cast<std::int32_t>(spec.max_new_tokens.count());
  if (phases_ == Phases::prefill) slot.output = slot.max_new = 1;
  slot.details = keep_details(spec);
  const RequestId id = table_.add(slot);
  if (observer_ != nullptr) observer_->arrived(number, content, now);
  if (draw_ && draw_->patterns() > 1) {
    if (arrival_numbers_.size() <= id.slot) arrival_numbers_.resize(id.slot + 1);
    arrival_numbers_[id.slot] = arrivals_++;
  }
  const bool longer = padding_ && (spec.input > padding_->input || spec.max_new_tokens > padding_->output);
  // A prefill instance answers with one token, so it needs capacity for no more. One that hands KV over accepts what
  // the other one can hold, too.
  const Tokens answer = hands_over_ ? spec.max_new_tokens : Tokens(slot.max_new);
  if (longer || spec.input + answer > max_model_len_) {
    end_request(id, Outcome::rejected, now);
  } else {
    table_[id].client_number = fairness_.arrived(spec.client, now);
    if (schedules_ahead_ && (busy_ || end_ == now)) {
      unheard_.push_back(id);
    } else {
      policy_.scheduler->arrived(request(id));
    }
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
  keep_books(now);
  now_ = now;
  announce();
  if (in_batch) {
    finish_member(m, Outcome::timed_out, now);
  } else {
    end_request(id, Outcome::timed_out, now);
    policy_.scheduler->ended(id, Outcome::timed_out);
  }
}

void Instance::finish_member(std::int32_t m, Outcome outcome, SimTime now) {
  if (members_[m].phase == Phase::decoding) {
    if (padding_) {
      end_answer(m);
    } else {
      fairness_.stopped_decoding(members_[m].client_number);
    }
    members_.stop_decoding(m, Phase::prefilling);
  }
  const RequestId id = members_[m].id;
  // A pool with a prefix cache keeps what it can by itself.
  const bool kept = !cached_ && conversation_of(table_[id]) >= 0 && policy_.space->keeps(*this, request(id), outcome);
  if (connector_) close_stores(m, /*keep=*/true);
  if (hands_over_ && phases_ == Phases::prefill && outcome == Outcome::finished && sink_.hands_over(id.serial)) {
    park(m);
  } else {
    kept ? keep(m) : release_blocks(m);
  }
  members_.unlink(m);
  promised_ -= members_[m].promised;
  end_request(id, outcome, now);
  policy_.scheduler->ended(id, outcome);
}

void Instance::end_request(RequestId id, Outcome outcome, SimTime now) {
  SPILLWAY_CHECK(!catching_up_,
                 "a request ended before it could: decodes have rested, which PolicyInfo::rests_decodes must say");
  const RequestSlot slot = table_[id];
  bool in_batch = false;
  if (slot.member >= 0) {
    Member& member = members_[slot.member];
    in_batch = this->in_batch(member);
    if (connector_ && member.phase == Phase::waiting) {
      give_back_fetched(slot.member);
      close_stores(slot.member, /*keep=*/false);
    }
    if (takes_over() && member.phase == Phase::waiting) give_back_handed_over(slot.member);
    if (member.holder >= 0) {
      rename_moves(holder(id), Holder{});
      residency_.remove(member.holder);
    }
    record(slot, &member, outcome, now);
    members_.destroy(slot.member);
  } else {
    record(slot, nullptr, outcome, now);
  }
  if (!parked_.empty()) silent_iterations_ = 0;
  if (slot.client_number >= 0) fairness_.ended(slot.client_number, in_batch, now);
  if (slot.details >= 0) free_details_.push_back(slot.details);
  if (informer_) informer_->request_ended();
  table_.remove(id);
}

void Instance::record(const RequestSlot& slot, const Member* member, Outcome outcome, SimTime now) {
  RequestRecord record;
  record.index = slot.serial;
  record.client = slot.client;
  record.outcome = outcome;
  record.arrival = slot.arrival;
  record.end = now;
  record.refused = slot.refused;
  record.input = Tokens(slot.input);
  record.output = Tokens(slot.output);
  if (slot.details >= 0) record.traits = details_[static_cast<std::size_t>(slot.details)].traits;
  if (member != nullptr) {
    record.first_scheduled = member->first_scheduled;
    record.first_token = member->first_token;
    record.computing = members_.computing(*member);
    record.generated = std::min(record.output, members_.known(*member) - member->input);
    record.cached = member->cached;
    record.preempted_recompute = member->preempted_recompute;
    record.preempted_swap = member->preempted_swap;
  }
  if (observer_ != nullptr) observer_->ended(record);
  sink_.ended(record);
}

void Instance::stop(SimTime now) {
  keep_books(now);
  if (stepped_ && busy_) executed(runner_.cut(now));
  ledger_.stop(now, runner_.copied_until(now));
  for (const RequestId id : table_.all()) {
    const bool given_up = std::find(expired_.begin(), expired_.end(), id) != expired_.end();
    end_request(id, given_up ? Outcome::timed_out : Outcome::unfinished, now);
  }
  if (observer_ != nullptr) observer_->stopped(now);
}

void Instance::rest_until(SimTime end) {
  ledger_.rest_until(end, span_begin_, levels());
  if (observer_ != nullptr) report_levels(end);
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

void Instance::start(SimTime now) {
  SPILLWAY_CHECK(!busy_, "a decision during an iteration");
  keep_books(now);
  now_ = now;
  if (host_ || disk() != nullptr || !nothing_under_way()) collect_ended(now);
  if (connector_) start_stores();
  if (kv_.cache_moves && contexts_ < 0) hold_contexts();
  if (waits_for_memory()) static_cast<void>(lends_->take_back(now));
  if (rests_for_handovers()) return;
  // A decision that only takes requests out of the batch (the last one preempts itself, say) is followed by another.
  std::int64_t tries_left = 2 * table_.live() + 2;
  while (!stage()) {
    if (!changed_) {
      if (announce()) continue;
      if (policy_.layers && members_.size() == 0 && waiting() > 0 && policy_.layers->expand()) {
        if (cached_) cached_->forget_free();  // the memory has been divided anew
        tries_left = 2 * table_.live() + 2;
        continue;
      }
      const bool lacks_memory = members_.size() == 0 && waiting() > 0 && !waits_for_handover();
      if (informer_ && lacks_memory && lend(informer_->memory_lacking(lender_view()))) continue;
      const bool waits = waits_for_memory() || (connector_ && connector_->under_way > 0) || waits_for_handover();
      if (takes_over() && !waits && give_back_last_handed_over()) continue;
      if (connector_ && !waits && table_.live() > 0 && give_back_last_fetched()) continue;
      if (!idle_ && !waits && table_.live() > 0)
        broken(kNothing, "run nothing", oldest() + " is unfinished and idle() was not called");
      runner_.start_moves(now);
      if (borrows_ != nullptr) report_held(/*copying=*/false);
      for (LayerPolicy* const layers : {policy_.layers.get(), policy_.weights.get()}) {
        if (layers != nullptr) layers->rests();
      }
      return;
    }
    if (--tries_left <= 0) {
      broken(kProgress, "take requests out again and again", "nothing ran and " + oldest() + " is stuck");
    }
  }
  if (takes_over() && silent_iterations_ % kPatience == kPatience - 1) static_cast<void>(give_back_last_handed_over());
  if (++silent_iterations_ > kMostSilentIterations) {
    broken(kProgress, "run " + std::to_string(kMostSilentIterations) + " iterations without a token",
           oldest() + " is stuck");
  }
  announce();
  if (connector_) offload();
  busy_ = true;
  start_ = now;
  ledger_.started(now);
  if (lends_ != nullptr) runner_.share_memory(lends_->take_busy());
  const Blocks stored = host_ ? host_->take_stores() : Blocks(0);
  if (draw_ && draw_->patterns() > 1) mix_experts();
  execute(now, stored);
  // Layers take lent memory when the iteration begins.
  if (borrows_ != nullptr) report_held(/*copying=*/true);
}

void Instance::mix_experts() {
  pattern_tokens_.assign(static_cast<std::size_t>(draw_->patterns()), 0);
  const auto count = [this](std::int32_t m, std::int64_t tokens) {
    const std::int32_t pattern = expert_pattern(arrival_numbers_[members_[m].id.slot], draw_->patterns());
    pattern_tokens_[static_cast<std::size_t>(pattern)] += tokens;
  };
  visit_decodes(staged_decodes_, [&](std::int32_t m) { count(m, 1); });
  for (const std::int32_t m : chunk_members_) count(m, members_[m].staged.count());
  draw_->mix(pattern_tokens_);
}

bool Instance::announce() {
  if (unheard_.empty()) return false;
  for (const RequestId id : unheard_) policy_.scheduler->arrived(request(id));
  unheard_.clear();
  return true;
}

void Instance::executed(const ExecutedIteration& iteration) {
  end_ = iteration.end;
  if (policy_.layers) layer_report_ = LayerReport{.layer = iteration.layer};
  ledger_.executed(iteration, blocked_ == Blocked::kv_capacity);
  if (observer_ != nullptr) observer_->executed(iteration);
  if (borrows_ != nullptr) borrows_->copied(iteration.issued.peer_in + iteration.issued.peer_out, iteration.start);
}

bool Instance::stage() {
  staged_decodes_ = -1;
  chunk_members_.clear();
  chunks_apart_ = false;
  idle_ = false;
  changed_ = false;
  blocked_.reset();
  refresh();
  if (policy_.layers || lends_ != nullptr) resize_gpu();
  if (borrows_ != nullptr) borrow();
  report_shrunk_tiers();
  if (policy_.layers) {
    policy_.scheduler->decide(*this, GuardedSpace(policy_), *this);
  } else {
    policy_.scheduler->decide(*this, *policy_.space, *this);
  }
  if (staged_decodes_ < 0) decodes(members_.decoding());
  policy_.space->places(*this, *this);
  return staged_decodes_ > 0 || !chunk_members_.empty();
}

void Instance::report_shrunk_tiers() {
  for (std::size_t tier = 0; tier < tiers_.size(); ++tier) {
    if (tiers_[tier].free < Blocks(0)) policy_.space->shrank(*this, static_cast<TierId>(tier), *this);
  }
}

void Instance::execute(SimTime now, Blocks stored) {
  if (members_.all_together() && !chunks_apart_) {
    BatchShape shape;
    fill(shape);
    execute({&shape, 1}, now, stored);
  } else {
    std::array<BatchShape, kMostSubBatches> all;
    execute(fill(all), now, stored);
  }
}

void Instance::execute(std::span<BatchShape> shapes, SimTime now, Blocks stored) {
  if (connector_) shapes.front().connector = connector_->work;
  if (stepped_) {
    runner_.begin(shapes, now, stored);
  } else {
    executed(runner_.run(shapes, now, stored));
  }
}

std::span<BatchShape> Instance::fill(std::array<BatchShape, kMostSubBatches>& all) {
  const auto add_decode = [&](std::int32_t m, Tokens attended) {
    const Member& member = members_[m];
    BatchShape& shape = all[static_cast<std::size_t>(member.sub_batch)];
    if (member.on_host) {
      ++shape.cpu_sequences;
      shape.cpu_context += attended;
    } else {
      ++shape.decode_sequences;
      shape.decode_context += attended;
      shape.decode_longest = std::max(shape.decode_longest, attended);
    }
    ++shape.sampled_sequences;
  };
  const auto attended = [this](std::int32_t m) { return members_.computed(members_[m]) + Tokens(1); };
  if (staged_decodes_ == members_.decoding()) {
    // By their sums, except those apart.
    BatchShape& first = all.front();
    first.decode_sequences = first.sampled_sequences = staged_decodes_ - std::ssize(members_.apart());
    first.decode_context = members_.decode_context();
    first.decode_longest = members_.longest_decode();
    for (std::size_t s = 0; s < all.size(); ++s) {
      const Batch::OnHost on_host = members_.on_host(static_cast<std::int32_t>(s));
      first.decode_sequences -= on_host.sequences;
      first.sampled_sequences -= on_host.sequences;
      first.decode_context -= on_host.context;
      all[s].cpu_sequences = on_host.sequences;
      all[s].cpu_context = on_host.context;
      all[s].sampled_sequences += on_host.sequences;
    }
    for (const std::int32_t m : members_.apart()) first.decode_context -= attended(m);
    for (const std::int32_t m : members_.apart()) add_decode(m, attended(m));
  } else {
    visit_decodes(staged_decodes_, [&](std::int32_t m) { add_decode(m, attended(m)); });
  }
  chunks_.clear();
  std::array<std::size_t, kMostSubBatches + 1> begin{};
  for (std::size_t s = 0; s < all.size(); ++s) {
    for (const std::int32_t m : chunk_members_) {
      if (static_cast<std::size_t>(members_[m].sub_batch) == s) add_chunk(m, all[s]);
    }
    begin[s + 1] = chunks_.size();
  }
  std::size_t used = 0;
  for (std::size_t s = 0; s < all.size(); ++s) {
    all[s].chunks = std::span(chunks_).subspan(begin[s], begin[s + 1] - begin[s]);
    if (!all[s].empty()) std::swap(all[used++], all[s]);
  }
  return std::span(all).first(used);
}

void Instance::fill(BatchShape& shape) {
  shape.decode_sequences = staged_decodes_;
  if (staged_decodes_ == members_.decoding()) {
    shape.decode_context = members_.decode_context();
    shape.decode_longest = members_.longest_decode();
  } else {
    visit_decodes(staged_decodes_, [&](std::int32_t m) {
      const Tokens attended = members_.computed(members_[m]) + Tokens(1);
      shape.decode_context += attended;
      shape.decode_longest = std::max(shape.decode_longest, attended);
    });
  }
  shape.sampled_sequences = staged_decodes_;
  chunks_.clear();
  for (const std::int32_t m : chunk_members_) add_chunk(m, shape);
  shape.chunks = chunks_;
}

void Instance::add_chunk(std::int32_t m, BatchShape& shape) {
  const Member& member = members_[m];
  if (member.delivered) {
    const Tokens attended = member.computed + Tokens(1);
    ++shape.decode_sequences;
    shape.decode_context += attended;
    shape.decode_longest = std::max(shape.decode_longest, attended);
  } else if (member.missing > Tokens(0)) {
    add_ranges(member, gaps_.at(m), shape);
  } else {
    chunks_.push_back(PrefillChunk{member.staged, member.computed});
  }
  if (member.computed + member.staged == member.known) ++shape.sampled_sequences;
}

void Instance::store_named(SimTime now) {
  collect_ended(now);
  for (const BlockHash hash : named_) host_->store(hash);
  named_.clear();
  for (const BlockHash hash : named_on_host_) host_->put(hash);
  named_on_host_.clear();
}

Blocks Instance::gpu_capacity() const {
  if (!policy_.layers) return kv_.gpu_blocks - lent();
  const Blocks capacity = policy_.layers->capacity();
  const Blocks most = tier(kGpuTier).most;
  if (capacity > most) broken(kOffer, "offer " + blocks_text(capacity), "its layout announced " + blocks_text(most));
  return capacity;
}

void Instance::resize_gpu() {
  const Blocks capacity = gpu_capacity();
  if (capacity == tier(kGpuTier).total) return;
  residency_.resize(kGpuTier, capacity);
  if (cached_) cached_->resize(capacity);
  ledger_.capacity_changed(now_, capacity);
}

void Instance::report_layers(Duration length) {
  layer_report_.length = length;
  layer_report_.tokens = tokens_;
  layer_report_.prefills = !chunks_.empty();
  layer_report_.waiting = waiting();
  layer_report_.free_share = static_cast<double>(std::max(tier(kGpuTier).free, Blocks(0)).count()) /
                             static_cast<double>(tier(kGpuTier).total.count());
  runner_.report(layer_report_);
}

EngineTotals Instance::totals() const {
  EngineTotals totals = ledger_.totals();
  Figures reported = policy_.scheduler->figures();
  reported.merge(policy_.space->figures());
  if (policy_.layers) reported.merge(policy_.layers->figures());
  if (policy_.weights) {
    for (const auto& [name, value] : policy_.weights->figures()) reported.emplace(kWeightsPrefix + name, value);
  }
  for (const FigureDefinition& definition : figures_) {
    const auto value = reported.extract(definition.name);
    totals.figures.push_back({definition, value ? std::optional(value.mapped()) : std::nullopt});
  }
  if (!reported.empty()) {
    broken(kFigures, "report " + reported.begin()->first, "it does not declare this figure");
  }
  const auto share = [](Blocks part, Blocks all) {
    return all > Blocks(0) ? static_cast<double>(part.count()) / static_cast<double>(all.count()) : 0.0;
  };
  totals.peak_host_kv_fraction = share(totals.peak_host_kv, kv_.host_blocks);
  if (!totals.layers) {
    totals.peak_kv_fraction = share(totals.peak_kv, kv_.gpu_blocks);
    return totals;
  }
  totals.layers->resident_blocks = std::max(0.0, static_cast<double>(deployment_.gpu_kv.count())) /
                                   static_cast<double>(deployment_.block_bytes.count());
  return totals;
}

Instance::Advanced Instance::advance(SimTime now) {
  SPILLWAY_CHECK(stepped_ || now == next_call(), "nothing is due at this instant");
  if (stepped_ && !runner_.go_to(now) && (busy_ || nothing_under_way())) return Advanced::nothing;
  keep_books(now);
  now_ = now;
  if (!busy_) return collect_ended(now) ? Advanced::moves : Advanced::nothing;
  if (stepped_) executed(runner_.take_result());
  busy_ = false;
  ledger_.ended();
  if (!of_layers_.empty()) end_moves_of_layers();
  policy_.scheduler->iteration_ended();
  const Duration duration = now - start_;
  tokens_ = padding_ ? answering_ : staged_decodes_;
  if (staged_decodes_ > 0) complete_decodes(now, duration);
  complete_chunks(now, duration);
  if (host_) store_named(now);
  if (disk() != nullptr) collect_ended(now);
  if (window_) settle_windows();
  for (const RequestId id : expired_) expire(id, now);
  expired_.clear();
  if (policy_.layers) report_layers(duration);
  if (borrows_ != nullptr) report_held(/*copying=*/false);
  if (informer_) static_cast<void>(lend(informer_->iteration_ended(lender_view())));
  fairness_.iteration_ended();
  return Advanced::iteration;
}

void Instance::put_off() {
  const std::int64_t decodes = members_.decoding();
  const bool only_decodes = staged_decodes_ == decodes && table_.live() == decodes && chunk_members_.empty();
  const bool streams = policy_.layers || policy_.weights;
  if (!may_put_off_ || !busy_ || !only_decodes || streams || !expired_.empty() || !nothing_under_way()) return;
  constexpr std::int64_t kMost = 256;
  const std::int64_t steps = members_.steps_to_finish(kMost);
  // With memory for every token until then, nobody is preempted.
  if (tier(kGpuTier).free < (blocks_for(Tokens(steps), block_tokens_) + Blocks(1)) * decodes) return;
  quiet_steps_ = steps - 1;
  quiet_until_ = end_ + runner_.least() * quiet_steps_;
}

std::int64_t Instance::catch_up(SimTime now) {
  if (end_ >= now) return 0;
  const SimTime quiet_until = std::exchange(quiet_until_, SimTime{});
  catching_up_ = true;
  std::int64_t iterations = 0;
  BatchShape shape;
  const auto goes_on = [&] {
    const bool again = steady_decodes_ && members_.late().empty();
    if (again) fill(shape);
    return again;
  };
  bool again = goes_on();
  for (; end_ < now; ++iterations, --quiet_steps_) {
    if (again) {
      SPILLWAY_CHECK(quiet_steps_ > 0, "an iteration took less time than ExecutionModel::least() said");
      decode_again(shape);
    } else {
      static_cast<void>(advance(end_));
      start(end_);
      again = goes_on();
    }
  }
  refresh();
  catching_up_ = false;
  quiet_until_ = quiet_until;
  return iterations;
}

void Instance::decode_again(BatchShape& shape) {
  keep_books(end_);
  now_ = end_;
  ledger_.ended();
  tokens_ = staged_decodes_;
  sink_.token_gap(now_ - members_.last_step_end(), tokens_, now_);
  fairness_.stepped();
  members_.step(now_ - start_);
  members_.set_last_step_end(now_);
  fairness_.iteration_ended();
  residency_.tier(kGpuTier).free -= members_.growth();
  silent_iterations_ = 1;
  blocked_.reset();
  start_ = now_;
  ledger_.started(now_);
  shape.decode_context += Tokens(tokens_);
  shape.decode_longest += Tokens(1);
  executed(runner_.run({&shape, 1}, now_, Blocks(0)));
}

void Instance::resize(TierId id, Blocks total, SimTime now) {
  keep_books(now);
  residency_.resize(id, total);
}

void Instance::complete_decodes(SimTime now, Duration duration) {
  silent_iterations_ = 0;
  if (staged_decodes_ == members_.decoding()) {
    std::int64_t on_time = tokens_;
    for (const std::int32_t m : members_.late()) {
      if (members_[m].answered) continue;
      sink_.token_gap(now - members_[m].last_token, 1, now);
      --on_time;
    }
    sink_.token_gap(now - members_.last_step_end(), on_time, now);
    members_.clear_late();
    fairness_.stepped();
  } else {
    SPILLWAY_CHECK(!padding_, "padded requests decode together");
    // The other decodes rest. They become late, with the time of the last token that they emitted.
    std::vector<std::pair<std::int32_t, SimTime>> resting;
    std::int64_t position = 0;
    visit_decodes(members_.decoding(), [&](std::int32_t m) {
      const SimTime last = members_.last_token(members_[m]);
      if (position++ < staged_decodes_) {
        sink_.token_gap(now - last, 1, now);
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
  if (padding_) end_answers();
  for (const std::int32_t m : members_.finishing()) finish_member(m, Outcome::finished, now);
}

void Instance::complete_chunks(SimTime now, Duration duration) {
  for (const std::int32_t m : chunk_members_) {
    Member& member = members_[m];
    if (member.missing > Tokens(0)) fill_gaps(m, std::min(member.missing, member.staged));
    if (members_.windows()) members_.windows()->change(member.computed, member.computed + member.staged);
    member.computed += member.staged;
    member.staged = Tokens();
    member.computing += duration;
    // Its prefix was used on the GPU, and all of its KV is on the host now, or on the way before what follows.
    if (member.on_host && cached_) release_cached(m);
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
    sink_.token_gap(now - member.last_token, 1, now);
  }
  member.last_token = now;
  member.known += Tokens(1);
  if (member.known - member.input == member.output) {
    finish_member(m, Outcome::finished, now);
    return;
  }
  members_.start_decoding(m);
  fairness_.started_decoding(member.client_number);
  if (padding_) start_answer(m);
  if (!member.covered && members_.held(member) != member.held) {
    broken(kReserve, member.id, "it covers some tokens of the answer, but not all");
  }
  if (members_.last_step_end() != now) members_.mark_late(m, now);
}

void Instance::start_answer(std::int32_t m) {
  const RequestId id = members_[m].id;
  ++answering_;
  const Tokens left(table_[id].output - 1);
  if (left == Tokens()) return end_answer(m);
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

Ledger::Levels Instance::levels() const {
  const TierState& gpu = tier(kGpuTier);
  const TierState& host = tier(kHostTier);
  return {gpu.total,
          gpu.total - gpu.free,
          host.total - host.free,
          members_.size(),
          waiting(),
          static_cast<std::int64_t>(conversations_.size())};
}

void Instance::begin_observed(SimTime now) {
  std::vector<std::string> names;
  for (const TierSpec& tier : graph_.tiers) names.push_back(tier.name);
  if (host_ || connector_) names.emplace_back("host_cache");
  observed_ = now;
  observer_->begins(names, now);
}

void Instance::report_levels(SimTime now) {
  if (now <= observed_) return;
  shown_tiers_.clear();
  for (const TierState& tier : tiers_) shown_tiers_.push_back({tier.total, tier.total - tier.free});
  if (host_) shown_tiers_.push_back({kv_.host_cache_blocks, host_->filled()});
  if (connector_) shown_tiers_.push_back({kv_.host_cache_blocks, connector_->tier.held()});
  observer_->lasted(observed_, now, {members_.size(), waiting(), shown_tiers_});
  observed_ = now;
}

void Instance::advance_ledger(SimTime now) {
  if (observer_ != nullptr) report_levels(now);
  if (ledger_.advance(now, span_begin_, levels())) fairness_.begin(span_begin_);
}

}  // namespace spillway
