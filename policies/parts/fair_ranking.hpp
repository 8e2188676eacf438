// Requests in the order of the service that they have had: the least served first.
#pragma once

#include <cstdint>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/api/view.hpp"

namespace spillway {

/// The live requests of a scheduler in two orders: those whose prompt is not complete, by prompt tokens computed, and
/// those that decode, by tokens generated. Equals stand in order of arrival. O(log requests) per change.
///
/// Source: AQUA, section 7 (step 2 of its batch partition).
class FairRanking {
 public:
  struct Rank {
    std::int64_t served = 0;
    RequestId id{};
    [[nodiscard]] auto key() const { return std::tuple(served, id.serial); }
    bool operator<(const Rank& other) const { return key() < other.key(); }
  };
  using Order = std::set<Rank>;

  /// A request that is new, or must be computed again from its start.
  void put_first(RequestId id) { put(id, /*decodes=*/false, 0); }
  /// The request has been served since it was ranked last.
  void update(const RequestView& request) {
    const bool whole = request.known > request.input && request.remaining() == Tokens(1);
    const bool decodes = request.phase == Phase::decoding || (request.phase == Phase::swapped && whole);
    put(request.id, decodes, (decodes ? request.known - request.input : request.computed).count());
  }
  void remove(RequestId id) {
    Place& place = places_[id.slot];
    (place.decodes ? decodes_ : prompts_).erase(place.rank);
    if (!place.decodes) prompts_by_arrival_.erase({0, id});
    place = {};
  }
  [[nodiscard]] const Order& prompts() const { return prompts_; }
  [[nodiscard]] const Order& prompts_by_arrival() const { return prompts_by_arrival_; }
  [[nodiscard]] const Order& decodes() const { return decodes_; }
  /// Of a request that is in one of the orders. Decodes come behind prompts.
  [[nodiscard]] std::tuple<bool, std::int64_t, std::uint32_t> standing(RequestId id) const {
    const Place& place = places_[id.slot];
    return {place.decodes, place.rank.served, id.serial};
  }

 private:
  struct Place {
    bool decodes = false;
    Rank rank{};
  };
  void put(RequestId id, bool decodes, std::int64_t served) {
    if (places_.size() <= id.slot) places_.resize(id.slot + 1);
    Place& place = places_[id.slot];
    Order& order = decodes ? decodes_ : prompts_;
    if (place.rank.id != id) {
      place = {decodes, {served, id}};
      order.insert(place.rank);
      if (!decodes) prompts_by_arrival_.insert({0, id});
      return;
    }
    if (place.decodes == decodes && place.rank.served == served) return;
    if (decodes && !place.decodes) prompts_by_arrival_.erase({0, id});
    if (!decodes && place.decodes) prompts_by_arrival_.insert({0, id});
    Order::node_type node = (place.decodes ? decodes_ : prompts_).extract(place.rank);
    place = {decodes, {served, id}};
    node.value() = place.rank;
    order.insert(std::move(node));
  }

  Order prompts_;
  Order prompts_by_arrival_;
  Order decodes_;
  std::vector<Place> places_;  // by slot
};

}  // namespace spillway
