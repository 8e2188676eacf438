// A cache of experts on the GPU: slots for each layer, the least recently used leaves; what is missing is computed on
// the CPU or awaited.
//
// Source: proposals, no released engine: ggml-org/llama.cpp PR 27861 (the CPU computes misses, few uploads per layer
// and step), vllm-project/vllm PR 37190 and RFC 38256 (misses are awaited).
//
//   miss=cpu    the CPU computes what is missing. When its outputs are back, up to policy.uploads of it, those with the
//               most tokens first, are copied, each to the slot of the least recently used expert. Until a copy has
//               ended, its expert is still missing. Outputs of the CPU come back over the same link, in turn
//   miss=wait   what is missing is copied in order, and each is computed when it has arrived
//   curve       with experts.hit_curve, the curve says what is in the slots. Uploads take their time on the link, and
//               change nothing else
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "policies/parts/expert_layers.hpp"
#include "policies/parts/expert_slots.hpp"
#include "policies/parts/popular_experts.hpp"
#include "policies/parts/weight_layers.hpp"
#include "sim/api/registry.hpp"

namespace spillway {
namespace {

constexpr const char* kSlots = "policy.slots";
constexpr const char* kMiss = "policy.miss";
constexpr const char* kUploads = "policy.uploads";

bool on_cpu(const Settings& settings) { return settings.get<std::string>(kMiss) == "cpu"; }

class ExpertCache final : public ExpertLayers {
 public:
  ExpertCache(const Deployment& deployment, const Settings& settings, std::int64_t slots, Blocks capacity)
      : ExpertLayers(deployment, capacity, on_cpu(settings) ? expert_cpu(deployment, settings) : ExpertCpu{}),
        cpu_(on_cpu(settings)),
        uploads_(settings.get<std::int64_t>(kUploads)),
        slots_(activation(), experts().count) {
    for (std::int32_t layer = 0; layer < experts().expert_layers(); ++layer) {
      const auto popular = activation().by_popularity(layer).first(static_cast<std::size_t>(slots));
      // The most popular ones are there at first, the least popular of them leaves first.
      slots_.add(std::vector(popular.rbegin(), popular.rend()));
      coming_.emplace_back();
    }
  }

 private:
  /// An expert that has a slot and is on its way to it.
  struct Coming {
    std::int32_t expert = 0;
    std::int64_t ticket = 0;
  };

  void gate(std::int32_t layer, CopySink& sink) override {
    std::vector<Coming>& coming = coming_[static_cast<std::size_t>(layer)];
    std::erase_if(coming, [this](const Coming& one) { return one.ticket <= arrived(); });
    Missing missing;
    if (cpu_) {
      missing = look_up(layer);
    } else {
      slots_.split(layer, activation().layer(layer), uses_);
    }
    slots_.touch(layer, uses_.resident);
    if (!coming.empty()) {
      std::span<ExpertUse>& resident = uses_.resident;
      const auto late = std::remove_if(resident.begin(), resident.end(), [&coming, &missing](const ExpertUse& use) {
        const bool is_late = std::ranges::find(coming, use.expert, &Coming::expert) != coming.end();
        if (is_late) missing.rows += use.tokens;
        return is_late;
      });
      counts_.late += resident.end() - late;
      missing.experts += resident.end() - late;
      resident = resident.first(static_cast<std::size_t>(late - resident.begin()));
    }
    counts_.resident += std::ssize(uses_.resident);
    compute(uses_.resident);
    if (cpu_) {
      counts_.on_cpu += missing.experts;
      compute_on_cpu(sink, missing.experts, missing.rows);
    } else {
      await_missing(layer, sink);
    }
  }

  /// Experts that are not there, or not yet.
  struct Missing {
    std::int64_t experts = 0;
    std::int64_t rows = 0;
  };
  /// Sets uses_.resident and wanted_.
  Missing look_up(std::int32_t layer) {
    wanted_.begin(static_cast<std::size_t>(uploads_));
    const AllUsed all = activation().all_used(layer);
    if (!all.known() || slots_.by_curve(layer)) {
      Missing missing;
      slots_.list_resident(layer, activation().layer(layer), uses_, [this, &missing](const ExpertUse& use) {
        ++missing.experts;
        missing.rows += use.tokens;
        wanted_.add(use);
      });
      return missing;
    }
    const std::span<const std::uint64_t> held = slots_.held(layer);
    uses_.list_held(all, held);
    for (std::size_t place = 0; place < all.experts.size(); ++place) {
      if (is_held(held, all.experts[place])) continue;
      if (!wanted_.takes(all.tokens[place])) break;
      wanted_.add({all.experts[place], all.tokens[place]});
    }
    Missing missing{experts().count - std::ssize(uses_.resident), experts().top_k * activation().tokens()};
    for (const ExpertUse& use : uses_.resident) missing.rows -= use.tokens;
    return missing;
  }

  void await_missing(std::int32_t layer, CopySink& sink) {
    counts_.loaded += std::ssize(uses_.missing);
    counts_.demanded += experts().bytes * std::ssize(uses_.missing);
    slots_.replace_all(layer, uses_.missing);
    load_and_compute(sink, uses_.missing, experts().matrices);
  }

  void leave(std::int32_t layer, CopySink& sink) override {
    if (!cpu_) return;
    std::vector<Coming>& coming = coming_[static_cast<std::size_t>(layer)];
    for (const ExpertUse& use : wanted_.uses()) {
      counts_.demanded += experts().bytes;
      const std::int64_t ticket = load(sink, 1, experts().matrices);
      const std::optional<std::int32_t> left = slots_.replace(layer, use.expert);
      if (!left) continue;  // a hit curve says what is there
      std::erase_if(coming, [left](const Coming& one) { return one.expert == *left; });
      coming.push_back({use.expert, ticket});
    }
  }

  bool cpu_;
  std::int64_t uploads_;
  LayerSlots slots_;
  std::vector<std::vector<Coming>> coming_;  // by layer
  SplitUses uses_;                           // during a gate
  MostUsed wanted_;                          // that are copied when the layer has ended
};

PolicyInfo info() {
  PolicyInfo info;
  info.name = "expert-cache";
  info.summary = "A cache of experts on the GPU, least recently used out first; misses on the CPU, or awaited";
  info.source = "ggml-org/llama.cpp PR 27861; vllm-project/vllm PR 37190, RFC 38256: proposals, not released engines";
  info.limits =
      "Slots are evicted by recency alone. vLLM's proposal also weighs frequency. All copies are from page-locked "
      "memory.";
  info.figures = expert_figures();
  info.places_experts = true;
  info.caches_experts = true;
  info.streams = {.weights = true};
  info.default_scheduler = "vllm";
  info.parameters = {
      gpu_experts_parameter(kSlots, "experts of each layer", "llama.cpp PR 27861 and vLLM PR 37190: slots per layer"),
      {.name = kMiss,
       .type = ParameterType::choice,
       .unit = "-",
       .default_value = "cpu",
       .choices = {"cpu", "wait"},
       .doc = "What computes an expert that is not on the GPU. cpu: the CPU; wait: the GPU, after the expert has been "
              "copied",
       .source = "cpu: llama.cpp PR 27861; wait: vLLM PR 37190"},
      {.name = kUploads,
       .type = ParameterType::integer,
       .unit = "experts",
       .default_value = "2",
       .minimum = 0.0,
       .maximum = 4096.0,
       .doc = "Used with policy.miss=cpu: maximum number of experts of a layer copied to the GPU in one iteration",
       .source = "llama.cpp PR 27861: 2"},
      cpu_efficiency_parameter("0.6", "as for llama-cpp-moe"),
      host_memory_parameter()};
  for (Parameter& parameter : cpu_call_parameters()) info.parameters.push_back(std::move(parameter));
  info.make_layers = [](const PolicyContext& context) -> std::unique_ptr<LayerPolicy> {
    return std::make_unique<ExpertCache>(context.deployment, context.settings,
                                         context.deployment.chosen.get<std::int64_t>(kSlots),
                                         laid_out_blocks(context.deployment));
  };
  info.layout = [](const Deployment& deployment, const Settings& settings) {
    const ExpertDeployment& experts = *deployment.experts;
    if (on_cpu(settings)) static_cast<void>(expert_cpu(deployment, settings));
    return lay_out_popular(deployment, settings, kSlots, experts.count, Bytes(0), experts.expert_layers(),
                           experts.top_k);
  };
  return info;
}

const RegisterPolicy kRegistered(info());

}  // namespace
}  // namespace spillway
