// CUDA's streams, events and copies in virtual time, without a GPU: enough of the runtime to run code that only orders
// and measures. Linked instead of the runtime.
#pragma once

#include <functional>

namespace spillway::emulated {

/// Times of copies in seconds per byte. Kernels take the time with which they are enqueued.
struct CopyRates {
  double h2d = 0.0;
  double d2h = 0.0;
};
void set_copy_rates(const CopyRates& rates);

/// Enqueues `seconds` of work on a stream, which is a cudaStream_t.
void enqueue_work(void* stream, double seconds);

/// Models CPU work that starts when the GPU's last word arrives. A stream's wait ends with it.
void host_works(double seconds);

}  // namespace spillway::emulated
