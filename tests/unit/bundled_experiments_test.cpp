// The bundled experiments are readable, and their claims match the published list.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "sim/study/experiments.hpp"
#include "tests/support/paths.hpp"

namespace spillway {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

TEST(BundledExperiments, AreThoseOfTheRepository) {
  std::set<std::string> folders;
  for (const auto& entry : fs::directory_iterator(fs::path(source_dir()) / "experiments")) {
    if (fs::exists(entry.path() / "expected.json")) folders.insert(entry.path().filename().string());
  }
  std::set<std::string> names;
  std::map<std::string, std::string> claims;
  for (const LoadedExperiment& one : bundled_experiments()) {
    names.insert(one.experiment.name);
    EXPECT_EQ(one.experiment.file, "experiments/" + one.experiment.name + "/expected.json");
    EXPECT_TRUE(fs::exists(fs::path(source_dir()) / "experiments" / one.experiment.name / "README.md"));
    for (const Claim& claim : one.experiment.claims) {
      EXPECT_TRUE(claims.emplace(claim.id, one.experiment.name).second) << claim.id << " is in two experiments";
    }
  }
  EXPECT_EQ(names, folders);
}

/// The parts of a claim that both the list and the repository state.
Json essence(const Json& claim) {
  Json json;
  for (const char* key : {"system", "where", "kind", "expected", "accept", "fitted_on"}) json[key] = claim[key];
  return json;
}

TEST(BundledExperiments, ClaimsOfThePublishedListAreCopiedAsTheyAre) {
  const fs::path list = fs::path(source_dir()) / "../shared/claims.json";
  if (!fs::exists(list)) GTEST_SKIP() << "../shared/claims.json is not there";
  std::map<std::string, Json> published;
  std::ifstream file(list);
  const Json all = Json::parse(file);
  for (const Json& claim : all["claims"]) published[claim["id"]] = essence(claim);
  ASSERT_GT(published.size(), 30U);
  for (const LoadedExperiment& one : bundled_experiments()) {
    const Json own = Json::parse(one.read("expected.json"));
    for (const Json& claim : own["claims"]) {
      const auto source = published.find(claim["id"]);
      if (source == published.end()) continue;  // the paper is not in the list
      EXPECT_EQ(essence(claim), source->second) << claim["id"];
    }
  }
}

}  // namespace
}  // namespace spillway
