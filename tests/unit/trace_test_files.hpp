// Small trace files for tests, and helpers that read them.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "sim/api/request_source.hpp"
#include "sim/core/error.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/temp_file.hpp"
#include "traces/readers/prefix_blocks.hpp"
#include "traces/readers/trace_reader.hpp"

namespace spillway::traces {

/// Returns `text` as a gzip file with one member (RFC 1952).
inline std::string gzipped(std::string_view text) {
  z_stream stream{};
  constexpr int kOnlyGzip = 16;
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, kOnlyGzip + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(deflateBound(&stream, text.size()) + 32, '\0');
  std::string source(text);
  stream.next_in = reinterpret_cast<Bytef*>(source.data());
  stream.avail_in = static_cast<uInt>(source.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  (void)deflateEnd(&stream);
  return packed;
}

inline std::vector<TraceRow> drain(TraceReader& reader) {
  std::vector<TraceRow> all;
  TraceRow row;
  while (reader.next(row)) all.push_back(row);
  return all;
}

/// All rows, with prefix ids of blocks of `block_tokens` tokens in place of the file's ids.
inline std::vector<TraceRow> drain(TraceReader& reader, std::int64_t block_tokens) {
  std::vector<TraceRow> all = drain(reader);
  std::vector<std::uint64_t> blocks;
  for (TraceRow& row : all) {
    block_ids(row, row.input, Tokens(block_tokens), blocks);
    row.prefix_ids = blocks;
  }
  return all;
}

/// Every request of a source. No arrival may depend on an answer.
inline std::vector<RequestSpec> drain(RequestSource& source) {
  std::vector<RequestSpec> all;
  while (source.next_arrival() != kNever) source.next(all.emplace_back());
  return all;
}

/// Totals of a trace, to compare with an independent count.
struct Totals {
  std::int64_t requests = 0;
  std::int64_t input = 0;
  std::int64_t output = 0;
  bool operator==(const Totals&) const = default;
};

inline std::ostream& operator<<(std::ostream& out, const Totals& totals) {
  return out << totals.requests << " requests, " << totals.input << " in, " << totals.output << " out";
}

inline Totals totals_of(TraceReader& reader) {
  Totals totals;
  TraceRow request;
  while (reader.next(request)) {
    ++totals.requests;
    totals.input += request.input.count();
    totals.output += request.output.count();
  }
  return totals;
}

/// The problems of the UserError that `action` throws, each as "what | where | fix", with "FILE" in place of `path`.
/// The first line is the exit code. Empty if `action` does not throw.
template <class Action>
std::string problems_of(Action action, const std::string& path = {}) {
  std::string text;
  try {
    action();
  } catch (const UserError& error) {
    text = "exit " + std::to_string(static_cast<int>(error.code()));
    for (const Problem& problem : error.problems()) {
      text += "\n" + problem.what + " | " + problem.where + " | " + problem.fix;
    }
  }
  for (std::size_t at = path.empty() ? std::string::npos : text.find(path); at != std::string::npos;
       at = text.find(path, at + 4)) {
    text.replace(at, path.size(), "FILE");
  }
  return text;
}

/// Path of a real trace, which is not part of the repository. Empty if it is missing.
inline std::string shared_trace(const std::string& name) {
  const std::string path = source_dir() + "/../shared/data/traces/" + name;
  return std::filesystem::exists(path) ? path : std::string();
}

}  // namespace spillway::traces
