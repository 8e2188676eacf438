#include "sim/study/placer/sample_cluster.hpp"

#include <array>
#include <cmath>
#include <cstddef>

#include "sim/core/random.hpp"

namespace spillway::placer {

PlacementProblem sample_cluster(std::int64_t servers, std::int64_t seed, double spread) {
  constexpr std::int64_t kMegabyte = 1'000'000;
  constexpr std::int64_t kGigabyte = 1'000 * kMegabyte;
  constexpr std::array<std::int64_t, 2> kLanguageModels{45, 40};      // mistral, llama-8B
  constexpr std::array<std::int64_t, 5> kOthers{30, 20, 40, 35, 15};  // sd, sdxl, kand, audiogen, musicgen
  constexpr std::array<std::int64_t, 3> kConsumers{-20, -10, -30};    // opt, lora, cfs
  RandomStream random(seed, 0, "placer.sample");
  RandomStream factors(seed, 0, "placer.spread");
  const auto one_of = [&random](const auto& values) {
    return values[static_cast<std::size_t>(random.uniform() * static_cast<double>(values.size()))];
  };
  PlacementProblem problem{.servers = servers, .gpus_per_server = 8, .gpu_memory = Bytes(80 * kGigabyte)};
  for (std::int64_t i = 0; i < 8 * servers; ++i) {
    const bool consumer = random.uniform() < 0.5;
    const std::int64_t gigabytes = consumer                 ? one_of(kConsumers)
                                   : random.uniform() < 0.5 ? one_of(kLanguageModels)
                                                            : one_of(kOthers);
    const double factor = 1.0 + spread * (2.0 * factors.uniform() - 1.0);
    const std::int64_t megabytes = std::llround(1e3 * static_cast<double>(gigabytes) * factor);
    problem.models.push_back({"model", 1, Bytes(kMegabyte * megabytes)});
  }
  return problem;
}

}  // namespace spillway::placer
