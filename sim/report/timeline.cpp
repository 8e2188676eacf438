#include "sim/report/timeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "sim/engine/iteration_runner.hpp"

namespace spillway {
namespace {

// Threads of a process. Those of sub-batches come last, because an executor sets no limit to their number.
enum Thread : std::int32_t { kIterations = 1, kStalls, kFirstStream, kFirstSubBatch = kFirstStream + kStreams };
constexpr std::int64_t kThreads = 1 << 16;  // of a process, so that a number names one thread of the whole file

enum RequestPhase : std::uint8_t { kWaiting, kRunning, kRecomputed, kSwapped, kSuspended };
constexpr std::array<std::string_view, 5> kPhases{"waiting", "running", "preempted: recompute", "preempted: swap",
                                                  "suspended"};
constexpr std::array<std::string_view, 5> kOutcomes{"finished", "rejected", "timed_out", "unfinished", "lost"};
constexpr std::array<std::string_view, static_cast<std::size_t>(kStreams)> kStreamNames{
    "compute", "host to GPU", "GPU to host", "other GPUs to GPU", "GPU to other GPUs", "CPU"};
constexpr std::array<std::string_view, static_cast<std::size_t>(kCopyOwners)> kOwners{"weights", "layers", "KV",
                                                                                      "attention"};
constexpr std::array<std::string_view, kWaits> kCauses{
    "waits for weights", "waits for layers",  "waits for KV",     "waits for attention on the CPU",
    "waits for queries", "waits for outputs", "waits for experts"};

/// Microseconds, as the format wants them.
std::string microseconds(std::int64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

std::string thread_name(std::int32_t thread) {
  if (thread == kIterations) return "iterations";
  if (thread == kStalls) return "stalls";
  if (thread < kFirstSubBatch) return std::string(kStreamNames[static_cast<std::size_t>(thread - kFirstStream)]);
  return fmt::format("sub-batch {}", thread - kFirstSubBatch + 1);
}

}  // namespace

/// What the timeline knows of a replica.
class Timeline::Instance final : public InstanceObserver {
 public:
  Instance(Timeline& timeline, std::size_t replica) : timeline_(timeline), replica_(replica) {}

  /// It has reported no event from this instant on.
  [[nodiscard]] SimTime stopped_at() const { return stopped_; }

  void begins(std::span<const std::string> /*tiers*/, SimTime /*now*/) override { stopped_ = kNever; }
  void arrived(std::uint32_t number, std::uint32_t index, SimTime now) override {
    live_[number] = {index, timeline_.order_++, now, now, kWaiting};
  }
  void joined(std::uint32_t number, SimTime now) override { enter(live_.at(number), kRunning, now); }
  void left(std::uint32_t number, Leave why, SimTime now) override {
    constexpr std::array<RequestPhase, 3> kNext{kRecomputed, kSwapped, kSuspended};
    enter(live_.at(number), kNext[static_cast<std::size_t>(why)], now);
  }
  void ended(const RequestRecord& record) override {
    const auto found = live_.find(static_cast<std::uint32_t>(record.index));
    const Request request = found->second;
    live_.erase(found);
    Span span = of(request, Kind::request, request.arrived, record.end);
    span.detail = static_cast<std::uint8_t>(record.outcome);
    span.values = {record.input.count(), record.generated.count(), record.cached.count()};
    timeline_.add(span);
    Request last = request;
    enter(last, kWaiting, record.end);
    if (record.first_token != kNever) {
      timeline_.add(of(request, Kind::first_token, record.first_token, record.first_token));
    }
  }
  void sub_batch(const SubBatchWork& work) override { sub_batches_.push_back(work); }
  void waited(Wait what, SimTime from, SimTime until) override {
    if (wait_ && wait_->detail == static_cast<std::uint8_t>(what) && wait_->end == from) {
      wait_->end = until;
      return;
    }
    end_wait();
    wait_ = Span{
        .start = from, .end = until, .thread = kStalls, .kind = Kind::wait, .detail = static_cast<std::uint8_t>(what)};
  }
  void copied(const Copy& copy, SimTime started, SimTime ended) override {
    add({.start = started,
         .end = ended,
         .thread = kFirstStream + static_cast<std::int32_t>(copy.stream),
         .kind = Kind::copy,
         .detail = static_cast<std::uint8_t>(copy.owner),
         .values = {copy.bytes.count()}});
  }
  void handed_over(std::uint32_t index, Bytes bytes, bool came, SimTime began, SimTime arrived) override {
    add({.start = began,
         .end = arrived,
         .group = timeline_.order_++,
         .kind = Kind::handover,
         .detail = static_cast<std::uint8_t>(came ? 1 : 0),
         .number = index,
         .values = {bytes.count()}});
  }
  void executed(const ExecutedIteration& iteration) override {
    end_wait();
    SubBatchWork all;
    SimTime begin = iteration.start;
    for (std::size_t i = 0; i < sub_batches_.size(); ++i) {
      const SubBatchWork& one = sub_batches_[i];
      all.decodes += one.decodes;
      all.prompt += one.prompt;
      all.context += one.context;
      if (sub_batches_.size() > 1) {
        const auto number = static_cast<std::int32_t>(i);
        add(of(one, Kind::sub_batch, kFirstSubBatch + number, std::min(begin, iteration.end), iteration.end));
      }
      begin = begin + one.before;
    }
    add(of(all, Kind::iteration, kIterations, iteration.start, iteration.end));
    sub_batches_.clear();
  }
  void lasted(SimTime /*from*/, SimTime until, const InstanceLevels& /*levels*/) override {
    timeline_.end_ = std::max(timeline_.end_, until);
  }
  void stopped(SimTime now) override {
    end_wait();
    stopped_ = now;
    timeline_.end_ = std::max(timeline_.end_, now);
    timeline_.cut(replica_, now);
  }
  void end_wait() {
    if (wait_) add(*std::exchange(wait_, std::nullopt));
  }

 private:
  struct Request {
    std::uint32_t index = 0;
    std::uint64_t group = 0;
    SimTime arrived{};
    SimTime since{};                // the phase
    std::uint8_t phase = kWaiting;  // a RequestPhase
  };

  void add(Span span) {
    if (span.start >= stopped_) return;
    span.end = std::min(span.end, stopped_);
    span.replica = replica_;
    timeline_.add(span);
  }
  /// The phase of the request ends now, and the next one begins. One that takes no time leaves no event.
  void enter(Request& request, std::uint8_t next, SimTime now) {
    if (now > request.since) {
      Span span = of(request, Kind::phase, request.since, now);
      span.detail = request.phase;
      timeline_.add(span);
    }
    request.since = now;
    request.phase = next;
  }
  [[nodiscard]] Span of(const Request& request, Kind kind, SimTime start, SimTime end) const {
    return {
        .start = start, .end = end, .group = request.group, .replica = replica_, .kind = kind, .number = request.index};
  }
  [[nodiscard]] static Span of(const SubBatchWork& work, Kind kind, std::int32_t thread, SimTime start, SimTime end) {
    return {.start = start,
            .end = end,
            .thread = thread,
            .kind = kind,
            .values = {work.decodes, work.prompt.count(), work.context.count()}};
  }

  Timeline& timeline_;
  std::size_t replica_;
  SimTime stopped_ = kNever;
  std::unordered_map<std::uint32_t, Request> live_;
  std::vector<SubBatchWork> sub_batches_;  // of the iteration in flight
  std::optional<Span> wait_;               // that may go on
};

Timeline::Timeline(const TimelineLimits& limits) : limits_(limits) {}
Timeline::~Timeline() = default;

InstanceObserver* Timeline::observer(std::size_t replica) {
  std::unique_ptr<Instance>& one = instances_[replica];
  if (!one) one = std::make_unique<Instance>(*this, replica);
  return one.get();
}

void Timeline::add(Span span) {
  if (limits_.window) {
    const bool instant = span.start == span.end && span.start >= limits_.window->from;
    if (span.start >= limits_.window->until || (span.end <= limits_.window->from && !instant)) return;
  }
  span.order = order_++;
  if (span.start >= cutoff_) {
    left_out_ += span.events();
    return;
  }
  events_ += span.events();
  spans_.push_back(span);
  if (events_ > 2 * limits_.most_events) trim();
}

void Timeline::trim() {
  std::ranges::sort(spans_, {}, [](const Span& span) {
    // A request begins before its phases, so it stays if one of them stays.
    return std::tuple(span.start, span.kind != Kind::request, span.order);
  });
  std::int64_t kept = 0;
  std::size_t count = 0;
  while (count < spans_.size() && kept + spans_[count].events() <= limits_.most_events) {
    kept += spans_[count++].events();
  }
  if (count == spans_.size()) return;
  // Of the events that start together all are left out or none, whatever the order of their reports.
  cutoff_ = spans_[count].start;
  while (count > 0 && spans_[count - 1].start == cutoff_) kept -= spans_[--count].events();
  left_out_ += events_ - kept;
  events_ = kept;
  spans_.resize(count);
}

void Timeline::cut(std::size_t replica, SimTime now) {
  std::erase_if(spans_, [&](Span& span) {
    if (span.replica != replica || span.end <= now) return false;
    span.end = now;
    if (span.start < now) return false;
    events_ -= span.events();
    return true;
  });
}

void Timeline::finish() {
  for (const auto& [replica, one] : instances_) one->end_wait();
  if (events_ > limits_.most_events) trim();
  std::ranges::sort(spans_, {}, [](const Span& span) {
    const bool request = span.kind >= Kind::request;
    // The phases of a request take turns, so their order is that of their reports; its first token is at any instant.
    return std::tuple(request, span.replica, span.group, span.thread, span.kind != Kind::request,
                      request ? SimTime() : span.start, span.order);
  });
}

void Timeline::append_metadata(std::string& out, const std::vector<std::string>& names) const {
  std::map<std::size_t, std::set<std::int32_t>> threads;
  for (const auto& [replica, one] : instances_) threads[replica];
  for (const Span& span : spans_) {
    if (span.kind < Kind::request) threads[span.replica].insert(span.thread);
  }
  for (const auto& [replica, used] : threads) {
    const std::string name =
        replica < names.size() ? nlohmann::json(names[replica]).dump() : fmt::format("\"instance {}\"", replica);
    fmt::format_to(std::back_inserter(out),
                   R"({{"name":"process_name","ph":"M","pid":{},"args":{{"name":{}}}}},)"
                   "\n",
                   replica + 1, name);
    for (const std::int32_t thread : used) {
      const std::int64_t tid = static_cast<std::int64_t>(replica) * kThreads + thread;
      fmt::format_to(std::back_inserter(out),
                     R"({{"name":"thread_name","ph":"M","pid":{0},"tid":{1},"args":{{"name":"{2}"}}}},)"
                     "\n"
                     R"({{"name":"thread_sort_index","ph":"M","pid":{0},"tid":{1},"args":{{"sort_index":{3}}}}},)"
                     "\n",
                     replica + 1, tid, thread_name(thread), thread);
    }
  }
}

void Timeline::append_complete(std::string& out, const Span& span) {
  std::string name;
  std::string arguments;
  if (span.kind == Kind::wait) {
    name = kCauses[span.detail];
  } else if (span.kind == Kind::copy) {
    name = kOwners[span.detail];
    arguments = fmt::format(R"("bytes":{})", span.values[0]);
  } else {
    name = span.kind == Kind::iteration ? "iteration" : "sub-batch";
    arguments = fmt::format(R"("decodes":{},"prompt_tokens":{},"context_tokens":{})", span.values[0], span.values[1],
                            span.values[2]);
  }
  fmt::format_to(std::back_inserter(out),
                 R"({{"name":"{}","ph":"X","ts":{},"dur":{},"pid":{},"tid":{},"args":{{{}}}}},)"
                 "\n",
                 name, microseconds(span.start.ns()), microseconds((span.end - span.start).count()), span.replica + 1,
                 static_cast<std::int64_t>(span.replica) * kThreads + span.thread, arguments);
}

void Timeline::append_async(std::string& out, const Span& span, char ph, SimTime at) {
  std::string name = "first token";
  std::string arguments;
  if (span.kind == Kind::handover) {
    name = fmt::format("KV of request {} {}", span.number, span.detail == 1 ? "comes" : "goes");
    if (ph == 'b') arguments = fmt::format(R"("index":{},"bytes":{})", span.number, span.values[0]);
  }
  if (span.kind == Kind::phase) name = kPhases[span.detail];
  if (span.kind == Kind::request) {
    name = fmt::format("request {}", span.number);
    if (ph == 'b') {
      arguments = fmt::format(R"("index":{},"outcome":"{}","input_tokens":{},"generated_tokens":{},"cached_tokens":{})",
                              span.number, kOutcomes[span.detail], span.values[0], span.values[1], span.values[2]);
    }
  }
  fmt::format_to(std::back_inserter(out),
                 R"({{"name":"{}","cat":"{}","ph":"{}","ts":{},"pid":{},"tid":{},"id":"0x{:x}","args":{{{}}}}},)"
                 "\n",
                 name, span.kind == Kind::handover ? "handover" : "request", ph, microseconds(at.ns()),
                 span.replica + 1, static_cast<std::int64_t>(span.replica) * kThreads + kIterations, span.group,
                 arguments);
}

std::string Timeline::json(const std::vector<std::string>& names) const {
  std::string out = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
  append_metadata(out, names);
  const Span* request = nullptr;
  const auto close = [&] {
    if (request != nullptr) append_async(out, *request, 'e', request->end);
    request = nullptr;
  };
  for (const Span& span : spans_) {
    if (span.kind < Kind::request) {
      append_complete(out, span);
      continue;
    }
    if (span.kind == Kind::request) {
      close();
      request = &span;
      append_async(out, span, 'b', span.start);
    } else if (span.kind == Kind::phase || span.kind == Kind::handover) {
      append_async(out, span, 'b', span.start);
      append_async(out, span, 'e', span.end);
    } else {
      append_async(out, span, 'n', span.start);
    }
  }
  close();
  if (out.ends_with(",\n")) out.erase(out.size() - 2, 1);
  return out + "]}\n";
}

}  // namespace spillway
