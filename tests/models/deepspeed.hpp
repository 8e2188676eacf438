// The plain model of DeepSpeed's layers, which run under any scheduler.
#pragma once

#include <memory>

#include "sim/api/registry.hpp"

namespace spillway::oracle {

[[nodiscard]] std::unique_ptr<LayerPolicy> plain_deepspeed_layers(const PolicyContext& context);
[[nodiscard]] Layout plain_deepspeed_layout(const Deployment& deployment, const Settings& settings);

}  // namespace spillway::oracle
