// The links inside a server: which links the copies of each GPU cross, and how much each link carries.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/api/link_crossing.hpp"
#include "sim/core/units.hpp"

namespace spillway::hwmodels {

enum class LinkKind : std::uint8_t {
  host_dram,
  numa_node,  // DRAM of one socket
  inter_socket,
  root_port,
  pcie_switch,
  nvlink,
  nvswitch,
  nic
};
/// "host-dram", "numa-node", ..., in the order of LinkKind.
[[nodiscard]] const std::vector<std::string>& link_kind_names();
[[nodiscard]] const std::string& link_kind_name(LinkKind kind);

/// What one direction of a link carries, or both together.
struct LinkCapacity {
  std::optional<BytesPerSecond> rate;  // > 0; empty: no limit is known
  std::string source_kind;             // as Entry::source_kind; empty: the file says nothing
};

struct TopologyLink {
  std::string name;
  LinkKind kind = LinkKind::host_dram;
  LinkCapacity in;    // towards GPUs
  LinkCapacity out;   // from GPUs
  LinkCapacity both;  // the sum of both directions
};

/// What the copies of one GPU cross, from the GPU outwards, as positions in Topology::links.
struct GpuPaths {
  std::vector<std::size_t> host;     // to and from DRAM; not empty
  std::vector<std::size_t> peer;     // to and from other GPUs of the server, without going through DRAM
  std::vector<std::size_t> network;  // to and from other servers
};

struct Topology {
  std::vector<TopologyLink> links;
  std::vector<GpuPaths> gpus;
  std::vector<std::string> warnings;  // about what the file states
};

/// Consecutive GPUs of one server, numbered from 0.
struct GpuRange {
  std::int64_t first = 0;
  std::int64_t count = 1;
};

enum class LinkDirection : std::uint8_t { in, out };

/// The limits of a server's links as a list of links that copies share: for each link of the topology its `in`, `out`
/// and `both`, as far as they are known. `both` is a link that either direction crosses.
class ServerLinks {
 public:
  explicit ServerLinks(const Topology& topology);
  /// Bytes/s.
  [[nodiscard]] const std::vector<BytesPerSecond>& capacities() const { return capacities_; }
  /// "root-port-0 in", in the order of capacities.
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }
  /// What the copies of these GPUs cross, in ascending order, with how many of them cross it. `path` is a member of
  /// GpuPaths. O(links of the paths * log).
  [[nodiscard]] std::vector<LinkCrossing> crossings(const GpuRange& gpus, std::vector<std::size_t> GpuPaths::*path,
                                                    LinkDirection direction) const;

 private:
  const Topology& topology_;
  std::vector<BytesPerSecond> capacities_;
  std::vector<std::string> names_;
  std::vector<std::array<std::optional<std::size_t>, 3>> positions_;  // of each link's in, out and both
};

/// The GPUs divided into islands: copies go directly between GPUs that list a common link as `peer`, and on from one
/// GPU to the next. A topology in which no GPU lists such a link states no islands: all GPUs reach each other through
/// the host. O(count * links of the paths).
[[nodiscard]] std::vector<std::vector<std::int64_t>> islands(const Topology& topology, const GpuRange& gpus);

/// Whether two GPUs list a common link as `peer`.
[[nodiscard]] bool directly_connected(const Topology& topology, std::int64_t a, std::int64_t b);

}  // namespace spillway::hwmodels
