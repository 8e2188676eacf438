// `cuda_calibrate validate PROFILE`: executes what the simulator predicts, and reports the errors.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cuda_calibrate/measure/cli.hpp"
#include "cuda_calibrate/validate/machine.hpp"
#include "cuda_calibrate/validate/predict.hpp"
#include "cuda_calibrate/validate/report.hpp"
#include "sim/core/error.hpp"

namespace spillway::calibrate {

struct ValidateArguments {
  std::string profile{};                   // GPU or server: a name or a file
  std::string host{};                      // for CPU attention; empty: the server's host, or none
  std::vector<std::string> experiments{};  // "a" .. "e"; empty: all
  std::string measurements{};  // files that the profile was fitted from; empty: files named by the profile, if present
  std::string out{};           // JSON file; empty: none
  bool list = false;
  bool dry_run = false;
  bool markdown = false;
  bool any_gpu = false;
  std::int64_t gpu = 0;
  std::uint64_t seed = 1;
  std::int64_t repeats = 7;
  std::int64_t threads = 0;  // for CPU attention; 0: as many as the named host and this machine have cores
};

/// The outside functions that validation needs.
struct ValidateEnvironment {
  std::function<std::unique_ptr<Machine>(std::int64_t gpu, std::uint64_t seed)> make_machine;
  std::function<std::string()> utc;                      // "2026-01-31T12:00:00Z"
  std::function<const std::atomic<bool>&()> interrupts;  // called once, when measuring begins
  std::string command{};                                 // the whole command line, for the file
};

/// Untimed runs before the timed ones.
inline constexpr std::int64_t kWarmUps = 2;

struct MeasureHooks {
  std::int64_t repeats = 7;
  std::function<void(const Outcome&)> done;  // called after each setting
  const std::atomic<bool>* stop = nullptr;   // true: start no further setting
};

/// Predicts every setting. A setting that the profile cannot predict has a reason.
[[nodiscard]] std::vector<Outcome> predicted(const Predictor& predictor, const std::vector<Setting>& settings);

struct MeasureOutcome {
  ExitCode code = ExitCode::ok;  // data: the GPU is lost; interrupted
  std::string lost{};            // the error that reported the loss of the GPU
};
/// Measures the predicted settings: warm-ups, then the median of `repeats` runs. A setting has a reason if the machine
/// cannot run it, lacks the memory, or fails in it. When the device's context is lost, all later settings have the
/// reason too.
[[nodiscard]] MeasureOutcome measure(const Predictor& predictor, Machine& machine, std::vector<Outcome>& outcomes,
                                     const MeasureHooks& hooks);

/// The GPU according to a profile's measurements. Reads `measurements`; if empty, the unchanged files beside the
/// profile that the profile names. Empty when no file is available. Throws ConfigError when the profile was not fitted
/// from `measurements`.
[[nodiscard]] std::optional<std::string> measured_gpu(const hwmodels::GpuProfile& profile,
                                                      const std::string& measurements);
/// Reasons why the profile describes another GPU: a name other than `measured_on`, a different number of SMs, memory
/// that differs by more than 3%. Empty: no difference.
[[nodiscard]] std::vector<std::string> gpu_differences(const hwmodels::GpuProfile& profile,
                                                       const std::optional<std::string>& measured_on,
                                                       const GpuFacts& gpu);

/// The command. Exit codes: ok, gate (the goal is not met, or nothing was measured), data (the GPU is lost),
/// interrupted. Throws UserError when nothing can run.
[[nodiscard]] ExitCode validate(const ValidateArguments& arguments, const ValidateEnvironment& environment);

/// A subcommand of tool_main().
[[nodiscard]] Subcommand validate_subcommand(ValidateEnvironment environment);

}  // namespace spillway::calibrate
