#include "hwmodels/models/expert_load.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "hwmodels/numbers.hpp"
#include "sim/core/error.hpp"
#include "sim/core/random.hpp"

namespace spillway::hwmodels {
namespace {

constexpr std::size_t kFewestDraws = 8;
constexpr std::size_t kDrawnExperts = 1024;  // at least, in all draws together

/// The expected maximum of 1, 2, 4, ..., 1024 standard normal numbers, by numerical integration.
constexpr std::array<double, 11> kNormalMaxima{0.0,    0.5642, 1.0294, 1.4236, 1.766, 2.0697,
                                               2.3437, 2.5946, 2.8269, 3.0439, 3.2482};

double expected_maximum(std::int64_t count) {
  std::size_t i = 0;
  while (i + 2 < kNormalMaxima.size() && (std::int64_t{2} << i) <= count) ++i;
  const double low = real(std::int64_t{1} << i);
  const double part = std::min(1.0, (real(count) - low) / low);
  return kNormalMaxima[i] + part * (kNormalMaxima[i + 1] - kNormalMaxima[i]);
}

/// Adds an expert with `rows` rows, `weight` times.
void add_expert(RankLoad& load, double rows, double weight) {
  if (rows <= 0.0) return;
  load.rows += weight * rows;
  load.active += weight;
  for (std::size_t i = 0; i < kRowTiles.size(); ++i) load.tiles[i] += weight * std::ceil(rows / real(kRowTiles[i]));
}

/// The law x(u) between two bounds.
class PowerLaw {
 public:
  PowerLaw(double alpha, double least, double most)
      : power_(1.0 - alpha), low_(portable_log(least)), width_(portable_log(most / least)) {
    if (logarithmic()) return;
    const double log_low = low_;
    low_ = portable_exp(power_ * log_low);
    width_ = portable_exp(power_ * (log_low + width_)) - low_;
  }
  [[nodiscard]] double at(double u) const {
    return portable_exp(logarithmic() ? low_ + u * width_ : portable_log(low_ + u * width_) / power_);
  }

 private:
  [[nodiscard]] bool logarithmic() const { return std::abs(power_) < 1e-6; }
  double power_;
  double low_;
  double width_;
};

}  // namespace

ExpertLoad ExpertLoad::power_law(double alpha, Ties ties) {
  ExpertLoad load;
  load.ties_ = ties;
  load.kind_ = Kind::power_law;
  load.alpha_ = alpha;
  return load;
}

ExpertLoad ExpertLoad::shares(std::vector<double> shares) {
  constexpr double kSlack = 1e-6;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    if (shares[i] >= 0.0 && shares[i] <= 1.0) continue;
    throw ConfigError(fmt::format("the share of expert {} is {}", i, shares[i]), "expert shares",
                      "give a number from 0 to 1 for each expert");
  }
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  if (std::abs(sum - 1.0) > kSlack) {
    throw ConfigError(fmt::format("the shares of {} experts sum to {:.6g}, not to 1", shares.size(), sum),
                      "expert shares", "divide each share by the sum");
  }
  ExpertLoad load;
  load.kind_ = Kind::shares;
  load.shares_ = std::move(shares);
  return load;
}

ExpertLoad ExpertLoad::elsewhere() {
  ExpertLoad load;
  load.kind_ = Kind::elsewhere;
  return load;
}

std::string ExpertLoad::name() const {
  switch (kind_) {
    case Kind::balanced:
      return "balanced";
    case Kind::power_law:
      return fmt::format("power_law_{}", alpha_);
    case Kind::elsewhere:
      return "elsewhere";
    case Kind::shares:
      break;
  }
  return "shares";
}

MostLoadedRank::MostLoadedRank(const ExpertLoad& load, std::int64_t top_k, std::int64_t experts, std::int64_t ranks)
    : kind_(load.kind()), alpha_(load.alpha()), ties_(load.ties()), top_k_(top_k), experts_(experts), ranks_(ranks) {
  SPILLWAY_CHECK(experts % ranks == 0, "each GPU holds as many experts");
  const auto count = static_cast<std::size_t>(experts);
  const std::size_t local = count / static_cast<std::size_t>(ranks);
  if (kind_ == ExpertLoad::Kind::shares) {
    const std::vector<double>& shares = load.expert_shares();
    SPILLWAY_CHECK(shares.size() == count, "each expert has a share");
    double most = -1.0;
    for (auto first = shares.begin(); first != shares.end(); first += static_cast<std::ptrdiff_t>(local)) {
      const auto last = first + static_cast<std::ptrdiff_t>(local);
      const double sum = std::accumulate(first, last, 0.0);
      if (sum > most) local_shares_.assign(first, last);
      most = std::max(most, sum);
    }
  }
  if (kind_ != ExpertLoad::Kind::power_law) return;
  draws_.resize(std::max(kFewestDraws, kDrawnExperts / count));
  // Every quantile once, in an order that is unrelated to its size.
  const std::size_t all = draws_.size() * count;
  std::vector<std::pair<std::uint64_t, std::size_t>> order;
  order.reserve(all);
  std::uint64_t state = 0;
  for (std::size_t i = 0; i < all; ++i) order.emplace_back(split_mix(state), i);
  std::sort(order.begin(), order.end());
  for (std::size_t i = 0; i < all; ++i) {
    const double u = (static_cast<double>(order[i].second) + 0.5) / static_cast<double>(all);
    draws_[i / count].push_back({u, i % count, i % count / local});
  }
  for (std::vector<Expert>& draw : draws_)
    std::sort(draw.begin(), draw.end(), [](const Expert& a, const Expert& b) { return a.u > b.u; });
}

RankLoad MostLoadedRank::at(std::int64_t tokens) const {
  if (kind_ == ExpertLoad::Kind::power_law) return drawn_at(tokens);
  const double pairs = real(tokens) * real(top_k_);
  return kind_ == ExpertLoad::Kind::balanced ? balanced_at(pairs) : shares_at(pairs);
}

RankLoad MostLoadedRank::balanced_at(double pairs) const {
  const double rows = std::ceil(pairs / real(ranks_));
  const double local = real(experts_ / ranks_);
  const double each = std::floor(rows / local);
  const double more = rows - each * local;
  RankLoad load;
  add_expert(load, each + 1.0, more);
  add_expert(load, each, local - more);
  load.largest = more > 0.0 ? each + 1.0 : each;
  return load;
}

RankLoad MostLoadedRank::drawn_at(std::int64_t tokens) const {
  const std::int64_t pairs = tokens * top_k_;
  const bool many = pairs > experts_;
  const PowerLaw law(alpha_, many ? 1.0 : 0.01, many ? 0.8 * real(tokens) : 2.0);
  RankLoad load;
  std::vector<double> rows(static_cast<std::size_t>(experts_));
  std::vector<double> by_rank(static_cast<std::size_t>(ranks_));
  for (const std::vector<Expert>& draw : draws_) {
    double sum = 0.0;
    for (std::size_t i = 0; i < rows.size(); ++i) sum += rows[i] = law.at(draw[i].u);
    double left = real(pairs);
    for (double& one : rows) left -= one = std::floor(one * real(pairs) / sum + 0.5);
    settle(draw, left, rows);
    std::fill(by_rank.begin(), by_rank.end(), 0.0);
    for (std::size_t i = 0; i < rows.size(); ++i) by_rank[draw[i].rank] += rows[i];
    const auto rank = static_cast<std::size_t>(std::max_element(by_rank.begin(), by_rank.end()) - by_rank.begin());
    const double weight = 1.0 / static_cast<double>(draws_.size());
    double largest = 0.0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (draw[i].rank != rank) continue;
      add_expert(load, rows[i], weight);
      largest = std::max(largest, rows[i]);
    }
    load.largest += weight * largest;
  }
  return load;
}

/// Adds what rounding left to the largest experts, one each, or takes what it added from the smallest.
void MostLoadedRank::settle(const std::vector<Expert>& draw, double left, std::vector<double>& rows) const {
  std::vector<std::size_t> order(rows.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (ties_ == ExpertLoad::Ties::in_order) {
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return rows[a] != rows[b] ? rows[a] > rows[b] : draw[a].index < draw[b].index;
    });
  }
  for (std::size_t i = 0; left > 0.0; i = (i + 1) % order.size(), --left) rows[order[i]] += 1.0;
  for (std::size_t i = order.size() - 1; left < 0.0; i = i == 0 ? order.size() - 1 : i - 1, ++left)
    (rows[order[i]] > 0.0 ? rows[order[i]] : *std::max_element(rows.begin(), rows.end())) -= 1.0;
}

RankLoad MostLoadedRank::shares_at(double pairs) const {
  const double share = std::accumulate(local_shares_.begin(), local_shares_.end(), 0.0);
  const double spread = std::sqrt(std::max(0.0, pairs * share * (1.0 - share)));
  const double most = std::clamp(pairs * share + expected_maximum(ranks_) * spread, 1.0, pairs);
  RankLoad load;
  for (const double one : local_shares_) {
    if (one <= 0.0) continue;
    const double rows = most * (one / share);
    // The chance that at least one of `most` pairs chooses this expert.
    const double active = one >= share ? 1.0 : 1.0 - portable_exp(most * portable_log(1.0 - one / share));
    load.rows += rows;
    load.active += active;
    load.largest = std::max(load.largest, rows);
    // A random number of rows fills half of its last tile on average.
    for (std::size_t i = 0; i < kRowTiles.size(); ++i)
      load.tiles[i] += std::max(active, rows / real(kRowTiles[i]) + 0.5 * active);
  }
  return load;
}

}  // namespace spillway::hwmodels
