// How a command joins the command line: flags, examples and the function to run.
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

/// The command to run. Parsing sets the command; main calls it after parsing.
using Command = std::function<ExitCode()>;

/// The families of commands. Each function adds a family to the app, in the order of --help.
void add_simulation_commands(CLI::App& app, Command& command);
void add_about_commands(CLI::App& app, Command& command);
void add_evidence_commands(CLI::App& app, Command& command);
void add_completion_commands(CLI::App& app, Command& command);

/// Adds a command. `flags(sub, options)` declares its flags; the flags fill an Options that lives as long as the app.
/// `parsed(sub, options)` is called after the command's part of the line is parsed, `run(options)` after the whole
/// line.
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

/// Sets the text below a command's flags: its examples, then the text of `more()` if given, then the exit codes.
void set_footer(CLI::App& sub, std::initializer_list<const char*> examples, std::function<std::string()> more = {});
/// Like set_footer, with the keys of a configuration after the examples.
void set_footer_with_keys(CLI::App& sub, std::initializer_list<const char*> examples,
                          std::function<std::string()> more = {});

/// Adds the arguments CONFIG.json and key=value.
void add_arguments(CLI::App& sub, std::vector<std::string>& arguments);
/// Restricts an option to names. --help and completions show the names.
CLI::Option* one_of(CLI::Option* option, const std::vector<std::string>& names);
/// Adds --format and --json.
void add_format(CLI::App& sub, std::string& format, const std::vector<std::string>& formats);
/// Adds --html.
void add_html(CLI::App& sub, std::string& html);
void add_slos(CLI::App& sub, std::vector<std::string>& slos);
void add_metrics(CLI::App& sub, std::vector<std::string>& metrics);
/// Adds --progress and -j.
void add_progress(CLI::App& sub, std::string& progress);
void add_jobs(CLI::App& sub, int& jobs, const std::string& what);

}  // namespace spillway::cli
