#include "sim/cli/traces/trace_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "sim/core/printable.hpp"

namespace spillway::cli {
namespace {

using nlohmann::ordered_json;
using traces::TraceStatistics;
using traces::ValueSummary;

std::string class_name(const TraceReport& report, std::uint32_t service_class) {
  const auto& names = report.facts.class_names;
  if (service_class == 0) return "none";
  return service_class <= names.size() ? names[service_class - 1] : fmt::format("{}", service_class);
}

double mean_turns(const TraceStatistics& statistics) {
  return static_cast<double>(statistics.conversation_rows()) / static_cast<double>(statistics.conversations());
}

double share(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

double repeated_share(const TraceStatistics& statistics) {
  const double input = statistics.input().mean() * static_cast<double>(statistics.input().count());
  return static_cast<double>(statistics.repeated_tokens().count()) / input;
}

// --- Table ----------------------------------------------------------------------------------------------------------

class Table {
 public:
  explicit Table(const TraceReport& report) : report_(report), statistics_(report.statistics), facts_(report.facts) {}

  std::string text() {
    line("Trace", printable(report_.name));
    line("Format", facts_.source_format);
    line("SHA-256", facts_.source_sha256);
    if (report_.converted_from) {
      const traces::TraceFacts& source = *report_.converted_from;
      line("Source", fmt::format("{}, {}", printable(source.source_name), source.source_format));
      line("", "SHA-256 " + printable(source.source_sha256));
    }
    line("Requests", fmt::format("{}{}", facts_.rows,
                                 facts_.zero_outputs == 0 ? ""
                                                          : fmt::format(", {} of them with 0 output tokens, read as 1",
                                                                        facts_.zero_outputs)));
    if (facts_.skipped > 0) {
      line("Skipped", fmt::format("{} bad rows; the first: {}", facts_.skipped, printable(facts_.first_skipped)));
    }
    add_arrivals();
    add_conversations();
    add_parties();
    add_prefixes();
    add_lengths();
    add_histogram();
    for (const std::string& warning : facts_.warnings) line("Warning", printable(warning));
    return std::move(text_);
  }

 private:
  void line(std::string_view head, std::string_view content) {
    fmt::format_to(std::back_inserter(text_), "{:<15}{}\n", head, content);
  }

  void add_arrivals() {
    if (statistics_.timed_rows() == 0) return line("Arrivals", "none in the trace");
    std::string content =
        fmt::format("{:.6g} s to {:.6g} s", to_seconds(statistics_.first()), to_seconds(statistics_.last()));
    if (const auto rate = statistics_.mean_rate()) content += fmt::format(", mean rate {:.4g} requests/s", *rate);
    if (const auto cv = statistics_.gap_cv()) content += fmt::format(", CV of the gaps {:.3g}", *cv);
    line("Arrivals", content);
    if (statistics_.timed_rows() == facts_.rows) return;
    line("",
         fmt::format("{} requests have one; the others arrive after the previous answer", statistics_.timed_rows()));
  }

  void add_conversations() {
    if (statistics_.conversations() == 0) return line("Conversations", "none in the trace");
    line("Conversations",
         fmt::format("{} of {} requests{}", statistics_.conversations(), statistics_.conversation_rows(),
                     statistics_.conversations_cut() ? ", and more that were not counted" : ""));
    const auto& turns = statistics_.turns();
    line("  turns",
         fmt::format("mean {:.3g}, p50 {:.4g}, p90 {:.4g}, max {}", mean_turns(statistics_),
                     traces::quantile_of(turns, 0.5), traces::quantile_of(turns, 0.9), turns.rbegin()->first));
    if (statistics_.conversation_rows() > statistics_.conversations()) {
      line("  history",
           fmt::format("{:.3g}% of the prompt tokens repeat the previous turn; {} of {} later turns dropped it",
                       100.0 * repeated_share(statistics_), statistics_.dropped_histories(),
                       statistics_.conversation_rows() - statistics_.conversations()));
    }
    const ValueSummary& think = statistics_.think();
    if (think.count() == 0) return line("  think time", "not stated");
    line("  think time", fmt::format("mean {:.4g} s, p50 {:.4g} s, p90 {:.4g} s, max {:.4g} s ({} turns)",
                                     think.mean() * 1e-9, think.quantile(0.5) * 1e-9, think.quantile(0.9) * 1e-9,
                                     to_seconds(Duration(think.max())), think.count()));
  }

  void add_parties() {
    line("Clients", fmt::format("{}{}", statistics_.clients_cut() ? "at least " : "", statistics_.clients()));
    const auto& classes = statistics_.classes();
    if (classes.size() == 1 && classes.contains(0)) return;
    constexpr std::size_t kMostShown = 8;
    std::string content;
    std::size_t shown = 0;
    for (const auto& [service_class, rows] : classes) {
      if (shown++ == kMostShown) break;
      content +=
          fmt::format("{}{}: {}", content.empty() ? "" : ", ", printable(class_name(report_, service_class)), rows);
    }
    if (classes.size() > kMostShown) content += fmt::format(", and {} more", classes.size() - kMostShown);
    line("Classes", content);
  }

  void add_prefixes() {
    if (!facts_.said.prefix) return line("Prefix reuse", "the trace does not say which prompts share a prefix");
    line("Prefix reuse",
         fmt::format("{:.3g}% of {} blocks of {} tokens repeat the start of an earlier prompt; {:.3g}% have an id",
                     100.0 * share(statistics_.reused_blocks(), statistics_.prompt_blocks()),
                     statistics_.prompt_blocks(), TraceStatistics::kBlockTokens,
                     100.0 * share(statistics_.named_blocks(), statistics_.prompt_blocks())));
    if (statistics_.reuse_rows() == facts_.rows) return;
    line("", fmt::format("counted in the first {} requests, up to {} distinct blocks", statistics_.reuse_rows(),
                         traces::IdSet::kMost));
  }

  void add_lengths() {
    text_ += fmt::format("\n{:<15}{:>12}{:>12}{:>12}{:>12}{:>12}\n", "Tokens", "mean", "p50", "p90", "p99", "max");
    const auto row = [this](std::string_view name, const ValueSummary& lengths) {
      text_ += fmt::format("{:<15}{:>12.6g}{:>12.6g}{:>12.6g}{:>12.6g}{:>12}\n", name, lengths.mean(),
                           lengths.quantile(0.5), lengths.quantile(0.9), lengths.quantile(0.99), lengths.max());
    };
    if (facts_.has_inputs) row("  input", statistics_.input());
    row("  output", statistics_.output());
    if (!facts_.has_inputs) line("  input", "not stated");
    text_ += "  Quantiles are exact below 512 and within 0.1% above.\n";
  }

  void add_histogram() {
    constexpr std::size_t kBar = 24;
    const auto& input = statistics_.input_histogram();
    const auto& output = statistics_.output_histogram();
    const auto bar = [this](std::int64_t rows) {
      const auto length = static_cast<std::size_t>(share(rows, facts_.rows) * static_cast<double>(kBar) + 0.5);
      return rows == 0 ? std::string() : std::string(std::max<std::size_t>(length, 1), '#');
    };
    std::size_t end = input.size();
    while (end > 0 && output[end - 1] == 0 && (!facts_.has_inputs || input[end - 1] == 0)) --end;
    text_ += fmt::format("\n{:<20}{:<38}{}\n", "Requests by tokens", facts_.has_inputs ? "input" : "", "output");
    for (std::size_t i = 0; i < end; ++i) {
      const std::int64_t least = std::int64_t{1} << i;
      const std::string range = i == 0 ? "1" : fmt::format("{}-{}", least, 2 * least - 1);
      const std::string left = facts_.has_inputs ? fmt::format("{:>10} {}", input[i], bar(input[i])) : "";
      text_ += fmt::format("  {:<18}{:<38}{:>10} {}", range, left, output[i], bar(output[i]));
      text_.erase(text_.find_last_not_of(' ') + 1);
      text_ += '\n';
    }
  }

  const TraceReport& report_;
  const TraceStatistics& statistics_;
  const traces::TraceFacts& facts_;
  std::string text_;
};

// --- JSON -----------------------------------------------------------------------------------------------------------

template <class T>
ordered_json or_null(const std::optional<T>& value) {
  return value ? ordered_json(*value) : ordered_json();
}

ordered_json lengths_json(const ValueSummary& lengths, const TraceStatistics::Histogram& histogram) {
  ordered_json buckets = ordered_json::array();
  for (std::size_t i = 0; i < histogram.size(); ++i) {
    if (histogram[i] == 0) continue;
    const std::int64_t least = std::int64_t{1} << i;
    buckets.push_back({{"least", least}, {"most", 2 * least - 1}, {"requests", histogram[i]}});
  }
  return {{"mean", lengths.mean()},        {"p50", lengths.quantile(0.5)}, {"p90", lengths.quantile(0.9)},
          {"p99", lengths.quantile(0.99)}, {"max", lengths.max()},         {"histogram", std::move(buckets)}};
}

ordered_json arrivals_json(const TraceStatistics& statistics) {
  if (statistics.timed_rows() == 0) return nullptr;
  return {{"requests", statistics.timed_rows()},
          {"first_s", to_seconds(statistics.first())},
          {"last_s", to_seconds(statistics.last())},
          {"span_s", to_seconds(statistics.last() - statistics.first())},
          {"mean_rate_per_s", or_null(statistics.mean_rate())},
          {"gap_cv", or_null(statistics.gap_cv())}};
}

ordered_json conversations_json(const TraceStatistics& statistics) {
  if (statistics.conversations() == 0) return nullptr;
  const auto& turns = statistics.turns();
  return {{"count", statistics.conversations()},
          {"complete", !statistics.conversations_cut()},
          {"requests", statistics.conversation_rows()},
          {"repeated_share_of_input", repeated_share(statistics)},
          {"dropped_histories", statistics.dropped_histories()},
          {"turns",
           {{"mean", mean_turns(statistics)},
            {"p50", traces::quantile_of(turns, 0.5)},
            {"p90", traces::quantile_of(turns, 0.9)},
            {"max", turns.rbegin()->first}}}};
}

ordered_json think_json(const ValueSummary& think) {
  if (think.count() == 0) return nullptr;
  return {{"requests", think.count()},
          {"mean", think.mean() * 1e-9},
          {"p50", think.quantile(0.5) * 1e-9},
          {"p90", think.quantile(0.9) * 1e-9},
          {"max", to_seconds(Duration(think.max()))}};
}

ordered_json prefix_json(const TraceReport& report) {
  if (!report.facts.said.prefix) return nullptr;
  const TraceStatistics& statistics = report.statistics;
  return {{"block_tokens", TraceStatistics::kBlockTokens},
          {"requests", statistics.reuse_rows()},
          {"complete", statistics.reuse_rows() == report.facts.rows},
          {"prompt_blocks", statistics.prompt_blocks()},
          {"named_blocks", statistics.named_blocks()},
          {"reused_blocks", statistics.reused_blocks()},
          {"reused_share", share(statistics.reused_blocks(), statistics.prompt_blocks())}};
}

}  // namespace

std::string to_table(const TraceReport& report) { return Table(report).text(); }

std::string to_json(const TraceReport& report) {
  const TraceStatistics& statistics = report.statistics;
  const traces::TraceFacts& facts = report.facts;
  ordered_json json;
  json["name"] = report.name;
  json["format"] = facts.source_format;
  json["sha256"] = facts.source_sha256;
  json["source"] = nullptr;
  if (report.converted_from) {
    json["source"] = {{"name", report.converted_from->source_name},
                      {"format", report.converted_from->source_format},
                      {"sha256", report.converted_from->source_sha256}};
  }
  json["requests"] = facts.rows;
  json["zero_outputs"] = facts.zero_outputs;
  json["skipped_rows"] = facts.skipped;
  json["first_skipped"] = facts.skipped > 0 ? ordered_json(facts.first_skipped) : ordered_json();
  json["arrivals"] = arrivals_json(statistics);
  json["conversations"] = conversations_json(statistics);
  json["think_s"] = think_json(statistics.think());
  json["clients"] = {{"count", statistics.clients()}, {"complete", !statistics.clients_cut()}};
  json["classes"] = ordered_json::array();
  for (const auto& [service_class, rows] : statistics.classes()) {
    const bool named = service_class > 0 && service_class <= facts.class_names.size();
    json["classes"].push_back({{"class", service_class},
                               {"name", named ? ordered_json(class_name(report, service_class)) : ordered_json()},
                               {"requests", rows}});
  }
  json["prefix_reuse"] = prefix_json(report);
  json["input_tokens"] =
      facts.has_inputs ? lengths_json(statistics.input(), statistics.input_histogram()) : ordered_json();
  json["output_tokens"] = lengths_json(statistics.output(), statistics.output_histogram());
  json["quantile_relative_error"] = QuantileSketch::kRelativeError;
  json["warnings"] = facts.warnings;
  return json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace spillway::cli
