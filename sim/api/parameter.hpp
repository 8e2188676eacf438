// The description of a parameter, from which its parsing, --help, explain, the JSON Schema and error messages follow.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "sim/core/error.hpp"
#include "sim/core/units.hpp"

namespace spillway {

enum class ParameterType : std::uint8_t {
  boolean,   // true | false
  integer,   // a count of `unit`
  real,      // a plain number
  text,      // free text: a name or a file
  choice,    // one of `choices`
  duration,  // "100ms"; stored as nanoseconds
  bytes,     // "40GB"; stored as bytes, or as blocks if the parameter takes blocks
  span       // "10%", "500req" or "60s"
};

/// A duration, a share or a number of requests: the value of `warmup`.
struct Span {
  enum class Kind : std::uint8_t { none, share, requests, time } kind = Kind::none;
  double share = 0.0;
  std::int64_t requests = 0;
  Duration time{};
  bool operator==(const Span&) const = default;
};

struct Parameter {
  std::string name;  // full key, e.g. "policy.reserve_full_input"
  ParameterType type = ParameterType::text;
  std::string unit;           // "tokens", "requests/s", "ns"...; "-" for a pure number or a name
  std::string default_value;  // as a user would write it; empty: unset ("null" in JSON)
  double minimum = -std::numeric_limits<double>::infinity();  // in the stored unit, for numbers
  double maximum = std::numeric_limits<double>::infinity();
  bool above_minimum = false;  // the minimum itself is not allowed
  std::vector<std::string> choices{};
  bool takes_folder = false;  // accepts a file, or the folder that contains it
  /// Whether a text that is neither one of `choices` nor a file is a name all the same, such as an id of the Hugging
  /// Face hub. Null: none is.
  bool (*accepts)(std::string_view name) = nullptr;
  /// The one of `choices` that other programs call by this name, such as the GPU that a driver calls "NVIDIA B200";
  /// empty: none. Null: other programs have no names for them.
  std::string (*known_elsewhere)(std::string_view name) = nullptr;
  /// What to do about a text that is no name; empty: nothing is known of it. Null: of no text.
  std::string (*advice)(std::string_view name) = nullptr;
  bool takes_list = false;     // the value itself is a list: its commas do not separate values of a sweep
  bool takes_blocks = false;   // a size of KV memory, which may also be a number of KV blocks: "2588 blocks"
  bool quiet_default = false;  // a configuration in a result names the key only when it differs from its default
  std::string doc;
  std::string source;  // where the parameter or its default comes from
};

/// monostate: unset.
using Value = std::variant<std::monostate, bool, std::int64_t, double, std::string, Duration, Bytes, Blocks, Span>;

/// Typed values by full key, checked against their descriptions before use.
class Settings {
 public:
  void set(const std::string& key, Value value) { values_[key] = std::move(value); }
  [[nodiscard]] bool has(const std::string& key) const {
    const auto it = values_.find(key);
    return it != values_.end() && !std::holds_alternative<std::monostate>(it->second);
  }
  /// Throws InvariantError when the key is absent, unset or of another type. That is an error of the program, not of
  /// the user.
  template <class T>
  [[nodiscard]] const T& get(const std::string& key) const {
    const auto it = values_.find(key);
    SPILLWAY_CHECK(it != values_.end(), "no setting " + key);
    const T* value = std::get_if<T>(&it->second);
    SPILLWAY_CHECK(value != nullptr, "setting " + key + " is unset or of another type");
    return *value;
  }
  [[nodiscard]] const std::map<std::string, Value>& all() const { return values_; }

 private:
  std::map<std::string, Value> values_;
};

}  // namespace spillway
