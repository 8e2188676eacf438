#include "policies/parts/popular_experts.hpp"

#include <fmt/format.h>

#include "policies/parts/weight_layers.hpp"

namespace spillway {

Parameter gpu_experts_parameter(const std::string& name, const std::string& of, const std::string& source) {
  return {.name = name,
          .type = ParameterType::integer,
          .unit = "experts",
          .default_value = "",
          .minimum = 0.0,
          .maximum = 1e7,
          .doc = "How many " + of +
                 " are on the GPU. Default: as many as leave memory.gpu_kv, or KV for 32,768 tokens, on the GPU",
          .source = source};
}

Layout lay_out_popular(const Deployment& deployment, const Settings& settings, const std::string& key, std::int64_t all,
                       Bytes buffers, std::int64_t each, std::int64_t least) {
  const ExpertDeployment& experts = *deployment.experts;
  std::int64_t on_gpu = 0;
  if (settings.has(key)) {
    on_gpu = settings.get<std::int64_t>(key);
    if (on_gpu > all) {
      throw ConfigError(fmt::format("{}={}, and there are {}", key, on_gpu, all), key,
                        fmt::format("give at most {}: then all experts are on the GPU", all));
    }
    if (on_gpu < least) {
      const bool of_prompt = least > experts.top_k;
      throw ConfigError(
          fmt::format("{}={}, and a {} {} experts of a layer", key, on_gpu,
                      of_prompt ? "prompt may use all" : "token uses", of_prompt ? experts.count : experts.top_k),
          key, fmt::format("give at least {}", least));
    }
  } else {
    const Bytes room = beside_dense_weights(deployment) - buffers - default_kv_of(deployment);
    on_gpu = std::clamp<std::int64_t>(room.count() / (experts.bytes.count() * each), least, all);
  }
  Layout layout =
      lay_out_experts(deployment, settings,
                      {.on_gpu = on_gpu * each,
                       .on_host = experts.all() - on_gpu * each,
                       .buffers = buffers,
                       .terms = fmt::format(
                           "{} of {} experts of {:.1f} MB on the GPU{}{}", on_gpu * each, experts.all(),
                           static_cast<double>(experts.bytes.count()) * 1e-6,
                           each > 1 ? fmt::format(", {} of each layer", on_gpu) : std::string(),
                           settings.has(key) ? std::string() : std::string(", as many as leave room for the KV cache")),
                       .lower = "lower " + key});
  layout.chosen.set(key, on_gpu);
  return layout;
}

}  // namespace spillway
