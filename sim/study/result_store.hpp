// A folder of results: every point's in a file of its own, so that what was run once is not run again.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace spillway {

/// DIR/store.json says which version and build wrote the folder, DIR/points/ID.json are results. A file appears under
/// its name only when it is complete, so a folder that was left by a kill, at any moment, holds whole results only. One
/// process at a time: DIR/.lock is locked while a store is open.
class ResultStore {
 public:
  /// Creates the folder, or opens one and clears away what a killed process left unfinished. Throws ConfigError when it
  /// cannot be written, when another process uses it, or when its results are of another version or build.
  explicit ResultStore(std::string directory);
  ~ResultStore();
  ResultStore(const ResultStore&) = delete;
  ResultStore& operator=(const ResultStore&) = delete;

  [[nodiscard]] const std::string& directory() const { return directory_; }
  [[nodiscard]] std::string point_path(const std::string& id) const;
  /// The text of points/ID.json; empty when there is none. Safe from several threads, as `save` is.
  [[nodiscard]] std::optional<std::string> load(const std::string& id) const;
  void save(const std::string& id, std::string_view text) const;
  /// Writes DIR/`name`, complete or not at all.
  void write(const std::string& name, std::string_view text) const;
  /// Its text; empty when there is none.
  [[nodiscard]] std::optional<std::string> read(const std::string& name) const;

 private:
  std::string directory_;
  int lock_ = -1;  // file descriptor
  mutable std::mutex saving_;
};

}  // namespace spillway
