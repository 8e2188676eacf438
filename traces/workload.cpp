#include "traces/workload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "sim/core/error.hpp"
#include "sim/core/text.hpp"
#include "sim/io/file_reader.hpp"
#include "traces/closed_loop.hpp"
#include "traces/readers/reader.hpp"
#include "traces/workload_rows.hpp"
#include "traces/workload_stream.hpp"
#include "traces/workload_survey.hpp"

namespace spillway::traces {
namespace {

/// The latest arrival of a run: sums with durations stay within int64.
constexpr double kMaxSpanSeconds = 4e9;
/// An exponential draw is at most 36.8 means, so this bound on the mean span keeps drawn arrivals below
/// kMaxSpanSeconds.
constexpr double kMaxMeanSpanSeconds = 1e8;
/// Choices that replace arrival times.
constexpr const char* kDrawn = "poisson, gamma, constant, burst or all-at-once";

/// Reads the settings, collects their problems and builds the workload.
class Builder {
 public:
  Builder(const Settings& settings, Tokens context_limit) : settings_(settings), context_limit_(context_limit) {}

  Workload build(std::int64_t replication) {
    prepare();
    const auto seed = settings_.get<std::int64_t>("seed");
    std::unique_ptr<LiveConversations> live;
    if (plan_.stationary) live = std::make_unique<LiveConversations>(plan_, table_, open_reader(), seed, replication);
    auto reader = open_reader();
    workload_.stream = std::make_unique<WorkloadStream>(plan_, std::move(table_), std::move(reader), std::move(live),
                                                        seed, replication);
    if (workload_.concurrency > 0) {
      workload_.stream = std::make_unique<ClosedLoop>(std::move(workload_.stream), workload_.concurrency,
                                                      value<Duration>("workload.ramp").value_or(Duration{}));
    }
    return std::move(workload_);
  }

  std::unique_ptr<TraceReader> build_rows(std::int64_t replication) {
    prepare();
    if (workload_.concurrency > 0) warn("workload.concurrency is not part of a trace: the rows are as without it");
    if (text("workload.start", "") == "stationary") {
      warn("workload.start is not part of a trace: the rows are those of workload.start=empty");
    }
    auto reader = open_reader();
    return std::make_unique<WorkloadRows>(plan_, std::move(table_), std::move(reader),
                                          settings_.get<std::int64_t>("seed"), replication,
                                          std::move(workload_.warnings));
  }

 private:
  /// Decides everything that does not depend on the replication.
  void prepare() {
    workload_.name = text("workload.trace", "azure-conv");
    SPILLWAY_CHECK(value<double>("workload.rate").value_or(1.0) > 0.0, "workload.rate is not above 0");
    SPILLWAY_CHECK(value<std::int64_t>("workload.requests").value_or(1) > 0, "workload.requests is not above 0");
    plan_.block_tokens = Tokens(value<std::int64_t>("memory.block_tokens").value_or(16));
    read_clients();
    read_concurrency();
    read_arrival();
    read_conversations();
    const bool is_file = workload_.name.find_first_of("/.") != std::string::npos;
    if (!is_file) {
      open_table();
      refuse_for_bundled();
    }
    read_lengths();
    if (is_file) {
      open_file();
    } else {
      open_bundled();
    }
    choose_start();
    if (!config_problems_.empty()) {
      config_problems_.insert(config_problems_.end(), data_problems_.begin(), data_problems_.end());
      throw ConfigError(std::move(config_problems_));
    }
    if (!data_problems_.empty()) throw DataError(std::move(data_problems_));
    finish();
  }
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

  /// Keys of one arrival process. They are refused with another process, where they would change nothing.
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
      problem("workload.cv",
              "workload.arrival=gamma needs workload.cv, the coefficient of variation of the gaps between arrivals",
              "set workload.cv, e.g. workload.cv=2 (1 is poisson)");
    }
    if (chosen == "burst" && !settings_.has("workload.burst_after")) {
      problem("workload.burst_after",
              "workload.arrival=burst needs workload.burst_after, the number of the prompt that starts the burst",
              "set workload.burst_after, e.g. workload.burst_after=25");
    }
    plan.cv = value<double>("workload.cv").value_or(plan.cv);
    plan.burst_after = value<std::int64_t>("workload.burst_after").value_or(0);
    plan.burst_factor = value<double>("workload.burst_factor").value_or(kDefaultBurstFactor);
    plan.burst_time = value<Duration>("workload.burst_time").value_or(kDefaultBurstTime);
    SPILLWAY_CHECK(plan.cv > 0.0 && plan.burst_factor > 0.0, "workload.cv or burst_factor is not above 0");
  }

  void read_concurrency() {
    workload_.concurrency = value<std::int64_t>("workload.concurrency").value_or(0);
    if (workload_.concurrency > 0 || !settings_.has("workload.ramp")) return;
    problem("workload.ramp", "workload.ramp is the start of workload.concurrency, which is not set",
            "set workload.concurrency, or leave workload.ramp out");
  }
  /// Nothing says when requests are due, but how many are in flight.
  [[nodiscard]] bool closed_loop() const {
    return workload_.concurrency > 0 && !settings_.has("workload.rate") && !settings_.has("workload.arrival");
  }

  /// Reads "70/20/10": one share per client.
  void read_clients() {
    plan_.clients = value<std::int64_t>("workload.clients").value_or(0);
    const auto shares = value<std::string>("workload.client_shares");
    if (!shares) return;
    constexpr const char* kFix = "write a share for each client, e.g. 70/20/10";
    double sum = 0.0;
    for (std::size_t from = 0; from <= shares->size();) {
      const std::size_t to = std::min(shares->find('/', from), shares->size());
      const auto share = parse_number(trimmed(std::string_view(*shares).substr(from, to - from)));
      if (!share || !(*share > 0.0)) {
        problem("workload.client_shares", fmt::format("\"{}\" is not a list of numbers above 0", *shares), kFix);
        return;
      }
      plan_.client_shares.push_back(*share);
      sum += *share;
      from = to + 1;
    }
    if (!std::isfinite(sum)) {
      problem("workload.client_shares", "the sum of the shares is too large", kFix);
      return;
    }
    for (double& share : plan_.client_shares) share /= sum;
    const auto clients = static_cast<std::int64_t>(plan_.client_shares.size());
    if (plan_.clients > 0 && plan_.clients != clients) {
      problem("workload.client_shares", fmt::format("{} shares for workload.clients={}", clients, plan_.clients), kFix);
    }
    plan_.clients = clients;
  }

  void read_conversations() {
    plan_.conversations = value<bool>("workload.conversations").value_or(true);
    plan_.drop_history = value<double>("workload.drop_history").value_or(0.0);
    const auto context = value<std::int64_t>("workload.max_context");
    plan_.max_context = context ? Tokens(*context) : context_limit_;
    plan_.strict_context = context.has_value();
    if (const auto think = value<std::string>("workload.think_time")) {
      think_ = parse_think_time(*think, "workload.think_time", config_problems_);
      think_given_ = true;
    }
  }

  [[nodiscard]] bool prefix_sessions() const { return text("workload.sessions", "none") == "prefix"; }

  /// Refuses keys of conversations for a workload without conversations, where they would change nothing.
  void refuse_without_conversations(const char* why) {
    for (const char* key : {"workload.think_time", "workload.max_context", "workload.drop_history", "workload.start"}) {
      if (settings_.has(key))
        problem(key, fmt::format("{}, so {} changes nothing", why, key), fmt::format("leave {} out", key));
    }
    if (!prefix_sessions()) return;
    problem("workload.sessions", fmt::format("{}, so workload.sessions=prefix changes nothing", why),
            "leave workload.sessions out");
  }

  /// Prompts are cut so that the requested answer fits after them: some prompt must be left.
  void check_context() {
    if (plan_.max_new_tokens < plan_.max_context.count()) return;
    problem("workload.max_new_tokens",
            fmt::format("answers of up to {} tokens leave no space for a prompt in a context of {} tokens",
                        plan_.max_new_tokens, plan_.max_context.count()),
            settings_.has("workload.max_context") ? "lower it, or raise workload.max_context"
                                                  : "lower it, or use a model with a longer context");
  }

  /// Chooses the think times. `stated`: the workload states one for every later turn.
  void choose_think_time(const std::string& default_text, bool stated) {
    if (think_given_) {
      if (!think_) return;
      plan_.think = *think_;
      if (plan_.think.from_trace() && !stated) {
        problem("workload.think_time",
                fmt::format("{} does not state the think time of every later turn", workload_.name),
                "draw them, e.g. workload.think_time=exponential(60s)");
      }
      return;
    }
    if (stated) return;  // the trace's
    plan_.think = *parse_think_time(default_text, "workload.think_time", config_problems_);
    workload_.think_time = default_text;
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
      plan_.max_new_tokens = *tokens;
      return;
    }
    problem("workload.max_new_tokens",
            fmt::format("\"{}\" is neither \"actual\" nor a whole number of tokens from 1 to {}", cap, kMaxTokens),
            "use actual (each request asks for what it generates) or a number such as 1024");
  }

  /// Opens the table of a bundled workload.
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
    const std::string arrival = text("workload.arrival", closed_loop() ? "all-at-once" : "poisson");
    if (arrival == "trace") {
      problem("workload.arrival", "the bundled workloads have no arrival times",
              fmt::format("use {}, or a trace file with times", kDrawn));
    }
    plan_.requests = value<std::int64_t>("workload.requests").value_or(kDefaultRequests);
    plan_.arrival.process = arrival_of(arrival);
    plan_.conversations = plan_.conversations && table_ && table_->mean_turns();
    if (plan_.conversations) {
      plan_.mean_turns = *table_->mean_turns();
      check_context();
      choose_think_time(table_->think_time().empty() ? kDefaultThinkTime : table_->think_time(), false);
      workload_.prefix_ids = true;
      workload_.conversations = true;
    } else if (config_problems_.empty()) {
      refuse_without_conversations(table_->mean_turns() ? "workload.conversations=false"
                                                        : "the workload has no conversations");
    }
    draw_arrivals(value<double>("workload.rate").value_or(kDefaultRate));
  }

  void refuse_for_bundled() {
    if (text("workload.format", "auto") != "auto") {
      problem("workload.format", "workload.format is for trace files, but workload.trace names a bundled workload",
              "leave workload.format out");
    }
    if (settings_.has("workload.columns")) {
      problem("workload.columns", "workload.columns is for trace files, but workload.trace names a bundled workload",
              "leave workload.columns out");
    }
    if (text("workload.tokenizer", "estimate") != "estimate") {
      problem("workload.tokenizer",
              "workload.tokenizer is for trace files with texts, but workload.trace names a bundled "
              "workload",
              "leave workload.tokenizer out");
    }
    if (prefix_sessions()) {
      problem("workload.sessions",
              "workload.sessions reads the conversations of a trace file, but workload.trace names a bundled workload",
              "leave workload.sessions out, or use a trace with prefix ids, such as mooncake-jsonl (hash_ids)");
    }
    if (value<bool>("workload.skip_bad_rows").value_or(false)) {
      problem("workload.skip_bad_rows", "a bundled workload has no bad rows to skip", "leave it out");
    }
  }

  void open_file() {
    if (settings_.has("workload.columns") && text("workload.format", "auto") != "auto") {
      problem("workload.format",
              "workload.columns says what the columns of the file mean, so workload.format cannot name another format",
              "leave workload.format out");
    }
    if (prefix_sessions() && text("workload.arrival", "trace") != "trace") {
      problem("workload.arrival", "workload.sessions=prefix keeps the times of the trace: its turns arrive at them",
              "leave workload.arrival out; workload.rate scales the times of the trace");
    }
    TraceSurvey facts;
    try {
      facts = survey_trace(workload_.name, text("workload.format", "auto"), reader_options());
      for (const std::string& file : facts.files) workload_.files.push_back({file, file_sha256(file)});
      workload_.sha256 = file_sha256(workload_.name);
    } catch (const ConfigError& error) {
      config_problems_.insert(config_problems_.end(), error.problems().begin(), error.problems().end());
      return;
    } catch (const DataError& error) {
      data_problems_ = error.problems();
      return;
    }
    if (!facts.has_texts && text("workload.tokenizer", "estimate") != "estimate") {
      problem("workload.tokenizer", fmt::format("{} states lengths in tokens and has no texts", workload_.name),
              "leave workload.tokenizer out");
    }
    workload_.format = facts.format;
    workload_.source_text = fmt::format("trace file {}, {} requests", workload_.name, facts.rows);
    workload_.prefix_ids = facts.prefix_ids;
    workload_.skipped_rows = facts.skipped;
    workload_.warnings.insert(workload_.warnings.end(), facts.warnings.begin(), facts.warnings.end());
    if (facts.timed > 0) plan_.origin = std::min(facts.first, SimTime());
    if (facts.skipped > 0) {
      warn(fmt::format("{} of {} rows of {} were skipped because they are not requests; the first: {}", facts.skipped,
                       facts.skipped + facts.rows, workload_.name, facts.first_skipped));
    }
    plan_.requests = facts.rows;
    if (const auto wanted = value<std::int64_t>("workload.requests")) {
      plan_.requests = std::min(facts.rows, *wanted);
      if (*wanted > facts.rows) {
        warn(fmt::format("workload.requests = {}, but {} has {} requests: all are replayed", *wanted, workload_.name,
                         facts.rows));
      }
    }
    if (facts.zero_outputs > 0) {
      warn(fmt::format(
          "{} of {} requests in {} generated 0 tokens; they are replayed with 1 token, to keep the load of their "
          "prompts",
          facts.zero_outputs, facts.rows, workload_.name));
    }
    if (!facts.has_inputs && !value<std::string>("workload.input_tokens")) {
      problem("workload.input_tokens", fmt::format("{} states output lengths only", workload_.name),
              "set the lengths of its prompts, e.g. workload.input_tokens=64 or lognormal(64,1)");
    }
    choose_conversations(facts);
    choose_arrival(facts);
    plan_.sorted = facts.sorted || plan_.arrival.process != Arrival::trace;
  }

  [[nodiscard]] ReaderOptions reader_options() const {
    return {.tokenizer = text("workload.tokenizer", "estimate"),
            .skip_bad_rows = value<bool>("workload.skip_bad_rows").value_or(false),
            .columns = text("workload.columns", ""),
            .prefix_sessions = prefix_sessions()};
  }

  /// Chooses how the file's conversations are played. In a log, rows are in order of time and later turns have their
  /// own times. In other files, the rows of a conversation stand together; later turns have a think time or nothing.
  void choose_conversations(const TraceSurvey& facts) {
    // A log may leave turns unnumbered, and the turns of one conversation seldom stand together in it.
    const bool log = facts.later_timed > 0 || (facts.unnumbered_turns > 0 && facts.timed == facts.rows);
    plan_.conversations = plan_.conversations && (facts.later_turns > 0 || log);
    if (!plan_.conversations) {
      refuse_without_conversations(facts.later_turns > 0 ? "workload.conversations=false"
                                                         : "the trace has no conversations of several turns");
      return;
    }
    workload_.conversations = true;
    workload_.prefix_ids = true;
    plan_.mean_turns = facts.mean_turns();
    plan_.starts = facts.rows - facts.later_turns;
    check_context();
    const bool keeps_times = text("workload.arrival", "trace") == "trace";
    plan_.whole_conversations = !log || !keeps_times;
    if (!plan_.whole_conversations) {
      if (think_ && !think_->from_trace()) {
        problem(
            "workload.think_time",
            fmt::format(
                "{} states the times of later turns: they arrive then, but not before the answer to the turn before "
                "and its think time",
                workload_.name),
            "leave it out, or draw new arrivals with workload.arrival=poisson");
      }
      if (facts.later_timed < facts.later_turns) {
        data_problems_.push_back(
            {fmt::format("{} of {} later turns state an arrival time", facts.later_timed, facts.later_turns),
             workload_.name, "give all later turns a time, or none"});
      }
      return;
    }
    if (facts.torn_row > 0) {
      data_problems_.push_back(
          {"a later turn does not follow the turn before it, so its conversation is incomplete when it starts",
           fmt::format("{}, row {}", workload_.name, facts.torn_row),
           facts.has_times ? "sort the rows by conversation and turn, or keep the times of the trace"
                           : "sort the rows by conversation and turn"});
      return;
    }
    const bool stated = facts.later_think == facts.later_turns;
    choose_think_time(kDefaultThinkTime, stated);
    if (!think_given_ && !stated) {
      warn(fmt::format("workload.think_time is not set: the time from an answer to the next turn is {}",
                       kDefaultThinkTime));
    }
  }

  void choose_arrival(const TraceSurvey& facts) {
    const auto rate = value<double>("workload.rate");
    auto arrival = value<std::string>("workload.arrival");
    if (!facts.has_times && closed_loop()) arrival = "all-at-once";
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

  /// Scales the file's times to a mean rate.
  void rescale(const TraceSurvey& facts, double rate) {
    const auto own = facts.rate();
    if (!own) {
      problem("workload.rate",
              fmt::format("all requests of {} arrive at the same instant, so workload.rate cannot scale its times",
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
    // Conversations arrive, and each brings mean_turns requests.
    plan_.arrival.mean_gap_s = plan_.mean_turns / rate;
    workload_.rate = rate;
    const ArrivalPlan& plan = plan_.arrival;
    const double starts = static_cast<double>(plan_.requests) / plan_.mean_turns;
    if (plan.process == Arrival::burst && !(static_cast<double>(plan.burst_after) < starts)) {
      warn(fmt::format("workload.burst_after = {}, but there are {:.0f} {}: the burst changes nothing",
                       plan.burst_after, starts, plan_.conversations ? "conversations" : "requests"));
    }
    // Gamma gaps with CV > 1 can be cv^2 times as long as exponential gaps.
    const bool wide = plan.process == Arrival::gamma && plan.cv > 1.0;
    const double limit = wide ? kMaxMeanSpanSeconds / (plan.cv * plan.cv) : kMaxMeanSpanSeconds;
    if (!(static_cast<double>(plan_.requests) / rate <= limit)) {
      problem("workload.rate",
              fmt::format("{} requests at {} requests/s last longer than {:.2g} s{}", plan_.requests, rate, limit,
                          wide ? fmt::format(", the most at a CV of {:.6g}", plan.cv) : ""),
              "use a higher rate or fewer requests");
    }
  }

  [[nodiscard]] std::unique_ptr<TraceReader> open_reader() const {
    return table_ ? nullptr : open_trace(workload_.name, workload_.format, reader_options()).reader;
  }

  /// A balance needs conversations that start at a mean rate.
  void choose_start() {
    const bool drawn = plan_.conversations && plan_.whole_conversations && plan_.arrival.mean_gap_s > 0.0;
    const std::string start = text("workload.start", drawn ? "stationary" : "empty");
    plan_.stationary = drawn && start == "stationary";
    workload_.stationary = plan_.stationary;
    if (start == "empty" || drawn || !plan_.conversations) return;
    problem("workload.start",
            fmt::format("workload.start=stationary needs a mean rate at which conversations start, and "
                        "workload.arrival={} has none",
                        name_of(plan_.arrival.process)),
            "leave workload.start out, or set workload.rate and workload.arrival=poisson");
  }

  void finish() {
    workload_.arrival = name_of(plan_.arrival.process);
    workload_.arrival_details = plan_.arrival.details();
    workload_.requests = plan_.requests;
    const Arrival process = plan_.arrival.process;
    if (process == Arrival::poisson) workload_.variation = 1.0;
    if (process == Arrival::gamma) workload_.variation = plan_.arrival.cv;
    if (process == Arrival::constant) workload_.variation = 0.0;
    const auto drawn = [](const std::optional<LengthDistribution>& length) { return length && length->random(); };
    workload_.random = table_ || plan_.arrival.random() || drawn(plan_.input) || drawn(plan_.output) ||
                       plan_.clients > 1 || plan_.stationary ||
                       (plan_.conversations && (plan_.think.random() || plan_.drop_history > 0.0));
    if (plan_.conversations && think_given_) workload_.think_time = text("workload.think_time", "");
    workload_.mean_turns = plan_.mean_turns;
  }

  const Settings& settings_;
  Tokens context_limit_;
  StreamPlan plan_;
  std::optional<ThinkTime> think_;  // workload.think_time
  bool think_given_ = false;
  Workload workload_;
  std::optional<QuantileTable> table_;
  std::vector<Problem> config_problems_;
  std::vector<Problem> data_problems_;
};

}  // namespace

Workload open_workload(const Settings& settings, std::int64_t replication, Tokens context_limit) {
  return Builder(settings, context_limit).build(replication);
}

std::unique_ptr<TraceReader> open_workload_rows(const Settings& settings, std::int64_t replication,
                                                Tokens context_limit) {
  return Builder(settings, context_limit).build_rows(replication);
}

}  // namespace spillway::traces
