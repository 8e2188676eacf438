#include "hwmodels/calibration/host_gemm_rates.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "hwmodels/calibration/host_writer.hpp"

namespace spillway::hwmodels {
namespace {

using testing::HasSubstr;

/// Two sockets, whose threads read 400e9 bytes/s together: 200e9 on one.
Measurements two_sockets() {
  Measurements in;
  in.files.push_back({"some/folder/rows.json", std::string(64, 'a'), "measurements-json", 0, {}});
  in.machine.sockets = 2;
  in.host_streams = {{1, 1'000'000'000, 1.0 / 20, {0, 1}}, {64, 1'000'000'000, 1.0 / 400, {0, 2}}};
  return in;
}

/// A product of 2 rows 1e6 FLOP at `flops`, with weights of 1e6 numbers; `inputs` divides 1e6.
HostGemmRow product_at(std::int64_t rows, std::int64_t inputs, double flops, std::int64_t bytes = 4) {
  return {rows, inputs, 1'000'000 / inputs, 32, bytes, 2e6 * static_cast<double>(rows) / flops, {0, 7}};
}

// 64 rows at 0.5, 1 and 2e12 FLOP/s read the 4e6 bytes of their weights at 15.6, 31.3 and 62.5e9 bytes/s, less than
// half of 200e9: the median is 1e12. At 4e12 they read 125e9, more than half. One row at 8e10 reads 160e9 bytes/s: 80%.
TEST(HostGemmRates, Rates_AreMediansOfWhatIsNotBoundByMemory) {
  Measurements in = two_sockets();
  in.host_gemms = {product_at(4096, 1000, 3e12), product_at(64, 1000, 1e12), product_at(64, 500, 2e12),
                   product_at(64, 250, 0.5e12),  product_at(64, 125, 4e12),  product_at(1, 1000, 8e10),
                   product_at(16, 1000, 9e11)};
  const std::vector<HostGemmRate> rates = host_gemm_rates(in);
  ASSERT_EQ(rates.size(), 3U);  // no host's file has a rate of 16 rows
  EXPECT_EQ(rates[0].rows, 1);
  EXPECT_FALSE(rates[0].flops);
  EXPECT_EQ(rates[0].citation,
            "bound by memory: weights are read at 1.6e+11 bytes/s, 80% of what the threads of a socket read; products "
            "of 1 rows with weights of 1000 x 1000 in fp32, slower than kernels for 16-bit weights, 32 threads: "
            "rows.json (1 rows, sha256 aaaaaaaaaaaa)");
  EXPECT_EQ(rates[1].rows, 64);
  EXPECT_DOUBLE_EQ(rates[1].flops.value(), 1e12);
  EXPECT_THAT(rates[1].citation, testing::StartsWith("median of products of 64 rows with weights of 1000 x 1000, 250 x "
                                                     "4000, 500 x 2000 in fp32"));
  EXPECT_EQ(rates[2].rows, 4096);
  EXPECT_DOUBLE_EQ(rates[2].flops.value(), 3e12);
}

// 512 rows at 3 and 5e12: their mean. Rows in 16 bits replace those in fp32. One row
// in 16 bits is bound above 100e9 bytes/s.
TEST(HostGemmRates, Rates_WhenInTwoFormats_ThenAreThoseOf16Bits) {
  Measurements in = two_sockets();
  in.host_gemms = {product_at(512, 1000, 3e12), product_at(512, 500, 5e12), product_at(4096, 1000, 3e12),
                   product_at(4096, 1000, 9e12, 2)};
  std::vector<HostGemmRate> rates = host_gemm_rates(in);
  ASSERT_EQ(rates.size(), 2U);
  EXPECT_DOUBLE_EQ(rates[0].flops.value(), 4e12);
  EXPECT_DOUBLE_EQ(rates[1].flops.value(), 9e12);
  EXPECT_THAT(rates[1].citation, HasSubstr("1000 x 1000 in 16 bits, 32 threads: rows.json (1 rows"));
  in.host_gemms = {product_at(1, 1000, 1.01e11, 2)};  // in 2 bytes as many bytes/s as FLOP/s
  ASSERT_EQ(host_gemm_rates(in).size(), 1U);
  EXPECT_FALSE(host_gemm_rates(in)[0].flops);
  in.host_gemms = {product_at(1, 1000, 0.99e11, 2)};
  EXPECT_TRUE(host_gemm_rates(in)[0].flops);
}

// Without reads of host memory, nothing tells which products are bound by it.
TEST(HostGemmRates, Rates_WhenNoReadWasMeasured_ThenAllProductsCount) {
  Measurements in = two_sockets();
  in.host_streams.clear();
  in.host_gemms = {product_at(1, 1000, 8e10)};
  in.host_gemms[0].threads = 0;
  ASSERT_EQ(host_gemm_rates(in).size(), 1U);
  EXPECT_DOUBLE_EQ(host_gemm_rates(in)[0].flops.value(), 8e10);
  EXPECT_THAT(host_gemm_rates(in)[0].citation, HasSubstr("for 16-bit weights: rows.json"));
  EXPECT_TRUE(host_gemm_rates(two_sockets()).empty());
}

TEST(HostGemmValues, HaveTheFormOfAHostsFile) {
  Measurements in = two_sockets();
  in.host_gemms = {product_at(1, 1000, 8e10), product_at(512, 1000, 3e12)};
  const nlohmann::ordered_json values = host_gemm_values(in);
  ASSERT_EQ(values.size(), 2U);
  EXPECT_TRUE(values["gemm_flops_1_rows"]["value"].is_null());
  EXPECT_DOUBLE_EQ(values["gemm_flops_512_rows"]["value"].get<double>(), 3e12);
  EXPECT_EQ(values["gemm_flops_512_rows"]["unit"], "FLOP/s");
  EXPECT_EQ(values["gemm_flops_512_rows"]["source"]["kind"], "measured");
}

}  // namespace
}  // namespace spillway::hwmodels
