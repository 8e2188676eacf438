// result.json: what a run keeps, and what is read back of it.
#pragma once

#include <string>

#include "sim/study/result.hpp"

namespace spillway {

/// result.json. With at least two clients it has a row for each, worst mean TTFT first, up to 1,000, and the number of
/// those left out. Floats round-trip; nothing in it depends on the machine or the time. Throws InvariantError when
/// requests were lost (submitted is not the sum of the outcomes).
[[nodiscard]] std::string to_json(const Result& result);
/// The same without figures of a run.
[[nodiscard]] std::string to_setup_json(
    const Result& result);  /// config.resolved.json: running it gives the same result.
[[nodiscard]] std::string to_resolved_config(const Result& result);

}  // namespace spillway
