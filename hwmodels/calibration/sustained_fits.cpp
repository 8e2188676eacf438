#include "hwmodels/calibration/sustained_fits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "hwmodels/calibration/citation.hpp"
#include "hwmodels/numbers.hpp"

namespace spillway::hwmodels {
namespace {

constexpr double kLeastRun = 5.0;  // seconds; power limits act within one or two
constexpr std::size_t kFewestIntervals = 10;
constexpr double kSlower = 1.01;
// Powers that differ by less say nothing: two runs of the same attention on an H200 read 673 and 699 W.
constexpr double kMorePower = 1.05;

/// The rows of one kind of work in order of time: of the work with the most rows, if there are several.
std::vector<SustainedRow> run_of(const Measurements& in, bool gemm) {
  std::vector<SustainedRow> best;
  std::vector<std::string> seen;
  for (const SustainedRow& row : in.sustained) {
    if (row.gemm != gemm || std::find(seen.begin(), seen.end(), row.compute) != seen.end()) continue;
    seen.push_back(row.compute);
    std::vector<SustainedRow> run;
    std::copy_if(in.sustained.begin(), in.sustained.end(), std::back_inserter(run), [&](const SustainedRow& other) {
      return other.compute == row.compute && other.place.file == row.place.file;
    });
    if (run.size() > best.size()) best = std::move(run);
  }
  std::sort(best.begin(), best.end(),
            [](const SustainedRow& a, const SustainedRow& b) { return a.end_seconds < b.end_seconds; });
  return best;
}

std::vector<double> powers_of(std::span<const SustainedRow> rows) {
  std::vector<double> powers;
  for (const SustainedRow& row : rows) {
    if (row.power_w) powers.push_back(*row.power_w);
  }
  return powers;
}

SustainedFit without(std::string why) { return {std::nullopt, false, std::move(why), {}}; }

}  // namespace

std::optional<SustainedFit> fit_sustained(const Measurements& in) {
  if (in.sustained.empty()) return std::nullopt;
  const std::vector<SustainedRow> gemm = run_of(in, true);
  if (gemm.size() < kFewestIntervals || gemm.back().end_seconds < kLeastRun) {
    return without(fmt::format("the GEMM ran for {:.3g} s, and its clock needs {} s: measure without --quick",
                               gemm.empty() ? 0.0 : gemm.back().end_seconds, kLeastRun));
  }
  const std::span<const SustainedRow> all(gemm);
  const std::span<const SustainedRow> late = all.subspan(gemm.size() / 2);
  const auto seconds = [](const SustainedRow& row) { return row.seconds; };
  std::vector<double> late_seconds;
  std::transform(late.begin(), late.end(), std::back_inserter(late_seconds), seconds);
  const double least = std::min_element(gemm.begin(), gemm.end(), [](const SustainedRow& a, const SustainedRow& b) {
                         return a.seconds < b.seconds;
                       })->seconds;
  const double steady = median(std::move(late_seconds));
  const double slowdown = steady / least;
  if (slowdown < kSlower) {
    SustainedFit fit = without(fmt::format("the GEMM kept its rate for {:.3g} s", gemm.back().end_seconds));
    fit.stays = true;
    return fit;
  }
  const double middle = 0.5 * (least + steady);
  std::size_t slow = 0;  // intervals until the rate had fallen half of the way
  while (slow < gemm.size() && gemm[slow].seconds < middle) ++slow;
  if (slow == 0) return without("the GEMM was slow from its first interval on");
  const std::vector<double> attention = powers_of(run_of(in, false));
  const std::vector<double> limit = powers_of(late);
  // The tool reads the sensors as an interval begins, and the power follows the work with a delay: the first slow
  // interval has the reading that the last fast one caused.
  const std::vector<double> full = powers_of(all.first(slow + 1));
  if (attention.empty() || limit.empty() || full.empty()) {
    return without("the power of the GEMM before or after it slowed down, or the power of the attention, is missing");
  }
  const double most = *std::max_element(full.begin(), full.end());
  const double beside = median(attention);
  const double held = median(limit);
  if (most < kMorePower * held || held < kMorePower * beside) {
    return without(
        fmt::format("the GEMM drew {:.4g} W before it slowed down and {:.4g} W after, the attention {:.4g} W: so the "
                    "share of time at which the clock falls cannot be found",
                    most, held, beside));
  }
  const double share = (held - beside) / (most - beside);
  SustainedFit fit;
  fit.values = {share, slowdown, gemm[slow - 1].end_seconds / -std::log1p(-share)};
  fit.citation = fmt::format(
      "GEMM and attention of {:.3g} s: {:.4g} W at the full clock, {:.4g} W after {:.3g} s, "
      "attention {:.4g} W: {}",
      gemm.back().end_seconds, most, held, gemm[slow - 1].end_seconds, beside, citation(in, in.sustained));
  return fit;
}

}  // namespace spillway::hwmodels
