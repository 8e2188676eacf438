// A folder for files that only this process reads.
#pragma once

#include <string>

namespace spillway {

/// A new, empty folder below the system's temporary folder ($TMPDIR). The destructor removes the folder and its files.
/// Throws ConfigError when the folder cannot be created.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  /// The path of a file in the folder.
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace spillway
