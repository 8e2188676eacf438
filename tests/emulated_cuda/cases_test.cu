// Every point of a GPU on a runtime with rule-based times (immediate_cuda.hpp): enqueued work, timing, and messages
// after failures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "cuda_calibrate/cuda/schedule.hpp"
#include "cuda_calibrate/measure/backend.hpp"
#include "tests/emulated_cuda/immediate_cuda.hpp"

namespace spillway::calibrate {
namespace {

using emulated::machine;
using testing::AllOf;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::int64_t kMib = 1 << 20;

/// Events hold floats of milliseconds.
auto about(double seconds) { return DoubleNear(seconds, seconds * 1e-4); }
double to_gpu(double bytes) { return emulated::kCopy + bytes / emulated::kToGpu; }
double to_host(double bytes) { return emulated::kCopy + bytes / emulated::kToHost; }

class CudaCases : public testing::Test {
 protected:
  void SetUp() override { machine() = {}; }
  /// Everything must be freed, after failures too, and no stream may exceed its queue.
  void TearDown() override {
    backend_.reset();
    EXPECT_EQ(machine().living, 0);
    EXPECT_LE(machine().deepest, gpu::kMostBehindGate + gpu::kMostMarks + 2);
  }

  Backend& backend() {
    if (backend_ == nullptr) backend_ = make_backend(0, 1);
    return *backend_;
  }
  std::vector<double> times(const Point& point, std::int64_t calls = 10) {
    const auto one = backend().prepare(point);
    return one->sample(std::min(calls, one->most_calls()));
  }
  template <typename Error>
  std::string refusal(const Point& point) {
    try {
      (void)times(point);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was thrown";
  }

  std::unique_ptr<Backend> backend_;
};

TEST_F(CudaCases, ContiguousCopy_GpuTimeOfOneCopy) {
  for (const HostMemory memory : {HostMemory::pinned, HostMemory::pageable, HostMemory::registered}) {
    const auto in = times(ContiguousCopy{Direction::h2d, memory, 4096});
    ASSERT_EQ(in.size(), 2U);
    EXPECT_THAT(in[0], about(to_gpu(4096)));
    EXPECT_GT(in[1], 0.0);
    EXPECT_THAT(times(ContiguousCopy{Direction::d2h, memory, kMib})[0], about(to_host(kMib)));
  }
}

// The time is the CPU's: its own copy, and the DMA, which takes none here. 16 MiB at 1 TB/s take 16 us. Every byte of a
// new block is 1, so all of them have gone through the buffer.
TEST_F(CudaCases, RelayCopy_CpuTimeOfBothCopies) {
  const auto relay = backend().prepare(RelayCopy{16 * kMib, 2});
  const std::int64_t before = machine().copies_to_gpu;
  const std::vector<double> seconds = relay->sample(3);
  ASSERT_EQ(seconds.size(), 1U);
  EXPECT_GT(seconds[0], 16e-6);
  EXPECT_EQ(machine().copies_to_gpu - before, 3);
  EXPECT_EQ(machine().last_copied_bytes, 16 * kMib);
  EXPECT_EQ(machine().last_copied_sum, 16 * kMib);
  EXPECT_EQ(machine().gates, 0);
  EXPECT_EQ(relay->kernel(), "memcpy, cudaMemcpyAsync");
}

TEST_F(CudaCases, PageableCopies_DoNotWaitAtAGate) {
  (void)times(ContiguousCopy{Direction::h2d, HostMemory::pageable, 4096});
  EXPECT_EQ(machine().gates, 0);
  (void)times(ContiguousCopy{Direction::h2d, HostMemory::pinned, 4096});
  EXPECT_EQ(machine().gates, 1);
}

TEST_F(CudaCases, MostCalls_FitBehindTheGate) {
  (void)times(ContiguousCopy{Direction::h2d, HostMemory::pinned, 4096}, 1'000'000);
  EXPECT_GE(machine().deepest, gpu::kMostBehindGate);  // TearDown checks the limit
}

TEST_F(CudaCases, DuplexCopy_EachDirectionHasItsOwnTime) {
  for (const std::int64_t calls : {1, 3, 50}) {
    EXPECT_THAT(times(DuplexCopy{kMib, kMib}, calls), ElementsAre(about(to_gpu(kMib)), about(to_host(kMib))));
    EXPECT_THAT(times(DuplexCopy{65536, 16 * kMib}, calls),
                ElementsAre(about(to_gpu(65536)), about(to_host(16 * kMib))));
  }
}

TEST_F(CudaCases, ScatteredCopy_ByMechanism) {
  const double blocks = 100;
  const double bytes = 28672;
  for (const Order order : {Order::sequential, Order::random}) {
    const auto seconds = [&](Direction direction, Mechanism mechanism) {
      return times(
          ScatteredCopy{direction, mechanism, 28672, 100, order, mechanism == Mechanism::kernel ? 8 : 0, 16 * kMib})[0];
    };
    EXPECT_THAT(seconds(Direction::h2d, Mechanism::many), about(blocks * to_gpu(bytes)));
    EXPECT_THAT(seconds(Direction::d2h, Mechanism::many), about(blocks * to_host(bytes)));
    EXPECT_THAT(seconds(Direction::h2d, Mechanism::batched),
                about(blocks * (emulated::kBatchedCopy + bytes / emulated::kToGpu)));
    const double kernel = emulated::kBlockKernel + blocks * bytes / emulated::kByKernel;
    EXPECT_THAT(seconds(Direction::h2d, Mechanism::gather), about(to_gpu(blocks * bytes) + kernel));
    EXPECT_THAT(seconds(Direction::d2h, Mechanism::gather), about(kernel + to_host(blocks * bytes)));
    EXPECT_THAT(seconds(Direction::d2h, Mechanism::kernel), about(kernel));
  }
}

TEST_F(CudaCases, ScatteredCopy_ThousandsOfCopiesDoNotWaitAtAGate) {
  EXPECT_THAT(times(ScatteredCopy{Direction::h2d, Mechanism::many, 4096, 4096, Order::random, 0, 0}, 1)[0],
              about(4096 * to_gpu(4096)));
  EXPECT_EQ(machine().gates, 0);
}

TEST_F(CudaCases, ScatteredCopy_WhatTheMachineCannotDo) {
  EXPECT_THAT(refusal<Unsupported>(ScatteredCopy{Direction::h2d, Mechanism::kernel, 100, 4, Order::random, 8, 0}),
              HasSubstr("100 is not a multiple"));
  machine().driver = 12040;
  EXPECT_THAT(refusal<Unsupported>(ScatteredCopy{Direction::h2d, Mechanism::batched, 4096, 4, Order::random, 0, 0}),
              HasSubstr("12.8"));
}

TEST_F(CudaCases, AllGpusCopy_MeansByDirection) {
  EXPECT_THAT(times(AllGpusCopy{Traffic::d2h, kMib, 2, -1}), ElementsAre(about(to_host(kMib))));
  EXPECT_THAT(times(AllGpusCopy{Traffic::both, kMib, 2, -1}), ElementsAre(about(to_gpu(kMib)), about(to_host(kMib))));
  EXPECT_THAT(refusal<Unsupported>(AllGpusCopy{Traffic::h2d, kMib, 3, -1}), HasSubstr("there is no GPU 2"));
  EXPECT_THAT(refusal<Unsupported>(AllGpusCopy{Traffic::h2d, kMib, 2, 1000}), HasSubstr("NUMA node 1000"));
}

TEST_F(CudaCases, PeerCopy_Directly) {
  EXPECT_THAT(times(PeerCopy{0, 1, false, kMib}), ElementsAre(about(emulated::kCopy + kMib / emulated::kPeer)));
  EXPECT_THAT(times(PeerCopy{1, 0, true, kMib}), ElementsAre(about(emulated::kCopy + kMib / emulated::kPeer)));
}

TEST_F(CudaCases, PeerCopy_ThroughTheHostIsAPipelineOfPieces) {
  machine().peers = false;
  // 64 MiB are 16 pieces of 4 MiB. The copy to the host is slower: its whole time counts, and the last piece's copy to
  // the GPU.
  EXPECT_THAT(times(PeerCopy{0, 1, false, 64 * kMib}), ElementsAre(about(16 * to_host(4 * kMib) + to_gpu(4 * kMib))));
  EXPECT_THAT(times(PeerCopy{0, 1, false, kMib}), ElementsAre(about(to_host(kMib) + to_gpu(kMib))));
}

TEST_F(CudaCases, Gemm_FirstChoiceOrTheBest) {
  EXPECT_THAT(times(Gemm{16, 512, 512, Number::bf16, 1}), ElementsAre(about(emulated::kGemm[0])));
  EXPECT_THAT(times(Gemm{16, 512, 512, Number::bf16, 8}), ElementsAre(about(emulated::kGemm[1])));
  EXPECT_THAT(times(Gemm{16, 512, 512, Number::fp8, 1}), ElementsAre(about(emulated::kGemm[0])));
}

TEST_F(CudaCases, Attention_OneCallAndWhatCombinesItsParts) {
  const Heads heads{32, 8, 128};
  // Four SMs need 16 thread blocks, two for each KV head. 8 x 129 x 8 / 16 = 516 tokens: nothing is split.
  EXPECT_THAT(times(DecodeAttention{heads, 8, 128, 1.0}), ElementsAre(about(emulated::kAttention)));
  // 4001 x 8 / 16 = 2000.5 tokens: two parts.
  EXPECT_THAT(times(DecodeAttention{heads, 1, 4000, 1.0}),
              ElementsAre(about(emulated::kAttention + emulated::kCombine)));
  EXPECT_THAT(times(PrefillAttention{heads, 2, 100, 33}), ElementsAre(about(emulated::kAttention)));
  EXPECT_THAT(times(MixedAttention{heads, 100, 33, 5, 100}), ElementsAre(about(emulated::kAttention)));
}

TEST_F(CudaCases, NumbersAndShapes_ThatTheGpuOrTheKernelsDoNotHave) {
  EXPECT_THAT(refusal<Unsupported>(DecodeAttention{Heads{32, 8, 96}, 1, 100, 1.0}), HasSubstr("not 96"));
  EXPECT_THAT(refusal<Unsupported>(DecodeAttention{Heads{32, 5, 128}, 1, 100, 1.0}), HasSubstr("not a multiple of 5"));
  EXPECT_THAT(refusal<Unsupported>(Gemm{16, 512, 512, Number::fp32, 1}), HasSubstr("16 or 8 bits"));
  EXPECT_THAT(refusal<Unsupported>(Elementwise{ElementwiseKind::rope, 4, 72}), HasSubstr("72"));
  backend_.reset();
  machine().capability = 75;
  EXPECT_THAT(refusal<Unsupported>(Gemm{16, 512, 512, Number::bf16, 1}), AllOf(HasSubstr("7.5"), HasSubstr("bf16")));
  EXPECT_THAT(times(Gemm{16, 512, 512, Number::fp16, 1}), ElementsAre(about(emulated::kGemm[0])));
}

TEST_F(CudaCases, Interference_RowsInTheirOrder) {
  const double gemm = emulated::kGemm[0];
  const Gemm compute{16, 512, 512, Number::bf16, 1};
  EXPECT_THAT(times(Interference{compute, Traffic::d2h, false, kMib}),
              ElementsAre(about(gemm), about(gemm), about(to_host(kMib)), about(to_host(kMib))));
  EXPECT_THAT(times(Interference{compute, Traffic::both, false, kMib}),
              ElementsAre(about(gemm), about(gemm), about(to_gpu(kMib)), about(to_host(kMib)), about(to_gpu(kMib)),
                          about(to_host(kMib))));
  const double kernel = emulated::kBlockKernel + kMib / emulated::kByKernel;
  EXPECT_THAT(times(Interference{DecodeAttention{Heads{8, 8, 64}, 2, 100, 1.0}, Traffic::h2d, true, kMib}),
              ElementsAre(about(emulated::kAttention), about(emulated::kAttention), about(kernel), about(kernel)));
}

TEST_F(CudaCases, Launches) {
  EXPECT_THAT(times(Launch{LaunchKind::kernel, 1}), ElementsAre(about(emulated::kEmptyKernel)));
  EXPECT_THAT(times(Launch{LaunchKind::graph, 100}), ElementsAre(about(emulated::kGraph + 100 * emulated::kGraphNode)));
  // The launch lies between the last node of a graph and the first node of the next.
  EXPECT_THAT(times(Launch{LaunchKind::host_gap, 10}), ElementsAre(about(emulated::kGraph)));
  EXPECT_GT(times(Launch{LaunchKind::synchronise, 1})[0], 0.0);
}

TEST_F(CudaCases, Elementwise_EveryKind) {
  for (const ElementwiseKind kind :
       {ElementwiseKind::rms_norm, ElementwiseKind::silu_mul, ElementwiseKind::rope, ElementwiseKind::copy}) {
    EXPECT_THAT(times(Elementwise{kind, 33, 4096}), ElementsAre(about(emulated::kElementwise)));
  }
}

// The work of a sustained run is that of the other sections; without NVML nothing reads the clock.
TEST_F(CudaCases, Sustained_RunsTheWorkAlone) {
  const Gemm gemm{256, 512, 512, Number::bf16, 1};
  EXPECT_EQ(times(Sustained{gemm}), times(gemm));
  const DecodeAttention decode{{32, 8, 128}, 4, 256};
  EXPECT_EQ(times(Sustained{decode}), times(decode));
  EXPECT_FALSE(backend().sensors());
}

TEST_F(CudaCases, HostStream_BesideCopiesFromPageLockedMemory) {
  const auto seconds = times(HostStream{StreamKind::triad, 1, -1, true, Traffic::both, 16 * kMib, kMib}, 1);
  ASSERT_EQ(seconds.size(), 3U);
  EXPECT_GT(seconds[0], 0.0);
  EXPECT_THAT(seconds[1], about(to_gpu(kMib)));
  EXPECT_THAT(seconds[2], about(to_host(kMib)));
}

TEST_F(CudaCases, Facts_OfEveryGpu) {
  const MachineFacts facts = backend().facts();
  ASSERT_EQ(facts.gpus.size(), 2U);
  EXPECT_EQ(facts.gpus[1].index, 1);
  EXPECT_EQ(facts.gpus[1].compute_capability, 90);
  EXPECT_TRUE(facts.gpus[1].bf16);
  EXPECT_TRUE(facts.gpus[1].fp8);
  EXPECT_EQ(facts.cuda_runtime, "12.8");
  EXPECT_EQ(facts.cublas, "13.0.2");
  EXPECT_TRUE(facts.gpu_reason.empty());
}

TEST_F(CudaCases, TooLittleGpuMemory_NamesNeededAndFreeBytes) {
  machine().free_bytes = 1000;
  // 10 MiB exceed four times an L2 of 1 MiB, so one buffer suffices.
  EXPECT_EQ(refusal<OutOfMemory>(Gemm{1, 1024, 5120, Number::bf16, 1}),
            "10485760 bytes of GPU memory are needed, 1000 are free");
}

TEST_F(CudaCases, Errors_SayWhetherTheContextIsLost) {
  machine().copy_status = cudaErrorIllegalAddress;
  try {
    (void)times(DuplexCopy{kMib, kMib});
    FAIL() << "nothing was thrown";
  } catch (const DeviceError& error) {
    EXPECT_TRUE(error.sticky());
    EXPECT_THAT(error.what(), HasSubstr("cudaMemcpyAsync"));
  }
  machine().copy_status = cudaErrorInvalidValue;
  try {
    (void)times(DuplexCopy{kMib, kMib});
    FAIL() << "nothing was thrown";
  } catch (const DeviceError& error) {
    EXPECT_FALSE(error.sticky());
  }
}

TEST_F(CudaCases, GateThatGaveUp_TimesAreNotTaken) {
  machine().gates_give_up = true;
  EXPECT_THAT(refusal<DeviceError>(Gemm{16, 512, 512, Number::bf16, 1}), HasSubstr("more than 2 s"));
}

TEST_F(CudaCases, WithoutAGpu_TheHostIsMeasured) {
  machine().count_status = cudaErrorNoDevice;
  EXPECT_EQ(backend().facts().gpu_reason, "cudaGetDeviceCount: no CUDA-capable device is detected");
  EXPECT_THAT(refusal<Unsupported>(Gemm{16, 512, 512, Number::bf16, 1}), HasSubstr("no CUDA-capable device"));
  EXPECT_GT(times(HostStream{StreamKind::read, 1, -1, false, Traffic::none, 16 * kMib, 0}, 1)[0], 0.0);
}

TEST_F(CudaCases, GpuThatIsNotThere_IsAnError) {
  EXPECT_THROW((void)make_backend(2, 1), DeviceError);
  EXPECT_THROW((void)make_backend(-1, 1), DeviceError);
}

TEST_F(CudaCases, SelfTest_FindsKernelsThatComputeNothing) {
  EXPECT_THAT([&] { backend().self_test(); },
              testing::Throws<DeviceError>(testing::Property(&DeviceError::what, HasSubstr("self-test"))));
}

}  // namespace
}  // namespace spillway::calibrate
