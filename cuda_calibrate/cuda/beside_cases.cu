#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "cuda_calibrate/cuda/cases.hpp"

namespace spillway::calibrate::gpu {
namespace {

/// Thread blocks for copies by SMs: few enough to leave the GPU to the computation, enough to fill a PCIe link.
constexpr std::int64_t kCopyCtas = 8;

std::vector<Direction> directions_of(Traffic traffic) {
  switch (traffic) {
    case Traffic::none:
      return {};
    case Traffic::h2d:
      return {Direction::h2d};
    case Traffic::d2h:
      return {Direction::d2h};
    case Traffic::both:
      return {Direction::h2d, Direction::d2h};
  }
  return {};
}

cudaStream_t stream_of(const Gpu& gpu, Direction direction) {
  return gpu.stream(direction == Direction::h2d ? StreamOf::h2d : StreamOf::d2h);
}

class InterferenceCase : public Case {
 public:
  InterferenceCase(Gpu& gpu, const Interference& point)
      : gpu_(gpu), op_(std::visit([&](const auto& compute) { return make_op(gpu, compute); }, point.compute)) {
    cudaStream_t stream = gpu.stream(StreamOf::compute);
    compute_ = {&gpu, stream, [this, stream] { op_->enqueue(stream); }, kEntries};
    std::vector<Lane> lanes;
    for (const Direction direction : directions_of(point.traffic)) {
      CopyOp& copy = copies_.emplace_back(gpu, direction, HostMemory::pinned, point.copy_bytes);
      cudaStream_t on = stream_of(gpu, direction);
      const bool by_kernel = point.by_kernel;
      lanes.push_back({&gpu, on,
                       [&copy, on, by_kernel] {
                         if (by_kernel) {
                           copy.enqueue_kernel(kCopyCtas, on);
                         } else {
                           copy.enqueue(on);
                         }
                       },
                       1});
    }
    apart_ = std::make_unique<Together>(gpu.gate(), lanes);
    lanes.insert(lanes.begin(), compute_);
    at_once_ = std::make_unique<Together>(gpu.gate(), std::move(lanes));
  }

  std::vector<double> sample(std::int64_t calls) override {
    gpu_.use();
    const double compute = seconds_alone(&gpu_.gate(), compute_, std::min(calls, kMostBehindGate / kEntries));
    const std::vector<double> copies = apart_->sample(std::min(calls, apart_->most_calls()));
    const std::vector<double> all = at_once_->sample(calls);
    std::vector<double> seconds{compute, all.front()};
    seconds.insert(seconds.end(), copies.begin(), copies.end());
    seconds.insert(seconds.end(), all.begin() + 1, all.end());
    return seconds;
  }
  [[nodiscard]] std::int64_t most_calls() const override { return at_once_->most_calls(); }
  [[nodiscard]] std::string kernel() const override { return op_->kernel(); }
  [[nodiscard]] std::string note() const override { return op_->note(); }

 private:
  Gpu& gpu_;
  std::unique_ptr<ComputeOp> op_;
  std::deque<CopyOp> copies_;
  Lane compute_;
  std::unique_ptr<Together> apart_;
  std::unique_ptr<Together> at_once_;
};

/// Copies in one direction. A thread keeps a few copies in flight and sleeps in between.
class CopyFeed {
 public:
  CopyFeed(Gpu& gpu, Direction direction, std::int64_t bytes)
      : gpu_(gpu), stream_(stream_of(gpu, direction)), copy_(gpu, direction, HostMemory::pinned, bytes) {
    begin_ = make_event();
    wake_.reserve(kDepth);
    for (std::size_t i = 0; i < kDepth; ++i) wake_.push_back(make_event(false));
    copy_.enqueue(stream_);
    gpu.finish();
  }
  CopyFeed(const CopyFeed&) = delete;
  CopyFeed& operator=(const CopyFeed&) = delete;
  ~CopyFeed() {
    if (thread_.joinable()) (void)join();
  }

  /// Returns when the first copy has ended or the thread has failed.
  void start() {
    stop_ = false;
    ended_ = 0;
    failure_ = nullptr;
    thread_ = std::thread([this] { feed(); });
    std::unique_lock lock(mutex_);
    first_.wait(lock, [this] { return ended_ > 0 || failure_ != nullptr; });
  }
  /// Seconds per copy.
  [[nodiscard]] double stop() {
    if (const std::exception_ptr failure = join(); failure != nullptr) std::rethrow_exception(failure);
    return seconds_ / static_cast<double>(ended_);
  }

 private:
  static constexpr std::size_t kDepth = 4;

  std::exception_ptr join() {
    stop_ = true;
    thread_.join();
    return failure_;
  }

  void feed() {
    try {
      gpu_.use();
      check(cudaEventRecord(begin_.get(), stream_), "cudaEventRecord");
      std::size_t enqueued = 0;
      for (std::size_t waited = 0; !stop_; ++waited) {
        for (; enqueued < waited + kDepth; ++enqueued) {
          copy_.enqueue(stream_);
          check(cudaEventRecord(wake_[enqueued % kDepth].get(), stream_), "cudaEventRecord");
        }
        const Event& oldest = wake_[waited % kDepth];
        check(cudaEventSynchronize(oldest.get()), "cudaEventSynchronize");
        // Copies in flight at the end do not count: the measured work has already ended.
        const double seconds = seconds_between(begin_, oldest);
        const std::lock_guard lock(mutex_);
        seconds_ = seconds;
        ended_ = waited + 1;
        first_.notify_all();
      }
      check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
      first_.notify_all();
    }
  }

  Gpu& gpu_;
  cudaStream_t stream_;
  CopyOp copy_;
  Event begin_;
  std::vector<Event> wake_;
  std::thread thread_;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  std::condition_variable first_;
  std::size_t ended_ = 0;
  double seconds_ = 0.0;
  std::exception_ptr failure_;
};

class Copies : public BackgroundCopies {
 public:
  Copies(Gpu& gpu, Traffic traffic, std::int64_t bytes) {
    for (const Direction direction : directions_of(traffic)) feeds_.emplace_back(gpu, direction, bytes);
  }
  void start() override {
    for (CopyFeed& feed : feeds_) feed.start();
  }
  [[nodiscard]] std::vector<double> stop() override {
    std::vector<double> seconds;
    seconds.reserve(feeds_.size());
    for (CopyFeed& feed : feeds_) seconds.push_back(feed.stop());
    return seconds;
  }

 private:
  std::deque<CopyFeed> feeds_;
};

}  // namespace

std::unique_ptr<Case> make_case(Gpu& gpu, const Interference& point) {
  return std::make_unique<InterferenceCase>(gpu, point);
}

HostHooks host_hooks(Gpu& gpu) {
  HostHooks hooks;
  hooks.page_locked = [&gpu](std::int64_t bytes) {
    gpu.use();
    // cudaHostAlloc would not bind to a node. Here this thread touches the pages first, so they come from its node.
    auto block = std::make_shared<HostBlock>(HostMemory::registered, bytes);
    std::byte* data = block->data();
    return HostBuffer(data, [block = std::move(block), index = gpu.index()](std::byte*) mutable {
      (void)cudaSetDevice(index);  // for the thread that frees the memory
      block.reset();
    });
  };
  hooks.copies = [&gpu](Traffic traffic, std::int64_t bytes) {
    gpu.use();
    return std::make_unique<Copies>(gpu, traffic, bytes);
  };
  return hooks;
}

}  // namespace spillway::calibrate::gpu
