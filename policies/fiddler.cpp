// Fiddler: the most popular experts stay on the GPU; of the others, each is computed by the CPU or copied, whichever is
// faster for its tokens.
//
// Source: Kamahori et al., Fiddler, arXiv 2402.07033; efeslab/fiddler (227715b), src/fiddler/mixtral.py. The
// rule of the choice is known from summaries of the paper.
//
//   placement   as many experts of all layers as fit, in order of their popularity; they never move
//   choice      s tokens use an expert that is not on the GPU: the CPU computes them in alpha s. If that is more than
//               the copy and the GPU's time, the expert is copied to the GPU, computed there, and not kept
//   time        the GPU takes its experts by number, with a blocking copy from memory that is not page-locked before
//               each that is not there. Then the CPU takes its own. With policy.overlap both go on side by side
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "policies/parts/expert_layers.hpp"
#include "policies/parts/popular_experts.hpp"
#include "policies/parts/weight_layers.hpp"
#include "sim/api/registry.hpp"

namespace spillway {
namespace {

constexpr const char* kExperts = "policy.gpu_experts";
constexpr const char* kTokenTime = "policy.cpu_token_time";
constexpr const char* kConstants = "policy.constants";
constexpr const char* kOverlap = "policy.overlap";
/// Of the public code: the CPU's time for a token, and the GPU's for an expert, its copy included.
constexpr double kPublishedCpu = 7.0;
constexpr double kPublishedGpu = 70.0;

class Fiddler final : public ExpertLayers {
 public:
  Fiddler(const Deployment& deployment, const Settings& settings, std::int64_t on_gpu, Blocks capacity)
      : ExpertLayers(deployment, capacity, expert_cpu(deployment, settings)),
        resident_(most_popular(experts(), on_gpu)),
        published_(settings.get<std::string>(kConstants) == "published"),
        overlap_(settings.get<bool>(kOverlap)),
        slower_(pageable_slowdown(settings)) {
    token_seconds_ = settings.has(kTokenTime) ? to_seconds(settings.get<Duration>(kTokenTime)) : cpu_reading_seconds(1);
    const CopyTime copy = deployment.model->copy(Stream::h2d, experts().matrices, experts().bytes, CopyMechanism::many);
    copied_ = copy.launch + round_seconds(to_seconds(copy.transfer) * slower_);
  }

 private:
  [[nodiscard]] Duration time_on_cpu(std::int64_t tokens) const {
    return round_seconds(token_seconds_ * static_cast<double>(tokens));
  }
  /// Compares whole nanoseconds, so a tie is a tie on every machine.
  [[nodiscard]] bool copies(std::int64_t tokens) {
    if (published_) return kPublishedCpu * static_cast<double>(tokens) >= kPublishedGpu;
    const auto at = static_cast<std::size_t>(tokens);
    if (at >= is_copied_.size()) is_copied_.resize(at + 1);
    if (!is_copied_[at]) {
      is_copied_[at] = time_on_cpu(tokens) > copied_ + round_seconds(experts().gpu_seconds(1, tokens));
    }
    return *is_copied_[at];
  }

  void gate(std::int32_t layer, CopySink& sink) override {
    const std::span<const ExpertUse> used = activation().layer(layer);
    Duration on_cpu{};
    std::int64_t cpu_experts = 0;
    for (const ExpertUse& use : used) {
      if (resident_.holds(layer, use.expert)) {
        ++counts_.resident;
        compute(1, use.tokens);
      } else if (copies(use.tokens)) {
        ++counts_.loaded;
        counts_.demanded += experts().bytes;
        load_and_compute(1, use.tokens, experts().matrices, slower_);
      } else {
        ++counts_.on_cpu;
        ++cpu_experts;
        on_cpu += time_on_cpu(use.tokens);
      }
    }
    if (cpu_experts == 0) return;
    if (overlap_) {
      compute_on_cpu_for(sink, cpu_experts, on_cpu);
    } else {
      compute_on_cpu_in_turn(cpu_experts, on_cpu);
    }
  }

  ResidentExperts resident_;
  bool published_;
  bool overlap_;
  double slower_;
  double token_seconds_ = 0.0;                    // of an expert on the CPU
  Duration copied_{};                             // of an expert's copy
  std::vector<std::optional<bool>> is_copied_{};  // by tokens
};

PolicyInfo info() {
  PolicyInfo info;
  info.name = "fiddler";
  info.summary = "Fiddler: popular experts on the GPU; others on the CPU, or copied when their tokens are many";
  info.source = "Kamahori et al., Fiddler, arXiv 2402.07033; efeslab/fiddler (227715b), src/fiddler/mixtral.py";
  info.limits =
      "The CPU's time is proportional to tokens, as Fiddler models its own kernel. Activations cross the link with the "
      "fixed time policy.sync. Beam search is not modelled.";
  info.figures = expert_figures();
  info.places_experts = true;
  info.streams = {.weights = true};
  info.default_scheduler = "vllm";
  info.parameters = {
      gpu_experts_parameter(kExperts, "experts of all layers",
                            "Fiddler fills 95% of the GPU's memory; engine.gpu_memory_utilization is Spillway's share"),
      {.name = kTokenTime,
       .type = ParameterType::duration,
       .unit = "ns",
       .default_value = "",
       .minimum = 0.0,
       .maximum = 1e12,
       .doc = "CPU time of an expert for each of its tokens. Default: the time to read its weights",
       .source = "Fiddler measures it before a run; the default is Spillway's"},
      {.name = kConstants,
       .type = ParameterType::choice,
       .unit = "-",
       .default_value = "profile",
       .choices = {"profile", "published"},
       .doc = "Times that decide what computes an expert. profile: times of the hardware profile; published: Fiddler's "
              "constants without a unit, 7 per token on the CPU and 70 per expert on the GPU (its copy included); at a "
              "tie the GPU computes",
       .source = "efeslab/fiddler (227715b), src/fiddler/mixtral.py"},
      {.name = kOverlap,
       .type = ParameterType::boolean,
       .unit = "-",
       .default_value = "false",
       .doc = "true: CPU and GPU compute side by side; false: the CPU's experts follow the GPU's",
       .source = "false: efeslab/fiddler (227715b); true: Spillway"},
      pageable_parameter(),
      cpu_efficiency_parameter("0.6", "as for llama-cpp-moe; no measurement of Fiddler's kernel was found"),
      host_memory_parameter()};
  for (Parameter& parameter : cpu_call_parameters()) info.parameters.push_back(std::move(parameter));
  info.make_layers = [](const PolicyContext& context) -> std::unique_ptr<LayerPolicy> {
    return std::make_unique<Fiddler>(context.deployment, context.settings,
                                     context.deployment.chosen.get<std::int64_t>(kExperts),
                                     laid_out_blocks(context.deployment));
  };
  info.layout = [](const Deployment& deployment, const Settings& settings) {
    static_cast<void>(expert_cpu(deployment, settings));
    const ExpertDeployment& experts = *deployment.experts;
    const Bytes buffer = experts.bytes;  // one expert is copied at a time
    return lay_out_popular(deployment, settings, kExperts, experts.all(), buffer);
  };
  return info;
}

const RegisterPolicy kRegistered(info());

}  // namespace
}  // namespace spillway
