// Linear least squares with relative errors, and the lines through measured times that follow from it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "sim/core/error.hpp"

namespace spillway::hwmodels {

/// One row: the factors of the parameters, and the seconds that their sum should give.
struct Equation {
  std::vector<double> factors;
  double seconds = 0.0;
};

/// Parameters that minimise the sum of ((sum of factors times parameters) / seconds - 1)^2; empty when the rows do not
/// determine all of them. A negative parameter becomes 0 and the others are fitted again, which need not give the
/// smallest sum without negative parameters.
[[nodiscard]] std::optional<std::vector<double>> relative_fit(const std::vector<Equation>& rows);

/// Time by a size.
struct Sample {
  double size = 0.0;
  double seconds = 0.0;
};

struct FittedLine {
  double at_zero = 0.0;
  double slope = 0.0;
};
/// Empty when all samples have one size.
[[nodiscard]] std::optional<FittedLine> line_through(std::span<const Sample> samples);

struct LaunchAndBandwidth {
  double launch_seconds = 0.0;
  double bandwidth = 0.0;
};
/// The line as launch time and bandwidth, or what is wrong with the samples. `where` is the location that messages
/// name.
[[nodiscard]] std::variant<LaunchAndBandwidth, Problem> launch_and_bandwidth(std::span<const Sample> samples,
                                                                             const std::string& where);

}  // namespace spillway::hwmodels
