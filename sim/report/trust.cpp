#include "sim/report/trust.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace spillway {

namespace {

void add(std::string_view label, const std::string& text, Lines& lines) {
  constexpr std::size_t kLines = 2;  // --json has the rest
  Lines some;
  some.add(label, text);
  some.shorten(kLines, " ...");
  lines.append(some);
}

}  // namespace

void add_trust(const std::vector<const Trust*>& runs, Lines& lines) {
  std::vector<std::string> said;
  std::vector<std::string> ranges;
  for (const Trust* run : runs) {
    if (!run->outside_range.empty()) ranges.push_back(run->outside_range);
    for (const std::string& statement : run->validity) {
      const bool gpu = statement.starts_with("gpu: ");  // what engines state is a warning where it matters
      if (gpu && std::find(said.begin(), said.end(), statement) == said.end()) said.push_back(statement);
    }
  }
  if (!ranges.empty()) {
    const std::string whose =
        runs.size() == 1 ? ""
                         : fmt::format("{} of {} left the measured range; the first: ", ranges.size(), runs.size());
    add("Range", whose + ranges.front(), lines);
  }
  for (const std::string& statement : said) add("Validity", statement, lines);
}

nlohmann::ordered_json trust_json(const Trust& trust) {
  return {{"validity", trust.validity}, {"outside_measured_range", trust.outside_range}};
}

}  // namespace spillway
