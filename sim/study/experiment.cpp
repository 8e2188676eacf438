// What the claims of an experiment depend on.
#include "sim/study/experiment.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "sim/study/claim_script.hpp"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

/// All names in the expressions of a list of settings. Settings in `replaced` are left out.
std::set<std::string> names_of(const std::vector<RunSetting>& settings, const std::vector<RunSetting>& replaced) {
  std::set<std::string> names;
  for (const RunSetting& setting : settings) {
    const auto same = [&](const RunSetting& other) { return other.key == setting.key; };
    if (std::any_of(replaced.begin(), replaced.end(), same)) continue;
    for (const Json& value : setting.values) {
      for (const std::string& expression : expressions_in(value)) names.merge(names_in(expression));
    }
  }
  return names;
}

/// Names that a run set depends on, in a quick or a full run.
std::set<std::string> names_of(const RunSet& run, bool quick) {
  std::set<std::string> names = names_of(run.settings, quick ? run.quick_settings : std::vector<RunSetting>());
  if (quick) names.merge(names_of(run.quick_settings, {}));
  return names;
}

std::set<std::string> names_of(const Claim& claim) {
  std::set<std::string> names;
  for (const auto& [name, expression] : claim.values) names.merge(names_in(expression));
  for (const std::string& rule : claim.rules) names.merge(names_in(rule));
  for (const ClaimLimit& limit : claim.limits) {
    names.merge(names_in(limit.needs));
    names.merge(names_in(limit.has));
  }
  return names;
}

/// All names that a claim depends on, including names used by its run sets.
std::set<std::string> names_behind(const Experiment& experiment, const Claim& claim, bool quick) {
  std::set<std::string> names = names_of(claim);
  std::for_each(experiment.runs.rbegin(), experiment.runs.rend(), [&](const RunSet& run) {
    if (names.contains(run.name)) names.merge(names_of(run, quick));
  });
  return names;
}

}  // namespace

const std::vector<std::string>& claim_kinds() {
  static const std::vector<std::string> kKinds{"ratio", "absolute", "shape", "ordering", "exact", "constant", "report"};
  return kKinds;
}

std::string Experiment::place(const std::string& pointer) const { return fmt::format("{} ({})", file, pointer); }

std::vector<const RunSet*> Experiment::runs_of(const Claim& claim, bool quick) const {
  const std::set<std::string> names = names_behind(*this, claim, quick);
  std::vector<const RunSet*> needed;
  for (const RunSet& run : runs) {
    if (names.contains(run.name)) needed.push_back(&run);
  }
  return needed;
}

std::vector<const OpenItem*> Experiment::open_of(const Claim& claim, bool quick) const {
  const std::set<std::string> names = names_behind(*this, claim, quick);
  std::vector<const OpenItem*> items;
  for (const OpenItem& item : open) {
    if (names.contains(item.name)) items.push_back(&item);
  }
  return items;
}

std::optional<std::string> expression_of(const Json& value) {
  if (!value.is_string()) return std::nullopt;
  const auto& text = value.get_ref<const std::string&>();
  return text.starts_with('=') ? std::optional(text.substr(1)) : std::nullopt;
}

std::vector<std::string> expressions_in(const Json& value) {
  if (const auto expression = expression_of(value)) return {*expression};
  std::vector<std::string> all;
  if (!value.is_structured()) return all;
  for (const Json& part : value) {
    for (std::string& expression : expressions_in(part)) all.push_back(std::move(expression));
  }
  return all;
}

}  // namespace spillway
