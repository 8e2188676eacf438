// NEO: attention of some decodes on the CPU, in two sub-batches of different kinds that use GPU and CPU side by side.
//
// Source: NEO (Jiang et al., MLSys 2025), section 3.2 and appendix A; its public code (NEO-MLSys25/NEO, b55aaab). The
// ten steps of an iteration are in parts/neo_scheduler.hpp, the choice of sub-batches in parts/neo_choice.hpp, what it
// predicts in parts/neo_predictor.hpp. What is charged is the engine's: two stages per layer, filled and drained
// (sim/exec/cpu_attention.hpp).
//
// Beside a prefix cache, which the original lacks, a prompt computes only what is not cached. One whose KV goes to the
// host uses the cached blocks on the GPU while it is computed. Then all of its KV is on the host, the cached part as a
// copy. Where its blocks are cached afterwards is in parts/neo_scheduler.hpp.
#include "policies/parts/neo_scheduler.hpp"

namespace spillway {
namespace {

constexpr const char* kRules = "policy.rules";

NeoOptions options(const Settings& settings) {
  NeoOptions options;
  options.rules = settings.get<std::string>(kRules) == "paper" ? NeoRules::paper : NeoRules::code;
  return options;
}

PolicyInfo info() {
  PolicyInfo info = neo_policy("neo", options);
  info.summary = "NEO: decodes beyond the GPU's memory attend on the CPU, in a pipeline of two unequal sub-batches";
  info.source = "NEO (Jiang et al., MLSys 2025), section 3.2 and appendix A; NEO-MLSys25/NEO (b55aaab)";
  info.limits =
      "One sequence per request. Spillway rejects a request that can never run; the public code stops with an "
      "assertion. The public code does not check that the host has memory for the next tokens: Spillway recomputes the "
      "last request of the host's queue. The staging layer takes memory, but a layer does not wait until the KV of the "
      "layer before it has been copied out. The public code has no prefix cache: what a cached prefix saves is "
      "Spillway's rule (policies/parts/neo_scheduler.hpp).";
  info.parameters.push_back(
      {.name = kRules,
       .type = ParameterType::choice,
       .unit = "-",
       .default_value = "code",
       .choices = {"code", "paper"},
       .doc = "code: the inequalities include the attention of prompts and the launch. A decode goes to the sub-batch "
              "with more slack. A decode at least as long as a refused decode is skipped. paper: the inequalities have "
              "neither "
              "term. A decode goes to the second sub-batch if it fits there, else to the first. No decode is skipped",
       .source = "NEO, appendix A; NEO-MLSys25/NEO (b55aaab), swiftllm/server/scheduler.py"});
  return info;
}

const RegisterPolicy kRegistered(info());

}  // namespace
}  // namespace spillway
