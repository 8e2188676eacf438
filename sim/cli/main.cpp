// The command line: families of commands, and error exits.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "sim/cli/about/list.hpp"
#include "sim/cli/commands.hpp"
#include "sim/config/config.hpp"
#include "sim/core/error.hpp"
#include "sim/core/printable.hpp"
#include "sim/io/output.hpp"
#include "sim/io/work_done.hpp"

namespace spillway::cli {
namespace {

/// The subcommand whose options the user typed last.
const CLI::App* deepest(const CLI::App* app) {
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  return app;
}

/// The key that a flag means: "--rate 8" is workload.rate=8. Empty for a flag that is no key's name.
std::string key_for_flag(const std::string& word, std::span<char*> line) {
  constexpr std::string_view kDashes = "--";
  if (!word.starts_with(kDashes)) return {};
  const std::size_t equals = word.find('=');
  std::string name = word.substr(kDashes.size(), equals == std::string::npos ? equals : equals - kDashes.size());
  std::ranges::replace(name, '-', '_');
  std::string value = equals == std::string::npos ? "VALUE" : word.substr(equals + 1);
  const auto at = std::ranges::find(line, word, [](const char* text) { return std::string(text); });
  if (equals == std::string::npos && at != line.end() && at + 1 != line.end()) {
    const std::string next = *(at + 1);
    if (!next.starts_with('-') && next.find('=') == std::string::npos) value = next;
  }
  std::vector<std::string> keys;
  for (const Listed& key : listed("keys")) {
    const bool named = key.name == name || key.name.ends_with("." + name);
    if (named && std::ranges::find(keys, key.name) == keys.end()) keys.push_back(key.name);
  }
  if (name.empty() || keys.empty()) return {};
  std::string text = "did you mean ";
  for (std::size_t i = 0; i < keys.size(); ++i) {
    text += fmt::format("{}{}={}", i == 0 ? "" : " or ", keys[i], brief(value));
  }
  return text + "?  keys are written without dashes (spillway list keys); ";
}

/// Prints CLI11's usage errors like all other errors, with the nearest name.
int usage_error(const CLI::App& app, const CLI::ParseError& error, std::span<char*> line) {
  const CLI::App* sub = deepest(&app);
  std::vector<std::string> names;
  for (const CLI::Option* option : sub->get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  std::vector<std::string> commands;
  for (const CLI::App* command : sub->get_subcommands(nullptr)) {
    if (!command->get_group().empty()) commands.push_back(command->get_name());
  }
  names.insert(names.end(), commands.begin(), commands.end());
  std::string what = brief(error.what());
  std::string fix;
  const std::vector<std::string> rest = app.remaining(true);
  for (const std::string& word : rest) {
    if (fix.empty()) fix = key_for_flag(word, line);
    if (fix.empty()) fix = suggestion(word, names);
  }
  // CLI11 reads an unknown command as an argument and then reports a missing command.
  const bool no_command = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr && !commands.empty();
  if (no_command) {
    if (!rest.empty()) what = fmt::format("unknown command \"{}\"", brief(rest.front()));
    fix += fmt::format("commands: {}; ", fmt::join(commands, ", "));
  }
  std::string where;
  for (const CLI::App* at = sub; at != nullptr; at = at->get_parent()) {
    where = at->get_name() + (where.empty() ? "" : " " + where);
  }
  print_problems({{what, where, fix + "see " + where + " --help"}}, "nothing was run");
  return static_cast<int>(ExitCode::usage);
}

/// Refuses empty values: -o "$UNSET" is a mistake, not a request for the default.
void refuse_empty_values(const CLI::App& app) {
  const CLI::App* sub = deepest(&app);
  if (sub->get_group().empty()) return;  // completion passes empty words
  std::vector<Problem> problems;
  for (const CLI::Option* option : sub->get_options()) {
    const std::vector<std::string>& values = option->results();
    if (option->get_expected_max() == 0 || std::find(values.begin(), values.end(), "") == values.end()) continue;
    const std::string name = option->get_name();
    problems.push_back({fmt::format("{} has an empty value", name), name, "give a value, or leave it out"});
  }
  if (!problems.empty()) throw ConfigError(std::move(problems));
}

int main_guarded(int argc, char** argv) {
  CLI::App app{"Spillway simulates LLM serving: which policy, with which settings, gives which latency and throughput?",
               "spillway"};
  app.set_version_flag("--version", fmt::format("spillway {}", tool_version()));
  app.require_subcommand(1);
  set_footer(app, {"run workload.rate=8"});
  Command command;
  add_simulation_commands(app, command);
  add_about_commands(app, command);
  add_evidence_commands(app, command);
  add_completion_commands(app, command);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    return usage_error(app, error, std::span(argv, static_cast<std::size_t>(argc)));
  }
  refuse_empty_values(app);
  return static_cast<int>(command());
}

}  // namespace
}  // namespace spillway::cli

int main(int argc, char** argv) {
  (void)std::signal(SIGXFSZ, SIG_IGN);  // a write beyond the file-size limit then fails with an error
  try {
    return spillway::cli::main_guarded(argc, argv);
  } catch (const spillway::UserError& error) {
    spillway::print_problems(error.problems(), spillway::work_done("nothing was run"));
    return static_cast<int>(error.code());
  } catch (const spillway::BrokenPromise& error) {
    fmt::print(stderr, "error: {}.\n  Correct the policy; nothing was written.\n", spillway::printable(error.what()));
    return static_cast<int>(spillway::ExitCode::invariant);
  } catch (const std::exception& error) {
    fmt::print(stderr, "internal error: {}\n  This is a defect in Spillway; {}.\n", spillway::printable(error.what()),
               spillway::printable(spillway::work_done("nothing was written")));
    return static_cast<int>(spillway::ExitCode::invariant);
  }
}
