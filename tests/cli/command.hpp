// Runs the spillway binary as a user would.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/paths.hpp"

namespace spillway::test {

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

struct Output {
  int code = -1;
  std::string out;
  std::string err;
};

/// A test with its own empty folder, in which the binary runs.
class CliTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    std::string name = std::string("spillway_") + test->test_suite_name() + "_" + test->name();
    std::replace(name.begin(), name.end(), '/', '_');  // parameterised tests
    root_ = std::filesystem::path(testing::TempDir()) / (name + "_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder());
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  /// The folder in which the binary runs. Captured output lies beside the folder.
  [[nodiscard]] std::filesystem::path folder() const { return root_ / "work"; }
  [[nodiscard]] std::filesystem::path file(const std::string& name) const { return folder() / name; }
  [[nodiscard]] std::ptrdiff_t files_left() const {
    return std::distance(std::filesystem::directory_iterator(folder()), std::filesystem::directory_iterator());
  }

  /// Sets a variable for later commands. All other SPILLWAY_* variables are unset.
  void set_variable(const std::string& name, const std::string& value) { variables_.emplace_back(name, value); }

  /// Starts the binary; `out` may be a device such as /dev/full.
  [[nodiscard]] pid_t start(std::vector<std::string> arguments, const std::string& out = {}) const {
    arguments.insert(arguments.begin(), spillway_binary());
    return start_program(std::move(arguments), out);
  }
  [[nodiscard]] pid_t start_program(std::vector<std::string> arguments, const std::string& out = {}) const {
    std::vector<char*> argv;
    argv.reserve(arguments.size() + 1);
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const std::string out_path = out.empty() ? (root_ / "out").string() : out;
    const std::string err_path = (root_ / "err").string();
    const std::string work = folder().string();
    const pid_t child = ::fork();
    if (child == 0) {
      set_environment();
      const int out_file = ::open(out_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      const int err_file = ::open(err_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      const bool ready =
          ::dup2(out_file, STDOUT_FILENO) >= 0 && ::dup2(err_file, STDERR_FILENO) >= 0 && ::chdir(work.c_str()) == 0;
      if (ready) ::execvp(argv[0], argv.data());
      ::_exit(127);
    }
    return child;
  }
  [[nodiscard]] Output wait_for(pid_t child) const {
    int status = 0;
    ::waitpid(child, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_file(root_ / "out"),
            read_file(root_ / "err")};
  }
  [[nodiscard]] Output spillway(const std::vector<std::string>& arguments) const { return wait_for(start(arguments)); }

 private:
  /// The test runner's own variables must not affect the binary.
  void set_environment() const {
    std::vector<std::string> inherited;
    for (char** at = environ; *at != nullptr; ++at) {
      const std::string variable = *at;
      if (variable.starts_with("SPILLWAY_")) inherited.push_back(variable.substr(0, variable.find('=')));
    }
    for (const std::string& name : inherited) ::unsetenv(name.c_str());
    for (const auto& [name, value] : variables_) ::setenv(name.c_str(), value.c_str(), 1);
  }

  std::vector<std::pair<std::string, std::string>> variables_;
  std::filesystem::path root_;
};

}  // namespace spillway::test
