// The command line: subcommands, their options, and how errors end.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "sim/cli/config_command.hpp"
#include "sim/cli/list.hpp"
#include "sim/cli/output.hpp"
#include "sim/cli/run.hpp"
#include "sim/config.hpp"
#include "sim/error.hpp"

namespace spillway::cli {
namespace {

/// What the command line asked for; set by CLI11's callbacks, called when parsing is over.
using Command = std::function<ExitCode()>;

void add_arguments(CLI::App& app, std::vector<std::string>& arguments) {
  app.add_option("arguments", arguments, "CONFIG.json (JSON, comments allowed) and key=value, in any order")
      ->type_name("[CONFIG.json] [key=value ...]");
}

void add_run(CLI::App& app, RunOptions& options, Command& command) {
  CLI::App* sub = app.add_subcommand("run", "Simulate one configuration");
  add_arguments(*sub, options.arguments);
  const CLI::IsMember formats({"table", "json", "csv", "vllm"});
  CLI::Option* format = sub->add_option("--format", options.format, "What stdout gets: table, json, csv or vllm")
                            ->check(formats)
                            ->type_name("FORMAT");
  sub->add_flag_callback(
         "--json", [&options] { options.format = "json"; }, "Same as --format json")
      ->excludes(format);
  sub->add_option("-o,--out", options.directory, "Folder for result.json and config.resolved.json")->type_name("DIR");
  sub->add_option("--requests-out", options.requests_file, "One row per request: JSON lines, or CSV for *.csv")
      ->type_name("FILE");
  sub->add_option("--slo", options.slos, "Limits, e.g. ttft_ms<500 (per request: goodput), p99_ttft_ms<1000 (the run)")
      ->type_name("LIST")
      ->allow_extra_args(false);
  sub->add_option("--fail-if", options.gates, "Exit 5 when a metric is so, e.g. p99_ttft_ms>800")
      ->type_name("LIST")
      ->allow_extra_args(false);
  sub->add_flag("--dry-run", options.dry_run, "Show the resolved set-up and whether it can run; run nothing");
  sub->add_option("--progress", options.progress, "auto or off")
      ->check(CLI::IsMember({"auto", "off"}))
      ->type_name("MODE");
  sub->add_option("-j,--jobs", options.jobs, "Threads for replications")->check(CLI::Range(1, 1024))->type_name("N");
  sub->footer([] {
    return "Example: spillway run model=llama-3.1-8b hardware=h100-80gb-sxm workload.rate=8 --slo \"ttft_ms<500\"\n\n" +
           exit_codes_help() + "\n" + keys_help();
  });
  sub->callback([&] { command = [&options] { return run(options); }; });
}

void add_list(CLI::App& app, std::string& kind, bool& json, Command& command) {
  CLI::App* sub = app.add_subcommand("list", "Names: policies, hardware, models, engines, workloads or metrics");
  sub->add_option("kind", kind, fmt::format("{}", fmt::join(list_kinds(), " | ")))->required()->type_name("KIND");
  sub->add_flag("--json", json, "As JSON");
  sub->footer([] { return "Example: spillway list policies\n\n" + exit_codes_help(); });
  sub->callback([&] { command = [&] { return list(kind, json); }; });
}

void add_explain(CLI::App& app, std::string& name, Command& command) {
  CLI::App* sub = app.add_subcommand("explain", "What a policy, metric, key, GPU, model, engine or workload is");
  sub->add_option("name", name, "Any name that list or config show prints, or a model's file")
      ->required()
      ->type_name("NAME");
  sub->footer([] { return "Example: spillway explain ttft_ms\n\n" + exit_codes_help(); });
  sub->callback([&] { command = [&] { return explain(name); }; });
}

void add_config(CLI::App& app, std::vector<std::string>& arguments, bool& json, Command& command) {
  CLI::App* sub = app.add_subcommand("config", "Check or show a configuration, or print its JSON Schema");
  sub->require_subcommand(1);
  sub->footer([] { return "Example: spillway config check my.json\n\n" + exit_codes_help(); });

  CLI::App* check = sub->add_subcommand("check", "Report every problem of a configuration; run nothing");
  add_arguments(*check, arguments);
  check->footer([] { return "Example: spillway config check my.json workload.rate=8\n\n" + exit_codes_help(); });
  check->callback([&] { command = [&] { return config_check(arguments); }; });

  CLI::App* show = sub->add_subcommand("show", "Print every value with its origin");
  add_arguments(*show, arguments);
  show->add_flag("--json", json, "As JSON");
  show->footer([] { return "Example: spillway config show my.json policy=vllm-v0\n\n" + exit_codes_help(); });
  show->callback([&] { command = [&] { return config_show(arguments, json); }; });

  CLI::App* schema = sub->add_subcommand("schema", "Print the JSON Schema (2020-12) of configuration files");
  schema->footer([] { return "Example: spillway config schema > spillway.schema.json\n\n" + exit_codes_help(); });
  schema->callback([&] { command = [] { return config_schema_command(); }; });
}

/// The app whose options the user was typing.
const CLI::App* deepest(const CLI::App* app) {
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  return app;
}

/// CLI11's usage errors in the form of all others, with the nearest name.
int usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* sub = deepest(&app);
  std::vector<std::string> names;
  for (const CLI::Option* option : sub->get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  for (const CLI::App* command : sub->get_subcommands(nullptr)) names.push_back(command->get_name());
  std::string fix;
  for (const std::string& word : app.remaining(true)) {
    if (fix.empty()) fix = suggestion(word, names);
  }
  std::string where;
  for (const CLI::App* at = sub; at != nullptr; at = at->get_parent()) {
    where = at->get_name() + (where.empty() ? "" : " " + where);
  }
  print_problems({{error.what(), where, fix + "see " + where + " --help"}}, "nothing was run");
  return static_cast<int>(ExitCode::usage);
}

int main_guarded(int argc, char** argv) {
  CLI::App app{"Spillway simulates LLM serving: which policy, with which settings, gives which latency and throughput?",
               "spillway"};
  app.set_version_flag("--version", fmt::format("spillway {}", tool_version()));
  app.require_subcommand(1);
  app.footer([] { return "Example: spillway run workload.rate=8\n\n" + exit_codes_help(); });
  Command command;
  RunOptions options;
  std::string name;
  std::vector<std::string> arguments;
  bool json = false;
  add_run(app, options, command);
  add_list(app, name, json, command);
  add_explain(app, name, command);
  add_config(app, arguments, json, command);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    return usage_error(app, error);
  }
  return static_cast<int>(command());
}

}  // namespace
}  // namespace spillway::cli

int main(int argc, char** argv) {
  try {
    return spillway::cli::main_guarded(argc, argv);
  } catch (const spillway::UserError& error) {
    spillway::cli::print_problems(error.problems(), "nothing was run");
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    fmt::print(stderr, "internal error: {}\n  This is a defect of Spillway; nothing was written.\n", error.what());
    return static_cast<int>(spillway::ExitCode::invariant);
  }
}
