#include "policies/parts/weight_stream.hpp"

#include <fmt/format.h>

#include <cmath>

#include "sim/core/error.hpp"

namespace spillway {
namespace {

/// Tags of copies: the copy that completes a layer's weights, and the copy ahead of it.
constexpr std::int32_t kLast = 0;
constexpr std::int32_t kAhead = 1;

std::int64_t share(std::int64_t whole, double fraction) {
  return static_cast<std::int64_t>(std::floor(static_cast<double>(whole) * fraction + 0.5));
}

void issue(Copy copy, std::int32_t layer, CopySink& sink) {
  if (copy.bytes == Bytes(0)) return;
  copy.layer = layer;
  sink.issue(copy);
}

}  // namespace

Duration streamed_iteration(std::int32_t layers, std::int32_t interval, Duration compute, Duration transfer) {
  const std::int32_t groups = host_layers(layers, interval);
  if (groups == 0) return layers * compute;
  if (interval == 1) return transfer + (layers - 1) * std::max(compute, transfer) + compute;
  return groups * (std::max((interval - 1) * compute, transfer) + compute) + layers % interval * compute;
}

WeightStream::WeightStream(std::int32_t layers) : layers_(layers) {
  SPILLWAY_CHECK(layers >= 1, fmt::format("a model of {} layers", layers));
}

void WeightStream::stream(const WeightStreaming& streaming) {
  const double fraction = streaming.prefetch_fraction;
  SPILLWAY_CHECK(streaming.interval >= 0 && streaming.returning >= 0,
                 fmt::format("offloading intervals of {} and {}", streaming.interval, streaming.returning));
  SPILLWAY_CHECK(streaming.demand >= Duration{}, "fetching on demand takes no negative time");
  SPILLWAY_CHECK(0.0 <= fraction && fraction <= 1.0, fmt::format("a prefetch fraction of {}", fraction));

  const auto used = [&](std::int32_t interval) { return host_layers(layers_, interval) > 0 ? interval : kAllResident; };
  Plan plan{.interval = used(streaming.interval),
            .returning = used(streaming.returning),
            .buffers = std::max(staging_buffers(layers_, streaming.interval, streaming.double_buffer), 1),
            .whole = streaming.weights};
  const bool offloads = plan.interval != kAllResident || plan.returning != kAllResident;
  SPILLWAY_CHECK(!offloads || (plan.whole.bytes > Bytes(0) && plan.whole.launch >= Duration{} &&
                               plan.whole.transfer >= Duration{}),
                 "the weights of an offloaded layer have bytes, and their copy takes no negative time");
  plan.whole.stream = Stream::h2d;
  plan.whole.tag = kLast;
  plan.ahead = plan.rest = plan.whole;
  plan.ahead.bytes = Bytes(share(plan.whole.bytes.count(), fraction));
  plan.ahead.transfer = Duration(share(plan.whole.transfer.count(), fraction));
  plan.rest.bytes -= plan.ahead.bytes;
  plan.rest.transfer -= plan.ahead.transfer;
  if (plan.rest.bytes == Bytes(0)) plan.ahead = plan.whole;
  if (plan.ahead.bytes == Bytes(0)) plan.rest = plan.whole;
  plan.ahead.tag = plan.rest.bytes > Bytes(0) ? kAhead : kLast;
  plan.whole.launch += streaming.demand;
  plan.rest.launch += streaming.demand;
  next_ = plan;
}

std::int32_t WeightStream::next_on_host(std::int32_t layer) const {
  const auto multiple = [&](std::int32_t interval) {
    return interval > layers_ ? layers_ : layer + interval - 1 - layer % interval;
  };
  return std::min(multiple(plan_.interval), multiple(plan_.returning));
}

void WeightStream::issue_next(std::int32_t layer, CopySink& sink) {
  if (next_copied_ >= layers_) return;
  issue(next_copied_ == layer ? plan_.whole : plan_.ahead, next_copied_, sink);
  next_copied_ = next_on_host(next_copied_ + 1);
}

void WeightStream::at_layer_start(std::int32_t layer, std::int32_t sub_batch, CopySink& sink) {
  // A layer starts with its first sub-batch, when every sub-batch of the layer before it has computed.
  if (sub_batch > 0) return;
  if (layer == 0) {
    plan_ = next_;
    next_copied_ = next_on_host(0);
    arrived_ = -1;
  }
  // The rest of this layer goes ahead of prefetches, because compute waits for it.
  if (on_host(layer) && layer < next_copied_) issue(plan_.rest, layer, sink);
  if (layer == 0) {
    for (std::int32_t buffer = 0; buffer < plan_.buffers; ++buffer) issue_next(layer, sink);
  } else if (on_host(layer - 1)) {
    issue_next(layer, sink);
  }
}

void WeightStream::at_copy_done(const Copy& copy, CopySink&) {
  if (copy.tag == kLast) arrived_ = copy.layer;
}

std::int32_t WeightStream::quiet(std::int32_t layer) const {
  if (std::min(plan_.interval, plan_.returning) <= 2) return 0;  // a group's first layer issues, its last one may wait
  const bool issues = layer == 0 || (on_host(layer - 1) && next_copied_ < layers_);
  return issues ? 0 : next_on_host(layer) - layer;
}

bool WeightStream::ready(std::int32_t layer, std::int32_t) const { return !on_host(layer) || arrived_ >= layer; }

}  // namespace spillway
