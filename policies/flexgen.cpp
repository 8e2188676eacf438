// FlexGen: blocks of padded requests run to completion, micro-batch by micro-batch, with weights, KV and hidden states
// spread over GPU and host.
//
// Source: Sheng et al., "FlexGen: High-Throughput Generative Inference of Large Language Models with a Single GPU",
// ICML 2023: section 4.1 and Algorithm 1 (zig-zag block schedule, policies/parts/zigzag_rule.hpp), 4.2 (placement, CPU
// attention), 4.3 (cost model and policy search, policies/parts/flexgen_cost_model.hpp); FMInference/FlexGen (19753bc).
//
// What waits when the GPU is free, up to gpu_batch * batches requests in order of arrival, becomes a block: one
// iteration computes all prompts, pad_output - 1 more generate the other tokens, and nobody joins meanwhile. Every
// request is computed as pad_input + pad_output tokens, and all answers are returned together. Who gives up in the
// meantime stays a row of the block's tensors, and is computed on.
//
// Per layer and micro-batch the GPU's part of a step waits for the host's share of the layer's weights, and, with at
// least two micro-batches, of the hidden states. In a decode step attention over the host's share of the KV is the
// CPU's, between the GPU's operations; or, without CPU attention, that share is loaded. The KV that a step adds to the
// host's share is stored behind it. Queries that go to the CPU and results that come back are no copies here: like
// FlexGen's cost model, for one token of the KV that the CPU reads thousands of.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "policies/parts/admission.hpp"
#include "policies/parts/flexgen_cost_model.hpp"
#include "policies/parts/host_memory.hpp"
#include "policies/parts/paged_space.hpp"
#include "policies/parts/refusals.hpp"
#include "policies/parts/zigzag_rule.hpp"
#include "sim/api/registry.hpp"

namespace spillway {
namespace {

/// What a user gives all of or none.
constexpr std::array<const char*, 5> kPlacement{"policy.gpu_batch", "policy.batches", "policy.weights_host",
                                                "policy.cache_host", "policy.hidden_host"};
constexpr double kNumber = 2.0;  // bytes of a number, in FlexGen as in its cost model
/// Bytes that its attention on the CPU moves for each byte of KV. It converts the cache to single precision before it
/// multiplies (flexgen/pytorch_backend.py, mha_gen, `k.float(), v.float()`; recalled, not looked up): of every number 2
/// bytes are read, 4 written and 4 read again, where a kernel made for it reads 2. FlexGen's own fit of 12.3 GFLOP/s,
/// one per byte of KV, then means 62 GB/s of memory traffic on the machine that it was fitted on.
constexpr double kAttentionTraffic = 5.0;

double real(std::int64_t count) { return static_cast<double>(count); }
double bytes_of(Bytes bytes) { return real(bytes.count()); }
double gigabytes(double bytes) { return bytes * 1e-9; }

/// The lengths that every request is padded to.
Padding padding_of(const Settings& settings) {
  return {Tokens(settings.get<std::int64_t>("policy.pad_input")),
          Tokens(settings.get<std::int64_t>("policy.pad_output"))};
}

/// A placement of blocks of at most gpu_batch * batches requests.
struct Plan {
  std::int64_t gpu_batch = 1;
  std::int64_t batches = 1;
  double weights_host = 0.0;  // shares
  double cache_host = 0.0;
  double hidden_host = 0.0;

  static Plan of(const Settings& settings) {
    return {settings.get<std::int64_t>(kPlacement[0]), settings.get<std::int64_t>(kPlacement[1]),
            settings.get<double>(kPlacement[2]), settings.get<double>(kPlacement[3]),
            settings.get<double>(kPlacement[4])};
  }
  void write(Settings& settings) const {
    settings.set(kPlacement[0], gpu_batch);
    settings.set(kPlacement[1], batches);
    settings.set(kPlacement[2], weights_host);
    settings.set(kPlacement[3], cache_host);
    settings.set(kPlacement[4], hidden_host);
  }
  [[nodiscard]] std::int64_t block() const { return gpu_batch * batches; }
};

/// Bytes that a plan takes.
class Needs {
 public:
  Needs(const Deployment& deployment, const Settings& settings, const Plan& plan)
      : deployment_(deployment),
        plan_(plan),
        loads_cache_(!settings.get<bool>("policy.cpu_attention")),
        padding_(padding_of(settings)) {}

  /// Of one layer's weights, on the host.
  [[nodiscard]] Bytes layer_on_host() const { return part(plan_.weights_host, bytes_of(deployment_.layer_weights)); }
  [[nodiscard]] double host_weights() const { return bytes_of(layer_on_host()) * layers(); }
  [[nodiscard]] double gpu_weights() const { return bytes_of(deployment_.weights) - host_weights(); }
  /// Of one token, one layer.
  [[nodiscard]] double token_cache() const {
    return bytes_of(deployment_.block_bytes) / real(deployment_.block_tokens.count()) / layers();
  }
  [[nodiscard]] double host_cache() const { return plan_.cache_host * cache(); }
  [[nodiscard]] double gpu_cache() const { return cache() - host_cache(); }
  [[nodiscard]] double token_hidden() const { return kNumber * real(deployment_.hidden); }
  [[nodiscard]] double host_hidden() const { return hidden_share() * hidden(plan_.block()); }
  /// What lives there, and the share of the micro-batch that computes.
  [[nodiscard]] double gpu_hidden() const {
    return (1.0 - hidden_share()) * hidden(plan_.block()) + hidden_share() * hidden(plan_.gpu_batch);
  }
  /// The host's share of the layer that computes and of the next, and of their KV where that is loaded.
  [[nodiscard]] double weight_buffers() const { return 2.0 * bytes_of(layer_on_host()); }
  [[nodiscard]] double cache_buffers() const {
    return loads_cache_ ? 2.0 * plan_.cache_host * real(plan_.gpu_batch) * tokens() * token_cache() : 0.0;
  }
  [[nodiscard]] double gpu() const {
    return gpu_weights() + weight_buffers() + gpu_cache() + cache_buffers() + gpu_hidden();
  }
  [[nodiscard]] double host() const { return host_weights() + host_cache() + host_hidden(); }
  /// Hidden states of a single micro-batch stay on the GPU.
  [[nodiscard]] double hidden_share() const { return plan_.batches > 1 ? plan_.hidden_host : 0.0; }

  [[nodiscard]] static Bytes part(double share, double bytes) {
    return Bytes(static_cast<std::int64_t>(std::round(share * bytes)));
  }

 private:
  [[nodiscard]] double layers() const { return real(deployment_.layers); }
  [[nodiscard]] double tokens() const { return real((padding_.input + padding_.output).count()); }
  [[nodiscard]] double cache() const { return real(plan_.block()) * tokens() * token_cache() * layers(); }
  [[nodiscard]] double hidden(std::int64_t requests) const {
    return real(requests) * real(padding_.input.count()) * token_hidden();
  }

  const Deployment& deployment_;
  const Plan plan_;
  const bool loads_cache_;
  const Padding padding_;
};

/// What GPU and host offer.
double gpu_memory(const Deployment& deployment) {
  const double memory = bytes_of(deployment.memory);
  if (!deployment.gpu_kv_given) return memory;
  return std::min(memory, bytes_of(deployment.weights) + bytes_of(deployment.gpu_kv));
}

std::string gpu_key(const Deployment& deployment) { return deployment.gpu_kv_given ? "memory.gpu_kv" : "hardware"; }

[[noreturn]] void refuse_unknown_host(const std::string& what, const std::string& key) {
  throw ConfigError(fmt::format("{}, but nothing is known of the host of this hardware", what), "hardware",
                    fmt::format("name a server, which has a host, or set {}", key));
}

// --- the cost model
// --------------------------------------------------------------------------------------------------------------------

/// The model in the cost model's terms. An MLP of three matrices is one of two that is wider by half.
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

/// Of attention to the cache: each number, kNumber bytes, is multiplied and added for every query that shares it.
double flop_per_byte(const FlexgenModel& model) { return 2.0 / kNumber * real(model.query) / real(model.kv); }

/// Rates of the hardware profile, from the times of a GPU batch's own iterations. One rate for all GPU batches, as in
/// FlexGen's fit, would make the search find one request at a time as fast as many.
class Probe {
 public:
  Probe(const Deployment& deployment, const FlexgenModel& model, const Padding& padding, std::int64_t gpu_batch)
      : execution_(*deployment.model),
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
  static constexpr std::int64_t kPiece = 16;  // tokens: attention within them is next to nothing
  static constexpr Bytes kLarge{1'000'000'000};

  [[nodiscard]] double bandwidth(Stream stream) const {
    const CopyTime time = execution_.copy(stream, 1, kLarge, CopyMechanism::single);
    return bytes_of(kLarge) / to_seconds(time.launch + time.transfer);
  }
  /// Attention costs at least what rounding could hide.
  [[nodiscard]] static double beyond(double with, double without) { return std::max(with - without, 1e-6 * with); }
  /// A layer over requests_ prompts, cut into sequences of at most `length`.
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

/// What the search may use; its memory is what is left beside what no layer owns.
FlexgenHardware search_hardware(const Deployment& deployment, const Settings& settings, const FlexgenModel& model,
                                std::int64_t gpu_batch) {
  const std::optional<Bytes> host = host_memory(deployment, settings);
  if (!host) refuse_unknown_host("FlexGen's policy search must know the host's memory", "policy.host_memory");
  const bool cpu_attention = settings.get<bool>("policy.cpu_attention");
  const bool published = settings.get<std::string>("policy.constants") == "published";
  FlexgenHardware hardware = t4_constants();
  if (!published) {
    Probe(deployment, model, padding_of(settings), gpu_batch).fill(hardware);
    hardware.cpu_batch_and_hidden = hardware.cpu_batch = hardware.cpu_hidden = 0.0;
    // The engine's reserve is off the GPU's memory already.
    hardware.usable = 1.0;
    if (cpu_attention) {
      if (!deployment.cpu_attention_bandwidth) {
        refuse_unknown_host("FlexGen's policy search must know how fast the CPU attends", "policy.cpu_attention=false");
      }
      hardware.cpu_attention = *deployment.cpu_attention_bandwidth / kAttentionTraffic * flop_per_byte(model);
    }
  }
  if (!cpu_attention) {
    // Cache on the host is loaded before the GPU attends to it: in the model's terms an attention as slow as the link.
    hardware.cpu_attention = hardware.h2d * flop_per_byte(model);
    hardware.cpu_batch_and_hidden = hardware.cpu_batch = hardware.cpu_hidden = 0.0;
  }
  const double layers = bytes_of(deployment.layer_weights) * real(deployment.layers);
  hardware.gpu_memory = gpu_memory(deployment) - (bytes_of(deployment.weights) - layers);
  hardware.cpu_memory = bytes_of(*host);
  hardware.disk_memory = 0.0;
  return hardware;
}

/// A block of one request with all that can be on the host there.
[[noreturn]] void refuse_search(const Deployment& deployment, const FlexgenModel& model,
                                const FlexgenWorkload& workload, FlexgenHardware hardware) {
  const double left = hardware.gpu_memory;
  hardware.gpu_memory = std::max(left, 1.0);
  const FlexgenShares away{.gpu = 0.0, .cpu = 1.0, .disk = 0.0};
  const FlexgenEstimate least =
      flexgen_estimate(model, workload, hardware, {.weights = away, .cache = away, .hidden = away});
  const bool gpu_too_small = least.gpu_peak > hardware.usable * left;
  throw ConfigError(
      fmt::format("no placement of even one request of {} + {} tokens fits: with everything on the host it takes at "
                  "its peak {:.3f} GB of the GPU, which has {:.3f} GB beside the weights outside layers, and {:.3f} GB "
                  "of the host, which has {:.3f} GB; the search uses {:.0f}% of each",
                  workload.prompt, workload.generated, gigabytes(least.gpu_peak), gigabytes(left),
                  gigabytes(least.cpu_peak), gigabytes(hardware.cpu_memory), 100.0 * hardware.usable),
      gpu_too_small ? gpu_key(deployment) : "policy.host_memory",
      gpu_too_small ? "choose a GPU with more memory, or lower policy.pad_input"
                    : "raise policy.host_memory, choose a server with more DRAM, or lower policy.pad_input");
}

struct Choice {
  Plan plan{};
  std::string how;  // it came about
};

Choice search(const Deployment& deployment, const Settings& settings) {
  const FlexgenModel model = cost_model_of(deployment);
  const Padding padding = padding_of(settings);
  const FlexgenWorkload workload{padding.input.count(), padding.output.count()};
  const auto hardware = [&](std::int64_t gpu_batch) { return search_hardware(deployment, settings, model, gpu_batch); };
  const FlexgenHardware one = hardware(1);
  const std::optional<FlexgenChoice> found =
      one.gpu_memory > 0.0 ? flexgen_search(model, workload, hardware) : std::nullopt;
  if (!found) refuse_search(deployment, model, workload, one);
  const FlexgenPolicy& policy = found->policy;
  return {.plan = {policy.gpu_batch, policy.batches, policy.weights.cpu, policy.cache.cpu, policy.hidden.cpu},
          .how = fmt::format("found by its search, which expects {:.4g} tokens/s of full blocks",
                             found->estimate.throughput)};
}

/// The share of every layer's weights that keeps a layer within its objective, by what the datasheet promises.
Choice keep_objective(const Deployment& deployment, const Settings& settings) {
  if (deployment.peak_flops <= 0.0) {
    throw ConfigError("policy.slo_margin needs the GPU's peak FLOP/s, which its profile does not state", "hardware",
                      "choose another GPU, or give policy.weights_host");
  }
  const Padding padding = padding_of(settings);
  const double requests = real(settings.get<std::int64_t>("policy.gpu_batch"));
  const double width = 4.0 * real(deployment.query_width);
  const double prompt = real(padding.input.count());
  const double context = prompt + real(padding.output.count()) / 2.0;
  const double weights = bytes_of(deployment.layer_weights);  // two bytes and two operations per number
  const double flop = settings.get<std::string>("policy.slo_phase") == "prefill"
                          ? requests * prompt * (weights + width * prompt)
                          : requests * (weights + width * context);
  const CopyTime copy = deployment.model->copy(Stream::h2d, 1, deployment.layer_weights, CopyMechanism::single);
  const double bandwidth = weights / to_seconds(copy.launch + copy.transfer);
  const double compute = flop / deployment.peak_flops;
  const double margin = settings.get<double>("policy.slo_margin");
  const double share = slo_aware_host_fraction(compute, margin, weights, bandwidth, deployment.gpus);
  return {.plan = {.gpu_batch = settings.get<std::int64_t>("policy.gpu_batch"), .weights_host = share},
          .how = fmt::format("a layer may take (1 + {:.4g}) x {:.4g} ms, its compute at {:.4g} TFLOP/s, and a GPU gets "
                             "1/{} of {:.4g} GB/s",
                             margin, compute * 1e3, deployment.peak_flops * 1e-12, deployment.gpus, bandwidth * 1e-9)};
}

Choice choose(const Deployment& deployment, const Settings& settings) {
  if (settings.has("policy.slo_margin")) return keep_objective(deployment, settings);
  if (settings.has(kPlacement[0])) return {.plan = Plan::of(settings), .how = "as given"};
  return search(deployment, settings);
}

// --- running
// --------------------------------------------------------------------------------------------------------------------

class FlexgenScheduler final : public Scheduler {
 public:
  explicit FlexgenScheduler(std::int64_t block) : block_(block) {}

  void arrived(const RequestView& request) override { waiting_.push_back(request.id); }
  void ended(RequestId, Outcome) override {}

  void decide(const View& view, const KvSpace& kv, Decision& decision) override {
    decision.decodes(view.batch().decoding);
    if (view.batch().running > 0) return;
    const auto entry = [](const RequestView& request) {
      return Entry{.upto = request.input + request.max_new_tokens, .hold = true, .compute = request.known};
    };
    admit_in_order(waiting_, block_, view, kv, decision, entry, [](const RequestView&, Tokens) {});
  }

 private:
  const std::int64_t block_;
  FcfsQueue waiting_;
};

class FlexgenLayers final : public LayerPolicy {
 public:
  FlexgenLayers(const PolicyContext& context, const Plan& plan)
      : deployment_(context.deployment),
        view_(context.view),
        plan_(plan),
        needs_(deployment_, context.settings, plan),
        cpu_attention_(context.settings.get<bool>("policy.cpu_attention")),
        padding_(padding_of(context.settings)),
        weights_(copy(Stream::h2d, bytes_of(needs_.layer_on_host()))),
        prompts_(static_cast<std::size_t>(plan.gpu_batch), PrefillChunk{padding_.input, Tokens(0)}) {}

  [[nodiscard]] Blocks capacity() const override { return view_.tier(Tier::gpu).total; }

  [[nodiscard]] std::span<const SubBatchShape> split(const BatchShape& shape) override {
    prefills_ = !shape.chunks.empty();
    if (prefills_) {
      block_ = static_cast<std::int64_t>(shape.chunks.size());
      generated_ = 0;
    }
    context_ = prefills_ ? Tokens(0) : shape.decode_longest;  // the same of all
    sub_batches_.clear();
    for (std::int64_t left = block_; left > 0; left -= plan_.gpu_batch) {
      sub_batches_.push_back(sub_batch(std::min(left, plan_.gpu_batch)));
    }
    return sub_batches_;
  }

  [[nodiscard]] LayerRule* begin(const BatchShape& /*shape*/, Duration /*layer*/) override {
    if (prefills_) rule_.end_block();
    ++generated_;
    copies_.clear();
    const std::int64_t last = block_ - plan_.gpu_batch * static_cast<std::int64_t>(sub_batches_.size() - 1);
    const ZigzagCopies full = step(std::min(block_, plan_.gpu_batch), prefills_, context_);
    const ZigzagCopies rest = last == plan_.gpu_batch ? full : step(last, prefills_, context_);
    for (std::int32_t layer = 0; layer < deployment_.layers; ++layer) {
      copies_.insert(copies_.end(), sub_batches_.size() - 1, full);
      copies_.push_back(rest);
    }
    std::optional<ZigzagCopies> next;
    if (!ends_block()) {
      const Tokens attended = prefills_ ? padding_.input + Tokens(1) : context_ + Tokens(1);
      next = step(std::min(block_, plan_.gpu_batch), false, attended);
    }
    rule_.begin_iteration(deployment_.layers, static_cast<std::int32_t>(sub_batches_.size()), copies_, next);
    return &rule_;
  }

  [[nodiscard]] LayerFigures figures() const override {
    return {.peak_host = Bytes(static_cast<std::int64_t>(std::round(needs_.host())))};
  }

 private:
  /// This iteration generates the last token: nobody will read its KV.
  [[nodiscard]] bool ends_block() const { return generated_ == padding_.output.count(); }

  [[nodiscard]] SubBatchShape sub_batch(std::int64_t requests) const {
    SubBatchShape part;
    part.shape.sampled_sequences = requests;
    if (prefills_) {
      part.shape.chunks = std::span(prompts_).first(static_cast<std::size_t>(requests));
      return part;
    }
    const double attended = real(requests * context_.count());
    part.shape.decode_sequences = requests;
    part.shape.decode_context = Tokens(requests * context_.count());
    if (!cpu_attention_ || plan_.cache_host == 0.0) return part;
    const double on_host = plan_.cache_host * attended;
    // A sequence attends to a token at least, its newest.
    part.shape.decode_context = std::max(Tokens(requests), Tokens(std::llround(attended - on_host)));
    const Bytes read = Needs::part(needs_.token_cache(), on_host);
    part.cpu_attention = round_seconds(bytes_of(read) * kAttentionTraffic / *deployment_.cpu_attention_bandwidth);
    return part;
  }

  /// What one step of so many requests loads and stores.
  [[nodiscard]] ZigzagCopies step(std::int64_t requests, bool prefills, Tokens context) const {
    ZigzagCopies copies;
    copies.weights = weights_;
    const double computed = real(requests) * (prefills ? real(padding_.input.count()) : 1.0);
    if (plan_.cache_host > 0.0) {
      const double token = plan_.cache_host * needs_.token_cache();
      if (!prefills && !cpu_attention_) {
        copies.kv_load = copy(Stream::h2d, token * real(requests * (context.count() - 1)));
      }
      if (!ends_block()) copies.kv_store = copy(Stream::d2h, token * computed);
    }
    if (plan_.hidden_host > 0.0 && sub_batches_.size() > 1) {
      const double states = plan_.hidden_host * needs_.token_hidden() * computed;
      copies.hidden_load = copy(Stream::h2d, states);
      copies.hidden_store = copy(Stream::d2h, states);
    }
    return copies;
  }

  [[nodiscard]] Copy copy(Stream stream, double amount) const {
    const Bytes bytes = Needs::part(1.0, amount);
    if (bytes == Bytes(0)) return {};
    const CopyTime time = deployment_.model->copy(stream, 1, bytes, CopyMechanism::single);
    return {.stream = stream, .bytes = bytes, .launch = time.launch, .transfer = time.transfer};
  }

  const Deployment& deployment_;
  const View& view_;
  const Plan plan_;
  const Needs needs_;
  const bool cpu_attention_;
  const Padding padding_;
  const Copy weights_;
  const std::vector<PrefillChunk> prompts_;  // of a whole micro-batch
  ZigzagRule rule_;

  // The block that runs
  std::int64_t block_ = 0;      // requests that began it
  std::int64_t generated_ = 0;  // iterations that it has begun
  // Its iteration
  bool prefills_ = false;
  Tokens context_{};  // that every sequence attends to; 0: prefill
  std::vector<SubBatchShape> sub_batches_;
  std::vector<ZigzagCopies> copies_;  // by step
};

// --- set-up
// --------------------------------------------------------------------------------------------------------------------

void check_length(const Deployment& deployment, const Padding& padding) {
  const Tokens longest = padding.input + padding.output;
  if (deployment.positions == Tokens(0) || longest <= deployment.positions) return;
  throw ConfigError(
      fmt::format("policy.pad_input={} + policy.pad_output={} = {} tokens are more than the {} of the "
                  "model",
                  padding.input.count(), padding.output.count(), longest.count(), deployment.positions.count()),
      "policy.pad_input", "lower policy.pad_input or policy.pad_output");
}

void check_gpu(const Deployment& deployment, const Settings& settings, const Needs& needs) {
  const double memory = gpu_memory(deployment);
  if (needs.gpu() <= memory) return;
  throw ConfigError(
      fmt::format("weights {:.3f} GB + two layers' weights from the host {:.3f} GB + KV {:.3f} GB + KV from the host "
                  "{:.3f} GB + hidden states {:.3f} GB = {:.3f} GB do not fit the {:.3f} GB that the policy may use on "
                  "the GPU beside the engine's activations",
                  gigabytes(needs.gpu_weights()), gigabytes(needs.weight_buffers()), gigabytes(needs.gpu_cache()),
                  gigabytes(needs.cache_buffers()), gigabytes(needs.gpu_hidden()), gigabytes(needs.gpu()),
                  gigabytes(memory)),
      gpu_key(deployment),
      settings.has("policy.slo_margin")
          ? "raise policy.slo_margin, lower policy.gpu_batch, or choose a GPU with more memory"
          : "raise policy.weights_host, policy.cache_host or policy.hidden_host, or lower policy.gpu_batch or "
            "policy.batches");
}

void check_host(const Deployment& deployment, const Settings& settings, const Needs& needs) {
  const std::optional<Bytes> memory = host_memory(deployment, settings);
  if (!memory || needs.host() <= bytes_of(*memory)) return;
  throw ConfigError(
      fmt::format("weights {:.3f} GB + KV {:.3f} GB + hidden states {:.3f} GB = {:.3f} GB do not fit the {:.3f} GB of "
                  "the host",
                  gigabytes(needs.host_weights()), gigabytes(needs.host_cache()), gigabytes(needs.host_hidden()),
                  gigabytes(needs.host()), gigabytes(bytes_of(*memory))),
      "policy.host_memory",
      "lower policy.gpu_batch, policy.batches or the shares on the host, choose a server with more DRAM, or set "
      "policy.host_memory for a host that has more");
}

Layout layout(const Deployment& deployment, const Settings& settings) {
  const Padding padding = padding_of(settings);
  check_length(deployment, padding);
  const Choice choice = choose(deployment, settings);
  const Plan& plan = choice.plan;
  const bool attends = settings.get<bool>("policy.cpu_attention") && plan.cache_host > 0.0;
  if (attends && !deployment.cpu_attention_bandwidth) {
    refuse_unknown_host("the CPU is to attend to the KV on the host", "policy.cpu_attention=false");
  }
  const Needs needs(deployment, settings, plan);
  check_gpu(deployment, settings, needs);
  check_host(deployment, settings, needs);
  const Blocks blocks = blocks_for(padding.input + padding.output, deployment.block_tokens) * plan.block();
  Layout layout{
      .blocks = blocks,
      .most = blocks,
      .host = Bytes(static_cast<std::int64_t>(std::round(needs.host()))),
      .terms = fmt::format("FlexGen: blocks of {} x {} requests of {} + {} tokens, {:.4g}% of the weights, "
                           "{:.4g}% of the KV{} and {:.4g}% of the hidden states on the host, {}",
                           plan.gpu_batch, plan.batches, padding.input.count(), padding.output.count(),
                           100.0 * plan.weights_host, 100.0 * plan.cache_host,
                           attends ? " (the CPU attends to it)" : "", 100.0 * needs.hidden_share(), choice.how)};
  plan.write(layout.chosen);
  return layout;
}

void check_placement(const Settings& settings, std::vector<Problem>& problems) {
  std::vector<std::string> given;
  std::vector<std::string> missing;
  for (const char* key : kPlacement) (settings.has(key) ? given : missing).emplace_back(key);
  if (settings.has("policy.slo_margin")) {
    if (!settings.has(kPlacement[0])) {
      problems.push_back({"policy.slo_margin fixes all of the placement but policy.gpu_batch, which is missing",
                          "policy.slo_margin", "give policy.gpu_batch too"});
    }
    std::erase(given, kPlacement[0]);
    if (!given.empty()) {
      problems.push_back({fmt::format("policy.slo_margin says itself what {} is", fmt::join(given, ", ")),
                          given.front(), "leave it out, or leave out policy.slo_margin"});
    }
    return;
  }
  if (given.empty() || missing.empty()) return;
  problems.push_back({fmt::format("{} given, but {} missing: a placement is given whole, or searched for",
                                  fmt::join(given, ", "), fmt::join(missing, ", ")),
                      given.front(), fmt::format("give {} too, or none of them", fmt::join(missing, ", "))});
}

std::vector<Problem> check(const Settings& settings) {
  std::vector<Problem> problems;
  check_placement(settings, problems);
  refuse_swap(settings, "policy flexgen never preempts, so it cannot swap", "leave engine.preemption at recompute",
              problems);
  refuse_chunked_prefill(settings, "flexgen", problems);
  if (settings.has("memory.host_cache") && settings.get<Bytes>("memory.host_cache") > Bytes(0)) {
    problems.push_back(
        {"policy flexgen pads every prompt: it has no prefix cache", "memory.host_cache", "leave it at 0B"});
  }
  if (settings.has("engine.prefix_caching") && settings.get<std::string>("engine.prefix_caching") == "true") {
    problems.push_back({"policy flexgen pads every prompt: it has no prefix cache", "engine.prefix_caching",
                        "leave it at auto, or set it to false"});
  }
  if (settings.has("tensor_parallel") && settings.get<std::int64_t>("tensor_parallel") > 1) {
    problems.push_back({"policy flexgen runs on one GPU: its pipeline over several is not modelled", "tensor_parallel",
                        "set it to 1"});
  }
  return problems;
}

std::vector<Parameter> parameters() {
  const std::string searched = "FlexGen, section 4.3: part of the policy that its search chooses";
  const auto share = [&](const std::string& name, const std::string& what) {
    return Parameter{.name = name,
                     .type = ParameterType::real,
                     .unit = "fraction",
                     .default_value = "",
                     .minimum = 0.0,
                     .maximum = 1.0,
                     .doc = what + " on the host, the rest on the GPU; default: the policy search decides",
                     .source = searched};
  };
  const auto count = [&](const std::string& name, const std::string& unit, const std::string& doc) {
    return Parameter{.name = name,
                     .type = ParameterType::integer,
                     .unit = unit,
                     .default_value = "",
                     .minimum = 1.0,
                     .maximum = 1e5,
                     .doc = doc + "; default: the policy search decides",
                     .source = searched};
  };
  const auto length = [](const std::string& name, const std::string& standard, const std::string& what) {
    return Parameter{.name = name,
                     .type = ParameterType::integer,
                     .unit = "tokens",
                     .default_value = standard,
                     .minimum = 1.0,
                     .maximum = 1e6,
                     .doc = "Every " + what + " is padded to this length; longer ones are rejected",
                     .source =
                         "Spillway: prompts and answers of chat, up to 1,024 and 512 tokens, fit the 2,048 "
                         "positions of OPT; FlexGen is given one prompt length and one gen_len per run"};
  };
  return {
      count("policy.gpu_batch", "requests", "Requests that the GPU computes at a time, a micro-batch"),
      count("policy.batches", "1", "Micro-batches of a block"),
      share("policy.weights_host", "Share of every layer's weights"),
      share("policy.cache_host", "Share of the KV cache"),
      share("policy.hidden_host", "Share of the hidden states of a block of two or more micro-batches"),
      length("policy.pad_input", "1024", "prompt"),
      length("policy.pad_output", "512", "answer"),
      {.name = "policy.cpu_attention",
       .type = ParameterType::boolean,
       .unit = "-",
       .default_value = "true",
       .doc = "Attention over the host's share of the KV is the CPU's while decoding; else that share is loaded at "
              "every step",
       .source = "FlexGen, section 4.2: computation delegation; --cpu-cache-compute"},
      {.name = "policy.constants",
       .type = ParameterType::choice,
       .unit = "-",
       .default_value = "profile",
       .choices = {"profile", "published"},
       .doc =
           "Speeds that the policy search reckons with: those of the hardware profile for each GPU batch, and all of "
           "both memories; "
           "or the ones that FlexGen fitted to a T4, and 80% of them",
       .source = "FlexGen, experimental/cost_model.py (19753bc); the GPU's and host's own speeds are Spillway's"},
      {.name = "policy.slo_margin",
       .type = ParameterType::real,
       .unit = "fraction",
       .default_value = "",
       .minimum = 0.0,
       .maximum = 100.0,
       .doc = "SLO-aware variant: the most weights go to the host for which a layer, by the GPU's peak rate and its "
              "share of the bus, takes at most 1 + this of its compute; one micro-batch of policy.gpu_batch, KV "
              "and hidden states on the GPU",
       .source = "Select-N, section 5: FlexGen modified to keep an SLO; how is not published"},
      {.name = "policy.slo_phase",
       .type = ParameterType::choice,
       .unit = "-",
       .default_value = "prefill",
       .choices = {"prefill", "decode"},
       .doc = "The iteration whose compute policy.slo_margin is of; the weights stay where they are in both",
       .source = "Spillway: Select-N does not say; decode at the peak rate would leave almost all weights on the "
                 "GPU"},
      {.name = "policy.host_memory",
       .type = ParameterType::bytes,
       .unit = "bytes",
       .default_value = "",
       .minimum = 1.0,
       .maximum = 1e15,
       .doc = "Host memory that weights, KV and hidden states of one GPU may take; default: what the host has for each "
              "GPU, where that is known",
       .source = "FlexGen, experimental/cost_model.py: --cpu-mem"}};
}

PolicyInfo info() {
  PolicyInfo info;
  info.name = "flexgen";
  info.summary =
      "FlexGen: padded blocks run to completion, micro-batches zig-zag through layers that stream from the host";
  info.source =
      "Sheng et al., FlexGen, ICML 2023, section 4 and Algorithm 1; FMInference/FlexGen (19753bc), flexgen/flex_opt.py "
      "and experimental/cost_model.py";
  info.limits =
      "No disk, no compression, one GPU. Shares are exact fractions of every layer; FlexGen rounds them to whole "
      "matrices. Attention and MLP of a layer are one step, not two. Intermediates of a micro-batch are the engine's "
      "reserve (engine.max_num_batched_tokens); only the policy search reckons with FlexGen's own estimate of them. "
      "KV blocks count what a block of requests takes wherever it lives. Times per token are those of computing them, "
      "while the end of a request is that of its block.";
  info.parameters = parameters();
  info.preempts = false;
  info.shares_prefixes = false;
  info.default_engine = [](const Settings&) { return "flexgen"; };
  info.engine_defaults = [](const Settings&) {
    return std::map<std::string, std::string>{{"engine.chunked_prefill", "false"},
                                              {"engine.gpu_memory_utilization", "1"}};
  };
  info.check = check;
  info.make = [](const PolicyContext& context) {
    const Plan plan = Plan::of(context.deployment.chosen);
    Policy policy;
    policy.scheduler = std::make_unique<FlexgenScheduler>(plan.block());
    policy.space = std::make_unique<PagedSpace>(context.view, PagedSpaceOptions{});
    policy.layers = std::make_unique<FlexgenLayers>(context, plan);
    policy.padding = padding_of(context.settings);
    return policy;
  };
  info.layout = layout;
  return info;
}

const RegisterPolicy kRegistered(info());

}  // namespace
}  // namespace spillway
