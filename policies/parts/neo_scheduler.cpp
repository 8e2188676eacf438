#include "policies/parts/neo_scheduler.hpp"

#include <algorithm>
#include <utility>

#include "policies/parts/refusals.hpp"
#include "policies/parts/swap_copies.hpp"
#include "sim/core/error.hpp"

namespace spillway {
namespace {

constexpr const char* kPipelined = "pipelined_iterations_fraction";
constexpr const char* kCpuOnly = "cpu_only_iterations";
constexpr const char* kCpuTokens = "cpu_attention_tokens";
constexpr const char* kSwapOuts = "swap_outs";
constexpr const char* kSwapIns = "swap_ins";
constexpr const char* kRests = "cpu_rests";
constexpr const char* kPredictionError = "prediction_error_fraction";

PagedSpaceOptions space_options(CopyMechanism copies) {
  PagedSpaceOptions options;
  options.swap = true;
  options.exact_swap_in = true;
  options.swapping.mechanism = copies;
  return options;
}

}  // namespace

Blocks neo_swap_in_limit(Blocks gpu) {
  const std::int64_t hundredths = 95 * gpu.count();
  const std::int64_t whole = quotient(hundredths, 100);
  const std::int64_t rest = hundredths - 100 * whole;
  const bool up = rest > 50 || (rest == 50 && whole % 2 == 1);
  return Blocks(whole + (up ? 1 : 0));
}

NeoSpace::NeoSpace(const View& view, CopyMechanism copies) : PagedSpace(view, space_options(copies)) {}

TierId NeoSpace::attends(const View& /*view*/, const RequestView& /*request*/) const { return tier_; }

bool NeoSpace::takes_prefix(const View& /*view*/, const RequestView& /*request*/) const { return takes_prefix_; }

void NeoSpace::returns(const View& view, const RequestView& request, Placement& placement) {
  // What attends on the CPU rested on the host.
  if (tier_ == kGpuTier) PagedSpace::returns(view, request, placement);
}

void NeoHostQueue::insert(std::size_t at, RequestId id, Tokens known, std::int8_t sub_batch) {
  const auto put = [at](auto& list, auto value) { list.insert(list.begin() + static_cast<std::ptrdiff_t>(at), value); };
  put(ids_, id);
  put(known_, known);
  put(left_, (block_ * blocks_for(known, block_).count() - known).count());
  put(sub_batch_, sub_batch);
  blocks_ += blocks_for(known, block_);
  if (runs(at)) count(at, 1);
}

void NeoHostQueue::count(std::size_t at, std::int64_t sign) {
  running_ += known_[at] * sign;
  count_running_ += sign;
}

void NeoHostQueue::erase(std::size_t at) {
  blocks_ -= blocks_for(known_[at], block_);
  if (runs(at)) count(at, -1);
  const auto drop = [at](auto& list) { list.erase(list.begin() + static_cast<std::ptrdiff_t>(at)); };
  drop(ids_);
  drop(known_);
  drop(left_);
  drop(sub_batch_);
}

bool NeoHostQueue::erase(RequestId id) {
  const auto found = std::ranges::find(ids_, id);
  if (found == ids_.end()) return false;
  erase(static_cast<std::size_t>(found - ids_.begin()));
  return true;
}

void NeoHostQueue::place(std::size_t at, std::int8_t sub_batch) {
  const bool ran = runs(at);
  sub_batch_[at] = sub_batch;
  if (runs(at) != ran) count(at, ran ? -1 : 1);
}

void NeoHostQueue::step() {
  std::int64_t grown = 0;
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    const std::int64_t token = runs(i) ? 1 : 0;
    const std::int64_t left = left_[i] - token;
    const bool grows = left < 0;
    known_[i] += Tokens(token);
    left_[i] = grows ? block_.count() - 1 : left;
    grown += grows ? 1 : 0;
  }
  blocks_ += Blocks(grown);
  running_ += Tokens(count_running_);
}

NeoScheduler::NeoScheduler(const View& view, NeoSpace& space, const ExecutionModel& model, const NeoOptions& options)
    : view_(view), space_(space), model_(model), options_(options), host_(view.block_tokens()) {}

void NeoScheduler::iteration_ended() {
  ++iterations_;
  pipelined_ += choice_.pipelined ? 1 : 0;
  predicted_sum_ += choice_.predicted * static_cast<double>(model_.layers());
  lasted_sum_ += static_cast<double>((view_.now() - started_).count());
  cpu_tokens_ += static_cast<double>(host_decodes_);
  host_.step();
}

void NeoScheduler::ended(RequestId id, Outcome /*outcome*/) {
  // One that waits is dropped when its turn comes.
  if (std::erase(gpu_, id) == 0) host_.erase(id);
}

void NeoScheduler::decide(const View& view, const KvSpace& /*kv*/, Decision& decision) {
  Plan plan = count_decodes();
  const bool swapped_out = swap_out(plan, decision);
  if (!swapped_out) swap_in(plan, decision);
  recompute_beyond_host(decision);
  find_prompts(plan, decision);
  started_ = view.now();
  choose(plan);
  place_decodes(decision);
  start_prompts(decision);
  decision.decodes(view.batch().decoding);
  if (view.batch().running == 0) decision.idle();
}

Blocks NeoScheduler::gpu_needed() const {
  const TierState& gpu = view_.tier(kGpuTier);
  return gpu.total - gpu.free + view_.batch().decode_growth;
}

NeoScheduler::Plan NeoScheduler::count_decodes() const {
  const std::int64_t decodes = std::ssize(gpu_);
  return {
      .gpu_blocks = gpu_needed(), .seats = options_.sequences - decodes, .tokens = options_.tokens - Tokens(decodes)};
}

bool NeoScheduler::swap_out(Plan& plan, Decision& decision) {
  bool any = false;
  while (plan.gpu_blocks > gpu_capacity() || plan.seats < 0 || plan.tokens < Tokens(0)) {
    const RequestId victim = gpu_.back();
    gpu_.pop_back();
    const Tokens known = view_.request(victim).known;
    if (host_.blocks() + blocks(known) <= view_.tier(kHostTier).total) {
      decision.leave(victim, Leave::preempt_swap);
      host_.push_front(victim, known);
      ++swap_outs_;
    } else {
      decision.leave(victim, Leave::preempt_recompute);
      waiting_.push_front(victim);
    }
    ++plan.seats;
    plan.tokens += Tokens(1);
    plan.gpu_blocks = gpu_needed();
    any = true;
  }
  return any;
}

void NeoScheduler::swap_in(Plan& plan, Decision& decision) {
  const Blocks limit = neo_swap_in_limit(gpu_capacity());
  while (!host_.empty() && plan.seats > 0 && plan.tokens > Tokens(0)) {
    const RequestId head = host_.id(0);
    if (plan.gpu_blocks + blocks(host_.known(0)) > limit) return;
    if (host_.runs(0)) decision.leave(head, Leave::suspend);
    host_.erase(0);
    space_.attend_on(kGpuTier);
    decision.resume(head);
    gpu_.push_back(head);
    ++swap_ins_;
    --plan.seats;
    plan.tokens -= Tokens(1);
    plan.gpu_blocks = gpu_needed();
  }
}

void NeoScheduler::recompute_beyond_host(Decision& decision) {
  while (host_.blocks() > view_.tier(kHostTier).total) {
    const std::size_t last = host_.size() - 1;
    const RequestId id = host_.id(last);
    if (!host_.runs(last)) {
      space_.attend_on(kHostTier);
      decision.resume(id);
    }
    decision.leave(id, Leave::preempt_recompute);
    host_.erase(last);
    waiting_.push_front(id);
  }
}

bool NeoScheduler::never_fits(const RequestView& request) const {
  const Blocks needed = blocks(request.known);
  return request.known > options_.tokens || needed > view_.tier(kGpuTier).total ||
         needed > view_.tier(kHostTier).total - gpu_capacity();
}

void NeoScheduler::find_prompts(Plan& plan, Decision& decision) {
  gpu_prompts_.clear();
  cpu_prompts_.clear();
  Blocks staged;    // pass through the staging layer
  Blocks borrowed;  // of the GPU, for prefixes of prompts for the host
  Blocks on_host = host_.blocks();
  const Blocks gpu = view_.tier(kGpuTier).total;
  for (std::size_t i = 0; i < waiting_.size();) {
    const auto drop = [&] { waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i)); };
    if (!view_.alive(waiting_[i])) {
      drop();
      continue;
    }
    const RequestView request = view_.request(waiting_[i]);
    if (never_fits(request)) {
      decision.reject(request.id);
      drop();
      continue;
    }
    const Blocks needed = blocks(request.known);
    const View::CachedPrefix prefix = view_.cached_prefix(request.id);
    // Unused cached blocks count as free until a request takes them, and those on the host need a block of the GPU.
    const Blocks for_prefix = prefix.idle_blocks + prefix.host_blocks;
    const Blocks taken = needed - blocks(prefix.tokens) + for_prefix;
    const bool to_gpu = cpu_prompts_.empty() && plan.gpu_blocks + taken <= gpu_capacity();
    const bool takes = to_gpu || plan.gpu_blocks + borrowed + for_prefix <= gpu;
    const NeoPrompt prompt{request.known, takes ? prefix.tokens : Tokens(0)};
    const Blocks computed = needed - blocks(prompt.cached);
    const bool fits = staged + computed <= gpu && on_host + needed <= view_.tier(kHostTier).total - gpu_capacity();
    if (!fits) return decision.blocked(Blocked::kv_capacity);
    if (plan.seats < 1) return decision.blocked(Blocked::batch_size);
    if (plan.tokens < prompt.computed()) return decision.blocked(Blocked::token_budget);
    --plan.seats;
    plan.tokens -= prompt.computed();
    if (to_gpu) {
      plan.gpu_blocks += taken;
      gpu_prompts_.push_back(prompt);
    } else {
      staged += computed;
      borrowed += takes ? for_prefix : Blocks(0);
      on_host += needed;
      cpu_prompts_.push_back(prompt);
    }
    ++i;
  }
}

void NeoScheduler::choose(const Plan& plan) {
  if (!tables_) {
    const Tokens block = view_.block_tokens();
    // Requests that share a block attend to it each.
    const Tokens on_gpu = view_.caches_prefixes() ? view_.max_model_len() * options_.sequences
                                                  : block * view_.tier(kGpuTier).total.count();
    tables_.emplace(model_,
                    NeoRanges{.batch = options_.tokens,
                              .longest = view_.max_model_len(),
                              .gpu_context = on_gpu,
                              .sequences = options_.sequences,
                              .cpu_context = block * view_.tier(kHostTier).total.count()},
                    options_.cpu_error);
  }
  const bool decodes_alone = gpu_.empty() && gpu_prompts_.empty() && cpu_prompts_.empty() && !host_.empty();
  const bool stuck = decodes_alone && (options_.rules == NeoRules::code || options_.rules == NeoRules::paper);
  NeoCandidates candidates{.gpu_prompts = gpu_prompts_,
                           .cpu_prompts = cpu_prompts_,
                           .gpu_decodes = std::ssize(gpu_),
                           .gpu_context = view_.batch().decode_context - host_.running(),
                           .cpu_decodes = host_.contexts(),
                           .budget = std::min(plan.seats, plan.tokens.count())};
  if (stuck && !options_.resolves_livelock) candidates.budget = 0;
  neo_choose(candidates, stuck ? NeoRules::fastdecode : options_.rules, *tables_, options_.launch, choice_);
  cpu_only_ += stuck ? 1 : 0;
}

void NeoScheduler::place_decodes(Decision& decision) {
  const std::vector<std::int8_t>& chosen = choice_.sub_batch;
  if (chosen != host_.sub_batches()) {
    space_.attend_on(kHostTier);
    for (std::size_t i = 0; i < host_.size(); ++i) {
      const std::int8_t from = host_.sub_batch(i);
      const std::int8_t to = chosen[i];
      if (to == from) continue;
      if (to == NeoHostQueue::kRests) {
        decision.leave(host_.id(i), Leave::suspend);
        ++rests_;
      } else {
        if (from == NeoHostQueue::kRests) decision.resume(host_.id(i));
        if (to != 0 || from != NeoHostQueue::kRests) decision.sub_batch(host_.id(i), to);
      }
      host_.place(i, to);
    }
  }
  host_decodes_ = host_.count_running();
}

bool NeoScheduler::start(const NeoPrompt& prompt, TierId tier, Decision& decision) {
  const RequestId id = waiting_.front();
  if (view_.cached_prefix(id).tokens < prompt.cached) return false;
  waiting_.pop_front();
  space_.attend_on(tier, tier == kGpuTier || prompt.cached > Tokens(0));
  decision.join(id);
  // A prompt before it may have filled more of its prefix.
  decision.chunk(id, prompt.length - view_.request(id).computed);
  if (tier == kGpuTier) {
    gpu_.push_back(id);
  } else {
    host_.push_back(id, prompt.length, 0);
  }
  return true;
}

void NeoScheduler::start_prompts(Decision& decision) {
  for (const NeoPrompt& prompt : gpu_prompts_) {
    if (!start(prompt, kGpuTier, decision)) return;
  }
  for (std::size_t i = 0; i < choice_.cpu_prompts; ++i) {
    if (!start(cpu_prompts_[i], kHostTier, decision)) return;
  }
}

Figures NeoScheduler::figures() const {
  Figures figures{{kCpuOnly, static_cast<double>(cpu_only_)},
                  {kCpuTokens, cpu_tokens_},
                  {kSwapOuts, static_cast<double>(swap_outs_)},
                  {kSwapIns, static_cast<double>(swap_ins_)},
                  {kRests, static_cast<double>(rests_)}};
  if (iterations_ > 0) figures[kPipelined] = static_cast<double>(pipelined_) / static_cast<double>(iterations_);
  if (lasted_sum_ > 0.0) figures[kPredictionError] = predicted_sum_ / lasted_sum_ - 1.0;
  return figures;
}

namespace {

Layout layout(const Deployment& deployment, const Settings& settings, const NeoOptions& options,
              const std::string& name) {
  const Blocks whole(deployment.gpu_kv.count() / deployment.block_bytes.count());
  // One layer more than the model has: prompts for the host pass through it.
  const Blocks blocks(whole.count() * deployment.layers / (deployment.layers + 1));
  if (whole < Blocks(1)) {
    if (deployment.gpu_kv_given) {
      throw ConfigError(
          "memory.gpu_kv is less than a KV block, and policy " + name +
              " needs at least one: all prompts are computed in this memory, even if their KV then goes to the host",
          "memory.gpu_kv", "raise it, or leave it out to use all the memory that the weights leave");
    }
    throw ConfigError("the weights leave no GPU memory for KV", "model",
                      "raise tensor_parallel, choose hardware with more memory, or a smaller model");
  }
  if (blocks < Blocks(1)) {
    throw ConfigError("policy " + name + " has no whole KV block on the GPU: memory for " +
                          std::to_string(whole.count()) + " blocks is divided among " +
                          std::to_string(deployment.layers + 1) + " layers, one of which stages prompts for the host",
                      "memory.gpu_kv", "raise it: prompts for the host pass through these blocks, too");
  }
  const Blocks host(settings.get<Bytes>("memory.host_kv") / deployment.block_bytes);
  const Blocks kept = options.residents ? blocks : Blocks(0);
  if (host <= kept) {
    throw ConfigError("memory.host_kv holds " + std::to_string(host.count()) + " KV blocks, and policy " + name +
                          " keeps " + std::to_string(kept.count()) + " free for what is on the GPU: no prompt fits",
                      "memory.host_kv", "raise it above the GPU's KV memory by at least a prompt");
  }
  return {.blocks = blocks,
          .most = blocks,
          .terms = std::to_string(whole.count()) + " blocks x " + std::to_string(deployment.layers) + " layers / " +
                   std::to_string(deployment.layers + 1) + ": one more layer stages prompts for the host"};
}

std::vector<Problem> check(const Settings& settings, const NeoOptions& options, const std::string& name) {
  std::vector<Problem> problems;
  const bool swaps = settings.get<std::string>("engine.preemption") == "swap";
  if (options.residents && !swaps) {
    problems.push_back({"policy " + name + " moves requests to the host, so it cannot recompute them instead",
                        "engine.preemption", "leave engine.preemption at swap"});
  }
  if (!options.residents && swaps) {
    problems.push_back({"policy " + name + " keeps no request on the GPU, so none can be swapped out",
                        "engine.preemption", "leave engine.preemption at recompute"});
  }
  refuse_chunked_prefill(settings, name, problems);
  return problems;
}

}  // namespace

PolicyInfo neo_policy(const std::string& name, NeoOptions (*options)(const Settings&)) {
  PolicyInfo info;
  info.name = name;
  info.parameters = {
      {.name = kCpuThreadsKey,
       .type = ParameterType::integer,
       .unit = "threads",
       .default_value = "",
       .minimum = 1,
       .maximum = 1024,
       .doc =
           "Threads that attend on the CPU, for each GPU. They share whole blocks of KV equally. Unset: one per core",
       .source = "NEO-MLSys25/NEO (b55aaab), pacpu: OpenMP threads"},
      {.name = kNeoLaunchKey,
       .type = ParameterType::duration,
       .unit = "ns",
       .default_value = "800us",
       .minimum = 0,
       .maximum = 1e9,
       .doc = "Predicted time in which the control thread launches kernels before the CPU attends, per stage",
       .source = "NEO-MLSys25/NEO (b55aaab), swiftllm/perfpredictor.py: 0.8 ms"},
      {.name = kNeoErrorKey,
       .type = ParameterType::real,
       .unit = "fraction",
       .default_value = "0",
       .minimum = -0.99,
       .maximum = 100.0,
       .doc = "Relative error of the predicted times of attention on the CPU: 0.2 predicts 20% too long. The simulated "
              "times do not change",
       .source = "assumed: to study a wrong predictor"},
      swap_copies_key()};
  info.figures = {
      {kPipelined, "fraction", "Share of the iterations in which decodes attend on the CPU.", std::nullopt,
       Merge::mean},
      {kCpuOnly, "iterations",
       "Iterations of decodes on the CPU alone, because nothing else could run: the public code would stop there.",
       std::nullopt, Merge::mean},
      {kCpuTokens, "tokens", "Tokens of decodes that attended on the CPU.", std::nullopt, Merge::mean},
      {kSwapOuts, "requests", "Requests that moved from the GPU to the host, whole.", std::nullopt, Merge::mean},
      {kSwapIns, "requests", "Requests that moved from the host to the GPU, whole.", std::nullopt, Merge::mean},
      {kRests, "requests", "Decodes on the host that ran in an iteration and not in the next one.", std::nullopt,
       Merge::mean},
      {kPredictionError, "fraction",
       "Predicted time of all layers over the time of their iterations, less 1. The prediction leaves out what comes "
       "before and after the layers, transfers, and the pipeline's start and end.",
       std::nullopt, Merge::mean}};
  info.suspends = true;
  info.takes_kv_over = false;
  info.cpu_attention = true;
  info.default_engine = [](const Settings&) { return "swiftllm"; };
  info.engine_defaults = [options](const Settings& settings) {
    return std::map<std::string, std::string>{{"engine.chunked_prefill", "false"},
                                              {"engine.preemption", options(settings).residents ? "swap" : "recompute"},
                                              {"engine.max_num_seqs", "512"},
                                              {"engine.max_num_batched_tokens", "20480"},
                                              {"engine.gpu_memory_utilization", "0.97"},
                                              {"memory.host_kv", ""}};
  };
  info.check = [options, name](const Settings& settings) { return check(settings, options(settings), name); };
  info.layout = [options, name](const Deployment& deployment, const Settings& settings) {
    return layout(deployment, settings, options(settings), name);
  };
  info.make = [options](const PolicyContext& context) {
    NeoOptions chosen = options(context.settings);
    chosen.launch = static_cast<double>(context.settings.get<Duration>(kNeoLaunchKey).count());
    chosen.cpu_error = context.settings.get<double>(kNeoErrorKey);
    chosen.tokens = Tokens(context.settings.get<std::int64_t>("engine.max_num_batched_tokens"));
    chosen.sequences = context.settings.get<std::int64_t>("engine.max_num_seqs");
    auto space = std::make_unique<NeoSpace>(context.view, swap_copies(context.settings));
    auto scheduler = std::make_unique<NeoScheduler>(context.view, *space, context.deployment.planner(), chosen);
    return Policy{std::move(scheduler), std::move(space)};
  };
  return info;
}

}  // namespace spillway
