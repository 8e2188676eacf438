// `spillway calibrate fit|check|errors`.
#pragma once

#include <string>

#include "sim/core/error.hpp"
#include "sim/study/profile_fit.hpp"

namespace spillway::cli {

struct CalibrateOptions {
  ProfileFit fit;       // errors: its files are profiles
  std::string profile;  // of check
  bool roofline = false;
  bool json = false;
};

/// Fits every op of the files, prints n, median, p95 and bias on held-out rows, and writes the profile, and the host if
/// asked for, once all of it is done. Throws UserError for files that cannot be read or contradict themselves or the
/// datasheet; nothing is written then.
[[nodiscard]] ExitCode calibrate_fit(const CalibrateOptions& options);
/// Prints the same for any measurements under a profile.
[[nodiscard]] ExitCode calibrate_check(const CalibrateOptions& options);
/// Prints what profiles state about themselves as a Markdown table.
[[nodiscard]] ExitCode calibrate_errors(const CalibrateOptions& options);

}  // namespace spillway::cli
