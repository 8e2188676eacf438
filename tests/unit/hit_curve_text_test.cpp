// The text of experts.hit_curve, and what is refused.
#include "sim/study/hit_curve_text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "sim/core/error.hpp"

namespace spillway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(HitCurveText, ReadsPoints) {
  EXPECT_THAT(parse_hit_curve("64:0.67,128:0.81", 512).points(),
              ElementsAre(HitCurve::Point{64, 0.67}, HitCurve::Point{128, 0.81}));
  EXPECT_THAT(parse_hit_curve("4:0.5,6:0.5,8:1", 8).points(),
              ElementsAre(HitCurve::Point{4, 0.5}, HitCurve::Point{6, 0.5}, HitCurve::Point{8, 1.0}));
}

TEST(HitCurveText, NamesThePointAtFault) {
  const std::vector<std::pair<std::string, std::string>> faults{
      {"", "point \"\" is not SLOTS:SHARE"},
      {"4", "point \"4\" is not SLOTS:SHARE"},
      {"4:0.5,", "point \"\" is not SLOTS:SHARE"},
      {"4:0.5,x:0.6", "point \"x:0.6\" is not SLOTS:SHARE"},
      {"4:0.5:1", "point \"4:0.5:1\" is not SLOTS:SHARE"},
      {"4.5:0.5", "point \"4.5:0.5\" is not SLOTS:SHARE"},
      {"0:0", "point \"0:0\" has 0 slots, and a layer has 8 experts"},
      {"4:0.5,9:0.7", "point \"9:0.7\" has 9 slots, and a layer has 8 experts"},
      {"4:1.1", "point \"4:1.1\" has the share 1.1"},
      {"4:-0.1", "point \"4:-0.1\" has the share -0.1"},
      {"4:0.5,8:0.9", "point \"8:0.9\" has a slot for each of the 8 experts"},
      {"4:0.5,4:0.6", "point \"4:0.6\" comes after a point with 4 slots"},
      {"4:0.5,3:0.6", "point \"3:0.6\" comes after a point with 4 slots"},
      {"4:0.5,6:0.4", "point \"6:0.4\" falls below the share 0.5 of 4 slots"},
  };
  for (const auto& [text, message] : faults) {
    try {
      static_cast<void>(parse_hit_curve(text, 8));
      ADD_FAILURE() << text;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr(message)) << text;
      EXPECT_EQ(error.problems().front().where, "experts.hit_curve");
    }
  }
}

}  // namespace
}  // namespace spillway
