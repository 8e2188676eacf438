// bash completion, called as bash does: a plain bash sources the script and calls its function with bash's variables.
#include <gmock/gmock.h>

#include <set>
#include <string>
#include <vector>

#include "hwmodels/catalog.hpp"
#include "sim/api/registry.hpp"
#include "sim/cli/about/list.hpp"
#include "tests/cli/command.hpp"
#include "tests/support/paths.hpp"

namespace spillway::test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsSupersetOf;
using testing::Not;
using testing::UnorderedElementsAre;
using Words = std::vector<std::string>;

class Completion : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    if (wait_for(start_program({"bash", "-c", "true"})).code != 0) GTEST_SKIP() << "there is no bash";
    write_text(file("script"), spillway({"completion", "bash"}).out);
    for (const char* name : {"my.json", "other.json", "trace.csv", "with space.csv"}) write_text(file(name), "");
    std::filesystem::create_directory(file("traces"));
    write_text(file("traces/a.csv"), "");
  }

  /// COMPREPLY for a command line of `words`, split as bash does, with the cursor at the end of the last word.
  [[nodiscard]] Words complete(const std::string& line, const Words& words, const std::string& setup = "") const {
    std::string script = setup + "\nsource ./script || exit 9\nCOMP_WORDS=(";
    for (const std::string& word : words) script += quoted(word) + " ";
    script += ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_TYPE=9 COMP_KEY=9 COMP_LINE=" + quoted(line) +
              "\nCOMP_POINT=${#COMP_LINE}\n_spillway " + quoted(spillway_binary()) + " " + quoted(words.back()) + " " +
              quoted(words.size() > 1 ? words[words.size() - 2] : "") +
              "\n[[ ${#COMPREPLY[@]} -eq 0 ]] || printf '%s\\n' \"${COMPREPLY[@]}\"\n";
    const Output shell = wait_for(start_program({"bash", "--norc", "-c", script}));
    EXPECT_EQ(shell.code, 0) << line << ": " << shell.err;
    EXPECT_EQ(shell.err, "") << line;
    Words replies;
    for (std::size_t begin = 0, end = 0; (end = shell.out.find('\n', begin)) != std::string::npos; begin = end + 1) {
      replies.push_back(shell.out.substr(begin, end - begin));
    }
    return replies;
  }
  static std::string quoted(const std::string& text) {
    std::string quoted = "'";
    for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return quoted + "'";
  }
};

Words policy_names() {
  Words names;
  for (const PolicyInfo* info : PolicyRegistry::instance().all()) names.push_back(info->name);
  return names;
}

TEST_F(Completion, TheScriptIsTheOneInTheSourcesAndRegistersTheFunction) {
  EXPECT_EQ(read_file(file("script")), read_file(source_dir() + "/sim/cli/about/completion.bash"));
  const Output shell = wait_for(start_program({"bash", "-c", "source ./script && complete -p spillway"}));
  EXPECT_EQ(shell.out, "complete -F _spillway spillway\n");
  const Output zsh = spillway({"completion", "zhs"});
  EXPECT_EQ(zsh.code, 2);
  EXPECT_THAT(zsh.err, testing::HasSubstr("shells: bash, zsh, fish"));
}

TEST_F(Completion, Commands) {
  const Words all = complete("spillway ", {"spillway", ""});
  EXPECT_THAT(all, IsSupersetOf({"run", "list", "explain", "config", "completion"}));
  EXPECT_THAT(all, Not(Contains("complete")));  // only for the script
  EXPECT_THAT(complete("spillway ru", {"spillway", "ru"}), ElementsAre("run"));
  EXPECT_THAT(complete("spillway config sh", {"spillway", "config", "sh"}), ElementsAre("show"));
  EXPECT_THAT(complete("spillway trace ", {"spillway", "trace", ""}), UnorderedElementsAre("info", "convert", "synth"));
  EXPECT_THAT(complete("spillway trace convert tr", {"spillway", "trace", "convert", "tr"}), Contains("trace.csv"));
  EXPECT_THAT(
      complete("spillway trace synth --format native-b", {"spillway", "trace", "synth", "--format", "native-b"}),
      ElementsAre("native-binary"));
  EXPECT_THAT(complete("spillway completion ", {"spillway", "completion", ""}),
              UnorderedElementsAre("bash", "zsh", "fish"));
  EXPECT_THAT(complete("SPILLWAY_SEED=2 spillway ru", {"spillway", "ru"}), ElementsAre("run"));
  EXPECT_THAT(complete("spillway nothing-begins-so", {"spillway", "nothing-begins-so"}), ElementsAre());
}

TEST_F(Completion, FlagsAndTheirValues) {
  EXPECT_THAT(
      complete("spillway run --", {"spillway", "run", "--"}),
      IsSupersetOf({"--format", "--json", "--slo", "--fail-if", "--dry-run", "--perturb", "--progress", "--help"}));
  EXPECT_THAT(complete("spillway list --", {"spillway", "list", "--"}), UnorderedElementsAre("--help", "--json"));
  EXPECT_THAT(complete("spillway run --format ", {"spillway", "run", "--format", ""}),
              UnorderedElementsAre("table", "json", "csv", "vllm"));
  EXPECT_THAT(complete("spillway run --progress o", {"spillway", "run", "--progress", "o"}), ElementsAre("off"));
  EXPECT_THAT(complete("spillway run --format=js", {"spillway", "run", "--format", "=", "js"}), ElementsAre("json"));
  EXPECT_THAT(complete("spillway run -o ", {"spillway", "run", "-o", ""}), ElementsAre("traces"));
  EXPECT_THAT(complete("spillway run --requests-out t", {"spillway", "run", "--requests-out", "t"}),
              UnorderedElementsAre("trace.csv", "traces"));
  // A flag's value is not an operand; -j takes a number.
  EXPECT_THAT(complete("spillway run -j ", {"spillway", "run", "-j", ""}), ElementsAre());
  EXPECT_THAT(complete("spillway run -j 4 --json see", {"spillway", "run", "-j", "4", "--json", "see"}),
              ElementsAre("seed="));
}

TEST_F(Completion, KeysAndConfigurationFiles) {
  EXPECT_THAT(complete("spillway run ", {"spillway", "run", ""}),
              IsSupersetOf({"model=", "workload.rate=", "slo.ttft_ms=", "my.json", "other.json", "traces"}));
  EXPECT_THAT(complete("spillway config check my", {"spillway", "config", "check", "my"}), ElementsAre("my.json"));
  EXPECT_THAT(complete("spillway place my", {"spillway", "place", "my"}), ElementsAre("my.json"));
  EXPECT_THAT(complete("spillway run tr", {"spillway", "run", "tr"}), ElementsAre("traces"));  // no trace.csv
  EXPECT_THAT(complete("spillway run my.json workload.rat", {"spillway", "run", "my.json", "workload.rat"}),
              ElementsAre("workload.rate="));
  // A key that is already given is not offered again.
  EXPECT_THAT(complete("spillway run seed=1 see", {"spillway", "run", "seed", "=", "1", "see"}), ElementsAre());
}

TEST_F(Completion, ValuesAfterTheEqualsSign) {
  EXPECT_THAT(complete("spillway run policy=", {"spillway", "run", "policy", "="}),
              testing::UnorderedElementsAreArray(policy_names()));
  EXPECT_THAT(complete("spillway sweep policy=vllm,sar", {"spillway", "sweep", "policy", "=", "vllm,sar"}),
              ElementsAre("vllm,sarathi"));
  EXPECT_THAT(complete("spillway search --max workload.rat", {"spillway", "search", "--max", "workload.rat"}),
              ElementsAre("workload.rate"));
  EXPECT_THAT(complete("spillway run model=llama-3.1-8", {"spillway", "run", "model", "=", "llama-3.1-8"}),
              ElementsAre("llama-3.1-8b"));
  EXPECT_THAT(complete("spillway run hardware=", {"spillway", "run", "hardware", "="}),
              IsSupersetOf(hwmodels::hardware_names()));
  EXPECT_THAT(complete("spillway run engine=", {"spillway", "run", "engine", "="}),
              IsSupersetOf(hwmodels::engine_names()));
  EXPECT_THAT(complete("spillway run engine.preemption=s", {"spillway", "run", "engine.preemption", "=", "s"}),
              ElementsAre("swap"));
  EXPECT_THAT(complete("spillway run engine.overheads=", {"spillway", "run", "engine.overheads", "="}),
              UnorderedElementsAre("true", "false"));
  EXPECT_THAT(complete("spillway run workload.trace=tr", {"spillway", "run", "workload.trace", "=", "tr"}),
              UnorderedElementsAre("trace.csv", "traces"));
  EXPECT_THAT(complete("spillway run topology=tr", {"spillway", "run", "topology", "=", "tr"}),
              UnorderedElementsAre("trace.csv", "traces"));
  EXPECT_THAT(complete("spillway run workload.trace=with", {"spillway", "run", "workload.trace", "=", "with"}),
              ElementsAre("with space.csv"));
  EXPECT_THAT(complete("spillway run workload.trace=traces/", {"spillway", "run", "workload.trace", "=", "traces/"}),
              ElementsAre("traces/a.csv"));
  EXPECT_THAT(complete("spillway run memory.gpu_kv=", {"spillway", "run", "memory.gpu_kv", "="}), ElementsAre());
}

TEST_F(Completion, KeysOfThePolicyOnTheLineElseOfAll) {
  const auto keys = [&](const std::string& line, const Words& words) {
    Words found = complete(line, words);
    std::sort(found.begin(), found.end());
    return found;
  };
  std::set<std::string> all;
  std::set<std::string> of_weights;
  for (const PolicyInfo* info : PolicyRegistry::instance().weights()) {
    std::set<std::string> own;
    for (const Parameter& key : info->parameters) own.insert(key.name + "=");
    of_weights.insert(own.begin(), own.end());
    EXPECT_EQ(keys("spillway run policy=vllm policy.weights=" + info->name + " policy.weights.",
                   {"spillway", "run", "policy", "=", "vllm", "policy.weights", "=", info->name, "policy.weights."}),
              Words(own.begin(), own.end()));
  }
  for (const PolicyInfo* info : PolicyRegistry::instance().all()) {
    std::set<std::string> own{"policy.weights="};
    for (const Parameter& key : info->parameters) own.insert(key.name + "=");
    all.insert(own.begin(), own.end());
    EXPECT_EQ(keys("spillway run policy=" + info->name + " policy.",
                   {"spillway", "run", "policy", "=", info->name, "policy."}),
              Words(own.begin(), own.end()));
  }
  all.insert(of_weights.begin(), of_weights.end());
  EXPECT_EQ(keys("spillway run policy.", {"spillway", "run", "policy."}), Words(all.begin(), all.end()));
}

TEST_F(Completion, NamesOfListAndExplain) {
  EXPECT_THAT(complete("spillway list ", {"spillway", "list", ""}),
              testing::UnorderedElementsAreArray(cli::list_kinds()));
  const Words names = complete("spillway explain ", {"spillway", "explain", ""});
  EXPECT_THAT(names, IsSupersetOf(cli::explainable_names()));
  EXPECT_THAT(complete("spillway explain h100", {"spillway", "explain", "h100"}), Contains("h100-80gb-sxm"));
  // A model file, or its folder.
  EXPECT_THAT(complete("spillway explain my", {"spillway", "explain", "my"}), ElementsAre("my.json"));
  EXPECT_THAT(complete("spillway explain ./tr", {"spillway", "explain", "./tr"}), ElementsAre("./traces"));
}

TEST_F(Completion, CalibrateTakesFilesFlagsAndNames) {
  EXPECT_THAT(complete("spillway cal", {"spillway", "cal"}), ElementsAre("calibrate"));
  EXPECT_THAT(complete("spillway calibrate ", {"spillway", "calibrate", ""}),
              UnorderedElementsAre("fit", "check", "errors"));
  EXPECT_THAT(complete("spillway calibrate fit --ba", {"spillway", "calibrate", "fit", "--ba"}),
              ElementsAre("--bandwidth", "--base"));
  EXPECT_THAT(
      complete("spillway calibrate fit --", {"spillway", "calibrate", "fit", "--"}),
      UnorderedElementsAre("--bandwidth", "--base", "--drop-inconsistent", "--gpu", "--help", "--host-out", "--json",
                           "--memory", "--model", "--name", "--omit-measurements", "--out", "--stands-for"));
  EXPECT_THAT(complete("spillway calibrate fit tra", {"spillway", "calibrate", "fit", "tra"}),
              UnorderedElementsAre("trace.csv", "traces"));
  EXPECT_THAT(complete("spillway calibrate fit gemm=tra", {"spillway", "calibrate", "fit", "gemm", "=", "tra"}),
              UnorderedElementsAre("trace.csv", "traces"));
  EXPECT_THAT(complete("spillway calibrate fit decode_", {"spillway", "calibrate", "fit", "decode_"}), ElementsAre());
  // A base and a profile are GPUs or profile files, so models, policies and metrics are not offered.
  for (const char* command :
       {"spillway calibrate fit trace.csv --base ", "spillway calibrate check ", "spillway calibrate errors "}) {
    Words words{"spillway"};
    const std::string line = command;
    for (std::size_t begin = 9, end = 0; (end = line.find(' ', begin)) != std::string::npos; begin = end + 1) {
      words.push_back(line.substr(begin, end - begin));
    }
    words.emplace_back();
    const Words found = complete(line, words);
    EXPECT_THAT(found, IsSupersetOf(hwmodels::gpu_names())) << line;
    EXPECT_THAT(found, IsSupersetOf({"my.json", "traces"})) << line;
    EXPECT_THAT(found, Not(Contains("ttft_ms"))) << line;
    EXPECT_THAT(found, Not(Contains("hgx-h100-8"))) << line;
  }
  // Measurements follow the profile of check.
  EXPECT_THAT(complete("spillway calibrate check my.json tra", {"spillway", "calibrate", "check", "my.json", "tra"}),
              UnorderedElementsAre("trace.csv", "traces"));
  EXPECT_THAT(complete("spillway calibrate fit x.csv --model llama-3.1-8",
                       {"spillway", "calibrate", "fit", "x.csv", "--model", "llama-3.1-8"}),
              ElementsAre("llama-3.1-8b"));
  EXPECT_THAT(complete("spillway calibrate fit x.csv -o my", {"spillway", "calibrate", "fit", "x.csv", "-o", "my"}),
              ElementsAre("my.json"));
  // Free text has no completion.
  EXPECT_THAT(complete("spillway calibrate fit x.csv --stands-for ",
                       {"spillway", "calibrate", "fit", "x.csv", "--stands-for", ""}),
              ElementsAre());
}

TEST_F(Completion, OtherWordBreaksAndQuotes) {
  // Without = in the breaks, the shell replaces the whole word.
  const std::string whole = "COMP_WORDBREAKS=$' \\t\\n\"\\'><;|&('";
  EXPECT_THAT(complete("spillway run engine.preemption=s", {"spillway", "run", "engine.preemption=s"}, whole),
              ElementsAre("engine.preemption=swap"));
  EXPECT_THAT(complete("spillway run workload.trace=traces/", {"spillway", "run", "workload.trace=traces/"}, whole),
              ElementsAre("workload.trace=traces/a.csv"));
  // Inside an open quote there are no breaks: the completion replaces the text after the quote.
  EXPECT_THAT(complete("spillway run \"engine.preemption=s", {"spillway", "run", "\"engine.preemption=s"}),
              ElementsAre("engine.preemption=swap"));
  EXPECT_THAT(complete("spillway run engine.preemption='s", {"spillway", "run", "engine.preemption", "=", "'s"}),
              ElementsAre("swap"));
  EXPECT_THAT(complete("spillway run \"my.json\" see", {"spillway", "run", "\"my.json\"", "see"}),
              ElementsAre("seed="));
}

TEST_F(Completion, ABinaryThatIsGoneCompletesNothing) {
  const std::string script =
      "source ./script; COMP_LINE='spillway ru' COMP_POINT=11; _spillway ./no-such-file ru spillway; "
      "echo \"${#COMPREPLY[@]}\"";
  const Output shell = wait_for(start_program({"bash", "--norc", "-c", script}));
  EXPECT_EQ(shell.out, "0\n");
  EXPECT_EQ(shell.err, "");
}

/// Other shells, with the same files.
class OtherShells : public Completion {
 protected:
  /// Whether the shell is there; if not, the test is skipped.
  [[nodiscard]] bool has(const std::string& shell) const {
    return wait_for(start_program({"bash", "-c", "command -v " + shell})).code == 0;
  }
  [[nodiscard]] std::string path_setting() const {
    return quoted(std::filesystem::path(spillway_binary()).parent_path().string());
  }
};

TEST_F(OtherShells, FishListsTheCandidates) {
  if (!has("fish")) GTEST_SKIP() << "fish is not installed here (Debian's package fish)";
  write_text(file("script.fish"), spillway({"completion", "fish"}).out);
  EXPECT_EQ(read_file(file("script.fish")), read_file(source_dir() + "/sim/cli/about/completion.fish"));
  const auto fish = [&](const std::string& line) {
    const std::string script =
        "set -gx PATH " + path_setting() + " $PATH; source script.fish; complete -C " + quoted(line);
    const Output shell =
        wait_for(start_program({"env", "HOME=" + folder().string(), "fish", "--no-config", "-c", script}));
    EXPECT_EQ(shell.err, "") << line;
    Words words;
    for (std::size_t begin = 0, end = 0; (end = shell.out.find('\n', begin)) != std::string::npos; begin = end + 1) {
      words.push_back(shell.out.substr(begin, end - begin));
    }
    return words;
  };
  EXPECT_THAT(fish("spillway ru"), ElementsAre("run"));
  EXPECT_THAT(fish("spillway completion "), UnorderedElementsAre("bash", "zsh", "fish"));
  EXPECT_THAT(fish("spillway run my.json workload.rat"), ElementsAre("workload.rate="));
  EXPECT_THAT(fish("spillway sweep policy=vllm,sar"), ElementsAre("policy=vllm,sarathi"));
  EXPECT_THAT(fish("spillway run --progress o"), ElementsAre("off"));
  EXPECT_THAT(fish("spillway run --format=js"), ElementsAre("--format=json"));
  EXPECT_THAT(fish("spillway run my"), ElementsAre("my.json"));
  EXPECT_THAT(fish("spillway run -o "), ElementsAre("traces/"));
  EXPECT_THAT(fish("spillway run workload.trace=tr"),
              UnorderedElementsAre("workload.trace=trace.csv", "workload.trace=traces/"));
  EXPECT_THAT(fish("spillway run workload.trace=with"), ElementsAre("workload.trace=with space.csv"));
  EXPECT_THAT(fish("spillway nothing-begins-so"), ElementsAre());
}

TEST_F(OtherShells, ZshCompletesWhatIsTyped) {
  if (!has("zsh")) GTEST_SKIP() << "zsh is not installed here (Debian's package zsh)";
  const std::vector<std::pair<std::string, std::string>> lines{
      {"spillway ru", "spillway run "},
      {"spillway run my.json workload.rat", "spillway run my.json workload.rate="},
      {"spillway sweep policy=vllm,sar", "spillway sweep policy=vllm,sarathi "},
      {"spillway run --progress o", "spillway run --progress off "},
      {"spillway run --format=js", "spillway run --format=json "},
      {"spillway run my", "spillway run my.json "},
      {"spillway run -o tr", "spillway run -o traces/"},
      {"spillway run workload.trace=with", "spillway run workload.trace=with\\ space.csv "},
      {"spillway run workload.trace=traces/", "spillway run workload.trace=traces/a.csv "},
      {"spillway nothing-begins-so", "spillway nothing-begins-so"}};
  std::string typed;
  std::string expected;
  for (const auto& [line, became] : lines) {
    typed += line + "\n";
    expected += became + "|\n";
  }
  write_text(file("lines"), typed);
  std::filesystem::create_directory(file("functions"));
  write_text(file("functions/_spillway"), spillway({"completion", "zsh"}).out);
  EXPECT_EQ(read_file(file("functions/_spillway")), read_file(source_dir() + "/sim/cli/about/completion.zsh"));
  // As a shell's own folder has it, and as a user sources it.
  const std::string path = "path=(" + path_setting() + " $path)\n";
  const std::string completions = "autoload -U compinit\ncompinit -u -D\n";
  write_text(file("installed"), path + "fpath=($PWD/functions $fpath)\n" + completions);
  write_text(file("sourced"), path + completions + "source functions/_spillway\n");
  for (const std::string setup : {"installed", "sourced"}) {
    const std::string script = source_dir() + "/tests/cli/type_in_zsh.zsh";
    const Output shell = wait_for(start_program({"zsh", "-f", script, "./" + setup, "lines", setup + ".out"}));
    EXPECT_EQ(shell.code, 0) << shell.err;
    EXPECT_EQ(read_file(file(setup + ".out")), expected) << setup;
  }
}

}  // namespace
}  // namespace spillway::test
