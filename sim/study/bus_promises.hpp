// Whether the instances on one bus can keep their promises at the same time.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/core/error.hpp"
#include "sim/core/units.hpp"
#include "sim/exec/copy_links.hpp"

namespace spillway {

/// An instance, as far as its copies to the GPU are concerned.
struct BusInstance {
  const CopyRoute* route = nullptr;
  BytesPerSecond least_rate{};  // Layout::least_rate
};

/// The problem of the first link whose instances ask for all that it carries, or more, whatever batches they run;
/// empty: there is none. `links` and `names` are those of the routes. `where`: the key that says how many instances
/// there are.
[[nodiscard]] std::optional<Problem> broken_promises(const std::vector<BusInstance>& instances,
                                                     std::span<const BytesPerSecond> links,
                                                     std::span<const std::string> names, const std::string& where);

}  // namespace spillway
