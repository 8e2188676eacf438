// Several streams of requests as one, for instances of several kinds.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "sim/api/request_source.hpp"

namespace spillway::traces {

/// Instances of one kind, and the part of a stream that is theirs.
struct Receiver {
  std::uint32_t pool = 0;  // RequestTraits::pool
  double share = 1.0;      // > 0; the shares of a stream sum to 1
  RequestSlo slo{};        // limits of its requests that state none
};

/// A stream, and who serves it.
struct MixedPart {
  std::unique_ptr<RequestSource> stream;
  std::vector<Receiver> receivers;  // at least one
};

/// Merges streams by arrival; at one instant the earlier part comes first.
///
/// Each request of a part goes to one of its receivers, drawn with their shares; all turns of a conversation go to the
/// same one. A draw depends on the seed, the replication, the part, and the conversation's or the request's number in
/// it, and on nothing else: shares that change move as few requests as they can.
///
/// Conversations are numbered anew, so that those of several parts differ. Clients keep their numbers: a client of two
/// parts is the same one. O(parts) per call; memory O(live requests) beside that of the parts.
class MixedSource final : public RequestSource {
 public:
  MixedSource(std::vector<MixedPart> parts, std::int64_t seed, std::int64_t replication);

  [[nodiscard]] SimTime next_arrival() override;
  bool next(RequestSpec& request) override;
  void ended(const RequestRecord& record) override;
  [[nodiscard]] SimTime next_turn(std::int64_t conversation) const override;
  [[nodiscard]] std::int64_t unsent() const override;
  [[nodiscard]] std::int64_t shortened() const override;
  [[nodiscard]] HeldBack held_back() const override;
  [[nodiscard]] std::int64_t expected() const override;

 private:
  struct Part {
    MixedPart mixed;
    std::uint64_t of_requests = 0;  // keys of the draws
    std::uint64_t of_conversations = 0;
    std::uint64_t delivered = 0;
  };
  [[nodiscard]] const Receiver& receiver_of(const Part& part, const RequestTraits& traits) const;
  [[nodiscard]] std::int64_t count() const { return static_cast<std::int64_t>(parts_.size()); }

  std::vector<Part> parts_;
  std::uint64_t delivered_ = 0;
  /// Of a request that has not ended, by its index.
  struct Own {
    std::size_t part = 0;
    std::uint64_t index = 0;  // in the part
  };
  std::unordered_map<std::uint64_t, Own> live_;
};

}  // namespace spillway::traces
