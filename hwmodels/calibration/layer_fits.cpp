#include "hwmodels/calibration/layer_fits.hpp"

#include <fmt/format.h>

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "hwmodels/calibration/row_ratios.hpp"
#include "hwmodels/numbers.hpp"
#include "sim/core/error.hpp"

namespace spillway::hwmodels {
namespace {

constexpr std::array<std::string_view, 3> kKinds{"chunks alone", "decodes alone", "chunks and decodes together"};

/// The grid point of a row. Without a chunk, or without decodes, the context is 0.
GridPoint grid_point(const MixedRow& row) {
  return {row.chunk, row.chunk > 0 ? row.chunk_context : 0, row.decodes, row.decodes > 0 ? row.decode_context : 0};
}

Problem twice(const std::string& what, const RowPlace& first, const RowPlace& second) {
  return {fmt::format("{} is measured twice", what), fmt::format("{} and {}", row_text(first), row_text(second)),
          "leave one of the rows out"};
}

/// The points with their seconds. Points that are measured twice, or are no call, are problems.
std::map<GridPoint, double> points_of(std::span<const MixedRow> attention, std::vector<Problem>& problems) {
  std::map<GridPoint, const MixedRow*> points;
  for (const MixedRow& row : attention) {
    if (row.chunk == 0 && row.decodes == 0) {
      problems.push_back({"attention of 0 chunk tokens and 0 decodes: one of them must be above 0", row_text(row.place),
                          "leave the row out"});
      continue;
    }
    const auto [found, fresh] = points.try_emplace(grid_point(row), &row);
    if (!fresh) problems.push_back(twice("attention of " + point_text(found->first), found->second->place, row.place));
  }
  std::map<GridPoint, double> measured;
  for (const auto& [point, row] : points) measured[point] = row->seconds;
  return measured;
}

}  // namespace

bool is_full_grid(std::span<const MixedRow> attention) {
  std::vector<Problem> problems;
  const AttentionGrid grid(points_of(attention, problems));
  return problems.empty() && !grid.first_missing();
}

AttentionGrid::Coverage tabulate_attention(std::span<const MixedRow> attention, LayerTables& tables) {
  std::vector<Problem> problems;
  std::map<GridPoint, double> measured = points_of(attention, problems);
  if (!problems.empty()) throw DataError(std::move(problems));
  if (measured.empty()) return {};
  const std::size_t rows = measured.size();
  std::array<std::size_t, 4> kinds{};  // of calls: none, of chunks, of decodes, of both
  for (const auto& [point, seconds] : measured) ++kinds[(point[0] > 0 ? 1U : 0U) + (point[2] > 0 ? 2U : 0U)];
  const AttentionGrid grid(std::move(measured));
  if (const auto missing = grid.first_missing(); missing && rows < kFewestScattered) {
    throw DataError(
        fmt::format("{} rows of attention are too few to interpolate {}, which is not measured: at least {} "
                    "are required unless they cover every combination of their values",
                    rows, point_text(*missing), kFewestScattered),
        "attention rows", "measure more points, or leave out the rows with the value that is not combined");
  }
  const bool both = kinds[3] > 0 || (kinds[1] > 0 && kinds[2] > 0);
  for (std::size_t kind = 1; both && kind < kinds.size(); ++kind) {
    if (kinds[kind] > 0) continue;
    throw DataError(fmt::format("attention of {} is not measured: Spillway interpolates only between calls of one kind",
                                kKinds.at(kind - 1)),
                    "attention rows", fmt::format("measure {} as well", kKinds.at(kind - 1)));
  }
  return grid.tabulate(tables);
}

LayerTables tabulate_layers(std::span<const LayerRow> layers, std::span<const MixedRow> attention) {
  std::vector<Problem> problems;
  std::map<std::tuple<bool, std::string, std::int64_t>, const LayerRow*> kernels;
  for (const LayerRow& row : layers) {
    const auto [found, fresh] = kernels.try_emplace({row.per_sequence, row.kernel, row.count}, &row);
    if (!fresh) {
      problems.push_back(
          twice(fmt::format("{} of {} {}", row.kernel, row.count, row.per_sequence ? "sequences" : "tokens"),
                found->second->place, row.place));
    }
  }
  static_cast<void>(points_of(attention, problems));
  if (!problems.empty()) throw DataError(std::move(problems));

  LayerTables tables;
  for (const auto& [key, row] : kernels) {
    auto& curves = row->per_sequence ? tables.per_sequence : tables.per_token;
    curves[row->kernel].points.push_back({real(row->count), row->seconds});
  }
  static_cast<void>(tabulate_attention(attention, tables));
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
