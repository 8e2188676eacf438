#include "policies/parts/flexgen_placement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "policies/parts/flexgen_cost_model.hpp"
#include "policies/parts/host_memory.hpp"
#include "policies/parts/single_copy.hpp"

namespace spillway {
namespace {

constexpr double kNumber = 2.0;  // bytes of a number in the cost model

/// Bytes per second of one copy, its launch included.
double copy_bandwidth(const ExecutionModel& model, Stream stream, Bytes bytes) {
  const Copy copy = single_copy(model, stream, bytes);
  return bytes_of(bytes) / to_seconds(copy.launch + copy.transfer);
}

/// The model in the cost model's terms, in which an MLP of three matrices is an MLP of two that is wider by half.
FlexgenModel cost_model_of(const Deployment& deployment) {
  const double widths = bytes_of(deployment.layer_weights) / (4.0 * real(deployment.hidden));
  const std::int64_t ffn = std::llround(widths) - deployment.query_width - deployment.kv_width;
  return {.layers = deployment.layers,
          .hidden = deployment.hidden,
          .ffn = std::max<std::int64_t>(1, ffn),
          .heads = deployment.heads,
          .query = deployment.query_width,
          .kv = deployment.kv_width};
}

/// Operations per byte of cache in attention: each number, kNumber bytes, is multiplied and added for every query that
/// shares it.
double flop_per_byte(const FlexgenModel& model) { return 2.0 / kNumber * real(model.query) / real(model.kv); }

/// Rates of the hardware profile, from the times of iterations with one GPU batch. With one rate for all GPU batches,
/// as in FlexGen's fit, the search would rate one request at a time as fast as many.
class Probe {
 public:
  Probe(const Deployment& deployment, const FlexgenModel& model, const Padding& padding, std::int64_t gpu_batch)
      : execution_(deployment.planner()),
        requests_(gpu_batch),
        prompt_(padding.input.count()),
        context_(padding.input.count() + padding.output.count() / 2),
        token_flop_(model.layer_bytes()),  // two numbers' bytes, two operations
        attention_flop_(4.0 * real(model.query)) {}

  void fill(FlexgenHardware& hardware) const {
    hardware.h2d = bandwidth(Stream::h2d);
    hardware.d2h_cache = hardware.d2h_hidden = bandwidth(Stream::d2h);
    const double whole = prefill(prompt_);
    const double pieces = prefill(std::min(prompt_, kPiece));
    hardware.gemm_prefill = real(requests_ * prompt_) * token_flop_ / pieces;
    hardware.attention_prefill = real(requests_ * prompt_) * real(prompt_) * attention_flop_ / beyond(whole, pieces);
    const double first = decode(1);
    hardware.gemm_decode = real(requests_) * token_flop_ / first;
    hardware.attention_decode = real(requests_ * context_) * attention_flop_ / beyond(decode(context_), first);
  }

 private:
  static constexpr std::int64_t kPiece = 16;  // tokens, so few that attention among them costs almost nothing
  static constexpr Bytes kLarge{1'000'000'000};

  [[nodiscard]] double bandwidth(Stream stream) const { return copy_bandwidth(execution_, stream, kLarge); }
  /// The time of attention, at least as much as rounding could hide.
  [[nodiscard]] static double beyond(double with, double without) { return std::max(with - without, 1e-6 * with); }
  /// Time of a layer over requests_ prompts, cut into sequences of at most `length` tokens.
  [[nodiscard]] double prefill(std::int64_t length) const {
    std::vector<PrefillChunk> chunks;
    for (std::int64_t i = 0; i < requests_; ++i) {
      for (std::int64_t left = prompt_; left > 0; left -= length) {
        chunks.push_back({Tokens(std::min(left, length)), Tokens(0)});
      }
    }
    BatchShape shape;
    shape.chunks = chunks;
    shape.sampled_sequences = static_cast<std::int64_t>(chunks.size());
    return to_seconds(execution_.iteration(shape).layer);
  }
  [[nodiscard]] double decode(std::int64_t context) const {
    BatchShape shape;
    shape.decode_sequences = shape.sampled_sequences = requests_;
    shape.decode_context = Tokens(requests_ * context);
    shape.decode_longest = Tokens(context);
    return to_seconds(execution_.iteration(shape).layer);
  }

  const ExecutionModel& execution_;
  const std::int64_t requests_;
  const std::int64_t prompt_;
  const std::int64_t context_;  // mean, while decoding
  const double token_flop_;     // of a layer's matrices
  const double attention_flop_;
};

/// The hardware for the search. Weights outside the layers are off its GPU memory already.
FlexgenHardware search_hardware(const Deployment& deployment, const Settings& settings, const FlexgenModel& model,
                                std::int64_t gpu_batch) {
  const std::optional<Bytes> host = host_memory(deployment, settings);
  if (!host) refuse_unknown_host("FlexGen's policy search must know the host's memory", "policy.host_memory");
  const Padding padding = flexgen_padding(settings);
  const bool cpu_attention = settings.get<bool>("policy.cpu_attention");
  const bool published = settings.get<std::string>("policy.constants") == "published";
  FlexgenHardware hardware = t4_constants();
  if (!published) {
    Probe(deployment, model, padding, gpu_batch).fill(hardware);
    hardware.cpu_batch_and_hidden = hardware.cpu_batch = hardware.cpu_hidden = 0.0;
    // The engine's activation memory is off the GPU's memory already.
    hardware.usable = 1.0;
    if (cpu_attention) {
      if (!deployment.cpu_attention_bandwidth) {
        refuse_unknown_host("FlexGen's policy search must know how fast the CPU attends", "policy.cpu_attention=false");
      }
      // The rate of a call for a GPU batch with all of its KV on the host.
      const double context = real(padding.input.count()) + real(padding.output.count()) / 2.0;
      const double kv = real(gpu_batch) * context * 2.0 * kNumber * real(model.kv);
      hardware.cpu_attention = kv / flexgen_cpu_attention(deployment, kv) * flop_per_byte(model);
    }
  }
  if (!cpu_attention) {
    // The GPU loads the host's cache before it attends to it: in the model's terms an attention as slow as the link.
    hardware.cpu_attention = hardware.h2d * flop_per_byte(model);
    hardware.cpu_batch_and_hidden = hardware.cpu_batch = hardware.cpu_hidden = 0.0;
  }
  const double layers = bytes_of(deployment.layer_weights) * real(deployment.layers);
  hardware.gpu_memory = flexgen_gpu_memory(deployment) - (bytes_of(deployment.weights) - layers);
  hardware.cpu_memory = bytes_of(*host);
  hardware.disk_memory = 0.0;
  return hardware;
}

/// Reports why the search failed, with the memory of the smallest case: one request, everything on the host.
[[noreturn]] void refuse_search(const Deployment& deployment, const FlexgenModel& model,
                                const FlexgenWorkload& workload, FlexgenHardware hardware) {
  const double left = hardware.gpu_memory;
  hardware.gpu_memory = std::max(left, 1.0);
  const FlexgenShares away{.gpu = 0.0, .cpu = 1.0, .disk = 0.0};
  const FlexgenEstimate least =
      flexgen_estimate(model, workload, hardware, {.weights = away, .cache = away, .hidden = away});
  const bool gpu_too_small = least.gpu_peak > hardware.usable * left;
  throw ConfigError::infeasible(
      fmt::format("no placement of even one request of {} + {} tokens fits: with everything on the host it takes at "
                  "its peak {:.3f} GB of the GPU, which has {:.3f} GB beside the weights outside layers, and {:.3f} GB "
                  "of the host, which has {:.3f} GB; the search uses {:.0f}% of each",
                  workload.prompt, workload.generated, gigabytes(least.gpu_peak), gigabytes(left),
                  gigabytes(least.cpu_peak), gigabytes(hardware.cpu_memory), 100.0 * hardware.usable),
      gpu_too_small ? flexgen_gpu_key(deployment) : "policy.host_memory",
      gpu_too_small ? "choose a GPU with more memory, or lower policy.pad_input"
                    : "raise policy.host_memory, choose a server with more DRAM, or lower policy.pad_input");
}

FlexgenPlacement search(const Deployment& deployment, const Settings& settings) {
  const FlexgenModel model = cost_model_of(deployment);
  const Padding padding = flexgen_padding(settings);
  const FlexgenWorkload workload{padding.input.count(), padding.output.count()};
  const auto hardware = [&](std::int64_t gpu_batch) { return search_hardware(deployment, settings, model, gpu_batch); };
  const FlexgenHardware one = hardware(1);
  const FlexgenMatrices matrices(deployment);
  std::vector<double> weights_on_host;
  for (const FlexgenRung& rung : matrices.rungs()) weights_on_host.push_back(rung.on_host);
  const std::optional<FlexgenChoice> found =
      one.gpu_memory > 0.0 ? flexgen_search(model, workload, hardware, weights_on_host) : std::nullopt;
  if (!found) refuse_search(deployment, model, workload, one);
  const FlexgenPolicy& policy = found->policy;
  const auto weights = std::ranges::find(matrices.rungs(), policy.weights.cpu, &FlexgenRung::on_host);
  return {.plan = {policy.gpu_batch, policy.batches, weights->asked, policy.cache.cpu, policy.hidden.cpu},
          .how = fmt::format("found by its search, which expects {:.4g} tokens/s of full blocks",
                             found->estimate.throughput)};
}

/// The share of every layer's weights that keeps the time of a layer within its objective. Its compute is estimated at
/// the datasheet's rates.
FlexgenPlacement keep_objective(const Deployment& deployment, const Settings& settings) {
  const bool roofline = settings.get<std::string>("policy.slo_estimate") == "roofline";
  if (deployment.peak_flops <= 0.0 || (roofline && deployment.memory_bandwidth <= 0.0)) {
    throw ConfigError(fmt::format("policy.slo_margin needs the GPU's {}, which its profile does not state",
                                  deployment.peak_flops <= 0.0 ? "peak FLOP/s" : "memory bandwidth"),
                      "hardware", "choose another GPU, or give policy.weights_host");
  }
  const Padding padding = flexgen_padding(settings);
  const double requests = real(settings.get<std::int64_t>("policy.gpu_batch"));
  const double width = 4.0 * real(deployment.query_width);
  const double prompt = real(padding.input.count());
  const double context = prompt + real(padding.output.count()) / 2.0;
  const double weights = bytes_of(deployment.layer_weights);  // two bytes and two operations per number
  const bool prefill = settings.get<std::string>("policy.slo_phase") == "prefill";
  const double flop = prefill ? requests * prompt * (weights + width * prompt) : requests * (weights + width * context);
  const double bandwidth = copy_bandwidth(deployment.planner(), Stream::h2d, deployment.layer_weights);
  double compute = flop / deployment.peak_flops;
  std::string bound = fmt::format("{:.4g} TFLOP/s", deployment.peak_flops * 1e-12);
  if (roofline) {
    // The weights and each token's KV pass once through the GPU's memory.
    const double tokens = real(deployment.block_tokens.count()) * real(deployment.layers);
    const double kv = bytes_of(deployment.block_bytes) / tokens;
    const double read = (weights + requests * (prefill ? prompt : context) * kv) / deployment.memory_bandwidth;
    if (read > compute) bound = fmt::format("{:.4g} GB/s of GPU memory", deployment.memory_bandwidth * 1e-9);
    compute = std::max(compute, read);
  }
  const double margin = settings.get<double>("policy.slo_margin");
  const double share = slo_aware_host_fraction(compute, margin, weights, bandwidth, deployment.gpus);
  return {.plan = {.gpu_batch = settings.get<std::int64_t>("policy.gpu_batch"), .weights_host = share},
          .how = fmt::format("a layer may take (1 + {:.4g}) x {:.4g} ms, its compute at {}, and a GPU gets 1/{} of "
                             "{:.4g} GB/s: enough for {:.4g}% of the weights",
                             margin, compute * 1e3, bound, deployment.gpus, bandwidth * 1e-9, 100.0 * share)};
}

}  // namespace

FlexgenPlacement choose_placement(const Deployment& deployment, const Settings& settings) {
  if (settings.has("policy.slo_margin")) return keep_objective(deployment, settings);
  if (settings.has(kFlexgenPlacement[0])) return {.plan = FlexgenPlan::of(settings), .how = "as given"};
  return search(deployment, settings);
}

}  // namespace spillway
