#include "hwmodels/calibration/layer_fits.hpp"

#include <fmt/format.h>

#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "hwmodels/calibration/row_ratios.hpp"
#include "hwmodels/numbers.hpp"
#include "sim/core/error.hpp"

namespace spillway::hwmodels {
namespace {

/// A point of the attention grid: chunk, its context, decodes, their context.
using GridPoint = std::array<std::int64_t, 4>;

std::string point_text(const GridPoint& point) {
  return fmt::format("a chunk of {} tokens after {}, {} decodes of {} tokens", point[0], point[1], point[2], point[3]);
}

/// The grid point of a row. Without a chunk, or without decodes, the context is 0.
GridPoint grid_point(const MixedRow& row) {
  return {row.chunk, row.chunk > 0 ? row.chunk_context : 0, row.decodes, row.decodes > 0 ? row.decode_context : 0};
}

/// The attention grid while it is filled.
class AttentionGrid {
 public:
  explicit AttentionGrid(std::map<GridPoint, double> measured) : measured_(std::move(measured)) {
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

  /// Throws at the first missing point: rows that lie on no grid may span a grid of billions of points.
  void tabulate(LayerTables& tables) const {
    for_each_point([&](const GridPoint& point) {
      const auto seconds = at(point);
      if (!seconds) {
        throw DataError(fmt::format("attention is not measured at {}: every combination of the values that occur is "
                                    "needed",
                                    point_text(point)),
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

  [[nodiscard]] std::optional<double> measured(const GridPoint& point) const {
    const auto found = measured_.find(point);
    return found == measured_.end() ? std::nullopt : std::optional(found->second);
  }

  [[nodiscard]] std::optional<double> at(const GridPoint& point) const {
    const auto [chunk, chunk_context, decodes, decode_context] = point;
    if (chunk == 0 && decodes == 0) return kNothing;
    if (chunk == 0) return measured({0, 0, decodes, decode_context});
    if (decodes == 0) return measured({chunk, chunk_context, 0, 0});
    if (const auto seconds = measured(point)) return seconds;
    return continued(point);
  }

  /// The time at the largest number of decodes beside a chunk, by the line through the two numbers before it.
  [[nodiscard]] std::optional<double> continued(const GridPoint& point) const {
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

  std::map<GridPoint, double> measured_;
  std::array<std::vector<std::int64_t>, 4> axes_;
};

}  // namespace

LayerTables tabulate_layers(std::span<const LayerRow> layers, std::span<const MixedRow> attention) {
  std::vector<Problem> problems;
  const auto twice = [&](const std::string& what, const RowPlace& first, const RowPlace& second) {
    problems.push_back({fmt::format("{} is measured twice", what),
                        fmt::format("{} and {}", row_text(first), row_text(second)), "leave one of the rows out"});
  };
  std::map<std::tuple<bool, std::string, std::int64_t>, const LayerRow*> kernels;
  for (const LayerRow& row : layers) {
    const auto [found, fresh] = kernels.try_emplace({row.per_sequence, row.kernel, row.count}, &row);
    if (!fresh) {
      twice(fmt::format("{} of {} {}", row.kernel, row.count, row.per_sequence ? "sequences" : "tokens"),
            found->second->place, row.place);
    }
  }
  std::map<GridPoint, const MixedRow*> points;
  for (const MixedRow& row : attention) {
    if (row.chunk == 0 && row.decodes == 0) {
      problems.push_back({"attention of 0 chunk tokens and 0 decodes: one of them must be above 0", row_text(row.place),
                          "leave the row out"});
      continue;
    }
    const auto [found, fresh] = points.try_emplace(grid_point(row), &row);
    if (!fresh) twice("attention of " + point_text(found->first), found->second->place, row.place);
  }
  if (!problems.empty()) throw DataError(std::move(problems));

  LayerTables tables;
  for (const auto& [key, row] : kernels) {
    auto& curves = row->per_sequence ? tables.per_sequence : tables.per_token;
    curves[row->kernel].points.push_back({real(row->count), row->seconds});
  }
  std::map<GridPoint, double> measured;
  for (const auto& [point, row] : points) measured[point] = row->seconds;
  if (!measured.empty()) AttentionGrid(std::move(measured)).tabulate(tables);
  return tables;
}

std::vector<double> ratios(const LayerTables& tables, std::span<const LayerRow> rows) {
  return row_ratios(rows, [&](const LayerRow& row) {
    const auto& curves = row.per_sequence ? tables.per_sequence : tables.per_token;
    const auto curve = curves.find(row.kernel);
    if (curve == curves.end()) {
      throw DataError(
          fmt::format("there is no table of '{}' by {}", row.kernel, row.per_sequence ? "sequences" : "tokens"),
          row_text(row.place), "leave the row out, or fit tables that have this kernel");
    }
    return curve->second.at(real(row.count));
  });
}

std::vector<double> ratios(const LayerTables& tables, std::span<const MixedRow> rows) {
  return row_ratios(rows, [&](const MixedRow& row) {
    return tables.attention(real(row.chunk), real(row.chunk_context), real(row.decodes), real(row.decode_context));
  });
}

}  // namespace spillway::hwmodels
