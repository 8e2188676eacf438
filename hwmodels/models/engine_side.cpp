#include "hwmodels/models/engine_side.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

namespace spillway::hwmodels {
namespace {

double total(const TimeShares& t) { return t.compute + t.memory + t.network + t.host; }

Slowdown slowdown(double ratio) {
  constexpr std::int64_t kMillion = 1'000'000;
  return {std::max(kMillion, static_cast<std::int64_t>(std::llround(ratio * 1e6))), kMillion};
}

Slowdown duplex_slowdown(const HostLink& link, const std::optional<BytesPerSecond>& duplex) {
  const bool stated = duplex && duplex->value() > 0.0;  // a profile may state nothing about a direction
  return stated ? slowdown(link.bandwidth.value() / duplex->value()) : Slowdown{};
}

bool between_gpus(Stream direction) { return direction == Stream::peer_in || direction == Stream::peer_out; }

CopySharing sharing_of(const CopyFigures& copies) {
  return {.h2d = duplex_slowdown(copies.h2d, copies.h2d_duplex),
          .d2h = duplex_slowdown(copies.d2h, copies.d2h_duplex),
          .compute = slowdown(copies.compute_slowdown.value_or(1.0))};
}

}  // namespace

EngineSide::EngineSide(const GpuProfile& gpu, const EngineProfile& engine, std::int64_t layers, const OpScales& scales)
    : gpu_(gpu.file.name),
      layers_(layers),
      by_engine_(gpu.copy_figures(CopyMechanism::single)),
      by_kernel_(gpu.copy_figures(CopyMechanism::kernel)),
      peer_(gpu.peer.value_or(HostLink{})),
      host_copy_(gpu.host_copy),
      cpu_scale_(scales.cpu),
      sharing_(sharing_of(gpu.copy_figures(gpu.layer_copies))),
      sustained_clock_(gpu.sustained_clock),
      memory_bandwidth_(gpu.memory_bandwidth),
      copy_scale_(scales.copies),
      launch_floor_(scales.host * engine.launch_floor_seconds),
      graph_tokens_(static_cast<double>(engine.cuda_graph_max_tokens)),
      graph_prefill_(engine.cuda_graph_prefill),
      host_fixed_(scales.host * engine.host_fixed_seconds),
      host_per_sequence_(scales.host * engine.host_per_sequence_seconds),
      host_scale_(scales.host),
      host_overlapped_(engine.host_overlapped) {
  for (const Fitted<CopyModel>& copy : gpu.fitted.copies) {
    copies_.push_back({copy.model, RangeTally(gpu.fitted, copy.record, "block_bytes")});
  }
}

IterationTime EngineSide::iteration(const BatchShape& shape, double tokens, TimeShares before, TimeShares layer,
                                    const TimeShares& after, double attention) const {
  KindTime all{.layer = layer, .attention = attention, .layers = layers_};
  return iteration(shape, tokens, before, std::span(&all, 1), after);
}

IterationTime EngineSide::iteration(const BatchShape& shape, double tokens, TimeShares before,
                                    std::span<KindTime> kinds, const TimeShares& after) const {
  const bool graph = tokens <= graph_tokens_ && (graph_prefill_ || shape.chunks.empty());
  double in_layers = 0.0;
  for (KindTime& kind : kinds) {
    if (!graph) kind.layer.host += std::max(0.0, launch_floor_ - total(kind.layer));
    in_layers += static_cast<double>(kind.layers) * total(kind.layer);
  }
  const double gpu = total(before) + in_layers + total(after);
  check_time("an iteration", gpu);
  const auto sequences = static_cast<double>(shape.sequences());
  const double host = host_fixed_ + host_per_sequence_ * sequences + host_scale_ * shape.connector.scheduler;
  before.host += host_overlapped_ ? std::max(0.0, host - gpu) : host;
  before.host += host_scale_ * (host_overlapped_ ? shape.connector.worker_ahead : shape.connector.worker);

  IterationTime time;
  time.before = round_seconds(total(before));
  time.after = round_seconds(total(after));
  time.shares = before;
  Duration layers{};
  Duration attention{};
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    const KindTime& kind = kinds[k];
    const auto count = static_cast<double>(kind.layers);
    time.kinds[k] = round_seconds(total(kind.layer));
    layers += time.kinds[k] * kind.layers;
    attention += std::min(round_seconds(kind.attention), time.kinds[k]) * kind.layers;
    time.shares.compute += count * kind.layer.compute;
    time.shares.memory += count * kind.layer.memory;
    time.shares.network += count * kind.layer.network;
    time.shares.host += count * kind.layer.host;
  }
  time.shares.compute += after.compute;
  time.shares.memory += after.memory;
  time.shares.network += after.network;
  time.shares.host += after.host;
  time.layer = kinds.size() == 1 ? time.kinds.front() : Duration(layers.count() / layers_);
  time.attention = kinds.size() == 1 ? std::min(round_seconds(kinds.front().attention), time.layer)
                                     : Duration(attention.count() / layers_);
  return time;
}

void EngineSide::check_time(const char* what, double seconds) const {
  constexpr double kDay = 86'400.0;
  if (seconds <= kDay) return;
  throw DataError(
      fmt::format("{} takes {:.3g} s with this profile: more than a day, so the profile must be wrong", what, seconds),
      gpu_, "correct the profile, or fit it again");
}

EngineSide::FittedCopy* EngineSide::fitted_copy(Stream direction, CopyMechanism mechanism) const {
  const bool peer = between_gpus(direction);
  const auto fitted = std::find_if(copies_.begin(), copies_.end(), [&](const FittedCopy& copy) {
    if (peer) return copy.model.mechanism == CopyMechanism::peer;
    return copy.model.to_device == (direction == Stream::h2d) && copy.model.mechanism == mechanism;
  });
  return fitted == copies_.end() ? nullptr : &*fitted;
}

const HostLink& EngineSide::link_of(Stream direction, CopyMechanism mechanism) const {
  if (between_gpus(direction)) return peer_;
  const CopyFigures& host = mechanism == CopyMechanism::kernel ? by_kernel_ : by_engine_;
  return direction == Stream::h2d ? host.h2d : host.d2h;
}

Duration EngineSide::copy_start(Stream direction, std::int64_t copies, Bytes bytes, CopyMechanism mechanism) const {
  const bool one_by_one = mechanism == CopyMechanism::many || mechanism == CopyMechanism::batched;
  if (!one_by_one || between_gpus(direction) || copies == 0) return {};
  const auto count = static_cast<double>(copies);
  const FittedCopy* const fitted = fitted_copy(direction, mechanism);
  if (fitted == nullptr) return round_seconds(count * link_of(direction, mechanism).launch_seconds);
  const double whole = fitted->model.seconds(static_cast<double>(bytes.count()) / count);
  return round_seconds(count * std::min(fitted->model.launch_seconds, whole));
}

CopyTime EngineSide::copy(Stream direction, std::int64_t copies, Bytes bytes, CopyMechanism mechanism) const {
  SPILLWAY_CHECK(direction != Stream::compute && direction != Stream::cpu, "copies run on the copy streams only");
  // Policies ask for the same copy again and again.
  Asked& last = last_[static_cast<std::size_t>(direction)][static_cast<std::size_t>(mechanism)];
  if (last.copies == copies && last.bytes == bytes) {
    if (last.fitted) tally(copies_[*last.fitted], copies, bytes);
    return last.time;
  }
  FittedCopy* const fitted = fitted_copy(direction, mechanism);
  const CopyTime time = fitted == nullptr ? copy_by_figures(direction, copies, bytes, mechanism)
                                          : copy_by_fit(*fitted, direction, copies, bytes, mechanism);
  if (mechanism == CopyMechanism::relay) return time;  // it counts as a copy of another mechanism, too
  last = {.copies = copies, .bytes = bytes, .time = time};
  if (fitted != nullptr) last.fitted = static_cast<std::size_t>(fitted - copies_.data());
  return time;
}

void EngineSide::tally(FittedCopy& fitted, std::int64_t copies, Bytes bytes) {
  if (copies > 0) fitted.bytes.add(static_cast<double>(bytes.count()) / static_cast<double>(copies), copies);
}

CopyTime EngineSide::copy_by_figures(Stream direction, std::int64_t copies, Bytes bytes,
                                     CopyMechanism mechanism) const {
  const bool peer = between_gpus(direction);
  if (mechanism == CopyMechanism::relay && !peer) return relay(direction, copies, bytes);
  const HostLink& link = link_of(direction, mechanism);
  if (peer && link.bandwidth.value() <= 0.0) {
    throw ConfigError(fmt::format("{} states no peer_bandwidth of a server, which copies between GPUs require", gpu_),
                      "hardware", "name a server whose GPUs have links to each other (spillway list hardware)");
  }
  if (link.bandwidth.value() <= 0.0) {
    throw ConfigError(fmt::format("{} does not state {}_bandwidth, which this run's copies require", gpu_,
                                  direction == Stream::h2d ? "h2d" : "d2h"),
                      "hardware", "fit the profile again with --base NAME for the datasheet's figures, or with copies");
  }
  const double launch = copy_scale_ * (link.launch_seconds * static_cast<double>(copies) + gathering(bytes, mechanism));
  const double transfer = copy_scale_ * (bytes / link.bandwidth);
  check_time("a copy", launch + transfer);
  return {.launch = round_seconds(launch), .transfer = round_seconds(transfer)};
}

CopyTime EngineSide::copy_by_fit(FittedCopy& fitted, Stream direction, std::int64_t copies, Bytes bytes,
                                 CopyMechanism mechanism) const {
  const auto count = static_cast<double>(copies);
  const double all_bytes = static_cast<double>(bytes.count());
  const double block_bytes = count > 0.0 ? all_bytes / count : 0.0;
  tally(fitted, copies, bytes);
  const double transfer = mechanism == CopyMechanism::relay
                              ? to_seconds(copy(direction, copies, bytes, CopyMechanism::single).transfer)
                              : copy_scale_ * (all_bytes / fitted.model.bandwidth);
  // A fit of gathered copies knows of the gathering.
  const double gather = between_gpus(direction) ? gathering(bytes, mechanism) : 0.0;
  const double seconds = copy_scale_ * (count * fitted.model.seconds(block_bytes) + gather);
  check_time("a copy", seconds);
  return {.launch = round_seconds(std::max(0.0, seconds - transfer)),
          .transfer = round_seconds(std::min(seconds, transfer))};
}

double EngineSide::gathering(Bytes bytes, CopyMechanism mechanism) const {
  const bool known = mechanism == CopyMechanism::gather && memory_bandwidth_.value() > 0.0;
  return known ? 2.0 * (bytes / memory_bandwidth_) : 0.0;
}

CopyTime EngineSide::relay(Stream direction, std::int64_t copies, Bytes bytes) const {
  if (!host_copy_) {
    throw ConfigError(fmt::format("{} does not say how fast the host's CPU copies memory, which weights that are not "
                                  "page-locked require",
                                  gpu_),
                      "hardware",
                      "name a server, which has a host, set policy.pin_weights=true, or fit the profile with copies of "
                      "mechanism relay");
  }
  CopyTime time = copy(direction, copies, bytes, CopyMechanism::single);
  const double by_cpu = cpu_scale_ * (bytes / *host_copy_);
  check_time("a copy", by_cpu);
  time.launch += round_seconds(by_cpu);
  return time;
}

void EngineSide::append_range_uses(std::vector<RangeUse>& uses) const {
  for (const FittedCopy& copy : copies_) copy.bytes.append_to(uses);
}

}  // namespace spillway::hwmodels
