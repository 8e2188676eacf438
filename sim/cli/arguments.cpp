#include "sim/cli/arguments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "sim/cli/environment.hpp"
#include "sim/core/printable.hpp"
#include "sim/metrics/metrics.hpp"
#include "sim/study/parameter_table.hpp"

namespace spillway::cli {

std::vector<Assignment> slo_assignments(const std::vector<std::string>& slos, const std::string& flag,
                                        std::vector<Problem>& problems) {
  std::vector<Assignment> assignments;
  std::string run;
  for (const std::string& text : slos) {
    const std::string where = flag + " " + brief(text);
    for (const Condition& condition : parse_conditions(text, where, true, problems)) {
      if (!per_request_latency(condition.metric)) {
        run += (run.empty() ? "" : ",") + condition.text;
      } else if (condition.op == Condition::Op::less) {
        assignments.push_back(
            {"slo." + condition.metric, fmt::format("{}", condition.limit), Origin::argument, where, {}});
      } else {
        problems.push_back({fmt::format("\"{}\": an SLO on single requests has the form METRIC<LIMIT", condition.text),
                            where, fmt::format("write {}<{}", condition.metric, condition.limit)});
      }
    }
  }
  if (!run.empty()) assignments.push_back({"slo.run", run, Origin::argument, flag, {}});
  return assignments;
}

std::vector<Assignment> given_arguments(const std::vector<std::string>& arguments, const std::vector<std::string>& slos,
                                        std::vector<Problem>& problems) {
  std::vector<std::string> pairs;
  std::vector<std::string> files;
  for (const std::string& argument : arguments) {
    std::error_code ignored;  // a long key=value is not a file name
    const bool file = argument.find('=') == std::string::npos || std::filesystem::exists(argument, ignored);
    (file ? files : pairs).push_back(argument);
  }
  if (files.size() > 1) {
    problems.push_back({fmt::format("{} configuration files are given: {}", files.size(),
                                    brief(fmt::format("{}", fmt::join(files, ", ")))),
                        "arguments", "give one file, and key=value for other settings"});
  }
  std::vector<Assignment> assignments;
  for (const std::string& file : files) {
    if (files.size() == 1) assignments = read_config_file(file, problems);
  }
  for (auto& assignment : parse_environment(spillway_environment(), parameter_table(), other_variables(), problems)) {
    assignments.push_back(std::move(assignment));
  }
  for (auto& assignment : parse_arguments(pairs, problems)) assignments.push_back(std::move(assignment));
  for (auto& assignment : slo_assignments(slos, "--slo", problems)) assignments.push_back(std::move(assignment));
  return assignments;
}

ResolvedConfig resolve_arguments(const std::vector<std::string>& arguments, const std::vector<std::string>& slos,
                                 std::vector<Problem> problems) {
  const std::vector<Assignment> assignments = given_arguments(arguments, slos, problems);
  return resolve_config(parameter_table(), assignments, std::move(problems));
}

}  // namespace spillway::cli
