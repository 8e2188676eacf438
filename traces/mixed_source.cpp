#include "traces/mixed_source.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sim/core/error.hpp"
#include "sim/core/random.hpp"

namespace spillway::traces {
namespace {

/// The draw of `number` with this key: uniform in [0, 1).
double drawn(std::uint64_t key, std::uint64_t number) {
  std::uint64_t state = key ^ number;
  state = split_mix(state);  // two steps: numbers follow each other
  return static_cast<double>(split_mix(state) >> 11U) * 0x1p-53;
}

}  // namespace

MixedSource::MixedSource(std::vector<MixedPart> parts, std::int64_t seed, std::int64_t replication) {
  for (MixedPart& part : parts) {
    SPILLWAY_CHECK(part.stream != nullptr && !part.receivers.empty(), "a stream of requests that nobody serves");
    RandomStream random(seed, replication, fmt::format("instances.{}", parts_.size()));
    const std::uint64_t of_requests = random.next_u64();
    parts_.push_back({std::move(part), of_requests, random.next_u64()});
  }
}

SimTime MixedSource::next_arrival() {
  SimTime next = kNever;
  for (Part& part : parts_) next = std::min(next, part.mixed.stream->next_arrival());
  return next;
}

bool MixedSource::next(RequestSpec& request) {
  const auto part = std::ranges::min_element(parts_, {}, [](Part& one) { return one.mixed.stream->next_arrival(); });
  if (!part->mixed.stream->next(request)) return false;
  const Receiver& receiver = receiver_of(*part, request.traits);
  const auto number = static_cast<std::size_t>(part - parts_.begin());
  live_.emplace(delivered_++, Own{number, part->delivered++});
  request.traits.pool = receiver.pool;
  RequestSlo& slo = request.traits.slo;
  if (slo.ttft == Duration{}) slo.ttft = receiver.slo.ttft;
  if (slo.tpot == Duration{}) slo.tpot = receiver.slo.tpot;
  if (slo.e2e == Duration{}) slo.e2e = receiver.slo.e2e;
  std::int64_t& conversation = request.traits.conversation;
  if (conversation >= 0) conversation = conversation * count() + static_cast<std::int64_t>(number);
  return true;
}

const Receiver& MixedSource::receiver_of(const Part& part, const RequestTraits& traits) const {
  const std::vector<Receiver>& receivers = part.mixed.receivers;
  const bool turn = traits.conversation >= 0;
  double left = turn ? drawn(part.of_conversations, static_cast<std::uint64_t>(traits.conversation))
                     : drawn(part.of_requests, part.delivered);
  for (const Receiver& receiver : receivers) {
    if (left < receiver.share) return receiver;
    left -= receiver.share;
  }
  return receivers.back();  // shares sum to 1 but for rounding
}

void MixedSource::ended(const RequestRecord& record) {
  RequestRecord own = record;
  const auto found = live_.find(record.index);
  SPILLWAY_CHECK(found != live_.end(), "a request has ended that was not delivered, or twice");
  const auto [part, index] = found->second;
  live_.erase(found);
  own.index = index;
  own.traits.pool = 0;
  if (own.traits.conversation >= 0) own.traits.conversation /= count();
  parts_[part].mixed.stream->ended(own);
}

SimTime MixedSource::next_turn(std::int64_t conversation) const {
  const Part& part = parts_[static_cast<std::size_t>(conversation % count())];
  return part.mixed.stream->next_turn(conversation / count());
}

std::int64_t MixedSource::unsent() const {
  std::int64_t sum = 0;
  for (const Part& part : parts_) sum += part.mixed.stream->unsent();
  return sum;
}

std::int64_t MixedSource::shortened() const {
  std::int64_t sum = 0;
  for (const Part& part : parts_) sum += part.mixed.stream->shortened();
  return sum;
}

RequestSource::HeldBack MixedSource::held_back() const {
  HeldBack all;
  for (const Part& part : parts_) {
    const HeldBack one = part.mixed.stream->held_back();
    all.requests += one.requests;
    all.seconds += one.seconds;
    all.longest = std::max(all.longest, one.longest);
  }
  return all;
}

std::int64_t MixedSource::expected() const {
  std::int64_t sum = 0;
  for (const Part& part : parts_) {
    const std::int64_t one = part.mixed.stream->expected();
    if (one < 0) return -1;
    sum += one;
  }
  return sum;
}

}  // namespace spillway::traces
