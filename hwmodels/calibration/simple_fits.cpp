#include "hwmodels/calibration/simple_fits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "hwmodels/calibration/linear_fits.hpp"
#include "hwmodels/calibration/row_ratios.hpp"
#include "hwmodels/numbers.hpp"
#include "sim/core/error.hpp"

namespace spillway::hwmodels {
namespace {

constexpr std::int64_t kLineFrom = 65536;  // block size in bytes from which a line describes copies
constexpr std::size_t kAllReduceKnots = 32;

/// At most kAllReduceKnots of the sizes, evenly spread on a log scale, the first and the last among them.
std::vector<double> spread_knots(const std::vector<double>& sizes) {
  if (sizes.size() <= kAllReduceKnots) return sizes;
  std::set<double> knots;
  const double octaves = std::log2(sizes.back() / sizes.front());
  for (std::size_t i = 0; i < kAllReduceKnots; ++i) {
    const double wanted =
        sizes.front() * std::exp2(octaves * static_cast<double>(i) / static_cast<double>(kAllReduceKnots - 1));
    const auto above = std::lower_bound(sizes.begin() + 1, sizes.end() - 1, wanted);
    knots.insert(wanted / *(above - 1) < *above / wanted ? *(above - 1) : *above);
  }
  return {knots.begin(), knots.end()};
}

/// The curve with these knots that fits the samples best. The value at each knot is a parameter.
Curve fit_curve(const std::vector<double>& knots, std::span<const Sample> samples) {
  std::vector<Equation> rows;
  rows.reserve(samples.size());
  for (const Sample& sample : samples) {
    Equation row{std::vector<double>(knots.size(), 0.0), sample.seconds};
    const auto above =
        static_cast<std::size_t>(std::lower_bound(knots.begin(), knots.end(), sample.size) - knots.begin());
    if (knots[above] == sample.size) {
      row.factors[above] = 1.0;
    } else {
      const double fraction = (sample.size - knots[above - 1]) / (knots[above] - knots[above - 1]);
      row.factors[above - 1] = 1.0 - fraction;
      row.factors[above] = fraction;
    }
    rows.push_back(std::move(row));
  }
  // Every knot is a measured size, so the rows determine all parameters.
  const auto fitted = relative_fit(rows);
  SPILLWAY_CHECK(fitted.has_value(), "the knots of a curve are sizes that were measured");
  Curve curve;
  for (std::size_t i = 0; i < knots.size(); ++i) curve.points.push_back({knots[i], (*fitted)[i]});
  return curve;
}

/// Replaces falling stretches by their geometric mean: a larger buffer takes no less time, so the rest is noise.
/// Pool-adjacent-violators algorithm (Ayer et al., Annals of Mathematical Statistics 26(4), 1955) on logarithms.
void make_monotone(Curve& curve) {
  struct Pool {
    double log_seconds = 0.0;  // mean
    std::size_t points = 0;
  };
  std::vector<Pool> pools;
  for (const Curve::Point& point : curve.points) {
    pools.push_back({std::log(point.seconds), 1});
    while (pools.size() > 1 && pools[pools.size() - 2].log_seconds >= pools.back().log_seconds) {
      const Pool last = pools.back();
      pools.pop_back();
      Pool& into = pools.back();
      const std::size_t points = into.points + last.points;
      into.log_seconds =
          (static_cast<double>(into.points) * into.log_seconds + static_cast<double>(last.points) * last.log_seconds) /
          static_cast<double>(points);
      into.points = points;
    }
  }
  std::size_t next = 0;
  for (const Pool& pool : pools) {
    for (std::size_t i = 0; i < pool.points; ++i, ++next) {
      if (pool.points > 1) curve.points[next].seconds = std::exp(pool.log_seconds);
    }
  }
}

auto copy_key(const CopyRow& row) { return std::pair(row.to_device, row.mechanism); }

std::variant<CopyModel, Problem> fit_copy(const std::vector<const CopyRow*>& rows) {
  const CopyRow& first = *rows.front();
  // One value for each size, the median. The time per copy depends on the number of copies in a call (a batched call of
  // 50,000 descriptors takes up to four times as long per descriptor as a call of 10,000), and the model has no
  // parameter for that.
  std::map<std::int64_t, std::vector<double>> by_size;
  for (const CopyRow* row : rows) by_size[row->block_bytes].push_back(row->seconds / real(row->copies));
  std::vector<Sample> all;
  std::vector<Sample> large;
  for (const auto& [bytes, seconds] : by_size) {
    all.push_back({real(bytes), median(seconds)});
    if (bytes >= kLineFrom) large.push_back(all.back());
  }
  const auto line = launch_and_bandwidth(large.size() >= 2 ? large : all,
                                         fmt::format("{} and the copies like it", row_text(first.place)));
  if (const auto* problem = std::get_if<Problem>(&line)) return *problem;
  const auto& [launch_seconds, bandwidth] = std::get<LaunchAndBandwidth>(line);
  CopyModel model{first.to_device, first.mechanism, launch_seconds, bandwidth, {}};
  const double curve_end = real(first.mechanism == CopyMechanism::batched ? kLineFrom : kLineFrom - 1);
  for (const auto& [size, seconds] : all) {
    if (size <= curve_end) {
      model.small.points.push_back({size, seconds});
    } else if (!model.small.points.empty()) {
      model.small.points.push_back({size, launch_seconds + size / bandwidth});
      break;
    }
  }
  return model;
}

double loss_of(const CpuAttentionModel& model, std::span<const CpuAttentionRow> rows) {
  double loss = 0.0;
  for (const double ratio : ratios(model, rows)) loss += (ratio - 1.0) * (ratio - 1.0);
  return loss;
}

}  // namespace

ElementwiseModel fit_elementwise(std::span<const ElementwiseRow> rows) {
  std::vector<Sample> samples;
  for (const ElementwiseRow& row : rows) samples.push_back({row.bytes, row.seconds});
  const auto line = launch_and_bandwidth(samples, "elementwise rows");
  if (const auto* problem = std::get_if<Problem>(&line)) throw DataError({*problem});
  const auto& [launch_seconds, bandwidth] = std::get<LaunchAndBandwidth>(line);
  return {launch_seconds, bandwidth};
}

AllReduceModel fit_all_reduce(std::span<const AllReduceRow> rows) {
  std::vector<Problem> problems;
  std::map<std::int64_t, std::vector<Sample>> by_ranks;
  for (const AllReduceRow& row : rows) {
    if (row.ranks < 2) {
      problems.push_back({fmt::format("an all-reduce of {} ranks: at least 2 take part in one", row.ranks),
                          row_text(row.place), "leave the row out"});
    }
    by_ranks[row.ranks].push_back({real(row.bytes), row.seconds});
  }
  if (rows.empty()) problems.push_back({"there is no row to fit", "all-reduce rows", {}});
  if (!problems.empty()) throw DataError(std::move(problems));
  AllReduceModel model;
  for (const auto& [ranks, samples] : by_ranks) {
    std::set<double> sizes;
    for (const Sample& sample : samples) sizes.insert(sample.size);
    model.by_ranks[ranks] = fit_curve(spread_knots({sizes.begin(), sizes.end()}), samples);
    make_monotone(model.by_ranks[ranks]);
  }
  return model;
}

std::vector<CopyModel> fit_copies(std::span<const CopyRow> rows) {
  std::map<std::pair<bool, CopyMechanism>, std::vector<const CopyRow*>> groups;
  for (const CopyRow& row : rows) {
    if (!row.duplex) groups[copy_key(row)].push_back(&row);
  }
  std::vector<Problem> problems;
  std::vector<CopyModel> models;
  for (const auto& [key, members] : groups) {
    auto fitted = fit_copy(members);
    if (auto* problem = std::get_if<Problem>(&fitted)) {
      problems.push_back(std::move(*problem));
    } else {
      models.push_back(std::get<CopyModel>(std::move(fitted)));
    }
  }
  if (groups.empty()) problems.push_back({"there is no row of one direction alone to fit", "copy rows", {}});
  if (!problems.empty()) throw DataError(std::move(problems));
  return models;
}

CpuAttentionModel fit_cpu_attention(std::span<const CpuAttentionRow> rows) {
  constexpr std::size_t kParameters = 3;
  std::optional<CpuAttentionModel> best;
  double best_loss = std::numeric_limits<double>::infinity();
  const auto offer = [&](const CpuAttentionModel& model) {
    const double loss = loss_of(model, rows);
    if (loss >= best_loss) return;
    best = model;
    best_loss = loss;
  };
  std::set<std::int64_t> counts;
  for (const CpuAttentionRow& row : rows) counts.insert(row.threads);
  const std::vector<std::int64_t> threads(counts.begin(), counts.end());
  // The bandwidth limit is reached either at a measured number of threads or between two of them. Each case is a linear
  // fit; the best one is used.
  for (std::size_t i = 0; rows.size() >= kParameters && i < threads.size(); ++i) {
    std::vector<Sample> samples;
    for (const CpuAttentionRow& row : rows) {
      samples.push_back({row.kv_bytes / real(std::min(row.threads, threads[i])), row.seconds});
    }
    const auto meeting = line_through(samples);
    if (meeting && meeting->slope > 0.0) {
      offer({meeting->at_zero, 1.0 / meeting->slope, real(threads[i]) / meeting->slope});
    }
    std::vector<Equation> equations;
    for (const CpuAttentionRow& row : rows) {
      const bool few = row.threads <= threads[i];
      equations.push_back({{1.0, few ? row.kv_bytes / real(row.threads) : 0.0, few ? 0.0 : row.kv_bytes}, row.seconds});
    }
    const auto between = relative_fit(equations);
    if (between && (*between)[1] > 0.0 && (*between)[2] > 0.0) {
      offer({(*between)[0], 1.0 / (*between)[1], 1.0 / (*between)[2]});
    }
  }
  if (!best) {
    throw DataError(fmt::format("launch time and bandwidths need at least {} rows, of at least 2 sizes and with times "
                                "that grow with them; there are {}",
                                kParameters, rows.size()),
                    "CPU attention rows", "measure other sizes");
  }
  return *best;
}

HostModel fit_host(std::span<const HostRow> rows) {
  std::vector<Sample> samples;
  for (const HostRow& row : rows) samples.push_back({real(row.sequences), row.seconds});
  const auto line = line_through(samples);
  if (!line) {
    throw DataError(fmt::format("the fixed and the per-sequence time need rows with at least 2 different numbers of "
                                "sequences; the {} rows have fewer",
                                rows.size()),
                    "host rows", "measure another number of sequences");
  }
  return {line->at_zero, line->slope};
}

IterationModel fit_iterations(std::span<const IterationRow> rows) {
  // A log without prefill does not determine the time of chunks.
  const bool chunks =
      std::any_of(rows.begin(), rows.end(), [](const IterationRow& row) { return row.chunk_pairs > 0.0; });
  std::vector<Equation> equations;
  for (const IterationRow& row : rows) {
    equations.push_back({{1.0, real(row.tokens), real(row.context)}, row.seconds});
    if (chunks) equations.back().factors.push_back(row.chunk_pairs);
  }
  const auto fitted = relative_fit(equations);
  if (!fitted) {
    throw DataError(
        fmt::format("the fixed time and the times per token, context token and chunk pair need at least 4 rows (3 "
                    "without chunks) in which tokens, context and chunk pairs vary independently; there are {} rows",
                    rows.size()),
        "iteration rows", "log decode and prefill iterations of several sizes");
  }
  return {(*fitted)[0], (*fitted)[1], (*fitted)[2], chunks ? (*fitted)[3] : 0.0};
}

std::vector<double> ratios(const ElementwiseModel& model, std::span<const ElementwiseRow> rows) {
  return row_ratios(rows, [&](const ElementwiseRow& row) { return model.seconds(row.bytes); });
}

std::vector<double> ratios(const AllReduceModel& model, std::span<const AllReduceRow> rows) {
  return row_ratios(rows, [&](const AllReduceRow& row) { return model.seconds(row.ranks, real(row.bytes)); });
}

std::vector<double> ratios(std::span<const CopyModel> models, std::span<const CopyRow> rows) {
  std::vector<double> ratios;
  for (const CopyRow& row : rows) {
    const auto model = std::find_if(models.begin(), models.end(), [&](const CopyModel& candidate) {
      return std::pair(candidate.to_device, candidate.mechanism) == copy_key(row);
    });
    if (row.duplex || model == models.end()) continue;
    ratios.push_back(real(row.copies) * model->seconds(real(row.block_bytes)) / row.seconds);
  }
  return ratios;
}

std::vector<double> ratios(const CpuAttentionModel& model, std::span<const CpuAttentionRow> rows) {
  return row_ratios(rows, [&](const CpuAttentionRow& row) { return model.seconds(row.threads, row.kv_bytes); });
}

std::vector<double> ratios(const HostModel& model, std::span<const HostRow> rows) {
  return row_ratios(rows, [&](const HostRow& row) { return model.seconds(row.sequences); });
}

std::vector<double> ratios(const IterationModel& model, std::span<const IterationRow> rows) {
  return row_ratios(rows, [&](const IterationRow& row) {
    return model.seconds(real(row.tokens), real(row.context), row.chunk_pairs);
  });
}

}  // namespace spillway::hwmodels
