// Reads the system's information in /proc and /sys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spillway::calibrate {

/// Locations of the system's files. Tests use small trees of their own.
struct SystemRoots {
  std::string proc = "/proc";
  std::string sys = "/sys";
  /// CPUs that this process may use; empty: ask sched_getaffinity
  std::optional<std::vector<int>> affinity;
};

/// The text of a file without trailing white space; empty when the file is unreadable.
[[nodiscard]] std::string text_of(const std::string& path);
/// The whole number at the start of a file.
[[nodiscard]] std::optional<std::int64_t> number_of(const std::string& path);
/// Parses "0-3,8" as 0, 1, 2, 3, 8. Stops at the first text that is not a list element.
[[nodiscard]] std::vector<int> cpu_list(std::string_view text);
/// The value after "key:" or "key :" in a line of the text; empty without such a line.
[[nodiscard]] std::string field_of(std::string_view text, std::string_view key);

}  // namespace spillway::calibrate
