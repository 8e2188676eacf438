// Mixtral offloading: a few experts of each layer on the GPU, the least recently used leaves; the next layer's experts
// are guessed and loaded ahead.
//
// Source: Eliseev and Mazur, arXiv 2312.17238; dvmazur/mixtral-offloading (ce54518), src/expert_cache.py and
// build_model.py. The paper's prefetch is known from summaries only (hwmodels/README.md, "Experts").
//
//   slots       K experts of each layer, at first those with the highest numbers. Four shared buffers beside them. With
//               fewer slots than a token uses experts, those of one layer evict each other
//   paper       the host holds all experts. At a gate, experts in use that are resident or have been loaded ahead are
//               hits; others are loaded, in order. Loads ahead that have not started and are not in use are dropped.
//               Hits are computed first, then the others as they arrive. When the last load of a layer has ended, the
//               likeliest experts of the next one are loaded into free buffers. One that is used there takes the slot
//               of the least recently used; one that is not is dropped when that layer has ended
//   published   the public code loads nothing ahead, and swaps: the expert that leaves goes back to the host,
//               both copies on the compute stream. Resident experts first, then the others by number
//   curve       with experts.hit_curve, the curve says what is in the slots, and loads ahead find more. A guess that is
//               not used counts as not resident, so it is loaded
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <numeric>
#include <vector>

#include "policies/parts/expert_layers.hpp"
#include "policies/parts/expert_slots.hpp"
#include "policies/parts/popular_experts.hpp"
#include "policies/parts/weight_layers.hpp"
#include "sim/api/registry.hpp"

namespace spillway {
namespace {

constexpr const char* kSlots = "policy.slots";
constexpr const char* kPrefetch = "policy.prefetch";
constexpr const char* kVariant = "policy.variant";
constexpr std::int64_t kBuffers = 4;
constexpr std::int64_t kCopies = 1;  // of an expert, whose matrices are stored one after the other

class MixtralOffloading final : public ExpertLayers {
 public:
  MixtralOffloading(const Deployment& deployment, const Settings& settings, std::int64_t slots, Blocks capacity)
      : ExpertLayers(deployment, capacity),
        published_(settings.get<std::string>(kVariant) == "published"),
        prefetch_(published_ ? 0 : static_cast<std::int32_t>(settings.get<std::int64_t>(kPrefetch))),
        slots_(activation(), experts().count) {
    std::vector<std::int32_t> resident(static_cast<std::size_t>(slots));
    std::iota(resident.begin(), resident.end(), static_cast<std::int32_t>(experts().count - slots));
    for (std::int32_t layer = 0; layer < experts().expert_layers(); ++layer) slots_.add(resident);
  }

 private:
  /// An expert in a buffer, or on its way there.
  struct Ahead {
    std::int32_t layer = 0;
    std::int32_t expert = 0;
    std::int64_t ticket = 0;  // 0: its load has not started
  };

  void gate(std::int32_t layer, CopySink& sink) override {
    const std::span<const ExpertUse> used = activation().layer(layer);
    slots_.split(layer, used, uses_);
    slots_.touch(layer, uses_.resident);
    counts_.resident += std::ssize(uses_.resident);
    compute(uses_.resident);
    if (published_) {
      swap_missing(layer);
    } else {
      load_missing(layer, used, sink);
    }
  }

  void swap_missing(std::int32_t layer) {
    count_loads();
    slots_.replace_all(layer, uses_.missing);
    for (const ExpertUse& use : uses_.missing) swap_and_compute(use.tokens, kCopies);
  }

  void load_missing(std::int32_t layer, std::span<const ExpertUse> used, CopySink& sink) {
    layer_ = layer;
    all_used_ = static_cast<std::int32_t>(used.size()) == experts().count;
    predicted_ = false;
    queue_.clear();  // those in use go with the others, in order
    // What has been loaded ahead comes first, then what is on its way.
    for (const bool arrived_now : {true, false}) {
      for (const Ahead& one : ahead_) {
        if (one.layer != layer || (one.ticket <= arrived()) != arrived_now) continue;
        const auto use = std::ranges::find(uses_.missing, one.expert, &ExpertUse::expert);
        if (use == uses_.missing.end()) continue;
        ++(arrived_now ? counts_.resident : counts_.loaded);
        if (!arrived_now) ++counts_.late;
        slots_.replace(layer, one.expert);
        compute(1, use->tokens, one.ticket);
        std::shift_left(use, uses_.missing.end(), 1);
        uses_.missing = uses_.missing.first(uses_.missing.size() - 1);
      }
    }
    std::erase_if(ahead_, [&](const Ahead& one) { return one.layer == layer && is_in(used, one.expert); });
    count_loads();
    slots_.replace_all(layer, uses_.missing);
    load_and_compute(sink, uses_.missing, kCopies);
    predict_if_done(sink);
  }

  void count_loads() {
    counts_.loaded += std::ssize(uses_.missing);
    counts_.demanded += experts().bytes * std::ssize(uses_.missing);
  }

  static bool is_in(std::span<const ExpertUse> used, std::int32_t expert) {
    return std::ranges::binary_search(used, expert, {}, &ExpertUse::expert);
  }

  /// One load ahead at a time: what has not started can be dropped.
  void start_next(CopySink& sink) {
    if (queue_.empty() || loads() > arrived()) return;
    Ahead next = queue_.front();
    queue_.pop_front();
    next.ticket = load(sink, 1, kCopies);
    counts_.prefetched += experts().bytes;
    ahead_.push_back(next);
  }

  void loaded(CopySink& sink) override {
    start_next(sink);
    predict_if_done(sink);
  }

  /// The last load of the layer has ended: the next layer's experts are guessed.
  void predict_if_done(CopySink& sink) {
    if (predicted_ || loads() > arrived() || prefetch_ == 0 || all_used_ || layer_ + 1 == experts().expert_layers())
      return;
    predicted_ = true;
    for (const std::int32_t expert : activation().predicted(layer_ + 1, prefetch_)) {
      const auto taken = static_cast<std::int64_t>(ahead_.size() + queue_.size());
      if (slots_.holds(layer_ + 1, expert) || taken >= kBuffers) continue;
      queue_.push_back({layer_ + 1, expert, 0});
    }
    start_next(sink);
  }

  /// What was loaded ahead for this layer and not used leaves its buffer.
  void leave(std::int32_t layer, CopySink& /*sink*/) override {
    counts_.unused +=
        static_cast<std::int64_t>(std::erase_if(ahead_, [layer](const Ahead& one) { return one.layer == layer; }));
  }

  bool published_;
  std::int32_t prefetch_;
  LayerSlots slots_;
  SplitUses uses_;            // during a gate
  std::deque<Ahead> queue_;   // loads ahead that have not started
  std::vector<Ahead> ahead_;  // in a buffer, or on the way there
  std::int32_t layer_ = 0;
  bool all_used_ = false;   // in that layer
  bool predicted_ = false;  // what the next one uses
};

PolicyInfo info() {
  PolicyInfo info;
  info.name = "mixtral-offloading";
  info.summary =
      "Mixtral offloading: recently used experts of each layer stay on the GPU; experts of the next layer are loaded "
      "ahead";
  info.source =
      "Eliseev and Mazur, Fast Inference of Mixture-of-Experts Language Models with Offloading, arXiv 2312.17238; "
      "dvmazur/mixtral-offloading (ce54518)";
  info.limits =
      "All copies are from page-locked memory. The host holds every expert, so in variant=paper nothing goes back to "
      "it.";
  info.figures = expert_figures();
  info.places_experts = true;
  info.caches_experts = true;
  info.streams = {.weights = true};
  info.default_scheduler = "vllm";
  info.parameters = {
      gpu_experts_parameter(kSlots, "experts of each layer", "offload_per_layer leaves 4 of 8, or 3, on the GPU"),
      {.name = kPrefetch,
       .type = ParameterType::integer,
       .unit = "experts",
       .default_value = "2",
       .minimum = 0.0,
       .maximum = 4.0,
       .doc = "Experts of the next layer that are loaded ahead; 0: none",
       .source = "arXiv 2312.17238: 1 or 2"},
      {.name = kVariant,
       .type = ParameterType::choice,
       .unit = "-",
       .default_value = "paper",
       .choices = {"paper", "published"},
       .doc =
           "paper: loads beside compute, and ahead; published: the public code, which swaps on the compute stream and "
           "loads nothing ahead",
       .source = "dvmazur/mixtral-offloading (ce54518), src/expert_cache.py"},
      host_memory_parameter()};
  info.make_layers = [](const PolicyContext& context) -> std::unique_ptr<LayerPolicy> {
    return std::make_unique<MixtralOffloading>(context.deployment, context.settings,
                                               context.deployment.chosen.get<std::int64_t>(kSlots),
                                               laid_out_blocks(context.deployment));
  };
  info.layout = [](const Deployment& deployment, const Settings& settings) {
    const ExpertDeployment& experts = *deployment.experts;
    return lay_out_popular(deployment, settings, kSlots, experts.count, experts.bytes * kBuffers,
                           experts.expert_layers(), 1);
  };
  return info;
}

const RegisterPolicy kRegistered(info());

}  // namespace
}  // namespace spillway
