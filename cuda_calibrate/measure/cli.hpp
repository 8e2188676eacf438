// The command line of cuda_calibrate.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cuda_calibrate/measure/backend.hpp"
#include "cuda_calibrate/measure/sampler.hpp"
#include "sim/core/error.hpp"

namespace spillway::calibrate {

struct Arguments {
  std::string out{};  // output file; empty: not given
  bool quick = false;
  bool full = false;
  std::vector<std::string> sections{};  // each entry may be a list with commas
  std::vector<std::string> skip{};
  std::int64_t gpu = 0;
  std::uint64_t seed = 1;
  std::string model{};  // name or file; empty: none
  std::int64_t tensor_parallel = 1;
  bool resume = false;
  bool force = false;  // replace the output file
  bool raw = false;
  bool list = false;
  bool dry_run = false;
  bool json = false;
  std::string assume{};   // GPU or server to assume instead of this machine
  std::string command{};  // the whole command line, for the file
};

/// The outside functions that the tool needs.
struct Environment {
  std::function<std::unique_ptr<Backend>(std::int64_t gpu, std::uint64_t seed)> make_backend;
  Clock clock;
  std::function<std::string()> utc;                      // "2026-01-31T12:00:00Z"
  std::function<const std::atomic<bool>&()> interrupts;  // called once, when measuring begins
};

/// The requested command; called after parsing.
using Command = std::function<ExitCode()>;
/// Adds a subcommand, which sets `command` when it is parsed. App and command must live until the command has returned.
using Subcommand = std::function<void(CLI::App& app, Command& command)>;

/// Measures, or prints the plan. Throws UserError when nothing can run.
[[nodiscard]] ExitCode calibrate(const Arguments& arguments, const Environment& environment);

/// The command line as files record it: without the folder of the program, which says where somebody works.
[[nodiscard]] std::string command_text(int argc, const char* const* argv);

/// The whole tool: parses, runs, prints errors on stderr. Returns the exit code.
[[nodiscard]] int tool_main(int argc, const char* const* argv, const Environment& environment,
                            const std::vector<Subcommand>& subcommands);

}  // namespace spillway::calibrate
