#include "sim/cli/commands.hpp"

#include <fmt/format.h>

#include "sim/io/output.hpp"

namespace spillway::cli {
namespace {

std::string examples_text(const std::vector<std::string>& examples) {
  std::string text;
  for (const std::string& example : examples) text += "Example: spillway " + example + "\n";
  return text + "\n";
}

void set_footer_of(CLI::App& sub, std::initializer_list<const char*> examples, std::function<std::string()> more,
                   bool keys) {
  sub.footer([lines = std::vector<std::string>(examples.begin(), examples.end()), more = std::move(more), keys] {
    std::string text = examples_text(lines);
    if (more) text += more() + "\n";
    text += exit_codes_help();
    if (keys) text += "\nKeys: spillway list keys; spillway explain KEY\n";
    return text;
  });
}

}  // namespace

void set_footer(CLI::App& sub, std::initializer_list<const char*> examples, std::function<std::string()> more) {
  set_footer_of(sub, examples, std::move(more), false);
}

void set_footer_with_keys(CLI::App& sub, std::initializer_list<const char*> examples,
                          std::function<std::string()> more) {
  set_footer_of(sub, examples, std::move(more), true);
}

void add_arguments(CLI::App& sub, std::vector<std::string>& arguments) {
  sub.add_option("arguments", arguments, "CONFIG.json (JSON, comments allowed) and key=value, in any order")
      ->type_name("[CONFIG.json] [key=value ...]");
}

CLI::Option* one_of(CLI::Option* option, const std::vector<std::string>& names) {
  return option->check(CLI::IsMember(names).description(""))->type_name(fmt::format("{}", fmt::join(names, "|")));
}

void add_format(CLI::App& sub, std::string& format, const std::vector<std::string>& formats) {
  CLI::Option* option = one_of(sub.add_option("--format", format, "Format of the output"), formats);
  sub.add_flag_callback(
         "--json", [&format] { format = "json"; }, "Same as --format json")
      ->excludes(option);
}

void add_html(CLI::App& sub, std::string& html) {
  sub.add_option("--html", html, "Write the result as one HTML page with charts, for any browser, offline")
      ->type_name("FILE");
}

void add_slos(CLI::App& sub, std::vector<std::string>& slos) {
  sub.add_option("--slo", slos, "SLOs on single requests (ttft_ms<500 gives goodput) or on the run (p99_ttft_ms<1000)")
      ->type_name("LIST")
      ->allow_extra_args(false);
}

void add_metrics(CLI::App& sub, std::vector<std::string>& metrics) {
  sub.add_option("--metrics", metrics, "Metrics to show in the table, e.g. p99_ttft_ms,mean_batch_requests")
      ->type_name("LIST")
      ->allow_extra_args(false);
}

void add_progress(CLI::App& sub, std::string& progress) {
  one_of(sub.add_option("--progress", progress, "Show progress on stderr"), {"auto", "off"});
}

void add_jobs(CLI::App& sub, int& jobs, const std::string& what) {
  sub.add_option("-j,--jobs", jobs, what)->check(CLI::Range(1, 1024).description(""))->type_name("N");
}

}  // namespace spillway::cli
