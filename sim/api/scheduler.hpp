// The two halves of a policy: who runs (Scheduler) and where state lives (OffloadPolicy, which implements KvSpace).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/api/decision.hpp"
#include "sim/api/view.hpp"

namespace spillway {

/// Answers of a KvSpace.
enum class Fit : std::uint8_t {
  now,    // there is room
  later,  // no room until something running releases some
  never   // more than the space can ever hold
};

/// Room for KV, as a scheduler asks for it: a scheduler never counts blocks. Every answer reflects what the current
/// decision has staged so far.
class KvSpace {
 public:
  virtual ~KvSpace() = default;
  /// May a waiting request be admitted, when blocks for its first `upto` known tokens must be there? Cached prefix
  /// blocks count as there.
  [[nodiscard]] virtual Fit admits(const RequestView& request, Tokens upto) const = 0;
  /// May a request in the batch grow to `upto` tokens?
  [[nodiscard]] virtual Fit grows(const RequestView& request, Tokens upto) const = 0;
  /// Is there room for the next token of the first `count` decoding requests in batch order?
  [[nodiscard]] virtual Fit decodes(std::int64_t count) const = 0;
  /// May a swapped request come back?
  [[nodiscard]] virtual Fit resumes(const RequestView& request) const = 0;
  /// Where the state of a request that is preempted now should go.
  [[nodiscard]] virtual Leave preempts(const RequestView& request) const = 0;
};

/// Decides where state lives. Constructed for one run, over that run's View. Policies that move state on their own
/// terms (split residency, changing capacity, layer rules) extend this class; a scheduler sees only the KvSpace.
class OffloadPolicy : public KvSpace {};

/// Decides who runs, once per iteration.
///
/// Contract
///  * `arrived` and `ended` come in event order and only between decisions. What the policy itself decided (leave,
///    reject) is not reported back.
///  * `decide` sees time stand still; it stages at least one step, or leaves the standing batch as it is, or calls
///    Decision::idle. A decision that runs nothing while requests are waiting, without idle(), is a broken invariant.
class Scheduler {
 public:
  virtual ~Scheduler() = default;
  virtual void arrived(const RequestView& request) = 0;
  /// The iteration that was decided last is over; `ended` of the requests that it finished follows.
  virtual void iteration_ended() {}
  /// The request is gone: it finished, or its client gave up.
  virtual void ended(RequestId id, Outcome outcome) = 0;
  virtual void decide(const View& view, const KvSpace& kv, Decision& decision) = 0;
};

}  // namespace spillway
