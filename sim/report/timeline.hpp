// What instances do over time, in the trace event format that Perfetto and chrome://tracing open.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/engine/instance_observer.hpp"

namespace spillway {

/// Part of the simulated time: [from, until).
struct TimeWindow {
  SimTime from{};
  SimTime until{};
};

struct TimelineLimits {
  std::optional<TimeWindow> window{};  // only what overlaps it, whole; empty: the whole run
  std::int64_t most_events = 200'000;  // >= 1; the events that start first stay
};

/// Collects the events of one run. Format: "Trace Event Format", the JSON of Chrome's about:tracing. Times are
/// microseconds with three decimals, so nanoseconds are exact.
///
///   process  an instance, pid = its number + 1
///   thread   iterations; sub-batches, when an iteration has several; waits of the compute stream by cause; each link
///            and the CPU. Complete events ("X").
///   request  nested asynchronous events ("b", "e") of the category "request": the request as a whole, and its phases
///            waiting, running, preempted and suspended. An instant ("n") is its first token.
///   KV       asynchronous events of the category "handover": KV of a request on its way from another instance or to
///            one.
///
/// Each sub-batch starts with its work before the layers. The GPU takes the layers of all sub-batches in turn, so all
/// end with the iteration.
///
/// O(log most_events) per event, amortised; memory O(most_events + live requests).
class Timeline {
 public:
  explicit Timeline(const TimelineLimits& limits);
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  /// The observer of a replica; it lives as long as the timeline.
  [[nodiscard]] InstanceObserver* observer(std::size_t replica);
  /// The run is over.
  void finish();

  [[nodiscard]] const std::optional<TimeWindow>& window() const { return limits_.window; }

  // After finish():
  /// The end of the run: up to here an instance is known.
  [[nodiscard]] SimTime end() const { return end_; }
  /// Events that the limit left out.
  [[nodiscard]] std::int64_t left_out() const { return left_out_; }
  /// The start of the first event that was left out; kNever: none was.
  [[nodiscard]] SimTime complete_until() const { return cutoff_; }
  /// The whole file. `names`: of the replicas.
  [[nodiscard]] std::string json(const std::vector<std::string>& names) const;

 private:
  class Instance;
  enum class Kind : std::uint8_t { iteration, sub_batch, wait, copy, request, phase, first_token, handover };
  /// An event, or the two of an asynchronous span.
  struct Span {
    SimTime start{};
    SimTime end{};
    std::uint64_t order = 0;  // of its report
    std::uint64_t group = 0;  // of a request: the order of its arrival
    std::size_t replica = 0;
    std::int32_t thread = 0;
    Kind kind = Kind::iteration;
    std::uint8_t detail = 0;  // cause of a wait, owner of a copy, outcome of a request, phase, whether KV came
    std::int64_t number = 0;  // of a sub-batch or request
    std::array<std::int64_t, 3> values{};
    [[nodiscard]] std::int64_t events() const {
      return kind == Kind::request || kind == Kind::phase || kind == Kind::handover ? 2 : 1;
    }
  };
  void add(Span span);
  /// Leaves out what starts last, until no more than the limit is there.
  void trim();
  /// The replica does nothing from `now` on.
  void cut(std::size_t replica, SimTime now);
  void append_metadata(std::string& out, const std::vector<std::string>& names) const;
  static void append_complete(std::string& out, const Span& span);
  /// One event of a request: `ph` is b, e or n.
  static void append_async(std::string& out, const Span& span, char ph, SimTime at);

  TimelineLimits limits_;
  std::map<std::size_t, std::unique_ptr<Instance>> instances_;
  std::vector<Span> spans_;
  std::int64_t events_ = 0;  // of spans_
  std::int64_t left_out_ = 0;
  std::uint64_t order_ = 0;
  SimTime cutoff_ = kNever;
  SimTime end_{};
};

}  // namespace spillway
