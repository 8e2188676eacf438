// `spillway completion bash|zsh|fish`, and the completions that the scripts request.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/core/error.hpp"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
}

namespace spillway::cli {

/// The shells with a completion script.
[[nodiscard]] const std::vector<std::string>& completion_shells();
/// `spillway completion SHELL`: prints the script. Throws ConfigError for an unknown shell.
[[nodiscard]] ExitCode completion(const std::string& shell);

/// The possible completions of `line`, the command line up to the cursor, sorted. Subcommands, flags and values come
/// from `app`. The type name of an argument selects its values: "a|b" one of these, FILE, DIR, NAME (everything that
/// `explain` explains), CLAIM (everything that `reproduce` runs), SHELL, "[CONFIG.json] [key=value ...]". The shell
/// itself completes files: ":KIND KEPT PREFIX" means files whose names begin with PREFIX, with KEPT in front of each.
/// KIND is json (and folders), files or folders.
///
/// A shell replaces only the text after the last of `breaks` in the word (bash: COMP_WORDBREAKS), or after an open
/// quote. Candidates omit the text before that.
[[nodiscard]] std::vector<std::string> completions(const CLI::App& app, std::string_view line, std::string_view breaks);

}  // namespace spillway::cli
