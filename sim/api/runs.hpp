// Helpers for offload policies: walk the runs of a context, count its blocks on a tier, move or free them.
#pragma once

#include <boost/container/small_vector.hpp>
#include <limits>

#include "sim/api/decision.hpp"
#include "sim/api/view.hpp"

namespace spillway {

/// A run, and which blocks of the context it is.
struct PlacedRun : KvRun {
  BlockRange range{};
};

/// Most contexts are in few places.
using PlacedRuns = boost::container::small_vector<PlacedRun, 4>;

/// The whole context, however long.
inline constexpr Blocks kWholeContext{std::numeric_limits<std::int64_t>::max()};

/// The runs of a holder's first `end` blocks, as they are now: moves and drops do not change the result, so they may be
/// staged while it is walked. A run that goes on behind `end` is cut. O(runs), as all functions below.
[[nodiscard]] PlacedRuns placed_runs(const View& view, const Holder& holder, Blocks end = kWholeContext);

/// How many of a holder's first `end` blocks are on `tier`, those that are leaving it included.
[[nodiscard]] Blocks blocks_on(const View& view, const Holder& holder, TierId tier, Blocks end = kWholeContext);

/// How many of a holder's first `end` blocks exist, but not on the GPU: those on their way to it included.
[[nodiscard]] Blocks blocks_elsewhere(const View& view, const Holder& holder, Blocks end = kWholeContext);

/// Blocks of `tier` that free_blocks could free.
[[nodiscard]] Blocks freeable_blocks(const View& view, const Holder& holder, TierId tier);

/// Drops up to `most` blocks of a holder from `tier`, from the start of its context, except those on their way. Content
/// that another tier has stays there; other content is dropped. Returns how many blocks of the tier are free now.
Blocks free_blocks(const View& view, const Holder& holder, TierId tier, Blocks most, Placement& placement);

/// Moves those of a holder's first `end` blocks to the GPU that are on another tier only and not on their way. `how`
/// says whether the source stays, by which mechanism they go, and who waits. The GPU must have free blocks for them.
void bring_to_gpu(const View& view, const Holder& holder, Blocks end, Move how, Placement& placement);

/// Blocks of a holder leave the GPU for the tier `how.to`, except those on their way. A block with a copy on another
/// tier only gives up its place on the GPU. `how` says by which mechanism the others go, and who waits.
void send_from_gpu(const View& view, const Holder& holder, Move how, Placement& placement);

}  // namespace spillway
