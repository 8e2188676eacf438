// Approximate times of points, for plans. The estimates use rules of thumb on the machine's facts, are often off by
// half, and never enter a result.
#pragma once

#include "cuda_calibrate/measure/backend.hpp"
#include "cuda_calibrate/measure/sampler.hpp"

namespace spillway::calibrate {

/// Assumed rates of a machine, in FLOP/s and bytes/s.
struct Speeds {
  double flops = 0.0;              // dense, for 2-byte numbers
  double memory = 0.0;             // GPU memory
  double link = 0.0;               // between host and GPU, one direction
  double host_thread = 0.0;        // host memory, one thread
  double host = 0.0;               // host memory, all threads
  double host_thread_flops = 0.0;  // fp32 products on the CPU, one thread
  double l2_bytes = 0.0;
  double last_level_bytes = 0.0;  // the host's caches, which its buffers together exceed four times
  double plan_seconds = 0.0;      // to plan one decode attention: cuDNN compiles a kernel
};

/// FLOP/s: 60% of SMs x clock (1.5 GHz if unknown) x FLOP per clock of an SM, by compute capability (75: 1024, 80:
/// 2048, 86 and 89: 1024, from 90 on: 4096; NVIDIA's architecture papers of Turing, Ampere, Ada and Hopper).
/// Memory: 300 GB/s for 75, 1800 for 80, 600 for 86, 850 for 89, 3200 from 90 on.
/// Link: 0.8, 1.6 and 3.2 GB/s per lane of PCIe 3, 4 and 5; 300 GB/s for a GPU named GH200 or GB200; else 12 GB/s.
/// Host: 8 GB/s per thread, at most 80 GB/s per NUMA node; 30 GFLOP/s per thread. Plans of cuDNN take 0.1 s from 80 on.
/// `gpu` is null for a machine without a GPU.
[[nodiscard]] Speeds speeds_of(const HostFacts& host, const GpuFacts* gpu);

struct Cost {
  double call_seconds = 0.0;     // seconds of the slowest series
  double repeats = 1.0;          // runs of the call per timing: one for each method of timing
  double prepare_seconds = 0.0;  // to allocate, lock and fill memory
  double run_seconds = 0.0;      // of a point that runs for a given time, whatever the rule; 0 for the others
};
[[nodiscard]] Cost cost_of(const Point& point, const Speeds& speeds);

/// Seconds for preparation, warm-up and timings under the rule, with at most 128 calls and 100 us of overhead for each.
[[nodiscard]] double estimated_seconds(const Cost& cost, const SamplingRule& rule);

}  // namespace spillway::calibrate
