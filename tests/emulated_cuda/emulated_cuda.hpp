// CUDA's streams, events and copies in virtual time and without a GPU: enough of the runtime to run what only orders
// and measures. Linked in place of it.
#pragma once

#include <functional>

namespace spillway::emulated {

/// How long copies take, in seconds per byte; kernels take what they are enqueued with.
struct CopyRates {
  double h2d = 0.0;
  double d2h = 0.0;
};
void set_copy_rates(const CopyRates& rates);

/// `seconds` of work at the end of a stream, which is a cudaStream_t.
void enqueue_work(void* stream, double seconds);

/// For work of the host that starts when the GPU's last word has come to it, and whose end a gate waits for.
void host_works(double seconds);

}  // namespace spillway::emulated
