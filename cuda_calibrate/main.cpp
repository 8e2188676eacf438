// cuda_calibrate: measures a GPU and its host.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <ctime>

#include "cuda_calibrate/cuda/self_test_command.hpp"
#include "cuda_calibrate/measure/cli.hpp"
#include "cuda_calibrate/validate/validate.hpp"
#include "sim/core/interrupt.hpp"

int main(int argc, char** argv) {
  using namespace spillway;
  (void)std::signal(SIGXFSZ, SIG_IGN);  // a write beyond the file-size limit then fails with an error that is reported
  const calibrate::Environment environment{
      calibrate::make_backend,
      [] { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); },
      [] { return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))); },
      []() -> const std::atomic<bool>& { return stop_on_interrupt(); }};
  const calibrate::ValidateEnvironment validation{calibrate::make_machine, environment.utc, environment.interrupts,
                                                  calibrate::command_text(argc, argv)};
  return calibrate::tool_main(
      argc, argv, environment,
      {calibrate::validate_subcommand(validation), calibrate::self_test_subcommand(calibrate::make_backend)});
}
