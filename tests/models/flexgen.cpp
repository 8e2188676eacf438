// FlexGen in plain words. Rules: Sheng et al., ICML 2023, section 4 and Algorithm 1; FMInference/FlexGen (19753bc);
// the placement of memory and the padding as policies/flexgen.cpp documents them.
//
//  1. Requests are padded to pad_input + pad_output tokens. When nothing runs, up to gpu_batch * batches waiting ones
//     become a block, first come first served: an iteration for all prompts, then one per token. Nobody joins a block,
//     and who leaves it is computed on.
//  2. The block computes layer by layer, and in a layer micro-batch by micro-batch. Beside such a step run the loads of
//     what the next one needs and the stores of what the one before left; a layer's weights are loaded beside the first
//     step of the layer before it. The next step starts when all of this is done. While the CPU attends, nobody starts
//     copies: then a layer's weights are loaded before that first step, and nothing beside them.
//  3. A block's first step has its data loaded ahead of it, which is waited for. From one iteration of the block to the
//     next the last step plays the part of the step before. What the last step of a block leaves is not stored.
//  4. Shares of every layer's weights, of the KV and, with two micro-batches or more, of the hidden states are on the
//     host. Of the weights these are whole matrices, each copied on its own: from the attention and the MLP block every
//     one whose middle lies before that share of the block. While decoding the CPU attends to its share of the KV, at a
//     fixed cost and five bytes of traffic for each, in series with the GPU; or that share of all tokens but the newest
//     is loaded. The share of new KV is stored unless the block ends.
//  5. Where the placement is not given, it is the fastest by FlexGen's cost model, or the one that leaves as many
//     weights on the host as an objective allows.
#include "tests/models/flexgen.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <utility>

#include "tests/models/counting.hpp"
#include "tests/models/plain_policy.hpp"

namespace spillway::oracle {
namespace {

double number(std::int64_t count) { return static_cast<double>(count); }
double number(Bytes bytes) { return number(bytes.count()); }
double number(Tokens tokens) { return number(tokens.count()); }
Bytes whole(double bytes) { return Bytes(std::llround(bytes)); }

// --- who runs
// --------------------------------------------------------------------------------------------------------------------

class FlexgenBlocks final : public Scheduler {
 public:
  explicit FlexgenBlocks(std::int64_t size) : size_(size) {}

  void arrived(const RequestView& request) override { waiting_.push_back(request.id); }
  void ended(RequestId, Outcome) override {}
  void decide(const View& view, const KvSpace&, Decision& decision) override {
    forget_ended(block_, view);
    forget_ended(waiting_, view);
    decision.decodes(count(block_));
    if (!block_.empty()) return;
    while (!waiting_.empty()) {
      const RequestView request = view.request(waiting_.front());
      const Tokens all = request.input + request.max_new_tokens;
      if (count(block_) == size_) return decision.blocked(Blocked::batch_size);
      if (blocks_of(view, all.count()) > free_blocks(view)) return decision.blocked(Blocked::kv_capacity);
      decision.join(request.id);
      decision.reserve(request.id, all);
      decision.chunk(request.id, request.input);
      block_.push_back(request.id);
      waiting_.erase(waiting_.begin());
    }
  }

 private:
  const std::int64_t size_;
  Ids waiting_;
  Ids block_;
};

// --- what each step copies
// --------------------------------------------------------------------------------------------------------------------

struct Amounts {
  double bytes_of_kv = 0.0;  // of a token in one layer
  double bytes_of_hidden = 0.0;
  Bytes layer_on_host{};
  std::int64_t matrices = 0;  // of a layer, on the host
};

Amounts amounts(const Deployment& deployment, const FlexgenPlacement& placement) {
  const double tokens = number(deployment.block_tokens) * number(deployment.layers);
  const FlexgenWeights weights = flexgen_weights(deployment, placement.weights_host);
  return {.bytes_of_kv = number(deployment.block_bytes) / tokens,
          .bytes_of_hidden = 2.0 * number(deployment.hidden),
          .layer_on_host = whole(weights.share * number(deployment.layer_weights)),
          .matrices = weights.matrices};
}

/// The block's hidden states are on the host in part only if another micro-batch computes meanwhile.
double hidden_on_host(const FlexgenPlacement& placement) {
  return placement.batches == 1 ? 0.0 : placement.hidden_host;
}

/// Starts what has been noted for each step, and holds a step until everything that was started has ended.
class StepByStep final : public LayerRule {
 public:
  using Copies = std::vector<Copy>;

  /// `ahead`: waited for before each of the steps, one list after the other; there are micro_batches steps a layer.
  void begin(std::vector<std::vector<Copies>> ahead, std::vector<Copies> beside, std::int32_t micro_batches) {
    ahead_ = std::move(ahead);
    beside_ = std::move(beside);
    micro_batches_ = micro_batches;
  }
  void at_layer_start(std::int32_t layer, std::int32_t sub_batch, CopySink& sink) override {
    step_ = static_cast<std::size_t>(layer) * static_cast<std::size_t>(micro_batches_) +
            static_cast<std::size_t>(sub_batch);
    held_ = true;
    if (under_way_ == 0) go(sink);
  }
  void at_copy_done(const Copy&, CopySink& sink) override {
    --under_way_;
    if (held_ && under_way_ == 0) go(sink);
  }
  [[nodiscard]] bool ready(std::int32_t, std::int32_t) const override { return !held_; }

 private:
  void go(CopySink& sink) {
    std::vector<Copies>& ahead = ahead_[step_];
    while (!ahead.empty()) {
      const Copies first = ahead.front();
      ahead.erase(ahead.begin());
      start(first, sink);
      if (under_way_ > 0) return;
    }
    held_ = false;
    start(beside_[step_], sink);
  }
  void start(const Copies& copies, CopySink& sink) {
    for (const Copy& copy : copies) {
      ++under_way_;
      sink.issue(copy);
    }
  }

  std::vector<std::vector<Copies>> ahead_;
  std::vector<Copies> beside_;
  std::int32_t micro_batches_ = 1;
  std::size_t step_ = 0;
  bool held_ = false;
  int under_way_ = 0;
};

/// Of so many requests, padded, in all layers.
double kv_of(double requests, const Deployment& deployment, const Settings& settings) {
  const std::int64_t tokens =
      settings.get<std::int64_t>("policy.pad_input") + settings.get<std::int64_t>("policy.pad_output");
  return requests * number(tokens) * number(deployment.block_bytes) / number(deployment.block_tokens);
}

class FlexgenSteps final : public LayerPolicy {
 public:
  explicit FlexgenSteps(const PolicyContext& context)
      : deployment_(context.deployment),
        view_(context.view),
        placement_(flexgen_placement(context.deployment.chosen)),
        amounts_(amounts(deployment_, placement_)),
        pad_input_(context.settings.get<std::int64_t>("policy.pad_input")),
        pad_output_(context.settings.get<std::int64_t>("policy.pad_output")),
        cpu_attention_(context.settings.get<bool>("policy.cpu_attention")),
        pinned_(context.settings.get<bool>("policy.pin_weights")),
        prompts_(static_cast<std::size_t>(placement_.gpu_batch), PrefillChunk{Tokens(pad_input_), Tokens(0)}) {
    const double most = number(placement_.gpu_batch * placement_.batches);
    away_ = placement_.cache_host * kv_of(most, deployment_, context.settings);
    if (context.settings.get<std::string>("policy.swap_tier") != "peer") return;
    for (const TierSpec& tier : context.graph.tiers) {
      if (tier.name == "peer") lent_ = deployment_.block_bytes * tier.blocks.count();
    }
  }

  [[nodiscard]] Blocks capacity() const override { return view_.tier(kGpuTier).total; }

  [[nodiscard]] std::span<const SubBatchShape> split(const BatchShape& shape) override {
    if (!shape.chunks.empty()) {
      requests_ = static_cast<std::int64_t>(shape.chunks.size());
      tokens_ = 0;
      // A block asks the other GPU for all that its own does not keep.
      const Bytes wanted = whole(number(requests_) / number(placement_.gpu_batch * placement_.batches) * away_);
      on_peer_ = wanted > Bytes(0) && wanted <= lent_;
    }
    ++tokens_;
    sizes_.clear();
    for (std::int64_t i = 0; i < requests_; ++i) {
      if (i % placement_.gpu_batch == 0) sizes_.push_back(0);
      ++sizes_.back();
    }
    shapes_.clear();
    for (const std::int64_t size : sizes_) shapes_.push_back(shape_of(size));
    return shapes_;
  }

  [[nodiscard]] LayerRule* begin(const BatchShape&, const LayerCompute&) override {
    // Every step of this iteration, and the one that follows where the block goes on.
    struct Step {
      bool first_of_layer;
      std::int64_t size;
      std::int64_t token;
    };
    std::vector<Step> steps;
    for (std::int32_t layer = 0; layer < deployment_.layers; ++layer) {
      for (std::size_t k = 0; k < sizes_.size(); ++k) steps.push_back({k == 0, sizes_[k], tokens_});
    }
    const std::size_t count = steps.size();
    if (tokens_ < pad_output_) steps.push_back({true, sizes_.front(), tokens_ + 1});

    std::vector<std::vector<StepByStep::Copies>> ahead(count);
    if (tokens_ == 1) {
      left_.clear();
      StepByStep::Copies& all = ahead[0].emplace_back();
      add_weights(all);
      load(all, steps[0].size, 1);
    }
    const bool weights_alone = tokens_ > 1 && cpu_attention_ && placement_.cache_host > 0.0;
    std::vector<StepByStep::Copies> beside(count);
    for (std::size_t i = 0; i < count; ++i) {
      beside[i] = std::exchange(left_, {});
      store(left_, steps[i].size, steps[i].token);
      const std::size_t next_layer = i + sizes_.size();
      if (steps[i].first_of_layer && next_layer < steps.size()) {
        add_weights(weights_alone ? ahead[i].emplace_back() : beside[i]);
      }
      if (i + 1 < steps.size()) load(beside[i], steps[i + 1].size, steps[i + 1].token);
    }
    rule_.begin(std::move(ahead), std::move(beside), static_cast<std::int32_t>(sizes_.size()));
    return &rule_;
  }

 private:
  /// Tokens that a sequence attends to when the block generates its `token`-th, this one's predecessor included; the
  /// first is the prompts'.
  [[nodiscard]] std::int64_t attended(std::int64_t token) const { return pad_input_ + token - 1; }

  [[nodiscard]] SubBatchShape shape_of(std::int64_t size) {
    SubBatchShape part;
    part.shape.sampled_sequences = size;
    if (tokens_ == 1) {
      part.shape.chunks = std::span(prompts_).first(static_cast<std::size_t>(size));
      return part;
    }
    part.shape.decode_sequences = size;
    const std::int64_t context = size * attended(tokens_);
    part.shape.decode_context = Tokens(context);
    if (cpu_attention_ && placement_.cache_host > 0.0) {
      const double cpus = placement_.cache_host * number(context);
      const std::int64_t gpus = std::llround(number(context) - cpus);
      part.shape.decode_context = Tokens(std::max(gpus, size));  // the newest of each sequence is there
      const double traffic = 5.0 * number(whole(amounts_.bytes_of_kv * cpus));
      part.cpu_attention =
          round_seconds(deployment_.cpu_attention_launch + traffic / *deployment_.cpu_attention_bandwidth);
    }
    return part;
  }

  [[nodiscard]] std::int64_t computed(std::int64_t size, std::int64_t token) const {
    return size * (token == 1 ? pad_input_ : 1);
  }
  [[nodiscard]] Bytes hidden(std::int64_t size, std::int64_t token) const {
    // A block that fills one micro-batch only has the states of no other to make room for.
    if (sizes_.size() == 1) return Bytes(0);
    return whole(hidden_on_host(placement_) * amounts_.bytes_of_hidden * number(computed(size, token)));
  }
  void load(StepByStep::Copies& copies, std::int64_t size, std::int64_t token) const {
    if (token > 1 && !cpu_attention_) {
      const std::int64_t stored = size * (attended(token) - 1);
      add(copies, on_peer_ ? Stream::peer_in : Stream::h2d,
          whole(placement_.cache_host * amounts_.bytes_of_kv * number(stored)));
    }
    add(copies, Stream::h2d, hidden(size, token));
  }
  void store(StepByStep::Copies& copies, std::int64_t size, std::int64_t token) const {
    if (token < pad_output_) {
      const double fresh = number(computed(size, token));
      add(copies, on_peer_ ? Stream::peer_out : Stream::d2h,
          whole(placement_.cache_host * amounts_.bytes_of_kv * fresh));
    }
    add(copies, Stream::d2h, hidden(size, token));
  }
  void add_weights(StepByStep::Copies& copies) const {
    const CopyMechanism how = pinned_ ? CopyMechanism::single : CopyMechanism::relay;
    add(copies, Stream::h2d, amounts_.layer_on_host, amounts_.matrices, how);
  }
  void add(StepByStep::Copies& copies, Stream stream, Bytes bytes, std::int64_t pieces = 1,
           CopyMechanism how = CopyMechanism::single) const {
    if (bytes == Bytes(0)) return;
    const CopyTime time = deployment_.model->copy(stream, pieces, bytes, how);
    Copy copy;
    copy.stream = stream;
    copy.bytes = bytes;
    copy.launch = time.launch;
    copy.transfer = time.transfer;
    copies.push_back(copy);
  }

  const Deployment& deployment_;
  const View& view_;
  const FlexgenPlacement placement_;
  const Amounts amounts_;
  const std::int64_t pad_input_;
  const std::int64_t pad_output_;
  const bool cpu_attention_;
  const bool pinned_;
  const std::vector<PrefillChunk> prompts_;  // of a whole micro-batch
  std::vector<SubBatchShape> shapes_;
  std::vector<std::int64_t> sizes_;  // of the micro-batches
  std::int64_t requests_ = 0;        // of the block, as it began
  double away_ = 0.0;                // bytes of KV that the GPU does not keep, of the largest block
  Bytes lent_{};                     // by another GPU
  bool on_peer_ = false;             // the block's KV that the GPU does not keep is there
  std::int64_t tokens_ = 0;          // that the block has generated when this iteration is over
  StepByStep::Copies left_;          // by the step before
  StepByStep rule_;
};

// --- where everything lives
// --------------------------------------------------------------------------------------------------------------------

double gpu_bytes(const Deployment& deployment) {
  const Bytes given = deployment.weights + deployment.gpu_kv;
  return number(deployment.gpu_kv_given && given < deployment.memory ? given : deployment.memory);
}

FlexgenPlacement place(const Deployment& deployment, const Settings& settings) {
  if (settings.has("policy.slo_margin")) return keep_objective(deployment, settings);
  if (settings.has("policy.gpu_batch")) return flexgen_placement(settings);
  return fastest_placement(deployment, settings).placement;
}

Layout lay_out(const Deployment& deployment, const Settings& settings) {
  const std::int64_t prompt = settings.get<std::int64_t>("policy.pad_input");
  const std::int64_t tokens = prompt + settings.get<std::int64_t>("policy.pad_output");
  if (deployment.positions > Tokens(0) && Tokens(tokens) > deployment.positions) {
    throw ConfigError("longer than the model's positions", "policy.pad_input");
  }
  const FlexgenPlacement placement = place(deployment, settings);
  const double requests = number(placement.gpu_batch) * number(placement.batches);
  const bool cpu_attention = settings.get<bool>("policy.cpu_attention");
  if (cpu_attention && placement.cache_host > 0.0 && !deployment.cpu_attention_bandwidth) {
    throw ConfigError("how fast the CPU attends is not known", "hardware");
  }
  const double layer = number(amounts(deployment, placement).layer_on_host);
  const double weights = layer * number(deployment.layers);
  const double kv = kv_of(requests, deployment, settings);
  const double state = 2.0 * number(deployment.hidden) * number(prompt);  // of one request
  const double away = hidden_on_host(placement);

  // On the GPU: what is not on the host; room for the layer that computes and the next one; for the KV that is loaded
  // of two micro-batches in one layer; for the hidden states of one.
  double gpu = number(deployment.weights) - weights + 2.0 * layer + (1.0 - placement.cache_host) * kv +
               (1.0 - away) * requests * state + away * number(placement.gpu_batch) * state;
  if (!cpu_attention) {
    const double of_batch = kv_of(number(placement.gpu_batch), deployment, settings) / number(deployment.layers);
    gpu += 2.0 * placement.cache_host * of_batch;
  }
  if (gpu > gpu_bytes(deployment)) {
    throw ConfigError("too much for the GPU", deployment.gpu_kv_given ? "memory.gpu_kv" : "hardware");
  }
  const double host = weights + placement.cache_host * kv + away * requests * state;
  const std::optional<Bytes> memory = flexgen_host_memory(deployment, settings);
  if (memory && host > number(*memory)) throw ConfigError("too much for the host", "policy.host_memory");

  Layout layout;
  const std::int64_t per_block = deployment.block_tokens.count();
  layout.blocks = layout.most = Blocks((tokens + per_block - 1) / per_block * placement.gpu_batch * placement.batches);
  layout.host = whole(host);
  layout.chosen.set("policy.gpu_batch", placement.gpu_batch);
  layout.chosen.set("policy.batches", placement.batches);
  layout.chosen.set("policy.weights_host", placement.weights_host);
  layout.chosen.set("policy.cache_host", placement.cache_host);
  layout.chosen.set("policy.hidden_host", placement.hidden_host);
  return layout;
}

const RegisterPlain kRegistered{
    PlainPolicy{.name = "flexgen",
                .make =
                    [](const PolicyContext& context) {
                      const FlexgenPlacement placement = flexgen_placement(context.deployment.chosen);
                      Policy policy;
                      policy.scheduler = std::make_unique<FlexgenBlocks>(placement.gpu_batch * placement.batches);
                      policy.space = std::make_unique<UnaskedSpace>();
                      policy.layers = std::make_unique<FlexgenSteps>(context);
                      return policy;
                    },
                .layout = lay_out,
                .explains_waiting = true}};

}  // namespace

FlexgenPlacement flexgen_placement(const Settings& settings) {
  return {.gpu_batch = settings.get<std::int64_t>("policy.gpu_batch"),
          .batches = settings.get<std::int64_t>("policy.batches"),
          .weights_host = settings.get<double>("policy.weights_host"),
          .cache_host = settings.get<double>("policy.cache_host"),
          .hidden_host = settings.get<double>("policy.hidden_host")};
}

std::optional<Bytes> flexgen_host_memory(const Deployment& deployment, const Settings& settings) {
  if (settings.has("policy.host_memory")) return settings.get<Bytes>("policy.host_memory");
  return deployment.host_memory;
}

}  // namespace spillway::oracle
