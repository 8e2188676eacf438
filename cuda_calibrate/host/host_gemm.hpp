// Products of float32 matrices on the cores of one socket, as policies compute experts on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cuda_calibrate/host/host_backend.hpp"
#include "cuda_calibrate/host/product_kernels.hpp"
#include "cuda_calibrate/host/thread_team.hpp"

namespace spillway::calibrate {

/// y = x W for several W of equal shape, which calls use in turn. x and y of all calls are the same. y is cut into one
/// tile per thread: by outputs, by rows or by both, so that a tile has the fewest rows and outputs in all. Threads read
/// and pack the rows of x and the weights of their tile.
class HostProduct {
 public:
  /// Throws Unsupported for a count below 1. Throws OutOfMemory.
  HostProduct(const HostGemm& point, const ProductKernel& kernel, std::vector<Cpu> cpus, std::uint64_t seed);

  /// Seconds of `calls` consecutive calls. A call ends when all threads have computed their tile.
  [[nodiscard]] double run(std::int64_t calls);

  /// As ThreadTeam::note().
  [[nodiscard]] std::string note() const { return team_.note(); }

  /// The matrix that the next call uses: 0 .. experts - 1.
  [[nodiscard]] std::int64_t next() const { return next_; }
  [[nodiscard]] std::span<const float> x(std::int64_t row) const;
  /// The weights of one output.
  [[nodiscard]] std::span<const float> weights(std::int64_t expert, std::int64_t output) const;
  /// The result of the last call.
  [[nodiscard]] std::span<const float> y(std::int64_t row) const;

 private:
  [[nodiscard]] const float* matrix(std::int64_t expert) const;

  HostGemm point_;
  ProductKernel kernel_;
  std::int64_t row_parts_ = 1;  // tiles side by side along the rows; along the outputs: threads / row_parts_
  std::int64_t next_ = 0;
  HostBuffer x_;        // [rows][inputs]
  HostBuffer y_;        // [rows][outputs]
  HostBuffer weights_;  // [expert][outputs][inputs]
  ThreadTeam team_;
};

/// Numbers of parts along the rows, for tiles of rows x outputs of `threads` threads: the divisor of `threads` for
/// which a tile has the fewest rows and outputs in all, and at least one of each where there are enough. Ties: fewer
/// parts.
[[nodiscard]] std::int64_t parts_along_rows(std::int64_t rows, std::int64_t outputs, std::int64_t threads);

/// The CPUs of the socket that has most of them; the lowest number of those.
[[nodiscard]] std::vector<Cpu> on_one_socket(const std::vector<Cpu>& cpus);

/// The fastest kernel on `point.threads` CPUs of one socket, chosen by spread(): one of each core first. Throws as
/// HostProduct; throws Unsupported when the socket has fewer CPUs.
[[nodiscard]] std::unique_ptr<Case> make_host_gemm(const HostGemm& point, std::uint64_t seed);

}  // namespace spillway::calibrate
