// Which state of which layer is on the GPU: the part of a policy that streams layers between host and GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "sim/api/execution_model.hpp"
#include "sim/api/layer_rule.hpp"
#include "sim/api/parameter.hpp"
#include "sim/core/units.hpp"

namespace spillway {

/// What one GPU and its host offer to a model, before a run: what a policy lays state out in. All sizes are per GPU.
struct Deployment {
  const ExecutionModel* model = nullptr;     // valid for the whole run
  const ExecutionModel* planning = nullptr;  // the same times, for what may never run; null: `model`
  std::int32_t layers = 0;
  Bytes memory{};         // what weights and KV may take together; 0: the profile leaves it open
  Bytes weights{};        // all of them
  Bytes layer_weights{};  // linear layers of one transformer layer: what streaming moves
  Bytes block_bytes{};    // KV of one block, all layers
  Tokens block_tokens{16};
  Bytes gpu_kv{};                      // for KV: memory.gpu_kv, or what memory leaves beside the weights (may be < 0)
  bool gpu_kv_given = false;           // by memory.gpu_kv
  std::optional<Bytes> host_memory{};  // DRAM of the host; empty: nothing is known of it
  std::int64_t hidden = 0;             // width of the residual stream
  std::int64_t ffn = 0;
  std::int64_t query_width = 0;                     // heads * head_dim on this GPU
  std::int64_t kv_width = 0;                        // kv_heads * head_dim on this GPU
  std::optional<double> cpu_attention_bandwidth{};  // bytes/s at which the host's CPU reads KV for attention
  std::int64_t heads = 0;                           // of queries, on this GPU
  double peak_flops = 0.0;                          // of the GPU, FLOP/s; 0: unknown
  std::int64_t gpus = 1;                            // of the server, which share its bus
  Tokens positions{};                               // the longest sequence of the model; 0: no limit is known
  Settings chosen{};                                // Layout::chosen, once there is a layout

  /// Asked for a shape that may never run, it does not say that the run had it (ExecutionModel::range_uses).
  [[nodiscard]] const ExecutionModel& planner() const { return planning != nullptr ? *planning : *model; }
};

/// How a policy that streams layers uses memory.
struct Layout {
  Blocks blocks{};    // of the GPU's KV at the start
  Blocks most{};      // that it may ever come to, >= blocks
  Bytes host{};       // that the policy takes on the host, at most
  std::string terms;  // how the figures came about, one line
  Settings chosen{};  // what was decided on the way, for `make`: a run whose model is scaled keeps its layout
};

/// One of several sub-batches of an iteration.
struct SubBatchShape {
  BatchShape shape{};
  Duration cpu_attention{};  // per layer, on the CPU, while the GPU waits
};

/// An iteration that is over.
struct LayerReport {
  Duration length{};
  Duration layer{};          // compute of one layer, all sub-batches
  Duration stall{};          // time in which compute waited for copies
  std::int64_t tokens = 0;   // generated in it
  bool prefills = false;     // it computed prompts
  std::int64_t waiting = 0;  // requests outside the batch
  double free_share = 0.0;   // of the KV blocks
};

/// What a policy has to report about its layers. Empty: it has no such thing.
struct LayerFigures {
  std::optional<double> interval{};      // offloading interval, mean over the iterations that streamed weights
  std::optional<double> slo_risk{};      // share of iterations that ran at a smaller interval than their SLO allows
  std::optional<double> mean_dwell_s{};  // from the start of a layer's way out to the end of its way in
  std::optional<double> max_dwell_s{};
  std::optional<Bytes> peak_host{};  // most bytes that its layers took on the host at once
};

/// Contract
///  * `capacity` is asked before every decision, over a View that is up to date; `split`, then `begin`, before every
///    iteration; `copied` after every copy; `iteration_ended` once the iteration is over.
///  * The rule that `begin` returns may go on copying between iterations and must stay valid until the next `begin`.
///  * Nothing here sees the clock but `copied`, whose times serve figures alone.
class LayerPolicy {
 public:
  virtual ~LayerPolicy() = default;
  /// KV blocks that the GPU tier offers now. Fewer than are in use: the scheduler must preempt before it may grow.
  [[nodiscard]] virtual Blocks capacity() const = 0;
  /// How the iteration is cut into sub-batches; empty: it is not. The span is valid until the next call.
  [[nodiscard]] virtual std::span<const SubBatchShape> split(const BatchShape& /*shape*/) { return {}; }
  /// What the layers of the iteration that starts now wait for; null: nothing. `layer` is the compute of one layer.
  [[nodiscard]] virtual LayerRule* begin(const BatchShape& shape, Duration layer) = 0;
  virtual void copied(const Copy& /*copy*/, SimTime /*started*/, SimTime /*ended*/) {}
  virtual void iteration_ended(const LayerReport& /*report*/) {}
  /// Nothing runs, no KV is live, and the head of the queue needs more room than there is: true if capacity() has
  /// grown.
  [[nodiscard]] virtual bool expand() { return false; }
  [[nodiscard]] virtual LayerFigures figures() const { return {}; }
};

}  // namespace spillway
