#include "hwmodels/models/layer_exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "hwmodels/models/engine_model.hpp"
#include "hwmodels/models/exact_math.hpp"
#include "hwmodels/numbers.hpp"

namespace spillway::hwmodels {
namespace {

constexpr const char* kKey = "engine.expert_exchange";
constexpr std::array<std::string_view, 4> kChoiceNames{"auto", "all_gather", "deepep", "nvlink"};
// Tokens of one GPU for which buffers of DeepEP's low-latency kernels are made: SGLang's default (recalled).
constexpr std::int64_t kLowLatencyTokens = 128;
// DeepEP sends fp8 with one scale of 4 bytes for 128 numbers.
constexpr double kScaledFp8Bytes = 1.0 + 4.0 / 128.0;

constexpr std::size_t kSmall = 0;
constexpr std::size_t kLarge = 1;

/// Bytes of a number of a token that is sent to its experts.
double dispatched_bytes(const LlmModel& llm, ExchangeChoice choice) {
  const bool quantised = llm.quantized && llm.quantized->covers(LinearPart::expert);
  const Quantization format = quantised ? llm.quantized->kernel : Quantization::none;
  if (choice == ExchangeChoice::nvlink) return format_of(format).input_bytes;
  const bool fp8 = format == Quantization::fp8 || format == Quantization::fp8_block;
  return choice == ExchangeChoice::deepep && fp8 ? kScaledFp8Bytes : real(llm.dtype_bytes);
}

std::string kernel_name(const ExchangeModel& model) {
  return fmt::format("{} {}", exchange_name(model.backend), exchange_name(model.step));
}

/// "fitted", "borrowed from h100-80gb-sxm for 8 GPUs".
std::string source_text(const FittedExchange& fit, std::int64_t ranks) {
  std::string text = fit.record.source_kind == "borrowed" ? "borrowed from " + fit.record.citation : "fitted";
  if (const auto end = text.find_first_of(":,"); end != std::string::npos) text.resize(end);
  if (fit.model.ranks != ranks) text += fmt::format(" for {} GPUs", fit.model.ranks);
  return text;
}

/// "nccl dispatch fitted; nccl combine roofline": the names by their sources, each once, in order.
std::string by_source(const std::vector<std::pair<std::string, std::string>>& steps) {
  std::string text;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const bool known = std::any_of(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(i),
                                   [&](const auto& before) { return before.second == steps[i].second; });
    if (known) continue;
    std::vector<std::string> names;
    for (const auto& [name, source] : steps) {
      if (source == steps[i].second && std::ranges::find(names, name) == names.end()) names.push_back(name);
    }
    text += fmt::format("{}{} {}", text.empty() ? "" : "; ", fmt::join(names, ", "), steps[i].second);
  }
  return text;
}

}  // namespace

std::string_view exchange_name(ExchangeChoice choice) { return kChoiceNames.at(static_cast<std::size_t>(choice)); }

std::optional<ExchangeChoice> exchange_choice_named(std::string_view name) {
  const auto it = std::ranges::find(kChoiceNames, name);
  return it == kChoiceNames.end() ? std::nullopt
                                  : std::optional(static_cast<ExchangeChoice>(it - kChoiceNames.begin()));
}

std::optional<Problem> exchange_problem(const LlmModel& llm, const Parallelism& parallelism, ExchangeChoice choice) {
  if (choice == ExchangeChoice::automatic) return std::nullopt;
  const auto problem = [&](const std::string& why, const std::string& fix) {
    return Problem{fmt::format("{}={} {}", kKey, exchange_name(choice), why), kKey, fix};
  };
  const std::string automatic = fmt::format("use {}=auto", kKey);
  if (!llm.experts)
    return problem(fmt::format("needs a model with experts, and {} has none", llm.file.name), automatic);
  if (parallelism.data == 1) {
    return problem("needs data_parallel > 1: one group sums the outputs of its experts in an all-reduce",
                   automatic + ", or set data_parallel and expert_parallel");
  }
  if (choice != ExchangeChoice::all_gather && parallelism.expert != parallelism.gpus()) {
    return problem(fmt::format("sends tokens to the GPU of their experts, which needs expert_parallel={}, all GPUs",
                               parallelism.gpus()),
                   fmt::format("set it, or use {}=all_gather", kKey));
  }
  return std::nullopt;
}

LayerExchange::LayerExchange(const GpuProfile& gpu, const LlmModel& llm, const Parallelism& parallelism,
                             ExchangeChoice choice, bool fitted)
    : tensor_(parallelism.tensor),
      gpus_(parallelism.gpus()),
      choice_(choice == ExchangeChoice::automatic ? ExchangeChoice::all_gather : choice) {
  if (!llm.experts || parallelism.data == 1) return;
  const double hidden = real(llm.hidden);
  const double out = real(llm.dtype_bytes);
  const auto step = [&](ExchangeBackend backend, ExchangeStep kind, std::int64_t ranks, double element) {
    const FittedExchange* fit = fitted ? gpu.fitted.exchange_for(backend, kind, ranks) : nullptr;
    ExchangeModel model;
    if (fit != nullptr) model = fit->model;
    model.ranks = ranks;
    if (fit == nullptr) {
      if (!gpu.all_reduce) refuse_without_all_reduce(gpu.file.name);
      model.copies = backend == ExchangeBackend::nccl ? ExchangeCopies::all_gpus : ExchangeCopies::per_gpu;
      model.backend = backend;
      model.step = kind;
      model.launch_seconds = gpu.all_reduce->latency_seconds;
      model.byte_seconds = (1.0 - 1.0 / real(ranks)) / gpu.all_reduce->bus_bandwidth.value();
      model.norm_exponent = 1.0;
    }
    const double bytes = hidden * element;
    return Step{
        .name = kernel_name(model),
        .source = fit != nullptr ? source_text(*fit, ranks) : "roofline",
        .launch = model.launch_seconds,
        .per_token = model.token_seconds + model.byte_seconds * exchange_copies(model, llm.experts->top_k) * bytes,
        .exponent = model.norm_exponent,
        .bytes = bytes,
        .range = fit != nullptr ? RangeTally(gpu.fitted, fit->record, "bytes") : RangeTally()};
  };
  const auto both = [&](ExchangeBackend backend) {
    Steps steps;
    // Only one of TensorRT-LLM's libraries sends the numbers of tokens first.
    if (backend == ExchangeBackend::nvlink_two_sided) {
      steps.push_back(step(backend, ExchangeStep::prepare, gpus_, dispatched_bytes(llm, choice_)));
    }
    steps.push_back(step(backend, ExchangeStep::dispatch, gpus_, dispatched_bytes(llm, choice_)));
    steps.push_back(step(backend, ExchangeStep::combine, gpus_, out));
    if (tensor_ > 1) steps.push_back(step(ExchangeBackend::nccl, ExchangeStep::dispatch, tensor_, out));
    return steps;
  };
  switch (choice_) {
    case ExchangeChoice::deepep:
      steps_ = {both(ExchangeBackend::deepep_low_latency), both(ExchangeBackend::deepep_normal)};
      break;
    case ExchangeChoice::nvlink: {
      const auto one_sided = ExchangeBackend::nvlink_one_sided;
      const bool has = gpu.fitted.exchange_for(one_sided, ExchangeStep::dispatch, gpus_) != nullptr;
      steps_[kLarge] = both(has || !fitted ? one_sided : ExchangeBackend::nvlink_two_sided);
      steps_[kSmall] = steps_[kLarge];
      break;
    }
    case ExchangeChoice::automatic:
    case ExchangeChoice::all_gather:
      steps_[kLarge] = both(ExchangeBackend::nccl);
      steps_[kSmall] = steps_[kLarge];
      break;
  }
}

std::size_t LayerExchange::phase(std::int64_t tokens, bool prompts) const {
  return choice_ == ExchangeChoice::deepep && !prompts && own(tokens) <= kLowLatencyTokens ? kSmall : kLarge;
}

double LayerExchange::seconds(std::int64_t tokens, bool prompts) const {
  const double sent = real(own(tokens));
  double sum = 0.0;
  for (const Step& step : steps_[phase(tokens, prompts)]) {
    sum += p_norm(step.launch, sent * step.per_token, step.exponent);
  }
  return sum;
}

void LayerExchange::count(std::int64_t tokens, bool prompts, std::int64_t layers) const {
  const double sent = real(own(tokens));
  for (Step& step : steps_[phase(tokens, prompts)]) step.range.add(sent * step.bytes, layers);
}

void LayerExchange::append_to(std::vector<RangeUse>& uses) const {
  for (const Steps& steps : steps_) {
    for (const Step& step : steps) step.range.append_to(uses);
  }
}

std::string LayerExchange::text() const {
  const auto sources = [](const Steps& steps) {
    std::vector<std::pair<std::string, std::string>> named;
    for (const Step& step : steps) named.emplace_back(step.name, step.source);
    return by_source(named);
  };
  const std::string large = sources(steps_[kLarge]);
  switch (choice_) {
    case ExchangeChoice::deepep:
      return fmt::format("DeepEP over {} GPUs; up to {} tokens of a GPU without prompts: {}; others: {}", gpus_,
                         kLowLatencyTokens, sources(steps_[kSmall]), large);
    case ExchangeChoice::nvlink:
      return fmt::format("TensorRT-LLM's all-to-all over {} GPUs: {}", gpus_, large);
    case ExchangeChoice::automatic:
    case ExchangeChoice::all_gather:
      break;
  }
  return fmt::format("all-gather and reduce-scatter over {} GPUs: {}", gpus_, large);
}

std::string exchange_text(const GpuProfile& gpu, const LlmModel& llm, const EngineProfile& engine,
                          const Parallelism& parallelism, ExchangeChoice choice, bool fitted) {
  if (!llm.experts || parallelism.gpus() == 1) return "";
  if (parallelism.data > 1) return LayerExchange(gpu, llm, parallelism, choice, fitted).text();
  const auto& own = gpu.fitted.all_reduce_custom;
  const auto& fit = engine.custom_all_reduce && own ? own : gpu.fitted.all_reduce;
  const std::string source = !fitted || !fit                         ? "roofline"
                             : fit->record.source_kind == "borrowed" ? "borrowed"
                                                                     : "fitted";
  return fmt::format("all-reduce over {} GPUs after the experts: {}", parallelism.gpus(), source);
}

}  // namespace spillway::hwmodels
