#include "hwmodels/models/server_share.hpp"

#include <algorithm>
#include <limits>
#include <optional>

namespace spillway::hwmodels {
namespace {

double share_of(double total, std::int64_t gpus) { return total / static_cast<double>(gpus); }

/// Lowers the bandwidth to `bandwidth`. Each copy of the small curve takes longer by what its bytes lose.
void lower_bandwidth(CopyModel& copy, double bandwidth) {
  if (copy.bandwidth <= bandwidth) return;
  const double longer = 1.0 / bandwidth - 1.0 / copy.bandwidth;
  for (auto& point : copy.small.points) point.seconds += point.size * longer;
  copy.bandwidth = bandwidth;
}

}  // namespace

HostShare host_share(const HostProfile& host, std::int64_t gpus) {
  const double attention = static_cast<double>(host.dram_bandwidth.value()) * host.cpu_attention_efficiency;
  return {.dram = Bytes(host.dram.count() / gpus), .cpu_attention_bandwidth = share_of(attention, gpus)};
}

GpuProfile with_server_limits(GpuProfile gpu, const ServerProfile& server, std::int64_t gpus) {
  const auto limit_of = [&](const std::optional<BytesPerSecond>& total) {
    return total ? share_of(total->value(), gpus) : std::numeric_limits<double>::infinity();
  };
  const double both = limit_of(server.host_shared_bandwidth);
  const double h2d = std::min(limit_of(server.h2d_aggregate), both);
  const double d2h = std::min(limit_of(server.d2h_aggregate), both);
  for (Fitted<CopyModel>& copy : gpu.fitted.copies) {
    if (copy.model.mechanism != CopyMechanism::peer) lower_bandwidth(copy.model, copy.model.to_device ? h2d : d2h);
  }
  gpu.h2d.bandwidth = std::min(gpu.h2d.bandwidth, BytesPerSecond(h2d));
  gpu.d2h.bandwidth = std::min(gpu.d2h.bandwidth, BytesPerSecond(d2h));
  const BytesPerSecond in = std::min(gpu.h2d_bandwidth_duplex.value_or(gpu.h2d.bandwidth), gpu.h2d.bandwidth);
  const BytesPerSecond out = std::min(gpu.d2h_bandwidth_duplex.value_or(gpu.d2h.bandwidth), gpu.d2h.bandwidth);
  const double together = in.value() + out.value();
  const double fits = together > both ? both / together : 1.0;
  gpu.h2d_bandwidth_duplex = BytesPerSecond(in.value() * fits);
  gpu.d2h_bandwidth_duplex = BytesPerSecond(out.value() * fits);
  return gpu;
}

}  // namespace spillway::hwmodels
