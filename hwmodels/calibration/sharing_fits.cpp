#include "hwmodels/calibration/sharing_fits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "hwmodels/calibration/citation.hpp"
#include "hwmodels/calibration/linear_fits.hpp"
#include "hwmodels/numbers.hpp"

namespace spillway::hwmodels {
namespace {

constexpr std::int64_t kMainlyTransfer = 1 << 20;

double launch_of(std::span<const Fitted<CopyModel>> alone, bool to_device, CopyMechanism mechanism) {
  const auto it = std::find_if(alone.begin(), alone.end(), [&](const Fitted<CopyModel>& one) {
    return one.model.to_device == to_device && one.model.mechanism == mechanism;
  });
  return it == alone.end() ? 0.0 : it->model.launch_seconds;
}

}  // namespace

std::optional<MeasuredFigure> duplex_bandwidth(const Measurements& in, std::span<const Fitted<CopyModel>> alone,
                                               bool to_device) {
  std::vector<CopyRow> rows;
  std::copy_if(in.copies.begin(), in.copies.end(), std::back_inserter(rows), [&](const CopyRow& row) {
    return row.duplex && row.to_device == to_device &&
           (row.mechanism == CopyMechanism::single || row.mechanism == CopyMechanism::many);
  });
  const auto large = [](const CopyRow& row) { return row.block_bytes >= kMainlyTransfer; };
  if (std::any_of(rows.begin(), rows.end(), large)) {
    std::erase_if(rows, [&](const CopyRow& row) { return !large(row); });
  }
  if (rows.empty()) return std::nullopt;
  std::vector<Sample> samples;
  samples.reserve(rows.size());
  for (const CopyRow& row : rows) {
    samples.push_back({static_cast<double>(row.block_bytes), row.seconds / static_cast<double>(row.copies)});
  }
  const auto line = line_through(samples);
  if (line && line->slope > 0.0) return MeasuredFigure{1.0 / line->slope, citation(in, rows)};
  // t / copies = launch + x bytes, each row by its own time: x = sum(b (t - launch) / t^2) / sum(b^2 / t^2).
  double above = 0.0;
  double below = 0.0;
  for (const CopyRow& row : rows) {
    const double seconds = row.seconds / static_cast<double>(row.copies);
    const double share = static_cast<double>(row.block_bytes) / seconds;
    above += share * (seconds - launch_of(alone, to_device, row.mechanism)) / seconds;
    below += share * share;
  }
  if (above <= 0.0) return std::nullopt;
  return MeasuredFigure{below / above, citation(in, rows)};
}

std::optional<MeasuredFigure> compute_slowdown(const Measurements& in, bool by_kernel) {
  struct Pair {
    const InterferenceRow* alone = nullptr;
    const InterferenceRow* beside = nullptr;
  };
  std::map<std::tuple<std::int32_t, std::string, std::string, std::int64_t>, Pair> pairs;
  for (const InterferenceRow& row : in.interference) {
    if (row.by_kernel != by_kernel) continue;
    Pair& pair = pairs[{row.place.file, row.compute, row.traffic, row.copy_bytes}];
    (row.beside ? pair.beside : pair.alone) = &row;
  }
  std::vector<double> ratios;
  std::vector<InterferenceRow> rows;
  for (const auto& [key, pair] : pairs) {
    if (pair.alone == nullptr || pair.beside == nullptr) continue;
    ratios.push_back(pair.beside->seconds / pair.alone->seconds);
    rows.push_back(*pair.alone);
    rows.push_back(*pair.beside);
  }
  if (ratios.empty()) return std::nullopt;
  const auto [least, most] = std::minmax_element(ratios.begin(), ratios.end());
  const std::string cite =
      fmt::format("median of {} measurements, {:.3f} to {:.3f}: {}", ratios.size(), *least, *most, citation(in, rows));
  return MeasuredFigure{std::max(median(std::move(ratios)), 1.0), cite};
}

}  // namespace spillway::hwmodels
