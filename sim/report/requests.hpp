// One row per request, written as requests end.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "sim/core/request.hpp"
#include "sim/io/atomic_file.hpp"

namespace spillway {

/// JSON lines, or CSV when the file's name ends in .csv: integer nanoseconds, latencies in ms, null (CSV: empty) for
/// what never came. Replications may write from several threads at once; their rows appear in order of replication,
/// each in order of ending. Rows of a replication whose turn has not come are held in memory.
class RequestsFile {
 public:
  /// Throws ConfigError when the file cannot be created.
  explicit RequestsFile(const std::string& path);
  void write(std::int64_t replication, const RequestRecord& record);
  /// The replication has no more rows.
  void finish(std::int64_t replication);
  /// Gives the file its name. Throws ConfigError when the disk is full.
  void commit();

 private:
  struct Pending {
    std::string rows;
    bool finished = false;
  };
  void flush_current();

  AtomicFile file_;
  bool csv_;
  std::mutex mutex_;
  std::int64_t current_ = 0;  // the replication whose turn it is
  std::map<std::int64_t, Pending> pending_;
};

}  // namespace spillway
