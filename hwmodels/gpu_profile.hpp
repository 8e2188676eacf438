// The file form of GPU profiles.
#pragma once

#include <array>
#include <string_view>

#include "hwmodels/catalog.hpp"
#include "hwmodels/data_file.hpp"

namespace spillway::hwmodels {

class FieldReader;

inline constexpr std::array<std::string_view, 2> kGpuSections{"fitted", "measurements"};
inline constexpr Kind kGpu{"hwmodels/profiles/", "gpu", "hardware", kGpuSections};

/// Bytes/s of an all-reduce of the largest buffer over the most ranks that were measured, 2 (p - 1) / p bytes a buffer:
/// by the profile's two plain figures, and by the fit that comes before them.
struct BusBandwidth {
  double plain = 0.0;
  double fitted = 0.0;
  /// Within half as much again.
  [[nodiscard]] bool agree() const { return plain <= 1.5 * fitted && fitted <= 1.5 * plain; }
};
[[nodiscard]] BusBandwidth bus_bandwidth(const AllReduce& plain, const AllReduceModel& fitted);

/// Reads an opened profile. Throws as load_gpu() does.
[[nodiscard]] GpuProfile read_gpu(FieldReader in);

}  // namespace spillway::hwmodels
