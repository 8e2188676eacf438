#include "sim/cli/about/explain_scope.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/cli/about/explain.hpp"

namespace spillway::cli {
namespace {

using hwmodels::ExchangeBackend;
using hwmodels::LlmModel;
using hwmodels::Quantization;

std::string list_of(const std::vector<std::string>& names) { return fmt::format("{}", fmt::join(names, ", ")); }

/// How many times as much KV requests of some lengths hold as engines keep of them.
std::string explain_windows(const LlmModel& llm) {
  std::vector<std::string> gains;
  for (const std::int64_t tokens : {1024, 4096, 16384}) {
    if (tokens > llm.max_positions) break;
    gains.push_back(fmt::format("{:.2f} times with {} tokens", llm.window_gain(Tokens(tokens)), tokens));
  }
  if (llm.window_gain(Tokens(llm.max_positions)) == 1.0) return {};
  return explain_field(
      "windows",
      fmt::format(
          "full attention over the tokens of the window, not measured. Policy vllm frees the KV beyond a window "
          "(engine.hybrid_kv_cache). Other policies keep it until the request ends, which is more: {}",
          list_of(gains)));
}

/// "moe fp8 kernel" -> "MoE fp8", "expert_exchange nccl combine 8" -> "exchange nccl": kernels by what chooses them.
std::string group_of(std::string_view op) {
  std::vector<std::string> words{""};
  for (const char c : op) {
    if (c == ' ') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  if (words.size() > 1 && words[0] == "moe") return "MoE " + words[1];
  if (words.size() > 1 && words[0] == "expert_exchange") return "exchange " + words[1];
  return words[0].starts_with("copy_") ? words[0] : std::string(op);
}

/// The kernels that no fit of the GPU has, each with what stands for it.
std::vector<std::string> missing(const hwmodels::FittedKernels& fitted) {
  std::vector<std::string> names;
  std::vector<std::string> formats;
  for (const hwmodels::QuantizationFormat& format : hwmodels::kQuantizationFormats) {
    const bool there =
        std::ranges::any_of(fitted.moe, [&](const auto& moe) { return moe.model.quantization == format.quantization; });
    if (!there) formats.emplace_back(format.quantization == Quantization::none ? "16 bits" : format.name);
  }
  if (!formats.empty()) names.push_back(fmt::format("MoE kernels in {} (refused)", list_of(formats)));
  std::vector<std::string> exchanges;
  for (const auto backend : {ExchangeBackend::nccl, ExchangeBackend::deepep_low_latency, ExchangeBackend::deepep_normal,
                             ExchangeBackend::nvlink_one_sided, ExchangeBackend::nvlink_two_sided}) {
    const bool there =
        std::ranges::any_of(fitted.exchanges, [&](const auto& one) { return one.model.backend == backend; });
    if (!there) exchanges.emplace_back(hwmodels::exchange_name(backend));
  }
  if (!exchanges.empty()) {
    names.push_back(fmt::format("exchanges by {} (a roofline of the all-reduce's bandwidth)", list_of(exchanges)));
  }
  if (!fitted.decode_attention_fp8_kv)
    names.emplace_back("attention over KV in fp8 (16-bit kernels of half the bytes)");
  names.emplace_back("attention over a window (full attention over fewer tokens)");
  names.emplace_back("latent attention (a roofline)");
  return names;
}

}  // namespace

std::string explain_scope(const LlmModel& llm) {
  std::string text;
  if (llm.latent) {
    text += explain_field("attention", "latent: KV bytes and FLOPs are exact, its time is a roofline and not measured");
  }
  text += explain_windows(llm);
  if (llm.experts) {
    text += explain_field("active", fmt::format("{} parameters per token: {} of {} experts in {} of {} layers",
                                                llm.active_parameters(), llm.experts->top_k, llm.experts->count,
                                                llm.routed_layers(), llm.layers)) +
            explain_field("modelled",
                          "routed experts by measured kernels of whole MoE modules, on the most loaded GPU "
                          "(expert_load, expert_parallel); router, shared experts and dense layers as matrix "
                          "multiplications") +
            explain_field("exchange",
                          "with one data-parallel group an all-reduce after the experts, whatever expert_parallel is; "
                          "with several what engine.expert_exchange names: an all-gather before and a reduce-scatter "
                          "after, DeepEP, or NVLink") +
            explain_field("left out",
                          "pipeline parallelism, placement of experts by load, redundant experts, overlap of two "
                          "batches, prediction of several tokens");
  }
  if (text.empty()) return text;
  return text + explain_field("refused",
                              "a config.json with sparse attention over an index, linear attention, state-space "
                              "layers, layers that share KV or an encoder");
}

std::string explain_scope(const hwmodels::GpuProfile& gpu) {
  const std::vector<hwmodels::FitLine> fits = hwmodels::fit_lines(gpu.fitted);
  if (fits.empty()) return {};
  std::array<std::vector<std::string>, 2> by_source;  // measured, borrowed
  for (const hwmodels::FitLine& line : fits) {
    std::vector<std::string>& names = by_source[line.record->source_kind == "borrowed" ? 1 : 0];
    const std::string group = group_of(line.op);
    if (std::ranges::find(names, group) == names.end()) names.push_back(group);
  }
  return explain_field("measured", list_of(by_source[0])) + explain_field("borrowed", list_of(by_source[1])) +
         explain_field("missing", list_of(missing(gpu.fitted)));
}

}  // namespace spillway::cli
