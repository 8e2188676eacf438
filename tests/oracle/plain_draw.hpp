// Which experts an iteration uses, by the rules in the header of sim/exec/expert_draw.hpp: plain powers and lists. It
// shares no code with sim/exec/.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "sim/api/execution_model.hpp"
#include "sim/api/experts.hpp"
#include "sim/api/hit_curve.hpp"
#include "sim/core/random.hpp"

namespace spillway::oracle {

struct PlainChoice {
  std::int32_t count = 0;
  std::int32_t top_k = 0;
  std::int32_t layers = 0;
  double skew = 0.0;
  double locality = 0.0;
  std::int32_t patterns = 1;
  double lookahead = 0.8;
  std::vector<HitCurve::Point> hit_curve{};
  std::uint64_t seed = 0;
};

/// The rules of the header, a layer at a time, with plain powers and sorted lists.
class PlainDraw final : public ExpertActivation {
 public:
  explicit PlainDraw(const PlainChoice& choice)
      : choice_(choice), shares_(static_cast<std::size_t>(choice.patterns), 1.0 / choice.patterns) {
    for (std::int32_t l = 0; l < choice.layers; ++l) {
      Layer& layer = layers_.emplace_back();
      std::vector<double> by_rank;
      for (std::int32_t rank = 1; rank <= choice.count; ++rank) by_rank.push_back(std::pow(rank, -choice.skew));
      fill(by_rank);
      layer.profile.assign(by_rank.size(), 0.0);
      for (std::int32_t pattern = 0; pattern < choice.patterns; ++pattern) {
        std::uint64_t seed = choice.seed;
        if (pattern > 0) {
          seed ^= static_cast<std::uint64_t>(pattern) * 0x9e3779b97f4a7c15U;
          seed = split_mix(seed);
        }
        std::uint64_t state = seed ^ (static_cast<std::uint64_t>(l + 1) * 0x9e3779b97f4a7c15U);
        state = split_mix(state);
        std::vector<std::int32_t> order(by_rank.size());
        std::iota(order.begin(), order.end(), 0);
        for (std::size_t i = by_rank.size(); i > 1; --i) std::swap(order[i - 1], order[split_mix(state) % i]);
        std::vector<double> pi(by_rank.size());
        for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
          pi[static_cast<std::size_t>(order[rank])] = by_rank[rank];
        }
        for (std::size_t e = 0; e < pi.size(); ++e) layer.profile[e] += pi[e] / choice.patterns;
        layer.patterns.push_back(pi);
        if (pattern == 0) layer.ranking = order;
      }
      if (choice.patterns > 1) {
        std::iota(layer.ranking.begin(), layer.ranking.end(), 0);
        std::stable_sort(layer.ranking.begin(), layer.ranking.end(), [&](std::int32_t a, std::int32_t b) {
          return std::lround(1e9 * layer.profile[static_cast<std::size_t>(a)]) >
                 std::lround(1e9 * layer.profile[static_cast<std::size_t>(b)]);
        });
      }
      layer.pi = layer.profile;
      layer.m.assign(layer.pi.size(), 0.0);
    }
  }

  [[nodiscard]] std::int64_t tokens() const override { return decodes_ + fresh_; }
  [[nodiscard]] std::span<const ExpertUse> layer(std::int32_t number) override {
    Layer& one = layers_.at(static_cast<std::size_t>(number));
    if (one.drawn_at != iteration_) {
      // What nobody asked for in the iteration before is not known: as if all had just joined.
      if (iteration_ > 0 && one.drawn_at != iteration_ - 1) {
        for (std::size_t e = 0; e < one.pi.size(); ++e) one.m[e] = static_cast<double>(decodes_) * one.pi[e];
      }
      one.used = draw(number);
      one.drawn_at = iteration_;
    }
    return one.used;
  }
  [[nodiscard]] std::span<const std::int32_t> predicted(std::int32_t number, std::int32_t count) override {
    const std::span<const ExpertUse> used = layer(number);
    Layer& one = layers_.at(static_cast<std::size_t>(number));
    one.prediction.clear();
    if (used.empty()) return {};
    const double most = std::min<double>(count, static_cast<double>(used.size()));
    const double right = most * (1.0 - (1.0 - choice_.lookahead) * most / static_cast<double>(used.size()));
    std::uint64_t state = (choice_.seed ^ 0x70726564U) ^ (static_cast<std::uint64_t>(iteration_) * 0x9e3779b97f4a7c15U);
    state = split_mix(state) ^ (static_cast<std::uint64_t>(number) * 0x9e3779b97f4a7c15U);
    const std::uint64_t hash = split_mix(state);
    const auto known = static_cast<std::size_t>(right + static_cast<double>(hash >> 11U) * 0x1p-53);
    for (std::size_t i = 0; i < known; ++i) one.prediction.push_back(used[(hash + i) % used.size()].expert);
    for (const std::int32_t expert : one.ranking) {
      const auto is_it = [expert](const ExpertUse& use) { return use.expert == expert; };
      if (std::ssize(one.prediction) < count && std::ranges::none_of(used, is_it)) one.prediction.push_back(expert);
    }
    return one.prediction;
  }
  /// Each of the experts in use with the same probability, in the order of the hash.
  [[nodiscard]] std::optional<std::span<const std::int32_t>> found(std::int32_t number, std::int32_t slots) override {
    if (choice_.hit_curve.empty()) return std::nullopt;
    const std::span<const ExpertUse> used = layer(number);
    Layer& one = layers_.at(static_cast<std::size_t>(number));
    one.found.clear();
    if (used.empty()) return one.found;
    const double most = static_cast<double>(slots) / static_cast<double>(used.size());
    const std::vector<double> h(used.size(), std::min(hit_share(slots), most));
    for (const std::size_t i : sampled(h, number, choice_.seed ^ 0x68697473U)) one.found.push_back(used[i].expert);
    return one.found;
  }
  [[nodiscard]] std::span<const std::int32_t> by_popularity(std::int32_t number) const override {
    return layers_.at(static_cast<std::size_t>(number)).ranking;
  }
  [[nodiscard]] double popularity(std::int32_t number, std::int32_t expert) const override {
    return layers_.at(static_cast<std::size_t>(number)).profile.at(static_cast<std::size_t>(expert));
  }
  [[nodiscard]] std::int32_t patterns() const override { return choice_.patterns; }
  [[nodiscard]] double pattern_share(std::int32_t pattern) const override {
    return shares_.at(static_cast<std::size_t>(pattern));
  }
  [[nodiscard]] double popularity_in(std::int32_t pattern, std::int32_t number, std::int32_t expert) const override {
    const Layer& one = layers_.at(static_cast<std::size_t>(number));
    return one.patterns.at(static_cast<std::size_t>(pattern)).at(static_cast<std::size_t>(expert));
  }

  /// The kind of a request.
  [[nodiscard]] std::size_t pattern_of(std::uint64_t number) const {
    std::uint64_t state = number;
    return split_mix(state) % static_cast<std::uint64_t>(choice_.patterns);
  }
  /// The next iteration has so many tokens of requests of each kind.
  void mix(const std::vector<std::int64_t>& tokens) {
    const double all = static_cast<double>(std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0}));
    for (std::size_t i = 0; i < tokens.size(); ++i) shares_[i] = static_cast<double>(tokens[i]) / all;
    for (Layer& layer : layers_) {
      std::fill(layer.pi.begin(), layer.pi.end(), 0.0);
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        for (std::size_t e = 0; e < layer.pi.size(); ++e) layer.pi[e] += shares_[i] * layer.patterns[i][e];
      }
    }
  }

  /// An iteration of this shape begins.
  void begin(const BatchShape& shape) {
    std::int64_t fresh = 0;
    for (const PrefillChunk& chunk : shape.chunks) fresh += chunk.new_tokens.count();
    begin(shape.decodes(), fresh, std::max<std::int64_t>(0, shape.sampled_sequences - shape.decodes()));
  }

  void begin(std::int64_t decodes, std::int64_t fresh, std::int64_t ended) {
    for (Layer& layer : layers_) {
      for (std::size_t e = 0; e < layer.pi.size(); ++e) layer.m[e] += static_cast<double>(ended_) * layer.pi[e];
      const double known = static_cast<double>(decodes_ + ended_);
      for (std::size_t e = 0; e < layer.pi.size(); ++e) {
        const auto now = static_cast<double>(decodes);
        layer.m[e] = now < known ? layer.m[e] * now / known : layer.m[e] + (now - known) * layer.pi[e];
      }
    }
    decodes_ = decodes;
    fresh_ = fresh;
    ended_ = ended;
    ++iteration_;
  }

  std::vector<ExpertUse> draw(std::int32_t number) {
    Layer& layer = layers_[static_cast<std::size_t>(number)];
    const double q = choice_.locality;
    const auto td = static_cast<double>(decodes_);
    const auto tn = static_cast<double>(fresh_);
    std::vector<double> d;
    std::vector<double> of_decodes;
    std::vector<double> mu;
    for (std::size_t e = 0; e < layer.pi.size(); ++e) {
      const double pi = layer.pi[e];
      const double m = layer.m[e];
      d.push_back(1.0 - std::pow((1 - q) * (1 - pi), m) * std::pow(1 - (1 - q) * pi, td - m) * std::pow(1 - pi, tn));
      of_decodes.push_back(m * (q + (1 - q) * pi) + (td - m) * (1 - q) * pi);
      mu.push_back(of_decodes.back() + tn * pi);
      d.back() = std::min(d.back(), mu.back());
    }
    std::vector<std::size_t> active;
    if (static_cast<double>(d.size()) - std::accumulate(d.begin(), d.end(), 0.0) < 0.5 - 1e-6) {
      active.resize(d.size());
      std::iota(active.begin(), active.end(), 0);
    } else {
      double lacks = choice_.top_k - std::accumulate(d.begin(), d.end(), 0.0);
      for (const std::int32_t e : layer.ranking) {
        const double by = std::clamp(lacks, 0.0, 1.0 - d[static_cast<std::size_t>(e)]);
        d[static_cast<std::size_t>(e)] += by;
        lacks -= by;
      }
      active = sampled(d, number, choice_.seed);
    }
    std::vector<ExpertUse> used = share(active, d, mu);
    std::fill(layer.m.begin(), layer.m.end(), 0.0);
    for (const ExpertUse& use : used) {
      const auto e = static_cast<std::size_t>(use.expert);
      layer.m[e] = std::min(td, static_cast<double>(use.tokens) * of_decodes[e] / mu[e]);
    }
    const double sum = std::accumulate(layer.m.begin(), layer.m.end(), 0.0);
    if (fresh_ > 0 && sum > choice_.top_k * td) {
      for (double& m : layer.m) m *= choice_.top_k * td / sum;
    }
    return used;
  }

 private:
  struct Layer {
    std::vector<std::vector<double>> patterns;
    std::vector<double> profile;
    std::vector<double> pi;
    std::vector<double> m;
    std::vector<std::int32_t> ranking;
    std::int64_t drawn_at = -2;
    std::vector<ExpertUse> used;
    std::vector<std::int32_t> prediction;
    std::vector<std::int32_t> found;
  };

  /// Of `slots`, from the corners of the curve: none at all, the measured points, all experts.
  [[nodiscard]] double hit_share(std::int32_t slots) const {
    std::vector<HitCurve::Point> corners{{0, 0.0}};
    corners.insert(corners.end(), choice_.hit_curve.begin(), choice_.hit_curve.end());
    if (corners.back().slots < choice_.count) corners.push_back({choice_.count, 1.0});
    for (std::size_t i = 1; i < corners.size(); ++i) {
      const HitCurve::Point& a = corners[i - 1];
      const HitCurve::Point& b = corners[i];
      if (slots <= b.slots) return a.share + (b.share - a.share) * (slots - a.slots) / (b.slots - a.slots);
    }
    return 1.0;
  }

  /// c by repeated search: those that c p would lift above 1 are 1, the rest share what is left.
  void fill(std::vector<double>& p) const {
    std::vector<bool> full(p.size(), false);
    for (bool again = true; again;) {
      again = false;
      double open = 0.0;
      double left = choice_.top_k;
      for (std::size_t i = 0; i < p.size(); ++i) (full[i] ? left : open) += full[i] ? -1.0 : p[i];
      for (std::size_t i = 0; i < p.size(); ++i) {
        if (!full[i] && p[i] * (left / open) >= 1.0) again = full[i] = true;
      }
      if (again) continue;
      for (std::size_t i = 0; i < p.size(); ++i) p[i] = full[i] ? 1.0 : std::min(1.0, p[i] * (left / open));
    }
  }

  std::vector<std::size_t> sampled(const std::vector<double>& d, std::int32_t number, std::uint64_t seed) const {
    const auto mixed = [](std::uint64_t state, std::uint64_t with) {
      state ^= with * 0x9e3779b97f4a7c15U;
      return split_mix(state);
    };
    const std::uint64_t hash =
        mixed(mixed(seed, static_cast<std::uint64_t>(iteration_)), static_cast<std::uint64_t>(number));
    const double u = static_cast<double>(hash >> 32U) * 0x1p-32;
    const std::uint64_t count = d.size();
    std::uint64_t a = (hash % count) | 1U;
    while (std::gcd(a, count) != 1) a += 2;
    const std::uint64_t b = (hash >> 32U) % count;
    std::vector<std::size_t> active;
    double sum = 0.0;
    for (std::uint64_t j = 0; j < count; ++j) {
      const std::size_t e = (a * j + b) % count;
      const double before = sum;
      sum += d[e];
      if (std::ceil(before - u) < std::ceil(sum - u)) active.push_back(e);
    }
    std::sort(active.begin(), active.end());
    return active;
  }

  std::vector<ExpertUse> share(const std::vector<std::size_t>& active, const std::vector<double>& d,
                               const std::vector<double>& mu) const {
    const std::int64_t tokens = decodes_ + fresh_;
    const std::int64_t total = tokens * choice_.top_k;
    double sum = 0.0;
    for (const std::size_t e : active) sum += mu[e] / d[e];
    std::vector<ExpertUse> used;
    std::vector<double> exact;
    std::int64_t left = total;
    for (const std::size_t e : active) {
      exact.push_back(mu[e] / d[e] * static_cast<double>(total) / sum);
      const auto whole = std::clamp(static_cast<std::int64_t>(std::floor(exact.back())), std::int64_t{1}, tokens);
      used.push_back({static_cast<std::int32_t>(e), static_cast<std::int32_t>(whole)});
      left -= whole;
    }
    // One at a time: to the one that lacks most, or from the one that has most too much.
    std::vector<bool> moved(used.size(), false);
    while (left != 0) {
      const std::int32_t by = left > 0 ? 1 : -1;
      std::ptrdiff_t best = -1;
      for (std::ptrdiff_t i = 0; i < std::ssize(used); ++i) {
        const auto at = static_cast<std::size_t>(i);
        if (moved[at] || (by > 0 ? used[at].tokens >= tokens : used[at].tokens <= 1)) continue;
        const auto lacks = [&](std::size_t j) {
          return std::round(static_cast<double>(by) * (exact[j] - static_cast<double>(used[j].tokens)) * 1e6);
        };
        if (best < 0 || lacks(at) > lacks(static_cast<std::size_t>(best))) best = i;
      }
      if (best < 0) {
        std::fill(moved.begin(), moved.end(), false);
        continue;
      }
      used[static_cast<std::size_t>(best)].tokens += by;
      moved[static_cast<std::size_t>(best)] = true;
      left -= by;
    }
    return used;
  }

  PlainChoice choice_;
  std::vector<double> shares_;
  std::vector<Layer> layers_;
  std::int64_t decodes_ = 0;
  std::int64_t fresh_ = 0;
  std::int64_t ended_ = 0;
  std::int64_t iteration_ = -1;
};

}  // namespace spillway::oracle
