#include "traces/workload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "sim/error.hpp"
#include "sim/random.hpp"
#include "sim/text.hpp"
#include "traces/arrivals.hpp"
#include "traces/generators/quantile_table.hpp"
#include "traces/length.hpp"
#include "traces/readers/prefix_blocks.hpp"
#include "traces/readers/reader.hpp"

namespace spillway::traces {
namespace {

/// The latest arrival of a run: sums with durations stay within int64.
constexpr double kMaxSpanSeconds = 4e9;
/// An exponential draw is at most 36.8 means, so this bound on the mean span keeps drawn arrivals below
/// kMaxSpanSeconds.
constexpr double kMaxMeanSpanSeconds = 1e8;
/// What can take the place of arrival times.
constexpr const char* kDrawn = "poisson, gamma, constant, burst or all-at-once";

/// Everything that the stream needs, decided before its first request.
struct Plan {
  std::int64_t requests = 0;
  ArrivalPlan arrival{};
  std::int64_t cap = 0;      // workload.max_new_tokens; 0: actual
  std::int64_t clients = 0;  // workload.clients; 0: the workload's own
  std::int64_t block_tokens = 16;
  std::optional<LengthDistribution> input{};
  std::optional<LengthDistribution> output{};
};

/// What a first pass over a file finds.
struct FileFacts {
  std::int64_t rows = 0;
  SimTime first{};
  SimTime last{};
  bool has_times = false;
  bool has_inputs = true;
  bool prefix_ids = false;
  std::int64_t zero_outputs = 0;
  /// Mean requests/s; empty when there are no times or no two different ones.
  [[nodiscard]] std::optional<double> rate() const {
    if (!has_times || !(last > first)) return std::nullopt;
    return static_cast<double>(rows - 1) / to_seconds(last - first);
  }
};

class WorkloadStream final : public RequestSource {
 public:
  WorkloadStream(const Plan& plan, std::optional<QuantileTable> table, std::unique_ptr<TraceReader> file,
                 std::int64_t seed, std::int64_t replication)
      : plan_(plan),
        table_(std::move(table)),
        file_(std::move(file)),
        arrivals_(plan.arrival, seed, replication),
        lengths_(seed, replication, "workload.lengths"),
        inputs_(seed, replication, "workload.input_tokens"),
        outputs_(seed, replication, "workload.output_tokens"),
        clients_(seed, replication, "workload.clients") {}

  [[nodiscard]] SimTime next_arrival() override {
    if (!ready_ && delivered_ < plan_.requests) ready_ = prepare(ahead_);
    return ready_ ? ahead_.arrival : kNever;
  }
  void next(RequestSpec& request) override {
    (void)next_arrival();
    std::swap(request, ahead_);
    ready_ = false;
    ++delivered_;
  }
  [[nodiscard]] std::int64_t expected() const override { return plan_.requests; }

 private:
  bool prepare(RequestSpec& request) {
    if (file_ != nullptr) {
      if (!file_->next(row_)) return false;
      request.arrival = row_.arrival == kNever ? SimTime() : row_.arrival;
      request.input = row_.input;
      request.output = row_.output;
      request.max_new_tokens = row_.max_new_tokens;
      request.client = row_.client;
      block_ids(row_, row_.input, Tokens(plan_.block_tokens), request.prefix_ids);
    } else {
      const Lengths lengths = table_->sample(lengths_);
      request.arrival = SimTime();
      request.input = lengths.input;
      request.output = lengths.output;
      request.max_new_tokens = lengths.output;
      request.client = 0;
      request.prefix_ids.clear();
    }
    set_lengths(request);
    if (plan_.clients > 0) {
      request.client = static_cast<std::uint32_t>(clients_.uniform() * static_cast<double>(plan_.clients));
    }
    request.arrival = arrivals_.next(request.arrival);
    return true;
  }
  void set_lengths(RequestSpec& request) {
    if (plan_.input) {
      request.input = plan_.input->sample(inputs_);
      const auto blocks = static_cast<std::size_t>(request.input.count() / plan_.block_tokens);
      if (request.prefix_ids.size() > blocks) request.prefix_ids.resize(blocks);
    }
    if (plan_.output) {
      request.output = plan_.output->sample(outputs_);
      request.max_new_tokens = request.output;
    }
    if (plan_.cap > 0) {
      request.output = std::min(request.output, Tokens(plan_.cap));
      request.max_new_tokens = Tokens(plan_.cap);
    }
  }

  Plan plan_;
  std::optional<QuantileTable> table_;
  std::unique_ptr<TraceReader> file_;
  TraceRow row_;
  RequestSpec ahead_;
  bool ready_ = false;
  ArrivalClock arrivals_;
  RandomStream lengths_;
  RandomStream inputs_;
  RandomStream outputs_;
  RandomStream clients_;
  std::int64_t delivered_ = 0;
};

/// Reads the settings, collects what is wrong with them and builds the workload.
class Builder {
 public:
  explicit Builder(const Settings& settings) : settings_(settings) {}

  Workload build(std::int64_t replication) {
    workload_.name = text("workload.trace", "azure-conv");
    SPILLWAY_CHECK(value<double>("workload.rate").value_or(1.0) > 0.0, "workload.rate is not above 0");
    SPILLWAY_CHECK(value<std::int64_t>("workload.requests").value_or(1) > 0, "workload.requests is not above 0");
    plan_.clients = value<std::int64_t>("workload.clients").value_or(0);
    plan_.block_tokens = value<std::int64_t>("memory.block_tokens").value_or(16);
    read_arrival();
    const bool is_file = workload_.name.find_first_of("/.") != std::string::npos;
    if (!is_file) open_table();
    read_lengths();
    if (is_file) {
      open_file();
    } else {
      open_bundled();
    }
    if (!config_problems_.empty()) {
      config_problems_.insert(config_problems_.end(), data_problems_.begin(), data_problems_.end());
      throw ConfigError(std::move(config_problems_));
    }
    if (!data_problems_.empty()) throw DataError(std::move(data_problems_));
    finish(replication);
    return std::move(workload_);
  }

 private:
  template <class T>
  [[nodiscard]] std::optional<T> value(const std::string& key) const {
    return settings_.has(key) ? std::optional<T>(settings_.get<T>(key)) : std::nullopt;
  }
  [[nodiscard]] std::string text(const std::string& key, const std::string& otherwise) const {
    return value<std::string>(key).value_or(otherwise);
  }
  void problem(const std::string& key, std::string what, std::string fix) {
    config_problems_.push_back({std::move(what), key, std::move(fix)});
  }
  void warn(std::string warning) { workload_.warnings.push_back(std::move(warning)); }

  /// The keys that belong to one arrival process: a figure that would change nothing is refused.
  void read_arrival() {
    const std::string chosen = text("workload.arrival", "");
    const auto only_for = [&](const char* process, std::initializer_list<const char*> keys) {
      for (const char* key : keys) {
        if (chosen == process || !settings_.has(key)) continue;
        problem(key,
                fmt::format("{} is for workload.arrival={}{}", key, process,
                            chosen.empty() ? "" : fmt::format(", and it is {}", chosen)),
                fmt::format("set workload.arrival={}, or leave {} out", process, key));
      }
    };
    only_for("gamma", {"workload.cv"});
    only_for("burst", {"workload.burst_after", "workload.burst_factor", "workload.burst_time"});
    ArrivalPlan& plan = plan_.arrival;
    if (chosen == "gamma" && !settings_.has("workload.cv")) {
      problem("workload.cv", "workload.arrival=gamma needs the variation of the gaps",
              "set workload.cv, e.g. workload.cv=2 (1 is poisson)");
    }
    if (chosen == "burst" && !settings_.has("workload.burst_after")) {
      problem("workload.burst_after", "workload.arrival=burst needs the number of prompts before the burst",
              "set workload.burst_after, e.g. workload.burst_after=25");
    }
    plan.cv = value<double>("workload.cv").value_or(plan.cv);
    plan.burst_after = value<std::int64_t>("workload.burst_after").value_or(0);
    plan.burst_factor = value<double>("workload.burst_factor").value_or(kDefaultBurstFactor);
    plan.burst_time = value<Duration>("workload.burst_time").value_or(kDefaultBurstTime);
    SPILLWAY_CHECK(plan.cv > 0.0 && plan.burst_factor > 0.0, "workload.cv or burst_factor is not above 0");
  }

  void read_lengths() {
    const std::optional<double> spread = table_ ? table_->spread() : std::nullopt;
    if (const auto given = value<std::string>("workload.input_tokens")) {
      plan_.input = parse_length(*given, "workload.input_tokens", config_problems_, spread);
    }
    if (const auto given = value<std::string>("workload.output_tokens")) {
      plan_.output = parse_length(*given, "workload.output_tokens", config_problems_, spread);
    }
    const std::string cap = text("workload.max_new_tokens", "actual");
    if (cap == "actual") return;
    const auto tokens = parse_integer(cap);
    if (tokens && *tokens >= 1 && *tokens <= kMaxTokens) {
      plan_.cap = *tokens;
      return;
    }
    problem("workload.max_new_tokens",
            fmt::format("\"{}\" is neither \"actual\" nor a whole number of tokens from 1 to {}", cap, kMaxTokens),
            "use actual (each request asks for what it generates) or a number such as 1024");
  }

  /// The table of a bundled workload.
  void open_table() {
    const EmbeddedFile* file = bundled_file(workload_.name);
    if (file == nullptr) {
      const std::vector<std::string> names = bundled_names();
      const std::string near = nearest_name(workload_.name, names);
      problem("workload.trace", fmt::format("there is no bundled workload \"{}\"", workload_.name),
              fmt::format("{}bundled: {}; a file in the current folder is written ./{}",
                          near.empty() ? "" : fmt::format("did you mean \"{}\"?  ", near), fmt::join(names, ", "),
                          workload_.name));
      return;
    }
    table_ = QuantileTable::parse(file->content, std::string(file->path));
    workload_.format = "quantile-table";
    workload_.source_text = table_->source();
    workload_.sha256 = sha256_hex(file->content);
  }

  void open_bundled() {
    if (text("workload.format", "auto") != "auto") {
      problem("workload.format", "a format is for trace files, and workload.trace names a bundled workload",
              "leave workload.format out");
    }
    const std::string arrival = text("workload.arrival", "poisson");
    if (arrival == "trace") {
      problem("workload.arrival", "the bundled workloads have no arrival times",
              fmt::format("use {}, or a trace file with times", kDrawn));
    }
    plan_.requests = value<std::int64_t>("workload.requests").value_or(kDefaultRequests);
    plan_.arrival.process = arrival_of(arrival);
    draw_arrivals(value<double>("workload.rate").value_or(kDefaultRate));
  }

  void open_file() {
    FileFacts facts;
    try {
      facts = survey();
      workload_.sha256 = file_sha256(workload_.name);
    } catch (const ConfigError& error) {
      config_problems_.insert(config_problems_.end(), error.problems().begin(), error.problems().end());
      return;
    } catch (const DataError& error) {
      data_problems_ = error.problems();
      return;
    }
    workload_.source_text = fmt::format("trace file {}, {} requests", workload_.name, facts.rows);
    workload_.prefix_ids = facts.prefix_ids;
    plan_.requests = facts.rows;
    if (const auto wanted = value<std::int64_t>("workload.requests")) {
      plan_.requests = std::min(facts.rows, *wanted);
      if (*wanted > facts.rows) {
        warn(fmt::format("workload.requests = {}, but {} holds {} requests: all of them are replayed", *wanted,
                         workload_.name, facts.rows));
      }
    }
    if (facts.zero_outputs > 0) {
      warn(fmt::format(
          "{} of {} requests in {} generated 0 tokens; they are replayed with 1, so that the load of their prompts is "
          "kept",
          facts.zero_outputs, facts.rows, workload_.name));
    }
    if (!facts.has_inputs && !value<std::string>("workload.input_tokens")) {
      problem("workload.input_tokens", fmt::format("{} states output lengths only", workload_.name),
              "set the lengths of its prompts, e.g. workload.input_tokens=64 or lognormal(64,1)");
    }
    choose_arrival(facts);
  }

  /// Reads the whole file once.
  FileFacts survey() {
    const OpenedTrace trace = open_trace(workload_.name, text("workload.format", "auto"));
    FileFacts facts;
    TraceRow row;
    while (trace.reader->next(row)) {
      if (facts.rows == 0) facts.first = row.arrival;
      facts.last = row.arrival;
      facts.prefix_ids = facts.prefix_ids || !row.prefix_ids.empty();
      ++facts.rows;
    }
    workload_.format = trace.format;
    facts.has_times = trace.reader->has_times();
    facts.has_inputs = trace.reader->has_inputs();
    facts.zero_outputs = trace.reader->zero_outputs();
    if (facts.rows == 0) {
      throw DataError("the trace holds no request", workload_.name, "check that it was copied whole");
    }
    if (facts.rows > kMaxRequests) {
      throw DataError(fmt::format("the trace holds {} requests; at most {} fit one run", facts.rows, kMaxRequests),
                      workload_.name, "split it");
    }
    return facts;
  }

  void choose_arrival(const FileFacts& facts) {
    const auto rate = value<double>("workload.rate");
    const auto arrival = value<std::string>("workload.arrival");
    if (!facts.has_times && !rate && !arrival) {
      problem("workload.rate",
              fmt::format("{} has no arrival times, so a rate or an arrival process is needed", workload_.name),
              "set workload.rate (requests/s) or workload.arrival, e.g. workload.rate=4");
      return;
    }
    if (!facts.has_times && arrival == "trace") {
      problem("workload.arrival", fmt::format("{} has no arrival times to replay", workload_.name),
              fmt::format("use {}", kDrawn));
      return;
    }
    plan_.arrival.process = arrival_of(arrival.value_or(facts.has_times ? "trace" : "poisson"));
    if (plan_.arrival.process != Arrival::trace) {
      draw_arrivals(rate.value_or(facts.rate().value_or(kDefaultRate)));
      const bool drawn = plan_.arrival.process != Arrival::all_at_once;
      if (drawn && !rate) {
        warn(fmt::format("workload.rate is not set: arrivals are drawn at {} requests/s, {}", *workload_.rate,
                         facts.rate() ? "the mean rate of the trace" : "the default"));
      }
      return;
    }
    workload_.rate = facts.rate();
    if (rate && facts.rows > 1) rescale(facts, *rate);
    const double seconds = to_seconds(facts.last) * plan_.arrival.time_scale;
    if (seconds <= kMaxSpanSeconds) return;
    problem(rate ? "workload.rate" : "workload.trace",
            fmt::format("the last request of {} would arrive after {:.3g} s; at most {:.0g} s fit one run",
                        workload_.name, seconds, kMaxSpanSeconds),
            rate ? "use a higher rate" : "check the times of the trace, or set workload.rate");
  }

  /// Chooses the factor that gives the file's times a mean rate.
  void rescale(const FileFacts& facts, double rate) {
    const auto own = facts.rate();
    if (!own) {
      problem("workload.rate",
              fmt::format("all requests of {} arrive at the same instant, so its times cannot be scaled to a rate",
                          workload_.name),
              "draw new arrivals with workload.arrival=poisson");
      return;
    }
    plan_.arrival.time_scale = *own / rate;
    workload_.rate = rate;
  }

  void draw_arrivals(double rate) {
    if (plan_.arrival.process == Arrival::all_at_once) {
      if (settings_.has("workload.rate")) warn("workload.rate is not used: workload.arrival is all-at-once");
      return;
    }
    plan_.arrival.mean_gap_s = 1.0 / rate;
    workload_.rate = rate;
    const ArrivalPlan& plan = plan_.arrival;
    if (plan.process == Arrival::burst && plan.burst_after >= plan_.requests) {
      warn(fmt::format("workload.burst_after = {}, but there are {} requests: the burst changes nothing",
                       plan.burst_after, plan_.requests));
    }
    // A gamma gap can be as many times longer as its square of CV is above that of an exponential one.
    const bool wide = plan.process == Arrival::gamma && plan.cv > 1.0;
    const double limit = wide ? kMaxMeanSpanSeconds / (plan.cv * plan.cv) : kMaxMeanSpanSeconds;
    if (!(static_cast<double>(plan_.requests) / rate <= limit)) {
      problem("workload.rate",
              fmt::format("{} requests at {} requests/s last longer than {:.2g} s{}", plan_.requests, rate, limit,
                          wide ? fmt::format(", the most at a CV of {:.6g}", plan.cv) : ""),
              "use a higher rate or fewer requests");
    }
  }

  void finish(std::int64_t replication) {
    std::unique_ptr<TraceReader> reader;
    if (!table_) reader = open_trace(workload_.name, workload_.format).reader;
    workload_.arrival = name_of(plan_.arrival.process);
    workload_.arrival_details = plan_.arrival.details();
    workload_.requests = plan_.requests;
    const auto drawn = [](const std::optional<LengthDistribution>& length) { return length && length->random(); };
    workload_.random =
        table_ || plan_.arrival.random() || drawn(plan_.input) || drawn(plan_.output) || plan_.clients > 1;
    workload_.stream = std::make_unique<WorkloadStream>(plan_, std::move(table_), std::move(reader),
                                                        settings_.get<std::int64_t>("seed"), replication);
  }

  const Settings& settings_;
  Plan plan_;
  Workload workload_;
  std::optional<QuantileTable> table_;
  std::vector<Problem> config_problems_;
  std::vector<Problem> data_problems_;
};

}  // namespace

Workload open_workload(const Settings& settings, std::int64_t replication) {
  return Builder(settings).build(replication);
}

}  // namespace spillway::traces
