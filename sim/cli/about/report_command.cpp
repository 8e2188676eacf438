#include "sim/cli/about/report_command.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "sim/core/printable.hpp"
#include "sim/io/atomic_file.hpp"
#include "sim/io/whole_file.hpp"
#include "sim/report/html.hpp"
#include "sim/report/run_charts.hpp"

namespace spillway::cli {

ExitCode report(const ReportOptions& options) {
  std::vector<PageResult> results;
  std::vector<Problem> problems;
  for (const std::string& path : options.results) {
    WholeFile file = read_whole_file(path);
    if (!file.ok()) {
      problems.push_back({fmt::format("the result cannot be read: {}", file.fault), brief(path),
                          "name a file, e.g. result.json of run -o DIR"});
      continue;
    }
    PageResult result{.name = path, .json = std::move(file.bytes)};
    const WholeFile charts = read_whole_file((std::filesystem::path(path).parent_path() / "charts.json").string());
    if (charts.ok() && belongs_to(charts.bytes, result.json)) result.charts = charts.bytes;
    results.push_back(std::move(result));
  }
  if (!problems.empty()) throw DataError(std::move(problems));
  if (options.out.empty()) {
    throw ConfigError("there is no file to write the page to", "report", "give -o FILE, e.g. -o report.html");
  }
  const std::string page = to_html(results);
  write_file(options.out, page);
  return ExitCode::ok;
}

}  // namespace spillway::cli
