#include "hwmodels/models/server_share.hpp"

namespace spillway::hwmodels {

HostShare host_share(const HostProfile& host, std::int64_t gpus) {
  const double attention = static_cast<double>(host.dram_bandwidth.value()) * host.cpu_attention_efficiency;
  return {.dram = Bytes(host.dram.count() / gpus), .cpu_attention_bandwidth = attention / static_cast<double>(gpus)};
}

}  // namespace spillway::hwmodels
