#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "cuda_calibrate/host/host_backend.hpp"
#include "cuda_calibrate/host/host_memory.hpp"
#include "cuda_calibrate/host/page_kernels.hpp"
#include "cuda_calibrate/host/thread_team.hpp"
#include "cuda_calibrate/measure/rows.hpp"

namespace spillway::calibrate {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::int64_t kMebibyte = std::int64_t{1} << 20U;

/// A stream of 24 MiB per call.
HostStream stream(StreamKind kind, std::int64_t threads) {
  HostStream point;
  point.kind = kind;
  point.threads = threads;
  point.bytes = 24 * kMebibyte;
  return point;
}

void expect_times(const std::vector<double>& seconds, const Point& point) {
  EXPECT_EQ(seconds.size(), rows_of(point).size());
  for (const double one : seconds) {
    EXPECT_GT(one, 0.0);
    EXPECT_TRUE(std::isfinite(one));
  }
}

std::string unsupported(Backend& backend, const Point& point) {
  try {
    (void)backend.prepare(point);
  } catch (const Unsupported& reason) {
    return reason.what();
  }
  return "";
}

TEST(HostBackend, HostSections_RunForReal) {
  const auto backend = make_host_backend(1);
  const std::int64_t most = backend->facts().host.threads;
  std::vector<Point> points;
  for (const std::int64_t threads : {std::int64_t{1}, most}) {
    points.emplace_back(stream(StreamKind::triad, threads));
    points.emplace_back(stream(StreamKind::read, threads));
    for (const Number number : {Number::bf16, Number::fp16, Number::fp32}) {
      points.emplace_back(HostAttention{number, threads, {32, 8, 128}, 2, 100});
    }
  }
  for (const Point& point : points) {
    const std::unique_ptr<Case> measured = backend->prepare(point);
    EXPECT_GE(measured->most_calls(), 1000);
    expect_times(measured->sample(1), point);
    expect_times(measured->sample(7), point);
    const bool attention = std::holds_alternative<HostAttention>(point);
    EXPECT_EQ(measured->kernel(), attention ? "spillway-" + std::string(best_page_kernels().extension) : "spillway");
  }
}

TEST(HostBackend, NodeOfThisMachine_HoldsTheArrays) {
  HostStream point = stream(StreamKind::read, 1);
  point.numa_node = usable_cpus().front().node;
  expect_times(make_host_backend(1)->prepare(point)->sample(2), point);
}

/// Copies that take 1 ms and 2 ms, and say when they run.
class FakeCopies : public BackgroundCopies {
 public:
  explicit FakeCopies(std::vector<std::string>& log) : log_(log) {}
  void start() override { log_.emplace_back("start"); }
  std::vector<double> stop() override {
    log_.emplace_back("stop");
    return {1e-3, 2e-3};
  }

 private:
  std::vector<std::string>& log_;
};

TEST(HostBackend, Hooks_LendMemoryAndCopies) {
  std::vector<std::string> log;
  std::atomic<std::int64_t> lent{0};
  HostHooks hooks;
  hooks.page_locked = [&](std::int64_t bytes) {
    lent += bytes;
    return ordinary_memory(bytes);
  };
  hooks.copies = [&](Traffic traffic, std::int64_t bytes) {
    EXPECT_EQ(traffic, Traffic::both);
    EXPECT_EQ(bytes, 4096);
    return std::make_unique<FakeCopies>(log);
  };
  const auto backend = make_host_backend(1, hooks);
  HostStream point = stream(StreamKind::triad, 1);
  point.pinned = true;
  point.copies = Traffic::both;
  point.copy_bytes = 4096;
  const auto measured = backend->prepare(point);
  // Arrays hold at least 64 MiB each, and more where four times the caches are.
  EXPECT_GE(lent, 192 * kMebibyte);
  EXPECT_GT(lent, 4 * backend->facts().host.last_level_cache_bytes);
  const std::vector<double> seconds = measured->sample(1);
  expect_times(seconds, point);
  EXPECT_EQ(seconds[1], 1e-3);
  EXPECT_EQ(seconds[2], 2e-3);
  EXPECT_THAT(log, ElementsAre("start", "stop"));
}

TEST(HostBackend, WhatItCannotDo_IsSaid) {
  const auto backend = make_host_backend(1, {}, "no GPU here");
  EXPECT_EQ(unsupported(*backend, ContiguousCopy{}), "no GPU here");
  EXPECT_EQ(backend->facts().gpu_reason, "no GPU here");
  EXPECT_TRUE(backend->facts().gpus.empty());
  HostStream point = stream(StreamKind::read, 1);
  point.pinned = true;
  EXPECT_EQ(unsupported(*backend, point), "page-locked memory needs CUDA");
  point.pinned = false;
  point.copies = Traffic::h2d;
  EXPECT_EQ(unsupported(*backend, point), "copies need a GPU");
  EXPECT_THAT(unsupported(*backend, stream(StreamKind::read, 100'000)), HasSubstr("100000 threads were requested"));
  point = stream(StreamKind::triad, 1);
  point.bytes = 23;  // less than a number of each array
  EXPECT_EQ(unsupported(*backend, point), "23 bytes are too few for 1 threads");
  EXPECT_THAT(unsupported(*backend, HostAttention{Number::fp8, 1, {8, 8, 64}, 1, 1}), HasSubstr("fp8"));
  EXPECT_EQ(unsupported(*backend, HostAttention{Number::bf16, 1, {6, 4, 64}, 1, 1}),
            "6 query heads are not a multiple of 4 KV heads");
  EXPECT_EQ(unsupported(*backend, HostAttention{Number::bf16, 1, {8, 8, 72}, 1, 1}),
            "a head size of 72 is not a multiple of 16");
  EXPECT_EQ(unsupported(*backend, HostAttention{Number::bf16, 1, {8, 8, 64}, 0, 1}),
            "0 sequences of 1 tokens leave nothing to compute");
}

TEST(HostBackend, TooLittleMemory_IsNamedInBytes) {
  HostStream point = stream(StreamKind::read, 1);
  point.bytes = std::int64_t{1} << 50U;
  try {
    (void)make_host_backend(1)->prepare(point);
    FAIL();
  } catch (const OutOfMemory& reason) {
    EXPECT_THAT(reason.what(), HasSubstr("1125899906842624 bytes of host memory are needed"));
  }
}

// 4 x 100 bytes of caches: 5 buffers of 100 are the first that are larger, 9 of 50, 1 of 401.
TEST(HostMemory, BuffersBeyondTheCache_AreTogetherLargerThanFourTimesIt) {
  EXPECT_EQ(buffers_beyond_cache(100, 100), 5);
  EXPECT_EQ(buffers_beyond_cache(50, 100), 9);
  EXPECT_EQ(buffers_beyond_cache(401, 100), 1);
  EXPECT_EQ(buffers_beyond_cache(400, 100), 2);
  EXPECT_EQ(buffers_beyond_cache(100, 0), 1);
}

// Every format holds the multiples of 1/128 in [-1, 1): what is read back is the same in all of them.
TEST(HostMemory, RandomNumbers_AreTheSameInEveryFormat) {
  constexpr std::int64_t kCount = 4096;
  const PageKernels kernels = scalar_page_kernels();
  std::vector<std::vector<float>> all;
  for (const Number number : {Number::bf16, Number::fp16, Number::fp32}) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(kCount * number_bytes(number)));
    RandomBits random(5);
    fill_numbers(bytes.data(), kCount, number, random);
    std::vector<float> floats(kCount);
    kernels.widen(number, bytes.data(), kCount, floats.data());
    all.push_back(floats);
  }
  EXPECT_EQ(all[0], all[1]);
  EXPECT_EQ(all[0], all[2]);
  double sum = 0.0;
  for (const float number : all[0]) {
    EXPECT_GE(number, -1.0F);
    EXPECT_LT(number, 1.0F);
    EXPECT_EQ(number * 128.0F, std::floor(number * 128.0F));
    sum += double{number};
  }
  // Uniform with mean -1/256 and deviation 0.577: the mean of 4096 is within 5 x 0.577 / 64 = 0.045.
  EXPECT_NEAR(sum / kCount, -1.0 / 256, 0.045);
}

TEST(ThreadTeam, EveryThreadWorksAndMeets) {
  const std::vector<Cpu> cpus = usable_cpus();
  std::vector<Cpu> crowd;
  for (std::size_t i = 0; i < 5; ++i) crowd.push_back(cpus[i % cpus.size()]);
  ThreadTeam team(crowd);
  std::vector<int> counts(team.size());
  std::vector<int> sums(team.size());
  for (int round = 1; round <= 20; ++round) {
    const double seconds = team.timed([&](std::size_t thread) {
      ++counts[thread];
      team.meet();
      sums[thread] = 0;
      for (const int count : counts) sums[thread] += count;  // all have counted before
      team.meet();
    });
    EXPECT_GE(seconds, 0.0);
    for (const int sum : sums) EXPECT_EQ(sum, 5 * round);
  }
}

// A thread that sleeps has none of its CPU's time, as one that waits while other work runs there.
TEST(ThreadTeam, AThreadWithoutItsCpu_IsNoted) {
  std::vector<Cpu> two(2, usable_cpus().front());
  ThreadTeam team(two);
  EXPECT_EQ(team.least_cpu_share(), 1.0);
  EXPECT_EQ(team.note(), "");
  team.run([](std::size_t) { std::this_thread::sleep_for(std::chrono::milliseconds(1)); });
  EXPECT_EQ(team.least_cpu_share(), 1.0) << "only timed work counts";
  (void)team.timed([](std::size_t thread) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(40);
    if (thread == 0) return std::this_thread::sleep_until(end);
    while (std::chrono::steady_clock::now() < end) continue;
  });
  EXPECT_GE(team.least_cpu_share(), 0.0);
  EXPECT_LT(team.least_cpu_share(), 0.2);
  EXPECT_THAT(team.note(), testing::HasSubstr("a thread got less than 95% of the time of its CPU"));
}

// Two threads on one CPU share it, and each looks half as fast as it is.
TEST(ThreadTeam, ThreadsThatShareACpu_AreNoted) {
  ThreadTeam team(std::vector<Cpu>(2, usable_cpus().front()));
  (void)team.timed([](std::size_t) {
    volatile double sum = 0.0;
    for (int i = 0; i < 30'000'000; ++i) sum = sum + 1.0;
  });
  EXPECT_LT(team.least_cpu_share(), 0.9);
}

TEST(ThreadTeam, AnExceptionOfAThread_IsThrownOn) {
  ThreadTeam team({usable_cpus().front()});
  EXPECT_THROW(team.run([](std::size_t) { throw OutOfMemory("none"); }), OutOfMemory);
  bool ran = false;
  team.run([&](std::size_t) { ran = true; });
  EXPECT_TRUE(ran);
}

TEST(ThreadTeam, ACpuThatIsNotThere_IsUnsupported) { EXPECT_THROW(ThreadTeam({Cpu{60'000, 60'000, 0}}), Unsupported); }

}  // namespace
}  // namespace spillway::calibrate
