// `spillway report`: results as one HTML page.
#pragma once

#include <string>
#include <vector>

#include "sim/core/error.hpp"

namespace spillway::cli {

struct ReportOptions {
  std::vector<std::string> results;  // files
  std::string out;                   // -o
};

/// Writes the page. Throws UserError when a file is no result, or one of another version.
[[nodiscard]] ExitCode report(const ReportOptions& options);

}  // namespace spillway::cli
