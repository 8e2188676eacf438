// Writes result.json and reads parts of it back.
#pragma once

#include <string>

#include "sim/study/result.hpp"

namespace spillway {

/// result.json. With at least two clients, the file has a row per client, largest mean TTFT first, up to 1,000 rows,
/// and the number of clients left out. Floats round-trip. The text does not depend on the machine or the time. Throws
/// InvariantError when requests were lost (submitted is not the sum of the outcomes).
[[nodiscard]] std::string to_json(const Result& result);
/// result.json without the figures of a run.
[[nodiscard]] std::string to_setup_json(
    const Result& result);  /// config.resolved.json: running it gives the same result.
[[nodiscard]] std::string to_resolved_config(const Result& result);

}  // namespace spillway
