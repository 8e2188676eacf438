// Executes schedules on a real machine.
#pragma once

#include <cstdint>
#include <memory>

#include "cuda_calibrate/measure/backend.hpp"
#include "cuda_calibrate/validate/schedule.hpp"

namespace spillway::calibrate {

/// A schedule on a machine, with buffers allocated and filled with random data.
class Execution {
 public:
  Execution() = default;
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;
  virtual ~Execution() = default;

  /// Runs the schedule once, from its start to the end of the last copy. Returns the seconds from the start to the last
  /// of `ends`. Throws the backend's exceptions.
  [[nodiscard]] virtual double run() = 0;
};

class Machine {
 public:
  Machine() = default;
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  virtual ~Machine() = default;

  [[nodiscard]] virtual MachineFacts facts() = 0;
  /// Index of the GPU that executes (GpuFacts::index).
  [[nodiscard]] virtual std::int64_t gpu() const = 0;
  /// Throws Unsupported, OutOfMemory or DeviceError.
  [[nodiscard]] virtual std::unique_ptr<Execution> prepare(const Schedule& schedule) = 0;
};

/// GPU `gpu` of this machine and its host. `seed` determines the random data. Throws DeviceError when the GPU does not
/// exist, and Unsupported in builds without CUDA.
[[nodiscard]] std::unique_ptr<Machine> make_machine(std::int64_t gpu, std::uint64_t seed);

}  // namespace spillway::calibrate
