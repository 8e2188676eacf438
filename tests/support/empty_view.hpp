// A view that shows nothing, for tests that show a part of one.
#pragma once

#include <span>

#include "sim/api/view.hpp"

namespace spillway {

class EmptyView : public View {
 public:
  [[nodiscard]] RequestView request(RequestId) const override { return {}; }
  [[nodiscard]] bool alive(RequestId) const override { return false; }
  [[nodiscard]] RequestId last_joined() const override { return kNoRequest; }
  [[nodiscard]] Blocks decode_growth(std::int64_t) const override { return Blocks(0); }
  [[nodiscard]] RequestId last_decoding() const override { return kNoRequest; }
  [[nodiscard]] bool grows_next(RequestId) const override { return false; }
  [[nodiscard]] SimTime waiting_since() const override { return now(); }
  [[nodiscard]] std::span<const KvRun> runs(const Holder&) const override { return {}; }
  [[nodiscard]] Tokens kept(std::int64_t) const override { return Tokens(0); }
  [[nodiscard]] CachedPrefix cached_prefix(RequestId) const override { return {}; }
};

}  // namespace spillway
