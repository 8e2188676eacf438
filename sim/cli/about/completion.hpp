// `spillway completion bash` and what its script asks the binary for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/core/error.hpp"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
}

namespace spillway::cli {

/// The shells that there is a script for.
[[nodiscard]] const std::vector<std::string>& completion_shells();
/// `spillway completion SHELL`: prints the script. Throws ConfigError for another shell.
[[nodiscard]] ExitCode completion(const std::string& shell);

/// What may stand at the end of `line`, the command line up to the cursor, sorted. Subcommands, flags and their values
/// are those of `app`; the type name of an argument says what it takes: "a|b" one of these, FILE, DIR, NAME (what
/// `explain` explains), CLAIM (what `reproduce` runs), SHELL, "[CONFIG.json] [key=value ...]". Files are left to the
/// shell: ":KIND KEPT PREFIX" stands for those whose names begin with PREFIX, KEPT to be put in front of each; KIND is
/// json (and folders), files, folders.
///
/// A shell replaces only what follows the last of `breaks` in the word (bash: COMP_WORDBREAKS) or an open quote, so
/// candidates are without what is in front of it.
[[nodiscard]] std::vector<std::string> completions(const CLI::App& app, std::string_view line, std::string_view breaks);

}  // namespace spillway::cli
