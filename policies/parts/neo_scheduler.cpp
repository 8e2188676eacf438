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

void NeoSpace::returns(const View& view, const RequestView& request, Placement& placement) {
  // What attends on the CPU rested on the host.
  if (tier_ == kGpuTier) PagedSpace::returns(view, request, placement);
}

NeoScheduler::NeoScheduler(const View& view, NeoSpace& space, const ExecutionModel& model, const NeoOptions& options)
    : view_(view), space_(space), model_(model), options_(options) {}

void NeoScheduler::iteration_ended() {
  ++iterations_;
  pipelined_ += choice_.pipelined ? 1 : 0;
  predicted_sum_ += choice_.predicted * static_cast<double>(model_.layers());
  lasted_sum_ += static_cast<double>((view_.now() - started_).count());
  cpu_tokens_ += static_cast<double>(host_decodes_);
  for (OnHost& request : host_) {
    if (!request.runs) continue;
    request.known += Tokens(1);
    host_running_ += Tokens(1);
    if (--request.left >= 0) continue;
    request.left = view_.block_tokens().count() - 1;
    host_blocks_ += Blocks(1);
  }
}

void NeoScheduler::ended(RequestId id, Outcome /*outcome*/) {
  if (std::erase(gpu_, id) > 0) return;
  const auto found = std::ranges::find(host_, id, &OnHost::id);
  if (found != host_.end()) forget(found);
  // One that waits is dropped when its turn comes.
}

std::deque<NeoScheduler::OnHost>::iterator NeoScheduler::forget(const std::deque<OnHost>::iterator& request) {
  host_blocks_ -= blocks(request->known);
  if (request->runs) host_running_ -= request->known;
  return host_.erase(request);
}

NeoScheduler::OnHost NeoScheduler::enter_host(RequestId id, Tokens known) {
  host_blocks_ += blocks(known);
  return {.id = id, .known = known, .left = (view_.block_tokens() * blocks(known).count() - known).count()};
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
    if (host_blocks_ + blocks(known) <= view_.tier(kHostTier).total) {
      decision.leave(victim, Leave::preempt_swap);
      host_.push_front(enter_host(victim, known));
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
    const OnHost head = host_.front();
    if (plan.gpu_blocks + blocks(head.known) > limit) return;
    if (head.runs) decision.leave(head.id, Leave::suspend);
    forget(host_.begin());
    space_.attend_on(kGpuTier);
    decision.resume(head.id);
    gpu_.push_back(head.id);
    ++swap_ins_;
    --plan.seats;
    plan.tokens -= Tokens(1);
    plan.gpu_blocks = gpu_needed();
  }
}

void NeoScheduler::recompute_beyond_host(Decision& decision) {
  while (host_blocks_ > view_.tier(kHostTier).total) {
    const OnHost last = host_.back();
    if (!last.runs) {
      space_.attend_on(kHostTier);
      decision.resume(last.id);
    }
    decision.leave(last.id, Leave::preempt_recompute);
    forget(host_.end() - 1);
    waiting_.push_front(last.id);
  }
}

bool NeoScheduler::never_fits(const RequestView& request) const {
  const Blocks needed = blocks(request.known);
  return request.known > options_.tokens || needed > view_.tier(kGpuTier).total ||
         needed > view_.tier(kHostTier).total - gpu_capacity();
}

void NeoScheduler::find_prompts(Plan& plan, Decision& decision) {
  gpu_lengths_.clear();
  cpu_lengths_.clear();
  Blocks staged;  // pass through the staging layer
  Blocks on_host = host_blocks_;
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
    const bool fits = staged + needed <= view_.tier(kGpuTier).total &&
                      on_host + needed <= view_.tier(kHostTier).total - gpu_capacity();
    if (!fits) return decision.blocked(Blocked::kv_capacity);
    if (plan.seats < 1) return decision.blocked(Blocked::batch_size);
    if (plan.tokens < request.known) return decision.blocked(Blocked::token_budget);
    --plan.seats;
    plan.tokens -= request.known;
    if (cpu_lengths_.empty() && plan.gpu_blocks + needed <= gpu_capacity()) {
      plan.gpu_blocks += needed;
      gpu_lengths_.push_back(request.known);
    } else {
      staged += needed;
      on_host += needed;
      cpu_lengths_.push_back(request.known);
    }
    ++i;
  }
}

void NeoScheduler::choose(const Plan& plan) {
  if (!tables_) {
    const Tokens block = view_.block_tokens();
    tables_.emplace(model_,
                    NeoRanges{.batch = options_.tokens,
                              .longest = view_.max_model_len(),
                              .gpu_context = block * view_.tier(kGpuTier).total.count(),
                              .sequences = options_.sequences,
                              .cpu_context = block * view_.tier(kHostTier).total.count()},
                    options_.cpu_error);
  }
  contexts_.clear();
  for (const OnHost& request : host_) contexts_.push_back(request.known);
  const bool decodes_alone = gpu_.empty() && gpu_lengths_.empty() && cpu_lengths_.empty() && !host_.empty();
  const bool stuck = decodes_alone && (options_.rules == NeoRules::code || options_.rules == NeoRules::paper);
  NeoCandidates candidates{.gpu_prompts = gpu_lengths_,
                           .cpu_prompts = cpu_lengths_,
                           .gpu_decodes = std::ssize(gpu_),
                           .gpu_context = view_.batch().decode_context - host_running_,
                           .cpu_decodes = contexts_,
                           .budget = std::min(plan.seats, plan.tokens.count())};
  if (stuck && !options_.resolves_livelock) candidates.budget = 0;
  neo_choose(candidates, stuck ? NeoRules::fastdecode : options_.rules, *tables_, options_.launch, choice_);
  cpu_only_ += stuck ? 1 : 0;
}

void NeoScheduler::place_decodes(Decision& decision) {
  host_decodes_ = 0;
  space_.attend_on(kHostTier);
  for (std::size_t i = 0; i < host_.size(); ++i) {
    OnHost& request = host_[i];
    const std::int8_t to = choice_.sub_batch[i];
    if (to == NeoChoice::kRests) {
      if (!request.runs) continue;
      decision.leave(request.id, Leave::suspend);
      request.runs = false;
      host_running_ -= request.known;
      ++rests_;
      continue;
    }
    ++host_decodes_;
    if (!request.runs) {
      decision.resume(request.id);
      request.runs = true;
      request.sub_batch = 0;
      host_running_ += request.known;
    }
    if (request.sub_batch != to) decision.sub_batch(request.id, to);
    request.sub_batch = to;
  }
}

void NeoScheduler::start_prompts(Decision& decision) {
  const auto start = [&](Tokens known) {
    const RequestId id = waiting_.front();
    waiting_.pop_front();
    decision.join(id);
    decision.chunk(id, known);
    return id;
  };
  space_.attend_on(kGpuTier);
  for (const Tokens known : gpu_lengths_) gpu_.push_back(start(known));
  space_.attend_on(kHostTier);
  for (std::size_t i = 0; i < choice_.cpu_prompts; ++i) {
    host_.push_back(enter_host(start(cpu_lengths_[i]), cpu_lengths_[i]));
    host_.back().runs = true;
    host_running_ += cpu_lengths_[i];
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
    throw ConfigError("the weights leave no GPU memory for KV", "model",
                      "raise tensor_parallel, choose hardware with more memory, or a smaller model");
  }
  if (blocks < Blocks(1)) {
    throw ConfigError("policy " + name + " has no KV block on the GPU: of " + std::to_string(whole.count()) +
                          " blocks, one of " + std::to_string(deployment.layers + 1) + " layers stages prompts",
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
  if (wants_prefix_cache(settings)) {
    problems.push_back(
        {"policy " + name + " attends on the CPU, and there is no prefix cache whose blocks the CPU reads",
         "engine.prefix_caching", "leave it at auto, or use policy=vllm"});
  }
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
       .doc = "Error of the predicted times of attention on the CPU: 0.2 predicts 20% too much. What is charged stays",
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
  info.shares_prefixes = false;
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
