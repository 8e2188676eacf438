#include "hwmodels/calibration/measurement_rows.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <utility>

#include "hwmodels/models/expert_load.hpp"
#include "hwmodels/models/simple_kernels.hpp"
#include "hwmodels/numbers.hpp"
#include "sim/core/text.hpp"

namespace spillway::hwmodels {
namespace {

constexpr double kMostWork = 1e18;  // multiplications in one call: a thousand seconds on the fastest GPU

/// Number formats, by the names that measuring tools use.
struct Dtype {
  std::string_view name;
  std::int64_t bytes;
};
constexpr std::array<Dtype, 5> kDtypes{{{"bf16", 2}, {"fp16", 2}, {"fp8", 1}, {"int8", 1}, {"fp32", 4}}};

const std::vector<std::string>& layer_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names(kLayersByTokens.begin(), kLayersByTokens.end());
    names.insert(names.end(), kLayersBySequences.begin(), kLayersBySequences.end());
    return names;
  }();
  return kNames;
}

struct NumberFormat {
  std::int64_t dtype_bytes = 2;
  Quantization quantization = Quantization::none;
};

/// dtype names the numbers of x, y and w. gemm_dtype names aiconfigurator's kernels, of which the quantised ones take x
/// and y in 16 bits.
std::optional<NumberFormat> number_format(RowSource& row) {
  const bool first = row.has("dtype");
  if (!first && !row.has("gemm_dtype")) return NumberFormat{};
  const std::string_view name = first ? "dtype" : "gemm_dtype";
  if (first && row.has("gemm_dtype")) {
    row.bad("gemm_dtype", "dtype and gemm_dtype both give the type", "keep one of them");
    return std::nullopt;
  }
  const auto word = row.word(name);
  if (!word) return std::nullopt;
  std::vector<std::string> allowed;
  if (!first) {
    if (*word == "bfloat16" || *word == "float16") return NumberFormat{};
    allowed = {"bfloat16", "float16"};
    for (const QuantizationFormat& format : kQuantizationFormats) {
      if (format.quantization == Quantization::none) continue;
      if (*word == format.name) return NumberFormat{2, format.quantization};
      allowed.emplace_back(format.name);
    }
  }
  for (const Dtype& dtype : kDtypes) {
    if (*word == dtype.name) return NumberFormat{dtype.bytes};
    if (std::ranges::find(allowed, dtype.name) == allowed.end()) allowed.emplace_back(dtype.name);
  }
  row.bad(name, fmt::format("unknown type \"{}\"", excerpt(*word)), allowed_text(*word, allowed));
  return std::nullopt;
}

std::optional<bool> fp8_kv(RowSource& row) {
  if (!row.has("kv_dtype")) return false;
  const auto word = row.word("kv_dtype");
  if (!word) return std::nullopt;
  if (*word == "fp8") return true;
  if (*word == "bfloat16" || *word == "bf16" || *word == "float16" || *word == "fp16") return false;
  row.bad("kv_dtype", fmt::format("unknown type \"{}\"", excerpt(*word)),
          allowed_text(*word, {"fp8", "bfloat16", "bf16", "float16", "fp16"}));
  return std::nullopt;
}

struct MoeFormat {
  Quantization quantization = Quantization::none;
  std::string_view variant;  // of the kernel
};

/// moe_dtype, by aiconfigurator's names and by those of kQuantizationFormats.
std::optional<MoeFormat> moe_format(RowSource& row) {
  static const std::map<std::string, MoeFormat, std::less<>> kNames{
      {"bfloat16", {}},
      {"float16", {}},
      {"fp8", {Quantization::fp8, {}}},
      {"fp8_block", {Quantization::fp8_block, {}}},
      {"nvfp4", {Quantization::nvfp4, {}}},
      {"mxfp4", {Quantization::mxfp4, {}}},
      {"w4a16_mxfp4", {Quantization::mxfp4, {}}},
      {"w4a8_mxfp4_mxfp8", {Quantization::mxfp4, " mxfp8"}},  // activations in one byte
      {"int4", {Quantization::int4, {}}},
      {"int4_wo", {Quantization::int4, {}}}};
  const auto word = row.word("moe_dtype");
  if (!word) return std::nullopt;
  if (const auto it = kNames.find(*word); it != kNames.end()) return it->second;
  std::vector<std::string> allowed;
  allowed.reserve(kNames.size());
  for (const auto& [name, format] : kNames) allowed.push_back(name);
  row.bad("moe_dtype", fmt::format("unknown type \"{}\"", excerpt(*word)), allowed_text(*word, allowed));
  return std::nullopt;
}

/// The exponent of a power law. The outer optional is empty for a bad distribution, the inner one for a balanced load.
std::optional<std::optional<double>> power_law(RowSource& row) {
  constexpr std::string_view kLaw = "power_law_";
  const auto word = row.word("distribution");
  if (!word) return std::nullopt;
  if (*word == "balanced") return std::optional<double>();
  if (word->starts_with(kLaw)) {
    const auto alpha = parse_number(word->substr(kLaw.size()));
    if (alpha && *alpha >= 0.0 && *alpha <= kSteepestLaw) return alpha;
  }
  row.bad("distribution", fmt::format("unknown distribution \"{}\"", excerpt(*word)),
          fmt::format("allowed: balanced, power_law_ALPHA with ALPHA from 0 to {}", kSteepestLaw));
  return std::nullopt;
}

}  // namespace

void Complaints::add(const std::string& part, std::string what, std::string fix) {
  if (count_++ < kShown) shown_.push_back({std::move(what), path_ + part, std::move(fix)});
}

std::vector<Problem> Complaints::problems() const {
  std::vector<Problem> all = shown_;
  if (count_ > shown_.size()) {
    all.push_back({fmt::format("and {} more", count_ - shown_.size()), path_, "correct these first"});
  }
  return all;
}

std::optional<std::int64_t> RowSource::count(std::string_view name, std::int64_t least) {
  const auto value = integer(name);
  if (!value || (*value >= least && *value <= kMostCount)) return value;
  bad(name, fmt::format("{} is not from {} to {}", *value, least, kMostCount), kCorrectRow);
  return std::nullopt;
}

std::optional<double> RowSource::amount(std::string_view name, double least, double most) {
  const auto value = number(name);
  if (!value || (*value >= least && *value <= most)) return value;
  bad(name, fmt::format("{} is not from {} to {}", *value, least, most), kCorrectRow);
  return std::nullopt;
}

std::optional<double> RowSource::duration(std::string_view name, double seconds) {
  if (seconds >= kLeastSeconds && seconds <= kMostSeconds) return seconds;
  if (seconds <= 0.0) {
    bad(name, fmt::format("a time must be above 0, not {:.6g} s", seconds), kCorrectRow);
  } else {
    bad(name, fmt::format("{} s is {} than any measured time", seconds, seconds < 1.0 ? "shorter" : "longer"),
        "the unit is probably wrong");
  }
  return std::nullopt;
}

std::optional<GemmRow> gemm_row(RowSource& row) {
  const auto m = row.count("m");
  const auto n = row.count("n");
  const auto k = row.count("k");
  const auto format = number_format(row);
  const auto seconds = row.seconds();
  if (!m || !n || !k || !format || !seconds) return std::nullopt;
  if (product({*m, *n, *k}) > kMostWork) {
    row.bad("m", fmt::format("m n k of {} x {} x {} is above {:g}", *m, *n, *k, kMostWork), kCorrectRow);
    return std::nullopt;
  }
  return GemmRow{*m, *n, *k, format->dtype_bytes, *seconds, row.place(), format->quantization};
}

std::optional<AttentionRow> attention_row(RowSource& row) {
  const auto batch = row.count("batch");
  const auto q_heads = row.count("q_heads");
  const auto kv_heads = row.count("kv_heads");
  const auto head_dim = row.count("head_dim");
  const auto new_tokens = row.count("new_tokens");
  const auto context = row.count("context", 0);
  const auto one_byte_kv = fp8_kv(row);
  const auto seconds = row.seconds();
  if (!batch || !q_heads || !kv_heads || !head_dim || !new_tokens || !context || !one_byte_kv || !seconds)
    return std::nullopt;
  if (*q_heads % *kv_heads != 0) {
    row.bad("q_heads", fmt::format("{} query heads are not a multiple of {} KV heads", *q_heads, *kv_heads),
            kCorrectRow);
    return std::nullopt;
  }
  const std::int64_t length = *new_tokens + *context;
  if (product({*batch, *q_heads, *head_dim, *new_tokens, length}) > kMostWork ||
      product({*batch, *kv_heads, *head_dim, length}) > RowSource::kMostBytes) {
    row.bad("batch", fmt::format("{} sequences of {} tokens are more than any GPU holds", *batch, length), kCorrectRow);
    return std::nullopt;
  }
  AttentionRow result{*batch, *q_heads, *kv_heads, *head_dim, *new_tokens, *context, *seconds, row.place()};
  result.fp8_kv = *one_byte_kv;
  return result;
}

std::optional<AllReduceRow> all_reduce_row(RowSource& row) {
  const auto ranks = row.count("ranks", 2);
  const auto bytes = row.count("bytes");
  const auto seconds = row.seconds();
  if (!ranks || !bytes || !seconds) return std::nullopt;
  return AllReduceRow{*ranks, *bytes, *seconds, row.place()};
}

std::optional<ElementwiseRow> elementwise_row(RowSource& row) {
  auto kernel = row.word("kernel");
  const auto tokens = row.count("tokens");
  const auto bytes = row.amount("bytes", 1.0, RowSource::kMostBytes);
  const auto seconds = row.seconds();
  if (!kernel || !tokens || !bytes || !seconds) return std::nullopt;
  return ElementwiseRow{std::move(*kernel), *tokens, *bytes, *seconds, row.place()};
}

std::optional<CopyRow> copy_row(RowSource& row, bool to_device, bool by_bandwidth) {
  constexpr double kGigabyte = 1e9;
  const auto word = row.word("mechanism");
  const auto mechanism = word ? mechanism_named(*word) : std::nullopt;
  if (word && !mechanism) {
    std::vector<std::string> allowed;
    for (int i = 0; i <= static_cast<int>(CopyMechanism::relay); ++i) {
      allowed.emplace_back(mechanism_name(static_cast<CopyMechanism>(i)));
    }
    row.bad("mechanism", fmt::format("unknown mechanism \"{}\"", excerpt(*word)), allowed_text(*word, allowed));
  }
  const auto block_bytes = row.count("block_bytes");
  const auto copies = row.count("copies");
  const auto duplex = row.has("duplex") ? row.flag("duplex") : std::optional(false);
  const auto given = by_bandwidth ? row.amount("bandwidth_gb_s", 1e-9, 1e9) : row.seconds();
  if (!mechanism || !block_bytes || !copies || !duplex || !given) return std::nullopt;
  const double bytes = product({*block_bytes, *copies});
  const double seconds = by_bandwidth ? bytes / (*given * kGigabyte) : *given;
  if (bytes > RowSource::kMostBytes || seconds > RowSource::kMostSeconds || seconds < RowSource::kLeastSeconds) {
    row.bad("copies", fmt::format("{} copies of {} bytes in {} s are not possible", *copies, *block_bytes, seconds),
            kCorrectRow);
    return std::nullopt;
  }
  return CopyRow{to_device, *mechanism, *duplex, *block_bytes, *copies, seconds, row.place()};
}

std::optional<CpuAttentionRow> cpu_attention_row(RowSource& row) {
  const auto threads = row.count("threads");
  const auto batch = row.count("batch");
  const auto context = row.count("context");
  const auto bytes = row.amount("kv_bytes", 1.0, RowSource::kMostBytes);
  const auto seconds = row.seconds();
  if (!threads || !batch || !context || !bytes || !seconds) return std::nullopt;
  return CpuAttentionRow{*threads, *batch, *context, *bytes, *seconds, row.place()};
}

std::optional<IterationRow> iteration_row(RowSource& row) {
  const auto tokens = row.count("tokens");
  const auto context = row.count("context", 0);
  const auto pairs = row.has("chunk_pairs") ? row.amount("chunk_pairs", 0.0, kMostWork) : std::optional(0.0);
  const auto seconds = row.seconds();
  if (!tokens || !context || !pairs || !seconds) return std::nullopt;
  return IterationRow{*tokens, *context, *pairs, *seconds, row.place()};
}

std::optional<MoeRow> moe_row(RowSource& row) {
  const auto format = moe_format(row);
  auto kernel = row.word("kernel");
  const auto tokens = row.count("tokens");
  const auto hidden = row.count("hidden");
  const auto intermediate = row.count("inter");
  const auto top_k = row.count("topk");
  const auto experts = row.count("experts");
  const auto tensor_parallel = row.count("tp");
  const auto expert_parallel = row.count("ep");
  const auto law = power_law(row);
  const auto seconds = row.seconds();
  if (!format || !kernel || !tokens || !hidden || !intermediate || !top_k || !experts || !tensor_parallel ||
      !expert_parallel || !law || !seconds) {
    return std::nullopt;
  }
  const auto refuse = [&](std::string_view name, std::string what) {
    row.bad(name, std::move(what), kCorrectRow);
    return std::nullopt;
  };
  constexpr std::int64_t kMostExperts = 100'000;
  if (*experts > kMostExperts) return refuse("experts", fmt::format("{} is above {}", *experts, kMostExperts));
  if (*top_k > *experts) return refuse("topk", fmt::format("{} experts per token, but {} experts", *top_k, *experts));
  if (*intermediate % *tensor_parallel != 0)
    return refuse("tp", fmt::format("{} GPUs do not divide a width of {}", *tensor_parallel, *intermediate));
  if (*experts % *expert_parallel != 0)
    return refuse("ep", fmt::format("{} GPUs do not divide {} experts", *expert_parallel, *experts));
  if (product({*tokens, *top_k, *hidden, *intermediate}) > kMostWork ||
      product({*experts, *hidden, *intermediate}) > RowSource::kMostBytes) {
    return refuse("tokens", fmt::format("{} tokens, or the experts, are more than any GPU computes", *tokens));
  }
  return MoeRow{format->quantization,
                *kernel + std::string(format->variant),
                *tokens,
                *hidden,
                *intermediate,
                *top_k,
                *experts,
                *tensor_parallel,
                *expert_parallel,
                *law,
                *seconds,
                row.place()};
}

std::optional<ExchangeRow> exchange_row(RowSource& row) {
  const auto named = [&](const char* field, const auto& find, const std::vector<std::string>& allowed) {
    const auto word = row.word(field);
    const auto value = word ? find(*word) : std::nullopt;
    if (word && !value) {
      row.bad(field, fmt::format("unknown {} \"{}\"", field, excerpt(*word)), allowed_text(*word, allowed));
    }
    return value;
  };
  const auto backend = named("backend", exchange_backend_named,
                             {"deepep_low_latency", "deepep_normal", "nvlink_one_sided", "nvlink_two_sided", "nccl"});
  const auto step = named("step", exchange_step_named, {"prepare", "dispatch", "combine"});
  const auto ranks = row.count("ranks", 2);
  const auto tokens = row.count("tokens");
  const auto hidden = row.count("hidden");
  const auto top_k = row.count("topk");
  const auto bytes = row.amount("element_bytes", 0.1, 8.0);
  const auto experts = row.has("experts") ? row.count("experts") : std::optional<std::int64_t>(0);
  const auto seconds = row.seconds();
  if (!backend || !step || !ranks || !tokens || !hidden || !top_k || !bytes || !experts || !seconds)
    return std::nullopt;
  constexpr std::int64_t kMostExperts = 100'000;
  if (*top_k > kMostExperts || product({*tokens, *top_k, *hidden}) > RowSource::kMostBytes) {
    row.bad("tokens", fmt::format("{} tokens are more than any GPU sends", *tokens), kCorrectRow);
    return std::nullopt;
  }
  return ExchangeRow{*backend, *step, *ranks, {*tokens, *hidden, *top_k, *bytes}, *experts, *seconds, row.place()};
}

std::optional<HostGemmRow> host_gemm_row(RowSource& row, const HostGemmNames& names) {
  static const std::map<std::string, std::int64_t, std::less<>> kBytes{{"bf16", 2}, {"fp16", 2}, {"fp32", 4}};
  const auto rows = row.count(names.rows);
  const auto inputs = row.count(names.inputs);
  const auto outputs = row.count(names.outputs);
  const auto threads = row.has("threads") ? row.count("threads") : std::optional<std::int64_t>(0);
  const auto dtype = row.has("dtype") ? row.word("dtype") : std::optional<std::string>("bf16");
  const auto bytes = dtype ? kBytes.find(*dtype) : kBytes.end();
  if (dtype && bytes == kBytes.end()) {
    row.bad("dtype", fmt::format("unknown type \"{}\"", excerpt(*dtype)),
            allowed_text(*dtype, {"bf16", "fp16", "fp32"}));
  }
  const auto seconds = row.seconds();
  if (!rows || !inputs || !outputs || !threads || bytes == kBytes.end() || !seconds) return std::nullopt;
  if (product({*rows, *inputs, *outputs}) > kMostWork) {
    row.bad(names.rows, fmt::format("a product of {} x {} x {} is above {:g}", *rows, *inputs, *outputs, kMostWork),
            kCorrectRow);
    return std::nullopt;
  }
  return HostGemmRow{*rows, *inputs, *outputs, *threads, bytes->second, *seconds, row.place()};
}

std::optional<MixedRow> mixed_row(RowSource& row, const MixedNames& names) {
  const auto chunk = row.count(names.chunk, 0);
  const auto chunk_context = row.count(names.chunk_context, 0);
  const auto decodes = row.count(names.decodes, 0);
  const auto decode_context = row.count(names.decode_context, 0);
  const auto seconds = row.seconds();
  if (!chunk || !chunk_context || !decodes || !decode_context || !seconds) return std::nullopt;
  const auto refuse = [&](std::string_view name, std::string what) {
    row.bad(name, std::move(what), kCorrectRow);
    return std::nullopt;
  };
  if (*chunk == 0 && *decodes == 0) return refuse(names.chunk, "the call has neither a prefill nor a decode");
  if (*chunk == 0 && *chunk_context > 0)
    return refuse(names.chunk_context, "context of a prefill, but the call has no prefill");
  if (*decodes == 0 && *decode_context > 0)
    return refuse(names.decode_context, "context of decodes, but the call has no decode");
  if (*decodes > 0 && *decode_context == 0) return refuse(names.decode_context, "decodes without context");
  const double pairs = product({*chunk, *chunk + *chunk_context}) + product({*decodes, *decode_context});
  if (pairs > RowSource::kMostBytes) return refuse(names.chunk, "more tokens than any GPU holds");
  return MixedRow{*chunk, *chunk_context, *decodes, *decode_context, *seconds, row.place()};
}

std::optional<LayerRow> layer_row(RowSource& row, std::string_view kernel, std::string_view count, bool per_sequence) {
  auto name = row.word(kernel);
  const std::vector<std::string>& known = layer_names();
  const bool is_known = name && std::find(known.begin(), known.end(), *name) != known.end();
  // Engines may have other kernels in a layer. A name one letter away from a known kernel is a misspelling.
  if (name && !is_known && (per_sequence || name->empty() || !slip_of(*name, known).empty())) {
    row.bad(kernel, fmt::format("unknown layer \"{}\"", excerpt(*name)), allowed_text(*name, known));
    name.reset();
  }
  const auto number = row.count(count);
  const auto seconds = row.seconds();
  if (!name || !number || !seconds) return std::nullopt;
  return LayerRow{std::move(*name), per_sequence, *number, *seconds, row.place()};
}

std::string allowed_text(std::string_view word, const std::vector<std::string>& allowed) {
  const std::string near = nearest_name(word, allowed);
  return (near.empty() ? std::string() : fmt::format("did you mean \"{}\"? ", near)) +
         fmt::format("allowed: {}", fmt::join(allowed, ", "));
}

std::string slip_of(std::string_view name, const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), name) != known.end()) return {};
  for (const std::string& one : known) {
    const std::size_t longer = std::max(one.size(), name.size());
    if (one.size() < 4 || longer - std::min(one.size(), name.size()) > 1) continue;
    if (edit_distance(name, one) == 1) return one;
  }
  return {};
}

}  // namespace spillway::hwmodels
