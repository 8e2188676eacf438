// Threads that stay on their CPUs and work on the same thing at the same time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "cuda_calibrate/host/host_facts.hpp"

namespace spillway::calibrate {

/// Binds the calling thread to these CPUs; memory that it touches first then lies on their NUMA node. Throws
/// Unsupported when the system does not let it.
void bind_thread(const std::vector<Cpu>& cpus);

class ThreadTeam {
 public:
  using Work = std::function<void(std::size_t thread)>;

  /// One thread on each of the CPUs. Throws Unsupported when one cannot be bound.
  explicit ThreadTeam(std::vector<Cpu> cpus);
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;
  ~ThreadTeam();

  [[nodiscard]] std::size_t size() const { return cpus_.size(); }
  [[nodiscard]] const Cpu& cpu(std::size_t thread) const { return cpus_[thread]; }

  /// work(0), work(1), ... each on its thread; returns when all have ended. The first exception is thrown on. A thread
  /// that does not throw must not meet() those that might.
  void run(const Work& work);
  /// The same for work that throws nothing, started once all threads are ready: seconds from the start of the first one
  /// to the end of the last one.
  [[nodiscard]] double timed(const Work& work);
  /// Within work: returns when all threads have come here.
  void meet();

 private:
  void serve(std::size_t thread);
  void dismiss();

  std::vector<Cpu> cpus_;
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
  std::vector<std::thread> threads_;  // the last member: they use the others
};

}  // namespace spillway::calibrate
