// Where the tests find the sources and the binaries.
#pragma once

#include <string>

namespace spillway {

/// The absolute path of the repository's root.
[[nodiscard]] std::string source_dir();
/// The binaries of the build that contains the test.
[[nodiscard]] std::string spillway_binary();
[[nodiscard]] std::string cuda_calibrate_binary();
/// A stand-in for libnvidia-ml.so.1 (fake_nvml.cpp).
[[nodiscard]] std::string fake_nvml();

}  // namespace spillway
