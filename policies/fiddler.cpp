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
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
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
    copy_ = load_of(1, experts().matrices, slower_);
  }

 private:
  [[nodiscard]] Duration time_on_cpu(std::int64_t tokens) const {
    return round_seconds(token_seconds_ * static_cast<double>(tokens));
  }
  /// What becomes of an expert in use, or of several.
  struct Step {
    std::int64_t loaded = 0;  // experts
    std::int64_t on_cpu = 0;
    Duration gpu{};  // computes it
    Duration arithmetic{};
    Duration cpu{};
    Step& operator+=(const Step& other) {
      loaded += other.loaded;
      on_cpu += other.on_cpu;
      gpu += other.gpu;
      arithmetic += other.arithmetic;
      cpu += other.cpu;
      return *this;
    }
  };

  /// Compares whole nanoseconds, so a tie is a tie on every machine.
  [[nodiscard]] bool copies(std::int64_t tokens, Duration gpu) const {
    if (published_) return kPublishedCpu * static_cast<double>(tokens) >= kPublishedGpu;
    return time_on_cpu(tokens) > copy_.launch + copy_.transfer + gpu;
  }
  /// Of one with so many tokens.
  [[nodiscard]] Step step(bool resident, std::int64_t tokens) {
    const OnGpu gpu = one_on_gpu(tokens);
    if (!resident && !copies(tokens, gpu.time)) return {.on_cpu = 1, .cpu = time_on_cpu(tokens)};
    return {.loaded = resident ? 0 : 1, .gpu = gpu.time, .arithmetic = gpu.arithmetic ? gpu.time : Duration{}};
  }
  [[nodiscard]] Step step_of(std::int32_t layer, const ExpertUse& use) {
    return step(resident_.holds(layer, use.expert), use.tokens);
  }
  /// Of all in use. What was decided for so many tokens is kept.
  [[nodiscard]] Step sum(std::int32_t layer, std::span<const ExpertUse> used) {
    Step all;
    if (used.empty()) return all;
    const std::int64_t most = std::ranges::max(used, {}, &ExpertUse::tokens).tokens;
    if (most > kMostKept) {
      for (const ExpertUse& use : used) all += step_of(layer, use);
      return all;
    }
    if (steps_.empty()) steps_.resize(2);
    for (std::int64_t next = std::ssize(steps_) / 2; next <= most; ++next) {
      for (const bool resident : {false, true}) steps_.push_back(step(resident, next));
    }
    const std::span<const std::uint8_t> held = resident_.of(layer);
    const Step* const steps = steps_.data();  // read once: g++ would read the member again for each use
    for (const ExpertUse& use : used) {
      all += steps[2 * static_cast<std::size_t>(use.tokens) + held[static_cast<std::size_t>(use.expert)]];
    }
    return all;
  }

  void gate(std::int32_t layer, CopySink& sink) override {
    const std::span<const ExpertUse> used = activation().layer(layer);
    const Step all = sum(layer, used);
    counts_.loaded += all.loaded;
    counts_.on_cpu += all.on_cpu;
    counts_.resident += std::ssize(used) - all.loaded - all.on_cpu;
    counts_.demanded += experts().bytes * all.loaded;
    if (all.loaded == 0 || (overlap_ && all.on_cpu > 0)) {
      list_turns(layer);  // nothing takes turns, or the CPU's copies go on beside them
    } else {
      take_turns({.copy = copy_,
                  .copies = static_cast<std::int32_t>(all.loaded),
                  .time = all.gpu,
                  .arithmetic = all.arithmetic,
                  .after_last = after_last_load(layer, used)},
                 experts().matrices);
    }
    if (all.on_cpu == 0) return;
    if (overlap_) {
      compute_on_cpu_for(sink, all.on_cpu, all.cpu);
    } else {
      compute_on_cpu_in_turn(all.on_cpu, all.cpu);
    }
  }
  /// Time of the GPU's experts from the last one on that is loaded.
  [[nodiscard]] Duration after_last_load(std::int32_t layer, std::span<const ExpertUse> used) {
    Step last;
    for (std::size_t i = used.size(); i-- > 0 && last.loaded == 0;) last += step_of(layer, used[i]);
    return last.gpu;
  }
  void list_turns(std::int32_t layer) override {
    for (const ExpertUse& use : activation().layer(layer)) {
      const Step one = step_of(layer, use);
      if (one.loaded > 0) {
        load_and_compute(use.tokens, experts().matrices, slower_);
      } else if (one.on_cpu == 0) {
        compute(1, use.tokens);
      }
    }
  }

  ResidentExperts resident_;
  bool published_;
  bool overlap_;
  double slower_;
  double token_seconds_ = 0.0;  // of an expert on the CPU
  Copy copy_{};                 // of an expert
  std::vector<Step> steps_{};   // by tokens, up to kMostKept, for each: on the host, and on the GPU
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
