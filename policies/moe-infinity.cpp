// MoE-Infinity: one cache for the experts of all layers. What requests like this one have used says which experts are
// loaded ahead, and which leave.
//
// Source: Xue et al., arXiv 2401.14361 (4.5 to 5.2); EfficientMoE/MoE-Infinity (d617801), moe_infinity/models and
// core/parallel/expert_dispatcher.cpp; hwmodels/README.md, "Experts".
//
//   history     the use of experts by earlier requests is stored as matrices, layers by experts. The one that is
//               nearest to what a request has used so far predicts the rest. Here requests are of experts.patterns
//               kinds, and every kind has been met before: once the routers of policy.matched_layers layers have
//               chosen, the right matrix is found, and before that a wrong one. A batch has the mean of its requests'
//   ahead       after each gate, experts of later layers in the order of share * (1 - (layer - running) / layers), one
//               at a time, behind loads in demand. Each takes a free slot, or that of an expert less worth
//               keeping; one that finds neither is passed over
//   leaves      the least share * (1 - layer / layers), never an expert of the layer that runs
//   compute     experts that are there, then the others as they arrive
//   published   the public code loads nothing ahead for most models. The expert leaves that was used least since it
//               was loaded, unless the running layer uses it; of equal ones the one with the lowest number, then of
//               the first layer
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "policies/parts/expert_layers.hpp"
#include "policies/parts/expert_matrix.hpp"
#include "policies/parts/expert_slots.hpp"
#include "policies/parts/popular_experts.hpp"
#include "policies/parts/weight_layers.hpp"
#include "sim/api/registry.hpp"
#include "sim/core/error.hpp"

namespace spillway {
namespace {

constexpr const char* kSlots = "policy.gpu_experts";
constexpr const char* kVariant = "policy.variant";
constexpr const char* kPrefetch = "policy.prefetch";
constexpr const char* kMatched = "policy.matched_layers";

class MoeInfinity final : public ExpertLayers {
 public:
  MoeInfinity(const Deployment& deployment, const Settings& settings, std::int64_t slots, Blocks capacity)
      : ExpertLayers(deployment, capacity),
        published_(settings.get<std::string>(kVariant) == "published"),
        prefetches_(!published_ && settings.get<bool>(kPrefetch)),
        matched_(static_cast<std::int32_t>(settings.get<std::int64_t>(kMatched))),
        layers_(experts().expert_layers()),
        often_matched_(2 * std::int64_t{matched_} <= layers_),
        present_(layers_, experts().count),
        uses_(static_cast<std::size_t>(experts().all())),
        shares_(static_cast<std::size_t>(activation().patterns()), -1.0),
        stored_(shares_.size()),
        often_(present_, of_kind(0)),
        seldom_(present_, of_kind(0)),
        ahead_(static_cast<std::size_t>(layers_)) {
    // At first those of the first layers are there.
    for (std::int32_t layer = 0; layer < layers_; ++layer) {
      for (std::int32_t expert = 0; expert < experts().count && slots > 0; ++expert, --slots) arrive({layer, expert});
    }
  }

  [[nodiscard]] LayerRule* begin(const BatchShape& shape, const LayerCompute& compute) override {
    if (!published_) mix();
    return ExpertLayers::begin(shape, compute);
  }
  [[nodiscard]] Figures figures() const override {
    Figures figures = ExpertLayers::figures();
    // Those that have left before the next gate of their layer, too.
    for (std::int32_t layer = 0; layer < layers_; ++layer) {
      std::vector<std::int32_t> ahead = ahead_[static_cast<std::size_t>(layer)];
      const auto is_there = [this, layer](std::int32_t expert) { return is_ahead({layer, expert}); };
      figures["unused_prefetches"] += real(std::ssize(ahead) - count_once(ahead, is_there));
    }
    return figures;
  }

 private:
  struct Used {
    std::int64_t uses = 0;
    std::int32_t expert = 0;
    std::int32_t layer = 0;
    auto operator<=>(const Used&) const = default;
  };

  [[nodiscard]] std::size_t at(const LayerExpert& one) const {
    return static_cast<std::size_t>(one.layer) * static_cast<std::size_t>(experts().count) +
           static_cast<std::size_t>(one.expert);
  }

  /// The matrices of the requests of the iteration.
  void mix() {
    bool changed = false;
    for (std::int32_t kind = 0; kind < activation().patterns(); ++kind) {
      const double share = activation().pattern_share(kind);
      changed |= std::exchange(shares_[static_cast<std::size_t>(kind)], share) != share;
    }
    if (!changed) return;
    const auto only = std::ranges::find(shares_, 1.0);
    if (only != shares_.end()) {
      const auto kind = static_cast<std::int32_t>(only - shares_.begin());
      set_shares(of_kind(kind), of_kind((kind + 1) % activation().patterns()));
      return;
    }
    if (mixed_.empty()) mixed_.assign(2, of_kind(0));
    for (const std::int32_t mistaken : {0, 1}) change_shares(mixed_[static_cast<std::size_t>(mistaken)], mistaken);
    set_shares(mixed_.front(), mixed_.back());
  }
  void set_shares(const ExpertShares& right, const ExpertShares& wrong) {
    often_.set(often_matched_ ? right : wrong);
    seldom_.set(often_matched_ ? wrong : right);
  }
  /// A matrix as it was stored.
  [[nodiscard]] const ExpertShares& of_kind(std::int32_t kind) {
    std::optional<ExpertShares>& stored = stored_[static_cast<std::size_t>(kind)];
    if (!stored) {
      stored.emplace(layers_, experts().count, [&](std::int32_t layer, std::int32_t expert) {
        return to_billionths(activation().popularity_in(kind, layer, expert) / experts().top_k);
      });
    }
    return *stored;
  }
  /// What the iteration's requests use, if each is mistaken for one of a kind that is so many further on.
  /// O(n * kinds), and O(n log n) at most, for n experts of all layers.
  void change_shares(ExpertShares& mixed, std::int32_t mistaken) {
    const std::int32_t patterns = activation().patterns();
    if (popularity_.empty()) {
      popularity_.reserve(static_cast<std::size_t>(patterns * experts().all()));
      for (std::int32_t kind = 0; kind < patterns; ++kind) {
        for (std::int32_t layer = 0; layer < layers_; ++layer) {
          for (std::int32_t expert = 0; expert < experts().count; ++expert) {
            popularity_.push_back(activation().popularity_in(kind, layer, expert));
          }
        }
      }
    }
    mixed.change([&](std::int32_t layer, std::span<double> shares) {
      std::ranges::fill(shares, 0.0);
      for (std::int32_t kind = 0; kind < patterns; ++kind) {
        const double share = shares_[static_cast<std::size_t>(kind)];
        if (!(share > 0.0)) continue;
        const double* const popular =
            &popularity_[static_cast<std::size_t>((kind + mistaken) % patterns * experts().all()) + at({layer, 0})];
        for (std::size_t e = 0; e < shares.size(); ++e) shares[e] += share * popular[e];
      }
      const double top_k = experts().top_k;
      for (double& share : shares) share = to_billionths(share / top_k);
    });
  }
  [[nodiscard]] bool is_matched() const { return running_ + 1 >= matched_; }
  /// The running layer asks the first matrix.
  [[nodiscard]] bool asks_often() const { return is_matched() == often_matched_; }
  /// The expert that is least worth keeping.
  [[nodiscard]] std::optional<KeptExpert> least() {
    return asks_often() ? often_.least(running_) : seldom_.least(running_);
  }
  /// The expert that is most worth loading, of those of rank `from` or a higher one.
  [[nodiscard]] std::optional<LayerExpert> most(std::size_t from) {
    return asks_often() ? often_.most(running_, from) : seldom_.most(running_, from);
  }

  void arrive(const LayerExpert& one) {
    present_.set(one, true);
    if (published_) {
      by_use_.insert({uses_[at(one)], one.expert, one.layer});
      return;
    }
    often_.add(one);
    seldom_.add(one);
  }

  /// All that were loaded because the running layer uses them.
  void arrive_in_demand() {
    const bool all = std::exchange(demanded_all_, false);
    const std::span<const ExpertUse> arrived = std::exchange(demanded_, {});
    if (!all && arrived.empty()) return;
    for (const ExpertUse& use : arrived) present_.set({running_, use.expert}, true);
    if (published_) {
      for (const ExpertUse& use : arrived) by_use_.insert({uses_[at({running_, use.expert})], use.expert, running_});
      return;
    }
    constexpr std::int64_t kMany = 8;  // from one in so many experts on
    if (all) {
      present_.fill(running_);
      often_.fill(running_);
    } else if (kMany * std::ssize(arrived) > experts().count) {
      often_.add_many(running_);
    } else {
      often_.add_all(running_, arrived.size(), [arrived](std::size_t i) { return arrived[i].expert; });
    }
    seldom_.add_all(running_);
  }

  void gate(std::int32_t layer, CopySink& sink) override {
    // Of a layer that uses all of its experts, neither these nor those that are missing need a list.
    const AllUsed all = published_ ? AllUsed() : activation().all_used(layer);
    const std::span<const ExpertUse> used = all.known() ? std::span<const ExpertUse>() : activation().layer(layer);
    const std::int64_t count = all.known() ? experts().count : std::ssize(used);
    if (count == 0) return;  // an iteration without tokens predicts nothing
    running_ = layer;
    std::int64_t resident = 0;
    if (all.known()) {
      often_.prefetch(layer);
      present_.read_bits(layer, held_);
      resident = compute_those(all, held_);
    } else {
      uses_now_.split(
          used, [present = present_.row(layer)](std::int32_t expert) { return present[expert] == Presence::present; });
      resident = std::ssize(uses_now_.resident);
      compute(uses_now_.resident);
    }
    counts_.resident += resident;
    counts_.loaded += count - resident;
    const auto use_of = [&](std::int32_t expert) -> std::optional<ExpertUse> {
      if (all.known()) return ExpertUse{expert, all.tokens_of(expert)};
      const auto use = std::ranges::lower_bound(used, expert, {}, &ExpertUse::expert);
      return use != used.end() && use->expert == expert ? std::optional(*use) : std::nullopt;
    };
    judge(layer, use_of);
    if (const std::optional<ExpertUse> coming = is_coming(layer) ? use_of(coming_->expert) : std::nullopt) {
      // It comes before all that are loaded now.
      ++counts_.late;
      ++resident;
      compute(1, coming->tokens, arrived() + 1);
      if (all.known()) {
        hold(held_, coming->expert);
      } else {
        uses_now_.take_as_resident(*coming);
      }
    }
    const std::int64_t missing = count - resident;
    counts_.demanded += experts().bytes * missing;
    if (published_) {
      for (const ExpertUse& use : uses_now_.resident) count_use({layer, use.expert});
      for (const ExpertUse& use : uses_now_.missing) uses_[at({layer, use.expert})] = 1;
    }
    make_room(used, missing);
    demanded_all_ = all.known() && missing > 0;
    demanded_ = all.known() ? std::span<const ExpertUse>() : uses_now_.missing;
    if (all.known()) {
      load_and_compute_others(sink, all, held_, experts().matrices);
    } else {
      load_and_compute(sink, demanded_, experts().matrices);
    }
    exhausted_ = !prefetches_;
    load_ahead(sink);
  }
  [[nodiscard]] bool is_coming(std::int32_t layer) const { return coming_ && coming_->layer == layer; }

  /// Which loads ahead were of use. An expert that was loaded several times has left after each but the last. That was
  /// of use if it is still there, or on its way, and is used.
  template <class UseOf>
  void judge(std::int32_t layer, const UseOf& use_of) {
    std::vector<std::int32_t>& ahead = ahead_[static_cast<std::size_t>(layer)];
    if (ahead.empty()) return;
    counts_.unused += std::ssize(ahead) - count_once(ahead, [&](std::int32_t expert) {
                        return is_ahead({layer, expert}) && use_of(expert).has_value();
                      });
    ahead.clear();
  }
  /// How many different experts fulfil `holds`. Sorts them.
  template <class Holds>
  static std::int64_t count_once(std::vector<std::int32_t>& experts, const Holds& holds) {
    std::ranges::sort(experts);
    return std::count_if(experts.begin(), std::unique(experts.begin(), experts.end()), holds);
  }
  /// An expert that was loaded ahead has not left again: it is there, or on its way.
  [[nodiscard]] bool is_ahead(const LayerExpert& one) const { return present_.has(one) || coming_ == one; }

  /// Slots for experts in demand.
  void make_room(std::span<const ExpertUse> used, std::int64_t count) {
    if (published_) {
      for (; count > 0; --count) drop(least_used(used));
    } else if (asks_often() && count >= layers_) {  // nearly all layers lose some: seldom_ is told once
      often_.remove_least(
          running_, count, [this](std::size_t number, std::int32_t /*layer*/) { present_.clear_number(number); },
          [this](std::int32_t layer, std::int32_t begin, std::int32_t end, bool whole) {
            leave_last(layer, begin, end, whole);
          });
      seldom_.remove_many();
    } else if (asks_often()) {
      often_.remove_least(
          running_, count,
          [this](std::size_t number, std::int32_t layer) {
            present_.clear_number(number);
            seldom_.remove_some(layer);
          },
          [this](std::int32_t layer, std::int32_t begin, std::int32_t end, bool whole) {
            leave_last(layer, begin, end, whole);
            seldom_.remove_some(layer);
          });
    } else {
      seldom_.remove_least(running_, count, [this](const LayerExpert& one) {
        present_.set(one, false);
        often_.remove(one);
      });
    }
  }
  void drop(const LayerExpert& one) {
    present_.set(one, false);
    if (published_) {
      by_use_.erase({uses_[at(one)], one.expert, one.layer});
      return;
    }
    often_.remove(one);
    seldom_.remove(one);
  }
  /// Those that are there at these places of the layer's order leave. `whole`: all at places before `end` were there,
  /// and no others.
  void leave_last(std::int32_t layer, std::int32_t begin, std::int32_t end, bool whole) {
    const std::span<const std::uint16_t> order = often_.order(layer);
    const auto stay = static_cast<std::size_t>(begin);
    const std::size_t leave = static_cast<std::size_t>(end) - stay;
    if (whole && stay < leave) {
      present_.keep_only(layer, order.first(stay));
    } else {
      present_.clear(layer, order.subspan(stay, leave));
    }
  }
  void count_use(const LayerExpert& one) {
    std::int64_t& uses = uses_[at(one)];
    by_use_.erase({uses, one.expert, one.layer});
    ++uses;
    by_use_.insert({uses, one.expert, one.layer});
  }
  /// Experts that the running layer uses are locked.
  [[nodiscard]] LayerExpert least_used(std::span<const ExpertUse> used) const {
    const auto locked = [&](const Used& one) {
      return one.layer == running_ && std::ranges::binary_search(used, one.expert, {}, &ExpertUse::expert);
    };
    const auto least = std::ranges::find_if_not(by_use_, locked);
    return {least->layer, least->expert};
  }

  void loaded(CopySink& sink) override {
    // Loads in demand stand behind the one ahead that had started.
    if (coming_ && there_ < arrived()) {
      ++there_;
      arrive(*std::exchange(coming_, std::nullopt));
    }
    there_ = arrived();
    // Before the last one, no gate opens and nothing is loaded ahead, so nobody asks for them.
    if (there_ == loads()) arrive_in_demand();
    load_ahead(sink);
  }

  void load_ahead(CopySink& sink) {
    if (exhausted_ || loads() > arrived()) return;
    const std::optional<LayerExpert> wanted = take_slot();
    exhausted_ = !wanted;
    if (exhausted_) return;
    coming_ = wanted;
    ahead_[static_cast<std::size_t>(wanted->layer)].push_back(wanted->expert);
    counts_.prefetched += experts().bytes;
    load(sink, 1, experts().matrices);
  }
  /// The expert that is loaded ahead next, if there is a slot for it.
  [[nodiscard]] std::optional<LayerExpert> take_slot() {
    const std::optional<KeptExpert> least = this->least();
    if (!least) return std::nullopt;
    const std::optional<LayerExpert> wanted = most(least->worth_more);
    if (wanted) drop(least->one);
    return wanted;
  }

  bool published_;
  bool prefetches_;
  std::int32_t matched_;
  std::int32_t layers_;
  bool often_matched_;  // the right shares count in more of the layers
  PresentExperts present_;
  std::vector<std::uint64_t> held_{};  // of the running layer, while its gate opens
  std::vector<std::int64_t> uses_;     // with variant=published: of each expert since it was loaded
  std::set<Used> by_use_{};            // with variant=published: those that are there, the first one leaves first
  std::vector<double> shares_;         // of the iteration's tokens, by kind of request
  std::vector<double> popularity_{};   // popularity_in() of each kind, by layer and expert
  std::vector<std::optional<ExpertShares>> stored_;  // of each kind
  std::vector<ExpertShares> mixed_{};                // of an iteration's kinds, and of those that they are mistaken for
  // The right shares and the wrong ones: those that count in more of the layers are in the first matrix.
  ExpertMatrix often_;
  SeldomAskedMatrix seldom_;
  std::int32_t running_ = 0;
  bool exhausted_ = true;  // nothing more is loaded ahead before the next gate
  std::optional<LayerExpert> coming_{};
  SplitUses uses_now_{};                   // of the running layer
  std::span<const ExpertUse> demanded_{};  // of these, those that are loaded because it uses them, still to arrive
  bool demanded_all_ = false;              // these are all that the layer lacked, and not listed
  std::int64_t there_ = 0;                 // loads that have arrived
  std::vector<std::vector<std::int32_t>> ahead_;  // by layer: loads ahead since its last gate
};

PolicyInfo info() {
  PolicyInfo info;
  info.name = "moe-infinity";
  info.summary = "MoE-Infinity: one cache for the experts of all layers, filled by what similar requests used";
  info.source =
      "Xue et al., MoE-Infinity: Activation-Aware Expert Offloading for Efficient MoE Serving, arXiv 2401.14361; "
      "EfficientMoE/MoE-Infinity (d617801)";
  info.limits =
      "Matching is not simulated: experts.patterns gives the kinds of requests, and the collection holds every kind "
      "from the start. The collection never changes. Experts that leave are not copied back. No disk. At most 65,535 "
      "experts of all layers.";
  info.figures = expert_figures();
  info.places_experts = true;
  info.expert_patterns = 8;
  info.streams = {.weights = true};
  info.default_scheduler = "vllm";
  info.parameters = {
      gpu_experts_parameter(kSlots, "experts of all layers", "MoE-Infinity fills 75% of the GPU's memory with experts"),
      {.name = kVariant,
       .type = ParameterType::choice,
       .unit = "-",
       .default_value = "paper",
       .choices = {"paper", "published"},
       .doc = "paper: predictions decide which experts are loaded and evicted; published: the public code, which loads "
              "experts only on demand and evicts the least used one",
       .source = "EfficientMoE/MoE-Infinity (d617801), moe_infinity/models and core/parallel/expert_dispatcher.cpp"},
      {.name = kPrefetch,
       .type = ParameterType::boolean,
       .unit = "-",
       .default_value = "true",
       .doc = "Used with policy.variant=paper. true: predictions also load experts ahead; false: predictions only "
              "decide which experts are evicted",
       .source = "arXiv 2401.14361, ablation of its evaluation"},
      {.name = kMatched,
       .type = ParameterType::integer,
       .unit = "layers",
       .default_value = "3",
       .minimum = 0.0,
       .maximum = 10'000.0,
       .doc = "Number of layers with experts that a request must pass before its matching history is found",
       .source = "assumed (hwmodels/README.md, Experts)"},
      host_memory_parameter()};
  info.make_layers = [](const PolicyContext& context) -> std::unique_ptr<LayerPolicy> {
    return std::make_unique<MoeInfinity>(context.deployment, context.settings,
                                         context.deployment.chosen.get<std::int64_t>(kSlots),
                                         laid_out_blocks(context.deployment));
  };
  info.layout = [](const Deployment& deployment, const Settings& settings) {
    const ExpertDeployment& experts = *deployment.experts;
    if (experts.all() > ExpertShares::kMost) {
      throw ConfigError(fmt::format("moe-infinity ranks at most {} experts of all layers, and the model has {}",
                                    ExpertShares::kMost, experts.all()),
                        "policy", "choose a policy that keeps experts by layer, such as policy=expert-cache");
    }
    // A prompt uses all experts of a layer, and one more may be on its way.
    const std::int64_t least = std::min<std::int64_t>(experts.all(), std::int64_t{experts.count} + 1);
    return lay_out_popular(deployment, settings, kSlots, experts.all(), Bytes(0), 1, least);
  };
  return info;
}

const RegisterPolicy kRegistered(info());

}  // namespace
}  // namespace spillway
