// Memory that one instance lends to another: the coordinator between the two.
//
// Source: AQUA (arXiv 2407.21255), sections 4 and 6; aquaml/aqua (0ed7c15): coordinator/, aqua/dynamic_policy.py.
#pragma once

#include <optional>

#include "sim/api/informer.hpp"
#include "sim/core/units.hpp"
#include "sim/metrics/lending.hpp"

namespace spillway {

/// An instance borrows memory of GPUs of the same server, each of its GPUs from one of them.
struct Loan {
  std::size_t borrower = 0;             // an instance
  std::optional<std::size_t> lender{};  // empty: GPUs that serve no request of the run, and never reclaim
  Bytes offered{};                      // per GPU, from the start on
  MakeInformer informer{};              // of an instance that lends
  BytesPerSecond memory_bandwidth{};    // of a GPU that lends; 0: unknown
};

/// What the coordinator knows of a loan, in bytes of one GPU. Both sides ask it: the lender offers and reclaims, the
/// borrower takes blocks as long as nothing is reclaimed, and memory returns to the lender once nothing is held of it.
/// O(1) per call.
class LentMemory {
 public:
  explicit LentMemory(const Loan& loan);

  [[nodiscard]] Bytes offered() const { return state_.offered; }
  [[nodiscard]] Bytes held() const { return state_.held; }
  [[nodiscard]] bool reclaimed() const { return reclaimed_since_ != kNever; }
  /// What the borrower may hold in all. Nothing of what is reclaimed: it may take nothing more.
  [[nodiscard]] Bytes available() const { return reclaimed() ? Bytes(0) : state_.offered; }

  // The lender
  /// Nothing may be offered yet.
  void offer(Bytes bytes, SimTime now);
  /// The lender wants back what it has offered. No effect if it does already.
  void reclaim(SimTime now);
  /// What is reclaimed is the lender's again, if nothing is held of it. Returns whether it is.
  bool take_back(SimTime now);
  /// Time for which the lender's memory was busy with copies of the borrower since the last call: each byte is read
  /// there, or written.
  [[nodiscard]] Duration take_busy();

  // The borrower
  /// So much is in use, or on its way from or to the lender. At most what is offered.
  void hold(Bytes bytes, SimTime now);
  /// So many bytes have been put on the way, in both directions.
  void copied(Bytes bytes, SimTime now);

  // The run
  /// The measured span begins then, not before the last change; kNever, as at first: not known yet.
  void measure_from(SimTime begin) { begin_ = begin; }
  [[nodiscard]] LentState state() const { return state_; }
  /// Of the measured span up to `end`, not before the last change in it.
  [[nodiscard]] LendingFigures figures(SimTime end) const;

 private:
  /// The state has lasted until `now`.
  void advance(SimTime now);
  [[nodiscard]] bool measures(SimTime now) const { return begin_ != kNever && now >= begin_; }

  const BytesPerSecond memory_bandwidth_;
  LentState state_{};
  SimTime reclaimed_since_ = kNever;
  Bytes copied_{};  // since the lender last asked
  SimTime begin_ = kNever;
  SimTime advanced_{};
  LendingFigures figures_{};
};

}  // namespace spillway
