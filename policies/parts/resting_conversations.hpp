// The KV of conversations between two turns: what of it may leave the GPU or the host, and what goes first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "policies/parts/retention_cost.hpp"
#include "policies/parts/retention_order.hpp"
#include "sim/api/view.hpp"
#include "sim/core/number_map.hpp"

namespace spillway {

/// Conversations of which no request is in the batch, in chunks of so many blocks. Three kinds of chunks compete, each
/// in an order of its own: those on the GPU alone may be copied to the host, those with a clean copy there may give up
/// their place on the GPU, and those on the host may be dropped.
///
/// Within a conversation the value of a chunk grows with its position, so only the first chunk of each kind competes.
/// Every call costs O(runs of the conversation + log conversations), and O(1) for each further chunk that goes with the
/// first. A chunk that goes costs O(log conversations) when the next one is in the same place. Memory is
/// O(conversations).
class RestingConversations {
  struct Resting;
  struct First;

 public:
  /// The candidate for a chunk that ends `context` tokens after the start of a conversation that rests since then.
  using Candidate = std::function<RetentionCandidate(std::int64_t conversation, SimTime since, Tokens context)>;

  struct Chunk {
    Holder holder{};
    BlockRange range{};
    RetentionCandidate candidate{};
    std::size_t slot = 0;
    First Resting::*kind = nullptr;
  };
  /// What became of a chunk.
  enum class Became : std::uint8_t { leaving, on_host, dropped };
  /// Blocks of resting conversations on the GPU, by what became of them there; and all their blocks on the host.
  struct Counts {
    Blocks dirty{};    // there alone
    Blocks leaving{};  // a copy is on its way to the host
    Blocks clean{};    // the host has a copy
    Blocks on_host{};
    Counts& operator+=(const Counts& other);
    Counts& operator-=(const Counts& other);
  };

  RestingConversations(const View& view, Blocks chunk, Candidate candidate);

  /// A turn has ended: the conversation rests from now on. Its KV is still its request's.
  void rests(const RequestView& request);
  /// A turn has begun, or nothing is left of it.
  void ends(std::int64_t conversation);
  /// Its KV has moved or was dropped. Nothing happens when it does not rest.
  void changed(std::int64_t conversation);
  /// The chunks that went first in the call before are on their way to the host, are there alone, or are no more.
  void changed(const Chunk& chunk, Became what);
  /// No chunk of it goes first until changed() is called.
  void pin(std::int64_t conversation);

  [[nodiscard]] const Counts& counts() const { return counts_; }
  /// All but those of one conversation.
  [[nodiscard]] Counts counts_without(std::int64_t conversation) const;

  /// The chunk of each kind that goes first now; empty: there is none.
  [[nodiscard]] std::optional<Chunk> first_dirty() { return first(dirty_, &Resting::dirty); }
  /// Of these, together with those of its conversation that go next, up to the first with which they come to `wanted`.
  [[nodiscard]] std::optional<Chunk> first_clean(Blocks wanted);
  [[nodiscard]] std::optional<Chunk> first_on_host() { return first(on_host_, &Resting::on_host); }

 private:
  static constexpr std::int64_t kNone = -1;
  /// The first chunk of a kind; empty: there is none.
  struct First {
    BlockRange range{};
    BlockRange offered{};  // what competes
    Blocks end{};          // all blocks from the range on to here are in the same place, and of no other kind
  };
  struct Resting {
    std::int64_t conversation = kNone;
    SimTime since{};
    Tokens tokens{};
    Blocks blocks{};  // of these tokens
    Counts counts{};
    First dirty{};
    First clean{};
    First on_host{};
    bool stale = false;  // its slot is in stale_
    bool pinned = false;
  };

  [[nodiscard]] std::optional<Chunk> first(RetentionOrder& order, First Resting::*kind);
  /// The candidate of a chunk.
  [[nodiscard]] RetentionCandidate candidate(const Resting& resting, const BlockRange& range) const;
  /// Its candidates are to be offered again.
  void mark_stale(std::size_t slot) {
    if (!std::exchange(resting_[slot].stale, true)) stale_.push_back(slot);
  }
  void update(std::size_t slot, std::span<const KvRun> runs);
  /// Looks where its KV is.
  void refresh(std::size_t slot);
  /// None of its chunks competes.
  void withdraw(std::size_t slot);
  /// The candidates of slots whose chunks have changed, in time for the next question. So a conversation whose chunks
  /// change several times in between competes anew once, and not before the end of its turn is known to all.
  void offer_stale();
  void offer(RetentionOrder& order, std::size_t slot, First Resting::*kind);

  const View& view_;
  const Blocks chunk_;
  const Candidate candidate_;
  NumberMap<std::size_t> slots_;  // by conversation
  std::vector<Resting> resting_;  // by slot
  std::vector<std::size_t> free_;
  std::vector<std::size_t> stale_;
  Counts counts_;
  RetentionOrder dirty_;
  RetentionOrder clean_;
  RetentionOrder on_host_;
};

}  // namespace spillway
