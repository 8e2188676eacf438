#include "sim/report/svg_chart.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

namespace spillway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Chart chart_of(std::vector<ChartSeries> series) {
  return {.id = "c",
          .title = "Title",
          .description = "Description.",
          .x_title = "Time (s)",
          .y_title = "Requests",
          .mark = ChartMark::steps,
          .width = 440.0,
          .series = std::move(series)};
}

std::size_t count_of(const std::string& part, const std::string& text) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

/// The labels of one axis, in the order of the ticks.
std::vector<std::string> labels(const std::string& svg, const std::string& axis) {
  std::vector<std::string> found;
  const std::string start = "<text class=\"chart-" + axis + "\"";
  for (std::size_t at = svg.find(start); at != std::string::npos; at = svg.find(start, at + 1)) {
    const std::size_t text = svg.find('>', at) + 1;
    found.push_back(svg.substr(text, svg.find('<', text) - text));
  }
  return found;
}

TEST(SvgChart, NothingInATextCanBeMarkup) {
  EXPECT_EQ(escaped_markup("<a href=\"x\">&'"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;");
  EXPECT_EQ(escaped_markup("caf\xc3\xa9 \xff \x1b[2J"), "caf\xc3\xa9 \xef\xbf\xbd \\x1b[2J");
  EXPECT_EQ(escaped_markup(std::string_view("a\0b", 3)), "a\\x00b");
}

TEST(SvgChart, ACumulativeCurveStepsUpAtEachValue) {
  EXPECT_THAT(
      cumulative_percent({4.0, 1.0, 2.0, 2.0}),
      ElementsAre(ChartPoint{1, 0}, ChartPoint{1, 25}, ChartPoint{2, 50}, ChartPoint{2, 75}, ChartPoint{4, 100}));
  EXPECT_THAT(cumulative_percent({7.0}), ElementsAre(ChartPoint{7, 0}, ChartPoint{7, 100}));
  EXPECT_TRUE(cumulative_percent({}).empty());
  EXPECT_TRUE(cumulative_percent({std::numeric_limits<double>::quiet_NaN()}).empty());
}

TEST(SvgChart, ACurveOfManyValuesIsDrawnAtItsQuantiles) {
  std::vector<double> values;
  for (int i = 9990; i > 0; --i) values.push_back(i);
  const std::vector<ChartPoint> curve = cumulative_percent(values);
  ASSERT_EQ(curve.size(), kMostLinePoints);  // (1, 0) and 999 quantiles, the k-th of which is value 10 k
  EXPECT_EQ(curve[0], (ChartPoint{1, 0}));
  EXPECT_EQ(curve[1], (ChartPoint{10, 100.0 * 10 / 9990}));
  EXPECT_EQ(curve[333], (ChartPoint{3330, 100.0 * 3330 / 9990}));
  EXPECT_EQ(curve[999], (ChartPoint{9990, 100}));
}

TEST(SvgChart, FewPointsAreDrawnAsTheyAre) {
  std::vector<ChartPoint> points(kMostLinePoints);
  for (std::size_t i = 0; i < points.size(); ++i) points[i] = {static_cast<double>(i), static_cast<double>(i % 7)};
  EXPECT_EQ(thinned_steps(points), points);
  EXPECT_EQ(thinned_dots(points), points);
  EXPECT_TRUE(thinned_steps({}).empty());
  EXPECT_TRUE(thinned_dots({}).empty());
}

TEST(SvgChart, AThinnedLineKeepsItsExtremesAndWhatItHolds) {
  // Level 5, except for a peak, a trough, and 6 at the last point before a gap.
  std::vector<ChartPoint> points(100'000);
  for (std::size_t i = 0; i < points.size(); ++i) points[i] = {static_cast<double>(i) * 1e-3, 5.0};
  points[31'234].y = 99.0;
  points[31'236].y = 1.0;
  points.push_back({100.0, 6.0});
  points.push_back({1'000.0, 7.0});
  const std::vector<ChartPoint> thinned = thinned_steps(points);
  EXPECT_LE(thinned.size(), kMostLinePoints);
  EXPECT_EQ(thinned.front(), points.front());
  EXPECT_EQ(thinned.back(), points.back());
  EXPECT_EQ(std::count(thinned.begin(), thinned.end(), points[31'234]), 1);
  EXPECT_EQ(std::count(thinned.begin(), thinned.end(), points[31'236]), 1);
  EXPECT_EQ(thinned[thinned.size() - 2], (ChartPoint{100.0, 6.0}));
  EXPECT_TRUE(std::is_sorted(thinned.begin(), thinned.end(), [](const auto& a, const auto& b) { return a.x < b.x; }));
}

TEST(SvgChart, ManyPointsAtOnceAreThinnedAsWell) {
  std::vector<ChartPoint> points(5'000, ChartPoint{2.0, 3.0});
  points[70].y = 8.0;
  EXPECT_THAT(thinned_steps(points), ElementsAre(ChartPoint{2, 3}, ChartPoint{2, 8}, ChartPoint{2, 3}));
}

TEST(SvgChart, OfManyDotsEveryKthIsDrawn) {
  std::vector<ChartPoint> points(2 * kMostDots + 1);
  for (std::size_t i = 0; i < points.size(); ++i) points[i].x = static_cast<double>(i);
  const std::vector<ChartPoint> thinned = thinned_dots(points);
  ASSERT_EQ(thinned.size(), 1'334U);  // every third of 4,001: 0, 3, ... 3,999
  EXPECT_EQ(thinned[1].x, 3.0);
  EXPECT_EQ(thinned.back().x, 3'999.0);
}

// The plot: from x = 14 + 2 * 7.2 = 28.4 (labels of two digits) to 440 - 26 = 414, y from 260 - 48 = 212 up to 40.
TEST(SvgChart, StepsHoldTheirHeightUntilTheNextPoint) {
  const std::string svg = to_svg(chart_of({{"a", {{0, 10}, {5, 20}, {10, 0}}}}));
  // x: 28.4 + 385.6 x / 10; y: 212 - 172 y / 20
  EXPECT_THAT(svg, HasSubstr("<path class=\"chart-line chart-0\" d=\"M28.4 126.0H221.2V40.0H414.0V212.0\"/>"));
  EXPECT_THAT(labels(svg, "y"), ElementsAre("0", "5", "10", "15", "20"));
  EXPECT_THAT(labels(svg, "x"), ElementsAre("0", "2", "4", "6", "8", "10"));
  EXPECT_EQ(count_of("chart-key", svg), 0U) << "one series needs no legend";
}

TEST(SvgChart, DotsLieOnBothSidesOfZero) {
  Chart chart = chart_of({{"error", {{1, -10}, {3, 10}}}});
  chart.mark = ChartMark::dots;
  const std::string svg = to_svg(chart);
  EXPECT_THAT(labels(svg, "y"), ElementsAre("-10", "-5", "0", "5", "10"));
  // Labels of three: 14 + 3 * 7.2 = 35.6. From 1 to 3: 1 is not near zero.
  EXPECT_THAT(svg, HasSubstr("<path class=\"chart-dots chart-0\" d=\"M35.6 212.0h0M414.0 40.0h0\"/>"));
  EXPECT_THAT(svg, HasSubstr("<path class=\"chart-zero\" d=\"M35.6 126.0H414.0\"/>"));
}

TEST(SvgChart, ReadersWhoDoNotSeeItAreToldWhatItShows) {
  Chart chart = chart_of({{"measured", {{0, 1}, {1, 2}}}, {"simu<lated", {{0, 1}, {1, 2}}}});
  chart.title = "A & B";
  const std::string svg = to_svg(chart);
  EXPECT_THAT(svg, HasSubstr("role=\"img\" aria-labelledby=\"c-title c-description\">"));
  EXPECT_THAT(svg, HasSubstr("<title id=\"c-title\">A &amp; B</title>"));
  EXPECT_THAT(svg, HasSubstr("<desc id=\"c-description\">Description.</desc>"));
  EXPECT_THAT(svg, HasSubstr(">simu&lt;lated</text>"));
  EXPECT_EQ(count_of("chart-key", svg), 2U);
}

TEST(SvgChart, TicksAreRoundAndAsPreciseAsTheyNeedToBe) {
  const auto y_labels = [](double y) { return labels(to_svg(chart_of({{"a", {{0, 0}, {1, y}}}})), "y"); };
  EXPECT_THAT(y_labels(0.7), ElementsAre("0.0", "0.2", "0.4", "0.6", "0.8"));
  EXPECT_THAT(y_labels(100), ElementsAre("0", "20", "40", "60", "80", "100"));
  EXPECT_THAT(y_labels(1.2e6), ElementsAre("0", "500,000", "1,000,000", "1,500,000"));
  EXPECT_THAT(y_labels(1e18), ElementsAre("0", "2e+17", "4e+17", "6e+17", "8e+17", "1e+18"));
  EXPECT_THAT(y_labels(1e-9), ElementsAre("0", "2e-10", "4e-10", "6e-10", "8e-10", "1e-09"));
  EXPECT_THAT(y_labels(-1'500), ElementsAre("-1,500", "-1,000", "-500", "0"));
}

TEST(SvgChart, TheXAxisBeginsAtZeroWhereThatIsNear) {
  const auto x_labels = [](double low, double high) {
    return labels(to_svg(chart_of({{"a", {{low, 1}, {high, 1}}}})), "x");
  };
  EXPECT_THAT(x_labels(1, 100), ElementsAre("0", "20", "40", "60", "80", "100"));
  EXPECT_THAT(x_labels(60, 100), ElementsAre("60", "70", "80", "90", "100"));
  EXPECT_THAT(x_labels(10, 10), ElementsAre("9.0", "9.5", "10.0", "10.5", "11.0")) << "a tenth around equal values";
}

TEST(SvgChart, WithoutPointsThereIsNoData) {
  for (const std::vector<ChartSeries>& series : {std::vector<ChartSeries>{}, {{"a", {}}, {"b", {}}}}) {
    const std::string svg = to_svg(chart_of(series));
    EXPECT_THAT(svg, HasSubstr(">no data</text>"));
    EXPECT_THAT(svg, HasSubstr("<title id=\"c-title\">Title</title>"));
    EXPECT_THAT(svg, Not(HasSubstr("<path")));
  }
  const std::string half = to_svg(chart_of({{"measured", {}}, {"simulated", {{0, 1}, {1, 2}}}}));
  EXPECT_THAT(half, HasSubstr(">measured (no data)</text>"));
  EXPECT_THAT(half, HasSubstr(">simulated</text>"));
}

TEST(SvgChart, OnePointIsADot) {
  // y from 0 to 4; x from 0.9 to 1.1, so that the point is half way: (21.2 + 414) / 2.
  EXPECT_THAT(to_svg(chart_of({{"a", {{1, 4}}}})),
              HasSubstr("<path class=\"chart-dots chart-0\" d=\"M217.6 40.0h0\"/>"));
}

TEST(SvgChart, ZerosAreDrawnOnTheAxis) {
  const std::string svg = to_svg(chart_of({{"a", {{0, 0}, {0, 0}}}}));
  EXPECT_THAT(labels(svg, "y"), ElementsAre("0.0", "0.2", "0.4", "0.6", "0.8", "1.0"));
  EXPECT_THAT(labels(svg, "x"), ElementsAre("-1.0", "-0.5", "0.0", "0.5", "1.0"));
  EXPECT_THAT(svg, HasSubstr("V212.0\"/>"));
}

TEST(SvgChart, NoValueIsTooLargeToDraw) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  constexpr double kTiny = std::numeric_limits<double>::denorm_min();
  const std::string svg = to_svg(chart_of(
      {{"a", {{-1e300, -1e300}, {1e300, 1e300}, {1, kInfinity}, {kNaN, 2}}}, {"b", {{kTiny, kTiny}, {1e308, 1}}}}));
  for (const char* word : {"inf", "nan"}) EXPECT_THAT(svg, Not(HasSubstr(word)));
  EXPECT_THAT(labels(svg, "x"), ElementsAre("-1e+300", "-5e+299", "0", "5e+299", "1e+300"));
  EXPECT_THAT(labels(to_svg(chart_of({{"a", {{0, kTiny}, {kTiny, kTiny}}}})), "y").front(), "0.0");
}

TEST(SvgChart, AMillionPointsAreASmallDrawing) {
  ChartSeries series{"a", {}};
  for (int i = 0; i < 1'000'000; ++i) series.points.push_back({static_cast<double>(i), static_cast<double>(i % 1'000)});
  Chart chart = chart_of({series});
  EXPECT_LT(to_svg(chart).size(), 40'000U);  // a thousand times "H123.4V123.4", and the axes
  chart.mark = ChartMark::dots;
  EXPECT_LT(to_svg(chart).size(), 40'000U);
}

}  // namespace
}  // namespace spillway
