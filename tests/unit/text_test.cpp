#include "sim/core/text.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

namespace spillway {
namespace {

TEST(Text, NearestNameIsTheOneAtTheSmallestDistance) {
  const std::vector<std::string> names{"arrival", "rate", "requests", "cv"};
  EXPECT_EQ(nearest_name("arival", names), "arrival");
  EXPECT_EQ(nearest_name("request", names), "requests");
  EXPECT_EQ(nearest_name("rat", names), "rate");
  EXPECT_EQ(nearest_name("", names), "cv") << "two letters may be missing";
  EXPECT_EQ(nearest_name("abef", std::vector<std::string>{"abcdef"}), "abcdef") << "two letters are missing";
  EXPECT_EQ(nearest_name("c", std::vector<std::string>{"cvwx"}), "") << "three letters may not be missing";
  // The distance may be up to a third of the word's length, also when only the lengths differ.
  EXPECT_EQ(nearest_name("abcdefghi", std::vector<std::string>{"abcdef"}), "abcdef");
  EXPECT_EQ(nearest_name("abcdefghi", std::vector<std::string>{"abcde"}), "");
}

TEST(Text, QuantitiesAreRoundedToWholeBytesAndNanoseconds) {
  EXPECT_EQ(parse_bytes("3KiB"), Bytes(3072));
  EXPECT_EQ(parse_bytes("3kB"), Bytes(3000));
  EXPECT_EQ(parse_duration("0.0026us"), Duration(3));
  EXPECT_EQ(parse_duration("0.0024us"), Duration(2));
}

// Found by fuzzing: the search used to compare each candidate with the whole word.
TEST(Text, NoNameIsSoughtNearAWordOfMegabytes) {
  const std::vector<std::string> names(50, "engine.max_num_batched_tokens");
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(nearest_name(std::string(std::size_t{16} << 20U, 'a'), names), "");
  // Comparing would take 50 * 29 * 16 Mi steps, some 30 s.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

}  // namespace
}  // namespace spillway
