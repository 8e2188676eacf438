// Where the tests find the sources and the binaries.
#pragma once

#include <string>

namespace spillway {

/// The repository's root, absolute.
[[nodiscard]] std::string source_dir();
/// The binary of the build that the test belongs to.
[[nodiscard]] std::string spillway_binary();
[[nodiscard]] std::string cuda_calibrate_binary();

}  // namespace spillway
