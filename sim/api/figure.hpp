// Figures that a policy computes of its own decisions.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

namespace spillway {

/// The better side of a figure.
enum class Better : std::uint8_t { smaller, larger };

/// How the values of several replications become one.
enum class Merge : std::uint8_t {
  mean,  // with a 95% t-interval
  sum,
  largest
};

/// What a figure means. `explain NAME`, `list metrics` and result.json print it.
struct FigureDefinition {
  std::string name;  // <statistic>_<what>_<unit>, e.g. "max_dwell_ms"
  std::string unit;
  std::string definition;
  std::optional<Better> better{};  // empty: neither side is better
  Merge merge = Merge::mean;
  bool operator==(const FigureDefinition&) const = default;
};

/// The figures of one run by name, in the units of their definitions. A figure that is missing has no value.
using Figures = std::map<std::string, double, std::less<>>;

}  // namespace spillway
