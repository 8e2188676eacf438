// `cuda_calibrate self-test`: whether this GPU computes with our kernels what it should, before their times count.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "cuda_calibrate/measure/backend.hpp"
#include "cuda_calibrate/measure/cli.hpp"

namespace spillway::calibrate {

/// The subcommand of tool_main(). Exit codes: ok; gate when a kernel is wrong or the GPU fails. Throws ConfigError when
/// there is no such GPU.
[[nodiscard]] Subcommand self_test_subcommand(
    std::function<std::unique_ptr<Backend>(std::int64_t gpu, std::uint64_t seed)> make_backend);

}  // namespace spillway::calibrate
