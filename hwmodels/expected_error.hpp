// How far the times of a run may be off, in two figures, from the errors that its GPU profile states.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "hwmodels/catalog.hpp"

namespace spillway::hwmodels {

/// |simulated / measured - 1| below which 95% of the held-out measurements are, as fractions. Empty: nothing was
/// measured.
struct ExpectedError {
  std::optional<double> tpot{};  // of decode iterations
  std::optional<double> ttft{};  // of computing a prompt: the larger error of its GEMM and of its attention
  std::string measured_on{};     // the GPU that lends the kernels and their error; empty: this GPU
};
[[nodiscard]] ExpectedError expected_error(const GpuProfile& gpu, std::string_view latency_model);

/// "expect TPOT within 8%, TTFT 20%": percentages are rounded up.
[[nodiscard]] std::string expected_error_text(const ExpectedError& error);

}  // namespace spillway::hwmodels
