// How a command joins the command line: its flags, its examples, and what runs it.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sim/core/error.hpp"

namespace spillway::cli {

/// What the command line asked for: set while CLI11 parses, called when parsing is over.
using Command = std::function<ExitCode()>;

/// The families of commands, each added to the app in the order in which --help lists them.
void add_simulation_commands(CLI::App& app, Command& command);
void add_about_commands(CLI::App& app, Command& command);
void add_evidence_commands(CLI::App& app, Command& command);
void add_completion_commands(CLI::App& app, Command& command);

/// Adds a command. `flags(sub, options)` declares its flags, which fill an Options that lives as long as the app;
/// `parsed(sub, options)` is called when its part of the command line is parsed, `run(options)` when all of it is.
template <class Options, class Flags, class Run, class Parsed>
CLI::App& add_command(CLI::App& app, Command& command, const std::string& name, const std::string& about, Flags flags,
                      Run run, Parsed parsed) {
  CLI::App* sub = app.add_subcommand(name, about);
  const auto options = std::make_shared<Options>();
  flags(*sub, *options);
  sub->callback([&command, sub, options, run, parsed] {
    parsed(*sub, *options);
    command = [options, run] { return run(std::as_const(*options)); };
  });
  return *sub;
}
template <class Options, class Flags, class Run>
CLI::App& add_command(CLI::App& app, Command& command, const std::string& name, const std::string& about, Flags flags,
                      Run run) {
  return add_command<Options>(app, command, name, about, flags, run, [](CLI::App&, Options&) {});
}

/// What stands below a command's flags: its examples, then `more()` where there is something, then the exit codes.
void set_footer(CLI::App& sub, std::initializer_list<const char*> examples, std::function<std::string()> more = {});
/// The same, then what the keys of a configuration are.
void set_footer_with_keys(CLI::App& sub, std::initializer_list<const char*> examples,
                          std::function<std::string()> more = {});

/// CONFIG.json and key=value.
void add_arguments(CLI::App& sub, std::vector<std::string>& arguments);
/// The names stand in --help and in completions.
CLI::Option* one_of(CLI::Option* option, const std::vector<std::string>& names);
/// --format and --json.
void add_format(CLI::App& sub, std::string& format, const std::vector<std::string>& formats);
void add_slos(CLI::App& sub, std::vector<std::string>& slos);
void add_metrics(CLI::App& sub, std::vector<std::string>& metrics);
/// --progress and -j.
void add_progress(CLI::App& sub, std::string& progress);
void add_jobs(CLI::App& sub, int& jobs, const std::string& what);

}  // namespace spillway::cli
