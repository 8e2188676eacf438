// Clusters to place, drawn from the sample values of AQUA's published placer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "sim/core/random.hpp"
#include "sim/study/placer/placement.hpp"

namespace spillway::test {

inline constexpr std::int64_t kGigabyte = 1'000'000'000;

/// A model for each of `servers` x 8 GPUs of 80 GB: a producer or a consumer by a fair coin, of the producers half
/// language models. The values are those of the published placer (aquaml/aqua, aqua_placer/allocate.py), in GB.
inline placer::PlacementProblem placer_sample(std::int64_t servers, std::int64_t seed) {
  constexpr std::array<std::int64_t, 2> kLanguageModels{45, 40};      // mistral, llama-8B
  constexpr std::array<std::int64_t, 5> kOthers{30, 20, 40, 35, 15};  // sd, sdxl, kand, audiogen, musicgen
  constexpr std::array<std::int64_t, 3> kConsumers{-20, -10, -30};    // opt, lora, cfs
  RandomStream random(seed, 0, "placer.sample");
  const auto one_of = [&random](const auto& values) {
    return values[static_cast<std::size_t>(random.uniform() * static_cast<double>(values.size()))];
  };
  placer::PlacementProblem problem{.servers = servers, .gpus_per_server = 8, .gpu_memory = Bytes(80 * kGigabyte)};
  for (std::int64_t i = 0; i < 8 * servers; ++i) {
    const bool consumer = random.uniform() < 0.5;
    const std::int64_t balance = consumer                 ? one_of(kConsumers)
                                 : random.uniform() < 0.5 ? one_of(kLanguageModels)
                                                          : one_of(kOthers);
    problem.models.push_back({"model", 1, Bytes(balance * kGigabyte)});
  }
  return problem;
}

}  // namespace spillway::test
