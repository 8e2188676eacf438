#include "hwmodels/models/server_share.hpp"

#include <algorithm>

namespace spillway::hwmodels {

HostShare host_share(const HostProfile& host, std::int64_t gpus) {
  constexpr double kCopyTraffic = 3.0;  // bytes through the memory channels for each byte that is copied
  const double reading =
      static_cast<double>(host.dram_bandwidth.value()) / static_cast<double>(std::max(gpus, host.sockets));
  return {.dram = Bytes(host.dram.count() / gpus),
          .cpu_attention_bandwidth = reading * host.cpu_attention_efficiency,
          .copy_bandwidth = reading / kCopyTraffic};
}

}  // namespace spillway::hwmodels
