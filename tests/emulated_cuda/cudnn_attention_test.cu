// Decode attention by a libcudnn that checks its calls (immediate_cudnn.hpp), and by Spillway's kernel when libcudnn
// fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "cuda_calibrate/measure/backend.hpp"
#include "tests/emulated_cuda/immediate_cuda.hpp"
#include "tests/emulated_cuda/immediate_cudnn.hpp"

namespace spillway::calibrate {
namespace {

using emulated::cudnn;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;

auto about(double seconds) { return DoubleNear(seconds, seconds * 1e-4); }

const DecodeAttention kPoint{Heads{4, 2, 64}, 2, 100, 1.0};

class CudnnAttention : public testing::Test {
 protected:
  void SetUp() override {
    emulated::machine() = {};
    cudnn() = {};
    cudnn().found = true;
    backend_ = make_backend(0, 1);
  }
  /// Every descriptor and handle must be freed, after failures too.
  void TearDown() override {
    backend_.reset();
    EXPECT_EQ(emulated::machine().living, 0);
  }
  /// Checks that Spillway's kernel ran, and returns the reported reason.
  std::string reason(const Point& point = kPoint) {
    const auto one = backend_->prepare(point);
    EXPECT_EQ(one->kernel(), "spillway");
    EXPECT_THAT(one->sample(10), ElementsAre(testing::Ge(0.999 * emulated::kAttention)));
    return one->note();
  }

  std::unique_ptr<Backend> backend_;
};

TEST_F(CudnnAttention, Decode_IsCudnnsWithPages) {
  for (const Number number : {Number::bf16, Number::fp16}) {
    for (const Heads& heads : {Heads{4, 4, 64}, Heads{8, 2, 128}}) {
      const auto one = backend_->prepare(DecodeAttention{heads, 3, 50, 2.0, number});
      EXPECT_EQ(one->kernel(), "cudnn-9.19 paged");
      EXPECT_EQ(one->note(), "");
      EXPECT_THAT(one->sample(10), ElementsAre(about(emulated::kCudnnAttention)));
    }
  }
}

TEST_F(CudnnAttention, Tensors_AsTheyLie) {
  const auto one = backend_->prepare(kPoint);
  // Four query heads of 64, one token each.
  for (const int id : {1, 4}) {
    EXPECT_THAT(cudnn().dimensions[id], ElementsAre(2, 4, 1, 64));
    EXPECT_THAT(cudnn().strides[id], ElementsAre(256, 64, 64, 1));
    EXPECT_EQ(cudnn().types[id], CUDNN_DATA_BFLOAT16);
  }
  // 101 tokens are seven pages of 2 x 16 x 64 numbers of 2 bytes. 14 pages of keys and of values are 114688 bytes. 37
  // such sets (518 pages) exceed four times an L2 of 1 MiB.
  for (const int id : {2, 3}) {
    EXPECT_THAT(cudnn().dimensions[id], ElementsAre(518, 2, 16, 64));
    EXPECT_THAT(cudnn().strides[id], ElementsAre(2048, 1024, 64, 1));
  }
  for (const int id : {6, 7}) EXPECT_THAT(cudnn().dimensions[id], ElementsAre(2, 1, 1, 1));
  for (const int id : {8, 9}) {
    EXPECT_THAT(cudnn().dimensions[id], ElementsAre(2, 1, 7, 1));
    EXPECT_THAT(cudnn().strides[id], ElementsAre(7, 7, 1, 1));
    EXPECT_EQ(cudnn().types[id], CUDNN_DATA_INT32);
  }
  EXPECT_EQ(cudnn().tensors, 9);
}

TEST_F(CudnnAttention, Tensors_WithoutPages) {
  cudnn().engine_with_pages = false;
  const auto one = backend_->prepare(kPoint);
  EXPECT_EQ(one->kernel(), "cudnn-9.19");
  EXPECT_THAT(one->sample(100), ElementsAre(about(emulated::kCudnnAttention)));
  // Space for seven pages of each sequence.
  EXPECT_THAT(cudnn().dimensions[2], ElementsAre(2, 2, 112, 64));
  EXPECT_THAT(cudnn().strides[2], ElementsAre(14336, 7168, 64, 1));
  EXPECT_EQ(cudnn().tensors, 7);
}

TEST_F(CudnnAttention, EveryFormProvesItself_OncePerHeadsAndNumber) {
  (void)backend_->prepare(kPoint);
  // The trial, the first call, and the warm-up call.
  EXPECT_EQ(cudnn().executions, 3);
  (void)backend_->prepare(kPoint);
  EXPECT_EQ(cudnn().executions, 5);
  (void)backend_->prepare(DecodeAttention{kPoint.heads, 2, 100, 1.0, Number::fp16});
  EXPECT_EQ(cudnn().executions, 8);
}

TEST_F(CudnnAttention, WrongResultsWithPages_AreNotUsed) {
  cudnn().wrong_with_pages = true;
  EXPECT_EQ(backend_->prepare(kPoint)->kernel(), "cudnn-9.19");
}

TEST_F(CudnnAttention, WrongResults_OwnKernelRuns) {
  cudnn().wrong_with_pages = cudnn().wrong_without_pages = true;
  const std::string told = reason();
  EXPECT_THAT(told, HasSubstr("attention is not measured with cuDNN: with pages: number "));
  EXPECT_THAT(told, HasSubstr("; without pages: number "));
}

TEST_F(CudnnAttention, EnginesThatCannotBePlanned_TheNextOneIs) {
  cudnn().failing_plans = 1;
  EXPECT_EQ(backend_->prepare(kPoint)->kernel(), "cudnn-9.19 paged");
  cudnn().failing_plans = 2;
  EXPECT_THAT(reason(), HasSubstr("cudnnBackendFinalize of the plan: CUDNN_STATUS_NOT_SUPPORTED: as a test says"));
}

TEST_F(CudnnAttention, WhateverIsRefused_OwnKernelRuns) {
  for (const auto& [type, name] :
       std::vector<std::pair<int, const char*>>{{CUDNN_BACKEND_TENSOR_DESCRIPTOR, "queries"},
                                                {CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR, "attention operation"},
                                                {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "graph"},
                                                {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "heuristic"},
                                                {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "plan"},
                                                {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "call's pointers"}}) {
    backend_ = make_backend(0, 1);
    cudnn().refused = type;
    EXPECT_THAT(reason(), HasSubstr("with pages: cudnnBackendFinalize of the " + std::string(name)));
  }
}

TEST_F(CudnnAttention, NoLibraryHandleOrEngine_OwnKernelRuns) {
  cudnn().engine_with_pages = cudnn().engine_without_pages = false;
  EXPECT_THAT(reason(), HasSubstr("cuDNN has no engine for this case"));
  backend_ = make_backend(0, 1);
  cudnn().handles = false;
  EXPECT_THAT(reason(), HasSubstr("cudnnCreate: CUDNN_STATUS_NOT_INITIALIZED"));
  backend_ = make_backend(0, 1);
  cudnn().found = false;
  EXPECT_EQ(reason(), "attention is not measured with cuDNN: no libcudnn.so.9 was found");
}

TEST_F(CudnnAttention, FailingExecution_OwnKernelRunsUnlessItIsTimedAlready) {
  const auto one = backend_->prepare(kPoint);
  cudnn().execution_fails = true;
  try {
    (void)one->sample(10);
    FAIL() << "nothing was thrown";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("cudnnBackendExecute"));
    EXPECT_FALSE(error.sticky());
  }
  EXPECT_THAT(reason(), HasSubstr("cudnnBackendExecute"));
}

TEST_F(CudnnAttention, DifferentLengths_NeedPages) {
  cudnn().engine_with_pages = false;
  // One sequence of 398 tokens and three of 2 take 25 pages and 3 pages; padded to the longest they take 100. 19 sets
  // of 28 pages, each with 4096 bytes of keys and of values, exceed four times the L2.
  EXPECT_EQ(backend_->prepare(DecodeAttention{kPoint.heads, 4, 100, 4.0})->kernel(), "cudnn-9.19");
  // One set of 4003 pages exceeds it.
  EXPECT_THAT(reason(DecodeAttention{kPoint.heads, 4, 16000, 4.0}), HasSubstr("different lengths"));
}

TEST_F(CudnnAttention, PrefillAndChunks_AreOurOwnKernels) {
  for (const Point& point :
       std::vector<Point>{PrefillAttention{kPoint.heads, 2, 40, 33}, MixedAttention{kPoint.heads, 40, 33, 5, 100}}) {
    const auto one = backend_->prepare(point);
    EXPECT_EQ(one->kernel(), "spillway");
    EXPECT_EQ(one->note(), "");
  }
  EXPECT_EQ(cudnn().executions, 0);
}

TEST_F(CudnnAttention, BesideCopies) {
  const Interference point{kPoint, Traffic::h2d, false, 1 << 20};
  const auto one = backend_->prepare(point);
  EXPECT_EQ(one->kernel(), "cudnn-9.19 paged");
  EXPECT_THAT(one->sample(10)[0], about(emulated::kCudnnAttention));
  cudnn().execution_fails = true;
  backend_->prepare(point)->note();
  EXPECT_THAT(backend_->prepare(point)->note(), HasSubstr("not measured with cuDNN"));
}

}  // namespace
}  // namespace spillway::calibrate
