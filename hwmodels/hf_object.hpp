// One JSON object of a Hugging Face configuration, read field by field. Problems are recorded instead of thrown, so
// that the user sees all of them at once. Fields that no reader asked for can be listed afterwards.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/core/error.hpp"

namespace spillway::hwmodels {

/// Problems and warnings that the readers of one file have found.
struct HfFindings {
  std::string file;
  std::vector<Problem> problems;
  std::vector<std::string> warnings;
};

/// Whether JSON's null counts as an absent field or as a value of the wrong type.
enum class Null { absent, refused };

class HfObject {
 public:
  using Names = std::set<std::string, std::less<>>;

  /// `object` must be a JSON object; it and `findings` must outlive this. `at` is its JSON pointer in the file, except
  /// for the fields `at_root`, which stand at the root.
  HfObject(const nlohmann::json& object, nlohmann::json::json_pointer at, HfFindings& findings, Names at_root = {})
      : object_(object), at_(std::move(at)), findings_(findings), at_root_(std::move(at_root)) {}

  /// The field, or null when it is absent or JSON's null. Counts it as understood.
  const nlohmann::json* find(std::string_view name);
  /// Whether the field is present and its value is not null, false, 0, or an empty text, list or object.
  [[nodiscard]] bool is_set(std::string_view name) const;
  [[nodiscard]] bool contains(std::string_view name) const { return object_.contains(name); }

  // Empty when the field is absent. A value of another type or out of range is recorded as a problem and also empty.
  std::optional<std::int64_t> integer(std::string_view name, std::int64_t low, std::int64_t high,
                                      Null null = Null::absent);
  /// A number, or a list that has it once for each of `layers`.
  std::optional<std::int64_t> integer_of_layers(std::string_view name, std::int64_t low, std::int64_t high,
                                                std::int64_t layers, Null null = Null::absent);
  std::optional<double> number(std::string_view name, double low, double high);
  std::optional<bool> flag(std::string_view name);
  std::optional<std::string> text(std::string_view name);

  /// Records a problem with a field, or with an element of it.
  void fail(std::string_view name, std::string what, std::string fix = {});
  void fail(const nlohmann::json::json_pointer& at, std::string what, std::string fix = {});
  /// Counts fields as understood; `names` is separated by spaces.
  void understood(std::string_view names);

  [[nodiscard]] const nlohmann::json& document() const { return object_; }
  [[nodiscard]] nlohmann::json::json_pointer pointer(std::string_view name) const {
    return (at_root_.contains(name) ? nlohmann::json::json_pointer() : at_) / std::string(name);
  }
  [[nodiscard]] HfFindings& findings() const { return findings_; }

  /// Records a problem for each field that is set, that no reader has asked for, and whose name holds one of `parts`.
  void refuse_the_rest(std::span<const std::string_view> parts, std::string_view why);
  /// Warns of fields that are set and that no reader has asked for: names the first ten and counts the others.
  void warn_of_the_rest() const;

 private:
  std::optional<std::int64_t> integer_at(const nlohmann::json::json_pointer& at, const nlohmann::json& value,
                                         std::int64_t low, std::int64_t high);

  const nlohmann::json& object_;
  nlohmann::json::json_pointer at_;
  HfFindings& findings_;
  Names at_root_;
  Names understood_;
};

}  // namespace spillway::hwmodels
