// Which GPU was measured, and whether a base profile is of the same one.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "hwmodels/calibration/measurements.hpp"
#include "hwmodels/catalog.hpp"
#include "sim/core/units.hpp"

namespace spillway::hwmodels {

/// What the user states about the measured GPU.
struct StatedGpu {
  std::string name{};                         // --gpu
  std::string stands_for{};                   // --stands-for
  std::string profile{};                      // --name
  std::optional<Bytes> memory{};              // --memory
  std::optional<BytesPerSecond> bandwidth{};  // --bandwidth
};

/// The model of a GPU in a text, in lower case: "rtx4090" of "NVIDIA GeForce RTX 4090", "h100" of "h100-80gb-sxm".
/// Empty when the text names none.
[[nodiscard]] std::string gpu_model(std::string_view text);

/// Why the base profile is of another GPU than the measured one, as a clause: "the files were measured on NVIDIA L40S".
/// Compared are, where stated, the name (--gpu, else that of the files, else the one in --stands-for or --name), the
/// number of SMs, the memory (5% apart or more) and its bandwidth (2%). Empty when nothing differs, and when nothing is
/// stated.
[[nodiscard]] std::string why_another_gpu(const GpuProfile& base, const MeasuredDevice& device,
                                          const StatedGpu& stated);

}  // namespace spillway::hwmodels
