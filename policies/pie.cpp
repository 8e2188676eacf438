// Pie: the KV of some layers lives on the host, and comes back just in time for its layer.
//
// Source: Xu et al., "Pie: Pooling CPU Memory for LLM Inference" (2024): sections 3.1-3.3 (performance-transparent
// swapping, policies/parts/layer_swap.hpp), 3.4 and 4.1 (adaptive expansion). m of n layers stay on the host, so the
// GPU's bytes for KV are cut into n - m slots instead of n. They hold n / (n - m) times as many tokens: the expansion.
//
// The paper gives triggers of the adaptation, but no constants, and judges a raise by the throughput after it. The
// throughput of a few iterations says more about the requests in them than about a raise, which brings 1 / (n - m) of
// capacity. So Spillway judges by what decides in the end: capacity times iterations per second. Capacity follows from
// m, and only waiting costs iterations. (policies/parts/expansion_controller.hpp)
//
//   raise   when memory was full in one of the last 8 iterations (less than a tenth of the blocks was free). A layer
//           that leaves waits for m + 1 swaps of others and comes back with its own: its dwell is (m + 1) t_s + t_in.
//           It may be away while the others compute, so wait = dwell - (compute - one layer), if that is > 0, summed
//           over these iterations. If compute waits already, its waits tell the true dwell, and the planned one grows
//           in proportion.
//             to the largest m without any wait, at once, as the ratio of compute to copies says that it is free. The
//             next raise may follow one iteration after the slots have their size.
//             m + 1, if that waits or compute has waited at m: after a window of 8 iterations at m, and if the layer
//             brings more than its waiting takes: blocks(m + 1) / blocks(m) * compute > compute + wait.
//   lower   m - 1, when compute waited for more than the last layer brings, 1 - blocks(m - 1) / blocks(m), in a window
//           of 8 iterations; or for more than 1% of the time, if memory was not full and no request was kept out. In
//           the first window after a raise the memory counts as needed, for which it was made. If the raise was by
//           several layers, up to half of them go: the most that together bring less than the waiting took; and up to
//           half of these in the next window. No raise to the level that failed follows for 512 iterations. If it fails
//           again, the pause doubles.
//   probe   m - 1, when for 512 iterations, in windows of 8, memory was not full, no request was kept out, and a fifth
//           of the blocks of m - 1 would have stayed free. Then one layer a window, as long as this stays so. So the
//           bandwidth goes back some time after a burst. A fifth is twice what makes memory full, so the same load does
//           not raise m again.
//
// A request is kept out if requests waited when an iteration started that computes no prompts. A raise that was made
// because one request needs the capacity stays until no KV is live.
//
// The paper raises step by step. With steps of one layer, each of which takes a round of swaps, the expansion took up
// to twice as long to settle as memory to fill (experiments/pie).
//
// The capacity of a raise counts once every layer has been swapped into its new slot. The capacity of a lower is gone
// at once, and the scheduler preempts by its own rule. Iterations in which slots change their size say nothing about
// waits.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "policies/parts/expansion_controller.hpp"
#include "policies/parts/layer_figures.hpp"
#include "policies/parts/layer_swap.hpp"
#include "policies/parts/link_traffic.hpp"
#include "policies/parts/quantities.hpp"
#include "policies/parts/single_copy.hpp"
#include "sim/api/registry.hpp"

namespace spillway {
namespace {

constexpr const char* kCopy = "policy.copy";
constexpr std::int32_t kLeastOnGpu = 3;  // layers: one computes, one leaves, one arrives

/// The arithmetic of layers on the host.
class Slots {
 public:
  explicit Slots(const Deployment& deployment) : deployment_(deployment) {}

  [[nodiscard]] std::int32_t layers() const { return deployment_.layers; }
  /// The slot of one layer, with `m` layers on the host.
  [[nodiscard]] Bytes slot(std::int32_t m) const { return Bytes(deployment_.gpu_kv / Bytes(1) / (layers() - m)); }
  [[nodiscard]] Bytes host(std::int32_t m) const { return m == 0 ? Bytes(0) : slot(m) * (m + 2); }
  [[nodiscard]] Blocks blocks(std::int32_t m) const {
    return Blocks(slot(m) / Bytes(1) * layers() / deployment_.block_bytes.count());
  }
  [[nodiscard]] double expansion(std::int32_t m) const {
    return static_cast<double>(layers()) / static_cast<double>(layers() - m);
  }
  [[nodiscard]] std::int32_t most() const { return layers() - kLeastOnGpu; }
  /// The largest number of layers on the host whose expansion is at most `expansion`.
  [[nodiscard]] std::int32_t for_expansion(double expansion) const {
    std::int32_t m = 0;
    while (m < most() && this->expansion(m + 1) <= expansion * (1.0 + 1e-12)) ++m;
    return m;
  }
  /// The largest number of layers on the host whose slots fit into `host` bytes.
  [[nodiscard]] std::int32_t for_host(Bytes host) const {
    std::int32_t m = most();
    while (m > 0 && this->host(m) > host) --m;
    return m;
  }

 private:
  const Deployment& deployment_;
};

/// Host memory for KV slots: memory.host_kv, but no more than the host has, if known.
Bytes host_kv(const Deployment& deployment, const Settings& settings) {
  const Bytes given = settings.get<Bytes>("memory.host_kv");
  return deployment.host_memory ? std::min(given, *deployment.host_memory) : given;
}

class PieLayers final : public LayerPolicy {
 public:
  explicit PieLayers(const PolicyContext& context)
      : deployment_(context.deployment),
        slots_(deployment_),
        view_(context.view),
        used_only_(context.settings.get<bool>("policy.copy_used_only")),
        adaptive_(!context.settings.has("policy.expansion")),
        most_(slots_.for_host(host_kv(deployment_, context.settings))),
        m_(adaptive_ ? 0 : slots_.for_expansion(context.settings.get<double>("policy.expansion"))),
        old_m_(m_),
        capacity_(slots_.blocks(m_)),
        swap_(slots_.layers(), m_, context.settings.get<std::string>("policy.check_at") == "completion",
              copies(slots_.slot(m_))),
        left_at_(static_cast<std::size_t>(slots_.layers()), kNever),
        controller_(levels(adaptive_ ? most_ : 0)) {}

  [[nodiscard]] Blocks capacity() const override { return capacity_; }

  [[nodiscard]] LayerRule* begin(const BatchShape& /*shape*/, const LayerCompute& /*compute*/) override {
    if (swap_.resting()) return nullptr;
    if (used_only_) swap_.set_copies(copies(moved(m_)), copies(moved(old_m_)));
    return &swap_;
  }

  void copied(const Copy& copy, SimTime started, SimTime ended) override {
    SimTime& left_at = left_at_[static_cast<std::size_t>(copy.layer)];
    if (copy.stream == Stream::d2h) {
      left_at = started;
    } else if (left_at != kNever) {
      const double dwell = to_seconds(ended - left_at);
      dwells_ += dwell;
      ++dwell_count_;
      longest_dwell_ = std::max(longest_dwell_, dwell);
    }
  }

  void iteration_ended(const LayerReport& report) override {
    if (adaptive_) adapt(report);
  }

  [[nodiscard]] bool expand() override {
    const bool raising = capacity_ < slots_.blocks(m_);
    if (!adaptive_ || (m_ >= most_ && !raising)) return false;
    if (!raising) ++m_;
    swap_.recut(m_, copies(moved(m_)));
    resizing_ = false;
    capacity_ = slots_.blocks(m_);
    controller_.hold(m_);
    return true;
  }

  [[nodiscard]] Figures figures() const override {
    Figures figures{{kPeakHostLayers, static_cast<double>(swap_.peak_host().count())}};
    if (dwell_count_ > 0) {
      figures[kMeanDwell] = dwells_ / static_cast<double>(dwell_count_) * 1e3;
      figures[kMaxDwell] = longest_dwell_ * 1e3;
    }
    return figures;
  }

 private:
  [[nodiscard]] LayerSwap::SlotCopies copies(Bytes bytes) const { return copies(*deployment_.model, bytes); }
  [[nodiscard]] LayerSwap::SlotCopies copies(const ExecutionModel& model, Bytes bytes) const {
    return {single_copy(model, Stream::h2d, bytes, deployment_.layer_copies),
            single_copy(model, Stream::d2h, bytes, deployment_.layer_copies)};
  }
  /// The bytes that a copy of a slot moves with `m` layers on the host: all of it, or the part that holds KV, at least
  /// a byte.
  [[nodiscard]] Bytes moved(std::int32_t m) const {
    const Bytes slot = slots_.slot(m);
    if (!used_only_) return slot;
    const TierState& gpu = view_.tier(kGpuTier);
    const double in_use =
        static_cast<double>((gpu.total - gpu.free).count()) / static_cast<double>(slots_.blocks(m).count());
    const Bytes used(static_cast<std::int64_t>(static_cast<double>(slot.count()) * std::min(in_use, 1.0)));
    return std::max(Bytes(1), used);
  }
  /// 0 to `most` layers on the host.
  [[nodiscard]] std::vector<ExpansionLevel> levels(std::int32_t most) const {
    const CopySharing sharing = deployment_.planner().copy_sharing();
    const auto shared = [](const Copy& copy, const Slowdown& slowdown) {
      const double factor = static_cast<double>(slowdown.num) / static_cast<double>(slowdown.den);
      return to_seconds(copy.launch) + to_seconds(copy.transfer) * factor;
    };
    std::vector<ExpansionLevel> levels{{.blocks = slots_.blocks(0)}};
    for (std::int32_t m = 1; m <= most; ++m) {
      const LayerSwap::SlotCopies slot = copies(deployment_.planner(), slots_.slot(m));
      const double in = shared(slot.in, sharing.h2d);
      const double longer = std::max(in, shared(slot.out, sharing.d2h));
      levels.push_back(
          {.blocks = slots_.blocks(m), .dwell = std::max(Duration(1), round_seconds((m + 1) * longer + in))});
    }
    return levels;
  }

  void adapt(const LayerReport& report) {
    const bool was_resizing = std::exchange(resizing_, !swap_.resized());
    controller_.iteration_ended(report, !was_resizing && !resizing_);
    if (!resizing_) capacity_ = slots_.blocks(m_);
    if (controller_.level() == m_) return;
    old_m_ = std::exchange(m_, controller_.level());
    swap_.resize(m_, copies(moved(m_)));
    resizing_ = !swap_.resized();
    capacity_ = std::min(capacity_, slots_.blocks(m_));
  }

  const Deployment deployment_;
  const Slots slots_;
  const View& view_;
  const bool used_only_;
  const bool adaptive_;
  const std::int32_t most_;  // layers on the host, at most
  std::int32_t m_;           // layers on the host
  std::int32_t old_m_;       // before the last change, as long as some slots have the size of then
  Blocks capacity_;
  LayerSwap swap_;

  // Figures
  std::vector<SimTime> left_at_;  // by layer: start of its last copy out
  double dwells_ = 0.0;
  double longest_dwell_ = 0.0;
  std::int64_t dwell_count_ = 0;

  bool resizing_ = false;  // some layers had not got their new slot when the last iteration ended
  ExpansionController controller_;
};

Layout layout(const Deployment& deployment, const Settings& settings) {
  if (deployment.layers < kLeastOnGpu + 1 || deployment.layers > LayerSet::kMost) {
    throw ConfigError(fmt::format("policy pie needs {} to {} layers; the model has {}", kLeastOnGpu + 1,
                                  LayerSet::kMost, deployment.layers),
                      "model", "choose another model");
  }
  const Bytes needed = deployment.weights + deployment.gpu_kv;
  if (deployment.gpu_kv < deployment.block_bytes || needed > deployment.memory) {
    throw ConfigError::infeasible(
        fmt::format("weights {:.2f} GB and KV {:.2f} GB do not fit the {:.2f} GB that the engine may use beside its "
                    "activations; one KV block takes {:.2f} MB",
                    gigabytes(deployment.weights), gigabytes(deployment.gpu_kv), gigabytes(deployment.memory),
                    gigabytes(deployment.block_bytes) * 1e3),
        deployment.gpu_kv_given ? "memory.gpu_kv" : "hardware",
        "lower memory.gpu_kv, raise tensor_parallel, or keep weights on the host (policy.weights, policy=select-n)");
  }
  const Slots slots(deployment);
  const Bytes host = host_kv(deployment, settings);
  const double widest = slots.expansion(slots.most());
  if (!settings.has("policy.expansion")) {
    const std::int32_t most = slots.for_host(host);
    return {.blocks = slots.blocks(0),
            .most = slots.blocks(most),
            .host = slots.host(most),
            .host_kv = slots.host(most),
            .terms = fmt::format("Pie adapts its expansion from 1 to at most {:.3f} ({} of {} layers on the host)",
                                 slots.expansion(most), most, slots.layers())};
  }
  const double wanted = settings.get<double>("policy.expansion");
  if (wanted > widest * (1.0 + 1e-12)) {
    throw ConfigError(fmt::format("policy.expansion={} is more than {:.4g}: of the model's {} layers, {} must be on "
                                  "the GPU (one computes, one leaves, one arrives), and {} / {} = {:.4g}",
                                  wanted, widest, slots.layers(), kLeastOnGpu, slots.layers(), kLeastOnGpu, widest),
                      "policy.expansion", fmt::format("use 1 to {:.4g}, or leave it out to adapt", widest));
  }
  const std::int32_t m = slots.for_expansion(wanted);
  if (slots.host(m) > host) {
    throw ConfigError(
        fmt::format(
            "policy.expansion={} keeps {} layers on the host, which takes {} slots of {:.3f} GB = {:.2f} GB; the "
            "host has {:.2f} GB for them",
            wanted, m, m + 2, gigabytes(slots.slot(m)), gigabytes(slots.host(m)), gigabytes(host)),
        "policy.expansion",
        fmt::format("at most {:.4g} fits; or raise memory.host_kv", slots.expansion(slots.for_host(host))));
  }
  return {.blocks = slots.blocks(m),
          .most = slots.blocks(m),
          .host = slots.host(m),
          .host_kv = slots.host(m),
          .terms = fmt::format("Pie keeps {} of {} layers on the host: expansion {} / {} = {:.4f}, slots of {:.1f} MB",
                               m, slots.layers(), slots.layers(), slots.layers() - m, slots.expansion(m),
                               gigabytes(slots.slot(m)) * 1e3)};
}

std::vector<Problem> check(const Settings& settings) {
  std::vector<Problem> problems;
  check_link_traffic(settings, problems);
  return problems;
}

PolicyInfo info() {
  PolicyInfo info;
  info.name = "pie";
  info.summary = "Pie: KV of some layers lives on the host and is swapped in just before its layer computes";
  info.source =
      "Xu et al., Pie: Pooling CPU Memory for LLM Inference, 2024, sections 3 and 4; rules of "
      "policies/parts/layer_swap.hpp";
  info.limits =
      "The paper gives no constants for its adaptation: windows and thresholds are Spillway's. Spillway compares "
      "gained capacity with waiting time; the paper compares measured throughput. A lowered expansion preempts the "
      "requests that no longer fit at once; the paper leaves them unscheduled until the slots have shrunk, about two "
      "tokens later (throughput within 0.1% either way, experiments/pie). Slots are moved whole. Swaps and a host "
      "cache share the links with the layers, which the paper does not consider. Swaps and host-cache copies use the "
      "copy engines, but copies in the other direction slow them down, as they do the layers' copies.";
  info.figures = layer_figures();
  info.parameters = {
      {.name = "policy.expansion",
       .type = ParameterType::real,
       .unit = "ratio",
       .default_value = "",
       .minimum = 1.0,
       .maximum = 86.0,
       .doc = "Fixed expansion: of the model's n layers, the largest number m goes to the host that keeps n / (n - m) "
              "at or below this value. Default: the "
              "expansion adapts, starting from 1",
       .source = "Pie, section 3.3: FIFO swapping for a fixed expansion; section 3.4.2: adaptive expansion"},
      {.name = "policy.check_at",
       .type = ParameterType::choice,
       .unit = "-",
       .default_value = "completion",
       .choices = {"completion", "layer-start"},
       .doc = "When a copy may start. completion: when a layer starts or another copy ends; layer-start: only when a "
              "layer "
              "starts",
       .source = "Pie, section 3.2, names layer starts; completions reproduce its figures"},
      {.name = kCopy,
       .type = ParameterType::choice,
       .unit = "-",
       .default_value = "",
       .choices = {"engine", "kernel"},
       .doc = "What copies the slots. kernel: SMs; engine: the GPU's copy engines. SMs use the profile's figures of "
              "copies by SMs (h2d_bandwidth_kernel and so on), and the copy engine's for what it does not state. "
              "Default: kernel if the profile has such figures and does not say that SMs' copies slow computation "
              "down more, else engine",
       .source = "Pie copies with a kernel of its own"},
      {.name = "policy.copy_used_only",
       .type = ParameterType::boolean,
       .unit = "-",
       .default_value = "false",
       .doc = "true: copies move only the part of a slot that holds KV; false: they move the whole slot",
       .source = "Spillway, for ablation: Pie copies whole layers"}};
  for (Parameter& parameter :
       link_traffic_parameters("Pie, section 3.4: bandwidth of other traffic; none by default")) {
    info.parameters.push_back(std::move(parameter));
  }
  info.engine_defaults = [](const Settings&) {
    return std::map<std::string, std::string>{{"memory.host_kv", "480GB"}};
  };
  info.layer_copies = [](const Settings& settings, bool kernel_copies) {
    const bool kernel = settings.has(kCopy) ? settings.get<std::string>(kCopy) == "kernel" : kernel_copies;
    return kernel ? CopyMechanism::kernel : CopyMechanism::single;
  };
  info.check = check;
  info.streams = {.kv = true};
  info.default_scheduler = "vllm-v0";
  info.make_layers = [](const PolicyContext& context) { return std::make_unique<PieLayers>(context); };
  info.shrinks_without = [](const Settings& settings) {
    return std::string(settings.has("policy.expansion") ? "" : "policy.expansion");
  };
  info.layout = layout;
  return info;
}

const RegisterPolicy kRegistered(info());

}  // namespace
}  // namespace spillway
