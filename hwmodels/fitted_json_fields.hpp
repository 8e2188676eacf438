// The fields of a JSON object, written and read by the same calls: one description of a model serves both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/error.hpp"

namespace spillway::hwmodels {

/// The range of a number, and how messages describe it.
struct Limits {
  double low;
  double high;
  std::string_view rule;
};

/// Writes fields into a JSON object. The limits are for FitReader, which has the same calls.
class FitWriter {
 public:
  /// `object` must outlive the writer.
  explicit FitWriter(nlohmann::json& object) : object_(object) {}
  void number(const char* key, const double& value, const Limits& limits);
  void integer(const char* key, const std::int64_t& value, std::int64_t low, std::int64_t high);
  void flag(const char* key, const bool& value);
  void text(const char* key, const std::string& value);
  void numbers(const char* key, const std::vector<double>& values, const Limits& limits);
  /// Rows of `width` numbers.
  void table(const char* key, const std::vector<double>& values, std::size_t width, const Limits& limits);
  /// Any JSON value.
  void set(const char* key, nlohmann::json value);

 private:
  nlohmann::json& object_;
};

/// Reads fields of a JSON object and appends a problem for each that is missing, mistyped or outside its limits; the
/// value then keeps what it was.
class FitReader {
 public:
  /// `where` is the JSON pointer of the object. `object` and `problems` must outlive the reader.
  FitReader(const nlohmann::json& object, std::string where, std::vector<Problem>& problems);
  void number(const char* key, double& value, const Limits& limits);
  void integer(const char* key, std::int64_t& value, std::int64_t low, std::int64_t high);
  void flag(const char* key, bool& value);
  void text(const char* key, std::string& value);
  void numbers(const char* key, std::vector<double>& values, const Limits& limits);
  void table(const char* key, std::vector<double>& values, std::size_t width, const Limits& limits);
  /// The member; null when it is missing, which is a problem unless it is optional.
  const nlohmann::json* find(const char* key, bool optional = false);
  const nlohmann::json* array(const char* key, bool optional = false);
  /// Appends a problem for each member that no call asked for.
  void finish();
  void require(bool holds, const std::string& key, const std::string& rule);
  void fail(const std::string& key, std::string what, std::string fix = {});
  /// The JSON pointer of a member.
  [[nodiscard]] std::string pointer(const std::string& key) const;
  [[nodiscard]] std::vector<Problem>& problems() { return problems_; }

 private:
  double checked(const nlohmann::json& value, const std::string& key, const Limits& limits, double otherwise);

  const nlohmann::json& object_;
  std::string where_;
  std::vector<Problem>& problems_;
  std::vector<std::string> asked_;
};

}  // namespace spillway::hwmodels
