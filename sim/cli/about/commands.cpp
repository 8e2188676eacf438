// Flags of list, explain, config, schema, report and completion.
#include "sim/cli/commands.hpp"

#include <fmt/format.h>

#include "sim/cli/about/completion.hpp"
#include "sim/cli/about/config_command.hpp"
#include "sim/cli/about/list.hpp"
#include "sim/cli/about/report_command.hpp"
#include "sim/io/output.hpp"

namespace spillway::cli {
namespace {

struct ListOptions {
  std::string kind;
  bool json = false;
};

struct ConfigOptions {
  std::vector<std::string> arguments;
  bool json = false;
};

struct SchemaOptions {
  std::string kind = "result";
};

struct CompleteOptions {
  std::string line;
  std::string breaks;
};

void add_config(CLI::App& app, Command& command) {
  CLI::App* sub = app.add_subcommand("config", "Check or show a configuration, or print its JSON Schema");
  sub->require_subcommand(1);
  set_footer(*sub, {"config check my.json"});
  const auto arguments = [](CLI::App& to, ConfigOptions& options) { add_arguments(to, options.arguments); };
  set_footer(add_command<ConfigOptions>(*sub, command, "check", "Report every problem of a configuration; run nothing",
                                        arguments,
                                        [](const ConfigOptions& options) { return config_check(options.arguments); }),
             {"config check my.json workload.rate=8"});
  set_footer(add_command<ConfigOptions>(
                 *sub, command, "show", "Print every value with its origin",
                 [arguments](CLI::App& to, ConfigOptions& options) {
                   arguments(to, options);
                   to.add_flag("--json", options.json, "Print JSON");
                 },
                 [](const ConfigOptions& options) { return config_show(options.arguments, options.json); }),
             {"config show my.json policy=vllm-v0"});
  set_footer(add_command<ConfigOptions>(
                 *sub, command, "schema", "Print the JSON Schema (2020-12) of configuration files",
                 [](CLI::App&, ConfigOptions&) {}, [](const ConfigOptions&) { return config_schema_command(); }),
             {"config schema > spillway.schema.json"});
}

}  // namespace

void add_about_commands(CLI::App& app, Command& command) {
  set_footer(add_command<ListOptions>(
                 app, command, "list",
                 "List policies, routers, hardware, models, engines, workloads, metrics, experiments or keys",
                 [](CLI::App& sub, ListOptions& options) {
                   sub.add_option("kind", options.kind, "What to list")
                       ->required()
                       ->type_name(fmt::format("{}", fmt::join(list_kinds(), "|")));
                   sub.add_flag("--json", options.json, "Print JSON");
                 },
                 [](const ListOptions& options) { return list(options.kind, options.json); }),
             {"list policies"});
  set_footer(add_command<std::string>(
                 app, command, "explain",
                 "Explain a policy, metric, key, GPU, server, model, engine, workload, experiment, claim or validity",
                 [](CLI::App& sub, std::string& name) {
                   sub.add_option(
                          "name", name,
                          "A name that list or config show prints, or the file of a model, GPU, server or engine")
                       ->required()
                       ->type_name("NAME");
                 },
                 explain),
             {"explain ttft_ms"});
  add_config(app, command);
  set_footer(add_command<SchemaOptions>(
                 app, command, "schema", "Print the JSON Schema (2020-12) of results or of configurations",
                 [](CLI::App& sub, SchemaOptions& options) {
                   one_of(sub.add_option("kind", options.kind, "Whose schema: what run --json prints, or CONFIG.json"),
                          {"result", "config"});
                 },
                 [](const SchemaOptions& options) {
                   return options.kind == "config" ? config_schema_command() : result_schema_command();
                 }),
             {"schema > result.schema.json", "schema config > config.schema.json"});
  set_footer(add_command<ReportOptions>(
                 app, command, "report", "Write results as one HTML page with charts, for any browser, offline",
                 [](CLI::App& sub, ReportOptions& options) {
                   sub.add_option(
                          "results", options.results,
                          "Results: result.json, sweep.json or comparison.json of -o DIR, or what --json prints")
                       ->type_name("RESULT.json");
                   sub.add_option("-o,--out", options.out, "The page to write")->type_name("FILE");
                 },
                 report),
             {"report out/result.json -o report.html", "report out/rates/sweep.json -o rates.html"});
}

void add_completion_commands(CLI::App& app, Command& command) {
  add_command<std::string>(
      app, command, "completion", "Print a shell's completion script",
      [](CLI::App& sub, std::string& shell) {
        sub.add_option("shell", shell, fmt::format("{}", fmt::join(completion_shells(), ", ")))
            ->required()
            ->type_name("SHELL");
      },
      completion)
      .footer([] {
        return "Example: spillway completion bash > ~/.local/share/bash-completion/completions/spillway\n"
               "Example: source <(spillway completion bash)\n\n" +
               exit_codes_help();
      });
  // Called by the completion scripts. Without a group, --help omits the command.
  CLI::App& complete = add_command<CompleteOptions>(
      app, command, "complete", "Print the possible completions of a command line",
      [](CLI::App& sub, CompleteOptions& options) {
        sub.add_option("--breaks", options.breaks, "Characters after which the shell replaces text");
        sub.add_option("line", options.line, "The command line up to the cursor")->required();
      },
      [&app](const CompleteOptions& options) {
        std::string text;
        for (const std::string& one : completions(app, options.line, options.breaks)) text += one + "\n";
        print_result(text);
        return ExitCode::ok;
      });
  complete.group("");
  set_footer(complete, {"complete -- \"spillway run pol\""});
}

}  // namespace spillway::cli
