// Writes one row per request as requests end.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/request.hpp"
#include "sim/io/atomic_file.hpp"

namespace spillway {

/// The latencies of one request as the metrics define them, in nanoseconds. All except TTFT require a finished request.
struct RowLatencies {
  std::optional<double> ttft{};
  std::optional<double> tpot{};
  std::optional<double> e2e{};
  std::optional<double> normalised{};  // per output token, as the next two
  std::optional<double> queueing{};
  std::optional<double> computing{};
};
[[nodiscard]] RowLatencies row_latencies(const RequestRecord& record);
/// "finished", "rejected", "timed_out", "unfinished", "lost", by Outcome.
[[nodiscard]] std::span<const std::string_view> outcome_names();

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
