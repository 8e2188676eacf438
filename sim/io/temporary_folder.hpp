// A folder for files that only this process reads.
#pragma once

#include <string>

namespace spillway {

/// An empty folder of its own below the system's temporary folder ($TMPDIR), removed with all that is in it. Throws
/// ConfigError when none can be made.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  /// The path of a file in it.
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace spillway
