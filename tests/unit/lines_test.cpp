#include "sim/io/lines.hpp"

#include <gtest/gtest.h>

#include <string>

namespace spillway {
namespace {

// The label takes 13 columns. With a word of 43 and a space, 43 more make 100; 44 make 101.
TEST(Lines, BreakBeforeTheWordThatEndsBeyondColumn100) {
  const std::string first(43, 'a');
  Lines fits;
  fits.add("label", first + " " + std::string(43, 'b'));
  EXPECT_EQ(fits.size(), 1U);
  EXPECT_EQ(fits.text().size(), 101U);  // with the end of the line
  Lines wraps;
  wraps.add("label", first + " " + std::string(44, 'b'));
  EXPECT_EQ(wraps.size(), 2U);
}

}  // namespace
}  // namespace spillway
