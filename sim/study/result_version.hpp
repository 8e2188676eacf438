// The version of the results of runs.
#pragma once

namespace spillway {

/// schema_version of result.json. It rises when a key changes its meaning or goes away; new keys leave it as it is.
inline constexpr int kResultSchemaVersion = 1;

}  // namespace spillway
