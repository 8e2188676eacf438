// FastDecode: the KV of every request is on the host, where the CPU attends for all decodes.
//
// Source: FastDecode (He and Zhai, 2024), as NEO describes it, and FastDecode+, NEO's baseline: NEO's scheduler without
// requests that stay on the GPU and without its inequalities (NEO, MLSys 2025, section 5). FastDecode's own pipeline
// has two equal halves.
#include "policies/parts/neo_scheduler.hpp"

namespace spillway {
namespace {

constexpr const char* kPipeline = "policy.pipeline";

NeoOptions options(const Settings& settings) {
  NeoOptions options;
  options.rules = settings.get<std::string>(kPipeline) == "symmetric" ? NeoRules::symmetric : NeoRules::fastdecode;
  options.residents = false;
  return options;
}

PolicyInfo info() {
  PolicyInfo info = neo_policy("fastdecode", options);
  info.summary = "FastDecode(+): all decodes attend on the CPU, in two sub-batches in turn; NEO's baseline";
  info.source = "FastDecode (He and Zhai, 2024), and FastDecode+ of NEO (Jiang et al., MLSys 2025), section 5";
  info.limits =
      "One sequence per request. The GPU's own host is the only host. FastDecode starts sequences in steps so that the "
      "contexts of its halves stay equal: not modelled. A request that does not fit the host's memory is recomputed.";
  info.parameters.push_back(
      {.name = kPipeline,
       .type = ParameterType::choice,
       .unit = "-",
       .default_value = "slack",
       .choices = {"slack", "symmetric"},
       .doc = "slack: a decode goes to the sub-batch with more time left for the CPU (FastDecode+); symmetric: a "
              "decode goes to the sub-batch with less context (FastDecode)",
       .source = "NEO, section 5; FastDecode"});
  return info;
}

const RegisterPolicy kRegistered(info());

}  // namespace
}  // namespace spillway
