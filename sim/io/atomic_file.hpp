// A file that appears under its name only when it is complete.
#pragma once

#include <fstream>
#include <string>
#include <string_view>

namespace spillway {

/// Writes to a temporary file in the same folder; `commit` gives it its name. Without commit nothing is left behind.
/// What exists and is no regular file (/dev/stdout, a pipe) is written directly. A folder that does not exist or cannot
/// be written, and a full disk, are ConfigErrors that name the file and the system's reason.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::string_view text);
  void commit();

 private:
  [[noreturn]] void fail(const std::string& action) const;

  std::string path_;
  std::string target_;     // where the content ends up, links followed
  std::string temporary_;  // empty: written directly, or committed
  std::ofstream stream_;
};

/// Writes a whole file at once.
void write_file(const std::string& path, std::string_view content);

}  // namespace spillway
