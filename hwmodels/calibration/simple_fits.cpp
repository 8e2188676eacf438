#include "hwmodels/calibration/simple_fits.hpp"

#include <fmt/format.h>

#include <Eigen/QR>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <variant>

#include "sim/core/error.hpp"

namespace spillway::hwmodels {
namespace {

constexpr std::int64_t kLineFrom = 65536;  // bytes of a block from which a line describes copies
constexpr std::size_t kAllReduceKnots = 32;

double real(std::int64_t count) { return static_cast<double>(count); }

std::string place(const RowPlace& place) { return fmt::format("file {} row {}", place.file + 1, place.row); }

/// One row: the factors of the parameters, and the seconds that their sum should give.
struct Equation {
  std::vector<double> factors;
  double seconds = 0.0;
};

/// Parameters that minimise the sum of ((sum of factors times parameters) / seconds - 1)^2; nothing when the rows leave
/// one of them open. A negative one becomes 0 and the rest is fitted again, which need not be the least of all sums
/// without negative ones.
std::optional<std::vector<double>> relative_fit(const std::vector<Equation>& rows) {
  const auto parameters = rows.empty() ? 0 : rows.front().factors.size();
  if (rows.size() < parameters || parameters == 0) return std::nullopt;
  Eigen::MatrixXd scaled(static_cast<Eigen::Index>(rows.size()), static_cast<Eigen::Index>(parameters));
  for (Eigen::Index i = 0; i < scaled.rows(); ++i) {
    const Equation& row = rows[static_cast<std::size_t>(i)];
    for (Eigen::Index j = 0; j < scaled.cols(); ++j) {
      scaled(i, j) = row.factors[static_cast<std::size_t>(j)] / row.seconds;
    }
  }
  // Columns of length 1: the rank must not depend on the units of the factors.
  const Eigen::VectorXd lengths = scaled.colwise().norm();
  if (lengths.minCoeff() <= 0.0) return std::nullopt;
  scaled *= lengths.cwiseInverse().asDiagonal();

  std::vector<Eigen::Index> kept(parameters);
  for (std::size_t j = 0; j < parameters; ++j) kept[j] = static_cast<Eigen::Index>(j);
  std::vector<double> values(parameters, 0.0);
  while (!kept.empty()) {
    constexpr double kRankThreshold = 1e-10;
    Eigen::ColPivHouseholderQR<Eigen::MatrixXd> solver;
    solver.setThreshold(kRankThreshold);
    solver.compute(scaled(Eigen::all, kept));
    if (solver.rank() < static_cast<Eigen::Index>(kept.size())) return std::nullopt;
    const Eigen::VectorXd solution = solver.solve(Eigen::VectorXd::Ones(scaled.rows()));
    Eigen::Index lowest = 0;
    if (solution.minCoeff(&lowest) >= 0.0) {
      for (std::size_t j = 0; j < kept.size(); ++j) {
        values[static_cast<std::size_t>(kept[j])] = solution[static_cast<Eigen::Index>(j)] / lengths[kept[j]];
      }
      break;
    }
    kept.erase(kept.begin() + lowest);
  }
  return values;
}

/// Time by a size.
struct Sample {
  double size = 0.0;
  double seconds = 0.0;
};

struct Line {
  double at_zero = 0.0;
  double slope = 0.0;
};

std::optional<Line> line_through(std::span<const Sample> samples) {
  std::vector<Equation> rows;
  rows.reserve(samples.size());
  for (const Sample& sample : samples) rows.push_back({{1.0, sample.size}, sample.seconds});
  const auto fitted = relative_fit(rows);
  if (!fitted) return std::nullopt;
  return Line{(*fitted)[0], (*fitted)[1]};
}

struct LaunchAndBandwidth {
  double launch_seconds = 0.0;
  double bandwidth = 0.0;
};

/// The line as launch time and bandwidth, or what is wrong with the samples.
std::variant<LaunchAndBandwidth, Problem> launch_and_bandwidth(std::span<const Sample> samples,
                                                               const std::string& where) {
  const auto line = line_through(samples);
  if (!line) {
    return Problem{
        fmt::format("launch time and bandwidth need rows of at least 2 sizes, not {} of one", samples.size()), where,
        "measure another size"};
  }
  if (line->slope <= 0.0) {
    return Problem{
        fmt::format("the time of these {} rows does not grow with their bytes: there is no bandwidth in them",
                    samples.size()),
        where, "measure larger sizes"};
  }
  return LaunchAndBandwidth{line->at_zero, 1.0 / line->slope};
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2.0;
}

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

/// The curve with these knots that fits the samples best: its value at each knot is a parameter.
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
  // Every knot is a measured size, so the rows leave none open.
  const auto fitted = relative_fit(rows);
  SPILLWAY_CHECK(fitted.has_value(), "the knots of a curve are sizes that were measured");
  Curve curve;
  for (std::size_t i = 0; i < knots.size(); ++i) curve.points.push_back({knots[i], (*fitted)[i]});
  return curve;
}

auto copy_key(const CopyRow& row) { return std::pair(row.to_device, row.mechanism); }

std::variant<CopyModel, Problem> fit_copy(const std::vector<const CopyRow*>& rows) {
  const CopyRow& first = *rows.front();
  // One value for each size, the median: the time per copy depends on how many are made together (one batched call of
  // 50,000 descriptors takes up to four times as long for each as one of 10,000), and the model has no such parameter.
  std::map<std::int64_t, std::vector<double>> by_size;
  for (const CopyRow* row : rows) by_size[row->block_bytes].push_back(row->seconds / real(row->copies));
  std::vector<Sample> all;
  std::vector<Sample> large;
  for (const auto& [bytes, seconds] : by_size) {
    all.push_back({real(bytes), median(seconds)});
    if (bytes >= kLineFrom) large.push_back(all.back());
  }
  const auto line = launch_and_bandwidth(large.size() >= 2 ? large : all,
                                         fmt::format("{} and the copies like it", place(first.place)));
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

/// A point of the attention grid: chunk, its context, decodes, their context.
using Point = std::array<std::int64_t, 4>;

std::string text(const Point& point) {
  return fmt::format("a chunk of {} tokens after {}, {} decodes of {} tokens", point[0], point[1], point[2], point[3]);
}

/// The point of a row; the context of nothing is 0.
Point point_of(const MixedRow& row) {
  return {row.chunk, row.chunk > 0 ? row.chunk_context : 0, row.decodes, row.decodes > 0 ? row.decode_context : 0};
}

/// The attention grid while it is filled.
class Grid {
 public:
  explicit Grid(std::map<Point, double> measured) : measured_(std::move(measured)) {
    std::array<std::set<std::int64_t>, 4> values;
    values[0].insert(0);
    values[2].insert(0);
    for (const auto& [point, seconds] : measured_) {
      values[0].insert(point[0]);
      values[2].insert(point[2]);
      if (point[0] > 0) values[1].insert(point[1]);
      if (point[2] > 0) values[3].insert(point[3]);
    }
    for (std::size_t i = 0; i < 4; ++i) {
      if (values[i].empty()) values[i].insert(0);
      axes_[i].assign(values[i].begin(), values[i].end());
    }
  }

  /// Stops at the first missing point: rows on no grid at all may span one of billions.
  void tabulate(LayerTables& tables) const {
    for_each_point([&](const Point& point) {
      const auto seconds = at(point);
      if (!seconds) {
        throw DataError(fmt::format("attention is not measured at {}: every combination of the values that occur is "
                                    "needed",
                                    text(point)),
                        "attention rows", "measure it, or leave out the rows with the value that is not combined");
      }
      tables.attention_seconds.push_back(*seconds);
    });
    std::array<std::vector<double>*, 4> into{&tables.chunk_axis, &tables.chunk_context_axis, &tables.decodes_axis,
                                             &tables.decode_context_axis};
    for (std::size_t i = 0; i < 4; ++i) into[i]->assign(axes_[i].begin(), axes_[i].end());
  }

 private:
  static constexpr double kNothing = -1.0;

  template <class Visit>
  void for_each_point(const Visit& visit) const {
    for (const std::int64_t chunk : axes_[0]) {
      for (const std::int64_t chunk_context : axes_[1]) {
        for (const std::int64_t decodes : axes_[2]) {
          for (const std::int64_t decode_context : axes_[3]) visit({chunk, chunk_context, decodes, decode_context});
        }
      }
    }
  }

  [[nodiscard]] std::optional<double> measured(const Point& point) const {
    const auto found = measured_.find(point);
    return found == measured_.end() ? std::nullopt : std::optional(found->second);
  }

  [[nodiscard]] std::optional<double> at(const Point& point) const {
    const auto [chunk, chunk_context, decodes, decode_context] = point;
    if (chunk == 0 && decodes == 0) return kNothing;
    if (chunk == 0) return measured({0, 0, decodes, decode_context});
    if (decodes == 0) return measured({chunk, chunk_context, 0, 0});
    if (const auto seconds = measured(point)) return seconds;
    return continued(point);
  }

  /// The largest number of decodes beside a chunk, from the two before.
  [[nodiscard]] std::optional<double> continued(const Point& point) const {
    const auto& decodes = axes_[2];
    if (decodes.size() < 4 || point[2] != decodes.back()) return std::nullopt;
    Curve line;
    for (const std::int64_t before : {decodes[decodes.size() - 3], decodes[decodes.size() - 2]}) {
      const auto seconds = measured({point[0], point[1], before, point[3]});
      if (!seconds) return std::nullopt;
      line.points.push_back({real(before), *seconds});
    }
    return line.at(real(point[2]));
  }

  std::map<Point, double> measured_;
  std::array<std::vector<std::int64_t>, 4> axes_;
};

template <class Row, class Predict>
std::vector<double> ratios_of(std::span<const Row> rows, const Predict& predict) {
  std::vector<double> ratios;
  ratios.reserve(rows.size());
  for (const Row& row : rows) ratios.push_back(predict(row) / row.seconds);
  return ratios;
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
                          place(row.place), "leave the row out"});
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
  // Threads and bandwidth meet either at a measured number of threads or between two of them. Each place is a linear
  // fit of its own, and the best of them is the fit.
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
    throw DataError(
        fmt::format("fixed and per-sequence time need rows of at least 2 numbers of sequences; there are {} "
                    "rows of fewer",
                    rows.size()),
        "host rows", "measure another number of sequences");
  }
  return {line->at_zero, line->slope};
}

LayerTables tabulate_layers(std::span<const LayerRow> layers, std::span<const MixedRow> attention) {
  std::vector<Problem> problems;
  const auto twice = [&](const std::string& what, const RowPlace& first, const RowPlace& second) {
    problems.push_back({fmt::format("{} is measured twice", what),
                        fmt::format("{} and {}", place(first), place(second)), "leave one of the rows out"});
  };
  std::map<std::tuple<bool, std::string, std::int64_t>, const LayerRow*> kernels;
  for (const LayerRow& row : layers) {
    const auto [found, fresh] = kernels.try_emplace({row.per_sequence, row.kernel, row.count}, &row);
    if (!fresh) {
      twice(fmt::format("{} of {} {}", row.kernel, row.count, row.per_sequence ? "sequences" : "tokens"),
            found->second->place, row.place);
    }
  }
  std::map<Point, const MixedRow*> points;
  for (const MixedRow& row : attention) {
    if (row.chunk == 0 && row.decodes == 0) {
      problems.push_back({"attention of 0 chunk tokens and 0 decodes: one of them must be above 0", place(row.place),
                          "leave the row out"});
      continue;
    }
    const auto [found, fresh] = points.try_emplace(point_of(row), &row);
    if (!fresh) twice("attention of " + text(found->first), found->second->place, row.place);
  }
  if (!problems.empty()) throw DataError(std::move(problems));

  LayerTables tables;
  for (const auto& [key, row] : kernels) {
    auto& curves = row->per_sequence ? tables.per_sequence : tables.per_token;
    curves[row->kernel].points.push_back({real(row->count), row->seconds});
  }
  std::map<Point, double> measured;
  for (const auto& [point, row] : points) measured[point] = row->seconds;
  if (!measured.empty()) Grid(std::move(measured)).tabulate(tables);
  return tables;
}

IterationModel fit_iterations(std::span<const IterationRow> rows) {
  // A log of decodes alone says nothing about chunks.
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
        fmt::format("fixed time and those of tokens, context and chunk pairs need at least as many rows, in "
                    "which these vary independently; there are {}",
                    rows.size()),
        "iteration rows", "log decode and prefill iterations of several sizes");
  }
  return {(*fitted)[0], (*fitted)[1], (*fitted)[2], chunks ? (*fitted)[3] : 0.0};
}

std::vector<double> ratios(const ElementwiseModel& model, std::span<const ElementwiseRow> rows) {
  return ratios_of(rows, [&](const ElementwiseRow& row) { return model.seconds(row.bytes); });
}

std::vector<double> ratios(const AllReduceModel& model, std::span<const AllReduceRow> rows) {
  return ratios_of(rows, [&](const AllReduceRow& row) { return model.seconds(row.ranks, real(row.bytes)); });
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
  return ratios_of(rows, [&](const CpuAttentionRow& row) { return model.seconds(row.threads, row.kv_bytes); });
}

std::vector<double> ratios(const HostModel& model, std::span<const HostRow> rows) {
  return ratios_of(rows, [&](const HostRow& row) { return model.seconds(row.sequences); });
}

std::vector<double> ratios(const LayerTables& tables, std::span<const LayerRow> rows) {
  return ratios_of(rows, [&](const LayerRow& row) {
    const auto& curves = row.per_sequence ? tables.per_sequence : tables.per_token;
    const auto curve = curves.find(row.kernel);
    if (curve == curves.end()) {
      throw DataError(
          fmt::format("there is no table of '{}' by {}", row.kernel, row.per_sequence ? "sequences" : "tokens"),
          place(row.place), "leave the row out, or fit tables that have this kernel");
    }
    return curve->second.at(real(row.count));
  });
}

std::vector<double> ratios(const LayerTables& tables, std::span<const MixedRow> rows) {
  return ratios_of(rows, [&](const MixedRow& row) {
    return tables.attention(real(row.chunk), real(row.chunk_context), real(row.decodes), real(row.decode_context));
  });
}

std::vector<double> ratios(const IterationModel& model, std::span<const IterationRow> rows) {
  return ratios_of(rows, [&](const IterationRow& row) {
    return model.seconds(real(row.tokens), real(row.context), row.chunk_pairs);
  });
}

}  // namespace spillway::hwmodels
