// The size of a grid that a command takes.
#include "sim/cli/grid_arguments.hpp"

#include <gtest/gtest.h>

#include <cstdint>

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

}  // namespace
}  // namespace spillway
