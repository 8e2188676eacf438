// The way of a copy from the GPUs of one replica to those of another, for example of KV that is handed over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "hwmodels/catalog.hpp"
#include "hwmodels/topology.hpp"
#include "sim/core/error.hpp"
#include "sim/core/units.hpp"

namespace spillway::hwmodels {

/// The GPUs of a replica: `gpus` of the server number `server`.
struct GpuGroup {
  std::int64_t server = 0;
  GpuRange gpus{};
};

/// Whether GPUs of one server may copy to each other.
enum class DirectCopies : bool { refused, allowed };

struct CopyPath {
  enum class Way : std::uint8_t {
    peer,    // directly between GPUs of one server
    host,    // out to the DRAM of the server, and in again at the same time
    network  // from GPU to NIC, and from NIC to GPU of another server
  };
  /// One limit on the way. A copy that moves at 1 byte/s takes `share` bytes/s of it.
  struct Crossing {
    std::size_t link = 0;
    double share = 1.0;
  };
  Way way = Way::peer;
  std::vector<Crossing> crossings{};  // in ascending order
  BytesPerSecond bandwidth{};         // of the whole copy while nothing else moves
};

/// How KV goes from group `from` to group `to`, which have no GPU in common, over the servers of `server`. Each GPU of
/// a group sends, or receives, an equal part. Links are positions in ServerLinks::capacities() of the server's
/// topology, with a list for each server one after the other: server * capacities().size() + position.
///
/// On one server a copy goes directly when that is allowed, and every GPU that sends lists a peer link in common with
/// every GPU that receives; else through the host. Between servers it crosses the network links of the GPUs: `out` at
/// the source, `in` at the target; what joins the NICs carries all of them. The copy moves as fast as the slowest of
/// these allows:
///   peer     peer_bandwidth of the server, for each GPU of the smaller group
///   host     copies to the host by each GPU of `from`, and from the host by each GPU of `to`, as the GPU's profile
///            states them
///   network  as host, because a NIC reads and writes a GPU's memory over the GPU's own PCIe link
///   links    capacity / share
///
/// Returns a Problem with its fix, for the key `hardware`, when no way exists: another server, and a GPU without
/// network links; or no figure says how fast a GPU copies to and from the host. O(GPUs^2 * links of a path).
[[nodiscard]] std::variant<CopyPath, Problem> copy_path(const ServerProfile& server, const GpuProfile& gpu,
                                                        const GpuGroup& from, const GpuGroup& to,
                                                        DirectCopies direct = DirectCopies::allowed);

}  // namespace spillway::hwmodels
