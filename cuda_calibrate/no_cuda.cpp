// The machine in a build without CUDA.
#include "cuda_calibrate/host/host_backend.hpp"
#include "cuda_calibrate/measure/backend.hpp"
#include "cuda_calibrate/validate/machine.hpp"

namespace spillway::calibrate {

std::unique_ptr<Backend> make_backend(std::int64_t /*gpu*/, std::uint64_t seed) { return make_host_backend(seed); }

std::unique_ptr<Machine> make_machine(std::int64_t /*gpu*/, std::uint64_t /*seed*/) {
  throw Unsupported("nothing can be executed: cuda_calibrate was built without CUDA");
}

}  // namespace spillway::calibrate
