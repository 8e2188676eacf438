// What the GPUs of a run cost (sim/study/prices.hpp).
#include "sim/study/prices.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_file.hpp"

namespace spillway {
namespace {

using testing::HasSubstr;

Settings price(const std::string& value) {
  Settings settings;
  settings.set(kPriceKey, value);
  return settings;
}

RunStatistics run_at(std::optional<double> tokens_per_second) {
  RunStatistics run;
  run.metrics.push_back(
      {.name = "output_throughput_tokens_per_s", .unit = "tokens/s", .value = tokens_per_second, .n = 7});
  return run;
}

// 4 GPUs at 2.5 per hour are 10 per hour; 1,000 tokens/s are 3.6 million tokens per hour: 10 / 3.6 = 2.777...
// 4 GPUs of 700 W draw 2.8 kW: 2.8 kWh / 3.6 = 0.777...
TEST(Prices, AreSharedByTheTokensOfAnHour) {
  RunStatistics run = run_at(1000.0);
  add_costs({.price = Price{.per_gpu_hour = 2.5}, .watts = 700.0, .gpus = 4}, run);
  ASSERT_EQ(run.metrics.size(), 3U);
  EXPECT_EQ(run.metrics[1].name, "cost_per_million_output_tokens");
  EXPECT_DOUBLE_EQ(run.metrics[1].value.value(), 10.0 / 3.6);
  EXPECT_EQ(run.metrics[1].n, 7);
  EXPECT_EQ(run.metrics[2].name, "energy_kwh_per_million_output_tokens");
  EXPECT_DOUBLE_EQ(run.metrics[2].value.value(), 2.8 / 3.6);
}

TEST(Prices, AreAbsentWithoutAPriceAndWithoutTokens) {
  RunStatistics run = run_at(1000.0);
  add_costs({.gpus = 4}, run);
  EXPECT_EQ(run.metrics.size(), 1U);
  for (const auto& none : {std::optional<double>(), std::optional(0.0)}) {
    RunStatistics idle = run_at(none);
    add_costs({.price = Price{.per_gpu_hour = 2.5}, .gpus = 1}, idle);
    ASSERT_EQ(idle.metrics.size(), 2U);
    EXPECT_FALSE(idle.metrics[1].value);
  }
}

TEST(Prices, ANumberIsThePriceOfAGpu) {
  const GpuPrices read = read_prices(price("2.5"), "h100-80gb-sxm", "h100-80gb-sxm");
  EXPECT_EQ(read.price.value().per_gpu_hour, 2.5);
  EXPECT_FALSE(read.watts);
  EXPECT_EQ(price_text({.price = read.price, .gpus = 1}), "2.5 per GPU and hour, 1 GPU");
  EXPECT_EQ(price_text({.price = read.price, .gpus = 8}), "2.5 per GPU and hour, 8 GPUs");
  EXPECT_EQ(price_text({.gpus = 8}), "");
  for (const char* bad : {"0", "-1", "cheap", "2.5 USD", "nan", "inf", "1e7", "prices.csv"}) {
    EXPECT_THROW(static_cast<void>(read_prices(price(bad), "gpu", "gpu")), ConfigError) << bad;
  }
}

constexpr const char* kPrices = R"({"prices": [
  {"hardware": "H100", "price_per_hour": 3.0, "date": "2025-12-31", "source": "old"},
  {"hardware": "h100-80gb-sxm", "price_per_hour": 2.5, "date": "2026-01-02", "source": "new"},
  {"hardware": "hgx-h100-8", "price_per_hour": 2, "date": "2024-02-29", "source": "server"},
  {"hardware": "mine", "price_per_hour": 1, "date": "2026-01-01", "source": "own"}]})";

TEST(Prices, TheLatestPriceOfTheServerOrElseOfItsGpuCounts) {
  const TempFile file(kPrices, ".json");
  const auto of = [&](const char* hardware, const char* gpu) {
    return read_prices(price(file.path()), hardware, gpu).price.value();
  };
  EXPECT_EQ(of("h100-80gb-sxm", "h100-80gb-sxm").per_gpu_hour, 2.5);
  EXPECT_EQ(of("h100-80gb-sxm", "h100-80gb-sxm").source, "new, 2026-01-02");
  EXPECT_EQ(of("hgx-h100-8", "h100-80gb-sxm").per_gpu_hour, 2.0);
  EXPECT_EQ(of("hgx-h100-8-node", "h100-80gb-sxm").per_gpu_hour, 2.5) << "no price of the server";
  EXPECT_EQ(of("mine", "mine").per_gpu_hour, 1.0) << "a file of the user's";
  EXPECT_THROW(static_cast<void>(of("a10-24gb", "a10-24gb")), DataError);
}

TEST(Prices, AGpuMayBeNamedAsItsDriverDoes) {
  const TempFile file(R"({"prices": [
    {"hardware": "NVIDIA H100 80GB HBM3", "price_per_hour": 2.5, "date": "2026-01-02", "source": "smi"},
    {"hardware": "my-h100", "price_per_hour": 1, "date": "2026-01-02", "source": "mine"}]})",
                      ".json");
  const auto of = [&](const char* hardware) {
    return read_prices(price(file.path()), hardware, hardware).price.value().per_gpu_hour;
  };
  EXPECT_EQ(of("h100-80gb-sxm"), 2.5);
  EXPECT_EQ(of("my-h100"), 1.0) << "a user's own hardware keeps its name";
}

std::string problems_of(const std::string& content) {
  const TempFile file(content, ".json");
  try {
    static_cast<void>(read_prices(price(file.path()), "h100-80gb-sxm", "h100-80gb-sxm"));
  } catch (const DataError& error) {
    std::string text;
    for (const Problem& problem : error.problems()) text += problem.what + " at " + problem.where + "\n";
    return text;
  }
  return "";
}

TEST(Prices, FaultyFilesAreAnswered) {
  EXPECT_THAT(problems_of("{"), HasSubstr("is not JSON"));
  EXPECT_THAT(problems_of("[]"), HasSubstr("holds no list \"prices\""));
  EXPECT_THAT(problems_of(R"({"prices": []})"), HasSubstr("holds no price"));
  EXPECT_THAT(problems_of(R"({"prices": [], "price": 1})"), HasSubstr("unknown field \"price\""));
  const std::string many = problems_of(R"({"prices": [
    {"hardware": "h100", "price_per_hour": 0, "date": "2026-02-30", "source": "s"},
    {"hardware": "h100", "price_per_hour": "2", "date": "2026-02-01"},
    {"hardware": "h100", "price_per_hour": 2, "date": "2026-2-1", "source": "s", "usd": 1},
    7,
    {"hardware": "h100", "price_per_hour": 2, "date": "2026-02-01", "source": "s"},
    {"hardware": "H100", "price_per_hour": 3, "date": "2026-02-01", "source": "s"}]})");
  EXPECT_THAT(many, HasSubstr("must state price_per_hour, a number above 0"));
  EXPECT_THAT(many, HasSubstr("\"2026-02-30\" is not a date such as 2026-11-01"));
  EXPECT_THAT(many, HasSubstr("/prices/0/date"));
  EXPECT_THAT(many, HasSubstr("must state source, a text"));
  EXPECT_THAT(many, HasSubstr("\"2026-2-1\" is not a date"));
  EXPECT_THAT(many, HasSubstr("unknown field \"usd\""));
  EXPECT_THAT(many, HasSubstr("must be an object"));
  EXPECT_THAT(many, HasSubstr("a second price of h100-80gb-sxm on 2026-02-01"));
}

}  // namespace
}  // namespace spillway
