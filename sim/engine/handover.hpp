// Prefill and decode pools: KV on its way from the instance that computed a prompt to the one that generates the
// answer.
//
// The way of a request, with the KV handed over as a whole:
//
//   prefill    A replica of the first pool computes the prompt. It keeps the KV until the hand-over has ended.
//   choice     The second pool's router chooses a replica when the prompt has been computed.
//   admission  Its scheduler admits the request as any other one, and takes blocks for the KV; the request waits
//   outside
//              the batch, and those behind it go on.
//   transfer   The copy starts when the blocks are there. What the decode replica has in its prefix cache stays out.
//   answer     The request joins the batch of the decode replica. It computes one token first: the last one of the
//              prompt, so that the first token is sampled here, or the first token, which the prefill replica sampled.
//
// KV that waits may leave a prefill replica too little memory for any prompt, so that prompts preempt each other for
// ever. When it has run as many iterations without a token as its memory has tokens, it rests until KV or a request
// leaves.
//
// A request that waits with its KV keeps its blocks while others run. When no other one can run, or none has generated
// a token for 100 iterations, the last that took blocks gives them back, and computes its prompt itself.
//
// Layer by layer, the choice and the admission come first: the prompt is sent to the prefill replica when the blocks
// are there. All layers but the last move while the prompt is computed, from when it joins the batch; the last one
// moves when both they and the prompt are done. So a transfer alone that takes t, for a prompt that is computed in c,
// ends max(t (L - 1) / L - c, 0) + t / L after the prompt, with a launch for each part. That a layer may leave before
// it is computed, when the link is faster than the prompt, changes no end: the last layer waits.
//
// Links. Once its launch is over, a transfer crosses ports of the two replicas, which only transfers do, and links
// of the servers, such as those of a PCIe switch. Copies of instances cross these, too: KV that swaps, weights that
// are streamed. All that move at an instant share each link max-min fairly: the bytes/s per GPU of all rise together,
// until a flow is as fast as alone or one of its links is full. Example: a copy of two GPUs and a transfer between
// replicas of two GPUs move at 1 byte/ns per GPU when they are alone. While both cross a switch of 3 bytes/ns, they
// move at 3 / 4 byte/ns per GPU. Transfers do not slow computing down.
//
// Failures. A request whose prompt, or whose KV before it has arrived, is lost with its prefill replica starts anew.
// Without SimulationConfig::retry it is lost, and so is one whose decode replica goes down, at once. With retry, when
// the decode replica goes down before the KV has arrived, KV that moves as a whole stays where it is and goes to
// another one; layer by layer the request starts anew, because its KV could hold the memory for which the prompts wait
// that the other replica admits first. After the hand-over, the request starts anew.
//
// Sources: vLLM 0.11, nixl_connector (whole, first token sampled by the decode instance); SGLang 0.5, disaggregation
// (the decode instance allocates first; the prefill instance samples); DistServe (OSDI 2024) §4.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "sim/api/router.hpp"
#include "sim/core/units.hpp"
#include "sim/exec/executor.hpp"
#include "sim/exec/links.hpp"

namespace spillway {

/// How KV gets from one instance to another.
struct HandoverPath {
  /// A copy that moves at 1 byte/s takes `share` bytes/s of the link.
  struct Crossing {
    std::size_t link = 0;  // position in Handover::links
    double share = 1.0;
  };
  Duration launch{};
  BytesPerSecond bandwidth{};  // of the whole copy, by all GPUs of the instance, when nothing else is on the way
  std::vector<Crossing> crossings{};
};

struct Handover {
  /// Which of SimulationConfig::pools it is that has two pools of its own, one after the other; 0 without these.
  std::size_t kind = 0;
  std::size_t prefill = 0;  // instances of its first pool, >= 1; its others are the second one
  std::function<std::unique_ptr<Router>(const Replicas&)> decode_router{};
  bool first_token_at_prefill = false;
  bool by_layers = false;
  std::int64_t gpus = 1;  // of an instance: each has KvLayout::block_bytes of a block
  /// Links that transfers share: first SimulationConfig::links, which copies of instances cross, too, and then those
  /// that no other copy crosses.
  std::vector<BytesPerSecond> links{};
  /// From an instance of the first pool to one of the second, by their numbers within the pools.
  std::function<HandoverPath(std::size_t prefill, std::size_t decode)> path{};

  // Pools, of all kinds in order:
  [[nodiscard]] std::size_t prompts() const { return kind; }
  [[nodiscard]] std::size_t answers() const { return kind + 1; }
  /// The pool to which the requests of a kind go.
  [[nodiscard]] std::size_t pool_of(std::size_t of_kind) const { return of_kind > kind ? of_kind + 1 : of_kind; }
  [[nodiscard]] std::size_t kind_of(std::size_t pool) const { return pool > kind ? pool - 1 : pool; }
};

/// The transfers under way. Those that cross a link share it max-min fairly; one alone takes launch + bytes /
/// bandwidth. A change costs O(transfers * (transfers + links)).
///
/// Where copies of instances cross the same links, a change only makes is_due() true, and share() follows before time
/// goes on (HandoverSharing).
class KvTransfers {
 public:
  /// `gpus` as in Handover. `beside_copies`: instances copy over some of the links.
  explicit KvTransfers(std::span<const BytesPerSecond> links, std::int64_t gpus = 1, bool beside_copies = false);
  [[nodiscard]] bool is_due() const { return due_; }
  /// A transfer moves bytes.
  [[nodiscard]] bool moves() const;
  /// Each transfer gets its share from `now` on. `add_others` adds the flows of others to the links of transfers, and
  /// `hear` learns what they get; both may be empty.
  void share(SimTime now, const std::function<void(Links&)>& add_others = {},
             const std::function<void(const Links&)>& hear = {});
  /// Bytes that moved over each link, in transfers that ended in the measured span.
  [[nodiscard]] const std::vector<double>& moved() const { return moved_; }
  /// `transfer`: of `path`'s bandwidth, without its launch.
  void start(std::uint32_t serial, const HandoverPath& path, Duration transfer, SimTime now);
  /// No effect on one that is not under way.
  void cancel(std::uint32_t serial, SimTime now);
  /// The next instant at which collect() is due; kNever: nothing is under way.
  [[nodiscard]] SimTime next() const;
  /// The transfers that end at `now`, in order of their start.
  [[nodiscard]] std::vector<std::uint32_t> collect(SimTime now, bool measured);

 private:
  struct Transfer {
    std::uint32_t serial = 0;
    HandoverPath path{};
    Duration transfer{};
    bool launched = false;  // it moves bytes
    CopyStream stream{};    // the transfer is its only copy
  };
  /// Something has started, launched or ended.
  void change(SimTime now);

  Links links_;
  std::size_t shared_ = 0;
  double gpus_ = 1.0;
  bool beside_copies_ = false;
  bool due_ = false;
  std::vector<Transfer> under_way_;
  std::vector<double> moved_;
};

}  // namespace spillway
