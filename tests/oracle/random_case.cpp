#include "tests/oracle/random_case.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "sim/config/config.hpp"

namespace spillway::oracle {
namespace {

Value draw_value(const Parameter& parameter, std::int64_t scale, Dice& dice) {
  const bool open = parameter.default_value.empty() && std::isfinite(parameter.minimum);
  if (parameter.type == ParameterType::boolean) {
    if (parameter.default_value.empty() && dice.chance(50)) return std::monostate{};
    return dice.chance(50);
  }
  if (parameter.type == ParameterType::choice) {
    return parameter
        .choices[static_cast<std::size_t>(dice.between(0, static_cast<std::int64_t>(parameter.choices.size()) - 1))];
  }
  // A policy that pads needs lengths for small workloads.
  if (parameter.name.starts_with("policy.pad_")) return dice.between(1, 24);
  // Models here take nanoseconds where machines take milliseconds.
  if (parameter.name.ends_with("fetch_overhead") || parameter.name == "policy.launch")
    return Duration(scale * dice.between(0, 20));
  // Layers here have four experts, of which a token uses two.
  if (parameter.name.ends_with(".slots") && dice.chance(60)) return dice.between(2, 4);
  if (parameter.name.ends_with(".gpu_experts") && dice.chance(60)) return dice.between(0, 4);
  if (parameter.name.ends_with(".cpu_offload") && dice.chance(70)) return Bytes(100 * dice.between(0, 200));
  if (parameter.name.ends_with(".slots") || parameter.name.ends_with(".gpu_experts")) return std::monostate{};
  if (parameter.name.ends_with(".deferred_experts") || parameter.name.ends_with(".prefetch")) return dice.between(0, 2);
  if (parameter.name.ends_with(".gpu_prefill_threshold")) return dice.between(0, 20);
  if (parameter.name.ends_with(".uploads")) return dice.between(0, 3);
  if (parameter.type == ParameterType::integer && open && dice.chance(60)) {
    return static_cast<std::int64_t>(parameter.minimum) + dice.between(0, 4);
  }
  if (parameter.type == ParameterType::real && open && dice.chance(60)) {
    return parameter.minimum + 0.01 * static_cast<double>(dice.between(0, 100));
  }
  if (parameter.type == ParameterType::integer && open && dice.chance(50)) {
    return static_cast<std::int64_t>(parameter.minimum) + dice.between(0, 5);
  }
  Value value = default_value(parameter);
  if (auto* const duration = std::get_if<Duration>(&value)) *duration = *duration * scale;
  return value;
}

/// Lets a policy that streams layers lay out the memory; false when its layout does not fit.
bool lay_out(const PolicyInfo& policy, const Settings& settings, const ExecutionModel& model, std::int64_t scale,
             Dice& dice, NaiveConfig& config) {
  config.deployment = snug_deployment(model, config.gpu_blocks, config.block_bytes, config.block_tokens,
                                      Bytes(64 * dice.between(1, 40)));
  *config.deployment.cpu_attention_bandwidth /= static_cast<double>(scale);
  config.deployment.peak_flops /= static_cast<double>(scale);
  config.deployment.memory_bandwidth /= static_cast<double>(scale);
  ExpertDeployment& experts = *config.deployment.experts;
  for (double* const rate : {&experts.gpu_bandwidth, &experts.gpu_flops, &experts.dram_peak}) {
    *rate /= static_cast<double>(scale);
  }
  experts.cpu_flops = RateByRows({{1, 1e10 / static_cast<double>(scale)}, {64, 1e11 / static_cast<double>(scale)}});
  if (policy.places_experts) {
    config.experts = {.count = experts.count,
                      .top_k = experts.top_k,
                      .layers = experts.expert_layers(),
                      .skew = 0.1 * static_cast<double>(dice.between(0, 15)),
                      .locality = 0.1 * static_cast<double>(dice.between(0, 9)),
                      .patterns = policy.expert_patterns > 1 ? static_cast<std::int32_t>(dice.between(1, 4)) : 1,
                      .seed = static_cast<std::uint64_t>(dice.between(1, 1'000'000))};
    if (policy.caches_experts && dice.chance(40) && experts.count > 2) {
      const auto slots = static_cast<std::int32_t>(dice.between(1, experts.count - 1));
      config.experts.hit_curve = {{slots, 0.01 * static_cast<double>(dice.between(0, 100))}};
    }
  }
  try {
    const Layout layout = policy.layout(config.deployment, settings);
    config.gpu_blocks = layout.blocks;
    config.most_gpu_blocks = layout.most;
    config.deployment.chosen = layout.chosen;
  } catch (const ConfigError&) {
    return false;
  }
  return config.gpu_blocks > Blocks(0);
}

std::vector<RequestSpec> draw_requests(Dice& dice, std::int64_t scale, std::int64_t block_tokens, bool with_prefixes,
                                       std::int64_t longest) {
  std::vector<RequestSpec> requests;
  const std::int64_t count = dice.between(1, 60);
  const std::int64_t gap = dice.between(0, 3) == 0 ? 0 : dice.between(1, 4000);
  // Few clients that meet often, or many clients with rare requests.
  const std::int64_t clients = count > 40 ? 40 : 4;
  SimTime now;
  for (std::int64_t i = 0; i < count; ++i) {
    RequestSpec request;
    now = now + Duration(scale * dice.between(0, gap));
    request.arrival = now;
    request.input = Tokens(dice.between(1, longest));
    request.output = Tokens(dice.chance(15) ? 1 : dice.between(1, longest));
    request.max_new_tokens = request.output + Tokens(dice.chance(30) ? dice.between(0, longest) : 0);
    request.client = static_cast<std::uint32_t>(dice.between(0, clients - 1));
    if (with_prefixes && dice.chance(80)) {
      // Few distinct ids, so that prefixes of all lengths are shared.
      // The answer may have ids too, as in a conversation.
      const Tokens named = request.input + (dice.chance(30) ? request.output : Tokens(0));
      for (std::int64_t b = 0; b < named.count() / block_tokens; ++b) {
        request.prefix_ids.push_back(static_cast<std::uint64_t>(dice.between(0, 2) == 0 ? dice.between(0, 3) : 7));
      }
    }
    requests.push_back(request);
  }
  return requests;
}

/// In two of five cases, about half of the requests follow an earlier one, at once or after some time.
std::vector<Follows> draw_follows(Dice& dice, std::int64_t scale, std::vector<RequestSpec>& requests) {
  std::vector<Follows> follows(requests.size());
  const bool some = dice.chance(40);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].traits.conversation = static_cast<std::int64_t>(i);
    if (!some || i == 0 || dice.chance(50)) continue;
    follows[i].after = dice.between(0, static_cast<std::int64_t>(i) - 1);
    if (!dice.chance(30)) follows[i].think = Duration(scale * dice.between(0, 2000));
  }
  return follows;
}

}  // namespace

Deployment snug_deployment(const ExecutionModel& model, Blocks gpu_blocks, Bytes block_bytes, Tokens block_tokens,
                           Bytes layer_weights) {
  Deployment deployment;
  deployment.model = &model;
  deployment.layers = model.layers();
  deployment.layer_weights = layer_weights;
  deployment.attention_matrices.assign(4, Bytes(1));  // as in OPT, where an MLP is twice as large as attention
  deployment.mlp_matrices.assign(2, Bytes(4));
  deployment.weights = layer_weights * model.layers() + Bytes(1000);
  deployment.block_bytes = block_bytes;
  deployment.block_tokens = block_tokens;
  deployment.gpu_kv = block_bytes * gpu_blocks.count();
  deployment.memory = deployment.weights + deployment.gpu_kv;
  deployment.hidden = deployment.query_width = deployment.kv_width = 64;
  deployment.ffn = 256;
  deployment.heads = 4;
  deployment.host_memory = Bytes(1'000'000);
  deployment.cpu_attention_bandwidth = 1e9;
  deployment.peak_flops = 1e12;
  deployment.memory_bandwidth = 1e10;
  deployment.gpus = 2;
  // Half of a layer's weights are experts.
  ExpertDeployment experts;
  experts.count = 4;
  experts.top_k = 2;
  for (std::int32_t layer = 0; layer < model.layers(); ++layer) experts.layers.push_back(layer);
  experts.bytes = Bytes(layer_weights.count() / 8);
  experts.parameters = static_cast<double>(experts.bytes.count()) / 2.0;
  experts.hidden_bytes = 2;
  experts.gpu_bandwidth = 1e10;
  experts.gpu_flops = 1e12;
  experts.dram_peak = 1e9;
  experts.cpu_flops = RateByRows({{1, 1e10}, {64, 1e11}});
  deployment.experts = experts;
  const Bytes eighth(layer_weights.count() / 8);
  deployment.tensors.assign(static_cast<std::size_t>(model.layers()),
                            {{eighth * 3}, {layer_weights - eighth * 7}, {eighth * 3, true}, {eighth, true}});
  deployment.active_experts = [](std::int64_t tokens) { return std::min(1.0, static_cast<double>(tokens) / 2.0); };
  return deployment;
}

Value default_value(const Parameter& parameter) {
  if (parameter.default_value.empty()) return std::monostate{};
  std::vector<Problem> problems;
  const std::optional<ParsedValue> parsed = parse_value(parameter, parameter.default_value, parameter.name, problems);
  if (!parsed) throw std::logic_error("the default of " + parameter.name + ": " + problems.front().what);
  return parsed->value;
}

Settings policy_settings(const PolicyInfo& policy, const std::vector<std::pair<std::string, Value>>& overrides) {
  Settings settings;
  settings.set("engine.max_num_batched_tokens", std::int64_t{2048});
  settings.set("engine.max_num_seqs", std::int64_t{256});
  settings.set("engine.chunked_prefill", true);
  settings.set("engine.preemption", std::string("recompute"));
  settings.set("engine.prefix_caching", std::string("auto"));
  settings.set("memory.host_kv", Bytes(1'000'000'000'000));
  for (const Parameter& parameter : policy.parameters) settings.set(parameter.name, default_value(parameter));
  for (const auto& [key, value] : overrides) settings.set(key, value);
  return settings;
}

bool accepts_preemption(const PolicyInfo& policy, const std::string& how) {
  if (!policy.check) return true;
  const std::vector<Problem> problems = policy.check(policy_settings(policy, {{"engine.preemption", how}}));
  return std::none_of(problems.begin(), problems.end(),
                      [](const Problem& problem) { return problem.where == "engine.preemption"; });
}

bool swaps(const PolicyInfo& policy) { return policy.preempts && accepts_preemption(policy, "swap"); }

void draw_case(std::uint64_t seed, const PolicyInfo& policy, const ExecutionModel& model, std::int64_t scale,
               Settings& settings, NaiveConfig& config, const std::function<void(Dice&, Settings&)>& vary) {
  Dice dice(seed);
  std::vector<Problem> problems;
  int tries_left = 10'000;
  do {
    if (tries_left-- == 0) {
      throw std::logic_error("policy " + policy.name + " refuses every random combination of settings, the last at " +
                             problems.front().where + ": " + problems.front().what);
    }
    settings = policy_settings(
        policy, {{"engine.max_num_batched_tokens", dice.chance(50) ? dice.between(1, 40) : dice.between(40, 2000)},
                 {"engine.max_num_seqs", dice.between(1, 24)},
                 {"engine.chunked_prefill", dice.chance(50)},
                 {"engine.preemption", std::string(dice.chance(50) ? "swap" : "recompute")}});
    for (const Parameter& parameter : policy.parameters) {
      settings.set(parameter.name, draw_value(parameter, scale, dice));
      // One cache for all six layers needs more slots than a layer has experts.
      const bool of_all_layers = policy.expert_patterns > 1 && parameter.name.ends_with(".gpu_experts");
      if (of_all_layers && settings.has(parameter.name)) settings.set(parameter.name, dice.between(5, 20));
    }
    if (vary) vary(dice, settings);
    if (policy.check) problems = policy.check(settings);
  } while (!problems.empty());

  config = NaiveConfig{};
  config.model = &model;
  config.policy = &policy;
  config.settings = &settings;
  read_surroundings(config);
  config.block_tokens = Tokens(dice.between(1, 4) == 1 ? 1 : dice.between(2, 16));
  config.gpu_blocks = Blocks(dice.between(1, 40));
  config.host_blocks = Blocks(dice.chance(30) ? 0 : dice.between(1, 40));
  config.block_bytes = Bytes(64 * dice.between(1, 9));
  config.copies_per_block = dice.between(1, 6);
  config.prefix_caching = dice.chance(50);
  if (config.prefix_caching && dice.chance(60)) config.host_cache_blocks = Blocks(dice.between(1, 60));
  config.host_cache_copies_per_block = dice.between(1, 3);
  if (policy.borrows) {
    const Blocks lent(dice.chance(30) ? 0 : dice.between(1, 40));
    config.further = {{{kPeerTier, lent, lent}},
                      {{TierId(2), kGpuTier, Stream::peer_in, config.copies_per_block},
                       {kGpuTier, TierId(2), Stream::peer_out, config.copies_per_block}}};
    config.cache_is_lent = dice.chance(50);
  }
  if (policy.prefix_copies) config.host_cache_mechanism = policy.prefix_copies(settings);
  if (policy.make_space) {
    config.deployment = snug_deployment(model, config.gpu_blocks, config.block_bytes, config.block_tokens, Bytes(64));
  }
  if (settings.has("policy.chunk_tokens")) {
    settings.set("policy.chunk_tokens", config.block_tokens.count() * dice.between(1, 4));
  }
  if (policy.layout) {
    while (!lay_out(policy, settings, model, scale, dice, config)) config.gpu_blocks += Blocks(dice.between(1, 20));
  }
  // NEO admits prompts only while the host could take all that is on the GPU, too.
  if (policy.cpu_attention && dice.chance(70)) config.host_blocks += config.gpu_blocks;
  config.prefix_caching = config.prefix_caching && policy.shares_prefixes;
  const std::int64_t capacity =
      std::max(config.gpu_blocks, config.most_gpu_blocks).count() * config.block_tokens.count();
  config.max_model_len = Tokens(dice.chance(80) ? capacity : 1 + capacity / 2);
  if (dice.chance(30)) config.request_timeout = Duration(scale * dice.between(1, 20'000));
  if (dice.chance(20)) config.until = SimTime(scale * dice.between(1, 60'000));
  const std::int64_t longest = settings.has("policy.pad_input") ? 16 : 2 + capacity / 2;
  config.requests =
      draw_requests(dice, scale, config.block_tokens.count(), config.prefix_caching, dice.between(1, longest));
  config.follows = draw_follows(dice, scale, config.requests);
  config.schedules_ahead = dice.chance(30);
  if (dice.chance(30)) config.front_end = Duration(scale * dice.between(1, 500));
}

void draw_conversations(std::uint64_t seed, NaiveConfig& config) {
  Dice dice(seed + 1'000'000);
  config.prefix_caching = false;
  config.host_cache_blocks = Blocks(0);
  // Nothing follows an answer, not that of a request of no conversation either, whose number is -1.
  config.follows.assign(config.requests.size(), {.after = -2});
  const std::int64_t capacity = config.block_tokens.count() * config.gpu_blocks.count();
  const std::int64_t conversations = dice.between(1, 6);
  std::vector<Tokens> lengths(static_cast<std::size_t>(conversations));
  for (RequestSpec& request : config.requests) {
    request.prefix_ids.clear();
    const std::int64_t number = dice.between(0, conversations - 1);
    request.traits.conversation = dice.chance(90) ? number : -1;
    if (request.traits.conversation < 0) continue;
    Tokens& length = lengths[static_cast<std::size_t>(number)];
    if (dice.chance(80)) {
      const Tokens added(dice.between(1, 10));
      const Tokens answer = std::min(request.output, Tokens(12));
      if ((length + added + answer).count() * 5 > capacity * 4) length = Tokens(0);
      request.input = length + added;
      request.max_new_tokens = request.output = answer;
      request.traits.repeats = dice.chance(90) ? length : Tokens(dice.between(0, length.count()));
    } else if (dice.chance(50)) {
      request.traits.repeats = Tokens(dice.between(0, request.input.count()));
    }
    length = request.input + request.output;
  }
}

}  // namespace spillway::oracle
