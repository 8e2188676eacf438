// The code that the fuzzer feeds with inputs, and what it must answer.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "sim/core/random.hpp"

namespace spillway::fuzz {

/// An outcome other than success and a documented error.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

enum class Outcome : std::uint8_t { accepted, refused };

/// One way to read an input.
struct Target {
  std::string name;                  // "auto", the name of a trace format, "config", "model", ...
  std::string group;                 // "readers": trace files, which may be compressed; or "settings"
  std::vector<std::string> samples;  // inputs that it accepts; may be empty
  std::function<Outcome(const std::string& path)> check;  // reads the file; throws Failure
  /// Changes one of the samples so that the first checks still pass; empty: mutated() alone.
  std::function<std::string(const std::string& sample, RandomStream& stream)> mutate{};
};

/// All targets: each format of traces::trace_formats(), "auto" for format detection, "config" for `spillway config
/// check FILE`, the loaders of the catalogue, the readers of measurements and of engine logs. Samples are the files of
/// traces/samples (by detected format; native-binary gets all of them, converted), of the catalogue's folders and of
/// tests/fuzz, read now.
///
/// A reader must keep the contract of TraceReader, with bad rows refused and with bad rows skipped: rows within their
/// limits, `next` false for ever after the end, equal results of two readings, nothing skipped where nothing is bad. An
/// accepted configuration must resolve to itself in its canonical form. The latency models of an accepted profile must
/// return times.
[[nodiscard]] std::vector<Target> all_targets();

}  // namespace spillway::fuzz
