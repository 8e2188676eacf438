// Runs the iterations of a policy that places experts on the executor, with times and routers by hand.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/exec/executor.hpp"
#include "tests/support/empty_view.hpp"
#include "tests/unit/policy_test.hpp"

namespace spillway {

/// Layers of equal time, copies of `launch` each and a bandwidth.
class ExpertModel final : public ExecutionModel {
 public:
  ExpertModel(std::int32_t layers, Duration layer, double bandwidth, Duration launch = {})
      : layers_(layers), layer_(layer), bandwidth_(bandwidth), launch_(launch) {}
  [[nodiscard]] std::int32_t layers() const override { return layers_; }
  [[nodiscard]] IterationTime iteration(const BatchShape&) const override { return {.layer = layer_}; }
  [[nodiscard]] CopyTime copy(Stream stream, std::int64_t copies, Bytes bytes, CopyMechanism) const override {
    asked_[static_cast<std::size_t>(stream)] += copies;
    return {launch_ * copies, round_seconds(static_cast<double>(bytes.count()) / bandwidth_)};
  }
  [[nodiscard]] CopySharing copy_sharing() const override { return {.compute = compute_slowdown}; }
  /// By copies, as policies are told. The bench's executor has none of its own.
  Slowdown compute_slowdown{};
  /// Copies that it was asked for so far.
  [[nodiscard]] std::int64_t asked(Stream stream) const { return asked_[static_cast<std::size_t>(stream)]; }

 private:
  std::int32_t layers_;
  Duration layer_;
  double bandwidth_;
  Duration launch_;
  mutable std::array<std::int64_t, kStreams> asked_{};
};

/// Routers whose choices a test states.
class ScriptedRouters final : public ExpertActivation {
 public:
  std::int64_t batch = 1;                             // tokens
  std::int32_t top_k = 0;                             // 0: all_used() does not know it
  std::int64_t known_by_tokens = 0;                   // layers of which that was known
  std::vector<std::vector<ExpertUse>> used{};         // by layer with experts
  std::vector<std::vector<std::int32_t>> guesses{};   // by layer: what predicted() returns, the likeliest first
  std::vector<std::vector<std::int32_t>> rankings{};  // by layer
  std::vector<std::vector<double>> popularities{};    // by layer, by expert; empty: all are equal
  using Rows = std::vector<std::vector<double>>;      // by layer and expert
  std::vector<Rows> kinds{};                          // of requests
  std::vector<double> shares{};                       // of the iteration's tokens, by kind; empty: the first kind's
  std::vector<std::vector<std::int32_t>> hits{};      // by layer: what a hit curve finds; empty: there is no curve

  [[nodiscard]] std::int64_t tokens() const override { return batch; }
  [[nodiscard]] std::span<const ExpertUse> layer(std::int32_t layer) override { return at(used, layer); }
  [[nodiscard]] std::span<const std::int32_t> predicted(std::int32_t layer, std::int32_t count) override {
    const std::span<const std::int32_t> all = at(guesses, layer);
    return all.first(std::min(all.size(), static_cast<std::size_t>(count)));
  }
  [[nodiscard]] AllUsed all_used(std::int32_t layer) override {
    const std::vector<ExpertUse>& uses = at(used, layer);
    std::int64_t rows = 0;
    for (const ExpertUse& use : uses) rows += use.tokens;
    if (uses.size() != at(rankings, layer).size() || rows != top_k * batch) return {};
    const auto tokens = [&uses](std::int32_t expert) { return uses.at(static_cast<std::size_t>(expert)).tokens; };
    all_.resize(rankings.size());
    All& all = all_[static_cast<std::size_t>(layer)];
    all.experts = at(rankings, layer);
    std::ranges::stable_sort(all.experts, std::greater{}, tokens);
    all.tokens.clear();
    all.place_of.resize(uses.size());
    for (const std::int32_t expert : all.experts) {
      all.place_of.at(static_cast<std::size_t>(expert)) = static_cast<std::uint16_t>(all.tokens.size());
      all.tokens.push_back(tokens(expert));
    }
    ++known_by_tokens;
    return {all.experts, all.tokens, all.place_of};
  }
  [[nodiscard]] std::optional<std::span<const std::int32_t>> found(std::int32_t layer, std::int32_t) override {
    if (hits.empty()) return std::nullopt;
    return at(hits, layer);
  }
  [[nodiscard]] std::span<const std::int32_t> by_popularity(std::int32_t layer) const override {
    return at(rankings, layer);
  }
  [[nodiscard]] double popularity(std::int32_t layer, std::int32_t expert) const override {
    return popularities.empty() ? 0.0 : at(popularities, layer).at(static_cast<std::size_t>(expert));
  }
  [[nodiscard]] std::int32_t patterns() const override { return std::max(1, static_cast<std::int32_t>(kinds.size())); }
  [[nodiscard]] double pattern_share(std::int32_t pattern) const override {
    if (shares.empty()) return pattern == 0 ? 1.0 : 0.0;
    return shares.at(static_cast<std::size_t>(pattern));
  }
  [[nodiscard]] double popularity_in(std::int32_t pattern, std::int32_t layer, std::int32_t expert) const override {
    return kinds.at(static_cast<std::size_t>(pattern))
        .at(static_cast<std::size_t>(layer))
        .at(static_cast<std::size_t>(expert));
  }

 private:
  template <class T>
  static const T& at(const std::vector<T>& each, std::int32_t layer) {
    return each.at(static_cast<std::size_t>(layer));
  }

  struct All {
    std::vector<std::int32_t> experts{};
    std::vector<std::int32_t> tokens{};
    std::vector<std::uint16_t> place_of{};
  };
  std::vector<All> all_{};  // by layer: what all_used() returns
};

/// A policy and the executor that runs it.
class ExpertBench {
 public:
  /// `deployment` states layers, experts and memory; the model must outlive the bench. `policy` is a registered name.
  /// Rankings by popularity: by number, unless they are stated.
  ExpertBench(const std::string& policy, const ExecutionModel& model, Deployment deployment,
              const Overrides& overrides = {}, std::vector<std::vector<std::int32_t>> rankings = {},
              std::vector<std::vector<double>> popularities = {}, std::vector<ScriptedRouters::Rows> kinds = {})
      : info_(*PolicyRegistry::instance().find(policy)),
        settings_(oracle::policy_settings(info_, overrides)),
        deployment_(std::move(deployment)) {
    deployment_.model = &model;
    layout_ = info_.layout(deployment_, settings_);
    deployment_.chosen = layout_.chosen;
    deployment_.experts->activation = &routers;
    routers.top_k = deployment_.experts->top_k;
    routers.rankings = std::move(rankings);
    routers.popularities = std::move(popularities);
    routers.kinds = std::move(kinds);
    if (routers.rankings.empty()) {
      std::vector<std::int32_t> by_number(static_cast<std::size_t>(deployment_.experts->count));
      std::iota(by_number.begin(), by_number.end(), 0);
      routers.rankings.assign(deployment_.experts->layers.size(), by_number);
    }
    layers_ = info_.make({settings_, view_, deployment_, graph_, {}}).layers;
  }

  /// Runs an iteration of `tokens` that decode and a prompt's `prompt` tokens, from where the last one ended; returns
  /// its length. `cut`: not beyond that time after its start; no iteration may follow.
  Duration iterate(std::int64_t tokens = 1, std::int64_t prompt = 0, std::optional<Duration> cut = {}) {
    routers.batch = tokens + prompt;
    const ExecutionModel& model = *deployment_.model;
    const std::array<PrefillChunk, 1> chunk{PrefillChunk{.new_tokens = Tokens(prompt)}};
    const std::span<const PrefillChunk> chunks(chunk);
    const BatchShape shape{
        .decode_sequences = tokens, .chunks = chunks.first(prompt > 0 ? 1 : 0), .sampled_sequences = tokens};
    const IterationTime time = model.iteration(shape);
    const Duration every = time.layer;
    const std::array<SubBatchTimes, 1> times{
        SubBatchTimes{.gpu = layer_times.empty() ? LayerTimes(every) : LayerTimes(std::span(layer_times))}};
    LayerCompute compute{.attention = time.attention * model.layers()};
    for (std::int32_t l = 0; l < model.layers(); ++l) {
      const LayerKinds& kinds = model.layer_kinds();
      compute.kinds[kinds.several() ? kinds.of_layer[static_cast<std::size_t>(l)] : 0] += times.front().gpu.at(l);
    }
    rule_ = layers_->begin(shape, compute);
    const IterationPlan plan{model.layers(), times, rule_};
    const SimTime start = executor_.now();
    executor_.begin(plan, start);
    const SimTime end = executor_.run(plan, cut ? start + *cut : kNever).time;
    layers_->iteration_ended({});
    return end - start;
  }

  /// Before the first iteration: from now on, compute that starts beside a copy takes so many times as long.
  void slow_down(const Slowdown& compute) { executor_ = Executor({.compute = compute}, &observer_); }
  /// Nothing runs for a while after an iteration. Copies go on.
  void rest(Duration time) { executor_.run_copies(rule_, executor_.now() + time); }

  [[nodiscard]] const Layout& layout() const { return layout_; }
  [[nodiscard]] Figures figures() const { return layers_->figures(); }
  /// Of the time in layers so far, what was bound by arithmetic.
  [[nodiscard]] Duration arithmetic() const { return executor_.worked_in_layers().arithmetic; }
  [[nodiscard]] Bytes copied(Stream stream) const { return executor_.use(stream).bytes; }
  /// Time in which the stream was idle before work that it started.
  [[nodiscard]] Duration idle(Stream stream) const { return executor_.use(stream).stall; }

  ScriptedRouters routers;
  std::vector<Duration> layer_times{};  // empty: all as the model says

 private:
  class Observer final : public CopyObserver {
   public:
    explicit Observer(ExpertBench& bench) : bench_(bench) {}
    [[nodiscard]] bool hears_of(Stream stream) const override { return stream == Stream::cpu; }  // as policies do
    void copied(const Copy& copy, SimTime started, SimTime ended) override {
      bench_.layers_->copied(copy, started, ended);
    }

   private:
    ExpertBench& bench_;
  };

  const PolicyInfo& info_;
  Settings settings_;
  Deployment deployment_;
  Layout layout_;
  TierGraph graph_{};
  EmptyView view_;
  std::unique_ptr<LayerPolicy> layers_;
  LayerRule* rule_ = nullptr;  // of the last iteration
  Observer observer_{*this};
  Executor executor_{CopySharing{}, &observer_};
};

/// `distinct` experts, 0 on, of which each of `tokens` uses `top_k`.
inline std::vector<ExpertUse> first_experts(std::int32_t distinct) {
  std::vector<ExpertUse> used;
  used.reserve(static_cast<std::size_t>(distinct));
  for (std::int32_t e = 0; e < distinct; ++e) used.push_back({e, 1});
  return used;
}

}  // namespace spillway
