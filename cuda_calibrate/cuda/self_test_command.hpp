// `cuda_calibrate self-test`: checks that Spillway's kernels compute correct results on this GPU before their times
// count.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "cuda_calibrate/measure/backend.hpp"
#include "cuda_calibrate/measure/cli.hpp"

namespace spillway::calibrate {

/// A subcommand of tool_main(). Exit codes: ok; gate when a kernel is wrong or the GPU fails. Throws ConfigError when
/// the GPU does not exist.
[[nodiscard]] Subcommand self_test_subcommand(
    std::function<std::unique_ptr<Backend>(std::int64_t gpu, std::uint64_t seed)> make_backend);

}  // namespace spillway::calibrate
