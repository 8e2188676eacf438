#include "hwmodels/calibration/moe_calibration.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "hwmodels/calibration/moe_fits.hpp"

namespace spillway::hwmodels {
namespace {

using Kernel = std::pair<Quantization, std::string>;

auto shape_key(const MoeShape& shape) {
  return std::tuple(shape.hidden, shape.width, shape.top_k, shape.experts, shape.expert_parallel);
}

/// In ascending order, each once.
std::vector<MoeShape> shapes_of(const std::vector<MoeCase>& cases) {
  std::map<decltype(shape_key(MoeShape{})), MoeShape> shapes;
  for (const MoeCase& one : cases) shapes.emplace(shape_key(one.shape), one.shape);
  std::vector<MoeShape> all;
  all.reserve(shapes.size());
  for (const auto& [key, shape] : shapes) all.push_back(shape);
  return all;
}

std::vector<MeasuredRange> ranges_of(const std::vector<MoeCase>& cases) {
  return {range_of("tokens", cases, [](const MoeCase& one) { return one.tokens; }),
          range_of("hidden", cases, [](const MoeCase& one) { return one.shape.hidden; }),
          range_of("width", cases, [](const MoeCase& one) { return one.shape.width; }),
          range_of("top_k", cases, [](const MoeCase& one) { return one.shape.top_k; }),
          range_of("experts", cases, [](const MoeCase& one) { return one.shape.experts; }),
          range_of("expert_parallel", cases, [](const MoeCase& one) { return one.shape.expert_parallel; })};
}

}  // namespace

void calibrate_moe(const CalibrationTask& task, FitHints hints, FittedKernels& out) {
  const std::vector<MoeRow>& all = task.in().moe;
  if (all.empty()) return;
  task.begin(Op::moe);
  task.require_rows(Op::moe, all, kFewestMoe);
  const GpuProfile* base = task.base();
  const bool known = base != nullptr && base->sm_count > 0 && base->peak_flops > 0.0;
  if (!known && task.in().gemm.empty()) hints = guess_moe_hints(all);
  const MoeBenchmark benchmark = guess_moe_benchmark(all, hints);
  const MoeModel start = fit_moe_start(all, benchmark, hints);
  std::map<Kernel, std::vector<MoeRow>> kernels;
  for (const MoeRow& row : all) kernels[{row.quantization, row.kernel}].push_back(row);
  for (const auto& [kernel, rows] : kernels) {
    task.begin(Op::moe);
    const std::vector<MoeCase> cases = moe_cases(rows, benchmark);
    const auto fit = [&, quantization = kernel.first](const std::vector<MoeCase>& some) {
      return fit_moe(some, quantization, start, benchmark.cache_bytes);
    };
    const auto ratios = [&](const MoeModel& model, const std::vector<MoeCase>& some) {
      return moe_ratios(model, some, benchmark.cache_bytes);
    };
    const auto folds = folds_of(cases, [](const MoeCase& one) { return shape_key(one.shape); });
    FitRecord about = task.record(cases, held_out_ratios(cases, folds, kFewestMoe, fit, ratios),
                                  "whole shapes, with all their loads", ranges_of(cases));
    out.moe.push_back({kernel.second, fit(cases), std::move(about), benchmark, shapes_of(cases)});
  }
}

}  // namespace spillway::hwmodels
