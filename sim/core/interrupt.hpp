// Stops a run cleanly when the user or a batch system asks for it.
#pragma once

#include <atomic>

namespace spillway {

/// From now on the first Ctrl-C sets the returned flag, and so does the first SIGTERM, which a batch system sends
/// before it kills. The second one kills.
[[nodiscard]] const std::atomic<bool>& stop_on_interrupt();

}  // namespace spillway
