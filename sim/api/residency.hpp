// Where KV lives: tiers, the runs of a holder's context on them, and moves between them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/api/execution_model.hpp"
#include "sim/api/layer_rule.hpp"
#include "sim/core/request.hpp"
#include "sim/core/units.hpp"

namespace spillway {

/// A pool of memory for KV: an index into TierGraph::tiers.
enum class TierId : std::int32_t {};
/// HBM of the instance's own GPUs, where it computes. Every instance has it.
inline constexpr TierId kGpuTier{0};
/// DRAM of the host that requests outside the batch may use (memory.host_kv). Every instance has it, perhaps with no
/// blocks.
inline constexpr TierId kHostTier{1};
inline constexpr TierId kNoTier{-1};
/// Name of the tier of memory that other GPUs lend (memory.peer). Where it is, if it is: TierGraph::find.
inline constexpr const char* kPeerTier = "peer";

struct TierSpec {
  std::string name;  // as results and messages call it
  Blocks blocks{};   // capacity at the start
  Blocks most{};     // the largest capacity of the run, >= blocks
};

/// A way on which blocks may move.
struct Route {
  TierId from{};
  TierId to{};
  Stream stream = Stream::d2h;        // of the instance's GPUs; it carries the copies
  std::int64_t copies_per_block = 1;  // separate copies of a block that is not gathered
};

/// Tiers of one instance and the routes between them. The first two tiers are kGpuTier and kHostTier. A pair of tiers
/// has at most one route in each direction.
struct TierGraph {
  std::vector<TierSpec> tiers;
  std::vector<Route> routes;
  /// The tier of that name; kNoTier: there is none.
  [[nodiscard]] TierId find(const std::string& name) const {
    for (std::size_t tier = 0; tier < tiers.size(); ++tier) {
      if (tiers[tier].name == name) return TierId(static_cast<std::int32_t>(tier));
    }
    return kNoTier;
  }
};

struct TierState {
  Blocks total{};
  Blocks free{};  // allocatable now, unused cached blocks included; < 0: more blocks are in use than `total`
  Blocks most{};  // the largest `total` of the run
};

/// Blocks of a context, counted from its start: [first, end).
struct BlockRange {
  Blocks first{};
  Blocks end{};
  [[nodiscard]] Blocks count() const { return end - first; }
  bool operator==(const BlockRange&) const = default;
};

/// Consecutive blocks of a context that are in one place. A context is described by few runs, however long it is.
struct KvRun {
  Blocks blocks{};
  TierId tier = kNoTier;  // kNoTier: dropped, so its tokens must be computed again
  TierId copy = kNoTier;  // another tier with the same content; `tier` is the one with the smaller id
  TierId to = kNoTier;    // on its way to this tier
  bool operator==(const KvRun&) const = default;
  [[nodiscard]] bool on(TierId id) const { return id != kNoTier && (tier == id || copy == id); }
  [[nodiscard]] bool moving() const { return to != kNoTier; }
};

/// Whose KV it is: that of a request, of a conversation between two of its turns, or the contexts in the tier below the
/// prefix cache, where the offload policy decides on which tier they are.
struct Holder {
  RequestId request{};             // valid: a request
  std::int64_t conversation = -1;  // else from 0 on: a conversation
  bool contexts = false;           // else true: all contexts together
  bool operator==(const Holder&) const = default;
};
[[nodiscard]] inline Holder holder(RequestId request) { return {.request = request}; }
[[nodiscard]] inline Holder holder_of_conversation(std::int64_t conversation) { return {.conversation = conversation}; }
[[nodiscard]] inline Holder holder_of_contexts() { return {.contexts = true}; }

/// Who waits for a move.
enum class Waits : std::uint8_t {
  nobody,     // it goes on beside iterations and between them
  request,    // likewise; its request stays outside the batch meanwhile
  layers,     // each layer of the next iteration waits for its share of the blocks
  iteration,  // the next iteration computes nothing before it has ended
};

/// Blocks of a holder go from one tier to another.
///
///  * The blocks are on `from`, on no other tier, and not on their way. `to` has free blocks for them.
///  * Their place on `to` is taken at once. Their place on `from` is free when the move has ended, unless `keep`: then
///    both hold the same content.
///  * For later steps of the same decision, a move that an iteration waits for has ended.
///  * Moves of one decision on one route, with one mechanism, that are waited for go as one copy.
///  * A move in turn is one that an iteration waits for. It starts when all other moves have ended that the iteration
///    waits for, for example because it takes the place that they leave.
///  * A move that yields is one that nobody waits for. It starts when no KV is on its way to the GPU and no other move
///    that yields is under way. Once started it goes on.
///  * The contexts change their place together, and only blocks that hold something are copied. A move of the whole
///    copies all.
struct Move {
  Holder holder{};
  BlockRange range{};
  TierId from{};
  TierId to{};
  bool keep = false;
  CopyMechanism mechanism = CopyMechanism::many;
  Waits waits = Waits::nobody;
  bool yields = false;
  bool in_turn = false;
  bool whole = false;
};

}  // namespace spillway
