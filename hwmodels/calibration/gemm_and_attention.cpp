#include "hwmodels/calibration/gemm_and_attention.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "hwmodels/numbers.hpp"

namespace spillway::hwmodels {
namespace {

/// Peak figures from the fastest GEMM rows, and the SM count whose waves explain the rows best.
void guess_hints(const CalibrationTask& task, FitHints& hints) {
  const std::vector<GemmRow>& rows = task.in().gemm;
  task.begin(Op::gemm);
  double flops = 0.0;
  double bandwidth = 0.0;
  for (const GemmRow& row : rows) {
    if (row.quantization != Quantization::none) continue;
    const double weights = real(row.n) * real(row.k);
    flops = std::max(flops, 2.0 * real(row.m) * weights / row.seconds);
    bandwidth = std::max(bandwidth, weights * real(row.dtype_bytes) / row.seconds);
  }
  hints.flops = 1.2 * flops;
  hints.bandwidth = 1.1 * bandwidth;
  double least = std::numeric_limits<double>::infinity();
  std::int64_t best = hints.sm_count;
  for (const std::int64_t count : kKnownSmCounts) {
    FitHints candidate = hints;
    candidate.sm_count = count;
    GemmModel model = fit_gemm(rows, candidate);
    model.residual = {};
    const double error = summarise(gemm_ratios(model, rows)).median;
    if (error < least) best = count;
    least = std::min(least, error);
  }
  hints.sm_count = best;
}

/// Prefills of one token each, without earlier ones, with more KV heads than any of the decodes. The kernel is the one
/// of a decode. Tables of decodes often end at 8 KV heads, where those of prefills go on.
std::vector<AttentionRow> single_tokens(std::vector<AttentionRow> prefills, const std::vector<AttentionRow>& decodes) {
  std::int64_t most = 0;
  for (const AttentionRow& row : decodes) most = std::max(most, row.kv_heads);
  std::erase_if(prefills, [&](const AttentionRow& row) { return row.new_tokens > 1 || row.kv_heads <= most; });
  return prefills;
}

template <class Fit, class Ratios>
auto fit_heads(const CalibrationTask& task, Op op, HeldOutRows<AttentionRow>& held, const Fit& fit,
               const Ratios& ratios) {
  const std::vector<AttentionRow>& rows = held.rows;
  task.begin(op);
  task.require_rows(op, rows, kFewestAttention);
  std::set<std::tuple<std::int64_t, std::int64_t>> series;
  for (const AttentionRow& row : rows) series.emplace(row.q_heads, row.kv_heads);
  const bool by_heads = series.size() > 1;  // else whole (batch, new tokens) series are held out
  const auto folds = folds_of(rows, [&](const AttentionRow& row) {
    return by_heads ? std::tuple(row.q_heads, row.kv_heads) : std::tuple(row.batch, row.new_tokens);
  });
  held.ratios = held_out_ratios(rows, folds, kFewestAttention, fit, ratios);
  FitRecord about =
      task.record(rows, held.ratios, by_heads ? "whole (heads, KV heads) series" : "whole (batch, new tokens) series",
                  {range_of("batch", rows, [](const AttentionRow& r) { return r.batch; }),
                   range_of("new_tokens", rows, [](const AttentionRow& r) { return r.new_tokens; }),
                   range_of("context", rows, [](const AttentionRow& r) { return r.context; }),
                   range_of("q_heads", rows, [](const AttentionRow& r) { return r.q_heads; }),
                   range_of("kv_heads", rows, [](const AttentionRow& r) { return r.kv_heads; })});
  if (!rows.front().fp8_kv) about.roofline = task.roofline(rows);
  if (std::any_of(rows.begin(), rows.end(), [](const AttentionRow& row) { return row.stand_in; })) {
    about.citation += "; by cuDNN, not by an engine";
  }
  using Model = decltype(fit(rows));
  return Fitted<Model>{fit(rows), std::move(about)};
}

/// The blocks of decodes and the odds of one launch together; then the share, in hundredths, with the smallest mean of
/// |log(predicted / measured)|. `apart` and `fused` give a row's seconds.
template <class Apart, class Fused>
MixedAttentionModel fit_mixed(const std::vector<MixedRow>& rows, const Apart& apart, const Fused& fused) {
  std::vector<double> two(rows.size());
  std::transform(rows.begin(), rows.end(), two.begin(), apart);
  const std::vector<double> start{1e-6, 3e-7, 1.0};
  const FittedParameters found =
      fit_positive(start, rows.size(), [&](std::span<const double> p, std::span<double> log_ratios) {
        const double share = p[2] / (1.0 + p[2]);
        for (std::size_t i = 0; i < rows.size(); ++i) {
          const double one = fused(rows[i], FusedDecodes{p[0], p[1]});
          log_ratios[i] = std::log((two[i] + share * (one - two[i])) / rows[i].seconds);
        }
      });
  const FusedDecodes decodes{found.values[0], found.values[1]};
  std::array<double, 101> loss{};
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const double more = fused(rows[row], decodes) - two[row];
    for (std::size_t i = 0; i < loss.size(); ++i) {
      const double share = real(static_cast<std::int64_t>(i)) / 100.0;
      loss[i] += std::abs(std::log((two[row] + share * more) / rows[row].seconds));
    }
  }
  const auto best = std::min_element(loss.begin(), loss.end()) - loss.begin();
  return {static_cast<double>(best) / 100.0, decodes};
}

/// Quantised multiplications have the launch and the tiles of those in 16 bits.
void take_unquantised(const GemmModel& model, FitHints& hints) {
  hints.gemm_launch = model.launch_seconds;
  hints.edge_loss = model.edge_loss;
}

}  // namespace

FitHints hints_for(const CalibrationTask& task) {
  FitHints hints;
  const GpuProfile* base = task.base();
  if (base != nullptr && base->peak_flops > 0.0) hints.flops = base->peak_flops;
  if (base != nullptr && base->memory_bandwidth.value() > 0.0) hints.bandwidth = base->memory_bandwidth.value();
  if (task.in().device.sm_count) {
    hints.sm_count = *task.in().device.sm_count;
  } else if (base != nullptr && base->sm_count > 0) {
    hints.sm_count = base->sm_count;
  } else if (!task.in().gemm.empty()) {
    guess_hints(task, hints);
  }
  return hints;
}

HeldOutRows<GemmRow> calibrate_gemms(const CalibrationTask& task, FitHints hints, FittedKernels& out) {
  const Measurements& in = task.in();
  HeldOutRows<GemmRow> two_byte;
  if (const FittedGemm* known = task.base() ? task.base()->fitted.gemm_in(2, Quantization::none) : nullptr) {
    take_unquantised(known->model, hints);
  }
  std::set<std::pair<Quantization, std::int64_t>> formats;
  for (const GemmRow& row : in.gemm) formats.emplace(row.quantization, row.dtype_bytes);
  for (const auto& [quantization, bytes] : formats) {
    const bool plain = bytes == 2 && quantization == Quantization::none;
    task.begin(Op::gemm);
    std::vector<GemmRow> rows;
    std::copy_if(in.gemm.begin(), in.gemm.end(), std::back_inserter(rows),
                 [&, kind = quantization, size = bytes](const GemmRow& row) {
                   return row.dtype_bytes == size && row.quantization == kind;
                 });
    task.require_rows(Op::gemm, rows, kFewestGemms);
    const auto fit = [&](const std::vector<GemmRow>& some) { return fit_gemm(some, hints); };
    const auto ratios = [](const GemmModel& model, const std::vector<GemmRow>& some) {
      return gemm_ratios(model, some);
    };
    const auto folds = folds_of(rows, [](const GemmRow& row) { return std::tuple(row.n, row.k); });
    std::vector<double> held_out = held_out_ratios(rows, folds, kFewestGemms, fit, ratios);
    if (plain) two_byte = {rows, held_out};
    FitRecord about = task.record(rows, std::move(held_out), "whole (n, k) series",
                                  {range_of("m", rows, [](const GemmRow& r) { return r.m; }),
                                   range_of("n", rows, [](const GemmRow& r) { return r.n; }),
                                   range_of("k", rows, [](const GemmRow& r) { return r.k; })});
    if (plain) about.roofline = task.roofline(rows);
    if (plain) take_unquantised(fit(rows), hints);
    out.gemm.push_back({bytes, fit(rows), std::move(about), quantization});
  }
  return two_byte;
}

HeldOutRows<AttentionRow> calibrate_attention(const CalibrationTask& task, const FitHints& hints, FittedKernels& out) {
  HeldOutRows<AttentionRow> decode{attention_rows(task.in(), true), {}};
  const auto fit_decode = [&](HeldOutRows<AttentionRow>& held, bool fp8_kv, auto& fitted) {
    if (held.rows.empty()) return;
    const std::vector<AttentionRow> singles = single_tokens(attention_rows(task.in(), false, fp8_kv), held.rows);
    fitted = fit_heads(
        task, Op::decode_attention, held,
        [&](std::vector<AttentionRow> rows) {
          rows.insert(rows.end(), singles.begin(), singles.end());
          return fit_decode_attention(rows, hints);
        },
        [](const DecodeAttentionModel& model, const auto& rows) { return decode_ratios(model, rows); });
    if (singles.empty()) return;
    FitRecord& about = fitted->record;
    about.citation += fmt::format("; single tokens with more KV heads: {}", citation(task.in(), singles));
    about.ranges.push_back(range_of(kSingleTokenHeads, singles, [](const AttentionRow& row) { return row.kv_heads; }));
  };
  const auto fit_prefill = [&](HeldOutRows<AttentionRow> held, auto& fitted) {
    if (held.rows.empty()) return;
    fitted = fit_heads(
        task, Op::prefill_attention, held, [&](const auto& rows) { return fit_prefill_attention(rows, hints); },
        [](const PrefillAttentionModel& model, const auto& rows) { return prefill_ratios(model, rows); });
  };
  fit_decode(decode, false, out.decode_attention);
  fit_prefill({attention_rows(task.in(), false), {}}, out.prefill_attention);
  HeldOutRows<AttentionRow> decode_fp8_kv{attention_rows(task.in(), true, true), {}};
  fit_decode(decode_fp8_kv, true, out.decode_attention_fp8_kv);
  fit_prefill({attention_rows(task.in(), false, true), {}}, out.prefill_attention_fp8_kv);
  return decode;
}

void calibrate_mixed_attention(const CalibrationTask& task, const FitHints& hints, FittedKernels& out) {
  const Measurements& in = task.in();
  if (in.mixed.empty() || task.layer_model().empty()) return;
  const LlmModel llm = load_llm(task.layer_model());
  std::vector<AttentionRow> decode;
  std::vector<AttentionRow> prefill;
  std::vector<MixedRow> mixed;
  for (const MixedRow& row : in.mixed) {
    if (row.chunk > 0 && row.decodes > 0) {
      mixed.push_back(row);
    } else if (row.decodes > 0) {
      decode.push_back({row.decodes, llm.heads, llm.kv_heads, llm.head_dim, 1,
                        std::max<std::int64_t>(row.decode_context, 1) - 1, row.seconds, row.place});
    } else {
      prefill.push_back(
          {1, llm.heads, llm.kv_heads, llm.head_dim, row.chunk, row.chunk_context, row.seconds, row.place});
    }
  }
  constexpr std::size_t kFewest = 16;
  if (decode.size() < kFewest || prefill.size() < kFewest || mixed.size() < kFewest) return;
  task.begin(Op::mixed_attention);
  const AttentionShape shape{llm.heads, llm.kv_heads, llm.head_dim, 2.0, 2.0};
  const DecodeAttentionModel decode_model = fit_decode_attention(decode, hints);
  const std::int64_t cache = task.in().device.l2_bytes.value_or(task.base() ? task.base()->l2_cache.count() : 0);
  const DecodeAttentionTime decode_time(decode_model, shape);
  const PrefillAttentionTime prefill_time(fit_prefill_attention(prefill, hints), shape,
                                          {decode_model.bandwidth, real(cache)});
  const auto chunk_of = [](const MixedRow& row) {
    return std::array<PrefillChunk, 1>{{{Tokens(row.chunk), Tokens(row.chunk_context)}}};
  };
  const auto apart = [&](const MixedRow& row) {
    const double each = real(row.decode_context);
    return decode_time.at(real(row.decodes), real(row.decodes) * each, each).seconds +
           prefill_time.at(chunk_of(row)).seconds;
  };
  const auto fused = [&](const MixedRow& row, const FusedDecodes& decodes) {
    const double each = real(row.decode_context);
    return prefill_time.fused(chunk_of(row), real(row.decodes), real(row.decodes) * each, each, decodes).seconds;
  };
  const auto ratios = [&](const MixedAttentionModel& model, const std::vector<MixedRow>& rows) {
    std::vector<double> all;
    for (const MixedRow& row : rows) {
      const double two = apart(row);
      all.push_back((two + model.fused_share * (fused(row, model.decodes) - two)) / row.seconds);
    }
    return all;
  };
  const auto fit = [&](const std::vector<MixedRow>& rows) { return fit_mixed(rows, apart, fused); };
  std::vector<double> held_out =
      held_out_ratios(mixed, folds_of(mixed, [](const MixedRow& row) { return row.decodes; }), kFewest, fit, ratios);
  const ErrorSummary two = summarise(ratios({}, mixed));
  FitRecord about = task.record(
      mixed, std::move(held_out),
      fmt::format("whole numbers of decodes; as two launches: {:.1f}% / {:.1f}%", 100.0 * two.median, 100.0 * two.p95),
      {range_of("chunk", mixed, [](const MixedRow& r) { return r.chunk; }),
       range_of("decodes", mixed, [](const MixedRow& r) { return r.decodes; }),
       range_of("context", mixed, [](const MixedRow& r) { return r.decode_context; })});
  out.mixed_attention = Fitted<MixedAttentionModel>{fit(mixed), std::move(about)};
}

}  // namespace spillway::hwmodels
