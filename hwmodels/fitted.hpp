// The result of a calibration: kernel models with their held-out error, as the section "fitted" of a GPU profile.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hwmodels/error_summary.hpp"
#include "hwmodels/models/attention.hpp"
#include "hwmodels/models/expert_exchange.hpp"
#include "hwmodels/models/gemm.hpp"
#include "hwmodels/models/moe.hpp"
#include "hwmodels/models/simple_kernels.hpp"
#include "hwmodels/quantization.hpp"
#include "sim/core/error.hpp"

namespace spillway::hwmodels {

/// The range in which a quantity was measured.
struct MeasuredRange {
  std::string quantity;  // tokens, batch, context, ...
  double low = 0.0;
  double high = 0.0;
};

/// Where a fit comes from and how good it is.
struct FitRecord {
  std::string source_kind;               // measured | borrowed
  std::string citation;                  // files with their rows, or the profile that lends the fit
  ErrorSummary held_out;                 // on rows that were not fitted; n = 0: no row could be held out
  std::string held_out_by;               // what was held out: "whole (n, k) series", ...
  std::optional<ErrorSummary> roofline;  // the analytic model on all rows, where the profile has its figures
  std::vector<MeasuredRange> ranges;
};

template <class Model>
struct Fitted {
  Model model;
  FitRecord record;
};

/// All matrix multiplications in one number format. Quantised ones include the quantisation of x.
struct FittedGemm {
  std::int64_t dtype_bytes = 2;  // of x and y; 2 where `quantization` is not none
  GemmModel model;
  FitRecord record;
  Quantization quantization = Quantization::none;

  [[nodiscard]] bool same_format(const FittedGemm& other) const {
    return dtype_bytes == other.dtype_bytes && quantization == other.quantization;
  }
};
/// "" of 2-byte numbers, " 1-byte", " fp8": after "gemm" in tables.
[[nodiscard]] std::string format_suffix(std::int64_t dtype_bytes, Quantization quantization);
/// "gemm in 2-byte numbers", "gemm in fp8": of rows in messages.
[[nodiscard]] std::string gemm_group(std::int64_t dtype_bytes, Quantization quantization);
/// "moe bf16", "moe fp8": of fits and rows of MoE kernels.
[[nodiscard]] std::string moe_group(Quantization quantization);

/// How the benchmark behind a table of MoE kernels made its calls, where its rows do not say it. Only checks of rows
/// use this; runs do not.
struct MoeBenchmark {
  double cache_bytes = 0.0;    // weights that stay in the L2 cache from call to call
  bool gates_always = false;   // experts of models without a gate were measured with one
  bool ties_in_order = false;  // ExpertLoad::Ties::in_order

  bool operator==(const MoeBenchmark&) const = default;
};

/// One fused MoE kernel in the number format of its model.
struct FittedMoe {
  std::string kernel;  // as the table names it
  MoeModel model;
  FitRecord record;
  MoeBenchmark benchmark;
  std::vector<MoeShape> shapes;  // measured; at least one
};

/// One step of an exchange of tokens, by library and number of GPUs.
using FittedExchange = Fitted<ExchangeModel>;

/// Time of an attention call with prompt chunks and decodes: t = apart + s (fused - apart). `apart` is the time of two
/// launches; `fused` is the time of one launch in which each decode is a chunk of one token (attention.hpp).
struct MixedAttentionModel {
  double fused_share = 0.0;  // s in [0, 1]; 0: two launches
  FusedDecodes decodes{};
};

struct FittedKernels {
  std::vector<FittedGemm> gemm;  // by format
  std::vector<FittedMoe> moe;    // by format and kernel
  std::vector<FittedExchange> exchanges;
  std::optional<Fitted<DecodeAttentionModel>> decode_attention;
  std::optional<Fitted<PrefillAttentionModel>> prefill_attention;
  std::optional<Fitted<DecodeAttentionModel>> decode_attention_fp8_kv;  // KV in one byte
  std::optional<Fitted<PrefillAttentionModel>> prefill_attention_fp8_kv;
  std::optional<Fitted<MixedAttentionModel>> mixed_attention;  // empty: two launches
  std::optional<Fitted<ElementwiseModel>> elementwise;
  std::optional<Fitted<AllReduceModel>> all_reduce;         // by NCCL
  std::optional<Fitted<AllReduceModel>> all_reduce_custom;  // an engine's kernels for small buffers, NCCL for large
  std::vector<Fitted<CopyModel>> copies;
  std::optional<Fitted<CpuAttentionModel>> cpu_attention;
  std::optional<Fitted<HostModel>> host;
  std::optional<Fitted<LayerTables>> layers;
  std::optional<Fitted<IterationModel>> iteration;
  /// Error of the attention grid of `layers` where scattered points give it; not a model of its own.
  std::optional<FitRecord> layer_attention;
  /// Error of whole decode iterations, summed from held-out kernels; not a model of its own.
  std::optional<FitRecord> decode_iteration;

  /// Whether all kernels of a transformer layer are fitted: matrix multiplications and both kinds of attention. GEMM
  /// must be fitted in the 2-byte format, which other formats fall back on.
  [[nodiscard]] bool complete() const { return two_byte_gemm() && decode_attention && prefill_attention; }
  [[nodiscard]] bool two_byte_gemm() const { return gemm_in(2, Quantization::none) != nullptr; }
  /// Null where the format is not fitted.
  [[nodiscard]] const FittedGemm* gemm_in(std::int64_t dtype_bytes, Quantization quantization) const;
  /// Of the kernels in this format, the one with the measured shape that is nearest by the sum of |log| of the ratios
  /// of hidden size, width, top_k, experts and expert_parallel: engines choose a kernel by shape. Only of kernels whose
  /// name holds `kernel`. Null where there is none. O(shapes).
  [[nodiscard]] const FittedMoe* moe_for(Quantization quantization, const MoeShape& shape,
                                         std::string_view kernel = {}) const;
  /// Of the steps of this backend, the one with the nearest number of GPUs by the ratio; null where there is none.
  [[nodiscard]] const FittedExchange* exchange_for(ExchangeBackend backend, ExchangeStep step,
                                                   std::int64_t ranks) const;
  [[nodiscard]] bool empty() const;
};

/// The lines of an error table for the interpolated attention of layer tables, and for whole decode iterations.
inline constexpr std::string_view kLayerAttention = "layer_attention";
inline constexpr std::string_view kDecodeIteration = "decode_iteration";

/// One line of an error table.
struct FitLine {
  std::string op;  // as `calibrate check` names it, and the mechanism where an op has several: "gemm", "copy_h2d many"
  const FitRecord* record = nullptr;
};
/// In the order of Op; the pointers live as long as `kernels`.
[[nodiscard]] std::vector<FitLine> fit_lines(const FittedKernels& kernels);
/// The range of KV heads of the single-token calls that a fit of decodes has beside its decodes.
inline constexpr const char* kSingleTokenHeads = "single_token_kv_heads";
/// How well the op of a fit is known beyond one of its measured ranges, from other GPUs; empty where that is not known
/// either.
[[nodiscard]] std::string_view known_beyond(std::string_view op, const MeasuredRange& range, const FitRecord& record);
/// "borrowed from NAME, not calibrated", the citation of what another GPU lends.
[[nodiscard]] std::string borrowed_citation(const std::string& lender);
/// Marks every fit as borrowed from `lender`, without its held-out error. Drops what says nothing about another GPU or
/// host: tables, iterations, CPU times and CPU attention.
[[nodiscard]] FittedKernels lent(FittedKernels kernels, const std::string& lender);

/// "GEMM 4.4% / 18.5%, decode attention ..." for a result; without exchanges.
[[nodiscard]] std::string error_text(const FittedKernels& kernels);

/// The JSON form. Reading appends every problem (missing, unknown or mistyped field, impossible value) with its JSON
/// pointer below `where`, and returns what could be read.
[[nodiscard]] nlohmann::json to_json(const FittedKernels& kernels);
[[nodiscard]] FittedKernels read_fitted(const nlohmann::json& section, const std::string& where,
                                        std::vector<Problem>& problems);

/// Figures of a GPU by which kernels are scaled when one profile lends them to another.
struct ScalingFacts {
  std::int64_t sm_count = 0;
  double gemm_flops = 0.0;        // peak times the efficiency of the analytic model
  double prefill_flops = 0.0;     // the same for prefill attention
  double memory_bandwidth = 0.0;  // peak
  double gemm_bandwidth = 0.0;    // peak times the efficiency of the analytic model
  double decode_bandwidth = 0.0;  // the same for decode attention
};
/// The kernels of `lender`, scaled to another GPU: arithmetic in proportion to the FLOP/s of its kernels, the traffic
/// of GEMM, MoE weights and decode attention in proportion to the bandwidth of these kernels, other traffic in
/// proportion to the memory bandwidth, launches unchanged. Residuals are kept only between GPUs with the same number of
/// SMs: with another number, tiles fall into other waves. Only GEMM, MoE, attention and elementwise kernels are lent.
/// Links, hosts and tables belong to the machine that they were measured on. Every record says that it is borrowed.
[[nodiscard]] FittedKernels borrowed(const FittedKernels& lender, const std::string& lender_name,
                                     const ScalingFacts& from, const ScalingFacts& to);

}  // namespace spillway::hwmodels
