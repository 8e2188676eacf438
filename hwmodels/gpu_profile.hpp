// The file form of GPU profiles.
#pragma once

#include <array>
#include <string_view>

#include "hwmodels/catalog.hpp"
#include "hwmodels/data_file.hpp"

namespace spillway::hwmodels {

class FieldReader;

inline constexpr std::array<std::string_view, 3> kGpuSections{"fitted", "borrowed", "measurements"};
inline constexpr Kind kGpu{"hwmodels/profiles/", "gpu", "hardware", kGpuSections};

/// Bytes/s of an all-reduce of the largest measured buffer over the largest measured number of ranks, by the profile's
/// two plain figures and by the fit, which takes precedence. A rank moves 2 (p - 1) / p bytes per byte of the buffer.
struct BusBandwidth {
  double plain = 0.0;
  double fitted = 0.0;
  /// Whether neither figure exceeds 1.5 times the other.
  [[nodiscard]] bool agree() const { return plain <= 1.5 * fitted && fitted <= 1.5 * plain; }
};
[[nodiscard]] BusBandwidth bus_bandwidth(const AllReduce& plain, const AllReduceModel& fitted);

/// Reads an opened profile. Throws as load_gpu() does.
[[nodiscard]] GpuProfile read_gpu(FieldReader in);

}  // namespace spillway::hwmodels
