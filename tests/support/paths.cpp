// The only file that is compiled with absolute paths of this machine. So every other object file is the same wherever
// the sources are, and ccache can reuse it.
#include "tests/support/paths.hpp"

namespace spillway {

std::string source_dir() { return SPILLWAY_SOURCE_DIR; }
std::string spillway_binary() { return SPILLWAY_BINARY; }
std::string cuda_calibrate_binary() { return CUDA_CALIBRATE_BINARY; }
std::string fake_nvml() { return FAKE_NVML; }

}  // namespace spillway
