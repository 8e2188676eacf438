#include "policies/parts/paging.hpp"

#include "policies/parts/lent_space.hpp"
#include "policies/parts/refusals.hpp"

namespace spillway {
namespace {

constexpr const char* kTier = "policy.swap_tier";
constexpr const char* kCopies = "policy.swap_copies";
constexpr const char* kPoll = "policy.lender_poll";
constexpr const char* kLender = "memory.lender";
constexpr const char* kIncremental = "policy.incremental_swap_out";

bool of_public_code(const Settings& settings) {
  return settings.has("policy.rules") && settings.get<std::string>("policy.rules") == "code";
}

bool borrows(const Settings& settings) { return settings.has(kLender) && pages_to_peer(settings); }

bool incremental(const Settings& settings) {
  const auto& wanted = settings.get<std::string>(kIncremental);
  return wanted == "auto" ? of_public_code(settings) : wanted == "true";
}

}  // namespace

std::vector<Parameter> paging_parameters(const std::string& tier, const std::string& copies) {
  return {
      {.name = kTier,
       .type = ParameterType::choice,
       .unit = "-",
       .default_value = tier,
       .choices = {"host", "peer"},
       .doc = "Where requests are paged out to. host: DRAM of the host (memory.host_kv); peer: memory that other "
              "GPUs lend (memory.peer), and the host once that is full",
       .source = "AQUA, sections 4 and 7: its tensors are on a peer GPU, or else in DRAM"},
      {.name = kCopies,
       .type = ParameterType::choice,
       .unit = "-",
       .default_value = copies,
       .choices = {"scattered", "gathered"},
       .doc = "scattered: one copy per block, layer and K or V, each with a launch; gathered: a kernel gathers all "
              "blocks that leave, or scatters those that come back, beside one copy",
       .source = "vLLM's swap_blocks; AQUA, section 7: gathered into one tensor"},
      {.name = kIncremental,
       .type = ParameterType::choice,
       .unit = "-",
       .default_value = "auto",
       .choices = {"auto", "true", "false"},
       .doc = "true: the copy of a request stays in the swap tier until the request ends, so only blocks leave that "
              "have changed since (not beside a prefix cache); auto: true with policy.rules=code",
       .source = "aquaml/vllm_cfs (ba90bac) keeps the copies; the paper does not mention them"},
      {.name = kPoll,
       .type = ParameterType::duration,
       .unit = "ns",
       .default_value = "4s",
       .minimum = 0.0,
       .maximum = 3.6e12,
       .doc = "How often, at most, the end of a decision asks whether lent memory is reclaimed, or offered again "
              "(memory.lender)",
       .source = "aquaml/aqua (0ed7c15), dynamic_policy.py: 4 s"}};
}

std::vector<Problem> paging_problems(const std::string& name, const Settings& settings) {
  std::vector<Problem> problems;
  refuse_swap(settings, "policy " + name + " pages requests out itself, so it has no choice of preemption",
              "leave engine.preemption at recompute", problems);
  if (incremental(settings) && wants_prefix_cache(settings)) {
    problems.push_back({"copies that stay in the swap tier are not modelled beside a prefix cache", kIncremental,
                        "set engine.prefix_caching=false, or policy.incremental_swap_out=false"});
  }
  if (incremental(settings) && borrows(settings)) {
    problems.push_back({"copies that stay in the swap tier are not modelled where the lender may want it back",
                        kIncremental, "set policy.incremental_swap_out=false"});
  }
  return problems;
}

bool pages_to_peer(const Settings& settings) { return settings.get<std::string>(kTier) == "peer"; }

std::unique_ptr<OffloadPolicy> make_paging(const PolicyContext& context) {
  const TierId lender = context.graph.find(kPeerTier);
  if (!borrows(context.settings) || lender == kNoTier) {
    return std::make_unique<PagedSpace>(context.view, paging_options(context));
  }
  return std::make_unique<LentSpace>(context.view, paging_options(context), lender,
                                     context.settings.get<Duration>(kPoll));
}

PagedSpaceOptions paging_options(const PolicyContext& context) {
  PagedSpaceOptions options;
  options.swap = true;
  options.exact_swap_in = true;
  if (of_public_code(context.settings)) {
    options.watermark = 0.01;
    options.spare_block_per_decode = true;
  }
  const TierId peer = context.graph.find(kPeerTier);
  if (pages_to_peer(context.settings) && peer != kNoTier) {
    options.swapping.tiers.insert(options.swapping.tiers.begin(), peer);
  }
  const bool gathered = context.settings.get<std::string>(kCopies) == "gathered";
  options.swapping.mechanism = gathered ? CopyMechanism::gather : CopyMechanism::many;
  options.swapping.in_turn = true;
  options.swapping.incremental = incremental(context.settings);
  return options;
}

}  // namespace spillway
