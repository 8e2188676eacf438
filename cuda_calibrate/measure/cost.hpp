// How long a point will about take, for plans. Estimates: by rules of thumb from what a machine says of itself, often
// off by half and never part of a result.
#pragma once

#include "cuda_calibrate/measure/backend.hpp"
#include "cuda_calibrate/measure/sampler.hpp"

namespace spillway::calibrate {

/// What a machine is taken to reach, in FLOP/s and bytes/s.
struct Speeds {
  double flops = 0.0;        // dense, of numbers of 2 bytes
  double memory = 0.0;       // of the GPU
  double link = 0.0;         // host and GPU, one direction
  double host_thread = 0.0;  // of host memory, by one thread
  double host = 0.0;         // by all threads
  double l2_bytes = 0.0;
};

/// FLOP/s: SMs times the clock (1.5 GHz where it is not known) times FLOP per clock of an SM, by the compute capability
/// (75: 1024, 80: 2048, 86 and 89: 1024, from 90 on: 4096; NVIDIA's architecture papers of Turing, Ampere, Ada and
/// Hopper), of which 60% are reached. Memory: 300 GB/s for 75, 1800 for 80, 600 for 86, 850 for 89, 3200 from 90 on.
/// Link: 0.8, 1.6 and 3.2 GB/s per lane of PCIe 3, 4 and 5; 300 GB/s for a GPU called GH200 or GB200; else 12 GB/s.
/// Host: 8 GB/s a thread, at most 80 GB/s for each NUMA node. `gpu` is null without one.
[[nodiscard]] Speeds speeds_of(const HostFacts& host, const GpuFacts* gpu);

struct Cost {
  double call_seconds = 0.0;     // of the slowest series
  double repeats = 1.0;          // how many times over a timing runs the call: once by each way of timing it
  double prepare_seconds = 0.0;  // memory allocated, locked and filled
};
[[nodiscard]] Cost cost_of(const Point& point, const Speeds& speeds);

/// Preparation, warm-up and timings under the rule, of at most 128 calls and with 100 us beside each.
[[nodiscard]] double estimated_seconds(const Cost& cost, const SamplingRule& rule);

}  // namespace spillway::calibrate
