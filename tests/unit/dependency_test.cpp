// Rules of the source tree, checked on its text: dependencies go one way, policies register themselves, and nothing in
// the library can make a result differ between machines.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "sim/api/registry.hpp"
#include "tests/support/paths.hpp"

namespace spillway {
namespace {

namespace fs = std::filesystem;
const fs::path kRoot = source_dir();

struct SourceLine {
  int number = 0;
  std::string text;  // without the comment after //
};
using Sources = std::map<std::string, std::vector<SourceLine>>;  // by path from the root

std::vector<SourceLine> read_lines(const fs::path& path) {
  std::vector<SourceLine> lines;
  std::ifstream file(path);
  for (std::string text; std::getline(file, text);) {
    lines.push_back({static_cast<int>(lines.size()) + 1, text.substr(0, text.find("//"))});
  }
  return lines;
}

Sources sources_below(const std::vector<std::string>& folders) {
  Sources sources;
  const std::set<std::string> extensions{".cpp", ".hpp", ".cu", ".cuh"};
  for (const std::string& folder : folders) {
    if (!fs::exists(kRoot / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
      if (!entry.is_regular_file() || !extensions.contains(entry.path().extension().string())) continue;
      sources[entry.path().lexically_relative(kRoot).generic_string()] = read_lines(entry.path());
    }
  }
  return sources;
}

const Sources& library() {
  static const Sources kLibrary = sources_below({"sim", "policies", "hwmodels", "traces"});
  return kLibrary;
}

std::string at(const std::string& file, const SourceLine& line) { return file + ":" + std::to_string(line.number); }

/// The target of `#include "..."`; empty for any other line.
std::string included(const SourceLine& line) {
  static const std::regex kInclude(R"re(^\s*#\s*include\s*"([^"]+)")re");
  std::smatch match;
  return std::regex_search(line.text, match, kInclude) ? match[1].str() : std::string();
}

/// Calls check(file, line, target) for every quoted include.
template <class Check>
void for_each_include(const Sources& sources, Check check) {
  for (const auto& [file, lines] : sources) {
    for (const SourceLine& line : lines) {
      if (const std::string target = included(line); !target.empty()) check(file, line, target);
    }
  }
}

/// sim/core/units.hpp -> sim/units
std::string stem(const std::string& path) { return path.substr(0, path.rfind('.')); }

/// The folders of sim/ in the order of the data flow: each may include the folders before it. core/ has two levels:
/// basics for all folders (units, errors, text), and the vocabulary of a simulation (events, random streams, requests).
const std::vector<std::string> kFolders{"base",    "io",     "vocabulary", "api",    "config", "kv",    "exec",
                                        "metrics", "engine", "study",      "report", "cli",    "python"};

std::string folder_of(const std::string& path) {
  const std::set<std::string> vocabulary{"sim/core/event_queue", "sim/core/random", "sim/core/request",
                                         "sim/core/quantile_sketch"};
  std::string folder = path.substr(0, path.find('/'));
  if (folder != "sim") return folder;
  std::string below_sim = path.substr(4, path.find('/', 4) - 4);
  if (below_sim == "core") return vocabulary.contains(stem(path)) ? "vocabulary" : "base";
  return below_sim;
}

/// policies, hwmodels and traces stand beside the engine: they see sim/api and below; studies and later folders see
/// them.
bool may_include(const std::string& file, const std::string& target) {
  const std::set<std::string> siblings{"policies", "hwmodels", "traces"};
  const std::string from = folder_of(file);
  const std::string to = folder_of(target);
  if (from == to) return true;
  const auto level = [](const std::string& folder) {
    return std::find(kFolders.begin(), kFolders.end(), folder) - kFolders.begin();
  };
  const auto api = level("api");
  const auto study = level("study");
  if (siblings.contains(from)) return level(to) <= api;
  if (siblings.contains(to)) return level(from) >= study;
  return level(to) < level(from);
}

TEST(Dependencies, RuleItself_AllowsDownwardOnly) {
  EXPECT_TRUE(may_include("sim/cli/simulate/run.cpp", "policies/parts/prefix_cache.hpp"));
  EXPECT_TRUE(may_include("policies/pie.cpp", "sim/api/scheduler.hpp"));
  EXPECT_TRUE(may_include("sim/engine/instance.hpp", "sim/metrics/metrics.hpp"));
  EXPECT_TRUE(may_include("hwmodels/calibration/ops_csv.cpp", "sim/io/line_reader.hpp"));
  EXPECT_TRUE(may_include("sim/study/assemble.cpp", "hwmodels/catalog.hpp"));
  EXPECT_FALSE(may_include("sim/kv/block_store.cpp", "sim/metrics/metrics.hpp"));
  EXPECT_FALSE(may_include("sim/io/line_reader.cpp", "sim/core/request.hpp"));
  EXPECT_FALSE(may_include("sim/core/units.hpp", "sim/core/request.hpp"));
  EXPECT_FALSE(may_include("sim/api/view.hpp", "sim/engine/instance.hpp"));
  EXPECT_FALSE(may_include("policies/pie.cpp", "sim/engine/instance.hpp"));
  EXPECT_FALSE(may_include("policies/pie.cpp", "sim/config/config.hpp"));
  EXPECT_FALSE(may_include("sim/engine/instance.cpp", "policies/parts/prefix_cache.hpp"));
  EXPECT_FALSE(may_include("traces/readers/csv.cpp", "hwmodels/catalog.hpp"));
  EXPECT_FALSE(may_include("sim/study/points.cpp", "sim/report/table.hpp"));
  EXPECT_FALSE(may_include("sim/report/json.cpp", "sim/cli/simulate/run.hpp"));
  EXPECT_FALSE(may_include("sim/cli/simulate/run.cpp", "tests/oracle/naive_engine.hpp"));
}

TEST(Dependencies, EveryFileOfSimIsInAKnownFolder) {
  for (const auto& [file, lines] : library()) {
    if (!file.starts_with("sim/")) continue;
    EXPECT_NE(std::find(kFolders.begin(), kFolders.end(), folder_of(file)), kFolders.end())
        << file << " is in no known folder";
  }
}

TEST(Dependencies, Includes_RunOneWay) {
  ASSERT_GT(library().size(), 10U) << "no sources below " << kRoot;
  for_each_include(library(), [](const std::string& file, const SourceLine& line, const std::string& target) {
    EXPECT_TRUE(may_include(file, target))
        << at(file, line) << ": " << folder_of(file) << " includes " << target << " (" << folder_of(target) << ")";
  });
}

TEST(Dependencies, Includes_AreNamedFromTheRoot) {
  const auto check = [](const std::string& file, const SourceLine& line, const std::string& target) {
    EXPECT_TRUE(fs::exists(kRoot / target)) << at(file, line) << ": no " << target << " in the repository's root";
  };
  for_each_include(library(), check);
  for_each_include(sources_below({"tests"}), check);
}

TEST(Dependencies, Policies_IncludePartsButNeverEachOther) {
  for_each_include(library(), [](const std::string& file, const SourceLine& line, const std::string& target) {
    if (!file.starts_with("policies/") || !target.starts_with("policies/")) return;
    EXPECT_TRUE(target.starts_with("policies/parts/") || stem(target) == stem(file))
        << at(file, line) << ": a policy includes " << target;
  });
}

TEST(Dependencies, NaiveOracles_ShareOnlyUnitsRequestsInterfacesAndCostModels) {
  const std::set<std::string> shared{"sim/core/units", "sim/core/error", "sim/core/request"};
  for_each_include(sources_below({"tests/oracle"}),
                   [&](const std::string& file, const SourceLine& line, const std::string& target) {
                     if (!file.starts_with("tests/oracle/naive_") || !target.starts_with("sim/")) return;
                     EXPECT_TRUE(shared.contains(stem(target)) || target.starts_with("sim/api/"))
                         << at(file, line) << ": the oracle includes " << target;
                   });
}

/// Every file that the files below a folder of tests include, also through other files.
std::set<std::string> reached_from(const std::string& folder) {
  Sources unread = sources_below({folder});
  const Sources sources = sources_below({"sim", "tests"});
  std::set<std::string> reached;
  while (!unread.empty()) {
    const Sources now = std::exchange(unread, {});
    for_each_include(now, [&](const std::string&, const SourceLine&, const std::string& target) {
      const auto found = sources.find(target);
      if (reached.insert(target).second && found != sources.end()) unread.insert(*found);
    });
  }
  return reached;
}

TEST(Dependencies, PlainModels_ShareNothingWithThePoliciesThatTheyModel) {
  for_each_include(
      sources_below({"tests/models"}), [](const std::string& file, const SourceLine& line, const std::string& target) {
        EXPECT_TRUE(target.starts_with("sim/api/") || target.starts_with("sim/core/") || target.starts_with("tests/"))
            << at(file, line) << ": a plain model includes " << target;
      });
  const std::set<std::string> reached = reached_from("tests/models");
  EXPECT_TRUE(reached.contains("sim/api/view.hpp"));
  for (const std::string& file : reached) {
    EXPECT_FALSE(file.starts_with("policies/")) << "a plain model includes " << file << " through another file";
  }
}

/// What cuda_calibrate/ may include. Measuring needs errors, text, files and the JSON formats of hwmodels/ (what a
/// machine is planned for): nothing that predicts. `validate` predicts, with the executor, the models that a profile
/// is fitted to and the layer rules that the policies run.
bool calibration_may_include(const std::string& file, const std::string& target) {
  const bool measuring = folder_of(target) == "base" || folder_of(target) == "io" || stem(target) == "hwmodels/catalog";
  if (!file.starts_with("cuda_calibrate/validate/")) return measuring;
  const std::set<std::string> rules{"policies/parts/layer_swap", "policies/parts/weight_stream"};
  return measuring || folder_of(target) == "api" || folder_of(target) == "exec" || folder_of(target) == "hwmodels" ||
         rules.contains(stem(target));
}

TEST(Dependencies, CalibrationTool_MeasuresWithoutTheSimulatorThatItValidates) {
  EXPECT_TRUE(calibration_may_include("cuda_calibrate/measure/cli.cpp", "sim/io/output.hpp"));
  EXPECT_FALSE(calibration_may_include("cuda_calibrate/measure/cli.cpp", "sim/exec/executor.hpp"));
  EXPECT_FALSE(calibration_may_include("cuda_calibrate/measure/cli.cpp", "hwmodels/models/gemm.hpp"));
  EXPECT_FALSE(calibration_may_include("cuda_calibrate/validate/predict.cpp", "sim/engine/instance.hpp"));
  EXPECT_FALSE(calibration_may_include("cuda_calibrate/validate/predict.cpp", "policies/pie.cpp"));
  for_each_include(sources_below({"cuda_calibrate"}),
                   [](const std::string& file, const SourceLine& line, const std::string& target) {
                     if (target.starts_with("cuda_calibrate/")) return;
                     EXPECT_TRUE(calibration_may_include(file, target)) << at(file, line) << " includes " << target;
                   });
}

TEST(Dependencies, EveryPolicyFile_RegistersItsName) {
  std::set<std::string> files;
  for (const auto& [file, lines] : library()) {
    const fs::path path = file;
    if (path.parent_path() == "policies" && path.extension() == ".cpp") files.insert(path.stem().string());
  }
  EXPECT_FALSE(files.empty());
  for (const std::string& name : files) {
    EXPECT_NE(PolicyRegistry::instance().find(name), nullptr)
        << "policies/" << name << ".cpp registers no \"" << name << '"';
  }
}

TEST(Determinism, Library_UsesNothingThatDiffersBetweenMachinesOrRuns) {
  // Distributions, default engines and shuffles differ between standard libraries; the other names differ between runs.
  const std::regex banned(
      R"(std::\w+_distribution\b|std::default_random_engine|std::random_device|std::random_shuffle|std::shuffle|std::sample\b)"
      R"(|\b(s?rand|drand48|gethostname|uname)\s*\(|system_clock|\bstd::hash\b|-ffast-math|march=native)");
  for (const auto& [file, lines] : library()) {
    for (const SourceLine& line : lines) {
      std::smatch match;
      EXPECT_FALSE(std::regex_search(line.text, match, banned)) << at(file, line) << ": " << match.str();
    }
  }
}

/// The names of variables declared in one line as unordered containers.
std::set<std::string> unordered_names(const Sources& sources) {
  const std::regex declaration(R"(std::unordered_\w+<.*>\s*&?\s*(\w+)\s*[;={(,)])");
  std::set<std::string> names;
  for (const auto& [file, lines] : sources) {
    for (const SourceLine& line : lines) {
      std::smatch match;
      if (std::regex_search(line.text, match, declaration)) names.insert(match[1].str());
    }
  }
  return names;
}

TEST(Determinism, UnorderedContainers_AreNeverIterated) {
  for (const std::string& name : unordered_names(library())) {
    const std::regex iteration("(for\\s*\\(.*:\\s*" + name + "\\s*\\))|(\\b" + name +
                               "\\s*(\\.|->)\\s*c?begin\\s*\\()");
    for (const auto& [file, lines] : library()) {
      for (const SourceLine& line : lines) {
        EXPECT_FALSE(std::regex_search(line.text, iteration))
            << at(file, line) << ": iterates over the unordered container " << name;
      }
    }
  }
}

}  // namespace
}  // namespace spillway
