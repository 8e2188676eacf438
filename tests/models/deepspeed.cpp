// DeepSpeed ZeRO-Inference in plain words. Rules: Aminabadi et al., SC 2022, as Select-N compares with it.
//
//  1. All layers' weights live on the host. The GPU keeps what belongs to no layer, and buffers for two layers: the one
//     that computes and the one that is being fetched (a model of one layer has one). The rest of it is for KV,
//     unless memory.gpu_kv asks for less.
//  2. Every iteration fetches every layer anew. When a layer starts, its successor is fetched; the first layer is
//  fetched
//     when it starts itself. A layer computes when all of its weights are there.
//  3. policy.prefetch_fraction: of the successor's weights only this share, of bytes and time, each to the nearest
//  unit,
//     halves up. What is left is a copy of its own, when that layer starts, ahead of its successor's. Either copy has
//     the launch of a copy; one of no bytes is not made. What a layer fetches when it starts takes
//     policy.fetch_overhead more before it is copied.
//  4. Who runs is another policy's matter.
#include "tests/models/deepspeed.hpp"

#include <cmath>
#include <stdexcept>
#include <vector>

#include "tests/models/plain_policy.hpp"

namespace spillway::oracle {
namespace {

/// What is still to come of each layer before it may compute.
class FetchEveryLayer final : public LayerRule {
 public:
  FetchEveryLayer(const Deployment& deployment, double ahead, Duration overhead)
      : layers_(deployment.layers), missing_(static_cast<std::size_t>(deployment.layers)) {
    const Bytes bytes = deployment.layer_weights;
    const CopyTime time = deployment.model->copy(Stream::h2d, 1, bytes, CopyMechanism::single);
    whole_.bytes = bytes;
    whole_.launch = time.launch;
    whole_.transfer = time.transfer;
    const auto share = [&](std::int64_t amount) {
      return std::llround(std::floor(ahead * static_cast<double>(amount) + 0.5));
    };
    ahead_ = late_ = whole_;
    ahead_.bytes = Bytes(share(bytes.count()));
    if (ahead_.bytes == bytes) {
      late_.bytes = Bytes(0);
    } else if (ahead_.bytes > Bytes(0)) {
      ahead_.transfer = Duration(share(time.transfer.count()));
      late_.bytes = bytes - ahead_.bytes;
      late_.transfer = time.transfer - ahead_.transfer;
    }
    whole_.launch += overhead;
    late_.launch += overhead;
  }

  void at_layer_start(std::int32_t layer, std::int32_t sub_batch, CopySink& sink) override {
    if (sub_batch > 0) return;
    if (layer == 0) {
      for (Bytes& missing : missing_) missing = whole_.bytes;
      fetch(whole_, layer, sink);
    } else {
      fetch(late_, layer, sink);
    }
    if (layer + 1 < layers_) fetch(ahead_, layer + 1, sink);
  }
  void at_copy_done(const Copy& copy, CopySink&) override {
    missing_[static_cast<std::size_t>(copy.layer)] -= copy.bytes;
  }
  [[nodiscard]] bool ready(std::int32_t layer, std::int32_t) const override {
    return missing_[static_cast<std::size_t>(layer)] == Bytes(0);
  }

 private:
  static void fetch(Copy copy, std::int32_t layer, CopySink& sink) {
    if (copy.bytes == Bytes(0)) return;
    copy.stream = Stream::h2d;
    copy.layer = layer;
    sink.issue(copy);
  }

  const std::int32_t layers_;
  Copy whole_{};
  Copy ahead_{};
  Copy late_{};
  std::vector<Bytes> missing_;
};

Bytes for_kv(const Deployment& deployment) {
  const Bytes outside_layers = deployment.weights - deployment.layer_weights * deployment.layers;
  const Bytes buffers = deployment.layer_weights * (deployment.layers == 1 ? 1 : 2);
  return deployment.memory - outside_layers - buffers;
}

class DeepSpeedLayers final : public LayerPolicy {
 public:
  explicit DeepSpeedLayers(const PolicyContext& context)
      : blocks_(plain_deepspeed_layout(context.deployment, context.settings).blocks),
        rule_(context.deployment, context.settings.get<double>("policy.prefetch_fraction"),
              context.settings.get<Duration>("policy.fetch_overhead")) {}

  [[nodiscard]] Blocks capacity() const override { return blocks_; }
  [[nodiscard]] LayerRule* begin(const BatchShape&, const LayerCompute&) override { return &rule_; }

 private:
  const Blocks blocks_;
  FetchEveryLayer rule_;
};

/// What DeepSpeed runs under unless the user says otherwise.
const PlainPolicy& plain_scheduler() {
  const PlainPolicy* const model = find_plain("vllm-v0");
  if (model == nullptr) throw std::logic_error("no plain model of vllm-v0, which DeepSpeed runs under");
  return *model;
}

const RegisterPlain kRegistered{PlainPolicy{.name = "deepspeed",
                                            .make =
                                                [](const PolicyContext& context) {
                                                  Policy policy = plain_scheduler().make(context);
                                                  policy.layers = plain_deepspeed_layers(context);
                                                  return policy;
                                                },
                                            .layout = plain_deepspeed_layout,
                                            .vary =
                                                [](Dice& dice, Settings& settings) {
                                                  if (const auto& vary = plain_scheduler().vary) vary(dice, settings);
                                                  settings.set("policy.prefetch_fraction",
                                                               0.01 * static_cast<double>(dice.between(0, 100)));
                                                  settings.set("policy.fetch_overhead", Duration(dice.between(0, 50)));
                                                }}};

}  // namespace

std::unique_ptr<LayerPolicy> plain_deepspeed_layers(const PolicyContext& context) {
  return std::make_unique<DeepSpeedLayers>(context);
}

Layout plain_deepspeed_layout(const Deployment& deployment, const Settings& settings) {
  std::optional<Bytes> host = deployment.host_memory;
  if (settings.has("policy.host_memory")) host = settings.get<Bytes>("policy.host_memory");
  const Bytes weights = deployment.layer_weights * deployment.layers;
  if (host && weights > *host) throw ConfigError("the layers do not fit the host", "policy.host_memory");
  Bytes kv = for_kv(deployment);
  if (deployment.gpu_kv_given) {
    if (deployment.gpu_kv > kv) throw ConfigError("memory.gpu_kv does not fit the GPU", "memory.gpu_kv");
    kv = deployment.gpu_kv;
  }
  Layout layout;
  layout.blocks = layout.most = Blocks(kv.count() < 0 ? 0 : kv.count() / deployment.block_bytes.count());
  layout.host = weights;
  if (layout.blocks < Blocks(1)) {
    throw ConfigError("no KV block fits the GPU", deployment.gpu_kv_given ? "memory.gpu_kv" : "hardware");
  }
  return layout;
}

}  // namespace spillway::oracle
