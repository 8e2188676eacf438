#include "policies/parts/paging.hpp"

#include <limits>

#include "policies/parts/borrowing.hpp"
#include "policies/parts/lent_space.hpp"
#include "policies/parts/refusals.hpp"

namespace spillway {
namespace {

constexpr const char* kCopies = "policy.swap_copies";
constexpr const char* kLender = "memory.lender";
constexpr const char* kIncremental = "policy.incremental_swap_out";
constexpr const char* kFallback = "policy.fallback";
constexpr const char* kKeepPrefixes = "policy.keep_prefixes";

bool of_public_code(const Settings& settings) {
  return settings.has("policy.rules") && settings.get<std::string>("policy.rules") == "code";
}

bool borrows(const Settings& settings) { return settings.has(kLender) && borrows_memory(settings); }

bool incremental(const Settings& settings) {
  const auto& wanted = settings.get<std::string>(kIncremental);
  return wanted == "auto" ? of_public_code(settings) : wanted == "true";
}

}  // namespace

std::vector<Parameter> paging_parameters(const std::string& tier, const std::string& copies) {
  return {
      swap_tier_parameter(tier,
                          "Where requests are paged out to. host: DRAM of the host (memory.host_kv); peer: memory that "
                          "other GPUs lend (memory.peer), and the host once that is full"),
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
       .doc = "true: the copy of a request stays in the swap tier until the request ends, so only blocks that have "
              "changed since then are copied out (not with a prefix cache); auto: true with policy.rules=code",
       .source = "aquaml/vllm_cfs (ba90bac) keeps the copies; the paper does not mention them"},
      lender_poll_parameter(),
      {.name = kFallback,
       .type = ParameterType::choice,
       .unit = "-",
       .default_value = "none",
       .choices = {"none", "fcfs"},
       .doc = "fcfs: while no memory is lent, or the lent memory is full, no request is paged to the host for another "
              "one; requests run first come, first served",
       .source = "AQUA, section 7: a fallback where the tensors are in DRAM"},
      {.name = kKeepPrefixes,
       .type = ParameterType::boolean,
       .unit = "-",
       .default_value = "true",
       .doc = "false: the GPU forgets a block of the prefix cache when its last user leaves it, so a context is copied "
              "from a lower tier each time (memory.host_cache, memory.peer_cache)",
       .source = "AQUA, section 9.3: contexts that many prompts share are kept in the swap tier"}};
}

std::vector<Problem> paging_problems(const std::string& name, const Settings& settings) {
  std::vector<Problem> problems;
  refuse_swap(settings, "policy " + name + " pages requests out itself, so it has no choice of preemption",
              "leave engine.preemption at recompute", problems);
  if (settings.get<std::string>(kFallback) == "fcfs") {
    if (!borrows_memory(settings)) {
      problems.push_back({"policy.fallback=fcfs is for requests that page to lent memory, and these page to the host",
                          kFallback, "set policy.swap_tier=peer, or leave it at none"});
    }
    if (of_public_code(settings)) {
      problems.push_back(
          {"the public code of cfs has no fallback", kFallback, "leave it at none, or use policy.rules=paper"});
    }
  }
  if (incremental(settings) && wants_prefix_cache(settings)) {
    problems.push_back({"copies that stay in the swap tier are not modelled beside a prefix cache", kIncremental,
                        "set engine.prefix_caching=false, or policy.incremental_swap_out=false"});
  }
  if (incremental(settings) && borrows(settings)) {
    problems.push_back(
        {"copies that stay in the swap tier are not modelled where the lender may reclaim its memory (memory.lender)",
         kIncremental, "set policy.incremental_swap_out=false"});
  }
  return problems;
}

std::unique_ptr<OffloadPolicy> make_paging(const PolicyContext& context) {
  const TierId lender = context.graph.find(kPeerTier);
  if (!borrows(context.settings) || lender == kNoTier) {
    return std::make_unique<PagedSpace>(context.view, paging_options(context));
  }
  return std::make_unique<LentSpace>(context.view, paging_options(context), lender,
                                     context.settings.get<Duration>(kLenderPollKey), of_public_code(context.settings));
}

CopyMechanism paging_mechanism(const Settings& settings) {
  return settings.get<std::string>(kCopies) == "gathered" ? CopyMechanism::gather : CopyMechanism::many;
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
  if (borrows_memory(context.settings) && peer != kNoTier) {
    options.swapping.tiers.insert(options.swapping.tiers.begin(), peer);
  }
  options.swapping.mechanism = paging_mechanism(context.settings);
  options.swapping.in_turn = true;
  options.swapping.stay_off_host = context.settings.get<std::string>(kFallback) == "fcfs";
  options.swapping.incremental = incremental(context.settings);
  if (!context.settings.get<bool>(kKeepPrefixes)) {
    options.retention = [](const View&, const FreedBlock&) { return -std::numeric_limits<double>::infinity(); };
  }
  return options;
}

}  // namespace spillway
