// The file form of GPU profiles.
#pragma once

#include <array>
#include <string_view>

#include "hwmodels/catalog.hpp"
#include "hwmodels/data_file.hpp"

namespace spillway::hwmodels {

inline constexpr std::array<std::string_view, 2> kGpuSections{"fitted", "measurements"};
inline constexpr Kind kGpu{"hwmodels/profiles/", "gpu", "hardware", kGpuSections};

/// Reads an opened profile. Throws as load_gpu() does.
[[nodiscard]] GpuProfile read_gpu(FieldReader in);

}  // namespace spillway::hwmodels
