#include "sim/report/svg_chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "sim/core/printable.hpp"
#include "sim/core/utf8.hpp"

namespace spillway {
namespace {

constexpr double kHeight = 260.0;
constexpr double kTop = 40.0;     // space above the plot: title of the y axis, legend
constexpr double kBottom = 48.0;  // space below the plot: labels and title of the x axis
constexpr double kRight = 26.0;   // space for half a label
constexpr double kDigit = 7.2;    // width of a digit at the style sheet's font size, in a wide font
constexpr double kLetter = 8.0;   // width of a letter, on average
constexpr double kTicks = 5.0;    // approximate number of ticks
constexpr double kLargest = 1e300;
constexpr double kSmallest = 1e-300;

struct Range {
  double low = 0.0;
  double high = 0.0;
};

struct ChartAxis {
  Range range;
  double step = 1.0;  // between ticks; ticks are multiples of the step
};

/// The smallest round step (1, 2 or 5 times a power of ten) for `span`.
double round_step(double span) {
  const double raw = span / kTicks;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw * (1.0 - 1e-9)) return factor * power;
  }
  return 10.0 * power;
}

/// Widens a range of nearly equal values. Otherwise the axis would have no distinct ticks.
Range widened(Range range) {
  const double size = std::max(std::abs(range.low), std::abs(range.high));
  if (range.high - range.low > std::max(1e-6 * size, kSmallest)) return range;
  const double room = size > kSmallest ? 0.1 * size : 1.0;
  return {range.low - room, range.high + room};
}

/// Starts at zero if that leaves little of the plot empty, else shows the points as large as possible.
ChartAxis x_axis(Range points) {
  if (points.low > 0.0 && points.low < 0.2 * points.high) points.low = 0.0;
  const Range range = widened(points);
  return {range, round_step(range.high - range.low)};
}

/// The y axis starts at zero, because readers compare heights and errors with zero.
ChartAxis y_axis(Range points) {
  Range range{std::min(0.0, points.low), std::max(0.0, points.high)};
  if (range.high - range.low < kSmallest) range = {0.0, 1.0};
  const double step = round_step(range.high - range.low);
  return {{std::floor(range.low / step + 1e-9) * step, std::ceil(range.high / step - 1e-9) * step}, step};
}

std::vector<double> ticks(const ChartAxis& axis) {
  const double first = std::ceil(axis.range.low / axis.step - 1e-9);
  const double count = std::floor(axis.range.high / axis.step + 1e-9) - first;
  std::vector<double> values;
  for (double i = 0.0; i <= count; ++i) {
    values.push_back((first + i) * axis.step + 0.0);  // + 0.0 avoids negative zero
  }
  return values;
}

/// "1,200,000" from "1200000".
std::string grouped(std::string digits) {
  const std::size_t first = digits.starts_with('-') ? 1 : 0;
  for (std::size_t end = std::min(digits.find('.'), digits.size()); end > first + 3; end -= 3) {
    digits.insert(end - 3, 1, ',');
  }
  return digits;
}

/// Uses as many decimals as distinct ticks need.
std::string tick_label(double value, const ChartAxis& axis) {
  const int decimals = static_cast<int>(std::max(0.0, -std::floor(std::log10(axis.step) + 1e-9)));
  const double size = std::max(std::abs(axis.range.low), std::abs(axis.range.high));
  if (size >= 1e9 || decimals > 6) return fmt::format("{:g}", value);
  return grouped(fmt::format("{:.{}f}", value, decimals));
}

bool drawable(const ChartPoint& point) {  // false for NaN too
  return std::abs(point.x) <= kLargest && std::abs(point.y) <= kLargest;
}

/// The points of a series that are drawn.
std::vector<ChartPoint> drawn_points(const Chart& chart, const ChartSeries& series) {
  std::vector<ChartPoint> points;
  std::copy_if(series.points.begin(), series.points.end(), std::back_inserter(points), drawable);
  return chart.mark == ChartMark::steps ? thinned_steps(points) : thinned_dots(points);
}

class Drawing {
 public:
  explicit Drawing(const Chart& chart) : chart_(chart) {
    for (const ChartSeries& series : chart.series) points_.push_back(drawn_points(chart, series));
  }

  std::string build() {
    open();
    if (std::any_of(points_.begin(), points_.end(), [](const auto& points) { return !points.empty(); })) {
      lay_out();
      axes();
      for (std::size_t i = 0; i < points_.size(); ++i) marks(i);
      legend();
    } else {
      text("chart-note", chart_.width / 2.0, kHeight / 2.0, "no data");
    }
    return svg_ + "</svg>\n";
  }

 private:
  template <class... Arguments>
  void add(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    fmt::format_to(std::back_inserter(svg_), format, std::forward<Arguments>(arguments)...);
  }
  void text(std::string_view style, double x, double y, std::string_view words) {
    add("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", style, x, y, escaped_markup(words));
  }

  void open() {
    add("<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" "
        "aria-labelledby=\"{}-title {}-description\">\n",
        chart_.width, kHeight, chart_.id, chart_.id);
    add("<title id=\"{}-title\">{}</title>\n", chart_.id, escaped_markup(chart_.title));
    add("<desc id=\"{}-description\">{}</desc>\n", chart_.id, escaped_markup(chart_.description));
  }

  /// Computes the axes and the left edge of the plot. The longest label of the y axis sets the left margin.
  void lay_out() {
    Range x{kLargest, -kLargest};
    Range y = x;
    for (const std::vector<ChartPoint>& points : points_) {
      for (const ChartPoint& point : points) {
        x = {std::min(x.low, point.x), std::max(x.high, point.x)};
        y = {std::min(y.low, point.y), std::max(y.high, point.y)};
      }
    }
    x_ = x_axis(x);
    y_ = y_axis(y);
    std::size_t letters = 0;
    for (const double value : ticks(y_)) letters = std::max(letters, tick_label(value, y_).size());
    left_ = 14.0 + kDigit * static_cast<double>(letters);
  }

  [[nodiscard]] double right() const { return chart_.width - kRight; }
  [[nodiscard]] static double bottom() { return kHeight - kBottom; }
  [[nodiscard]] double x_at(double x) const {
    return left_ + (right() - left_) * ((x - x_.range.low) / (x_.range.high - x_.range.low));
  }
  [[nodiscard]] double y_at(double y) const {
    return bottom() - (bottom() - kTop) * ((y - y_.range.low) / (y_.range.high - y_.range.low));
  }

  void axes() {
    for (const double value : ticks(y_)) {
      const double y = y_at(value);
      add("<path class=\"{}\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>\n", value == 0.0 ? "chart-zero" : "chart-grid", left_, y,
          right());
      text("chart-y", left_ - 6.0, y + 4.5, tick_label(value, y_));
    }
    for (const double value : ticks(x_)) {
      const double x = x_at(value);
      add("<path class=\"chart-grid\" d=\"M{:.1f} {:.1f}V{:.1f}\"/>\n", x, kTop, bottom() + 4.0);
      text("chart-x", x, bottom() + 18.0, tick_label(value, x_));
    }
    text("chart-x chart-name", (left_ + right()) / 2.0, kHeight - 8.0, chart_.x_title);
    text("chart-name", 4.0, 18.0, chart_.y_title);
  }

  void marks(std::size_t i) {
    const std::vector<ChartPoint>& points = points_[i];
    if (points.empty()) return;
    const bool dots = chart_.mark == ChartMark::dots || points.size() == 1;
    add("<path class=\"{} chart-{}\" d=\"", dots ? "chart-dots" : "chart-line", i);
    for (const ChartPoint& point : points) {
      if (dots) {
        add("M{:.1f} {:.1f}h0", x_at(point.x), y_at(point.y));  // a round cap draws a dot
      } else if (&point == &points.front()) {
        add("M{:.1f} {:.1f}", x_at(point.x), y_at(point.y));
      } else {
        add("H{:.1f}V{:.1f}", x_at(point.x), y_at(point.y));
      }
    }
    svg_ += "\"/>\n";
  }

  /// Draws the legend above the plot, from right to left.
  void legend() {
    if (chart_.series.size() < 2) return;
    double x = right();
    for (std::size_t i = chart_.series.size(); i-- > 0;) {
      const std::string words = chart_.series[i].name + (points_[i].empty() ? " (no data)" : "");
      text("chart-key", x, 18.0, words);
      x -= kLetter * static_cast<double>(words.size()) + 4.0;
      add("<path class=\"chart-line chart-{}\" d=\"M{:.1f} 14.0h24\"/>\n", i, x - 24.0);
      x -= 24.0 + 12.0;
    }
  }

  const Chart& chart_;
  std::vector<std::vector<ChartPoint>> points_;  // one entry per series
  ChartAxis x_;
  ChartAxis y_;
  double left_ = 0.0;
  std::string svg_;
};

}  // namespace

std::string to_svg(const Chart& chart) { return Drawing(chart).build(); }

// Blue and vermilion of Okabe and Ito, "Color Universal Design" (2008), are distinct for every kind of colour
// blindness. Dark pages use lighter colours of the same set. Dashes make the series distinct in grey.
std::string_view chart_style() {
  return R"(.chart {
  --chart-0: #0072b2; --chart-1: #d55e00; --chart-grid: #e4e7eb; --chart-zero: #8a929c; --chart-ink: #3c4450;
  display: block; width: 100%; max-width: 40rem; height: auto; margin: 0 auto;
  font: 12.5px system-ui, sans-serif; font-variant-numeric: tabular-nums;
}
@media screen and (prefers-color-scheme: dark) {
  .chart { --chart-0: #56b4e9; --chart-1: #f0a030; --chart-grid: #2f3640; --chart-zero: #78828f; --chart-ink: #c3cad3; }
}
.chart path { fill: none; }
.chart text { fill: var(--chart-ink); }
.chart .chart-grid { stroke: var(--chart-grid); }
.chart .chart-zero { stroke: var(--chart-zero); }
.chart .chart-line { stroke-width: 2; stroke-linejoin: round; }
.chart .chart-dots { stroke-width: 4.5; stroke-linecap: round; stroke-opacity: .65; }
.chart .chart-0 { stroke: var(--chart-0); }
.chart .chart-1 { stroke: var(--chart-1); }
.chart .chart-line.chart-1 { stroke-dasharray: 6 3; }
.chart .chart-x, .chart .chart-note { text-anchor: middle; }
.chart .chart-y, .chart .chart-key { text-anchor: end; }
.chart .chart-name { font-weight: 600; }
)";
}

std::vector<ChartPoint> cumulative_percent(std::vector<double> values) {
  values.erase(std::remove_if(values.begin(), values.end(), [](double value) { return !std::isfinite(value); }),
               values.end());
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  const std::size_t quantiles = std::min(n, kMostLinePoints - 1);
  std::vector<ChartPoint> points{{values.front(), 0.0}};
  for (std::size_t k = 1; k <= quantiles; ++k) {
    const std::size_t rank = (k * n + quantiles - 1) / quantiles;
    points.push_back({values[rank - 1], 100.0 * static_cast<double>(rank) / static_cast<double>(n)});
  }
  return points;
}

std::vector<ChartPoint> thinned_steps(const std::vector<ChartPoint>& points) {
  if (points.size() <= kMostLinePoints) return points;
  constexpr std::size_t kParts =
      (kMostLinePoints - 1) / 3;  // each part keeps three points, plus the first point of all
  const double first = points.front().x;
  const double part = (points.back().x - first) / static_cast<double>(kParts);
  std::vector<ChartPoint> kept{points.front()};
  std::size_t begin = 0;
  for (std::size_t p = 1; p <= kParts && begin < points.size(); ++p) {
    std::size_t low = begin;
    std::size_t high = begin;
    std::size_t end = begin;
    for (; end < points.size() && (p == kParts || points[end].x < first + part * static_cast<double>(p)); ++end) {
      if (points[end].y < points[low].y) low = end;
      if (points[end].y > points[high].y) high = end;
    }
    if (end == begin) continue;  // no point in this part
    const auto [earlier, later] = std::minmax(low, high);
    for (const std::size_t i : {earlier, later, end - 1}) {
      if (!(points[i] == kept.back())) kept.push_back(points[i]);
    }
    begin = end;
  }
  return kept;
}

std::vector<ChartPoint> thinned_dots(const std::vector<ChartPoint>& points) {
  const std::size_t stride = (points.size() + kMostDots - 1) / kMostDots;
  std::vector<ChartPoint> kept;
  for (std::size_t i = 0; i < points.size(); i += stride) kept.push_back(points[i]);
  return kept;
}

std::string escaped_markup(std::string_view text) {
  std::string buffer;
  std::string escaped;
  for (const char c : printable(repaired_utf8(text, buffer))) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

}  // namespace spillway
