// Facts that documents repeat: the version, and the names of the policies.
#include <gmock/gmock.h>

#include <fstream>
#include <regex>
#include <string>

#include "sim/api/registry.hpp"
#include "sim/io/output.hpp"
#include "tests/support/paths.hpp"

namespace spillway {
namespace {

using testing::HasSubstr;

std::string text_of(const std::string& path) {
  std::ifstream file(source_dir() + "/" + path);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

// "## [0.1.0] - 2026-11-27": the first such heading is the newest version. "## [Unreleased]" has no digits.
TEST(Documents, TheNewestVersionOfTheChangelogIsTheBinarys) {
  const std::string changelog = text_of("CHANGELOG.md");
  std::smatch heading;
  ASSERT_TRUE(std::regex_search(changelog, heading, std::regex(R"(\n## \[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d\n)")));
  EXPECT_EQ(heading[1].str(), tool_version());
}

TEST(Documents, TheCitationHasTheBinarysVersion) {
  EXPECT_THAT(text_of("CITATION.cff"), HasSubstr("\nversion: " + std::string(tool_version()) + "\n"));
}

TEST(Documents, EveryPolicyHasARowInTheReadmeAndInThePageOfPolicies) {
  for (const char* page : {"README.md", "docs/policies.md"}) {
    const std::string text = text_of(page);
    for (const PolicyInfo* policy : PolicyRegistry::instance().all()) {
      EXPECT_THAT(text, HasSubstr("\n| `" + policy->name + "` |")) << page;
    }
  }
}

}  // namespace
}  // namespace spillway
