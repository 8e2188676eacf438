// Blocks counted from the View, one question at a time, for plain models of engines with paged KV.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "sim/api/scheduler.hpp"

namespace spillway::oracle {

/// A plain model is one object: its scheduler counts blocks itself, so nothing asks its space.
class UnaskedSpace : public OffloadPolicy {
 public:
  [[nodiscard]] Fit admits(const RequestView&, Tokens) const override { return unasked(); }
  [[nodiscard]] Fit grows(const RequestView&, Tokens) const override { return unasked(); }
  [[nodiscard]] Fit decodes(std::int64_t) const override { return unasked(); }
  [[nodiscard]] Fit resumes(const RequestView&, Tokens) const override { return unasked(); }
  [[nodiscard]] Leave preempts(const RequestView&) const override {
    unasked();
    return Leave::preempt_recompute;
  }

 private:
  static Fit unasked() { throw std::logic_error("a plain model asks no space"); }
};

/// Blocks that so many tokens occupy: the last one may be partly empty.
inline std::int64_t blocks_of(const View& view, std::int64_t tokens) {
  std::int64_t blocks = 0;
  while (blocks * view.block_tokens().count() < tokens) ++blocks;
  return blocks;
}

inline std::int64_t free_blocks(const View& view) { return view.tier(kGpuTier).free.count(); }

/// Blocks of a waiting request's first `tokens` tokens that must come from the free ones. Cached blocks that another
/// request uses are there already; a cached block that nobody uses counts among the free ones until it is taken; one
/// that only the host holds needs a block of the GPU.
inline std::int64_t blocks_taken(const View& view, RequestId id, std::int64_t tokens) {
  const View::CachedPrefix cached = view.cached_prefix(id);
  const std::int64_t hit = cached.tokens.count() / view.block_tokens().count();
  const std::int64_t in_use = hit - cached.idle_blocks.count() - cached.host_blocks.count();
  return blocks_of(view, tokens) - in_use;
}

/// Blocks that a request in the batch lacks for its next `tokens` tokens.
inline std::int64_t blocks_lacking(const View& view, const RequestView& request, std::int64_t tokens) {
  return std::max<std::int64_t>(0, blocks_of(view, request.computed.count() + tokens) - request.held.count());
}

/// int(share * blocks), as the engines compute the blocks that they keep free.
inline std::int64_t watermark_of(double share, std::int64_t blocks) {
  return static_cast<std::int64_t>(share * static_cast<double>(blocks));
}

using Ids = std::vector<RequestId>;

/// In order of arrival.
inline Ids by_arrival(Ids ids) {
  std::sort(ids.begin(), ids.end(), [](RequestId a, RequestId b) { return a.serial < b.serial; });
  return ids;
}
inline void remove(Ids& ids, RequestId id) { std::erase(ids, id); }
inline void push_front(Ids& ids, RequestId id) { ids.insert(ids.begin(), id); }

}  // namespace spillway::oracle
