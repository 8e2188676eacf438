// How far the times of a run may be off (hwmodels/expected_error.hpp).
#include "hwmodels/expected_error.hpp"

#include <gtest/gtest.h>

namespace spillway::hwmodels {
namespace {

ErrorSummary off_by(double p95) { return {.n = 10, .median = p95 / 3.0, .p95 = p95, .bias = 0.0}; }

GpuProfile fitted() {
  GpuProfile gpu;
  gpu.fitted.gemm.emplace_back().record.held_out = off_by(0.10);
  gpu.fitted.decode_attention.emplace().record.held_out = off_by(0.20);
  gpu.fitted.prefill_attention.emplace().record.held_out = off_by(0.301);
  return gpu;
}

TEST(ExpectedError, KernelsGiveTheLargerOfTwo) {
  GpuProfile gpu = fitted();
  EXPECT_EQ(expected_error(gpu, "fitted").tpot, 0.20) << "of GEMM and decode attention";
  EXPECT_EQ(expected_error(gpu, "fitted").ttft, 0.301) << "of GEMM and prefill attention";
  EXPECT_EQ(expected_error_text(expected_error(gpu, "fitted")), "expect TPOT within 20%, TTFT 31%");
  gpu.fitted.gemm.front().record.held_out = off_by(0.40);
  EXPECT_EQ(expected_error(gpu, "fitted").tpot, 0.40);
  EXPECT_EQ(expected_error(gpu, "fitted").ttft, 0.40);
  // Whole iterations, where they were judged: errors of their kernels cancel.
  gpu.fitted.decode_iteration.emplace().held_out = off_by(0.072);
  EXPECT_EQ(expected_error(gpu, "fitted").tpot, 0.072);
  EXPECT_EQ(expected_error(gpu, "fitted").ttft, 0.40);
}

TEST(ExpectedError, WhatWasNotMeasuredHasNone) {
  GpuProfile gpu = fitted();
  gpu.fitted.prefill_attention->record.held_out = {};
  EXPECT_EQ(expected_error_text(expected_error(gpu, "fitted")), "expect TPOT within 20%");
  gpu.fitted.gemm.front().record.held_out = {};
  EXPECT_EQ(expected_error_text(expected_error(gpu, "fitted")), "no error was measured on this GPU");
  EXPECT_EQ(expected_error_text({.ttft = 0.05}), "expect TTFT within 5%");
  EXPECT_EQ(expected_error_text(expected_error(GpuProfile(), "roofline")), "no error was measured on this GPU");
}

TEST(ExpectedError, LentKernelsHaveTheErrorOfTheLender) {
  GpuProfile gpu = fitted();
  gpu.fitted_from = "other";
  EXPECT_EQ(expected_error_text(expected_error(gpu, "fitted")),
            "uncalibrated: at best TPOT within 20%, TTFT 31%, the error on other, whose kernels this profile borrows");
}

TEST(ExpectedError, TheAnalyticModelHasItsOwn) {
  GpuProfile gpu = fitted();
  EXPECT_FALSE(expected_error(gpu, "roofline").tpot) << "it was not compared with the kernels";
  gpu.fitted.gemm.front().record.roofline = off_by(0.5);
  gpu.fitted.decode_attention->record.roofline = off_by(0.6);
  gpu.fitted.prefill_attention->record.roofline = off_by(0.4);
  EXPECT_EQ(expected_error(gpu, "roofline").tpot, 0.6);
  EXPECT_EQ(expected_error(gpu, "roofline").ttft, 0.5);
  gpu.fitted.decode_attention->record.source_kind = "borrowed";
  EXPECT_FALSE(expected_error(gpu, "roofline").tpot) << "it was compared with another GPU's";
}

TEST(ExpectedError, LoggedLayersAndIterationsHaveOneForBoth) {
  GpuProfile gpu;
  gpu.fitted.iteration.emplace().record.held_out = off_by(0.08);
  EXPECT_EQ(expected_error(gpu, "iterations").tpot, 0.08);
  EXPECT_EQ(expected_error(gpu, "iterations").ttft, 0.08);
  gpu.fitted.layers.emplace().record.held_out = off_by(0.02);
  EXPECT_EQ(expected_error(gpu, "tables").tpot, 0.02);
  gpu.fitted.layer_attention.emplace().held_out = off_by(0.05);
  EXPECT_EQ(expected_error(gpu, "tables").ttft, 0.05);
}

// hwmodels/profiles/h100-80gb-sxm.json: decode_iteration 2.6% / 7.2%, gemm 4.7% / 17.8%, prefill_attention 4.8%
// / 20.0%.
TEST(ExpectedError, OfTheDefaultGpu) {
  const ExpectedError error = expected_error(load_gpu("h100-80gb-sxm"), "fitted");
  EXPECT_NEAR(error.tpot.value(), 0.072, 0.0005);
  EXPECT_NEAR(error.ttft.value(), 0.200, 0.0005);
}

}  // namespace
}  // namespace spillway::hwmodels
