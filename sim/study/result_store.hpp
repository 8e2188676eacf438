// A folder of results with one file per point, so that no point runs twice.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace spillway {

/// DIR/store.json names the version and build that wrote the folder. DIR/points/ID.json is a result,
/// DIR/checksums/ID.sha256 its SHA-256. A file gets its name only when complete, so a killed process leaves only whole
/// results. One process at a time may use the folder: an open store locks DIR/.lock.
class ResultStore {
 public:
  /// Creates or opens the folder, and removes the unfinished files of a killed process. Throws ConfigError when the
  /// folder is not writable, another process uses it, or its results are of another version or build.
  explicit ResultStore(std::string directory);
  ~ResultStore();
  ResultStore(const ResultStore&) = delete;
  ResultStore& operator=(const ResultStore&) = delete;

  [[nodiscard]] const std::string& directory() const { return directory_; }
  [[nodiscard]] std::string point_path(const std::string& id) const;
  /// The text of points/ID.json; empty when the file does not exist or its checksum differs. A wrong checksum causes a
  /// warning on stderr that the point runs again. load and save are thread-safe.
  [[nodiscard]] std::optional<std::string> load(const std::string& id) const;
  void save(const std::string& id, std::string_view text) const;
  /// Writes DIR/`name` completely or not at all.
  void write(const std::string& name, std::string_view text) const;
  /// The text of DIR/`name`; empty when the file does not exist.
  [[nodiscard]] std::optional<std::string> read(const std::string& name) const;

 private:
  [[nodiscard]] std::string checksum_path(const std::string& id) const;

  std::string directory_;
  int lock_ = -1;  // file descriptor
  mutable std::mutex saving_;
};

}  // namespace spillway
