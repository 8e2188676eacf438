#include "sim/study/trust.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
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

/// A data file's name in words: "decode_attention" -> "decode attention".
std::string words(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}
/// "decode attention: context measured 2 to 32768, reached 98304 (12.3% of calls)"
std::string outside_text(const RangeUse& use) {
  constexpr double kLeastShown = 0.0005;  // 0.1%, rounded
  const double fraction = use.fraction_outside();
  return fmt::format("{}: {} measured {:.10g} to {:.10g}, reached {:.10g} ({} of calls{}{})", words(use.op),
                     words(use.quantity), use.low, use.high, use.reached,
                     fraction < kLeastShown ? "<0.1%" : percent(fraction), use.beyond.empty() ? "" : ", ", use.beyond);
}

}  // namespace

std::string range_text(std::vector<RangeUse> uses) {
  std::stable_sort(uses.begin(), uses.end(),
                   [](const RangeUse& a, const RangeUse& b) { return a.fraction_outside() > b.fraction_outside(); });
  std::vector<std::string> texts;
  texts.reserve(uses.size());
  std::transform(uses.begin(), uses.end(), std::back_inserter(texts), outside_text);
  return fmt::format("{}", fmt::join(texts, "; "));
}

void add_trust(const std::vector<const Trust*>& runs, Lines& lines) {
  std::vector<std::string> said;
  std::vector<std::string> ranges;
  for (const Trust* run : runs) {
    if (!run->outside_range.empty()) ranges.push_back(run->outside_range);
    const std::string& expected = run->expected_error;
    if (!expected.empty() && std::ranges::find(said, expected) == said.end()) said.push_back(expected);
  }
  if (!ranges.empty()) {
    const std::string whose =
        runs.size() == 1
            ? ""
            : fmt::format("{} of {} runs left the measured range; the first: ", ranges.size(), runs.size());
    add("Range", whose + ranges.front(), lines);
  }
  for (const std::string& expected : said) lines.add("Validity", expected + ": explain validity");
}

nlohmann::ordered_json trust_json(const Trust& trust) {
  return {{"validity", trust.validity},
          {"expected_error", trust.expected_error},
          {"outside_measured_range", trust.outside_range}};
}

}  // namespace spillway
