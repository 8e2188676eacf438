// Prompts that are computed in pieces.
#pragma once

#include <algorithm>
#include <vector>

#include "sim/api/scheduler.hpp"

namespace spillway {

/// The requests in the batch whose prompt is not complete yet, in order of arrival. Engines with one token budget have
/// at most one; engines with a budget per request may have more. O(their number) per call.
class PromptPieces {
 public:
  /// The next `tokens` known tokens of `request` are staged. `request` is its view before that.
  void staged(const RequestView& request, Tokens tokens) {
    forget(request.id);
    if (tokens == request.remaining()) return;
    const auto later = [&](RequestId other) { return other.serial > request.id.serial; };
    unfinished_.insert(std::find_if(unfinished_.begin(), unfinished_.end(), later), request.id);
  }
  /// The request left the batch or ended. No effect when its prompt is complete.
  void forget(RequestId id) { std::erase(unfinished_, id); }

  /// The request that arrived first; kNoRequest when every prompt is complete.
  [[nodiscard]] RequestId first() const { return unfinished_.empty() ? kNoRequest : unfinished_.front(); }

  /// Computes the next `piece(request)` tokens, at most the remaining ones, of every incomplete prompt.
  template <class Piece>
  void compute(const View& view, Decision& decision, Piece piece) {
    for (std::size_t i = 0; i < unfinished_.size();) {
      const RequestView request = view.request(unfinished_[i]);
      const Tokens tokens = std::min(request.remaining(), piece(request));
      if (tokens > Tokens(0)) decision.chunk(request.id, tokens);
      if (tokens == request.remaining()) {
        unfinished_.erase(unfinished_.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
  }

 private:
  std::vector<RequestId> unfinished_;
};

}  // namespace spillway
