// Select-N's rule, written plainly: no table, every interval is tried out on a time line, every batch size is looked
// at.
//
// Source: Ma et al., "Memory Offloading for Large Language Model Inference with Latency SLO Guarantees" (Select-N),
// 2025, section 4, and its Table 1, Figs. 7 and 8. What the paper leaves open is taken from what policies/select-n.cpp
// and policies/parts/performance_record.hpp say that they do.
#include "tests/models/select-n.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/core/error.hpp"
#include "tests/models/plain_policy.hpp"

namespace spillway::oracle {
namespace {

/// An interval above every other: no layer is on the host.
constexpr std::int64_t kNone = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kGrid = 2'000'000;  // ns, of SLOs
constexpr std::int64_t kShortest = 4;      // tokens, of a record's sequences

/// Is layer k, from 0, the last of a group of i?
bool on_host(std::int64_t k, std::int64_t i) { return (k + 1) % i == 0; }

std::int64_t layers_on_host(std::int64_t n, std::int64_t i) {
  std::int64_t count = 0;
  for (std::int64_t k = 0; k < n; ++k) count += on_host(k, i) ? 1 : 0;
  return count;
}

/// Buffers that the layers on the host stream through, as far as there are such layers.
std::int64_t buffers(std::int64_t n, std::int64_t i, bool double_buffer) {
  return std::min<std::int64_t>(layers_on_host(n, i), double_buffer || i == 1 ? 2 : 1);
}

/// Fig. 7: when the layers of an iteration are done, without double buffering.
std::int64_t layers_take(std::int64_t n, std::int64_t i, std::int64_t compute, std::int64_t transfer) {
  const std::int64_t ahead = i == 1 ? 2 : 1;
  std::vector<std::int64_t> free_at(static_cast<std::size_t>(ahead), 0);  // of each buffer, a turn each
  std::int64_t link = 0;
  std::int64_t now = 0;
  std::vector<std::int64_t> ready(static_cast<std::size_t>(n), 0);
  std::size_t turn = 0;
  for (std::int64_t k = 0; k < n; ++k) {
    if (on_host(k, i)) {
      // Its copy starts when its buffer is free: with one buffer that is when its group starts.
      link = std::max(link, free_at[turn]) + transfer;
      now = std::max(now, link);
    }
    now += compute;
    if (on_host(k, i)) {
      free_at[turn] = now;
      turn = (turn + 1) % free_at.size();
    }
  }
  return now;
}

/// What an engine's GPU holds beside weights.
class Room {
 public:
  Room(const Deployment& deployment, const Settings& settings)
      : deployment_(deployment), double_buffer_(settings.get<bool>("policy.double_buffer")) {
    if (settings.has("policy.host_memory")) {
      host_limit_ = settings.get<Bytes>("policy.host_memory");
    } else {
      host_limit_ = deployment.host_memory;
    }
  }

  [[nodiscard]] std::int64_t n() const { return deployment_.layers; }
  [[nodiscard]] bool fits_host(std::int64_t i) const { return !host_limit_ || host(i) <= *host_limit_; }
  [[nodiscard]] Bytes host(std::int64_t i) const { return deployment_.layer_weights * layers_on_host(n(), i); }
  /// The smallest interval that the host holds.
  [[nodiscard]] std::int64_t smallest() const {
    for (std::int64_t i = 1; i <= n(); ++i) {
      if (fits_host(i)) return i;
    }
    return kNone;
  }
  /// May be negative.
  [[nodiscard]] Bytes left(std::int64_t i) const {
    const std::int64_t gone = layers_on_host(n(), i) - buffers(n(), i, double_buffer_);
    return deployment_.memory - deployment_.weights + deployment_.layer_weights * gone;
  }
  [[nodiscard]] Bytes least() const {
    return deployment_.gpu_kv_given ? std::max(deployment_.gpu_kv, deployment_.block_bytes) : deployment_.block_bytes;
  }
  [[nodiscard]] Blocks blocks(std::int64_t i) const {
    Bytes kv = std::max(left(i), Bytes(0));
    if (deployment_.gpu_kv_given) kv = std::min(kv, deployment_.gpu_kv);
    return Blocks(kv.count() / deployment_.block_bytes.count());
  }
  /// The largest interval with room for so many blocks.
  [[nodiscard]] std::optional<std::int64_t> largest(Blocks kv) const {
    if (blocks(kNone) >= kv) return kNone;
    for (std::int64_t i = n(); i >= smallest(); --i) {
      if (blocks(i) >= kv) return i;
    }
    return std::nullopt;
  }
  [[nodiscard]] std::int64_t tokens(std::int64_t i) const {
    return blocks(i).count() * deployment_.block_tokens.count();
  }

 private:
  const Deployment& deployment_;
  bool double_buffer_;
  std::optional<Bytes> host_limit_;
};

std::int64_t power_of_two_from(std::int64_t value) {
  std::int64_t power = 1;
  while (power < value) power *= 2;
  return power;
}
std::int64_t power_of_two_to(std::int64_t value) {
  std::int64_t power = 1;
  while (2 * power <= value) power *= 2;
  return power;
}

enum class Kind { prefill, decode };

/// The offline analyser and the record, without the record: each entry is worked out when it is looked up.
class Record {
 public:
  Record(const Deployment& deployment, const Settings& settings)
      : deployment_(deployment),
        room_(deployment, settings),
        block_tokens_(deployment.block_tokens.count()),
        exact_(settings.get<std::string>("policy.record") == "exact"),
        prefills_(settings.get<std::string>("policy.phase") != "decode"),
        decodes_(settings.get<std::string>("policy.phase") != "prefill"),
        most_prompt_tokens_(settings.get<std::int64_t>("engine.max_num_batched_tokens")),
        most_requests_(power_of_two_from(settings.get<std::int64_t>("engine.max_num_seqs"))),
        capacity_(room_.tokens(room_.smallest())),
        longest_(std::max(kShortest, power_of_two_from(capacity_))) {
    if (settings.has("policy.slo")) {
      time_ = settings.get<Duration>("policy.slo").count();
      const char* const key = "policy.slo_counts_waiting";
      less_waiting_ = !settings.has(key) || settings.get<bool>(key);
    }
    if (settings.has("policy.slo_margin")) margin_ = settings.get<double>("policy.slo_margin");
  }

  [[nodiscard]] const Room& room() const { return room_; }

  /// The smallest interval that the SLO allows to requests of that length; kNone when there is no such.
  [[nodiscard]] std::int64_t interval(Kind kind, std::int64_t requests, std::int64_t sequence,
                                      std::int64_t waited = 0) const {
    const auto [batch, length] = entry(requests, sequence);
    if (batch == 0) {
      ++select_n_branches().no_entry;
      return kNone;
    }
    auto& known = known_[{kind, batch, length, waited}];
    if (!known) known = work_out(kind, batch, length, waited);
    if (known->first == 0) ++select_n_branches().slo_below_best;
    const std::int64_t allowed = known->first == 0 ? kNone : known->first;
    if (room_.smallest() > allowed) ++select_n_branches().smallest_binds;
    return std::max(allowed, room_.smallest());
  }
  /// Of the phases that the instance runs.
  [[nodiscard]] std::int64_t interval(std::int64_t requests, std::int64_t sequence) const {
    std::int64_t i = 1;
    if (prefills_) i = std::max(i, interval(Kind::prefill, requests, sequence));
    if (decodes_) i = std::max(i, interval(Kind::decode, requests, sequence));
    return i;
  }

  /// Of an iteration.
  [[nodiscard]] std::int64_t wanted(std::int64_t running, const BatchShape& shape, std::int64_t waited) const {
    if (!less_waiting_) waited = 0;
    const auto prompts = static_cast<std::int64_t>(shape.chunks.size());
    std::int64_t prompt_tokens = 0;
    std::int64_t tokens = shape.decode_context.count();
    for (const PrefillChunk& chunk : shape.chunks) {
      prompt_tokens += chunk.new_tokens.count();
      tokens += chunk.new_tokens.count() + chunk.context.count();
    }
    const std::int64_t prefill =
        prefills_ && prompts > 0 ? interval(Kind::prefill, prompts, prompt_tokens / prompts, waited) : 1;
    const std::int64_t decode =
        decodes_ ? interval(Kind::decode, running, tokens / (shape.decode_sequences + prompts), waited) : 1;
    if (waited > 0) {
      const std::int64_t fresh =
          std::max(prefills_ && prompts > 0 ? interval(Kind::prefill, prompts, prompt_tokens / prompts) : 1,
                   decodes_ ? interval(Kind::decode, running, tokens / (shape.decode_sequences + prompts)) : 1);
      if (std::max(prefill, decode) != fresh) ++select_n_branches().waiting_decides;
    }
    if (prefill > decode && decodes_) ++select_n_branches().prefill_decides;
    if (decode > prefill && prefills_ && prompts > 0) ++select_n_branches().decode_decides;
    return std::max(prefill, decode);
  }

  [[nodiscard]] bool prefills() const { return prefills_; }
  [[nodiscard]] bool decodes() const { return decodes_; }
  /// The SLO of an iteration of the entry's batch, ns.
  [[nodiscard]] std::int64_t slo(Kind kind, std::int64_t requests, std::int64_t sequence) const {
    const auto [batch, length] = entry(requests, std::max(sequence, kShortest));
    return time_ ? *time_ : work_out(kind, batch, length, 0).second;
  }
  /// Of an iteration: the tighter one of its phases.
  [[nodiscard]] std::int64_t slo(std::int64_t running, const BatchShape& shape) const {
    const auto prompts = static_cast<std::int64_t>(shape.chunks.size());
    std::int64_t prompt_tokens = 0;
    std::int64_t tokens = shape.decode_context.count();
    for (const PrefillChunk& chunk : shape.chunks) {
      prompt_tokens += chunk.new_tokens.count();
      tokens += (chunk.context + chunk.new_tokens).count();
    }
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    if (prefills_ && prompts > 0) least = std::min(least, slo(Kind::prefill, prompts, prompt_tokens / prompts));
    if (decodes_) least = std::min(least, slo(Kind::decode, running, tokens / (shape.decode_sequences + prompts)));
    return std::max<std::int64_t>(1, least);
  }

  /// What is free with the fewest layers on the host that leave any.
  [[nodiscard]] Blocks least_room() const { return room_.blocks(room_.largest(Blocks(1)).value_or(room_.smallest())); }
  /// The most KV of requests of that length whose number has an entry with room for all of them.
  [[nodiscard]] Blocks offered(std::int64_t sequence) const {
    const std::int64_t each = (sequence + block_tokens_ - 1) / block_tokens_;
    Blocks most = least_room();
    for (std::int64_t requests = 1; requests <= most_requests_; ++requests) {
      const Blocks room = room_.blocks(interval(requests, sequence));
      if (room < Blocks(each * requests)) continue;
      // More of them than the largest batch do not come.
      std::int64_t last = requests;
      while (last < most_requests_ && entry(last + 1, sequence) == entry(requests, sequence)) ++last;
      if (last < most_requests_ && Blocks(each * last) < room) {
        most = std::max(most, Blocks(each * last));
      } else {
        if (last < most_requests_) ++select_n_branches().part_of_batch;
        most = std::max(most, room);
      }
    }
    return most;
  }
  /// To requests of any length.
  [[nodiscard]] Blocks widest() const {
    Blocks most{};
    for (std::int64_t sequence = kShortest; sequence <= capacity_; sequence *= 2)
      most = std::max(most, offered(sequence));
    return most;
  }

  /// Is there a batch that meets its SLO, in the memory there is?
  [[nodiscard]] bool possible() const {
    for (const Kind kind : {Kind::prefill, Kind::decode}) {
      if (!(kind == Kind::prefill ? prefills_ : decodes_)) continue;
      const auto [batch, length] = entry(1, kShortest);
      if (batch == 0 || work_out(kind, batch, length, 0).first == 0) return false;
    }
    for (std::int64_t requests = 1; requests <= most_requests_; ++requests) {
      for (std::int64_t sequence = kShortest; sequence <= capacity_; sequence *= 2) {
        const std::int64_t each = (sequence + block_tokens_ - 1) / block_tokens_;
        if (room_.blocks(interval(requests, sequence)) >= Blocks(each * requests)) return true;
      }
    }
    return false;
  }

 private:
  /// Batch and sequence of the entry: with an SLO that is a time, the next powers of two that are no less; with a
  /// margin the next that are no more. A batch of 0: there is none.
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> entry(std::int64_t requests, std::int64_t sequence) const {
    if (time_) {
      if (requests > most_requests_ || sequence > longest_) return {0, 0};
      return {power_of_two_from(requests), std::max(kShortest, power_of_two_from(sequence))};
    }
    if (requests < 1 || sequence < kShortest) return {0, 0};
    return {power_of_two_to(std::min(requests, most_requests_)), power_of_two_to(std::min(sequence, longest_))};
  }

  /// Requests that do not all fit are taken as short as they would have to be.
  [[nodiscard]] IterationTime time(Kind kind, std::int64_t batch, std::int64_t sequence) const {
    std::int64_t tokens = capacity_;
    if (kind == Kind::prefill && !time_) tokens = std::min(tokens, most_prompt_tokens_);
    const Tokens each(std::max(kShortest, std::min(sequence, tokens / batch)));
    BatchShape shape;
    shape.sampled_sequences = batch;
    const std::vector<PrefillChunk> prompts(static_cast<std::size_t>(batch), PrefillChunk{each, Tokens(0)});
    if (kind == Kind::prefill) {
      shape.chunks = prompts;
    } else {
      shape.decode_sequences = batch;
      shape.decode_context = each * batch;
      shape.decode_longest = each;
    }
    return deployment_.planner().iteration(shape);
  }

  /// The smallest interval, kNone without offloading, and 0 when nothing meets the SLO; and the SLO.
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> work_out(Kind kind, std::int64_t batch, std::int64_t sequence,
                                                               std::int64_t waited) const {
    const IterationTime times = time(kind, batch, sequence);
    const std::int64_t n = room_.n();
    const std::int64_t layer = times.layer.count();
    const std::int64_t others = times.before.count() + times.after.count();
    const std::int64_t best = others + n * layer;
    const CopyTime copy = deployment_.planner().copy(Stream::h2d, 1, deployment_.layer_weights, CopyMechanism::single);
    const std::int64_t transfer = copy.launch.count() + copy.transfer.count();
    const std::int64_t slo =
        time_ ? *time_ - waited
              : best + static_cast<std::int64_t>(std::floor(static_cast<double>(best) * margin_ + 0.5));
    if (slo < best) return {0, slo};
    const std::int64_t rounded = slo / kGrid * kGrid;
    if (!exact_) {
      if (rounded < best) return {kNone, slo};
      // The printed formula, with the compute time of all layers.
      const std::int64_t copies = transfer == 0 ? n : std::min(n, (rounded - others) / transfer);
      return {copies == 0 ? kNone : n / copies, slo};
    }
    for (std::int64_t i = 1; i <= n; ++i) {
      const std::int64_t took = others + layers_take(n, i, layer, transfer);
      if (took == best && rounded < best) ++select_n_branches().rounded_slo;
      if (took <= rounded || took == best) return {i, slo};
    }
    return {kNone, slo};
  }

  const Deployment& deployment_;
  Room room_;
  std::int64_t block_tokens_;
  bool exact_;
  bool prefills_;
  bool decodes_;
  std::int64_t most_prompt_tokens_;
  std::int64_t most_requests_;
  std::int64_t capacity_;  // tokens of KV, at most
  std::int64_t longest_;
  std::optional<std::int64_t> time_;
  bool less_waiting_ = false;
  double margin_ = 0.5;
  mutable std::map<std::tuple<Kind, std::int64_t, std::int64_t, std::int64_t>,
                   std::optional<std::pair<std::int64_t, std::int64_t>>>
      known_;
};

/// Fig. 7, for the layers on the host of one interval, or of two.
class PlainStream final : public LayerRule {
 public:
  explicit PlainStream(const Deployment& deployment) : deployment_(deployment) {}

  void set(std::int64_t i, std::int64_t other, bool double_buffer) {
    away_.clear();
    for (std::int64_t k = 0; k < deployment_.layers; ++k) {
      away_.push_back(on_host(k, i) || on_host(k, other) ? State::on_host : State::on_gpu);
    }
    buffers_ = std::max<std::int64_t>(1, buffers(deployment_.layers, i, double_buffer));
  }

  void at_layer_start(std::int32_t layer, std::int32_t /*sub_batch*/, CopySink& sink) override {
    if (layer == 0) {
      for (std::int64_t buffer = 0; buffer < buffers_; ++buffer) copy_next(sink);
    } else if (away_[static_cast<std::size_t>(layer - 1)] == State::arrived) {
      copy_next(sink);  // into the buffer that is free now
    }
  }
  void at_copy_done(const Copy& copy, CopySink& /*sink*/) override {
    away_[static_cast<std::size_t>(copy.layer)] = State::arrived;
  }
  [[nodiscard]] bool ready(std::int32_t layer, std::int32_t /*sub_batch*/) const override {
    const State state = away_[static_cast<std::size_t>(layer)];
    return state == State::on_gpu || state == State::arrived;
  }

 private:
  enum class State { on_gpu, on_host, on_its_way, arrived };

  void copy_next(CopySink& sink) {
    const auto next = std::find(away_.begin(), away_.end(), State::on_host);
    if (next == away_.end()) return;
    *next = State::on_its_way;
    const CopyTime time = deployment_.model->copy(Stream::h2d, 1, deployment_.layer_weights, CopyMechanism::single);
    sink.issue({.stream = Stream::h2d,
                .layer = static_cast<std::int32_t>(next - away_.begin()),
                .bytes = deployment_.layer_weights,
                .launch = time.launch,
                .transfer = time.transfer});
  }

  const Deployment& deployment_;
  std::vector<State> away_;
  std::int64_t buffers_ = 1;
};

std::int64_t fixed_interval(const Settings& settings) {
  const std::int64_t i = settings.get<std::int64_t>("policy.interval");
  return i == 0 ? kNone : i;
}

/// Fig. 8, for any number of instances: every combination of intervals is tried out.
class PlainBus {
 public:
  struct Instance {
    std::int64_t gpus = 1;
    bool busy = false;
    std::int64_t turn = 0;  // of its last change, among all changes on the bus
    // Of its batch
    std::int64_t layers = 0;
    std::int64_t bytes = 0;  // of a layer, on one GPU
    std::int64_t time = 1;   // ns of an iteration by its SLO
    std::int64_t least = 0;
    std::int64_t most = 0;
    std::optional<std::int64_t> interval;
  };

  explicit PlainBus(BytesPerSecond rate) : rate_(rate.value()) {}

  std::size_t add(std::int64_t gpus) {
    instances_.emplace_back().gpus = gpus;
    return instances_.size() - 1;
  }
  [[nodiscard]] std::optional<std::int64_t> interval(std::size_t i) const { return instances_[i].interval; }

  void runs(std::size_t i, Instance batch, SimTime now) {
    Instance& before = instances_[i];
    const auto bounds = [](const Instance& one) {
      return std::tuple(one.layers, one.bytes, one.time, one.least, one.most);
    };
    if (before.busy && bounds(before) == bounds(batch)) return;
    pass(now);
    batch.gpus = before.gpus;
    batch.interval = before.interval;
    batch.busy = true;
    batch.turn = ++turns_;
    before = batch;
    choose();
  }
  void rests(std::size_t i, SimTime now) {
    if (!instances_[i].busy) return;
    pass(now);
    instances_[i].busy = false;
    choose();
  }

  /// `alone`: the request has no others in its batch.
  [[nodiscard]] bool admits(std::size_t i, Instance batch, bool alone) const {
    SelectNBranches& seen = select_n_branches();
    if (batch.least > batch.most && !alone) {
      ++seen.refused_for_memory;
      return false;
    }
    batch.gpus = instances_[i].gpus;
    if (layers_at(batch, batch.most) == 0) return true;
    struct Wants {
      double each = 0.0;
      std::int64_t gpus = 1;
      bool runs_others = true;
    };
    std::vector<Wants> all{{rate_at(batch, batch.most) / static_cast<double>(batch.gpus), batch.gpus, !alone}};
    for (std::size_t other = 0; other < instances_.size(); ++other) {
      const Instance& peer = instances_[other];
      if (other == i || !peer.busy) continue;
      all.push_back({rate_at(peer, peer.most) / static_cast<double>(peer.gpus), peer.gpus, true});
    }
    if (all.size() == 1) return true;
    double sum = 0.0;
    for (const Wants& one : all) sum += one.each * static_cast<double>(one.gpus);
    if (sum < rate_) return true;
    // The water rises evenly until the bus is full.
    double level = 0.0;
    double left = rate_;
    std::vector<double> marks;
    marks.reserve(all.size());
    for (const Wants& one : all) marks.push_back(one.each);
    std::ranges::sort(marks);
    for (const double mark : marks) {
      double width = 0.0;
      for (const Wants& one : all) width += one.each >= mark ? static_cast<double>(one.gpus) : 0.0;
      const double rise = std::min(mark - level, left / width);
      level += rise;
      left -= rise * width;
    }
    for (const Wants& one : all) {
      if (one.runs_others && one.each > level * (1 + 1e-12)) {
        ++seen.refused_for_bus;
        return false;
      }
    }
    ++seen.served_at_its_own_risk;
    return true;
  }

  [[nodiscard]] Figures figures() const {
    if (busy_ == 0) return {};
    return {{"mean_bus_demand_gb_per_s", asked_time_ / static_cast<double>(busy_) * 1e-9},
            {"bus_overload_fraction", static_cast<double>(overloaded_) / static_cast<double>(busy_)}};
  }

 private:
  static std::int64_t layers_at(const Instance& one, std::int64_t i) { return layers_on_host(one.layers, i); }
  static double rate_at(const Instance& one, std::int64_t i) {
    return static_cast<double>(layers_at(one, i) * one.bytes * one.gpus) / (static_cast<double>(one.time) * 1e-9);
  }
  /// The instances that are busy, the newcomer last.
  [[nodiscard]] std::vector<Instance*> busy() {
    std::vector<Instance*> all;
    for (Instance& one : instances_) {
      if (one.busy) all.push_back(&one);
    }
    std::ranges::sort(all, {}, &Instance::turn);
    return all;
  }
  void pass(SimTime now) {
    const std::vector<Instance*> all = busy();
    const std::int64_t time = (now - last_).count();
    last_ = now;
    if (all.empty()) return;
    busy_ += time;
    if (full_) overloaded_ += time;
    double asked = 0.0;
    for (const Instance* one : all) asked += rate_at(*one, one->interval.value());
    asked_time_ += asked * static_cast<double>(time);
  }
  void choose() {
    const std::vector<Instance*> all = busy();
    full_ = false;
    if (all.size() == 1) {
      all.front()->interval = all.front()->least;
      ++select_n_branches().alone_on_bus;
    }
    if (all.size() < 2) return;
    std::vector<std::int64_t> at(all.size());
    best_.clear();
    try_from(0, all, at);
    full_ = best_.empty();
    ++(full_ ? select_n_branches().bus_full : select_n_branches().bus_shared);
    for (std::size_t i = 0; i < all.size(); ++i) all[i]->interval = full_ ? all[i]->most : best_[i];
  }
  void try_from(std::size_t first, const std::vector<Instance*>& all, std::vector<std::int64_t>& at) {
    if (first == all.size()) return rank(all, at);
    const Instance& one = *all[first];
    std::vector<std::int64_t> choices;
    for (std::int64_t i = one.least; i <= std::min(one.most, one.layers); ++i) choices.push_back(i);
    if (one.most == kNone) choices.push_back(kNone);
    std::int64_t before = -1;
    for (const std::int64_t i : choices) {
      if (std::exchange(before, layers_at(one, i)) == layers_at(one, i)) continue;  // the same as a smaller one
      at[first] = i;
      try_from(first + 1, all, at);
    }
  }
  void rank(const std::vector<Instance*>& all, const std::vector<std::int64_t>& at) {
    double rate = 0.0;
    std::int64_t bytes = 0;
    std::vector<std::int64_t> numbers;  // keeping all layers is one more than keeping all but one
    for (std::size_t i = 0; i < all.size(); ++i) {
      rate += rate_at(*all[i], at[i]);
      bytes += layers_at(*all[i], at[i]) * all[i]->bytes * all[i]->gpus;
      numbers.push_back(std::min(at[i], all[i]->layers + 1));
    }
    if (rate >= rate_) return;
    std::vector<std::int64_t> rank{-bytes, *std::ranges::max_element(numbers) - *std::ranges::min_element(numbers)};
    rank.insert(rank.end(), numbers.rbegin(), numbers.rend());
    if (!best_.empty() && rank >= best_rank_) return;
    best_ = at;
    best_rank_ = rank;
  }

  double rate_;
  std::vector<Instance> instances_;
  std::int64_t turns_ = 0;
  bool full_ = false;
  std::vector<std::int64_t> best_;
  std::vector<std::int64_t> best_rank_;
  SimTime last_;
  std::int64_t busy_ = 0;  // ns
  std::int64_t overloaded_ = 0;
  double asked_time_ = 0.0;
};

class PlainSelectN final : public LayerPolicy {
 public:
  explicit PlainSelectN(const PolicyContext& context)
      : deployment_(context.deployment),
        view_(context.view),
        double_buffer_(context.settings.get<bool>("policy.double_buffer")),
        record_(context.deployment, context.settings),
        stream_(context.deployment) {
    if (context.settings.has("policy.interval")) fixed_ = fixed_interval(context.settings);
    const bool alone = context.settings.has("policy.coordinate") && !context.settings.get<bool>("policy.coordinate");
    if (context.on_bus.bus != nullptr && !fixed_ && !alone) {
      bus_ = context.on_bus.bus->shared<PlainBus>();
      place_ = bus_->add(context.on_bus.gpus);
    }
  }

  [[nodiscard]] Blocks capacity() const override {
    if (fixed_) return record_.room().blocks(*fixed_);
    const TierState& gpu = view_.tier(kGpuTier);
    const BatchTotals& batch = view_.batch();
    if (batch.decoding == 0) return gpu.most;
    const Blocks offered = record_.offered(batch.decode_context.count() / batch.decoding);
    // What runs goes on, and one block stays free.
    const Blocks needed = gpu.total - gpu.free + batch.decode_growth + Blocks(1);
    ++(needed > offered ? select_n_branches().outgrown : select_n_branches().offered);
    return std::min(std::max(offered, needed), gpu.most);
  }

  LayerRule* begin(const BatchShape& shape, const LayerCompute& /*compute*/) override {
    if (fixed_) return run(*fixed_, kNone);
    const TierState& gpu = view_.tier(kGpuTier);
    const Blocks in_use = gpu.total - gpu.free;
    const auto leaves_room = [&](std::int64_t i) { return record_.room().blocks(i) >= in_use; };
    const std::int64_t waited = (view_.now() - view_.waiting_since()).count();
    const std::int64_t wanted = record_.wanted(view_.batch().running, shape, waited);
    std::int64_t next = wanted;
    if (!leaves_room(wanted)) {
      next = record_.room().largest(in_use).value();
      ++select_n_branches().for_kv;
    }
    if (bus_) {
      const std::optional<std::int64_t> last = bus_->interval(place_);
      bus_->runs(place_, bounds(next, in_use, record_.slo(view_.batch().running, shape)), view_.now());
      next = bus_->interval(place_).value();
      current_ = last;
    }
    const std::int64_t before = current_.value_or(next);
    current_ = next;
    if (leaves_room(before)) {
      ++(before == next ? select_n_branches().kept : select_n_branches().moved);
      note(before < wanted);
      return run(before, kNone);
    }
    const bool stream_both = layers_on_host(deployment_.layers, before) > 0;
    ++(stream_both ? select_n_branches().both : select_n_branches().at_once);
    note(next < wanted || stream_both);
    return run(next, before);
  }

  void rests() override {
    if (bus_) bus_->rests(place_, view_.now());
  }

  [[nodiscard]] bool admits(const RequestView& request) const override {
    if (!bus_ || request.known != request.input) return true;
    // The request's prompt, beside prompts of its length and what decodes.
    const BatchTotals& batch = view_.batch();
    const std::vector<PrefillChunk> prompts(static_cast<std::size_t>(batch.running - batch.decoding + 1),
                                            PrefillChunk{request.known, Tokens(0)});
    const std::int64_t mean = (batch.decode_context + request.known).count() / (batch.decoding + 1);
    // A shape of which the record sees this mean.
    const std::int64_t requests = batch.running + 1;
    std::int64_t wanted = 1;
    std::int64_t slo = std::numeric_limits<std::int64_t>::max();
    if (record_.prefills()) {
      wanted = std::max(wanted, record_.interval(Kind::prefill, std::ssize(prompts), request.known.count()));
      slo = std::min(slo, record_.slo(Kind::prefill, std::ssize(prompts), request.known.count()));
    }
    if (record_.decodes()) {
      wanted = std::max(wanted, record_.interval(Kind::decode, requests, mean));
      slo = std::min(slo, record_.slo(Kind::decode, requests, mean));
    }
    const TierState& gpu = view_.tier(kGpuTier);
    const std::int64_t block = view_.block_tokens().count();
    const Blocks kv = std::min(gpu.total, gpu.total - gpu.free + Blocks((request.known.count() + block - 1) / block));
    return bus_->admits(place_, bounds(wanted, kv, std::max<std::int64_t>(1, slo)), batch.running == 0);
  }
  [[nodiscard]] bool may_refuse() const override { return bus_ != nullptr; }
  void refused(bool sent_on) override { (sent_on ? sent_on_ : refused_) += 1; }

  [[nodiscard]] Figures figures() const override {
    Figures figures;
    if (bus_) {
      figures = bus_->figures();
      figures["refused_requests"] = static_cast<double>(refused_);
      figures["rerouted_requests"] = static_cast<double>(sent_on_);
    }
    std::int64_t sum = 0;
    std::int64_t streamed = 0;
    std::int64_t most = 0;
    for (const std::int64_t i : intervals_) {
      const std::int64_t away = layers_on_host(deployment_.layers, i);
      most = std::max(most, away);
      if (away == 0) continue;
      ++streamed;
      sum += i;
    }
    if (streamed > 0) figures["mean_interval_layers"] = static_cast<double>(sum) / static_cast<double>(streamed);
    figures["peak_host_layer_bytes"] = static_cast<double>((deployment_.layer_weights * most).count());
    const auto risks = std::count(risky_.begin(), risky_.end(), true);
    if (!risky_.empty()) figures["slo_risk_fraction"] = static_cast<double>(risks) / static_cast<double>(risky_.size());
    return figures;
  }

 private:
  [[nodiscard]] PlainBus::Instance bounds(std::int64_t least, Blocks kv, std::int64_t slo) const {
    PlainBus::Instance batch;
    batch.layers = deployment_.layers;
    batch.bytes = deployment_.layer_weights.count();
    batch.time = slo;
    batch.least = least;
    batch.most = record_.room().largest(kv).value();
    return batch;
  }
  void note(bool risky) {
    risky_.push_back(risky);
    select_n_branches().too_small += risky ? 1 : 0;
  }
  LayerRule* run(std::int64_t i, std::int64_t other) {
    intervals_.push_back(i);
    stream_.set(i, other, double_buffer_);
    const std::int64_t n = deployment_.layers;
    return layers_on_host(n, i) + layers_on_host(n, other) > 0 ? &stream_ : nullptr;
  }

  const Deployment& deployment_;
  const View& view_;
  const bool double_buffer_;
  std::optional<std::int64_t> fixed_;
  std::shared_ptr<PlainBus> bus_;
  std::size_t place_ = 0;
  std::int64_t refused_ = 0;
  std::int64_t sent_on_ = 0;
  Record record_;
  PlainStream stream_;
  std::optional<std::int64_t> current_;
  std::vector<std::int64_t> intervals_;  // of each iteration
  std::vector<bool> risky_;              // it streamed more than its SLO allows
};

void check_memory(const Room& room, std::int64_t i, const Deployment& deployment) {
  if (!room.fits_host(i)) throw ConfigError("host", "policy.host_memory", "");
  if (room.left(i) < room.least()) {
    throw ConfigError("GPU", deployment.gpu_kv_given ? "memory.gpu_kv" : "hardware", "");
  }
}

Layout layout(const Deployment& deployment, const Settings& settings) {
  const Room room(deployment, settings);
  if (settings.has("policy.interval")) {
    const std::int64_t i = fixed_interval(settings);
    if (i != kNone && i > room.n()) throw ConfigError("interval", "policy.interval", "");
    check_memory(room, i, deployment);
    return {.blocks = room.blocks(i), .most = room.blocks(i), .host = room.host(i), .terms = {}, .chosen = {}};
  }
  // Who gives host memory means to use it.
  check_memory(room, settings.has("policy.host_memory") ? std::min(room.smallest(), room.n()) : room.smallest(),
               deployment);
  const Record record(deployment, settings);
  if (!record.possible()) {
    throw ConfigError("SLO", settings.has("policy.slo") ? "policy.slo" : "policy.slo_margin", "");
  }
  const Blocks widest = record.widest();
  return {.blocks = record.least_room(),
          .most = widest,
          .host = room.host(room.largest(widest).value()),
          .terms = {},
          .chosen = {}};
}

Policy make(const PolicyContext& context) {
  const PlainPolicy* scheduler = find_plain("vllm-v0");
  Policy policy =
      scheduler != nullptr ? scheduler->make(context) : PolicyRegistry::instance().find("vllm-v0")->make(context);
  policy.layers = std::make_unique<PlainSelectN>(context);
  return policy;
}

const RegisterPlain kRegistered{{.name = "select-n", .make = make, .layout = layout}};

}  // namespace

SelectNBranches& select_n_branches() {
  static SelectNBranches branches;
  return branches;
}

}  // namespace spillway::oracle
