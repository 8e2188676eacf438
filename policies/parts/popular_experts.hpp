// A static choice of experts that stay on the GPU.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "policies/parts/expert_layers.hpp"

namespace spillway {

/// Which experts of which layers are on the GPU. holds() is O(1).
class ResidentExperts {
 public:
  explicit ResidentExperts(const ExpertDeployment& experts)
      : count_(static_cast<std::size_t>(experts.count)),
        held_(count_ * static_cast<std::size_t>(experts.expert_layers()), 0) {}
  [[nodiscard]] bool holds(std::int32_t layer, std::int32_t expert) const { return held_[at(layer, expert)] != 0; }
  void set(std::int32_t layer, std::int32_t expert, bool held = true) {
    held_[at(layer, expert)] = static_cast<std::uint8_t>(held);
  }
  /// Of each expert of a layer, 1: it is there; 0: it is not.
  [[nodiscard]] std::span<const std::uint8_t> of(std::int32_t layer) const {
    return std::span(held_).subspan(at(layer, 0), count_);
  }
  /// Of one layer. O(experts).
  [[nodiscard]] std::int64_t on_gpu(std::int32_t layer) const { return std::ranges::count(of(layer), 1); }

 private:
  [[nodiscard]] std::size_t at(std::int32_t layer, std::int32_t expert) const {
    return static_cast<std::size_t>(layer) * count_ + static_cast<std::size_t>(expert);
  }
  std::size_t count_;
  std::vector<std::uint8_t> held_;
};

/// The `number` most popular experts of all layers; of equal ones those of the first layer, then by its ranking. Needs
/// the deployment's activation.
[[nodiscard]] inline ResidentExperts most_popular(const ExpertDeployment& experts, std::int64_t number) {
  struct Candidate {
    double popularity = 0.0;
    std::int32_t layer = 0;
    std::int32_t expert = 0;
  };
  std::vector<Candidate> all;
  for (std::int32_t layer = 0; layer < experts.expert_layers(); ++layer) {
    for (const std::int32_t expert : experts.activation->by_popularity(layer)) {
      all.push_back({experts.activation->popularity(layer, expert), layer, expert});
    }
  }
  std::ranges::stable_sort(all, [](const Candidate& a, const Candidate& b) { return a.popularity > b.popularity; });
  ResidentExperts resident(experts);
  const auto most = std::min(static_cast<std::size_t>(number), all.size());
  for (std::size_t i = 0; i < most; ++i) resident.set(all[i].layer, all[i].expert);
  return resident;
}

/// How many experts are on the GPU; `of`: "experts of all layers", "experts of each layer".
[[nodiscard]] Parameter gpu_experts_parameter(const std::string& name, const std::string& of,
                                              const std::string& source);
/// The layout with settings[key] experts on the GPU, of `all` that can be there, each of which stands for `each`
/// experts of the model. Default: as many as leave the KV cache memory.gpu_kv, or 32,768 tokens; at least `least`.
/// Layout::chosen has the number under `key`.
[[nodiscard]] Layout lay_out_popular(const Deployment& deployment, const Settings& settings, const std::string& key,
                                     std::int64_t all, Bytes buffers, std::int64_t each = 1, std::int64_t least = 0);

}  // namespace spillway
