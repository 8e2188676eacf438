#include "sim/cli/environment.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "sim/config/config.hpp"
#include "sim/core/printable.hpp"

namespace spillway::cli {

const std::vector<FlagVariable>& flag_variables() {
  static const std::vector<FlagVariable> kVariables{
      {"--format", "SPILLWAY_FORMAT"}, {"--jobs", "SPILLWAY_JOBS"}, {"--progress", "SPILLWAY_PROGRESS"}};
  return kVariables;
}

std::vector<std::string> other_variables() {
  std::vector<std::string> names;
  for (const FlagVariable& one : flag_variables()) names.push_back(one.variable);
  return names;
}

void apply_flag_variables(CLI::App& run, std::vector<Problem>& problems) {
  for (const std::string& variable : spillway_environment()) {
    const std::size_t equals = variable.find('=');
    const std::string name = variable.substr(0, equals);
    const auto& all = flag_variables();
    const auto one = std::find_if(all.begin(), all.end(), [&](const FlagVariable& v) { return v.variable == name; });
    const std::string value = equals == std::string::npos ? "" : variable.substr(equals + 1);
    if (one == all.end() || value.empty()) continue;
    CLI::Option* option = run.get_option(one->flag);
    const bool json = one->flag == "--format" && run.get_option("--json")->count() > 0;
    if (option->count() > 0 || json) continue;
    try {
      option->add_result(value);
      option->run_callback();
    } catch (const CLI::ParseError& error) {
      problems.push_back({brief(error.what()), "environment " + brief(variable), "see spillway run --help"});
    }
  }
}

std::string environment_help() {
  std::string flags;
  for (const FlagVariable& one : flag_variables()) {
    flags += fmt::format("{}{} for {}", flags.empty() ? "" : ", ", one.variable, one.flag);
  }
  return "Environment: SPILLWAY_WORKLOAD_RATE=8 is workload.rate=8. Variables override the file, arguments override\n"
         "variables. Flags: " +
         flags + ".\n";
}

}  // namespace spillway::cli
