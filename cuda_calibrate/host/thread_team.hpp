// Threads bound to CPUs that work on one task together.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cuda_calibrate/host/host_facts.hpp"

namespace spillway::calibrate {

/// Binds the calling thread to these CPUs. Memory that the thread touches first then lies on their NUMA node. Throws
/// Unsupported when the system refuses.
void bind_thread(const std::vector<Cpu>& cpus);

class ThreadTeam {
 public:
  using Work = std::function<void(std::size_t thread)>;

  /// Starts one thread on each CPU. Throws Unsupported when a thread cannot be bound.
  explicit ThreadTeam(std::vector<Cpu> cpus);
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;
  ~ThreadTeam();

  [[nodiscard]] std::size_t size() const { return cpus_.size(); }
  [[nodiscard]] const Cpu& cpu(std::size_t thread) const { return cpus_[thread]; }

  /// Runs work(0), work(1), ..., each on its own thread, and returns when all have ended. Rethrows the first exception.
  /// If any work may throw, no work may call meet().
  void run(const Work& work);
  /// Runs work that does not throw, once all threads are ready. Returns the seconds from the start of the first thread
  /// to the end of the last.
  [[nodiscard]] double timed(const Work& work);
  /// Of the threads in all timed work so far, the least share of CPU time in the time that passed; 1 before. Below 1
  /// where other work ran on a thread's CPU.
  [[nodiscard]] double least_cpu_share() const;
  /// A sentence when that share says that the times are too long; else empty.
  [[nodiscard]] std::string note() const;
  /// Called within work: returns when all threads have called meet().
  void meet();

 private:
  void serve(std::size_t thread);
  void dismiss();

  struct Spent {
    double cpu_seconds = 0.0;
    double seconds = 0.0;
  };

  std::vector<Cpu> cpus_;
  std::vector<Spent> spent_;  // of each thread in timed work
  std::mutex mutex_;
  std::condition_variable given_;
  std::condition_variable ended_;
  const Work* work_ = nullptr;
  std::uint64_t round_ = 0;
  std::size_t busy_ = 0;
  bool over_ = false;
  std::exception_ptr fault_;
  std::atomic<std::size_t> arrived_{0};
  std::atomic<std::uint64_t> meetings_{0};
  std::vector<std::thread> threads_;  // last member, because the threads use the others
};

}  // namespace spillway::calibrate
