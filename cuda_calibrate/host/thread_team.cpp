#include "cuda_calibrate/host/thread_team.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <utility>

namespace spillway::calibrate {

namespace {

double thread_cpu_seconds() {
  timespec spent{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
  return static_cast<double>(spent.tv_sec) + 1e-9 * static_cast<double>(spent.tv_nsec);
}

}  // namespace

void bind_thread(const std::vector<Cpu>& cpus) {
  int most = 0;
  for (const Cpu& cpu : cpus) most = std::max(most, cpu.id);
  const auto size = static_cast<std::size_t>(most) + 1;
  cpu_set_t* set = CPU_ALLOC(size);
  const std::size_t bytes = CPU_ALLOC_SIZE(size);
  CPU_ZERO_S(bytes, set);
  for (const Cpu& cpu : cpus) CPU_SET_S(static_cast<std::size_t>(cpu.id), bytes, set);
  const int status = sched_setaffinity(0, bytes, set);
  const int fault = errno;
  CPU_FREE(set);
  if (status != 0) {
    throw Unsupported(fmt::format("a thread cannot be bound to CPU {}: {}", cpus.empty() ? -1 : cpus.front().id,
                                  std::generic_category().message(fault)));
  }
}

ThreadTeam::ThreadTeam(std::vector<Cpu> cpus) : cpus_(std::move(cpus)), spent_(cpus_.size()) {
  threads_.reserve(cpus_.size());
  for (std::size_t i = 0; i < cpus_.size(); ++i) threads_.emplace_back([this, i] { serve(i); });
  try {
    run([&](std::size_t i) { bind_thread({cpus_[i]}); });
  } catch (...) {
    dismiss();
    throw;
  }
}

ThreadTeam::~ThreadTeam() { dismiss(); }

void ThreadTeam::dismiss() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  given_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadTeam::serve(std::size_t thread) {
  std::unique_lock lock(mutex_);
  for (std::uint64_t done = 0;;) {
    given_.wait(lock, [&] { return over_ || round_ != done; });
    if (over_) return;
    done = round_;
    const Work& work = *work_;
    lock.unlock();
    std::exception_ptr fault;
    try {
      work(thread);
    } catch (...) {
      fault = std::current_exception();
    }
    lock.lock();
    if (fault && !fault_) fault_ = fault;
    if (--busy_ == 0) ended_.notify_one();
  }
}

void ThreadTeam::run(const Work& work) {
  std::unique_lock lock(mutex_);
  work_ = &work;
  busy_ = size();
  fault_ = nullptr;
  ++round_;
  given_.notify_all();
  ended_.wait(lock, [&] { return busy_ == 0; });
  if (fault_) std::rethrow_exception(std::exchange(fault_, nullptr));
}

double ThreadTeam::timed(const Work& work) {
  using Clock = std::chrono::steady_clock;
  struct alignas(64) Span {
    Clock::time_point start;
    Clock::time_point end;
    double cpu_seconds = 0.0;
  };
  std::vector<Span> spans(size());
  run([&](std::size_t thread) {
    meet();
    const double cpu = thread_cpu_seconds();
    spans[thread].start = Clock::now();
    work(thread);
    spans[thread].end = Clock::now();
    spans[thread].cpu_seconds = thread_cpu_seconds() - cpu;
  });
  for (std::size_t thread = 0; thread < size(); ++thread) {
    spent_[thread].cpu_seconds += spans[thread].cpu_seconds;
    spent_[thread].seconds += std::chrono::duration<double>(spans[thread].end - spans[thread].start).count();
  }
  Span all = spans.front();
  for (const Span& span : spans) {
    all.start = std::min(all.start, span.start);
    all.end = std::max(all.end, span.end);
  }
  return std::chrono::duration<double>(all.end - all.start).count();
}

double ThreadTeam::least_cpu_share() const {
  double least = 1.0;
  for (const Spent& spent : spent_) {
    if (spent.seconds > 0.0) least = std::min(least, spent.cpu_seconds / spent.seconds);
  }
  return least;
}

std::string ThreadTeam::note() const {
  constexpr double kEnough = 0.95;
  if (least_cpu_share() >= kEnough) return {};
  return "a thread got less than 95% of the time of its CPU: other work ran there, so the host is faster than measured";
}

void ThreadTeam::meet() {
  constexpr int kSpins = 10'000;  // tens of microseconds; then yield, because other processes may need the CPU
  const std::uint64_t meeting = meetings_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size()) {
    arrived_.store(0, std::memory_order_relaxed);
    meetings_.fetch_add(1, std::memory_order_release);
    return;
  }
  for (int spin = 0; meetings_.load(std::memory_order_acquire) == meeting; ++spin) {
    if (spin >= kSpins) std::this_thread::yield();
  }
}

}  // namespace spillway::calibrate
