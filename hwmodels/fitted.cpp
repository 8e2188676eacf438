#include "hwmodels/fitted.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "hwmodels/calibration/measurements.hpp"
#include "hwmodels/models/exact_math.hpp"
#include "hwmodels/numbers.hpp"

namespace spillway::hwmodels {
namespace {

std::string lent_citation(const std::string& lender) {
  return fmt::format("{}, scaled to this GPU; the error is that of {}", lender, lender);
}

template <class Model>
void lend(Fitted<Model>& fitted, const std::string& lender) {
  fitted.record.source_kind = "borrowed";
  fitted.record.citation = lent_citation(lender);
}

/// In octaves.
double apart(std::int64_t a, std::int64_t b) { return std::abs(log2_line(real(a)) - log2_line(real(b))); }
double distance(const MoeShape& a, const MoeShape& b) {
  return apart(a.hidden, b.hidden) + apart(a.width, b.width) + apart(a.top_k, b.top_k) + apart(a.experts, b.experts) +
         apart(a.expert_parallel, b.expert_parallel);
}

/// "expert_exchange deepep_normal dispatch 8".
std::string exchange_line(const ExchangeModel& model) {
  return fmt::format("{} {} {} {}", op_name(Op::expert_exchange), exchange_name(model.backend),
                     exchange_name(model.step), model.ranks);
}

}  // namespace

std::string format_suffix(std::int64_t dtype_bytes, Quantization quantization) {
  if (quantization != Quantization::none) return fmt::format(" {}", format_of(quantization).name);
  return dtype_bytes == 2 ? "" : fmt::format(" {}-byte", dtype_bytes);
}

std::string gemm_group(std::int64_t dtype_bytes, Quantization quantization) {
  if (quantization != Quantization::none) return fmt::format("gemm in {}", format_of(quantization).name);
  return fmt::format("gemm in {}-byte numbers", dtype_bytes);
}

std::string moe_group(Quantization quantization) {
  const bool plain = quantization == Quantization::none;
  return fmt::format("{} {}", op_name(Op::moe), plain ? std::string_view("bf16") : format_of(quantization).name);
}

const FittedGemm* FittedKernels::gemm_in(std::int64_t dtype_bytes, Quantization quantization) const {
  const FittedGemm wanted{dtype_bytes, {}, {}, quantization};
  const auto it =
      std::find_if(gemm.begin(), gemm.end(), [&](const FittedGemm& one) { return one.same_format(wanted); });
  return it == gemm.end() ? nullptr : &*it;
}

const FittedMoe* FittedKernels::moe_for(Quantization quantization, const MoeShape& shape,
                                        std::string_view kernel) const {
  const FittedMoe* nearest = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const FittedMoe& one : moe) {
    if (one.model.quantization != quantization || one.kernel.find(kernel) == std::string::npos) continue;
    for (const MoeShape& measured : one.shapes) {
      const double away = distance(measured, shape);
      if (away < least) nearest = &one;
      least = std::min(least, away);
    }
  }
  return nearest;
}

const FittedExchange* FittedKernels::exchange_for(ExchangeBackend backend, ExchangeStep step,
                                                  std::int64_t ranks) const {
  const FittedExchange* nearest = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const FittedExchange& one : exchanges) {
    if (one.model.backend != backend || one.model.step != step) continue;
    const double away = apart(one.model.ranks, ranks);
    if (away < least) nearest = &one;
    least = std::min(least, away);
  }
  return nearest;
}

bool FittedKernels::empty() const { return fit_lines(*this).empty(); }

std::vector<FitLine> fit_lines(const FittedKernels& kernels) {
  std::vector<FitLine> lines;
  const auto add = [&](Op op, const auto& fitted) {
    if (fitted) lines.push_back({std::string(op_name(op)), &fitted->record});
  };
  for (const FittedGemm& gemm : kernels.gemm) {
    lines.push_back(
        {std::string(op_name(Op::gemm)) + format_suffix(gemm.dtype_bytes, gemm.quantization), &gemm.record});
  }
  for (const FittedMoe& moe : kernels.moe)
    lines.push_back({fmt::format("{} {}", moe_group(moe.model.quantization), moe.kernel), &moe.record});
  for (const FittedExchange& exchange : kernels.exchanges)
    lines.push_back({exchange_line(exchange.model), &exchange.record});
  add(Op::decode_attention, kernels.decode_attention);
  add(Op::prefill_attention, kernels.prefill_attention);
  const auto add_fp8 = [&](Op op, const auto& fitted) {
    if (fitted) lines.push_back({fmt::format("{} fp8 kv", op_name(op)), &fitted->record});
  };
  add_fp8(Op::decode_attention, kernels.decode_attention_fp8_kv);
  add_fp8(Op::prefill_attention, kernels.prefill_attention_fp8_kv);
  add(Op::mixed_attention, kernels.mixed_attention);
  add(Op::elementwise, kernels.elementwise);
  add(Op::all_reduce, kernels.all_reduce);
  if (kernels.all_reduce_custom) lines.push_back({"all_reduce custom", &kernels.all_reduce_custom->record});
  for (const Fitted<CopyModel>& copy : kernels.copies) {
    lines.push_back({fmt::format("{} {}", op_name(copy.model.to_device ? Op::copy_h2d : Op::copy_d2h),
                                 mechanism_name(copy.model.mechanism)),
                     &copy.record});
  }
  add(Op::cpu_attention, kernels.cpu_attention);
  add(Op::host, kernels.host);
  add(Op::layer, kernels.layers);
  if (kernels.layer_attention) lines.push_back({std::string(kLayerAttention), &*kernels.layer_attention});
  add(Op::iteration, kernels.iteration);
  if (kernels.decode_iteration) lines.push_back({std::string(kDecodeIteration), &*kernels.decode_iteration});
  return lines;
}

std::string_view known_beyond(std::string_view op, const MeasuredRange& range, const FitRecord& record) {
  // Held-out calls with chunks of 1,024 tokens and more; see hwmodels/models/attention.hpp.
  const bool no_earlier_tokens =
      op.starts_with("prefill_attention") && range.quantity == "context" && range.high == 0.0;
  if (no_earlier_tokens)
    return "extrapolated with a median / p95 error of 4.1% / 7.8% on RTX 4090 and 2.7% / 7.1% on A100";
  // Held-out decodes of 12 to 96 KV heads; see hwmodels/models/attention.hpp.
  const bool few_heads = op.starts_with("decode_attention") && range.quantity == "kv_heads" &&
                         std::any_of(record.ranges.begin(), record.ranges.end(),
                                     [](const MeasuredRange& one) { return one.quantity == kSingleTokenHeads; });
  return few_heads ? "carried over from single tokens with a median / p95 error of 5.4% / 26.7% on B200" : "";
}

std::string error_text(const FittedKernels& kernels) {
  std::string text;
  std::vector<FitLine> lines = fit_lines(kernels);
  // The error of a whole iteration says more than the error of any kernel, so it comes first; variants come last.
  const auto rest = std::stable_partition(lines.begin(), lines.end(),
                                          [](const FitLine& line) { return line.op == kDecodeIteration; });
  std::stable_partition(rest, lines.end(), [](const FitLine& line) { return line.op.find(' ') == std::string::npos; });
  for (const FitLine& line : lines) {
    // A run uses at most one of the many exchanges, which the profile's table lists.
    if (line.record->held_out.n == 0 || line.op.starts_with(op_name(Op::expert_exchange))) continue;
    text += fmt::format("{}{} {:.1f}% / {:.1f}% (n = {}{})", text.empty() ? "" : ", ", line.op,
                        100.0 * line.record->held_out.median, 100.0 * line.record->held_out.p95,
                        line.record->held_out.n, line.record->source_kind == "borrowed" ? ", of the lender" : "");
  }
  return text.empty() ? "fitted, but no row was held out to judge it"
                      : "median / p95 of |simulated/measured - 1| on held-out rows: " + text;
}

std::string borrowed_citation(const std::string& lender) {
  return fmt::format("borrowed from {}, not calibrated", lender);
}

FittedKernels lent(FittedKernels kernels, const std::string& lender) {
  const auto mark = [&](FitRecord& record) {
    record = {"borrowed", borrowed_citation(lender), {}, {}, std::nullopt, std::move(record.ranges)};
  };
  const auto mark_fit = [&](auto& fitted) {
    if (fitted) mark(fitted->record);
  };
  for (FittedGemm& gemm : kernels.gemm) mark(gemm.record);
  for (FittedMoe& moe : kernels.moe) mark(moe.record);
  for (FittedExchange& exchange : kernels.exchanges) mark(exchange.record);
  mark_fit(kernels.decode_attention);
  mark_fit(kernels.prefill_attention);
  mark_fit(kernels.decode_attention_fp8_kv);
  mark_fit(kernels.prefill_attention_fp8_kv);
  mark_fit(kernels.mixed_attention);
  mark_fit(kernels.elementwise);
  mark_fit(kernels.all_reduce);
  mark_fit(kernels.all_reduce_custom);
  for (Fitted<CopyModel>& copy : kernels.copies) mark(copy.record);
  kernels.cpu_attention.reset();
  kernels.host.reset();
  kernels.layers.reset();
  kernels.layer_attention.reset();
  kernels.iteration.reset();
  kernels.decode_iteration.reset();
  return kernels;
}

FittedKernels borrowed(const FittedKernels& lender, const std::string& lender_name, const ScalingFacts& from,
                       const ScalingFacts& to) {
  const double gemm_flops = to.gemm_flops / from.gemm_flops;
  const double prefill_flops = to.prefill_flops / from.prefill_flops;
  const double bandwidth = to.memory_bandwidth / from.memory_bandwidth;
  const double gemm_bandwidth = to.gemm_bandwidth / from.gemm_bandwidth;
  const double decode_bandwidth = to.decode_bandwidth / from.decode_bandwidth;
  const double sms = static_cast<double>(to.sm_count) / static_cast<double>(from.sm_count);
  const bool same_grid = to.sm_count == from.sm_count;
  FittedKernels kernels;
  kernels.gemm = lender.gemm;
  for (FittedGemm& gemm : kernels.gemm) {
    gemm.model.sm_count = to.sm_count;
    gemm.model.flops *= gemm_flops;
    gemm.model.bandwidth *= gemm_bandwidth;
    if (gemm.model.quantise) gemm.model.quantise->element_seconds /= bandwidth;
    if (!same_grid) gemm.model.residual = {};
    Fitted<GemmModel> entry{{}, gemm.record};
    lend(entry, lender_name);
    gemm.record = entry.record;
  }
  kernels.moe = lender.moe;
  for (FittedMoe& moe : kernels.moe) {
    MoeModel& model = moe.model;
    model.sm_count = to.sm_count;
    model.flops *= gemm_flops;
    model.bandwidth *= gemm_bandwidth;
    model.pair_hidden_seconds /= bandwidth;
    model.pair_width_seconds /= bandwidth;
    model.row_hidden_seconds /= bandwidth;
    model.row_width_seconds /= bandwidth;
    model.token_hidden_seconds /= bandwidth;
    if (!same_grid) model.residual = {};
    moe.record.source_kind = "borrowed";
    moe.record.citation = lent_citation(lender_name);
  }
  const auto lend_decode = [&](const std::optional<Fitted<DecodeAttentionModel>>& from_lender) {
    auto fitted = from_lender;
    if (!fitted) return fitted;
    DecodeAttentionModel& model = fitted->model;
    model.sm_count = to.sm_count;
    model.bandwidth *= decode_bandwidth;
    model.token_seconds *= sms / decode_bandwidth;  // a block's share of the bandwidth
    if (!same_grid) {
      model.residual = {};  // and with it what single tokens say
      model.kv_head_seconds.reset();
      std::erase_if(fitted->record.ranges,
                    [](const MeasuredRange& range) { return range.quantity == kSingleTokenHeads; });
    }
    lend(*fitted, lender_name);
    return fitted;
  };
  const auto lend_prefill = [&](const std::optional<Fitted<PrefillAttentionModel>>& from_lender) {
    auto fitted = from_lender;
    if (!fitted) return fitted;
    PrefillAttentionModel& model = fitted->model;
    model.sm_count = to.sm_count;
    model.bandwidth *= bandwidth;
    const double tile = sms / prefill_flops;  // a block's share of the arithmetic
    model.tile_seconds *= tile;
    if (model.earlier_tile_seconds) *model.earlier_tile_seconds *= tile;
    if (model.write_token_seconds) *model.write_token_seconds /= sms;  // each SM holds as many threads
    if (!same_grid) model.residual = {};
    lend(*fitted, lender_name);
    return fitted;
  };
  kernels.decode_attention = lend_decode(lender.decode_attention);
  kernels.decode_attention_fp8_kv = lend_decode(lender.decode_attention_fp8_kv);
  kernels.prefill_attention = lend_prefill(lender.prefill_attention);
  kernels.prefill_attention_fp8_kv = lend_prefill(lender.prefill_attention_fp8_kv);
  kernels.decode_iteration = lender.decode_iteration;
  if (kernels.decode_iteration) {
    kernels.decode_iteration->source_kind = "borrowed";
    kernels.decode_iteration->citation = lender_name;
  }
  kernels.mixed_attention = lender.mixed_attention;
  if (kernels.mixed_attention) lend(*kernels.mixed_attention, lender_name);
  kernels.elementwise = lender.elementwise;
  if (kernels.elementwise) {
    kernels.elementwise->model.bandwidth *= bandwidth;
    lend(*kernels.elementwise, lender_name);
  }
  return kernels;
}

}  // namespace spillway::hwmodels
