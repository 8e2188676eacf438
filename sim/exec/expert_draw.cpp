#include "sim/exec/expert_draw.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "sim/core/error.hpp"
#include "sim/core/prefetch.hpp"
#include "sim/core/random.hpp"

namespace spillway {
namespace {

constexpr std::int64_t kNotAsked = -2;  // in the iteration before
/// Beyond it, the experts that no token uses are too few to draw.
constexpr std::int64_t kSpare = kFixedOne / 2 - kFixedOne / 1'000'000;

std::size_t index(std::int32_t expert) { return static_cast<std::size_t>(expert); }

std::uint64_t mixed_with(std::uint64_t state, std::uint64_t with) {
  state ^= with * 0x9e3779b97f4a7c15U;
  return split_mix(state);
}

/// 0, 1, 2, ...
template <class Number>
std::vector<Number> numbers(std::size_t count) {
  std::vector<Number> numbers(count);
  std::iota(numbers.begin(), numbers.end(), Number{});
  return numbers;
}

}  // namespace

std::int32_t expert_pattern(std::uint32_t number, std::int32_t patterns) {
  std::uint64_t state = number;
  return static_cast<std::int32_t>(split_mix(state) % static_cast<std::uint64_t>(patterns));
}

ExpertDraw::ExpertDraw(const ExpertChoice& choice) : choice_(choice) {
  SPILLWAY_CHECK(choice.count > 0 && 0 < choice.top_k && choice.top_k <= choice.count,
                 "a draw of more experts than a layer has");
  SPILLWAY_CHECK(choice.count <= std::numeric_limits<Ranks::value_type>::max(), "a draw of too many experts");
  const auto count = index(choice.count);
  std::vector<double> weights = choice.shares;
  for (std::size_t rank = weights.size(); rank < count; ++rank) {
    weights.push_back(portable_exp(-choice.skew * portable_log(real(static_cast<std::int64_t>(rank) + 1))));
  }
  by_rank_ = water_filling(weights, choice.top_k);
  numbers_ = numbers<Ranks::value_type>(count);
  shares_.assign(index(choice.patterns), 1.0 / real(choice.patterns));
  layers_.resize(index(choice.layers));
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    Layer& layer = layers_[l];
    if (!choice.shares.empty()) {
      layer.ranks.push_back(numbers_);
    } else {
      for (std::uint64_t pattern = 0; pattern < shares_.size(); ++pattern) {
        std::uint64_t state = mixed_with(pattern == 0 ? choice.seed : mixed_with(choice.seed, pattern), l + 1);
        std::vector<std::int32_t> order = numbers<std::int32_t>(count);
        for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[split_mix(state) % i]);
        Ranks& ranks = layer.ranks.emplace_back(count);
        for (std::size_t rank = 0; rank < count; ++rank) ranks[index(order[rank])] = numbers_[rank];
        if (pattern == 0) layer.ranking = std::move(order);
      }
    }
    if (choice.patterns > 1 || !choice.shares.empty()) {
      layer.ranking = numbers<std::int32_t>(count);
      // To a billionth, so that means of the same numbers are equal.
      const auto rounded = [&](std::int32_t expert) {
        const double popular =
            choice.shares.empty() ? popularity(static_cast<std::int32_t>(l), expert) : choice.shares[index(expert)];
        return std::llround(popular * 1e9);
      };
      std::ranges::stable_sort(layer.ranking, std::ranges::greater{}, rounded);
    }
  }
  bits_.resize(count / 64 + 1);
  is_drawn_.resize(count);
  drawn_room_.resize(count);
  common_.pi = by_rank_;
  set_popularity();
}

double ExpertDraw::popularity(std::int32_t layer, std::int32_t expert) const {
  double sum = 0.0;
  for (std::int32_t pattern = 0; pattern < choice_.patterns; ++pattern) {
    sum += 1.0 / real(choice_.patterns) * popularity_in(pattern, layer, expert);
  }
  return sum;
}

void ExpertDraw::mix(std::span<const std::int64_t> tokens) {
  const auto all = real(std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0}));
  bool changed = false;
  for (std::size_t pattern = 0; pattern < shares_.size(); ++pattern) {
    const double share = real(tokens[pattern]) / all;
    changed |= std::exchange(shares_[pattern], share) != share;
  }
  if (changed) set_popularity();
}

void ExpertDraw::set_popularity() {
  for (Layer& layer : layers_) layer.all_used_for = -1;
  const auto has_share = [](double share) { return share > 0.0; };
  const auto only = std::ranges::find_if(shares_, has_share);
  kind_ = std::find_if(std::next(only), shares_.end(), has_share) == shares_.end()
              ? static_cast<std::int32_t>(only - shares_.begin())
              : -1;
  if (!mixed()) return;
  mixed_.resize(layers_.size());
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    std::vector<double>& pi = mixed_[l].pi;
    pi.assign(by_rank_.size(), 0.0);
    for (std::size_t pattern = 0; pattern < shares_.size(); ++pattern) {
      if (shares_[pattern] == 0.0) continue;
      const Ranks& ranks = layers_[l].ranks[pattern];
      for (std::size_t e = 0; e < pi.size(); ++e) pi[e] += shares_[pattern] * by_rank_[ranks[e]];
    }
    mixed_[l].for_decodes = -1;
  }
}

void ExpertDraw::begin(const BatchShape& shape) {
  const std::int64_t decodes = shape.decodes();
  const double known = real(decodes_ + ended_);
  const bool stays = ended_ == 0 && decodes == decodes_;
  const double joined = real(ended_) + std::max(0.0, real(decodes) - known);
  const double kept = known <= real(decodes) ? 1.0 : real(decodes) / known;
  for (Layer& layer : layers_) {
    if (layer.asked_at != iteration_) {
      layer.asked_at = kNotAsked;
    } else if (!stays) {
      count_before(layer, joined, kept);
    }
  }
  ++iteration_;
  iteration_hash_ = mixed_with(choice_.seed, static_cast<std::uint64_t>(iteration_));
  decodes_ = decodes;
  fresh_ = 0;
  for (const PrefillChunk& chunk : shape.chunks) fresh_ += chunk.new_tokens.count();
  ended_ = std::max<std::int64_t>(0, shape.sampled_sequences - decodes);
}

void ExpertDraw::count_before(Layer& layer, double joined, double kept) {
  if (kept == 0.0) return layer.before.clear();
  if (joined == 0.0) {
    for (Before& one : layer.before) one.m *= kept;
    std::erase_if(layer.before, [](const Before& one) { return one.m == 0.0; });
    return;
  }
  const std::vector<double>& pi = base(static_cast<std::int32_t>(&layer - layers_.data())).pi;
  const Ranks& rank = ranks(layer);
  before_.assign(rank.size(), 0.0);
  for (const Before& one : layer.before) before_[index(one.expert)] = one.m;
  layer.before.clear();
  for (std::int32_t e = 0; e < choice_.count; ++e) {
    const double m = (before_[index(e)] + joined * pi[rank[index(e)]]) * kept;
    if (m > 0.0) layer.before.push_back({e, m});
  }
}

void ExpertDraw::recall(Layer& layer) {
  if (layer.asked_at == kNotAsked) {
    layer.before.clear();
    count_before(layer, real(decodes_), 1.0);
  }
  layer.asked_at = iteration_;
}

std::span<const ExpertUse> ExpertDraw::layer(std::int32_t layer) {
  Layer& one = layers_[index(layer)];
  if (one.drawn_at != iteration_) {
    recall(one);
    draw(one, layer);
    one.drawn_at = iteration_;
  }
  return one.used;
}

std::int64_t ExpertDraw::distinct(std::int32_t layer) {
  Layer& one = layers_[index(layer)];
  // What sequences that decode use decides what they use next.
  if (decodes_ > 0 || fresh_ == 0 || one.drawn_at == iteration_) return std::ssize(this->layer(layer));
  recall(one);
  const std::int64_t sum = prepared(layer).sum;
  if (all_in_use(sum)) return choice_.count;
  return sample_size(std::max(sum, choice_.top_k * kFixedOne), static_cast<std::int64_t>(hash_of(layer) >> 32U));
}

AllUsed ExpertDraw::all_used(std::int32_t layer) {
  if (decodes_ > 0 || fresh_ == 0 || mixed()) return {};
  Layer& one = layers_[index(layer)];
  recall(one);
  Base& base = prepared(layer);
  if (!all_in_use(base.sum) || !share_by_rank(base) || !base.falls) return {};
  one.by_rank.resize(one.ranks.size());
  std::vector<std::int32_t>& by_rank = one.by_rank[index(kind_)];
  const Ranks& ranks = one.ranks[index(kind_)];
  if (by_rank.empty()) {
    by_rank.resize(ranks.size());
    for (std::int32_t e = 0; e < choice_.count; ++e) by_rank[ranks[index(e)]] = e;
  }
  // The next layer's are asked for next, and their first ones are looked at at once.
  if (const std::size_t next = index(layer) + 1; next < layers_.size() && !layers_[next].by_rank.empty()) {
    prefetch(layers_[next].by_rank[index(kind_)].data(), sizeof(std::int32_t));
  }
  return {by_rank, base.rank_tokens, ranks};
}

std::span<const std::int32_t> ExpertDraw::predicted(std::int32_t layer, std::int32_t count) {
  const std::span<const ExpertUse> used = this->layer(layer);
  Layer& one = layers_[index(layer)];
  one.prediction.clear();
  const auto most = static_cast<double>(std::min<std::int64_t>(count, static_cast<std::int64_t>(used.size())));
  if (most == 0.0) return {};
  // Of as many as are in use, the share `lookahead` is right; the first ones are right more often.
  const double right = most * (1.0 - (1.0 - choice_.lookahead) * most / static_cast<double>(used.size()));
  const std::uint64_t hash = mixed_with(mixed_with(choice_.seed ^ 0x70726564U, static_cast<std::uint64_t>(iteration_)),
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
      std::min(to_fixed(choice_.hit_curve.at(slots, choice_.count)), slots * kFixedOne / std::int64_t{in_use});
  const std::uint64_t hash = mixed_with(mixed_with(choice_.seed ^ 0x68697473U, static_cast<std::uint64_t>(iteration_)),
                                        static_cast<std::uint64_t>(layer));
  drawn_ = systematic_sample(
      [share](std::uint32_t /*position*/) { return share; }, static_cast<std::int64_t>(hash >> 32U),
      SampleOrder::of(hash, static_cast<std::int32_t>(in_use)), std::span(drawn_room_).first(used.size()));
  std::ranges::sort(drawn_);
  for (const std::int32_t position : drawn_) one.found.push_back(used[index(position)].expert);
  return one.found;
}

bool ExpertDraw::all_in_use(std::int64_t sum) const { return choice_.count * kFixedOne - sum < kSpare; }

std::uint64_t ExpertDraw::hash_of(std::int32_t layer) const {
  return mixed_with(iteration_hash_, static_cast<std::uint64_t>(layer));
}

void ExpertDraw::draw(Layer& layer, std::int32_t number) {
  if (tokens() == 0) {
    layer.used.clear();
    layer.before.clear();
    layer.all_used_for = -1;
    return;
  }
  Base& base = prepared(number);
  const Ranks& rank = ranks(layer);
  std::int64_t sum = base.sum;
  if (decodes_ == 0 && all_in_use(sum) && use_all(layer, base)) return;
  layer.all_used_for = -1;
  // Experts that were in use before have another chance than the base says.
  changed_.resize(layer.before.size());
  auto changed = changed_.begin();
  for (const Before& one : layer.before) {
    if (one.m != 1.0) continue;
    const std::size_t r = rank[index(one.expert)];
    const std::int64_t before = std::exchange(base.d[r], base.again[r]);
    sum += base.d[r] - before;
    *changed++ = {r, before};
  }
  const bool others = changed != changed_.end();
  changed_.erase(changed, changed_.end());
  if (others) sum += change_others(layer, base);
  if (all_in_use(sum)) {
    drawn_ = drawn_room_;
    std::iota(drawn_.begin(), drawn_.end(), 0);
  } else {
    raise_to_top_k(layer, base, sum);
    const std::uint64_t hash = hash_of(number);
    drawn_ =
        systematic_sample([&d = base.d, &rank](std::uint32_t expert) { return d[rank[expert]]; },
                          static_cast<std::int64_t>(hash >> 32U), SampleOrder::of(hash, choice_.count), drawn_room_);
    sort_drawn();
  }
  share_tokens(layer, base);
  // The last one first: a rank that has changed twice gets its first d again.
  for (std::size_t i = changed_.size(); i-- > 0;) base.d[changed_[i].first] = changed_[i].second;
  remember(layer, base);
}

std::int64_t ExpertDraw::change_others(const Layer& layer, Base& base) {
  const Ranks& rank = ranks(layer);
  other_ranks_.clear();
  other_ratios_.clear();
  other_m_.clear();
  for (const Before& one : layer.before) {
    if (one.m == 1.0) continue;
    other_ranks_.push_back(rank[index(one.expert)]);
    other_ratios_.push_back(base.ratio[other_ranks_.back()]);
    other_m_.push_back(one.m);
  }
  const std::span<const double> powers = powers_(other_ratios_, other_m_);
  std::int64_t more = 0;
  for (std::size_t i = 0; i < other_ranks_.size(); ++i) {
    const std::size_t r = other_ranks_[i];
    const std::int64_t d = chance(base, r, other_m_[i], powers[i]);
    more += d - base.d[r];
    change(base, r, d);
  }
  return more;
}

bool ExpertDraw::share_by_rank(Base& base) {
  if (base.shared_for != fresh_) {
    base.shared_for = fresh_;
    base.shared = !remainder_(base.weights, choice_.top_k * fresh_, fresh_, parts_);
    base.rank_tokens.resize(parts_.size());
    for (std::size_t r = 0; r < parts_.size(); ++r) base.rank_tokens[r] = static_cast<std::int32_t>(parts_[r]);
    base.falls = std::ranges::is_sorted(base.rank_tokens, std::ranges::greater{});
  }
  return base.shared;
}

bool ExpertDraw::use_all(Layer& layer, Base& base) {
  if (layer.all_used_for == fresh_) return true;
  if (!share_by_rank(base)) return false;
  const Ranks& rank = ranks(layer);
  if (layer.used.size() < rank.size()) {
    layer.used.resize(rank.size());
    for (std::size_t e = 0; e < rank.size(); ++e) layer.used[e].expert = static_cast<std::int32_t>(e);
  }
#pragma GCC unroll 4
  for (std::size_t e = 0; e < rank.size(); ++e) layer.used[e].tokens = base.rank_tokens[rank[e]];
  layer.all_used_for = fresh_;
  return true;
}

void ExpertDraw::raise_to_top_k(const Layer& layer, Base& base, std::int64_t sum) {
  std::int64_t lacks = choice_.top_k * kFixedOne - sum;
  const Ranks& rank = ranks(layer);
  for (const std::int32_t expert : layer.ranking) {
    if (lacks <= 0) return;
    const std::size_t r = rank[index(expert)];
    const std::int64_t by = std::min(lacks, kFixedOne - base.d[r]);
    change(base, r, base.d[r] + by);
    lacks -= by;
  }
}

void ExpertDraw::sort_drawn() {
  constexpr std::size_t kMany = 4;  // from one in four experts on, a look at all of them is faster
  if (kMany * drawn_.size() > drawn_room_.size()) return sort_many_drawn();
  constexpr std::uint32_t kBits = 64;
  for (const std::int32_t expert : drawn_) {
    const auto at = static_cast<std::uint32_t>(expert);
    bits_[at / kBits] |= std::uint64_t{1} << (at % kBits);
  }
  std::int32_t* next = drawn_.data();
  for (std::size_t word = 0; word < bits_.size(); ++word) {
    for (std::uint64_t left = std::exchange(bits_[word], 0); left != 0; left &= left - 1) {
      *next++ = static_cast<std::int32_t>(word * kBits) + std::countr_zero(left);
    }
  }
}

void ExpertDraw::sort_many_drawn() {
  for (const std::int32_t expert : drawn_) is_drawn_[index(expert)] = Drawn::yes;
  std::int32_t* next = drawn_room_.data();
  for (std::int32_t expert = 0; expert < choice_.count; ++expert) {
    *next = expert;  // overwritten unless it was drawn
    next += static_cast<std::ptrdiff_t>(is_drawn_[index(expert)]);
  }
  std::ranges::fill(is_drawn_, Drawn::no);
}

ExpertDraw::Base& ExpertDraw::prepared(std::int32_t layer) {
  Base& base = this->base(layer);
  if (base.for_decodes != decodes_ || base.for_fresh != fresh_) prepare(base);
  return base;
}

void ExpertDraw::prepare(Base& base) {
  base.for_decodes = decodes_;
  base.for_fresh = fresh_;
  base.shared_for = -1;
  base.sum = 0;
  const std::size_t count = base.pi.size();
  for (std::vector<double>* values : {&base.idle, &base.weights, &bases_, &unused_}) values->resize(count);
  base.d.resize(count);
  const double q = choice_.locality;
  for (std::size_t r = 0; r < count; ++r) bases_[r] = std::max(0.0, 1.0 - base.pi[r]);
  raise_to_power(bases_, fresh_, base.idle);
  if (decodes_ > 0) {
    for (std::size_t r = 0; r < count; ++r) bases_[r] = std::max(0.0, 1.0 - (1.0 - q) * base.pi[r]);
    raise_to_power(bases_, decodes_, unused_);
    for (std::size_t r = 0; r < count; ++r) base.idle[r] *= unused_[r];
  }
  for (std::size_t r = 0; r < count; ++r) {
    const double pi = base.pi[r];
    base.d[r] = to_fixed(1.0 - base.idle[r]);
    base.sum += base.d[r];
    const double mu = expected_decodes(pi, 0.0) + real(fresh_) * pi;
    base.weights[r] = mu * static_cast<double>(kFixedOne) / real(base.d[r]);
  }
  if (decodes_ == 0) return;
  base.ratio.resize(count);
  base.again.resize(count);
  for (std::size_t r = 0; r < count; ++r) {
    const double pi = base.pi[r];
    const double unused = 1.0 - (1.0 - q) * pi;
    const double ratio = unused > 0.0 ? (1.0 - q) * (1.0 - pi) / unused : 0.0;
    if (base.ratio[r].base != ratio) base.ratio[r] = PowerBase::of(ratio);
    base.again[r] = chance(base, r, 1.0, ratio);
  }
}

void ExpertDraw::share_tokens(Layer& layer, const Base& base) {
  const Ranks& rank = ranks(layer);
  layer.used.resize(drawn_.size());
  if (tokens() == 1) {
    for (std::size_t i = 0; i < drawn_.size(); ++i) layer.used[i] = {drawn_[i], 1};
    return;
  }
  const bool raised = changed_.size() > layer.before.size();
  weights_.resize(drawn_.size());
  if (decodes_ == 0 && !raised) {
    for (std::size_t i = 0; i < drawn_.size(); ++i) weights_[i] = base.weights[rank[index(drawn_[i])]];
    return whole_tokens(layer);
  }
  before_.resize(drawn_.size());
  auto before = layer.before.begin();
  for (std::size_t i = 0; i < drawn_.size(); ++i) {
    const std::size_t r = rank[index(drawn_[i])];
    while (before != layer.before.end() && before->expert < drawn_[i]) ++before;
    const bool known = before != layer.before.end() && before->expert == drawn_[i];
    before_[i] = known ? before->m : 0.0;
    if (!known && !raised) {
      weights_[i] = base.weights[r];
      continue;
    }
    const double mu = expected_decodes(base.pi[r], before_[i]) + real(fresh_) * base.pi[r];
    weights_[i] = mu * static_cast<double>(kFixedOne) / real(base.d[r]);
  }
  whole_tokens(layer);
}

void ExpertDraw::whole_tokens(Layer& layer) {
  remainder_(weights_, choice_.top_k * tokens(), tokens(), parts_);
  for (std::size_t i = 0; i < drawn_.size(); ++i) {
    layer.used[i] = {drawn_[i], static_cast<std::int32_t>(parts_[i])};
  }
}

void ExpertDraw::remember(Layer& layer, const Base& base) {
  if (decodes_ > 0 && tokens() == 1) {
    layer.before.resize(drawn_.size());
    for (std::size_t i = 0; i < drawn_.size(); ++i) layer.before[i] = {drawn_[i], 1.0};
    return;
  }
  layer.before.clear();
  if (decodes_ == 0) return;
  const Ranks& rank = ranks(layer);
  double sum = 0.0;
  for (std::size_t i = 0; i < layer.used.size(); ++i) {
    const ExpertUse& use = layer.used[i];
    const double pi = base.pi[rank[index(use.expert)]];
    const double decoding = expected_decodes(pi, before_[i]);
    const double all = decoding + real(fresh_) * pi;
    const double m = std::min(real(decodes_), real(use.tokens) * (fresh_ == 0 ? 1.0 : decoding / all));
    sum += m;
    layer.before.push_back({use.expert, m});
  }
  const double most = real(choice_.top_k) * real(decodes_);
  if (fresh_ == 0 || sum <= most) return;
  for (Before& one : layer.before) one.m *= most / sum;
}

}  // namespace spillway
