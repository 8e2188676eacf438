// The configuration of a run: its keys, the origin of each value, and the checks that need no other value.
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

/// Names from outside sim/ (hwmodels), for keys that take a name or a file.
struct ConfigNames {
  std::vector<std::string> models;
  std::vector<std::string> hardware;
  std::vector<std::string> engines;
  // Parameter::accepts, known_elsewhere and advice of these keys; null: none.
  bool (*accepts_model)(std::string_view name) = nullptr;
  std::string (*advice_on_model)(std::string_view name) = nullptr;
  std::string (*hardware_known_elsewhere)(std::string_view name) = nullptr;
  std::string (*advice_on_hardware)(std::string_view name) = nullptr;
};

/// Every key except `policy.*`, in the order of results. `workload` holds the keys of the request source. The `choices`
/// of a text parameter are its known names: any other value must be a readable file.
[[nodiscard]] std::vector<Parameter> config_parameters(const ConfigNames& names,
                                                       const std::vector<Parameter>& workload);

/// The unit of a text parameter that names a file.
inline constexpr std::string_view kFileUnit = "file";
/// The unit of a text parameter that is a JSON list of objects; a configuration file has the list itself.
inline constexpr std::string_view kListUnit = "list";
/// The key whose list divides a server among several models.
inline constexpr const char* kInstancesKey = "instances";

/// The form of a value: "a whole number (tokens)", "a size such as 40GB (B, kB, ...)", "one of recompute, swap".
[[nodiscard]] std::string describe_form(const Parameter& parameter);
/// "at least 1, at most 64", "more than 0ns, at most 24000h"; empty for a parameter that is not a number.
[[nodiscard]] std::string describe_range(const Parameter& parameter);
/// Form and range in one, for error messages and the JSON Schema.
[[nodiscard]] std::string describe_type(const Parameter& parameter);

/// A value and its canonical text. Parsing the text gives the same value and text.
struct ParsedValue {
  Value value{};
  std::string text{};
};
/// Parses `text` and checks the value against the descriptor. Appends a Problem and returns empty when it is refused.
[[nodiscard]] std::optional<ParsedValue> parse_value(const Parameter& parameter, const std::string& text,
                                                     const std::string& where, std::vector<Problem>& problems);

/// The candidate nearest to `word`, else the first candidate that contains it ("h100", "max_num_seqs"); else empty.
[[nodiscard]] std::string suggested_name(const std::string& word, const std::vector<std::string>& candidates);
/// "did you mean "X"?  " for suggested_name; empty without a candidate.
[[nodiscard]] std::string suggestion(const std::string& word, const std::vector<std::string>& candidates);

/// What to do when a run was given several values for a key.
inline constexpr std::string_view kSeveralValues = "give one value; spillway sweep takes several";

// --- Where values come from -----------------------------------------------------------------------------------------

/// Where a value comes from, weakest first.
enum class Origin : std::uint8_t { standard, policy, file, environment, argument };
[[nodiscard]] std::string_view origin_name(Origin origin);

/// One key as the user gave it.
struct Assignment {
  std::string key;                  // full dotted key
  std::optional<std::string> text;  // empty: null, as if the key were absent
  Origin origin = Origin::argument;
  std::string where;  // "config.json:14 (/memory/gpu_kv)", "argument memory.gpu_kv=40" or "environment SPILLWAY_SEED=2"
  /// The values of a JSON list, without text then. A run refuses a list; a sweep runs each value.
  std::optional<std::vector<std::string>> list{};
  bool empty_object = false;  // {"memory": {}}: a group of keys without a key
};
/// The parameter of a key, from the table or from any policy or weights; "policy.name" stands for "policy". Null when
/// unknown.
[[nodiscard]] const Parameter* find_parameter(const std::vector<Parameter>& table, const std::string& key);

/// Reads a configuration: JSON with comments. Keys are flat ("engine.max_num_seqs") or nested objects, in which "name"
/// stands for the group's own value ({"policy": {"name": "pie"}}). Messages call the file `name`. Appends a Problem for
/// each fault.
[[nodiscard]] std::vector<Assignment> parse_config(std::string_view content, const std::string& name,
                                                   std::vector<Problem>& problems);
/// Reads and parses a regular file. Appends a Problem for each fault.
[[nodiscard]] std::vector<Assignment> read_config_file(const std::string& path, std::vector<Problem>& problems);
/// `key=value` arguments. "key=null" removes the value of a file.
[[nodiscard]] std::vector<Assignment> parse_arguments(std::span<const std::string> arguments,
                                                      std::vector<Problem>& problems);

/// The environment variable of a key: SPILLWAY_MEMORY_GPU_KV for memory.gpu_kv.
[[nodiscard]] std::string environment_variable(const std::string& key);
/// The process's variables whose names begin with SPILLWAY_, as NAME=VALUE, sorted.
[[nodiscard]] std::vector<std::string> spillway_environment();
/// NAME=VALUE variables that set a key of the table or of any policy. "null" removes the value of a file; an empty
/// value counts as not set. Appends a Problem for every unknown name, except the names in `others`.
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
  std::string where{};  // location of the assignment; empty for defaults
};

/// The objects of the list that a key has, as parse_config reads each of them. An element that is no object is a
/// Problem, and is left out. O(length of the list).
[[nodiscard]] std::vector<std::vector<Assignment>> parse_objects(const ResolvedKey& key,
                                                                 std::vector<Problem>& problems);

struct ResolvedConfig {
  const PolicyInfo* policy = nullptr;
  Settings settings;
  std::vector<ResolvedKey> keys;  // every key of the run, `policy.*` after `policy`
  [[nodiscard]] const ResolvedKey& key(const std::string& name) const;  // InvariantError when unknown
  /// The location of a Problem for the user: a key becomes the location of its value, other text stays.
  [[nodiscard]] std::string place(const std::string& where) const;
};

/// Lays the assignments over the defaults: the table's, then the policy's. `problems` holds the problems found while
/// reading. Throws ConfigError with every problem, or DataError when the only problems are unreadable files.
[[nodiscard]] ResolvedConfig resolve_config(const std::vector<Parameter>& table,
                                            const std::vector<Assignment>& assignments, std::vector<Problem> problems);

/// The value of a key in its JSON type, a list as a list; null when unset.
[[nodiscard]] nlohmann::ordered_json canonical_value(const ResolvedKey& key);
/// Flat dotted keys in a fixed order, without those that are quiet at their default. With `instances`, whose defaults
/// depend on each, only what was given. Resolving the object again gives the same object.
[[nodiscard]] nlohmann::ordered_json canonical_config(const ResolvedConfig& config);

/// JSON Schema 2020-12 of configuration files, for editors: flat and nested forms, `policy.*` of every policy.
[[nodiscard]] nlohmann::ordered_json config_schema(const std::vector<Parameter>& table);

}  // namespace spillway
