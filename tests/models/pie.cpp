// Pie's rule, written plainly: one record per layer, one list of reports, everything counted anew.
//
// Source: Xu et al., "Pie: Pooling CPU Memory for LLM Inference" (2024), sections 3 and 4. What the paper leaves open
// is taken from what policies/pie.cpp and policies/parts/layer_swap.hpp say that they do.
#include "tests/models/pie.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/core/error.hpp"
#include "tests/models/plain_policy.hpp"

namespace spillway::oracle {
namespace {

/// Memory with m of n layers on the host.
struct Memory {
  std::int64_t n = 0;
  Bytes kv{};     // of the GPU
  Bytes block{};  // all layers

  explicit Memory(const Deployment& deployment)
      : n(deployment.layers), kv(deployment.gpu_kv), block(deployment.block_bytes) {}

  /// The GPU's bytes are cut into a slot for each layer that is there.
  [[nodiscard]] Bytes slot(std::int64_t m) const { return Bytes(kv.count() / (n - m)); }
  /// Each layer holds its share of every block, so a slot of every layer is what the blocks take.
  [[nodiscard]] Blocks blocks(std::int64_t m) const { return Blocks(slot(m).count() * n / block.count()); }
  /// The host has two slots more than layers: where one goes and where one comes from.
  [[nodiscard]] Bytes host(std::int64_t m) const { return m == 0 ? Bytes(0) : Bytes(slot(m).count() * (m + 2)); }
  [[nodiscard]] double expansion(std::int64_t m) const { return static_cast<double>(n) / static_cast<double>(n - m); }
};

/// Three layers stay on the GPU.
std::int64_t largest_m(const Memory& memory) { return memory.n - 3; }

std::int64_t m_of_expansion(const Memory& memory, double expansion) {
  std::int64_t found = 0;
  for (std::int64_t m = 1; m <= largest_m(memory); ++m) {
    if (memory.expansion(m) <= expansion + 1e-9) found = m;
  }
  return found;
}

std::int64_t m_of_host(const Memory& memory, Bytes host) {
  std::int64_t found = 0;
  for (std::int64_t m = 1; m <= largest_m(memory); ++m) {
    if (memory.host(m) <= host) found = m;
  }
  return found;
}

Bytes host_bytes(const Deployment& deployment, const Settings& settings) {
  Bytes host = settings.get<Bytes>("memory.host_kv");
  if (deployment.host_memory && *deployment.host_memory < host) host = *deployment.host_memory;
  return host;
}

enum class Where { on_gpu, leaving, on_host, arriving };

struct Layer {
  Where where = Where::on_gpu;
  bool old_slot = false;  // of the size before the last change
};

/// Sections 3.1 to 3.3, a layer being needed sooner the fewer layers start before it, from the one on that starts now.
class PlainSwap final : public LayerRule {
 public:
  PlainSwap(const ExecutionModel& model, std::int64_t n, std::int64_t m, bool chains, Bytes slot)
      : model_(model), m_(m), chains_(chains), layers_(static_cast<std::size_t>(n)), new_bytes_(slot), now_(n - 1) {
    for (std::int64_t j = n - m; j < n; ++j) at(j).where = Where::on_host;
    note_host(slot);
  }

  // What the policy tells it.

  /// m layers go to the host, in slots of `slot` bytes: each has one once it has come back to the GPU.
  void change(std::int64_t m, Bytes slot) {
    m_ = m;
    old_bytes_ = new_bytes_;
    new_bytes_ = slot;
    arrived_since_change_ = 0;
    // With nothing to go to the host any more slots shrink where they are.
    for (Layer& layer : layers_) layer.old_slot = m > 0;
  }
  /// No KV is live: all that is not on its way is where it belongs, the last layers on the host, in slots of one size.
  void place(std::int64_t m, Bytes slot) {
    m_ = m;
    new_bytes_ = slot;
    std::int64_t away = m;
    for (std::int64_t j = n() - 1; j >= 0; --j) {
      at(j).old_slot = false;
      if (at(j).where == Where::leaving || at(j).where == Where::arriving) continue;
      at(j).where = away > 0 ? Where::on_host : Where::on_gpu;
      --away;
    }
  }
  /// What is copied of a slot.
  void move(Bytes of_new, Bytes of_old) {
    new_bytes_ = of_new;
    old_bytes_ = of_old;
  }

  // What the policy asks it.

  [[nodiscard]] std::int64_t count(Where where) const {
    return std::count_if(layers_.begin(), layers_.end(), [&](const Layer& layer) { return layer.where == where; });
  }
  [[nodiscard]] bool any_old() const {
    return std::any_of(layers_.begin(), layers_.end(), [](const Layer& layer) { return layer.old_slot; });
  }
  [[nodiscard]] bool rests() const { return m_ == 0 && count(Where::on_gpu) == n(); }
  [[nodiscard]] Bytes peak_host() const { return peak_host_; }

  // LayerRule

  void at_layer_start(std::int32_t layer, std::int32_t /*sub_batch*/, CopySink& sink) override {
    if (started_) finished_last_ = now_;
    started_ = true;
    now_ = layer;
    look(sink);
  }
  void at_copy_done(const Copy& copy, CopySink& /*sink*/) override {
    if (at(now_).where != Where::on_gpu) ended_in_wait_ = true;
    if (copy.stream == Stream::d2h) {
      at(copy.layer).where = Where::on_host;
      return;
    }
    at(copy.layer) = Layer{Where::on_gpu, false};
    ++arrived_since_change_;
  }
  void at_copies_done(CopySink& sink) override {
    if (ended_in_wait_) ++pie_branches().waits;
    if (chains_ || ended_in_wait_) look(sink);
    ended_in_wait_ = false;
  }
  [[nodiscard]] bool ready(std::int32_t layer, std::int32_t /*sub_batch*/) const override {
    return layers_[static_cast<std::size_t>(layer)].where == Where::on_gpu;
  }

 private:
  [[nodiscard]] std::int64_t n() const { return static_cast<std::int64_t>(layers_.size()); }
  Layer& at(std::int64_t j) { return layers_[static_cast<std::size_t>(j)]; }
  [[nodiscard]] std::int64_t ahead(std::int64_t j) const { return (j - now_ + n()) % n(); }

  void look(CopySink& sink) {
    ended_in_wait_ = false;
    std::optional<std::int64_t> soonest;  // of those on the host
    for (std::int64_t j = 0; j < n(); ++j) {
      if (at(j).where != Where::on_host) continue;
      if (!soonest || ahead(j) < ahead(*soonest)) soonest = j;
    }
    // A slot that is filled or drained is taken on both sides.
    const std::int64_t moving = count(Where::leaving) + count(Where::arriving);
    const bool host_slot = count(Where::on_host) + moving < m_ + 2;
    const bool gpu_slot = count(Where::on_gpu) + moving < n() - m_;
    if (m_ > 0 && finished_last_ && count(Where::leaving) == 0 && host_slot &&
        at(*finished_last_).where == Where::on_gpu) {
      const std::int64_t c = *finished_last_;
      const bool filling = count(Where::on_host) < m_;
      const bool hotter = soonest && ahead(*soonest) < ahead(c);
      // Every layer has had its turn since the change, and some have not gone: they go first, unless one is waited for.
      const bool waits_for_the_rest = arrived_since_change_ >= n() && any_old() && !at(c).old_slot;
      const bool stays = waits_for_the_rest && at(now_).where == Where::on_gpu;
      if (stays) ++pie_branches().new_slots_stayed;
      if ((filling || hotter) && !stays) copy(c, Stream::d2h, sink);
    }
    if (soonest && count(Where::arriving) == 0 && gpu_slot) copy(*soonest, Stream::h2d, sink);
    // Nothing moves, and the layer that should compute cannot come in: the one that is needed last makes way.
    if (at(now_).where == Where::on_gpu || count(Where::leaving) + count(Where::arriving) > 0) return;
    ++pie_branches().made_way;
    std::optional<std::int64_t> latest;
    for (std::int64_t j = 0; j < n(); ++j) {
      if (at(j).where == Where::on_gpu && (!latest || ahead(j) > ahead(*latest))) latest = j;
    }
    copy(*latest, Stream::d2h, sink);
  }
  void copy(std::int64_t j, Stream stream, CopySink& sink) {
    at(j).where = stream == Stream::h2d ? Where::arriving : Where::leaving;
    const Bytes bytes = at(j).old_slot ? old_bytes_ : new_bytes_;
    const CopyTime time = model_.copy(stream, 1, bytes, CopyMechanism::single);
    note_host(bytes);
    sink.issue({.stream = stream,
                .layer = static_cast<std::int32_t>(j),
                .bytes = bytes,
                .launch = time.launch,
                .transfer = time.transfer});
  }
  /// As many slots of that size as there are layers on the host or on their way.
  void note_host(Bytes slot) { peak_host_ = std::max(peak_host_, slot * (n() - count(Where::on_gpu))); }

  const ExecutionModel& model_;
  std::int64_t m_;
  bool chains_;  // a copy that ends starts the next one
  std::vector<Layer> layers_;
  Bytes new_bytes_;
  Bytes old_bytes_{};
  std::int64_t now_;  // the layer that started last
  std::optional<std::int64_t> finished_last_;
  bool started_ = false;
  bool ended_in_wait_ = false;
  std::int64_t arrived_since_change_ = 0;
  Bytes peak_host_{};
};

struct Iteration {
  LayerReport report;
  std::int64_t changes = 0;  // of m, before it
  bool undisturbed = false;  // slots of one size from start to end, and all their blocks offered
};

/// Sections 3.4 and 4.1.
class PlainPie final : public LayerPolicy {
 public:
  explicit PlainPie(const PolicyContext& context)
      : deployment_(context.deployment),
        memory_(context.deployment),
        view_(context.view),
        used_only_(context.settings.get<bool>("policy.copy_used_only")),
        fixed_(context.settings.has("policy.expansion")),
        limit_(m_of_host(memory_, host_bytes(context.deployment, context.settings))),
        m_(fixed_ ? m_of_expansion(memory_, context.settings.get<double>("policy.expansion")) : 0),
        m_before_(m_),
        room_(memory_.blocks(m_)),
        swap_(*context.deployment.model, memory_.n, m_,
              context.settings.get<std::string>("policy.check_at") == "completion", memory_.slot(m_)) {}

  [[nodiscard]] Blocks capacity() const override { return room_; }

  LayerRule* begin(const BatchShape& /*shape*/, const LayerCompute& /*compute*/) override {
    if (swap_.rests()) return nullptr;
    swap_.move(moved(m_), moved(m_before_));
    pie_branches().most_on_host = std::max(pie_branches().most_on_host, m_);
    return &swap_;
  }

  void copied(const Copy& copy, SimTime started, SimTime ended) override {
    if (copy.stream == Stream::d2h) left_[copy.layer] = started;
    if (copy.stream == Stream::h2d && left_.contains(copy.layer)) dwells_.push_back(ended - left_[copy.layer]);
  }

  void iteration_ended(const LayerReport& report) override {
    if (fixed_) return;
    // A request that only the larger room could take is gone once nothing is live.
    if (kept_for_request_ && report.free_share == 1.0) {
      kept_for_request_ = false;
      ++pie_branches().released;
    }
    const bool undisturbed = !std::exchange(old_at_start_, swap_.any_old()) && !swap_.any_old();
    history_.push_back({report, changes_, undisturbed});
    // Every layer has its larger slot: the new blocks enter the free list.
    if (!swap_.any_old()) room_ = memory_.blocks(m_);
    if (undisturbed) judge();
  }

  bool expand() override {
    const bool under_way = room_ < memory_.blocks(m_);
    if (fixed_ || (!under_way && m_ >= limit_)) return false;
    ++(under_way ? pie_branches().finished_raises : pie_branches().expansions);
    if (!under_way) ++m_;
    m_before_ = m_;
    swap_.place(m_, moved(m_));
    room_ = memory_.blocks(m_);
    old_at_start_ = false;
    steps_.push_back(0);  // made for a request, and not by judgement
    changed();
    kept_for_request_ = true;
    return true;
  }

  [[nodiscard]] Figures figures() const override {
    Figures figures{{"peak_host_layer_bytes", static_cast<double>(swap_.peak_host().count())}};
    double sum = 0.0;
    for (const Duration dwell : dwells_) {
      sum += to_seconds(dwell);
      figures["max_dwell_ms"] = std::max(figures["max_dwell_ms"], 1e3 * to_seconds(dwell));
    }
    if (!dwells_.empty()) figures["mean_dwell_ms"] = 1e3 * sum / static_cast<double>(dwells_.size());
    return figures;
  }

 private:
  /// What is copied of a slot with m layers on the host: all, or its share of the blocks in use.
  [[nodiscard]] Bytes moved(std::int64_t m) const {
    if (!used_only_) return memory_.slot(m);
    const TierState& gpu = view_.tier(kGpuTier);
    const Blocks in_use = std::min(gpu.total - gpu.free, memory_.blocks(m));
    const double share = static_cast<double>(in_use.count()) / static_cast<double>(memory_.blocks(m).count());
    const auto bytes = static_cast<std::int64_t>(static_cast<double>(memory_.slot(m).count()) * share);
    return Bytes(std::max<std::int64_t>(1, bytes));
  }

  /// An iteration is over that tells something about m.
  void judge() {
    ++judged_;
    const bool window_over = judged_ % 8 == 0;
    if (const std::int64_t layers = raise(window_over); layers > 0) {
      ++pie_branches().raises;
      if (!window_over) ++pie_branches().quick_raises;
      if (layers > 1) ++pie_branches().large_raises;
      spare_windows_ = 0;
      return go_to(m_ + layers);
    }
    if (!window_over) return;
    const std::vector<Iteration> window(history_.end() - 8, history_.end());
    std::int64_t stall = 0;
    std::int64_t length = 0;
    bool full = false;
    bool kept_out = false;
    double used = 0.0;
    for (std::size_t i = history_.size() - 8; i < history_.size(); ++i) {
      const LayerReport& report = history_[i].report;
      stall += report.stall.count();
      length += report.length.count();
      full = full || report.free_share < 0.1;
      kept_out = kept_out || (i > 0 && history_[i - 1].report.waiting > 0 && !report.prefills);
      used = std::max(used, 1.0 - report.free_share);
    }
    if (m_ == 0 || kept_for_request_) {
      ++pie_branches().lowers_refused;
      return;
    }
    // A failure takes up to half of the last change back.
    const std::int64_t half = first_window() ? std::abs(steps_.back()) / 2 : 0;
    const bool just_raised = first_window() && steps_.back() > 0;
    const bool needed = full || kept_out || just_raised;
    const bool unused = !full && used <= 0.8 * (blocks(m_ - 1) / blocks(m_));
    if (unused && kept_out) ++pie_branches().kept_out;
    const bool spare = unused && !kept_out;
    if (spare) ++spare_windows_;
    if (!spare) spare_windows_ = 0;
    const double waited = static_cast<double>(stall) / static_cast<double>(length);
    std::int64_t back = 0;
    for (std::int64_t layers = 1; layers <= std::max<std::int64_t>(half, 1); ++layers) {
      // Of all blocks, so many are lost.
      const double lost = needed ? 1.0 - blocks(m_ - layers) / blocks(m_) : 0.01;
      if (static_cast<double>(stall) > lost * static_cast<double>(length)) back = layers;
    }
    if (back > 0) {
      ++(needed ? pie_branches().failures : pie_branches().idle_failures);
      const bool again = failed_ == m_;
      if (again) ++pie_branches().repeated_failures;
      pause_ = again ? pause_ + pause_ : 512;
      failed_ = m_;
      failed_at_ = static_cast<std::int64_t>(history_.size());
      if (back > 1) ++pie_branches().large_lowers;
      return lower(back);
    }
    if (waited > 0.01) ++pie_branches().worthwhile_waits;
    if (!spare) return;
    // Every window since the last raise, up to this one, 512 iterations of them.
    if (spare_windows_ < 64) {
      ++pie_branches().early_probes;
      return;
    }
    ++pie_branches().probes;
    failed_.reset();
    lower(1);
  }

  /// No window of 8 iterations has passed at this m, which is not the first.
  [[nodiscard]] bool first_window() const { return !steps_.empty() && judged_ <= 8; }

  /// The layers that a raise takes, if it pays.
  std::int64_t raise(bool window_over) {
    if (m_ == limit_ || history_.size() < 8) return 0;
    std::int64_t last_m = limit_;
    if (failed_ && static_cast<std::int64_t>(history_.size()) < failed_at_ + pause_ && last_m >= *failed_) {
      ++pie_branches().paused_raises;
      last_m = *failed_ - 1;
    }
    if (last_m <= m_) return 0;
    if (!full_of_late()) {
      ++pie_branches().unneeded_raises;
      return 0;
    }
    // All layers for which nothing waits, if nothing has waited so far.
    const bool waited = waited_here();
    if (waited && wait_at(m_ + 1) == 0.0) ++pie_branches().distrusted_plans;
    std::int64_t to = m_;
    while (!waited && to < last_m && wait_at(to + 1) == 0.0 && blocks(to + 1) > blocks(to)) ++to;
    if (to > m_) return to - m_;
    const double wait = wait_at(m_ + 1);
    if (!window_over) {
      ++pie_branches().early_raises;
      return 0;
    }
    const bool pays = blocks(m_ + 1) / blocks(m_) * compute_of_late() > compute_of_late() + wait;
    if (!pays) ++pie_branches().unpaid_raises;
    return pays ? 1 : 0;
  }
  /// In an iteration that counts, since the last change.
  [[nodiscard]] bool waited_here() const {
    return std::any_of(history_.begin(), history_.end(), [&](const Iteration& one) {
      return one.undisturbed && one.changes == changes_ && one.report.stall > Duration(0);
    });
  }
  [[nodiscard]] std::vector<Iteration> last_eight() const { return {history_.end() - 8, history_.end()}; }
  [[nodiscard]] bool full_of_late() const {
    const std::vector<Iteration> last = last_eight();
    return std::any_of(last.begin(), last.end(), [](const Iteration& one) { return one.report.free_share < 0.1; });
  }
  [[nodiscard]] double compute_of_late() const {
    double compute = 0.0;
    for (const Iteration& one : last_eight()) {
      compute += static_cast<double>((one.report.length - one.report.stall).count());
    }
    return compute;
  }
  /// What the last eight iterations would have waited with m layers on the host.
  [[nodiscard]] double wait_at(std::int64_t m) const {
    Duration true_dwell{};
    for (const Iteration& one : last_eight()) {
      // The layer left when it had computed, and came back when it was waited for.
      if (one.undisturbed && one.changes == changes_ && one.report.stall > Duration(0)) {
        true_dwell = std::max(true_dwell, one.report.length - one.report.layer);
      }
    }
    double dwell = static_cast<double>(planned_dwell(m).count());
    if (m_ > 0 && true_dwell > Duration(0)) {
      const double slower = static_cast<double>(true_dwell.count()) / static_cast<double>(planned_dwell(m_).count());
      if (slower > 1.0) ++pie_branches().slow_links;
      dwell *= slower;
    }
    double wait = 0.0;
    for (const Iteration& one : last_eight()) {
      const Duration busy = one.report.length - one.report.stall;
      const double missing = dwell - static_cast<double>((busy - one.report.layer).count());
      if (missing > 0.0) wait += missing;
    }
    return wait;
  }
  [[nodiscard]] double blocks(std::int64_t m) const { return static_cast<double>(memory_.blocks(m).count()); }

  void lower(std::int64_t layers) {
    go_to(m_ - layers);
    room_ = std::min(room_, memory_.blocks(m_));  // at once
  }

  void go_to(std::int64_t m) {
    steps_.push_back(m - m_);
    m_before_ = m_;
    m_ = m;
    swap_.change(m, moved(m));
    old_at_start_ = swap_.any_old();
    changed();
  }
  void changed() {
    ++changes_;
    judged_ = 0;
  }

  /// A layer waits for the swaps of m + 1 others and comes in: whole slots, while the other direction is busy too.
  [[nodiscard]] Duration planned_dwell(std::int64_t m) const {
    const CopySharing sharing = deployment_.planner().copy_sharing();
    const auto swap = [&](Stream stream, const Slowdown& slowdown) {
      const CopyTime time = deployment_.planner().copy(stream, 1, memory_.slot(m), CopyMechanism::single);
      const double factor = static_cast<double>(slowdown.num) / static_cast<double>(slowdown.den);
      return to_seconds(time.launch) + to_seconds(time.transfer) * factor;
    };
    const double in = swap(Stream::h2d, sharing.h2d);
    const double out = swap(Stream::d2h, sharing.d2h);
    return std::max(Duration(1), round_seconds(static_cast<double>(m + 1) * std::max(in, out) + in));
  }

  const Deployment& deployment_;
  const Memory memory_;
  const View& view_;
  const bool used_only_;
  const bool fixed_;
  const std::int64_t limit_;  // layers on the host, at most
  std::int64_t m_;
  std::int64_t m_before_;  // before the last change
  Blocks room_;
  PlainSwap swap_;

  std::map<std::int32_t, SimTime> left_;
  std::vector<Duration> dwells_;

  std::vector<Iteration> history_;   // of all iterations
  std::int64_t changes_ = 0;         // of m
  std::vector<std::int64_t> steps_;  // layers of each change of m by what iterations say
  std::int64_t judged_ = 0;          // undisturbed iterations since the last change
  bool old_at_start_ = false;        // of the next iteration, some slots are of another size
  bool kept_for_request_ = false;
  std::int64_t spare_windows_ = 0;      // in which one layer less would have done
  std::optional<std::int64_t> failed_;  // m at which compute waited for too long
  std::int64_t failed_at_ = 0;
  std::int64_t pause_ = 0;
};

Layout layout(const Deployment& deployment, const Settings& settings) {
  if (deployment.layers < 4 || deployment.layers > 256) throw ConfigError("number of layers", "model", "");
  const bool one_block = deployment.gpu_kv >= deployment.block_bytes;
  if (!one_block || deployment.weights + deployment.gpu_kv > deployment.memory) {
    throw ConfigError("memory", deployment.gpu_kv_given ? "memory.gpu_kv" : "hardware", "");
  }
  const Memory memory(deployment);
  const Bytes host = host_bytes(deployment, settings);
  std::int64_t first = 0;
  std::int64_t last = m_of_host(memory, host);
  if (settings.has("policy.expansion")) {
    const auto expansion = settings.get<double>("policy.expansion");
    first = last = m_of_expansion(memory, expansion);
    if (expansion > memory.expansion(largest_m(memory)) + 1e-9 || memory.host(first) > host) {
      throw ConfigError("expansion", "policy.expansion", "");
    }
  }
  return {.blocks = memory.blocks(first),
          .most = memory.blocks(last),
          .host = memory.host(last),
          .terms = {},
          .chosen = {}};
}

Policy make(const PolicyContext& context) {
  const PlainPolicy* scheduler = find_plain("vllm-v0");
  Policy policy =
      scheduler != nullptr ? scheduler->make(context) : PolicyRegistry::instance().find("vllm-v0")->make(context);
  policy.layers = std::make_unique<PlainPie>(context);
  return policy;
}

void vary(Dice& dice, Settings& settings) {
  if (dice.chance(30)) settings.set("policy.link_traffic", 0.01 * static_cast<double>(dice.between(1, 100)));
  const std::int64_t from = dice.between(0, 20'000);
  if (dice.chance(30)) settings.set("policy.link_traffic_from", Duration(from));
  if (dice.chance(30)) settings.set("policy.link_traffic_until", Duration(from + dice.between(1, 20'000)));
}

const RegisterPlain kRegistered{{.name = "pie", .make = make, .layout = layout, .vary = vary}};

}  // namespace

PieBranches& pie_branches() {
  static PieBranches branches;
  return branches;
}

}  // namespace spillway::oracle
