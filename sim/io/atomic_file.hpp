// A file that appears under its name only when it is complete.
#pragma once

#include <fstream>
#include <string>
#include <string_view>

namespace spillway {

/// Writes to a temporary file in the same folder; `commit` gives the file its name. Without commit, nothing is left
/// behind. An existing path that is not a regular file (/dev/stdout, a pipe) is written directly. A folder that does
/// not exist or is not writable, a full disk and a file-size limit are ConfigErrors that name the file and the system's
/// reason.
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
  std::string target_;     // path_ with symbolic links followed
  std::string temporary_;  // empty: the target is written directly, or the file is committed
  std::ofstream stream_;
};

/// Writes a whole file at once.
void write_file(const std::string& path, std::string_view content);

}  // namespace spillway
