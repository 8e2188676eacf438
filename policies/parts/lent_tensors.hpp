// Tensors of a consumer that other GPUs hold for it, whole or not at all.
#pragma once

#include "sim/api/view.hpp"

namespace spillway {

/// Tensors for which a consumer asks the coordinator at once. They are on the lender if it had room for all of them,
/// else on the host.
///  * Reclaimed tensors go to the host.
///  * Tensors on the host go to the lender once it has room for all of them.
/// The consumer asks for both between two iterations, at most once in `poll`.
///
/// Source: AQUA (arXiv 2407.21255), section 4; aquaml/aqua (0ed7c15), dynamic_policy.py and its coordinator. O(1) per
/// call.
class LentTensors {
 public:
  /// `lender`: kNoTier: nobody lends, so that all tensors are on the host. `block`: bytes of a block of that tier.
  LentTensors(const View& view, TierId lender, Bytes block, Duration poll)
      : view_(view), lender_(lender), block_(block), poll_(poll) {}

  /// New tensors in place of those before.
  void allocate(Bytes bytes) {
    bytes_ = bytes;
    lent_ = bytes > Bytes(0) && fits();
  }
  void release() { allocate(Bytes(0)); }
  /// An iteration is about to start. True: all tensors have to move, to where lent() says from now on.
  [[nodiscard]] bool poll() {
    if (lender_ == kNoTier || view_.now() < next_poll_) return false;
    next_poll_ = view_.now() + poll_;
    if (bytes_ == Bytes(0) || lent_ == fits()) return false;
    lent_ = !lent_;
    return true;
  }
  /// They are on the lender, or on their way there.
  [[nodiscard]] bool lent() const { return lent_; }
  [[nodiscard]] Bytes bytes() const { return bytes_; }
  /// What they hold of the lender.
  [[nodiscard]] Bytes held() const { return lent_ ? bytes_ : Bytes(0); }

 private:
  /// Nothing else of the consumer is on the lender, and what is reclaimed is 0 blocks.
  [[nodiscard]] bool fits() const { return lender_ != kNoTier && bytes_ <= block_ * view_.tier(lender_).total.count(); }

  const View& view_;
  const TierId lender_;
  const Bytes block_;
  const Duration poll_;
  SimTime next_poll_{};
  Bytes bytes_{};
  bool lent_ = false;
};

}  // namespace spillway
