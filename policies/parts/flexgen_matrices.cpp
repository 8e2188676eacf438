#include "policies/parts/flexgen_matrices.hpp"

#include <algorithm>
#include <map>

#include "policies/parts/quantities.hpp"
#include "sim/core/error.hpp"

namespace spillway {
namespace {

struct Matrices {
  double bytes = 0.0;
  std::int64_t count = 0;
};

}  // namespace

FlexgenMatrices::FlexgenMatrices(const Deployment& deployment) {
  std::map<double, Matrices> by_middle;  // the matrices whose middles lie at the same share of their block
  double all = 0.0;
  for (const std::vector<Bytes>* block : {&deployment.attention_matrices, &deployment.mlp_matrices}) {
    double total = 0.0;
    for (const Bytes matrix : *block) total += bytes_of(matrix);
    double before = 0.0;
    for (const Bytes matrix : *block) {
      const double bytes = bytes_of(matrix);
      Matrices& there = by_middle[(before + bytes / 2.0) / total];
      there.bytes += bytes;
      ++there.count;
      before += bytes;
    }
    all += total;
  }
  SPILLWAY_CHECK(!by_middle.empty(), "a layer has matrices");
  rungs_.push_back({});
  double on_host = 0.0;
  for (const auto& [middle, matrices] : by_middle) {
    on_host += matrices.bytes;
    middles_.push_back(middle);
    rungs_.push_back({.on_host = on_host / all, .matrices = rungs_.back().matrices + matrices.count});
  }
  rungs_.back().on_host = rungs_.back().asked = 1.0;
  for (std::size_t i = 1; i + 1 < rungs_.size(); ++i) rungs_[i].asked = (middles_[i - 1] + middles_[i]) / 2.0;
}

const FlexgenRung& FlexgenMatrices::of(double asked) const {
  const auto below = std::lower_bound(middles_.begin(), middles_.end(), asked) - middles_.begin();
  return rungs_[static_cast<std::size_t>(below)];
}

}  // namespace spillway
