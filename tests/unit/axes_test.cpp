// Axes and grids: expected values are written out by hand from the rules in the header.
#include "sim/study/axes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>

namespace spillway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Parameter parameter(ParameterType type, const std::string& unit = "-") {
  Parameter one;
  one.name = "key";
  one.type = type;
  one.unit = unit;
  return one;
}

std::vector<std::string> values(const Parameter& of, const std::string& text) {
  std::vector<Problem> problems;
  auto found = axis_values(of, text, "here", problems);
  EXPECT_THAT(problems, IsEmpty()) << problems.front().what;
  return found;
}

std::string refusal(const Parameter& of, const std::string& text) {
  std::vector<Problem> problems;
  EXPECT_THAT(axis_values(of, text, "here", problems), IsEmpty());
  EXPECT_EQ(problems.size(), 1U) << text;
  return problems.empty() ? "" : problems.front().what;
}

const Parameter kReal = parameter(ParameterType::real);

TEST(AxisValues, ListsPartAtCommasOutsideOfBrackets) {
  EXPECT_THAT(values(kReal, "2,4, 8"), ElementsAre("2", "4", "8"));
  EXPECT_THAT(values(kReal, "2"), ElementsAre("2"));
  EXPECT_THAT(values(parameter(ParameterType::text, "tokens"), "lognormal(1500,0.8),200"),
              ElementsAre("lognormal(1500,0.8)", "200"));
}

TEST(AxisValues, RangesAddOrMultiply) {
  EXPECT_THAT(values(kReal, "2:8:2"), ElementsAre("2", "4", "6", "8"));
  EXPECT_THAT(values(kReal, "2:9:2"), ElementsAre("2", "4", "6", "8"));  // 10 is beyond
  EXPECT_THAT(values(kReal, "1:16:x2"), ElementsAre("1", "2", "4", "8", "16"));
  EXPECT_THAT(values(kReal, "1:15:x2"), ElementsAre("1", "2", "4", "8"));
  EXPECT_THAT(values(kReal, "3:3:1"), ElementsAre("3"));
  EXPECT_THAT(values(kReal, "1:3:1,10"), ElementsAre("1", "2", "3", "10"));
  EXPECT_THAT(values(parameter(ParameterType::integer), "1:1000:x10"), ElementsAre("1", "10", "100", "1000"));
}

TEST(AxisValues, TenthsAreTenths) {
  // 0.1 + 2 * 0.1 is 0.30000000000000004 in binary, and (0.5 - 0.1) / 0.1 is 4 exactly or a little less.
  EXPECT_THAT(values(kReal, "0.1:0.5:0.1"), ElementsAre("0.1", "0.2", "0.3", "0.4", "0.5"));
}

TEST(AxisValues, RangesOfSizesAndTimesKeepTheirUnits) {
  EXPECT_THAT(values(parameter(ParameterType::bytes), "10GB:30GB:10GB"), ElementsAre("10GB", "20GB", "30GB"));
  EXPECT_THAT(values(parameter(ParameterType::bytes), "1GiB:4GiB:x2"), ElementsAre("1GiB", "2GiB", "4GiB"));
  EXPECT_THAT(values(parameter(ParameterType::duration), "500ms:1500ms:500ms"), ElementsAre("500ms", "1s", "1500ms"));
}

TEST(AxisValues, AColonElsewhereIsACharacter) {
  EXPECT_THAT(values(parameter(ParameterType::text), "gpt2:folder:x2"), ElementsAre("gpt2:folder:x2"));
  EXPECT_THAT(values(parameter(ParameterType::text), "a:1:2"), ElementsAre("a:1:2"));
  EXPECT_THAT(values(kReal, "1:2"), ElementsAre("1:2"));  // not a range: the key's own check reports it
  EXPECT_THAT(values(kReal, "1:x:2"), ElementsAre("1:x:2"));
}

TEST(AxisValues, KeysThatTakeListsHaveOneValue) {
  Parameter conditions = parameter(ParameterType::text);
  conditions.takes_list = true;
  EXPECT_THAT(values(conditions, "p99_ttft_ms<1000,p99_itl_ms<100"), ElementsAre("p99_ttft_ms<1000,p99_itl_ms<100"));
}

TEST(AxisValues, AFileWithACommaInItsNameIsOneValue) {
  const auto path = std::filesystem::path(testing::TempDir()) / "a,b.csv";
  std::ofstream(path) << "x";
  EXPECT_THAT(values(parameter(ParameterType::text), path.string()), ElementsAre(path.string()));
  std::filesystem::remove(path);
}

TEST(AxisValues, RefusalsSayWhy) {
  EXPECT_THAT(refusal(kReal, "5:1:1"), HasSubstr("holds no value"));
  EXPECT_THAT(refusal(kReal, "1:5:0"), HasSubstr("step must be above 0"));
  EXPECT_THAT(refusal(kReal, "1:5:-1"), HasSubstr("step must be above 0"));
  EXPECT_THAT(refusal(kReal, "1:5:x1"), HasSubstr("factor must be above 1"));
  EXPECT_THAT(refusal(kReal, "0:5:x2"), HasSubstr("must begin above 0"));
  EXPECT_THAT(refusal(kReal, "1:1e12:1e-3"), HasSubstr("it holds 999999999999001 values, more than 10000000"));
  EXPECT_THAT(refusal(kReal, "1,,2"), HasSubstr("empty value"));
  EXPECT_THAT(refusal(kReal, "1,"), HasSubstr("empty value"));
  EXPECT_THAT(refusal(kReal, "1,2,1"), HasSubstr("the value 1 is given twice"));
  EXPECT_THAT(refusal(kReal, "1:4:1,2"), HasSubstr("the value 2 is given twice"));
}

Axis axis(const std::string& key, const std::vector<std::string>& texts) {
  Axis one{{key}, {}};
  for (const std::string& text : texts) one.values.push_back({text});
  return one;
}

TEST(Grid, TheLastAxisVariesFastest) {
  const Grid grid({axis("a", {"1", "2"}), axis("b", {"x", "y", "z"})});
  EXPECT_EQ(grid.size(), 6);
  EXPECT_THAT(grid.keys(), ElementsAre("a", "b"));
  EXPECT_THAT(grid.values(0), ElementsAre("1", "x"));
  EXPECT_THAT(grid.values(2), ElementsAre("1", "z"));
  EXPECT_THAT(grid.values(3), ElementsAre("2", "x"));
  EXPECT_THAT(grid.values(5), ElementsAre("2", "z"));
}

TEST(Grid, WithoutAxesThereIsOnePoint) {
  EXPECT_EQ(Grid({}).size(), 1);
  EXPECT_THAT(Grid({}).values(0), IsEmpty());
}

TEST(Grid, SizesBeyond64BitsAreTheLargest) {
  std::vector<std::string> thousand(1000);
  std::vector<Axis> axes(7, axis("a", thousand));  // 10^21
  EXPECT_EQ(Grid(axes).size(), std::numeric_limits<std::int64_t>::max());
  axes.resize(6);
  EXPECT_EQ(Grid(axes).size(), 1'000'000'000'000'000'000);
}

TEST(ZipAxes, JoinedKeysTakeTheirValuesTogether) {
  std::vector<Axis> axes{axis("a", {"1", "2"}), axis("b", {"x", "y"}), axis("c", {"p", "q"})};
  std::vector<Problem> problems;
  zip_axes("c,a", "--zip c,a", axes, problems);
  EXPECT_THAT(problems, IsEmpty());
  const Grid grid(axes);  // b, then c and a together at c's place
  EXPECT_EQ(grid.size(), 4);
  EXPECT_THAT(grid.keys(), ElementsAre("b", "c", "a"));
  EXPECT_THAT(grid.values(0), ElementsAre("x", "p", "1"));
  EXPECT_THAT(grid.values(1), ElementsAre("x", "q", "2"));
  EXPECT_THAT(grid.values(2), ElementsAre("y", "p", "1"));
}

// b and d join a; c and e stay. If b left first, position 3 would no longer be d.
TEST(ZipAxes, ThreeKeysInAnyOrderLeaveTheOthersAlone) {
  std::vector<Axis> axes{axis("a", {"1", "2"}), axis("b", {"x", "y"}), axis("c", {"p", "q"}), axis("d", {"s", "t"}),
                         axis("e", {"u", "v"})};
  std::vector<Problem> problems;
  zip_axes("a,b,d", "--zip", axes, problems);
  EXPECT_THAT(problems, IsEmpty());
  const Grid grid(axes);
  EXPECT_THAT(grid.keys(), ElementsAre("a", "b", "d", "c", "e"));
  EXPECT_EQ(grid.size(), 8);
  EXPECT_THAT(grid.values(0), ElementsAre("1", "x", "s", "p", "u"));
  EXPECT_THAT(grid.values(7), ElementsAre("2", "y", "t", "q", "v"));
}

TEST(AxisSize, CountsWithoutMakingTheValues) {
  EXPECT_EQ(axis_size(kReal, "2,4,8"), 3);
  EXPECT_EQ(axis_size(kReal, "2"), 1);
  EXPECT_EQ(axis_size(kReal, "1:3:1,10"), 4);
  EXPECT_EQ(axis_size(kReal, "1:1e12:1"), 1'000'000'000'000);
  EXPECT_EQ(axis_size(kReal, "1:16:x2"), 5);
  EXPECT_EQ(axis_size(kReal, "5:1:1"), 1) << "a fault, which axis_values tells";
  EXPECT_EQ(saturating_product(3, 4), 12);
  EXPECT_EQ(saturating_product(4'000'000'000, 4'000'000'000), std::numeric_limits<std::int64_t>::max());
}

TEST(ZipAxes, RefusesWhatCannotGoTogether) {
  const auto refused = [](const std::string& zip) {
    std::vector<Axis> axes{axis("a", {"1", "2"}), axis("b", {"x", "y", "z"}), {{"c", "d"}, {{"1", "2"}, {"3", "4"}}}};
    std::vector<Problem> problems;
    zip_axes(zip, "--zip", axes, problems);
    EXPECT_EQ(problems.size(), 1U) << zip;
    return problems.empty() ? std::string() : problems.front().what;
  };
  EXPECT_THAT(refused("a,e"), HasSubstr("\"e\" does not have several values"));
  EXPECT_THAT(refused("a,b"), HasSubstr("a has 2 values and b has 3"));
  EXPECT_THAT(refused("a"), HasSubstr("nothing to zip it with"));
  EXPECT_THAT(refused("a,a"), HasSubstr("zipped twice"));
  EXPECT_THAT(refused("a,c"), HasSubstr("\"c\" is zipped twice"));
}

TEST(Shard, EveryPointBelongsToOneShard) {
  for (const std::int64_t points : {0, 1, 7, 8}) {
    std::int64_t sum = 0;
    for (std::int64_t i = 1; i <= 3; ++i) {
      const Shard shard{i, 3};
      std::int64_t held = 0;
      for (std::int64_t p = 0; p < points; ++p) held += shard.holds(p) ? 1 : 0;
      EXPECT_EQ(shard.size(points), held) << i << " of " << points;
      sum += held;
    }
    EXPECT_EQ(sum, points);
  }
}

}  // namespace
}  // namespace spillway
