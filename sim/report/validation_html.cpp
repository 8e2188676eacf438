#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <utility>

#include "sim/io/lines.hpp"
#include "sim/report/svg_chart.hpp"
#include "sim/report/validation.hpp"
#include "sim/study/trust.hpp"

namespace spillway {
namespace {

constexpr double kNarrow = 360.0;  // chart width in px, for three in a row
constexpr double kWide = 420.0;    // for two in a row

using LatencyOf = std::optional<double> (*)(const RequestLatencies&);
struct LatencyKind {
  std::string_view label;
  std::string_view name;  // as in the names of the figures
  std::string_view meaning;
  LatencyOf of;
};
constexpr std::array<LatencyKind, 3> kLatencyCharts{
    {{"TTFT", "ttft_ms", "time to first token", [](const RequestLatencies& r) { return std::optional(r.ttft_ms); }},
     {"TPOT", "tpot_ms", "time per output token", [](const RequestLatencies& r) { return r.tpot_ms; }},
     {"E2E", "e2e_ms", "end-to-end latency", [](const RequestLatencies& r) { return std::optional(r.e2e_ms); }}}};

using LoadOf = std::optional<double> (*)(const LoadPoint&);
struct LoadKind {
  std::string_view label;
  std::string_view name;
  std::string_view unit;  // unit of the chart
  LoadOf of;              // the value in that unit
};
std::optional<double> kv_percent(const LoadPoint& point) {
  return point.kv_fraction ? std::optional(100.0 * *point.kv_fraction) : std::nullopt;
}
constexpr std::array<LoadKind, 3> kLoads{
    {{"Running requests", "running_requests", "", [](const LoadPoint& p) { return std::optional(p.running); }},
     {"Waiting requests", "waiting_requests", "", [](const LoadPoint& p) { return std::optional(p.waiting); }},
     {"GPU KV in use", "gpu_kv_fraction", " (%)", kv_percent}}};

constexpr std::string_view kStyle = R"(:root {
  color-scheme: light dark;
  --paper: #fff; --ink: #1c2128; --soft: #5b6470; --rule: #d8dde3; --card: #f6f8fa; --mark: #0072b2;
}
@media screen and (prefers-color-scheme: dark) {
  :root { --paper: #14181d; --ink: #e4e8ec; --soft: #a0a9b4; --rule: #333b45; --card: #1c2229; --mark: #56b4e9; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 1.5rem 1rem 3rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 1.25rem; padding-bottom: .75rem;
  border-bottom: 3px solid var(--mark); }
h2 { font-size: 1.15rem; margin: 2.25rem 0 .75rem; }
p { margin: .5rem 0; max-width: 48rem; }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .3rem 1.25rem; margin: 0; }
dt { color: var(--soft); }
dd { margin: 0; }
caption, figcaption, footer { color: var(--soft); font-size: .875rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
caption { text-align: left; padding-bottom: .4rem; }
th, td { padding: .3rem .75rem; text-align: right; white-space: nowrap; }
th:first-child, th.text, td.text { text-align: left; }
th[scope=col] { color: var(--soft); font-weight: 600; font-size: .875rem; border-bottom: 2px solid var(--rule); }
tbody th { font-weight: 500; }
tbody th[scope=rowgroup] { font-weight: 700; vertical-align: top; }
tr.last > *, th[scope=rowgroup] { border-bottom: 1px solid var(--rule); }
tr.error td { font-weight: 600; }
td.text { white-space: normal; min-width: 8rem; overflow-wrap: anywhere; }
abbr { text-decoration: none; }
.charts { display: grid; gap: 1rem; margin: 1rem 0; }
.three { grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); }
.two { grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }
figure { margin: 0; padding: .75rem; background: var(--card); border: 1px solid var(--rule); border-radius: .5rem;
  break-inside: avoid; }
figure h3 { font-size: .95rem; margin: 0 0 .5rem; }
figcaption { margin-top: .25rem; }
ul { margin: 0; padding-left: 1.25rem; }
li { margin: .3rem 0; }
footer { margin-top: 2.5rem; padding-top: .75rem; border-top: 1px solid var(--rule); }
@media (max-width: 34rem) {
  dl { grid-template-columns: minmax(0, 1fr); gap: 0; }
  dd { margin-bottom: .5rem; }
  th, td { padding: .3rem .5rem; }
}
@media print {
  body { max-width: none; padding: 0; font-size: 10pt; }
  .three { grid-template-columns: repeat(3, minmax(0, 1fr)); }
  .two { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  .scroll { overflow: visible; }
  h2 { break-after: avoid; }
  tr { break-inside: avoid; }
}
)";

std::string in_unit(double value, const std::string& unit) {
  return unit == "fraction" ? percent(value) : figure(value);
}

/// "TTFT" for "ttft_ms"; any other name is returned unchanged.
std::string latency_label(const std::string& name) {
  for (const LatencyKind& kind : kLatencyCharts) {
    if (kind.name == name) return std::string(kind.label);
  }
  return name;
}

/// "Running requests, mean" for "mean_running_requests".
std::string load_label(const std::string& name) {
  for (const LoadKind& kind : kLoads) {
    for (const std::string_view statistic : {"mean", "peak"}) {
      if (name == fmt::format("{}_{}", statistic, kind.name)) return fmt::format("{}, {}", kind.label, statistic);
    }
  }
  return name;
}

/// "a on b"; "a" alone for an empty b.
std::string on(const std::string& what, const std::string& device) {
  return device.empty() ? what : fmt::format("{} on {}", what, device);
}

Chart latency_chart(const LatencyKind& kind, const std::vector<RequestPair>& requests) {
  const auto curve = [&](const RequestLatencies RequestPair::*side) {
    std::vector<double> values;
    for (const RequestPair& pair : requests) {
      // Use the rule of the figures: a request counts if both sides have the latency.
      if (kind.of(pair.measured) && kind.of(pair.simulated)) values.push_back(*kind.of(pair.*side));
    }
    return cumulative_percent(std::move(values));
  };
  return {
      .id = fmt::format("cdf-{}", kind.name),
      .title = fmt::format("Distribution of {}", kind.label),
      .description = fmt::format("Percentage of the requests whose {} is at most the time on the x axis, measured and "
                                 "simulated.",
                                 kind.meaning),
      .x_title = fmt::format("{} (ms)", kind.label),
      .y_title = "Requests (%)",
      .width = kNarrow,
      .series = {{"measured", curve(&RequestPair::measured)}, {"simulated", curve(&RequestPair::simulated)}}};
}

/// The points with a value.
std::vector<ChartPoint> load_points(const std::vector<LoadPoint>& series, LoadOf of) {
  std::vector<ChartPoint> points;
  for (const LoadPoint& point : series) {
    if (const auto value = of(point)) points.push_back({point.seconds, *value});
  }
  return points;
}

Chart load_chart(const LoadKind& kind, const Validation& validation) {
  return {.id = fmt::format("load-{}", kind.name),
          .title = fmt::format("{} over time", kind.label),
          .description = fmt::format("{} over the seconds since the first request was queued, measured and simulated.",
                                     kind.label),
          .x_title = "Time (s)",
          .y_title = fmt::format("{}{}", kind.label, kind.unit),
          .width = kWide,
          .series = {{"measured", load_points(validation.measured_load, kind.of)},
                     {"simulated", load_points(validation.simulated_load, kind.of)}}};
}

Chart error_chart(const std::vector<RequestPair>& requests) {
  std::vector<ChartPoint> points;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto error = relative_error(requests[i].measured.e2e_ms, requests[i].simulated.e2e_ms);
    if (error) points.push_back({static_cast<double>(i + 1), 100.0 * *error});
  }
  return {.id = "error-e2e",
          .title = "Error of E2E, request by request",
          .description = "Simulated over measured end-to-end latency, less 1, of each request in order of queueing.",
          .x_title = "Request, in order of queueing",
          .y_title = "Error of E2E (%)",
          .mark = ChartMark::dots,
          .width = kWide,
          .series = {{"error", std::move(points)}}};
}

class Page {
 public:
  explicit Page(const Validation& validation) : validation_(validation) {}

  std::string build() {
    const std::string title =
        escaped_markup("Spillway validation: " + on(validation_.log.model, validation_.log.device));
    open(title);
    add("<main>\n<h1>{}</h1>\n", title);
    setup();
    latencies();
    per_request();
    load();
    charts();
    validity();
    warnings();
    add("</main>\n<footer>Spillway {}</footer>\n</body>\n</html>\n", escaped_markup(validation_.run.tool_version));
    return std::move(html_);
  }

 private:
  template <class... Arguments>
  void add(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    fmt::format_to(std::back_inserter(html_), format, std::forward<Arguments>(arguments)...);
  }
  void item(std::string_view term, std::string_view text) {
    add("<dt>{}</dt><dd>{}</dd>\n", escaped_markup(term), escaped_markup(text));
  }
  /// Opens a table that scrolls on its own, also by keyboard: it may be wider than a phone.
  void open_table(std::string_view label) {
    add("<div class=\"scroll\" role=\"region\" aria-label=\"{}\" tabindex=\"0\">\n<table>\n", label);
  }
  void close_table() { html_ += "</tbody>\n</table>\n</div>\n"; }

  /// The content security policy forbids everything that the page does not need, in case a name in the page acts as
  /// markup.
  void open(const std::string& title) {
    html_ =
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\n";
    add("<title>{}</title>\n<style>\n{}{}</style>\n</head>\n<body>\n", title, kStyle, chart_style());
  }

  void setup() {
    const ValidatedLog& log = validation_.log;
    const Setup& run = validation_.run.setup;
    const std::string server = run.hardware == run.gpu ? std::string() : " of " + run.hardware;
    html_ += "<section>\n<h2>Set-up</h2>\n<dl>\n";
    item("Log", log.path);
    item("Requests", fmt::format("{}", validation_.requests.size()));
    item("Measured", fmt::format("{}: {}", log.engine, on(log.model, log.device)));
    item("Simulated", fmt::format("{} on {} x {}{} ({}), policy {}, engine {}", run.model, run.tensor_parallel, run.gpu,
                                  server, run.latency_model, run.policy, run.engine));
    item("KV cache", fmt::format("{} blocks of {} tokens{}; prefix caching {}", run.kv.gpu_blocks.count(),
                                 run.kv.block_tokens.count(), run.kv_computed ? " (estimated)" : "",
                                 run.kv.prefix_caching ? "on" : "off"));
    if (!validation_.run.complete) item("Run", "INCOMPLETE: the run was interrupted");
    html_ += "</dl>\n</section>\n";
  }

  void latencies() {
    html_ += "<section>\n<h2>Latency</h2>\n";
    open_table("Latency");
    html_ +=
        "<caption>In ms. Error: simulated / measured - 1.</caption>\n<thead>\n<tr>"
        "<th scope=\"col\">Latency</th><th scope=\"col\" class=\"text\">Side</th>";
    for (const std::string_view statistic : kComparedStatistics) add("<th scope=\"col\">{}</th>", statistic);
    html_ += "</tr>\n</thead>\n<tbody>\n";
    for (const LatencyKind& kind : kLatencyCharts) latency_rows(kind);
    close_table();
    html_ += "</section>\n";
  }

  void latency_rows(const LatencyKind& kind) {
    using Show = std::string (*)(const ComparedFigure&);
    struct Side {
      std::string_view name;
      std::string_view style;
      Show show;
    };
    constexpr std::array<Side, 3> kSides{
        {{"measured", "", [](const ComparedFigure& one) { return figure(one.measured); }},
         {"simulated", "", [](const ComparedFigure& one) { return figure(one.simulated); }},
         {"error", " class=\"last error\"", [](const ComparedFigure& one) { return signed_percent(one.error); }}}};
    for (const Side& side : kSides) {
      add("<tr{}>", side.style);
      if (&side == kSides.data()) {
        add("<th scope=\"rowgroup\" rowspan=\"{}\"><abbr title=\"{}\">{}</abbr></th>", kSides.size(), kind.meaning,
            kind.label);
      }
      add("<th scope=\"row\" class=\"text\">{}</th>", side.name);
      for (const std::string_view statistic : kComparedStatistics) {
        const ComparedFigure* one = find_figure(validation_.latencies, fmt::format("{}_{}", statistic, kind.name));
        add("<td>{}</td>", one != nullptr ? side.show(*one) : "-");
      }
      html_ += "</tr>\n";
    }
  }

  void per_request() {
    html_ += "<section>\n<h2>Requests one by one</h2>\n";
    if (validation_.per_request.empty()) return nothing("no data");
    open_table("Requests one by one");
    html_ +=
        "<caption>Errors of single requests: |simulated / measured - 1|. Bias: the mean of the signed errors."
        "</caption>\n<thead>\n<tr><th scope=\"col\">Latency</th>";
    for (const std::string_view name : {"requests", "median", "p90", "p95", "largest", "bias"}) {
      add("<th scope=\"col\">{}</th>", name);
    }
    html_ += "<th scope=\"col\" class=\"text\">worst request</th></tr>\n</thead>\n<tbody>\n";
    for (const ErrorDistribution& one : validation_.per_request) {
      add("<tr class=\"last\"><th scope=\"row\">{}</th><td>{}</td>", escaped_markup(latency_label(one.metric)), one.n);
      for (const double error : {one.median, one.p90, one.p95, one.largest}) add("<td>{}</td>", percent(error));
      add("<td>{}</td><td class=\"text\">{}</td></tr>\n", signed_percent(one.bias), escaped_markup(one.worst));
    }
    close_table();
    html_ += "</section>\n";
  }

  void load() {
    html_ += "<section>\n<h2>Load</h2>\n";
    if (validation_.load.empty()) return nothing("no data");
    open_table("Load");
    add("<caption>Mean over time, and peak. Measured load: {}.</caption>\n<thead>\n<tr><th scope=\"col\">Load</th>"
        "<th scope=\"col\">measured</th><th scope=\"col\">simulated</th><th scope=\"col\">error</th></tr>\n"
        "</thead>\n<tbody>\n",
        escaped_markup(validation_.log.load_of));
    for (const ComparedFigure& one : validation_.load) {
      add("<tr class=\"last\"><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td></tr>\n",
          escaped_markup(load_label(one.name)), in_unit(one.measured, one.unit), in_unit(one.simulated, one.unit),
          signed_percent(one.error));
    }
    close_table();
    html_ += "</section>\n";
  }

  /// Ends an empty section.
  void nothing(std::string_view why) { add("<p>{}</p>\n</section>\n", why); }

  void charts() {
    html_ += "<section>\n<h2>Charts</h2>\n<div class=\"charts three\">\n";
    for (const LatencyKind& kind : kLatencyCharts) picture(latency_chart(kind, validation_.requests));
    html_ += "</div>\n<div class=\"charts two\">\n";
    for (const LoadKind& kind : kLoads) {
      const Chart chart = load_chart(kind, validation_);
      const bool both = !chart.series[0].points.empty() && !chart.series[1].points.empty();
      if (both || kind.of != kv_percent) picture(chart);  // some engines do not log their KV cache
    }
    const Chart errors = error_chart(validation_.requests);
    const std::size_t all = errors.series[0].points.size();
    const std::size_t dots = thinned_dots(errors.series[0].points).size();
    picture(errors, dots < all ? fmt::format("{} of {} requests are shown.", dots, all) : std::string());
    html_ += "</div>\n</section>\n";
  }

  void picture(const Chart& chart, const std::string& note = {}) {
    add("<figure>\n<h3>{}</h3>\n{}", escaped_markup(chart.title), to_svg(chart));
    if (!note.empty()) add("<figcaption>{}</figcaption>\n", escaped_markup(note));
    html_ += "</figure>\n";
  }

  /// The errors that the profiles state.
  void validity() {
    html_ += "<section>\n<h2>Validity</h2>\n";
    const std::vector<InputFile>& inputs = validation_.run.inputs;
    if (std::all_of(inputs.begin(), inputs.end(), [](const InputFile& input) { return input.error.empty(); })) {
      return nothing("none");
    }
    html_ += "<dl>\n";
    for (const InputFile& input : inputs) {
      if (input.error.empty()) continue;
      const std::string subject = input.stands_for.empty() ? input.name : input.stands_for;
      item(input.role, fmt::format("{}: {}", subject, input.error));
    }
    if (!validation_.run.outside_range.empty()) item("range", range_text(validation_.run.outside_range));
    html_ += "</dl>\n</section>\n";
  }

  void warnings() {
    html_ += "<section>\n<h2>Warnings</h2>\n";
    if (validation_.run.warnings.empty()) return nothing("none");
    html_ += "<ul>\n";
    for (const std::string& warning : validation_.run.warnings) add("<li>{}</li>\n", escaped_markup(warning));
    html_ += "</ul>\n</section>\n";
  }

  const Validation& validation_;
  std::string html_;
};

}  // namespace

std::string to_validation_html(const Validation& validation) { return Page(validation).build(); }

}  // namespace spillway
