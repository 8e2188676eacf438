// Charts as SVG that stands in an HTML page: no scripts, no fonts, no files. The same chart is the same bytes anywhere.
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
  steps,  // each y holds until the next x
  dots
};

struct ChartSeries {
  std::string name;                // in the legend, which there is from two series on
  std::vector<ChartPoint> points;  // by ascending x
};

struct Chart {
  std::string id;           // unique in its page: letters, digits and hyphens
  std::string title;        // for readers who do not see it, as the description
  std::string description;  // one sentence
  std::string x_title;      // with the unit
  std::string y_title;
  ChartMark mark = ChartMark::steps;
  double width = 440.0;             // px at which letters have their natural size; the page scales it
  std::vector<ChartSeries> series;  // at most two; the second is dashed
};

inline constexpr std::size_t kMostLinePoints = 1000;  // of one series
inline constexpr std::size_t kMostDots = 2000;        // of one series

/// One <svg> element. Its x axis spans the points, and zero where that is near; its y axis reaches from zero to a whole
/// tick. Points that are not finite, or beyond 1e300, are left out; what is left is thinned. "no data" where there is
/// none. O(points).
[[nodiscard]] std::string to_svg(const Chart& chart);

/// The style sheet of every chart, once per page: colours for light, dark and paper.
[[nodiscard]] std::string_view chart_style();

/// How many percent of the values are at most x: from (smallest, 0) to (largest, 100), in at most kMostLinePoints
/// points, which lie on the curve. Values that are not finite are left out. O(n log n).
[[nodiscard]] std::vector<ChartPoint> cumulative_percent(std::vector<double> values);

/// At most kMostLinePoints of `points`, which ascend in x: of equal parts of the x axis, the lowest, the highest and
/// the last, so that a step line keeps its peaks and what it holds over a gap. O(points).
[[nodiscard]] std::vector<ChartPoint> thinned_steps(const std::vector<ChartPoint>& points);

/// Every k-th of `points`, with the smallest k that leaves at most kMostDots. O(points).
[[nodiscard]] std::vector<ChartPoint> thinned_dots(const std::vector<ChartPoint>& points);

/// `text` from anywhere as text or attribute in HTML or SVG: broken UTF-8 is replaced, control characters are written
/// out, and what has a meaning in markup is escaped. O(bytes).
[[nodiscard]] std::string escaped_markup(std::string_view text);

}  // namespace spillway
