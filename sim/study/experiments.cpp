#include "sim/study/experiments.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <span>
#include <utility>

#include "sim/config/config.hpp"
#include "sim/core/embedded_file.hpp"
#include "sim/core/error.hpp"
#include "sim/io/atomic_file.hpp"
#include "sim/io/whole_file.hpp"

namespace spillway::experiments {
/// experiments/*/*.json, embedded in the binary by the build.
std::span<const EmbeddedFile> embedded_files();
}  // namespace spillway::experiments

namespace spillway {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kExpected = "expected.json";

/// experiments/orca/expected.json -> orca
std::string folder_of(std::string_view path) { return fs::path(path).parent_path().filename().string(); }

const EmbeddedFile* bundled_file(const std::string& folder, std::string_view name) {
  for (const EmbeddedFile& file : experiments::embedded_files()) {
    if (folder_of(file.path) == folder && fs::path(file.path).filename() == name) return &file;
  }
  return nullptr;
}

std::string read_text(const fs::path& path) {
  WholeFile file = read_whole_file(path.string());
  if (!file.ok()) {
    throw DataError(fmt::format("cannot read the file {}: {}", path.string(), file.fault), path.string(),
                    "check its name and its permissions");
  }
  return std::move(file.bytes);
}

bool is_experiment_folder(const std::string& name) {
  std::error_code none;
  return fs::exists(fs::path(name) / kExpected, none);
}

/// Collects claims by experiment, without repeats, in the order requested.
class Selector {
 public:
  void add_folder(const std::string& folder) {
    add(load_experiment(folder), [](const Claim&) { return true; });
  }
  /// Returns false when nothing in the binary has that name.
  bool add_name(const std::string& name) {
    bool found = false;
    for (const LoadedExperiment& one : bundled_experiments()) {
      found |= add(one, [&](const Claim& claim) {
        return one.experiment.name == name || claim.system == name || claim.id == name;
      });
    }
    return found;
  }
  std::vector<ClaimSelection> take() { return std::move(selections_); }

 private:
  template <class Chosen>
  bool add(const LoadedExperiment& loaded, Chosen chosen) {
    std::set<std::size_t> places;
    const std::vector<Claim>& claims = loaded.experiment.claims;
    for (std::size_t i = 0; i < claims.size(); ++i) {
      if (chosen(claims[i])) places.insert(i);
    }
    if (places.empty()) return false;
    auto own = std::find_if(selections_.begin(), selections_.end(), [&](const ClaimSelection& one) {
      return one.experiment.experiment.file == loaded.experiment.file;
    });
    if (own == selections_.end()) own = selections_.insert(own, {loaded, {}});
    places.insert(own->claims.begin(), own->claims.end());
    own->claims.assign(places.begin(), places.end());
    return true;
  }

  std::vector<ClaimSelection> selections_;
};

}  // namespace

std::string LoadedExperiment::read(const std::string& file) const {
  if (!folder.empty()) return read_text(fs::path(folder) / file);
  if (const EmbeddedFile* found = bundled_file(experiment.name, file)) return std::string(found->content);
  throw DataError(fmt::format("there is no {} in its folder", file), experiment.file);
}

void LoadedExperiment::extract(const std::string& to) const {
  for (const EmbeddedFile& file : experiments::embedded_files()) {
    if (folder_of(file.path) != experiment.name) continue;
    write_file((fs::path(to) / fs::path(file.path).filename()).string(), file.content);
  }
}

const std::vector<LoadedExperiment>& bundled_experiments() {
  static const std::vector<LoadedExperiment> kExperiments = [] {
    std::vector<LoadedExperiment> all;
    for (const EmbeddedFile& file : experiments::embedded_files()) {
      if (fs::path(file.path).filename() != kExpected) continue;
      all.push_back({parse_experiment(file.content, std::string(file.path)), ""});
    }
    std::sort(all.begin(), all.end(),
              [](const auto& a, const auto& b) { return a.experiment.name < b.experiment.name; });
    return all;
  }();
  return kExperiments;
}

LoadedExperiment load_experiment(const std::string& folder) {
  const std::string file = (fs::path(folder) / kExpected).string();
  return {parse_experiment(read_text(file), file), folder};
}

std::vector<ClaimSelection> select_claims(const std::vector<std::string>& names) {
  Selector selector;
  std::vector<Problem> problems;
  if (names.empty()) {
    for (const LoadedExperiment& one : bundled_experiments()) selector.add_name(one.experiment.name);
  }
  for (const std::string& name : names) {
    if (selector.add_name(name)) continue;
    if (is_experiment_folder(name)) {
      selector.add_folder(name);
      continue;
    }
    const bool path = name.find('/') != std::string::npos;
    problems.push_back({path ? fmt::format("there is no {}", (fs::path(name) / kExpected).string())
                             : fmt::format("no claim, system or experiment has the name \"{}\"", name),
                        "reproduce " + name,
                        suggestion(name, reproducible_names()) + "spillway reproduce --list shows the names; a folder "
                                                                 "with an expected.json works too"});
  }
  if (!problems.empty()) throw ConfigError(std::move(problems));
  return selector.take();
}

std::vector<std::string> reproducible_names() {
  std::set<std::string> names;
  for (const LoadedExperiment& one : bundled_experiments()) {
    names.insert(one.experiment.name);
    for (const Claim& claim : one.experiment.claims) names.insert({claim.id, claim.system});
  }
  return {names.begin(), names.end()};
}

}  // namespace spillway
