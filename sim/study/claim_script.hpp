// Expressions of experiments: Lua over the results of runs, isolated from the machine.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

struct lua_State;

namespace spillway {

/// One simulation as expressions see the run.
struct ScriptPoint {
  std::string label;                                     // identifies the point in messages: "vllm at workload.rate=4"
  std::map<std::string, nlohmann::ordered_json> values;  // axis keys and metrics; null: no value, which is not zero
  std::map<std::string, std::string> texts;              // axis values as written: {"memory.gpu_kv", "3GB"}
};

/// An expression needs a value that does not exist: a latency when no request finished, a crossing of a limit that the
/// curve never crosses.
class NoValue : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An expression cannot be evaluated: a syntax error, an unknown name (with the nearest known name), a list instead of
/// a number, or more than kMostInstructions or kMostBytes.
class ScriptError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Evaluates Lua 5.4 expressions. Expressions see the names set here, the functions of sim/study/claim_library.lua, and
/// abs, ceil, floor, sqrt, huge, ipairs, type and error. Expressions have no files, no modules, no time, no random
/// numbers and no order that could differ between two runs.
class ClaimScript {
 public:
  static constexpr int kMostInstructions = 20'000'000;
  static constexpr std::size_t kMostBytes = std::size_t{256} << 20U;

  ClaimScript();
  ~ClaimScript();
  ClaimScript(const ClaimScript&) = delete;
  ClaimScript& operator=(const ClaimScript&) = delete;

  /// Gives a name a value: a number, text, boolean, list, object, or null (nil). Replaces an earlier value.
  void set(const std::string& name, const nlohmann::ordered_json& value);
  /// Gives a name the points of a run set.
  void set_points(const std::string& name, const std::vector<ScriptPoint>& points);
  /// The value of an expression: a finite number, text, boolean, null for nil, or a list of these. Throws NoValue for a
  /// missing value or a number that is not finite, and ScriptError.
  [[nodiscard]] nlohmann::ordered_json evaluate(const std::string& expression);

  /// The syntax error of an expression; empty for a well-formed expression.
  [[nodiscard]] static std::optional<std::string> syntax_error(const std::string& expression);

 private:
  struct Memory {
    std::size_t used = 0;
    bool limited = false;
  };
  static void* allocate(void* memory, void* block, std::size_t old_size, std::size_t new_size);
  void load_library();
  void push(const nlohmann::ordered_json& value);
  void push_point(const ScriptPoint& point);
  void assign(const std::string& name);
  [[nodiscard]] nlohmann::ordered_json result(int index, int depth) const;
  [[noreturn]] void fail();
  [[noreturn]] void fail_unknown(const std::string& name, const std::string& of) const;

  Memory memory_;
  lua_State* lua_ = nullptr;
  std::set<std::string> names_;        // all names that expressions may use
  std::set<std::string> point_names_;  // keys and metrics of the points
};

/// All names in an expression, including words inside its texts: an upper bound of the names that the expression reads.
[[nodiscard]] std::set<std::string> names_in(std::string_view expression);
/// Whether `name` is allowed for a value: letters, digits and _, no digit first, no Lua keyword, no function of the
/// library.
[[nodiscard]] bool may_be_named(const std::string& name);

}  // namespace spillway
