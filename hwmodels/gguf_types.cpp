#include "hwmodels/gguf_types.hpp"

#include <algorithm>
#include <array>
#include <iterator>

namespace spillway::hwmodels {
namespace {

constexpr GgufBlock kQ40{32, 18};
constexpr GgufBlock kQ50{32, 22};
constexpr GgufBlock kQ80{32, 34};
constexpr GgufBlock kMxfp4{32, 17};
constexpr GgufBlock kIq4Xs{256, 136};
constexpr GgufBlock kQ2K{256, 84};
constexpr GgufBlock kQ3K{256, 110};
constexpr GgufBlock kQ4K{256, 144};
constexpr GgufBlock kQ5K{256, 176};
constexpr GgufBlock kQ6K{256, 210};

/// Of `layers` layers, those whose down matrix is in the better type.
using BetterLayer = bool (*)(std::int64_t layer, std::int64_t layers);

bool outer_and_every_third(std::int64_t layer, std::int64_t layers) {
  const std::int64_t eighth = layers / 8;
  return layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
}
bool first_sixteenth(std::int64_t layer, std::int64_t layers) { return layer < layers / 16; }
bool no_layer(std::int64_t /*layer*/, std::int64_t /*layers*/) { return false; }

struct FileType {
  std::string_view name;
  GgufBlock most;
  GgufBlock expert;  // gate and up of experts
  GgufBlock down;    // of dense MLPs
  GgufBlock expert_down;
  GgufBlock better_down;  // of both, in some layers
  BetterLayer better;
  GgufBlock head;
};

constexpr FileType one_block(std::string_view name, GgufBlock block, GgufBlock head = kQ6K) {
  return {name, block, block, block, block, block, no_layer, head};
}

constexpr std::array<FileType, 10> kFileTypes{{
    one_block("q4_0", kQ40),
    one_block("q5_0", kQ50),
    one_block("q8_0", kQ80, kQ80),
    {"q2_k", kQ2K, kQ2K, kQ3K, kQ3K, kQ3K, no_layer, kQ6K},
    {"q3_k_m", kQ3K, kQ3K, kQ4K, kQ4K, kQ5K, first_sixteenth, kQ6K},
    {"q4_k_m", kQ4K, kQ4K, kQ4K, kQ4K, kQ6K, outer_and_every_third, kQ6K},
    {"q5_k_m", kQ5K, kQ5K, kQ5K, kQ5K, kQ6K, outer_and_every_third, kQ6K},
    one_block("q6_k", kQ6K),
    one_block("iq4_xs", kIq4Xs),
    {"mxfp4_moe", kQ80, kMxfp4, kQ80, kMxfp4, kQ80, no_layer, kQ80},
}};

const FileType* file_type(std::string_view name) {
  const auto it = std::ranges::find(kFileTypes, name, &FileType::name);
  return it == kFileTypes.end() ? nullptr : &*it;
}

/// Mean of gate, up and down over the layers for which `routed` is `experts`.
double mean_bits(const FileType& type, const GgufLayers& layers, bool experts) {
  std::int64_t all = 0;
  std::int64_t better = 0;
  for (std::int64_t layer = 0; layer < layers.layers; ++layer) {
    if (layers.routed[static_cast<std::size_t>(layer)] != experts) continue;
    ++all;
    better += type.better(layer, layers.layers) ? 1 : 0;
  }
  const double share = all > 0 ? static_cast<double>(better) / static_cast<double>(all) : 0.0;
  const double plain = (experts ? type.expert_down : type.down).bits();
  const double down = plain + share * (type.better_down.bits() - plain);
  const double others = static_cast<double>(layers.matrices - 1);
  return ((experts ? type.expert : type.most).bits() * others + down) / (others + 1.0);
}

}  // namespace

std::vector<std::string_view> gguf_type_names() {
  std::vector<std::string_view> names;
  std::ranges::transform(kFileTypes, std::back_inserter(names), &FileType::name);
  return names;
}

std::optional<GgufBits> gguf_bits(std::string_view name, const GgufLayers& layers) {
  const FileType* type = file_type(name);
  if (type == nullptr) return std::nullopt;
  return GgufBits{.attention = type->most.bits(),
                  .mlp = mean_bits(*type, layers, false),
                  .expert = mean_bits(*type, layers, true),
                  .head = type->head.bits()};
}

std::int64_t gguf_block_weights(std::string_view name) {
  const FileType* type = file_type(name);
  if (type == nullptr) return 0;
  return std::max(type->most.weights, type->expert.weights);
}

}  // namespace spillway::hwmodels
