// Which state of which layer is on the GPU: the part of a policy that streams layers between host and GPU.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/api/execution_model.hpp"
#include "sim/api/experts.hpp"
#include "sim/api/figure.hpp"
#include "sim/api/layer_rule.hpp"
#include "sim/api/parameter.hpp"
#include "sim/api/view.hpp"
#include "sim/core/units.hpp"

namespace spillway {

/// A tensor of a transformer layer, as vLLM and SGLang store it: projections of one input are one tensor, and so are
/// the same matrices of all routed experts.
struct LayerTensor {
  Bytes bytes{};
  bool experts = false;  // of routed experts
};

/// Memory and speed of one GPU and its host, from which a policy plans its layout before a run. All sizes are per GPU.
struct Deployment {
  const ExecutionModel* model = nullptr;     // valid for the whole run
  const ExecutionModel* planning = nullptr;  // the same times, for shapes that may never run; null: `model`
  std::int32_t layers = 0;
  Bytes memory{};         // for weights and KV together; 0: the profile does not state it
  Bytes weights{};        // of the whole model
  Bytes layer_weights{};  // of the linear layers of one transformer layer, which streaming moves
  // Their single matrices, in the order of a checkpoint. Quantised ones may add up to a little less than layer_weights.
  std::vector<Bytes> attention_matrices{};
  std::vector<Bytes> mlp_matrices{};
  std::vector<std::vector<LayerTensor>> tensors{};  // of each layer, in the order of its modules
  /// Share of the routed experts of a layer that an iteration of so many tokens uses, as expert_load has it.
  std::function<double(std::int64_t tokens)> active_experts{};
  Bytes block_bytes{};  // KV of one block, all layers
  Tokens block_tokens{16};
  Bytes gpu_kv{};             // for KV: memory.gpu_kv, or `memory` less the weights (may be < 0)
  bool gpu_kv_given = false;  // by memory.gpu_kv
  /// The memory for KV belongs to another part, which holds the same bytes in the whole run: `gpu_kv` if given, else
  /// what Layout::weights leaves.
  bool gpu_kv_held = false;
  std::optional<Bytes> host_memory{};  // DRAM of the host; empty: unknown
  Bytes lent{};                        // by another GPU, at most; 0: the policy borrows nothing, or nobody lends
  bool lent_for_good = false;          // nothing of it is ever reclaimed
  std::int64_t hidden = 0;             // width of the residual stream
  std::int64_t ffn = 0;
  std::int64_t query_width = 0;                     // heads * head_dim on this GPU
  std::int64_t kv_width = 0;                        // kv_heads * head_dim on this GPU
  std::optional<double> cpu_attention_bandwidth{};  // bytes/s at which the host's CPU reads KV for attention
  double cpu_attention_launch = 0.0;                // s, fixed cost of a call
  std::int64_t heads = 0;                           // query heads on this GPU
  double peak_flops = 0.0;                          // of the GPU, FLOP/s; 0: unknown
  double memory_bandwidth = 0.0;                    // of the GPU, bytes/s; 0: unknown
  std::int64_t gpus = 1;                            // in the server; they share its bus
  std::optional<ExpertDeployment> experts{};        // for a policy that places them
  Tokens positions{};                               // the longest sequence of the model; 0: unknown
  Settings chosen{};                                // Layout::chosen, once there is a layout
  /// PolicyInfo::layer_copies of the run.
  CopyMechanism layer_copies = CopyMechanism::single;

  /// Use this model to time shapes that may never run: such calls must not count in the run's range_uses().
  [[nodiscard]] const ExecutionModel& planner() const { return planning != nullptr ? *planning : *model; }
};

/// How a policy that streams layers uses memory.
struct Layout {
  Blocks blocks{};    // KV blocks on the GPU at the start
  Blocks most{};      // the largest number of KV blocks in the run, >= blocks
  Bytes host{};       // host memory that the policy uses, at most
  Bytes host_kv{};    // the part of it that comes out of memory.host_kv; requests may swap to the rest
  Bytes weights{};    // GPU memory that weights take, at most, staging buffers included; for gpu_kv_held
  std::string terms;  // how the layout was found, one line
  Settings chosen{};  // the policy's choices, for `make`: a run with a scaled model keeps its layout
  /// The least that the copies of one GPU ask of the link to the host while the instance runs any batch as its policy
  /// promises. Instances that share a link cannot all keep such promises when they ask for all of it. 0: no promise.
  BytesPerSecond least_rate{};
};

/// One of several sub-batches of an iteration.
struct SubBatchShape {
  BatchShape shape{};
  Duration cpu_attention{};  // per layer, on the CPU, while the GPU waits
};

/// An iteration that has ended.
struct LayerReport {
  Duration length{};
  Duration layer{};          // compute of one layer, all sub-batches
  Duration stall{};          // time in which compute waited for copies of this part
  std::int64_t tokens = 0;   // generated in the iteration
  bool prefills = false;     // the iteration computed prompts
  std::int64_t waiting = 0;  // requests outside the batch
  double free_share = 0.0;   // share of the KV blocks that is free
};

/// Contract
///  * The engine calls `capacity` before every decision, repeated decisions of one instant included, over a current
///    View. It calls `split`, then `begin`, before every iteration, `copied` after every copy on a stream that it hears
///    of, but those of rounds that the rule skips, and `iteration_ended` after every iteration.
///  * The rule that `begin` returns may go on copying between iterations and must stay valid until the next `begin`.
///    The links are not its own: blocks that requests swap, load or store may stand before its copies.
///  * Only `copied` is told times, and they serve figures alone. View::waiting_since is for deadlines.
///  * `rests` follows a decision after which nothing runs. The next `begin` ends the rest.
///  * `admits` is asked during a decision, for requests whose memory is free. It answers the same until the batch
///    changes, or another instance's does.
///  * Two of them may stream different state (PolicyInfo::streams): one KV, the other weights. Each has its own rule,
///    hears of its own copies and is told of its own stalls. Only the one that streams KV is asked for `capacity`,
///    `split` and `expand`. It holds its GPU memory in the whole run, so the weights never take more than their
///    Layout::weights, whatever their own policy would like (Deployment::gpu_kv_held).
class LayerPolicy {
 public:
  virtual ~LayerPolicy() = default;
  /// KV blocks that the GPU tier offers now, at most Layout::most. With fewer blocks than are in use the scheduler must
  /// preempt before requests may grow. A prefix cache loses its least recently used blocks first.
  [[nodiscard]] virtual Blocks capacity() const = 0;
  /// The sub-batches of the iteration; empty: the batch is not split. The span is valid until the next call.
  [[nodiscard]] virtual std::span<const SubBatchShape> split(const BatchShape& /*shape*/) { return {}; }
  /// The rule that says what the layers of the iteration that starts now wait for; null: nothing. `compute` is
  /// without the work of the rule (LayerRule::work), and without the slowdown by copies.
  [[nodiscard]] virtual LayerRule* begin(const BatchShape& shape, const LayerCompute& compute) = 0;
  virtual void copied(const Copy& /*copy*/, SimTime /*started*/, SimTime /*ended*/) {}
  /// False: `copied` need not be called for copies on this stream. Constant for a run.
  [[nodiscard]] virtual bool hears_of(Stream /*stream*/) const { return true; }
  virtual void iteration_ended(const LayerReport& /*report*/) {}
  virtual void rests() {}
  /// May a waiting request join, as far as copies are concerned? False: schedulers hear Fit::never and reject it.
  [[nodiscard]] virtual bool admits(const RequestView& /*request*/) const { return true; }
  /// Whether `admits` may ever answer false. Constant for a run.
  [[nodiscard]] virtual bool may_refuse() const { return false; }
  /// The scheduler has rejected a request that `admits` refuses. `sent_on`: another replica will be asked, so it does
  /// not end as rejected yet.
  virtual void refused(bool /*sent_on*/) {}
  /// Lent memory of one GPU that it holds for itself, beside blocks of requests: at most what View::tier() says when it
  /// takes it, in `begin`. What it gives up there counts until the iteration has ended, because it may be on its way.
  [[nodiscard]] virtual Bytes held_of_lender() const { return {}; }
  /// Called when nothing runs, no KV is live, and the head of the queue needs more capacity. Returns true if capacity()
  /// has grown; the prefix cache is empty then.
  [[nodiscard]] virtual bool expand() { return false; }
  /// Figures of the run so far, as PolicyInfo::figures declares them.
  [[nodiscard]] virtual Figures figures() const { return {}; }
};

}  // namespace spillway
