// What the system tells of itself in /proc and /sys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spillway::calibrate {

/// Where the system's files lie; tests have small trees of their own.
struct SystemRoots {
  std::string proc = "/proc";
  std::string sys = "/sys";
  /// CPUs that this process may run on; empty: as sched_getaffinity says.
  std::optional<std::vector<int>> affinity;
};

/// The whole text without white space at its end; empty when the file cannot be read.
[[nodiscard]] std::string text_of(const std::string& path);
/// The whole number at the start of the text of a file.
[[nodiscard]] std::optional<std::int64_t> number_of(const std::string& path);
/// "0-3,8" is 0, 1, 2, 3, 8. What is no such list ends it.
[[nodiscard]] std::vector<int> cpu_list(std::string_view text);
/// The value behind "key:" or "key :" in lines of the text; empty when there is none.
[[nodiscard]] std::string field_of(std::string_view text, std::string_view key);

}  // namespace spillway::calibrate
