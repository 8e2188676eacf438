#include "sim/cli/about/completion.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <span>

#include "hwmodels/catalog.hpp"
#include "sim/api/key_owners.hpp"
#include "sim/cli/about/list.hpp"
#include "sim/core/embedded_file.hpp"
#include "sim/io/output.hpp"
#include "sim/study/assemble.hpp"
#include "sim/study/experiments.hpp"
#include "sim/study/parameter_table.hpp"

namespace spillway::cli {

/// The scripts, embedded in the binary by the build.
std::span<const EmbeddedFile> embedded_files();

namespace {

using Texts = std::vector<std::string>;

/// A command line up to the cursor, split as a shell would.
struct Line {
  Texts words{};             // complete words, the command first
  std::string current{};     // the word with the cursor, without quotes
  std::size_t replaced = 0;  // where the shell starts to replace `current`
};

/// Whether a word is an assignment in front of the command: "SPILLWAY_SEED=2".
bool is_variable(const std::string& word) {
  const std::size_t equals = word.find('=');
  const auto in_name = [](char c) { return c == '_' || std::isalnum(static_cast<unsigned char>(c)) != 0; };
  return equals != std::string::npos && equals > 0 &&
         std::all_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(equals), in_name);
}

/// Splits words at blanks, except blanks quoted by ', " or a backslash.
class LineReader {
 public:
  explicit LineReader(std::string_view breaks) : breaks_(breaks) {}

  Line read(std::string_view line) {
    for (const char c : line) take(c);
    const auto command = std::find_if_not(line_.words.begin(), line_.words.end(), is_variable);
    line_.words.erase(line_.words.begin(), command);
    return std::move(line_);
  }

 private:
  void take(char c) {
    if (escaped_) {
      escaped_ = false;
      append(c);
    } else if (c == '\\' && quote_ != '\'') {
      escaped_ = true;
    } else if (quote_ != '\0') {
      close_or_append(c);
    } else if (c == '"' || c == '\'') {
      quote_ = c;
      before_quote_ = line_.replaced;
      line_.replaced = line_.current.size();
      begun_ = true;
    } else if (c == ' ' || c == '\t' || c == '\n') {
      end_word();
    } else {
      append(c);
      if (breaks_.find(c) != std::string_view::npos) line_.replaced = line_.current.size();
    }
  }
  void close_or_append(char c) {
    if (c != quote_) return append(c);
    quote_ = '\0';
    line_.replaced = before_quote_;
  }
  void append(char c) {
    line_.current += c;
    begun_ = true;
  }
  void end_word() {
    if (begun_) line_.words.push_back(std::move(line_.current));
    line_.current.clear();
    line_.replaced = 0;
    begun_ = false;
  }

  std::string_view breaks_;
  Line line_;
  std::size_t before_quote_ = 0;
  char quote_ = '\0';
  bool escaped_ = false;
  bool begun_ = false;
};

/// Full words that could replace the current word.
class Candidates {
 public:
  explicit Candidates(const Line& line) : line_(line) {}

  Texts find(const CLI::App& app) {
    const CLI::App* at = &app;
    const CLI::Option* awaiting = nullptr;  // the option whose value is expected next
    for (std::size_t i = 1; i < line_.words.size(); ++i) {
      const std::string& word = line_.words[i];
      if (awaiting != nullptr) {
        awaiting = nullptr;
      } else if (word.starts_with('-')) {
        awaiting = word.find('=') == std::string::npos ? option_with_value(*at, word) : nullptr;
      } else if (const CLI::App* sub = subcommand(*at, word)) {
        at = sub;
        operands_ = 0;
      } else {
        ++operands_;
      }
    }
    if (awaiting != nullptr) {
      add_values(awaiting->get_type_name(), "");
    } else if (line_.current.starts_with('-')) {
      add_options(*at);
    } else {
      add_operands(*at);
    }
    std::sort(found_.begin(), found_.end());
    found_.erase(std::unique(found_.begin(), found_.end()), found_.end());
    return std::move(found_);
  }

 private:
  /// The visible subcommands: hidden subcommands have no group.
  static std::vector<const CLI::App*> subcommands(const CLI::App& app) {
    std::vector<const CLI::App*> shown;
    for (const CLI::App* sub : app.get_subcommands(nullptr)) {
      if (!sub->get_group().empty()) shown.push_back(sub);
    }
    return shown;
  }
  static const CLI::App* subcommand(const CLI::App& app, const std::string& name) {
    for (const CLI::App* sub : subcommands(app)) {
      if (sub->get_name() == name) return sub;
    }
    return nullptr;
  }
  static const CLI::Option* option_with_value(const CLI::App& app, const std::string& word) {
    const CLI::Option* option = app.get_option_no_throw(word);
    return option != nullptr && option->get_items_expected_max() > 0 ? option : nullptr;
  }

  void add(const std::string& candidate) {
    if (candidate.starts_with(line_.current)) found_.push_back(candidate.substr(line_.replaced));
  }
  void add_all(const Texts& candidates, const std::string& prefix) {
    for (const std::string& candidate : candidates) add(prefix + candidate);
  }
  /// Adds files whose names begin with the text after `prefix` in the current word.
  void add_files(std::string_view kind, const std::string& prefix) {
    if (!line_.current.starts_with(prefix)) return;
    const std::size_t begin = std::max(prefix.size(), line_.replaced);
    const std::string kept = line_.current.substr(line_.replaced, begin - line_.replaced);
    found_.push_back(fmt::format(":{} {} {}", kind, kept, line_.current.substr(begin)));
  }

  void add_options(const CLI::App& app) {
    const std::size_t equals = line_.current.find('=');
    if (equals != std::string::npos) {
      const CLI::Option* option = option_with_value(app, line_.current.substr(0, equals));
      if (option != nullptr) add_values(option->get_type_name(), line_.current.substr(0, equals + 1));
      return;
    }
    for (const CLI::Option* option : app.get_options()) {
      for (const std::string& name : option->get_lnames()) add("--" + name);
      if (!option->get_lnames().empty()) continue;
      for (const std::string& name : option->get_snames()) add("-" + name);
    }
  }

  void add_operands(const CLI::App& app) {
    for (const CLI::App* sub : subcommands(app)) add(sub->get_name());
    std::size_t place = 0;
    for (const CLI::Option* option : app.get_options()) {
      if (!option->get_positional()) continue;
      const bool list = option->get_items_expected_max() > 1;
      const bool given = place++ < operands_;
      // Offer a single operand until it is given. Offer later operands only after a required one.
      if (list || !given) add_values(option->get_type_name(), "");
      if (!list && !given && option->get_required()) break;
    }
  }

  /// Adds the values of an argument type. `prefix` precedes the value in the same word ("--format=").
  void add_values(const std::string& type, const std::string& prefix) {
    if (type.starts_with("[CONFIG.json]")) {
      add_settings();
    } else if (type.find('|') != std::string::npos) {
      for (std::size_t begin = 0; begin <= type.size();) {
        const std::size_t end = std::min(type.find('|', begin), type.size());
        add(prefix + type.substr(begin, end - begin));
        begin = end + 1;
      }
    } else if (type == "NAME") {
      add_all(explainable_names(), prefix);
      add_files("json", prefix);  // a model file, or its folder
    } else if (type == "PROFILE") {
      add_all(hwmodels::gpu_names(), prefix);
      add_files("json", prefix);
    } else if (type == "MODEL") {
      add_all(hwmodels::llm_names(), prefix);
      add_files("json", prefix);
    } else if (type == "CLUSTER.json") {
      add_files("json", prefix);
    } else if (type == "KEY") {
      for (const Parameter& parameter : keys_of_line()) add(prefix + parameter.name);
    } else if (type == "CLAIM") {
      add_all(reproducible_names(), prefix);
      add_files("folders", prefix);
    } else if (type == "SHELL") {
      add_all(completion_shells(), prefix);
    } else if (type == "FILE" || type == "DIR") {
      add_files(type == "FILE" ? "files" : "folders", prefix);
    }
  }

  void add_settings() {
    const Texts& words = line_.words;
    const auto given = [&](const std::string& key) {
      return std::any_of(words.begin(), words.end(), [&](const std::string& w) { return w.starts_with(key + "="); });
    };
    const std::size_t equals = line_.current.find('=');
    for (const Parameter& parameter : keys_of_line()) {
      if (equals == std::string::npos) {
        if (!given(parameter.name)) add(parameter.name + "=");
      } else if (line_.current.compare(0, equals, parameter.name) == 0) {
        add_setting(parameter);
      }
    }
    if (equals == std::string::npos) add_files("json", "");
  }

  /// All keys of the table, those of the policy on the line and of the weights on the line. If the line names no
  /// policy, the keys of every policy; if it names neither, those of all weights too.
  [[nodiscard]] std::vector<Parameter> keys_of_line() const {
    std::vector<Parameter> keys = parameter_table();
    const std::vector<KeyOwner> owners = key_owners();
    const auto on_line = [&](const KeyOwner& owner) {
      return std::find(line_.words.begin(), line_.words.end(), owner.key + "=" + owner.name) != line_.words.end();
    };
    const auto named = [&](const std::string& key) {
      return std::any_of(owners.begin(), owners.end(),
                         [&](const KeyOwner& owner) { return owner.key == key && on_line(owner); });
    };
    const bool policy = named("policy");
    const bool weights = policy || named(kWeightsKey);
    for (const KeyOwner& owner : owners) {
      const bool chosen = owner.key == "policy" ? policy : weights;
      if (chosen && !on_line(owner)) continue;
      keys.insert(keys.end(), owner.parameters->begin(), owner.parameters->end());
    }
    return keys;
  }

  void add_setting(const Parameter& parameter) {
    // A comma starts the next value of an axis.
    const std::size_t comma = line_.current.rfind(',');
    const std::string prefix = comma == std::string::npos ? parameter.name + "=" : line_.current.substr(0, comma + 1);
    if (parameter.type == ParameterType::boolean) add_all({"false", "true"}, prefix);
    add_all(parameter.choices, prefix);
    const bool takes_file = !parameter.choices.empty() || parameter.unit == kFileUnit;
    if (parameter.type == ParameterType::text && takes_file) add_files("files", prefix);
  }

  const Line& line_;
  std::size_t operands_ = 0;  // words before the cursor that are neither flags nor flag values
  Texts found_;
};

}  // namespace

const std::vector<std::string>& completion_shells() {
  static const std::vector<std::string> kShells{"bash", "zsh", "fish"};
  return kShells;
}

ExitCode completion(const std::string& shell) {
  for (const EmbeddedFile& file : embedded_files()) {
    if (!file.path.ends_with("/completion." + shell)) continue;
    print_result(file.content);
    return ExitCode::ok;
  }
  throw ConfigError(
      fmt::format("there is no completion for \"{}\"", shell), "completion " + shell,
      suggestion(shell, completion_shells()) + fmt::format("shells: {}", fmt::join(completion_shells(), ", ")));
}

std::vector<std::string> completions(const CLI::App& app, std::string_view line, std::string_view breaks) {
  const Line parsed = LineReader(breaks).read(line);
  return Candidates(parsed).find(app);
}

}  // namespace spillway::cli
