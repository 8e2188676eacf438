// Which keys an element of `instances` may have.
#pragma once

#include <string>

namespace spillway {

/// Why an element of `instances` may not have the key, such as "holds for all instances"; empty: it may.
[[nodiscard]] std::string refusal_in_instance(const std::string& key);

}  // namespace spillway
