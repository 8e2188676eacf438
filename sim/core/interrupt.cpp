#include "sim/core/interrupt.hpp"

#include <csignal>

namespace spillway {
namespace {

std::atomic<bool> g_stop{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler sets it");

}  // namespace

const std::atomic<bool>& stop_on_interrupt() {
  struct sigaction action {};
  action.sa_handler = [](int) { g_stop.store(true); };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  return g_stop;
}

}  // namespace spillway
