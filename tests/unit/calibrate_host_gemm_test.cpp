#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>
#include <vector>

#include "cuda_calibrate/host/host_backend.hpp"
#include "cuda_calibrate/host/host_gemm.hpp"

namespace spillway::calibrate {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

/// The CPUs of this machine, repeated: more threads than CPUs test the division of the work.
std::vector<Cpu> some_cpus(std::size_t count) {
  const std::vector<Cpu> cpus = usable_cpus();
  std::vector<Cpu> some;
  for (std::size_t i = 0; i < count; ++i) some.push_back(cpus[i % cpus.size()]);
  return some;
}

/// The definition, in double. All numbers are multiples of 2^-7 in [-1, 1): sums of up to 1024 products are exact in
/// fp32 in any order, as multiples of 2^-14 below 2^10 in 24 bits.
double defined(const HostProduct& product, const HostGemm& point, std::int64_t expert, std::int64_t row,
               std::int64_t output) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < point.inputs; ++i) {
    const auto at = static_cast<std::size_t>(i);
    sum += double{product.x(row)[at]} * double{product.weights(expert, output)[at]};
  }
  return sum;
}

void expect_product(const HostProduct& product, const HostGemm& point, std::int64_t expert) {
  for (std::int64_t row = 0; row < point.rows; ++row) {
    for (std::int64_t output = 0; output < point.outputs; ++output) {
      ASSERT_EQ(double{product.y(row)[static_cast<std::size_t>(output)]}, defined(product, point, expert, row, output))
          << "row " << row << " output " << output;
    }
  }
}

TEST(HostProduct, EveryKernel_ComputesTheDefinition) {
  for (const ProductKernel& kernel : product_kernels()) {
    for (const std::size_t threads : {1U, 3U, 4U}) {
      // One row; fewer outputs than threads; tiles along the outputs, along the rows, and both; odd remainders.
      for (const auto& [rows, inputs, outputs] :
           {std::tuple(1, 70, 37), {1, 16, 2}, {4, 129, 40}, {33, 65, 5}, {50, 1024, 50}}) {
        const HostGemm point{rows, inputs, outputs, 2, static_cast<std::int64_t>(threads)};
        SCOPED_TRACE(fmt::format("{} {} threads {} {} {}", kernel.extension, threads, rows, inputs, outputs));
        HostProduct product(point, kernel, some_cpus(threads), 7);
        EXPECT_GT(product.run(1), 0.0);
        expect_product(product, point, 0);
      }
    }
  }
}

// Calls use the matrices in turn: after 4 of 3 the last call used matrix 0 again, after 5 matrix 1.
TEST(HostProduct, Calls_UseTheExpertsInTurn) {
  const HostGemm point{2, 64, 8, 3, 2};
  HostProduct product(point, product_kernels().front(), some_cpus(2), 1);
  EXPECT_EQ(product.next(), 0);
  (void)product.run(4);
  expect_product(product, point, 0);
  EXPECT_EQ(product.next(), 1);
  (void)product.run(1);
  expect_product(product, point, 1);
  EXPECT_NE(product.weights(0, 0)[0], product.weights(1, 0)[0]);
}

// Rows and outputs of a tile, for 1 x 768 on 8 threads: 1 + 96 with one part along the rows, and more rows make no
// tile smaller. For 4096 x 768: 4096 + 96, 2048 + 192, 1024 + 384, 512 + 768: four parts would be 1408, eight 1280.
// 100 x 100 on 6: 100 + 16.7, 50 + 33.3, 33.3 + 50, 16.7 + 100: two parts, the first of the two best.
TEST(HostProduct, Tiles_HaveTheFewestRowsAndOutputs) {
  EXPECT_EQ(parts_along_rows(1, 768, 8), 1);
  EXPECT_EQ(parts_along_rows(4096, 768, 8), 8);
  EXPECT_EQ(parts_along_rows(100, 100, 6), 2);
  EXPECT_EQ(parts_along_rows(4096, 2048, 1), 1);
  // 512 x 4096 on 7: 512 + 585, or 73 + 4096.
  EXPECT_EQ(parts_along_rows(512, 4096, 7), 1);
}

TEST(HostProduct, Socket_IsTheOneWithMostCpus) {
  const std::vector<Cpu> cpus{{0, 0, 0, 0}, {1, 1, 0, 1}, {2, 2, 1, 1}, {3, 3, 1, 2}, {4, 4, 1, 2}};
  const auto ids = [](const std::vector<Cpu>& some) {
    std::vector<int> all;
    for (const Cpu& cpu : some) all.push_back(cpu.id);
    return all;
  };
  EXPECT_THAT(ids(on_one_socket(cpus)), ElementsAre(1, 2));
  EXPECT_TRUE(on_one_socket({}).empty());
}

TEST(HostGemmCase, RunsForReal) {
  const auto backend = make_host_backend(1);
  const auto measured = backend->prepare(HostGemm{4, 64, 32, 2, 1});
  EXPECT_GE(measured->most_calls(), 1000);
  const std::vector<double> seconds = measured->sample(3);
  ASSERT_EQ(seconds.size(), 1U);
  EXPECT_GT(seconds[0], 0.0);
  EXPECT_TRUE(std::isfinite(seconds[0]));
  EXPECT_THAT(measured->kernel(), StartsWith("eigen-3."));
  EXPECT_THAT(measured->kernel(), testing::EndsWith(product_kernels().front().extension));
}

std::string unsupported(const HostGemm& point) {
  try {
    (void)make_host_backend(1)->prepare(point);
  } catch (const Unsupported& reason) {
    return reason.what();
  } catch (const OutOfMemory& reason) {
    return reason.what();
  }
  return "";
}

TEST(HostGemmCase, WhatCannotBeComputed_IsSaid) {
  EXPECT_EQ(unsupported({0, 64, 32, 1, 1}), "0 rows leave nothing to compute");
  EXPECT_EQ(unsupported({1, 64, 32, 0, 1}), "0 experts leave nothing to compute");
  EXPECT_EQ(unsupported({1, -1, 32, 1, 1}), "-1 inputs leave nothing to compute");
  EXPECT_THAT(unsupported({1, 64, 32, 1, 100'000}), HasSubstr("100000 threads were requested"));
  // x of 2 numbers, y of 1, and 2^40 matrices of 2: 4 x (3 + 2^41) bytes.
  EXPECT_THAT(unsupported({1, 2, 1, std::int64_t{1} << 40U, 1}), HasSubstr("8796093022220 bytes of host memory"));
}

}  // namespace
}  // namespace spillway::calibrate
