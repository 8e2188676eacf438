// Paging of whole requests between the GPU and a tier of memory elsewhere, as AQUA and its baseline do it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "policies/parts/paged_space.hpp"
#include "sim/api/registry.hpp"

namespace spillway {

/// `policy.swap_tier` and `policy.swap_copies`, with these defaults, and the other keys of paging.
[[nodiscard]] std::vector<Parameter> paging_parameters(const std::string& tier, const std::string& copies);

/// What the policy `name` cannot do with these settings.
[[nodiscard]] std::vector<Problem> paging_problems(const std::string& name, const Settings& settings);

/// How blocks go to the swap tier, and the prefix cache's to the memory below it.
[[nodiscard]] CopyMechanism paging_mechanism(const Settings& settings);

/// Requests that must leave go to the swap tier: to memory that other GPUs lend as long as it has room, else to the
/// host. Those that come back wait until the others have left. With policy.rules=code the GPU's blocks are those of
/// vLLM 0.3: a watermark of 1%, and a free block for every decode; and contexts move as whole tensors.
[[nodiscard]] PagedSpaceOptions paging_options(const PolicyContext& context);

/// The memory of a policy that pages. Where another instance lends it may want it back (LentSpace).
[[nodiscard]] std::unique_ptr<OffloadPolicy> make_paging(const PolicyContext& context);

}  // namespace spillway
