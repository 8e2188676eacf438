// Ending cleanly when the user, or a batch system, says so.
#pragma once

#include <atomic>

namespace spillway {

/// From now on the first Ctrl-C, or SIGTERM, which a batch system sends first, makes the returned flag true; the second
/// one kills.
[[nodiscard]] const std::atomic<bool>& stop_on_interrupt();

}  // namespace spillway
