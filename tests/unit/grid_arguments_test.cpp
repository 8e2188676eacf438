// The size of a grid that a command takes.
#include "sim/cli/grid_arguments.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "sim/core/error.hpp"

namespace spillway {
namespace {

TEST(GridArguments, AGridOfExactlyTheLargestSizeIsTaken) {
  const auto read = [](std::int64_t most) {
    return cli::grid_arguments({"seed=1,2", "workload.rate=1,2,3"}, {}, {}, {}, {.most_points = most});
  };
  EXPECT_NO_THROW((void)read(6));
  EXPECT_THROW((void)read(5), ConfigError);
}

// A variable sets a value for every point; only arguments and files have lists.
TEST(GridArguments, AVariableIsOneValueWhateverItsText) {
  ASSERT_EQ(::setenv("SPILLWAY_WORKLOAD_RATE", "1,2,3", 1), 0);
  std::string refusal;
  try {
    (void)cli::grid_arguments({"seed=1,2"}, {}, {}, {}, {.most_points = 2});
  } catch (const ConfigError& error) {
    refusal = error.what();
  }
  ASSERT_EQ(::unsetenv("SPILLWAY_WORKLOAD_RATE"), 0);
  EXPECT_EQ(refusal.find("the grid has"), std::string::npos) << refusal;
}

}  // namespace
}  // namespace spillway
