// How SwiftLLM, and NEO which is built on it, copy the blocks of a request between GPU and host.
//
// Source: interestingLSY/swiftLLM (682cf9a), csrc: blocks that follow each other on both sides go as one copy
// (recalled, not looked up). A request's blocks mostly do.
#pragma once

#include "sim/api/execution_model.hpp"
#include "sim/api/parameter.hpp"

namespace spillway {

/// policy.swap_copies: merged or scattered.
[[nodiscard]] Parameter swap_copies_key();
/// merged: one DMA for all blocks that move together, as if they followed each other; scattered: one per block, layer
/// and K or V.
[[nodiscard]] CopyMechanism swap_copies(const Settings& settings);

}  // namespace spillway
