// Configuration of a run: its keys, where each value comes from, and every check that a value can be put to alone.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/api/parameter.hpp"
#include "sim/api/registry.hpp"

namespace spillway {

// --- The keys -------------------------------------------------------------------------------------------------------

/// Names that live outside sim/ (hwmodels), for the keys that take one of them or a file.
struct ConfigNames {
  std::vector<std::string> models;
  std::vector<std::string> hardware;
  std::vector<std::string> engines;
};

/// Every key but `policy.*`, in the order in which they are written; `workload` are the keys of the request source.
/// `choices` of a text parameter are the names it knows: anything else must be a readable file.
[[nodiscard]] std::vector<Parameter> config_parameters(const ConfigNames& names,
                                                       const std::vector<Parameter>& workload);

/// What a value looks like: "a whole number (tokens)", "a size such as 40GB (B, kB, ...)", "one of recompute, swap".
[[nodiscard]] std::string describe_form(const Parameter& parameter);
/// "at least 1, at most 64", "more than 0ns, at most 24000h"; empty for what is not a number.
[[nodiscard]] std::string describe_range(const Parameter& parameter);
/// Form and range in one, as error messages and the JSON Schema say it.
[[nodiscard]] std::string describe_type(const Parameter& parameter);

/// A value in the form that it is used in and in the form that a user writes; parsing `text` again gives both again.
struct ParsedValue {
  Value value{};
  std::string text{};
};
/// Parses `text` and checks it against the descriptor. Appends a Problem and returns empty when it will not do.
[[nodiscard]] std::optional<ParsedValue> parse_value(const Parameter& parameter, const std::string& text,
                                                     const std::string& where, std::vector<Problem>& problems);

/// The candidate nearest to `word`, else the first one that contains it ("h100", "max_num_seqs"); empty when there is
/// neither.
[[nodiscard]] std::string suggested_name(const std::string& word, const std::vector<std::string>& candidates);
/// "did you mean "X"?  " for that candidate; empty without one.
[[nodiscard]] std::string suggestion(const std::string& word, const std::vector<std::string>& candidates);

// --- Where values come from -----------------------------------------------------------------------------------------

/// The layers, weakest first.
enum class Origin : std::uint8_t { standard, policy, file, environment, argument };
[[nodiscard]] std::string_view origin_name(Origin origin);

/// One key as the user gave it.
struct Assignment {
  std::string key;                  // full dotted key
  std::optional<std::string> text;  // empty: null, as if the key were not there
  Origin origin = Origin::argument;
  std::string where;  // "config.json:14 (/memory/gpu_kv)", "argument memory.gpu_kv=40" or "environment SPILLWAY_SEED=2"
  /// The values of a JSON list, of which a run takes none and a sweep each in turn; then there is no text.
  std::optional<std::vector<std::string>> list{};
};
/// The key of the table, or of any policy, that is meant: "policy" for "policy.name". Empty when there is none.
[[nodiscard]] const Parameter* find_parameter(const std::vector<Parameter>& table, const std::string& key);

/// The keys of a configuration: JSON with comments, keys flat ("engine.max_num_seqs") or as nested objects, in which
/// "name" stands for the group's own value ({"policy": {"name": "pie"}}). `name` is what messages call the file.
/// Appends a Problem for whatever is not such a file.
[[nodiscard]] std::vector<Assignment> parse_config(std::string_view content, const std::string& name,
                                                   std::vector<Problem>& problems);
/// Reads and parses a file.
[[nodiscard]] std::vector<Assignment> read_config_file(const std::string& path, std::vector<Problem>& problems);
/// `key=value` arguments; "key=null" takes back what a file says.
[[nodiscard]] std::vector<Assignment> parse_arguments(std::span<const std::string> arguments,
                                                      std::vector<Problem>& problems);

/// The environment variable of a key: SPILLWAY_MEMORY_GPU_KV for memory.gpu_kv.
[[nodiscard]] std::string environment_variable(const std::string& key);
/// The process's variables whose names begin with SPILLWAY_, as NAME=VALUE, sorted.
[[nodiscard]] std::vector<std::string> spillway_environment();
/// NAME=VALUE variables that set a key of the table or of any policy; "null" takes back what a file says. Appends a
/// Problem for every other name that begins with SPILLWAY_, except those in `others`; empty values count as not set.
[[nodiscard]] std::vector<Assignment> parse_environment(std::span<const std::string> variables,
                                                        const std::vector<Parameter>& table,
                                                        std::span<const std::string> others,
                                                        std::vector<Problem>& problems);

// --- The result -----------------------------------------------------------------------------------------------------

struct ResolvedKey {
  Parameter parameter;
  Value value{};       // monostate: unset
  std::string text{};  // canonical text form
  Origin origin = Origin::standard;
  std::string where{};  // of an assignment; empty for defaults
};

struct ResolvedConfig {
  const PolicyInfo* policy = nullptr;
  Settings settings;
  std::vector<ResolvedKey> keys;  // every key of the run, `policy.*` after `policy`
  [[nodiscard]] const ResolvedKey& key(const std::string& name) const;  // InvariantError when there is none
  /// A Problem's place for the user: a key becomes the place that its value comes from, all else stays.
  [[nodiscard]] std::string place(const std::string& where) const;
};

/// Lays the assignments over the defaults (the table's, then the policy's). `problems` are those found while reading.
/// Throws ConfigError with every problem, or DataError when files that cannot be read are all that is wrong.
[[nodiscard]] ResolvedConfig resolve_config(const std::vector<Parameter>& table,
                                            const std::vector<Assignment>& assignments, std::vector<Problem> problems);

/// Flat dotted keys in a fixed order, unset = null: resolving it again gives the same object.
[[nodiscard]] nlohmann::ordered_json canonical_config(const ResolvedConfig& config);

/// JSON Schema 2020-12 of configuration files, for editors: flat and nested forms, `policy.*` of every policy.
[[nodiscard]] nlohmann::ordered_json config_schema(const std::vector<Parameter>& table);

}  // namespace spillway
