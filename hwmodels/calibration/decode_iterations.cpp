#include "hwmodels/calibration/decode_iterations.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>

#include "hwmodels/numbers.hpp"

namespace spillway::hwmodels {
namespace {

// Models, with tensor_parallel, whose decode iterations are judged: 7B to 70B, with and without grouped heads.
constexpr std::array<std::pair<std::string_view, std::int64_t>, 5> kIterationModels{
    {{"llama-3.1-8b", 1}, {"llama-2-13b", 1}, {"opt-30b", 1}, {"llama-3.1-70b", 4}, {"yi-34b-200k", 2}}};

}  // namespace

std::optional<FitRecord> judge_decode_iterations(const CalibrationTask& task, const HeldOutRows<GemmRow>& gemm,
                                                 const HeldOutRows<AttentionRow>& decode) {
  if (gemm.rows.empty() || decode.rows.empty()) return std::nullopt;
  std::map<std::tuple<std::int64_t, std::int64_t>, std::map<std::int64_t, std::size_t>> by_shape;
  for (std::size_t i = 0; i < gemm.rows.size(); ++i) {
    if (gemm.ratios[i] > 0.0) by_shape[{gemm.rows[i].n, gemm.rows[i].k}][gemm.rows[i].m] = i;
  }
  const auto octaves = [](std::int64_t a, std::int64_t b) { return std::abs(std::log2(real(a) / real(b))); };
  const auto nearest = [&](const Matrix& matrix) {
    return std::min_element(by_shape.begin(), by_shape.end(), [&](const auto& a, const auto& b) {
      const auto distance = [&](const auto& key) {
        return octaves(std::get<0>(key), matrix.outputs) + octaves(std::get<1>(key), matrix.inputs);
      };
      return distance(a.first) < distance(b.first);
    });
  };
  const std::vector<double> gemm_analytic = task.analytic_ratios(gemm.rows);
  const std::vector<double> decode_analytic = task.analytic_ratios(decode.rows);
  std::vector<double> sums;
  std::vector<double> analytic_sums;
  for (const auto& [name, tensor_parallel] : kIterationModels) {
    const LlmModel llm = load_llm(name);
    const auto matrices = llm.layer_matrices(tensor_parallel);
    const std::int64_t heads = llm.heads / tensor_parallel;
    const std::int64_t kv_heads = llm.kv_heads_per_gpu(tensor_parallel);
    const auto apart = [&](std::size_t i) {
      return octaves(decode.rows[i].q_heads, heads) + octaves(decode.rows[i].kv_heads, kv_heads);
    };
    // For each batch and context the measured heads nearest to the model's.
    std::map<std::tuple<std::int64_t, std::int64_t>, std::size_t> calls;
    for (std::size_t i = 0; i < decode.rows.size(); ++i) {
      if (decode.ratios[i] <= 0.0) continue;
      const auto [it, fresh] = calls.try_emplace({decode.rows[i].batch, decode.rows[i].context}, i);
      if (!fresh && apart(i) < apart(it->second)) it->second = i;
    }
    for (const auto& [call, i] : calls) {
      double measured = decode.rows[i].seconds;
      double predicted = decode.rows[i].seconds * decode.ratios[i];
      double analytic = decode.rows[i].seconds * decode_analytic[i];
      bool whole = true;
      for (const Matrix& matrix : matrices) {
        const auto& by_tokens = nearest(matrix)->second;
        const auto at = by_tokens.find(std::get<0>(call));
        whole = whole && at != by_tokens.end();
        if (!whole) break;
        measured += gemm.rows[at->second].seconds;
        predicted += gemm.rows[at->second].seconds * gemm.ratios[at->second];
        analytic += gemm.rows[at->second].seconds * gemm_analytic[at->second];
      }
      if (!whole) continue;
      sums.push_back(predicted / measured);  // 32 equal layers cancel
      analytic_sums.push_back(analytic / measured);
    }
  }
  return FitRecord{"measured",
                   "sums of the held-out kernels of gemm and decode_attention, five model shapes",
                   summarise(std::move(sums)),
                   "whole (n, k) and (heads, KV heads) series",
                   task.has_analytic() ? std::optional(summarise(std::move(analytic_sums))) : std::nullopt,
                   {}};
}

}  // namespace spillway::hwmodels
