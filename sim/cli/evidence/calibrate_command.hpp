// `spillway calibrate fit|check|errors`.
#pragma once

#include <string>

#include "sim/core/error.hpp"
#include "sim/study/profile_fit.hpp"

namespace spillway::cli {

struct CalibrateOptions {
  ProfileFit fit;       // for `errors`, the files are profiles
  std::string profile;  // for `check`
  std::string memory;   // for `fit`: text of --memory and --bandwidth; empty: not given
  std::string bandwidth;
  bool roofline = false;
  bool json = false;
};

/// Fits every op of the files, prints n, median, p95 and bias on held-out rows, and then writes the profile and, if
/// requested, the host. Throws UserError for unreadable files, and for files that contradict themselves or the
/// datasheet; then nothing is written.
[[nodiscard]] ExitCode calibrate_fit(const CalibrateOptions& options);
/// Prints the errors of a profile on any measurements.
[[nodiscard]] ExitCode calibrate_check(const CalibrateOptions& options);
/// Prints the errors that profiles state, as a Markdown table.
[[nodiscard]] ExitCode calibrate_errors(const CalibrateOptions& options);

}  // namespace spillway::cli
