// `cuda_calibrate validate PROFILE`: executes what the simulator predicts, and tells how far off it was.
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
  std::string host{};                      // for CPU attention; empty: the server's, or none
  std::vector<std::string> experiments{};  // "a" .. "e"; empty: all
  std::string measurements{};              // that the profile was fitted from; empty: those it names, where they are
  std::string out{};                       // JSON file; empty: none
  bool list = false;
  bool dry_run = false;
  bool markdown = false;
  bool any_gpu = false;
  std::int64_t gpu = 0;
  std::uint64_t seed = 1;
  std::int64_t repeats = 7;
  std::int64_t threads = 0;  // of CPU attention; 0: the cores of the host that is named and of this one
};

/// What validation asks of the outside.
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
  std::function<void(const Outcome&)> done;  // after each setting
  const std::atomic<bool>* stop = nullptr;   // true: no further setting
};

/// Predicts every setting. One that the profile says nothing of has its reason.
[[nodiscard]] std::vector<Outcome> predicted(const Predictor& predictor, const std::vector<Setting>& settings);

struct MeasureOutcome {
  ExitCode code = ExitCode::ok;  // data: the GPU is lost; interrupted
  std::string lost{};            // what the GPU's loss was reported as
};
/// Measures what was predicted: warm-ups, `repeats` runs, their median. A setting that the machine cannot do, has no
/// memory for, or at which the device fails has its reason; when the device's context is lost, so have all that follow.
[[nodiscard]] MeasureOutcome measure(const Predictor& predictor, Machine& machine, std::vector<Outcome>& outcomes,
                                     const MeasureHooks& hooks);

/// What a profile's measurements say about the GPU: of `measurements`, or where that is empty of the files that the
/// profile names and that lie beside it unchanged. Empty when none is at hand. Throws ConfigError when `measurements`
/// is none of the files that the profile was fitted from.
[[nodiscard]] std::optional<std::string> measured_gpu(const hwmodels::GpuProfile& profile,
                                                      const std::string& measurements);
/// Why the profile is not of this GPU: another name than `measured_on`, other SMs, memory that differs by more than
/// 3%. Empty: nothing says so.
[[nodiscard]] std::vector<std::string> gpu_differences(const hwmodels::GpuProfile& profile,
                                                       const std::optional<std::string>& measured_on,
                                                       const GpuFacts& gpu);

/// The command. Exit codes: ok, gate (the goal is not met, or nothing was measured), data (the GPU is lost),
/// interrupted. Throws UserError for what cannot be run.
[[nodiscard]] ExitCode validate(const ValidateArguments& arguments, const ValidateEnvironment& environment);

/// The subcommand of tool_main().
[[nodiscard]] Subcommand validate_subcommand(ValidateEnvironment environment);

}  // namespace spillway::calibrate
