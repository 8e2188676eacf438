// A folder of results with one file per point, so that no point is run twice.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace spillway {

/// DIR/store.json names the version and build that wrote the folder. DIR/points/ID.json is a result,
/// DIR/checksums/ID.sha256 its SHA-256. A file appears under its name only when it is complete, so a killed process
/// leaves whole results only. One process at a time: DIR/.lock is locked while a store is open.
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
  /// The text of points/ID.json; empty when there is no such file, or when its checksum differs: then a warning on
  /// stderr says that the point is run again. Safe from several threads, as is `save`.
  [[nodiscard]] std::optional<std::string> load(const std::string& id) const;
  void save(const std::string& id, std::string_view text) const;
  /// Writes DIR/`name`, completely or not at all.
  void write(const std::string& name, std::string_view text) const;
  /// The text of DIR/`name`; empty when there is no such file.
  [[nodiscard]] std::optional<std::string> read(const std::string& name) const;

 private:
  [[nodiscard]] std::string checksum_path(const std::string& id) const;

  std::string directory_;
  int lock_ = -1;  // file descriptor
  mutable std::mutex saving_;
};

}  // namespace spillway
