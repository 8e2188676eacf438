// Simple offload: decodes beyond the GPU's memory attend on the CPU, and the GPU waits for them in every layer.
//
// Source: NEO (Jiang et al., MLSys 2025), section 3.1, its first strawman. Memory is as in NEO: requests stay on the
// GPU while there are blocks, and come back to it.
#include "policies/parts/neo_scheduler.hpp"

namespace spillway {
namespace {

NeoOptions options(const Settings&) {
  NeoOptions options;
  options.rules = NeoRules::no_overlap;
  return options;
}

PolicyInfo info() {
  PolicyInfo info = neo_policy("simple-offload", options);
  info.summary = "Offloaded decodes attend on the CPU while the GPU waits: NEO's first strawman";
  info.source = "NEO (Jiang et al., MLSys 2025), section 3.1";
  info.limits =
      "One sequence per request. The paper does not say which requests are offloaded. Spillway offloads those that do "
      "not fit the GPU's memory, as NEO does. All offloaded requests run in every iteration, within "
      "engine.max_num_seqs and the token budget.";
  return info;
}

const RegisterPolicy kRegistered(info());

}  // namespace
}  // namespace spillway
