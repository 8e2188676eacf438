// Charts as SVG inside an HTML page, without scripts, fonts or files. Equal charts give equal bytes on every machine.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace spillway {

struct ChartPoint {
  double x = 0.0;
  double y = 0.0;
  bool operator==(const ChartPoint&) const = default;
};

enum class ChartMark {
  steps,  // each y is valid until the next x
  dots
};

struct ChartSeries {
  std::string name;                // for the legend, which a single series does not have
  std::vector<ChartPoint> points;  // in ascending x
};

struct Chart {
  std::string id;           // unique in its page: letters, digits and hyphens
  std::string title;        // for readers who cannot see the chart, like the description
  std::string description;  // one sentence
  std::string x_title;      // including the unit
  std::string y_title;
  ChartMark mark = ChartMark::steps;
  double width = 440.0;             // width in px for letters of natural size; the page scales the chart
  std::vector<ChartSeries> series;  // at most two; the second is dashed
};

inline constexpr std::size_t kMostLinePoints = 1000;  // per series
inline constexpr std::size_t kMostDots = 2000;        // per series

/// One <svg> element. The x axis spans the points, and zero if zero is near. The y axis spans zero to a whole tick.
/// Points that are not finite, or beyond 1e300, are left out; the remaining points are thinned. Without points the
/// chart says "no data". O(points).
[[nodiscard]] std::string to_svg(const Chart& chart);

/// The style sheet of every chart, once per page: colours for light pages, dark pages and print.
[[nodiscard]] std::string_view chart_style();

/// The percentage of values that are at most x, from (smallest, 0) to (largest, 100), in at most kMostLinePoints points
/// on the curve. Values that are not finite are left out. O(n log n).
[[nodiscard]] std::vector<ChartPoint> cumulative_percent(std::vector<double> values);

/// Reduces `points`, in ascending x, to at most kMostLinePoints. The x axis is cut into equal parts; each part keeps
/// its lowest, highest and last point. A step line thus keeps its peaks and its value over a gap. O(points).
[[nodiscard]] std::vector<ChartPoint> thinned_steps(const std::vector<ChartPoint>& points);

/// Every k-th of `points`, with the smallest k that leaves at most kMostDots. O(points).
[[nodiscard]] std::vector<ChartPoint> thinned_dots(const std::vector<ChartPoint>& points);

/// Escapes any `text` for text or attributes in HTML or SVG. Broken UTF-8 is replaced, control characters are spelled
/// out, and markup characters are escaped. O(bytes).
[[nodiscard]] std::string escaped_markup(std::string_view text);

}  // namespace spillway
