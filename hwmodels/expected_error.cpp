#include "hwmodels/expected_error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace spillway::hwmodels {
namespace {

using Bound = std::optional<double>;

Bound bound(const ErrorSummary& error) { return error.n > 0 ? Bound(error.p95) : std::nullopt; }

/// The larger of two errors; empty if one of them is not known.
Bound larger(const Bound& a, const Bound& b) { return a && b ? Bound(std::max(*a, *b)) : std::nullopt; }

template <class Model>
Bound held_out(const std::optional<Fitted<Model>>& fit) {
  return fit ? bound(fit->record.held_out) : std::nullopt;
}

template <class Model>
Bound roofline(const std::optional<Fitted<Model>>& fit) {
  const bool known = fit && fit->record.roofline && fit->record.source_kind != "borrowed";
  return known ? bound(*fit->record.roofline) : std::nullopt;
}

ExpectedError of_kernels(const GpuProfile& gpu) {
  const FittedKernels& fitted = gpu.fitted;
  const FittedGemm* const gemm = fitted.gemm_in(2, Quantization::none);
  const Bound products = gemm != nullptr ? bound(gemm->record.held_out) : std::nullopt;
  const Bound iteration = fitted.decode_iteration ? bound(fitted.decode_iteration->held_out) : std::nullopt;
  return {.tpot = iteration ? iteration : larger(products, held_out(fitted.decode_attention)),
          .ttft = larger(products, held_out(fitted.prefill_attention)),
          .measured_on = gpu.fitted_from};
}

ExpectedError of_roofline(const FittedKernels& fitted) {
  const FittedGemm* const gemm = fitted.gemm_in(2, Quantization::none);
  const bool known = gemm != nullptr && gemm->record.roofline && gemm->record.source_kind != "borrowed";
  const Bound products = known ? bound(*gemm->record.roofline) : std::nullopt;
  return {.tpot = larger(products, roofline(fitted.decode_attention)),
          .ttft = larger(products, roofline(fitted.prefill_attention))};
}

std::string percent_up(double fraction) { return fmt::format("{:.0f}%", std::ceil(100.0 * fraction)); }

}  // namespace

ExpectedError expected_error(const GpuProfile& gpu, std::string_view latency_model) {
  const FittedKernels& fitted = gpu.fitted;
  if (latency_model == "fitted") return of_kernels(gpu);
  if (latency_model == "tables") {
    const Bound layers = held_out(fitted.layers);
    const Bound both = fitted.layer_attention ? larger(layers, bound(fitted.layer_attention->held_out)) : layers;
    return {.tpot = both, .ttft = both};
  }
  if (latency_model == "iterations") return {.tpot = held_out(fitted.iteration), .ttft = held_out(fitted.iteration)};
  return of_roofline(fitted);
}

std::string expected_error_text(const ExpectedError& error) {
  if (!error.tpot && !error.ttft) return "no error was measured on this GPU";
  std::string text;
  if (error.tpot) text = "TPOT within " + percent_up(*error.tpot);
  if (error.ttft) text += (error.tpot ? ", TTFT " : "TTFT within ") + percent_up(*error.ttft);
  if (error.measured_on.empty()) return "expect " + text;
  return fmt::format("uncalibrated: at best {}, the error on {}, whose kernels this profile borrows", text,
                     error.measured_on);
}

}  // namespace spillway::hwmodels
