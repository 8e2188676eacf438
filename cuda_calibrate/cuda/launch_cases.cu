#include <chrono>
#include <utility>

#include "cuda_calibrate/cuda/cases.hpp"
#include "cuda_calibrate/cuda/kernels.hpp"

namespace spillway::calibrate::gpu {
namespace {

using Seconds = std::chrono::duration<double>;

/// A chain of empty kernels. With `timed`, the graph records an event before and an event after the kernels.
class KernelGraph {
 public:
  KernelGraph(std::int64_t nodes, bool timed) {
    cudaGraph_t graph = nullptr;
    check(cudaGraphCreate(&graph, 0), "cudaGraphCreate");
    graph_ = Graph(graph);
    if (timed) {
      start_ = make_event();
      end_ = make_event();
      append_event(start_);
    }
    for (std::int64_t i = 0; i < nodes; ++i) append_kernel();
    if (timed) append_event(end_);
    cudaGraphExec_t exec = nullptr;
    check(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
    exec_ = GraphExec(exec);
  }
  void launch(cudaStream_t stream) const { check(cudaGraphLaunch(exec_.get(), stream), "cudaGraphLaunch"); }
  [[nodiscard]] const Event& start() const { return start_; }
  [[nodiscard]] const Event& end() const { return end_; }

 private:
  void append_kernel() {
    cudaKernelNodeParams parameters{};
    parameters.func = const_cast<void*>(empty_kernel());
    parameters.gridDim = dim3(1);
    parameters.blockDim = dim3(1);
    void* none = nullptr;
    parameters.kernelParams = &none;
    cudaGraphNode_t node = nullptr;
    check(cudaGraphAddKernelNode(&node, graph_.get(), last_ == nullptr ? nullptr : &last_, last_ == nullptr ? 0 : 1,
                                 &parameters),
          "cudaGraphAddKernelNode");
    last_ = node;
  }
  void append_event(const Event& event) {
    cudaGraphNode_t node = nullptr;
    check(cudaGraphAddEventRecordNode(&node, graph_.get(), last_ == nullptr ? nullptr : &last_,
                                      last_ == nullptr ? 0 : 1, event.get()),
          "cudaGraphAddEventRecordNode");
    last_ = node;
  }

  Graph graph_;
  GraphExec exec_;
  Event start_;
  Event end_;
  cudaGraphNode_t last_ = nullptr;
};

class LaunchCase : public Case {
 public:
  LaunchCase(Gpu& gpu, const Launch& point) : gpu_(gpu), kind_(point.kind), stream_(gpu.stream(StreamOf::compute)) {
    lane_ = {&gpu, stream_, [this] { enqueue_empty(stream_); }, 1};
    if (kind_ == LaunchKind::graph) {
      graphs_.emplace_back(point.nodes, false);
      lane_.enqueue = [this] { graphs_.front().launch(stream_); };
    } else if (kind_ == LaunchKind::host_gap) {
      graphs_.reserve(2);
      graphs_.emplace_back(point.nodes, true);
      graphs_.emplace_back(point.nodes, true);
      for (const KernelGraph& graph : graphs_) graph.launch(stream_);
    }
    enqueue_empty(stream_);
    lane_.enqueue();
    gpu.finish();
  }

  std::vector<double> sample(std::int64_t calls) override {
    gpu_.use();
    switch (kind_) {
      case LaunchKind::kernel:
      case LaunchKind::graph:
        return {seconds_alone(nullptr, lane_, calls)};
      case LaunchKind::synchronise:
        return {synchronising(calls)};
      case LaunchKind::host_gap:
        return {gap(calls)};
    }
    return {};
  }
  [[nodiscard]] std::int64_t most_calls() const override { return 10 * kMostBehindGate; }
  [[nodiscard]] std::string kernel() const override {
    return kind_ == LaunchKind::graph || kind_ == LaunchKind::host_gap ? "cudaGraphLaunch"
           : kind_ == LaunchKind::kernel                               ? "spillway"
                                                                       : "cudaEventSynchronize";
  }

 private:
  [[nodiscard]] double synchronising(std::int64_t calls) const {
    const Event event = make_event();
    const auto start = std::chrono::steady_clock::now();
    for (std::int64_t i = 0; i < calls; ++i) {
      check(cudaEventRecord(event.get(), stream_), "cudaEventRecord");
      check(cudaEventSynchronize(event.get()), "cudaEventSynchronize");
    }
    return Seconds(std::chrono::steady_clock::now() - start).count() / static_cast<double>(calls);
  }

  /// Time from the event at the end of a graph to the event at the start of the next; two graphs are launched in turn.
  [[nodiscard]] double gap(std::int64_t calls) const {
    double sum = 0.0;
    graphs_[0].launch(stream_);
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    for (std::int64_t i = 0; i < calls; ++i) {
      const KernelGraph& before = graphs_[static_cast<std::size_t>(i % 2)];
      const KernelGraph& after = graphs_[static_cast<std::size_t>((i + 1) % 2)];
      after.launch(stream_);
      check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
      sum += seconds_between(before.end(), after.start());
    }
    return sum / static_cast<double>(calls);
  }

  Gpu& gpu_;
  LaunchKind kind_;
  cudaStream_t stream_;
  std::vector<KernelGraph> graphs_;
  Lane lane_;
};

}  // namespace

std::unique_ptr<Case> make_case(Gpu& gpu, const Launch& point) { return std::make_unique<LaunchCase>(gpu, point); }

}  // namespace spillway::calibrate::gpu
