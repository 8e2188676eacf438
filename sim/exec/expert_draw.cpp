#include "sim/exec/expert_draw.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>

#include "sim/core/error.hpp"
#include "sim/core/random.hpp"

namespace spillway {
namespace {

constexpr std::int64_t kNotAsked = -2;  // in the iteration before
constexpr double kMostWholePower = 1 << 20;
/// Beyond it, the experts that no token uses are too few to draw.
constexpr std::int64_t kSpare = kFixedOne / 2 - kFixedOne / 1'000'000;

double real(std::int64_t x) { return static_cast<double>(x); }
std::size_t index(std::int32_t expert) { return static_cast<std::size_t>(expert); }

double whole_power(double base, std::int64_t exponent) {
  double power = 1.0;
  for (; exponent > 0; exponent >>= 1U, base *= base) {
    if ((exponent & 1) != 0) power *= base;
  }
  return power;
}

/// base^exponent for base in [0, 1], exponent >= 0.
double power(double base, double exponent) {
  if (exponent == 0.0) return 1.0;
  if (base <= 0.0) return 0.0;
  if (exponent <= kMostWholePower && exponent == std::floor(exponent)) {
    return whole_power(base, static_cast<std::int64_t>(exponent));
  }
  return portable_exp(exponent * portable_log(base));
}

std::int64_t fixed(double chance) {
  return static_cast<std::int64_t>(std::clamp(chance, 0.0, 1.0) * static_cast<double>(kFixedOne) + 0.5);
}

/// Remainders that are equal but for the rounding on their way are equal.
std::int64_t to_millionths(double x) { return static_cast<std::int64_t>(std::floor(x * 1e6 + 0.5)); }

std::uint64_t mixed(std::uint64_t state, std::uint64_t with) {
  state ^= with * 0x9e3779b97f4a7c15U;
  return split_mix(state);
}

}  // namespace

std::vector<double> water_filling(std::span<const double> weights, double top_k) {
  std::vector<double> pi(weights.size(), 0.0);
  double open = std::accumulate(weights.begin(), weights.end(), 0.0);
  double left = top_k;
  for (bool filled = true; filled;) {
    filled = false;
    const double c = open > 0.0 ? left / open : 0.0;
    for (std::size_t e = 0; e < weights.size(); ++e) {
      if (pi[e] == 1.0 || weights[e] * c < 1.0) continue;
      pi[e] = 1.0;
      open -= weights[e];
      left -= 1.0;
      filled = true;
    }
  }
  for (std::size_t e = 0; e < weights.size(); ++e) {
    if (pi[e] < 1.0) pi[e] = std::min(1.0, weights[e] * (left / open));
  }
  return pi;
}

double distinct_experts(std::span<const double> pi, std::int64_t tokens) {
  return std::accumulate(pi.begin(), pi.end(), 0.0,
                         [tokens](double sum, double one) { return sum + 1.0 - power(1.0 - one, real(tokens)); });
}

SampleOrder SampleOrder::of(std::uint64_t hash, std::int32_t count) {
  const auto size = static_cast<std::uint64_t>(count);
  std::uint64_t step = (hash % size) | 1U;
  while (std::gcd(step, size) != 1) step += 2;
  return {static_cast<std::int32_t>(step % size), static_cast<std::int32_t>((hash >> 32U) % size)};
}

void systematic_sample(std::span<const std::int64_t> d, std::int64_t u, const SampleOrder& order,
                       std::vector<std::int32_t>& drawn) {
  drawn.clear();
  const auto count = static_cast<std::int32_t>(d.size());
  std::int64_t sum = kFixedOne - 1 - u;  // of what was visited, so that its whole part is ceil(sum - u)
  std::int32_t expert = order.first;
  for (std::int32_t j = 0; j < count; ++j) {
    const std::int64_t after = sum + d[index(expert)];
    if ((after >> 32U) != (sum >> 32U)) drawn.push_back(expert);
    sum = after;
    expert += order.step;
    if (expert >= count) expert -= count;
  }
}

void largest_remainder(std::span<const double> weights, std::int64_t total, std::int64_t most,
                       std::vector<std::int64_t>& parts) {
  const double scale = real(total) / std::accumulate(weights.begin(), weights.end(), 0.0);
  parts.resize(weights.size());
  std::int64_t left = total;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    parts[i] = std::clamp(static_cast<std::int64_t>(weights[i] * scale), std::int64_t{1}, most);
    left -= parts[i];
  }
  std::vector<std::size_t> order;
  while (left != 0) {
    const std::int64_t by = left > 0 ? 1 : -1;
    order.clear();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (by > 0 ? parts[i] < most : parts[i] > 1) order.push_back(i);
    }
    // What a part lacks; a part that gives up one is the one that has most of what it should not have.
    const auto first = [&](std::size_t a, std::size_t b) {
      const std::int64_t lacks_a = by * to_millionths(weights[a] * scale - real(parts[a]));
      const std::int64_t lacks_b = by * to_millionths(weights[b] * scale - real(parts[b]));
      return lacks_a != lacks_b ? lacks_a > lacks_b : a < b;
    };
    SPILLWAY_CHECK(!order.empty(),
                   "parts of 1 to " + std::to_string(most) + " cannot add up to " + std::to_string(total));
    const auto taken = std::min(order.size(), static_cast<std::size_t>(std::abs(left)));
    const auto middle = order.begin() + static_cast<std::ptrdiff_t>(taken);
    if (middle != order.end()) std::nth_element(order.begin(), middle, order.end(), first);
    std::for_each(order.begin(), middle, [&](std::size_t i) { parts[i] += by; });
    left -= by * static_cast<std::int64_t>(taken);
  }
}

std::int32_t expert_pattern(std::uint32_t number, std::int32_t patterns) {
  std::uint64_t state = number;
  return static_cast<std::int32_t>(split_mix(state) % static_cast<std::uint64_t>(patterns));
}

ExpertDraw::ExpertDraw(const ExpertChoice& choice) : choice_(choice) {
  SPILLWAY_CHECK(choice.count > 0 && 0 < choice.top_k && choice.top_k <= choice.count,
                 "a draw of more experts than a layer has");
  const auto count = index(choice.count);
  std::vector<double> weights(count);
  for (std::size_t rank = 0; rank < count; ++rank) {
    weights[rank] = portable_exp(-choice.skew * portable_log(real(static_cast<std::int64_t>(rank) + 1)));
  }
  shares_.assign(index(choice.patterns), 1.0 / real(choice.patterns));
  layers_.resize(index(choice.layers));
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    Layer& layer = layers_[l];
    const auto by_number = [count] {
      std::vector<std::int32_t> order(count);
      std::iota(order.begin(), order.end(), 0);
      return order;
    };
    if (choice.shares.empty()) {
      const std::vector<double> by_rank = water_filling(weights, choice.top_k);
      for (std::uint64_t pattern = 0; pattern < shares_.size(); ++pattern) {
        std::uint64_t state = mixed(pattern == 0 ? choice.seed : mixed(choice.seed, pattern), l + 1);
        std::vector<std::int32_t> order = by_number();
        for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[split_mix(state) % i]);
        std::vector<double>& pi = layer.of_pattern.emplace_back(count);
        for (std::size_t rank = 0; rank < count; ++rank) pi[index(order[rank])] = by_rank[rank];
        if (pattern == 0) layer.ranking = std::move(order);
      }
    } else {
      layer.of_pattern.push_back(water_filling(choice.shares, choice.top_k));
    }
    layer.profile = layer.of_pattern.front();
    if (choice.patterns > 1) mean_of_patterns(layer, layer.profile);
    if (choice.patterns > 1 || !choice.shares.empty()) {
      layer.ranking = by_number();
      const std::vector<double>& popularity = choice.shares.empty() ? layer.profile : choice.shares;
      // To a billionth, so that means of the same numbers are equal.
      const auto rounded = [&](std::int32_t expert) { return std::llround(popularity[index(expert)] * 1e9); };
      std::ranges::stable_sort(layer.ranking, std::ranges::greater{}, rounded);
    }
    layer.pi = layer.profile;
    layer.before.assign(count, 0.0);
    layer.d.resize(count);
  }
}

void ExpertDraw::mean_of_patterns(const Layer& layer, std::vector<double>& pi) const {
  for (std::size_t e = 0; e < pi.size(); ++e) {
    pi[e] = 0.0;
    for (std::size_t pattern = 0; pattern < shares_.size(); ++pattern) {
      pi[e] += shares_[pattern] * layer.of_pattern[pattern][e];
    }
  }
}

void ExpertDraw::mix(std::span<const std::int64_t> tokens) {
  const auto all = real(std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0}));
  bool changed = false;
  for (std::size_t pattern = 0; pattern < shares_.size(); ++pattern) {
    const double share = real(tokens[pattern]) / all;
    changed |= std::exchange(shares_[pattern], share) != share;
  }
  if (!changed) return;
  for (Layer& layer : layers_) {
    mean_of_patterns(layer, layer.pi);
    layer.for_decodes = -1;
    layer.all_used_for = -1;
  }
}

void ExpertDraw::begin(const BatchShape& shape) {
  const std::int64_t decodes = shape.decodes();
  const double known = real(decodes_ + ended_);
  const bool stays = ended_ == 0 && decodes == decodes_;
  const double joined = real(ended_) + std::max(0.0, real(decodes) - known);
  const double kept = known <= real(decodes) ? 1.0 : real(decodes) / known;
  for (Layer& layer : layers_) {
    if (layer.drawn_at != iteration_) {
      layer.drawn_at = kNotAsked;
    } else if (!stays) {
      count_before(layer, joined, kept);
    }
  }
  ++iteration_;
  decodes_ = decodes;
  fresh_ = 0;
  for (const PrefillChunk& chunk : shape.chunks) fresh_ += chunk.new_tokens.count();
  ended_ = std::max<std::int64_t>(0, shape.sampled_sequences - decodes);
}

void ExpertDraw::count_before(Layer& layer, double joined, double kept) {
  layer.with_before.clear();
  for (std::int32_t e = 0; e < choice_.count; ++e) {
    double& m = layer.before[index(e)];
    m = (m + joined * layer.pi[index(e)]) * kept;
    if (m > 0.0) layer.with_before.push_back(e);
  }
}

std::span<const ExpertUse> ExpertDraw::layer(std::int32_t layer) {
  Layer& one = layers_[index(layer)];
  if (one.drawn_at != iteration_) {
    if (one.drawn_at == kNotAsked) {
      std::ranges::fill(one.before, 0.0);
      count_before(one, real(decodes_), 1.0);
    }
    draw(one, layer);
    one.drawn_at = iteration_;
  }
  return one.used;
}

std::span<const std::int32_t> ExpertDraw::predicted(std::int32_t layer, std::int32_t count) {
  const std::span<const ExpertUse> used = this->layer(layer);
  Layer& one = layers_[index(layer)];
  one.prediction.clear();
  const auto most = static_cast<double>(std::min<std::int64_t>(count, static_cast<std::int64_t>(used.size())));
  if (most == 0.0) return {};
  // Of as many as are in use, the share `lookahead` is right; the first ones are right more often.
  const double right = most * (1.0 - (1.0 - choice_.lookahead) * most / static_cast<double>(used.size()));
  const std::uint64_t hash = mixed(mixed(choice_.seed ^ 0x70726564U, static_cast<std::uint64_t>(iteration_)),
                                   static_cast<std::uint64_t>(layer));
  const double dither = static_cast<double>(hash >> 11U) * 0x1p-53;
  const auto known = static_cast<std::size_t>(right + dither);
  for (std::size_t i = 0; i < known; ++i) one.prediction.push_back(used[(hash + i) % used.size()].expert);
  for (const std::int32_t expert : one.ranking) {
    if (one.prediction.size() >= static_cast<std::size_t>(count)) break;
    const bool in_use = std::ranges::binary_search(used, expert, {}, &ExpertUse::expert);
    if (!in_use) one.prediction.push_back(expert);
  }
  return one.prediction;
}

std::optional<std::span<const std::int32_t>> ExpertDraw::found(std::int32_t layer, std::int32_t slots) {
  if (choice_.hit_curve.empty()) return std::nullopt;
  const std::span<const ExpertUse> used = this->layer(layer);
  Layer& one = layers_[index(layer)];
  if (one.found_at == iteration_) return one.found;
  one.found_at = iteration_;
  one.found.clear();
  const auto in_use = std::ssize(used);
  if (in_use == 0) return one.found;
  const std::int64_t share =
      std::min(fixed(choice_.hit_curve.at(slots, choice_.count)), slots * kFixedOne / std::int64_t{in_use});
  found_chance_.assign(used.size(), share);
  const std::uint64_t hash = mixed(mixed(choice_.seed ^ 0x68697473U, static_cast<std::uint64_t>(iteration_)),
                                   static_cast<std::uint64_t>(layer));
  systematic_sample(found_chance_, static_cast<std::int64_t>(hash >> 32U),
                    SampleOrder::of(hash, static_cast<std::int32_t>(in_use)), drawn_);
  std::ranges::sort(drawn_);
  for (const std::int32_t position : drawn_) one.found.push_back(used[index(position)].expert);
  return one.found;
}

void ExpertDraw::draw(Layer& layer, std::int32_t number) {
  const bool known = layer.for_decodes == decodes_ && layer.for_fresh == fresh_;
  if (!known) prepare_base(layer);
  const std::int64_t experts = choice_.count;
  std::int64_t sum = layer.sum;
  if (decodes_ == 0 && experts * kFixedOne - sum < kSpare && layer.all_used_for == fresh_) return;
  // Experts that were in use before have another chance than the base says.
  chance_.clear();
  for (const std::int32_t e : layer.with_before) {
    const double idle = layer.idle[index(e)] * power(layer.ratio[index(e)], layer.before[index(e)]);
    const double mu = expected_decodes(layer, e) + real(fresh_) * layer.pi[index(e)];
    const std::int64_t d = fixed(std::min(1.0 - idle, mu));
    chance_.push_back(layer.d[index(e)]);
    sum += d - layer.d[index(e)];
    layer.d[index(e)] = d;
  }
  layer.all_used_for = -1;
  if (experts * kFixedOne - sum < kSpare) {
    drawn_.resize(index(choice_.count));
    std::iota(drawn_.begin(), drawn_.end(), 0);
    if (decodes_ == 0) layer.all_used_for = fresh_;
  } else {
    const std::uint64_t hash =
        mixed(mixed(choice_.seed, static_cast<std::uint64_t>(iteration_)), static_cast<std::uint64_t>(number));
    raise_to_top_k(layer, sum);
    systematic_sample(layer.d, static_cast<std::int64_t>(hash >> 32U), SampleOrder::of(hash, choice_.count), drawn_);
    std::ranges::sort(drawn_);
  }
  share_tokens(layer);
  for (const auto& [expert, by] : raised_) layer.d[index(expert)] -= by;
  raised_.clear();
  for (std::size_t i = 0; i < chance_.size(); ++i) layer.d[index(layer.with_before[i])] = chance_[i];
  remember(layer);
}

void ExpertDraw::raise_to_top_k(Layer& layer, std::int64_t sum) {
  std::int64_t lacks = choice_.top_k * kFixedOne - sum;
  for (const std::int32_t expert : layer.ranking) {
    if (lacks <= 0) return;
    const std::int64_t by = std::min(lacks, kFixedOne - layer.d[index(expert)]);
    layer.d[index(expert)] += by;
    lacks -= by;
    raised_.emplace_back(expert, by);
  }
}

void ExpertDraw::prepare_base(Layer& layer) const {
  layer.for_decodes = decodes_;
  layer.for_fresh = fresh_;
  layer.sum = 0;
  layer.idle.resize(layer.pi.size());
  layer.ratio.resize(layer.pi.size());
  const double q = choice_.locality;
  for (std::size_t e = 0; e < layer.pi.size(); ++e) {
    const double pi = layer.pi[e];
    const double unused = 1.0 - (1.0 - q) * pi;
    layer.ratio[e] = unused > 0.0 ? (1.0 - q) * (1.0 - pi) / unused : 0.0;
    layer.idle[e] = power(unused, real(decodes_)) * power(1.0 - pi, real(fresh_));
    layer.d[e] = fixed(1.0 - layer.idle[e]);
    layer.sum += layer.d[e];
  }
}

/// mu of the tokens that decode; of the others it is T_n pi.
double ExpertDraw::expected_decodes(const Layer& layer, std::int32_t expert) const {
  const double q = choice_.locality;
  const double pi = layer.pi[index(expert)];
  const double m = layer.before[index(expert)];
  return m * (q + (1.0 - q) * pi) + (real(decodes_) - m) * (1.0 - q) * pi;
}

void ExpertDraw::share_tokens(Layer& layer) {
  layer.used.clear();
  if (tokens() == 1) {
    for (const std::int32_t e : drawn_) layer.used.push_back({e, 1});
    return;
  }
  weights_.clear();
  for (const std::int32_t e : drawn_) {
    const double mu = expected_decodes(layer, e) + real(fresh_) * layer.pi[index(e)];
    weights_.push_back(mu * static_cast<double>(kFixedOne) / real(layer.d[index(e)]));
  }
  largest_remainder(weights_, choice_.top_k * tokens(), tokens(), parts_);
  for (std::size_t i = 0; i < drawn_.size(); ++i) layer.used.push_back({drawn_[i], parts_[i]});
}

void ExpertDraw::remember(Layer& layer) {
  weights_.clear();
  if (decodes_ > 0) {
    for (const ExpertUse& use : layer.used) {
      const double decoding = expected_decodes(layer, use.expert);
      const double all = decoding + real(fresh_) * layer.pi[index(use.expert)];
      weights_.push_back(std::min(real(decodes_), real(use.tokens) * (fresh_ == 0 ? 1.0 : decoding / all)));
    }
  }
  const double sum = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  const double most = real(choice_.top_k) * real(decodes_);
  if (fresh_ > 0 && sum > most) {
    for (double& m : weights_) m *= most / sum;
  }
  for (const std::int32_t e : layer.with_before) layer.before[index(e)] = 0.0;
  layer.with_before.clear();
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    layer.before[index(layer.used[i].expert)] = weights_[i];
    layer.with_before.push_back(layer.used[i].expert);
  }
}

}  // namespace spillway
