// A client that keeps a limited number of requests in flight.
#pragma once

#include <cstdint>
#include <memory>

#include "sim/api/request_source.hpp"

namespace spillway::traces {

/// Sends the requests of a source in their order, each when it is due and fewer than `concurrency` are in flight, as
/// vLLM's --max-concurrency does. A source whose requests are all due at 0 becomes a closed loop.
///
/// The first `concurrency` requests are sent over `ramp` at the earliest: number k, from 0, not before
/// ramp * k / concurrency. O(1) per request beside the source.
class ClosedLoop final : public RequestSource {
 public:
  /// concurrency >= 1, ramp >= 0
  ClosedLoop(std::unique_ptr<RequestSource> source, std::int64_t concurrency, Duration ramp);

  [[nodiscard]] SimTime next_arrival() override;
  bool next(RequestSpec& request) override;
  void ended(const RequestRecord& record) override;
  /// When it is due: a full loop sends it later.
  [[nodiscard]] SimTime next_turn(std::int64_t conversation) const override { return source_->next_turn(conversation); }
  [[nodiscard]] std::int64_t expected() const override { return source_->expected(); }
  [[nodiscard]] std::int64_t unsent() const override { return source_->unsent(); }
  [[nodiscard]] std::int64_t shortened() const override { return source_->shortened(); }
  [[nodiscard]] HeldBack held_back() const override { return held_back_; }

 private:
  std::unique_ptr<RequestSource> source_;
  std::int64_t concurrency_;
  Duration ramp_;
  std::int64_t in_flight_ = 0;
  std::int64_t sent_ = 0;
  SimTime earliest_{};  // the last send or end
  HeldBack held_back_{};
};

}  // namespace spillway::traces
