// The only file that knows paths of this machine, so that every other object is the same wherever the sources lie and
// ccache finds it again.
#include "tests/support/paths.hpp"

namespace spillway {

std::string source_dir() { return SPILLWAY_SOURCE_DIR; }
std::string spillway_binary() { return SPILLWAY_BINARY; }
std::string cuda_calibrate_binary() { return CUDA_CALIBRATE_BINARY; }

}  // namespace spillway
