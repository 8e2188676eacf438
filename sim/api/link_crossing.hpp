// One link on the way of a copy that the GPUs of a group make together.
#pragma once

#include <cstddef>
#include <cstdint>

namespace spillway {

/// All GPUs of a group copy the same number of bytes at the same time; `gpus` of them do so over this link.
struct LinkCrossing {
  std::size_t link = 0;  // position in a list of links
  std::int64_t gpus = 1;
  bool operator==(const LinkCrossing&) const = default;
};

}  // namespace spillway
