// What the fuzzer feeds its inputs to, and what must come out.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace spillway::fuzz {

/// An outcome that is neither success nor a documented error.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

enum class Outcome : std::uint8_t { accepted, refused };

/// One way to read an input.
struct Target {
  std::string name;                  // "auto", the name of a trace format, "config", "model", ...
  std::string group;                 // "readers": of traces, which gzip may compress; or "settings"
  std::vector<std::string> samples;  // good inputs of its own; may be empty
  std::function<Outcome(const std::string& path)> check;  // reads the file; throws Failure
};

/// All of them: each trace format of traces::trace_formats(), "auto" for finding the format out, and "config" for
/// `spillway config check FILE`, the catalogue's loaders and the readers of measurements. Samples are the files of
/// traces/samples (by the format that they are found to have), of the catalogue's folders and of tests/fuzz, read now.
///
/// A reader is held to the contract of TraceReader with bad rows refused and skipped: rows within their limits, `next`
/// false for ever after the end, two readings of a file equal, nothing skipped where nothing is bad. A configuration
/// that is accepted must resolve to itself in its canonical form. The latency models of a profile that is accepted must
/// tell times.
[[nodiscard]] std::vector<Target> all_targets();

}  // namespace spillway::fuzz
