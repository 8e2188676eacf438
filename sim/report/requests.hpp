// Writes one row per request as requests end.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "sim/core/request.hpp"
#include "sim/io/atomic_file.hpp"

namespace spillway {

/// JSON lines, or CSV when the file's name ends in .csv. Times are integer nanoseconds, latencies ms; events that never
/// happened are null (CSV: empty). Replications may write from several threads at once. Rows appear in order of
/// replication, and within a replication in order of ending. Rows of later replications wait in memory.
class RequestsFile {
 public:
  /// `instances`: names of the pools that RequestTraits::pool numbers, for a column of their own; empty: no such
  /// column. Throws ConfigError when the file cannot be created.
  explicit RequestsFile(const std::string& path, std::vector<std::string> instances = {});
  void write(std::int64_t replication, const RequestRecord& record);
  /// Declares that the replication has no more rows.
  void finish(std::int64_t replication);
  /// Gives the file its final name. Throws ConfigError when the disk is full.
  void commit();

 private:
  struct Pending {
    std::string rows;
    bool finished = false;
  };
  void flush_current();

  AtomicFile file_;
  bool csv_;
  std::vector<std::string> instances_;
  std::mutex mutex_;
  std::int64_t current_ = 0;  // the replication whose rows go to the file
  std::map<std::int64_t, Pending> pending_;
};

}  // namespace spillway
