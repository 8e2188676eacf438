// Every live request, in 48 bytes.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <vector>

#include "sim/api/view.hpp"
#include "sim/core/error.hpp"
#include "sim/core/request.hpp"

namespace spillway {

/// What is kept of a live request, waiting or running. A request that has been scheduled also has a Member.
struct RequestSlot {
  SimTime arrival{};
  std::uint32_t serial = UINT32_MAX;  // UINT32_MAX: the slot is free
  std::uint32_t content = 0;          // names what is only its own: the same whenever it comes again
  std::uint32_t client = 0;
  std::int32_t input = 0;
  std::int32_t output = 0;  // the truth
  std::int32_t max_new = 0;
  std::int32_t member = -1;         // index of its Member; -1: never scheduled; free slot: next free slot
  std::int32_t details = -1;        // index of its prefix ids and traits; -1: none
  std::int32_t client_number = -1;  // of the FairnessMeter; -1: rejected on arrival
  bool refused = false;             // rejected by what streams layers
};
static_assert(sizeof(RequestSlot) <= 48);

/// Slots in chunks that never move, with a free list: memory follows the number of live requests, nothing is allocated
/// per request in steady state, and a growing queue is never copied. O(1) per call.
class RequestTable {
 public:
  /// `memory` must outlive the table.
  explicit RequestTable(std::pmr::memory_resource* memory) : chunks_(memory) {}

  [[nodiscard]] RequestId add(const RequestSlot& request) {
    if (free_ < 0) grow();
    const auto slot = static_cast<std::uint32_t>(free_);
    RequestSlot& cell = at(slot);
    free_ = cell.member;
    cell = request;
    cell.member = -1;
    ++live_;
    return RequestId{slot, request.serial};
  }
  void remove(RequestId id) {
    RequestSlot& cell = (*this)[id];
    cell.serial = UINT32_MAX;
    cell.member = free_;
    free_ = static_cast<std::int32_t>(id.slot);
    --live_;
  }
  [[nodiscard]] bool alive(RequestId id) const { return id.slot < capacity_ && at(id.slot).serial == id.serial; }
  [[nodiscard]] RequestSlot& operator[](RequestId id) {
    if (!alive(id)) refuse(id);
    return at(id.slot);
  }
  [[nodiscard]] const RequestSlot& operator[](RequestId id) const {
    if (!alive(id)) refuse(id);
    return at(id.slot);
  }
  [[nodiscard]] std::int64_t live() const { return live_; }
  /// Live requests in order of arrival. O(capacity + n log n): for the end of a run.
  [[nodiscard]] std::vector<RequestId> all() const;

 private:
  // Few: most instances of a fleet have few requests, and their slots should lie side by side.
  static constexpr std::uint32_t kChunk = 64;
  [[nodiscard]] RequestSlot& at(std::uint32_t slot) { return chunks_[slot / kChunk][slot % kChunk]; }
  [[nodiscard]] const RequestSlot& at(std::uint32_t slot) const { return chunks_[slot / kChunk][slot % kChunk]; }
  void grow();
  /// Throws InvariantError. Apart, so that the look-up is small enough to be inlined.
  [[noreturn]] static void refuse(RequestId id);

  std::pmr::vector<std::pmr::vector<RequestSlot>> chunks_;
  std::uint32_t capacity_ = 0;
  std::int32_t free_ = -1;
  std::int64_t live_ = 0;
};

}  // namespace spillway
