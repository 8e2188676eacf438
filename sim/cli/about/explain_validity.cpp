// `spillway explain validity`: what the line "Validity" of a result stands on.
#include <fmt/format.h>

#include "hwmodels/catalog.hpp"
#include "hwmodels/expected_error.hpp"
#include "sim/cli/about/explain.hpp"
#include "sim/io/columns.hpp"

namespace spillway::cli {
namespace {

std::string error_cell(const hwmodels::FitRecord* record) {
  if (record == nullptr || record->held_out.n == 0) return "-";
  return fmt::format("{:.1f}% / {:.1f}%", 100.0 * record->held_out.median, 100.0 * record->held_out.p95);
}

template <class Model>
const hwmodels::FitRecord* record_of(const std::optional<hwmodels::Fitted<Model>>& fit) {
  return fit ? &fit->record : nullptr;
}

/// The held-out errors of the bundled GPUs, median / p95.
std::string gpu_table() {
  Columns table;
  table.add("", true);
  for (const char* head : {"decode iteration", "GEMM", "decode attention", "prefill attention"}) table.add(head);
  table.add("kernels of", true);
  for (const std::string& name : hwmodels::gpu_names()) {
    const hwmodels::GpuProfile gpu = hwmodels::load_gpu(name);
    const hwmodels::FittedKernels& fitted = gpu.fitted;
    const hwmodels::FittedGemm* const gemm = fitted.gemm_in(2, hwmodels::Quantization::none);
    table.row({"  " + name, error_cell(fitted.decode_iteration ? &*fitted.decode_iteration : nullptr),
               error_cell(gemm != nullptr ? &gemm->record : nullptr), error_cell(record_of(fitted.decode_attention)),
               error_cell(record_of(fitted.prefill_attention)), gpu.fitted_from.empty() ? "itself" : gpu.fitted_from});
  }
  return table.text();
}

}  // namespace

std::string explain_validity() {
  std::string text =
      "validity (the line \"Validity\" of a result)\n" +
      explain_field("what",
                    "How far the times of a run may be off, from the errors that were measured "
                    "when its GPU's kernels were fitted.") +
      explain_field("TPOT",
                    "95% of the measured decode iterations were within this; iterations are sums "
                    "of kernels that the fit did not see.") +
      explain_field("TTFT",
                    "The larger of the errors below which 95% of the matrix multiplications and "
                    "95% of the prompts' attention were. Queueing comes on top: near saturation "
                    "a small error in iteration times causes a large error in waiting times (--perturb 5% shows it).") +
      explain_field("borrowed",
                    "\"uncalibrated: at best\": no kernel of this GPU was measured. The "
                    "kernels of another GPU are scaled, and the errors are of that GPU.") +
      explain_field("CPU time",
                    "\"CPU time assumed\": the engine's CPU time was not measured on the simulated "
                    "machine. The warnings in --json say what is known about the CPU time.") +
      explain_field("range",
                    "\"extrapolated\": the share of the calls outside the measured range, for the "
                    "kernel with the most: outside_measured_range in --json.") +
      explain_field("engines",
                    "Against logs of real engines: spillway reproduce validation, and "
                    "spillway validate with a log of your own.") +
      explain_field("more",
                    "spillway explain GPU has the error and the range of each kernel; "
                    "hwmodels/README.md says how they are fitted.") +
      "  GPUs      |simulated / measured - 1| of rows that were not fitted, median / p95\n" + gpu_table();
  return text;
}

}  // namespace spillway::cli
