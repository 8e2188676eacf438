// `spillway calibrate fit|check|errors`.
#pragma once

#include <string>
#include <vector>

#include "sim/core/error.hpp"

namespace spillway::cli {

struct CalibrateOptions {
  std::vector<std::string> files;  // FILE or OP=FILE; errors: profiles
  std::string profile;             // of check
  std::string out;
  std::string host_out;  // empty: no host is written
  std::string base;
  std::string name;
  std::string stands_for;
  std::string model;
  bool drop_inconsistent = false;
  bool omit_measurements = false;
  bool roofline = false;
  bool json = false;
};

/// The text of the profile that calibrate_fit writes to `out`; nothing is written or printed. Throws UserError for
/// files that cannot be read or contradict themselves or the datasheet.
[[nodiscard]] std::string fitted_profile(const CalibrateOptions& options);
/// Fits every op of the files, prints n, median, p95 and bias on held-out rows, and writes the profile, and the host if
/// asked for, once all of it is done. Throws UserError for files that cannot be read or contradict themselves or the
/// datasheet; nothing is written then.
[[nodiscard]] ExitCode calibrate_fit(const CalibrateOptions& options);
/// Prints the same for any measurements under a profile.
[[nodiscard]] ExitCode calibrate_check(const CalibrateOptions& options);
/// Prints what profiles state about themselves as a Markdown table.
[[nodiscard]] ExitCode calibrate_errors(const CalibrateOptions& options);

}  // namespace spillway::cli
