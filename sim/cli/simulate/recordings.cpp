#include "sim/cli/simulate/recordings.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "sim/core/text.hpp"
#include "sim/io/gzip.hpp"
#include "sim/io/output.hpp"

namespace spillway::cli {
namespace {

constexpr const char* kWindowFlag = "--timeline-window";

std::optional<TimeWindow> parse_window(const std::string& text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) return std::nullopt;
  const auto from = text.substr(0, colon) == "0" ? Duration{} : parse_duration(text.substr(0, colon));
  const auto until = parse_duration(text.substr(colon + 1));
  if (!from || !until || *from >= *until) return std::nullopt;
  return TimeWindow{SimTime() + *from, SimTime() + *until};
}

std::string seconds(SimTime time) { return fmt::format("{:.6g} s", to_seconds(time)); }

void add_names(const Assembly& assembly, const std::string& kind, std::vector<std::string>& names) {
  const InstancePlan& plan = assembly.instance;
  const PoolSizes& pools = plan.pools;
  for (std::int64_t i = 0; i < plan.replicas; ++i) {
    const char* const pool = pools.prefill == 0 ? "" : i < pools.prefill ? " (prefill)" : " (decode)";
    names.push_back(fmt::format("{}replica {}{}: {} on {}, {}", kind.empty() ? "" : kind + " ", i, pool,
                                assembly.setup.model, assembly.setup.gpu, assembly.setup.policy));
  }
}

}  // namespace

TimelineLimits timeline_limits(const RecordingOptions& options, std::vector<Problem>& problems) {
  TimelineLimits limits{.window = {}, .most_events = options.timeline_events};
  if (options.window.empty()) return limits;
  limits.window = parse_window(options.window);
  if (!limits.window) {
    problems.push_back({fmt::format("\"{}\" is not a window of time", options.window), kWindowFlag,
                        "give two times, the earlier one first, e.g. 10s:20s"});
  }
  if (options.timeline.empty()) {
    problems.push_back(
        {fmt::format("{} narrows a timeline, and there is none", kWindowFlag), kWindowFlag, "add --timeline FILE"});
  }
  return limits;
}

std::vector<std::string> instance_names(const Assembly& assembly) {
  std::vector<std::string> names;
  for (const AssembledKind& kind : assembly.kinds) add_names(kind.assembly, kind.name, names);
  if (assembly.kinds.empty()) add_names(assembly, {}, names);
  return names;
}

class Recordings::Both final : public InstanceObserver {
 public:
  Both(InstanceObserver& first, InstanceObserver& second) : all_{&first, &second} {}
  void begins(std::span<const std::string> tiers, SimTime now) override {
    for (InstanceObserver* const one : all_) one->begins(tiers, now);
  }
  void arrived(std::uint32_t number, std::uint32_t index, SimTime now) override {
    for (InstanceObserver* const one : all_) one->arrived(number, index, now);
  }
  void joined(std::uint32_t number, SimTime now) override {
    for (InstanceObserver* const one : all_) one->joined(number, now);
  }
  void left(std::uint32_t number, Leave why, SimTime now) override {
    for (InstanceObserver* const one : all_) one->left(number, why, now);
  }
  void ended(const RequestRecord& record) override {
    for (InstanceObserver* const one : all_) one->ended(record);
  }
  void sub_batch(const SubBatchWork& work) override {
    for (InstanceObserver* const one : all_) one->sub_batch(work);
  }
  void waited(Wait what, SimTime from, SimTime until) override {
    for (InstanceObserver* const one : all_) one->waited(what, from, until);
  }
  void copied(const Copy& copy, SimTime started, SimTime ended) override {
    for (InstanceObserver* const one : all_) one->copied(copy, started, ended);
  }
  void handed_over(std::uint32_t index, Bytes bytes, bool came, SimTime began, SimTime arrived) override {
    for (InstanceObserver* const one : all_) one->handed_over(index, bytes, came, began, arrived);
  }
  void executed(const ExecutedIteration& iteration) override {
    for (InstanceObserver* const one : all_) one->executed(iteration);
  }
  void lasted(SimTime from, SimTime until, const InstanceLevels& levels) override {
    for (InstanceObserver* const one : all_) one->lasted(from, until, levels);
  }
  void stopped(SimTime now) override {
    for (InstanceObserver* const one : all_) one->stopped(now);
  }

 private:
  std::array<InstanceObserver*, 2> all_;
};

Recordings::Recordings(const RecordingOptions& options, const TimelineLimits& limits, std::vector<std::string> names,
                       bool charts)
    : options_(options), names_(std::move(names)) {
  if (!options_.timeline.empty()) {
    timeline_ = std::make_unique<Timeline>(limits);
    timeline_file_ = std::make_unique<AtomicFile>(options_.timeline);
  }
  if (!options_.series.empty()) series_file_ = std::make_unique<AtomicFile>(options_.series);
  if (series_file_ || charts) series_ = std::make_unique<TimeSeries>();
}

Recordings::~Recordings() = default;

InstanceObserver* Recordings::observer(std::size_t replica) {
  if (!series_) return timeline_->observer(replica);
  if (!timeline_) return series_->observer(replica);
  both_.push_back(std::make_unique<Both>(*timeline_->observer(replica), *series_->observer(replica)));
  return both_.back().get();
}

void Recordings::finish() {
  const auto write = [](AtomicFile& file, const std::string& path, const std::string& text) {
    file.write(path.ends_with(".gz") ? gzipped(text) : text);
  };
  if (series_) series_->finish();
  if (series_file_) write(*series_file_, options_.series, series_->csv());
  if (!timeline_) return;
  timeline_->finish();
  if (timeline_->window() && timeline_->window()->from >= timeline_->end()) {
    throw ConfigError(
        fmt::format("the window {} lies outside the run, which ends at {}", options_.window, seconds(timeline_->end())),
        kWindowFlag, "choose an earlier window");
  }
  write(*timeline_file_, options_.timeline, timeline_->json(names_));
}

void Recordings::commit() {
  if (series_file_) series_file_->commit();
  if (!timeline_) return;
  timeline_file_->commit();
  if (timeline_->left_out() == 0) return;
  const SimTime until = timeline_->window() ? timeline_->window()->until : timeline_->end();
  print_warning(fmt::format(
      "the timeline leaves out {} events, all that start at {} or later. Narrow it with {} {:.6g}s:{:.6g}s, say, or "
      "raise --timeline-events",
      timeline_->left_out(), seconds(timeline_->complete_until()), kWindowFlag, to_seconds(timeline_->complete_until()),
      to_seconds(until)));
}

}  // namespace spillway::cli
