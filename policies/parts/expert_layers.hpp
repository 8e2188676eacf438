// What all policies have in common that place routed experts between a GPU and its host: the work of a layer after its
// gate, experts on the CPU, memory and figures. A policy says what a gate leads to.
#pragma once

#include <algorithm>
#include <array>
#include <boost/circular_buffer.hpp>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sim/api/figure.hpp"
#include "sim/api/layer_policy.hpp"
#include "sim/api/parameter.hpp"

namespace spillway {

/// Where the experts of a deployment are.
struct ExpertPlacement {
  std::int64_t on_gpu = 0;   // experts of all layers that stay there, or slots for them
  std::int64_t on_host = 0;  // experts of all layers that the host holds
  Bytes buffers{};           // on the GPU, for experts on their way
  std::string terms{};       // one line: "experts of 36 of 48 layers on the host"
  std::string lower{};       // the key to change when the GPU has too little memory, and how
};

/// The layout of a placement. Throws ConfigError, with the arithmetic, when GPU or host has too little memory.
[[nodiscard]] Layout lay_out_experts(const Deployment& deployment, const Settings& settings,
                                     const ExpertPlacement& placement);
/// Memory of the GPU that weights outside the experts leave; < 0 when they do not fit.
[[nodiscard]] Bytes beside_dense_weights(const Deployment& deployment);

/// How the host's CPU computes experts.
struct ExpertCpu {
  double bandwidth = 0.0;  // bytes/s at which it reads their weights; 0: it computes none
  RateByRows flops{};      // of its matrix products
  Duration start{};        // of the threads, per call
  Duration sync{};         // on each way: the GPU's work is awaited, a copy starts
};
/// policy.cpu_efficiency: share of the peak of one socket's memory at which experts are read.
[[nodiscard]] Parameter cpu_efficiency_parameter(const std::string& standard, const std::string& source);
/// policy.pageable: bandwidth of copies from memory that is not page-locked, as a share of one that is.
[[nodiscard]] Parameter pageable_parameter();
/// How many times as long such a copy takes.
[[nodiscard]] double pageable_slowdown(const Settings& settings);
/// policy.sync and policy.cpu_start.
[[nodiscard]] std::vector<Parameter> cpu_call_parameters();
/// As these parameters state it. Throws ConfigError when the host states no peak of its memory, or no rate of matrix
/// products.
[[nodiscard]] ExpertCpu expert_cpu(const Deployment& deployment, const Settings& settings);

[[nodiscard]] std::vector<FigureDefinition> expert_figures();

/// The rule of a policy that places experts. When the step of a layer with experts has ended (attention, router, shared
/// experts), the policy's gate() issues copies, hands experts to the CPU and lists what the GPU computes, in order.
/// Each piece waits for a copy, if it needs one. The layer ends when all pieces have been computed and the CPU's
/// outputs have come back.
class ExpertLayers : public LayerPolicy, protected LayerRule {
 public:
  [[nodiscard]] Blocks capacity() const final { return capacity_; }
  [[nodiscard]] LayerRule* begin(const BatchShape& shape, const LayerCompute& compute) override;
  void iteration_ended(const LayerReport& report) override;
  void copied(const Copy& copy, SimTime started, SimTime ended) override;
  [[nodiscard]] bool hears_of(Stream stream) const override { return stream == Stream::cpu; }
  [[nodiscard]] Figures figures() const override;

 protected:
  ExpertLayers(const Deployment& deployment, Blocks capacity, ExpertCpu cpu = {});

  /// The router of `layer`, counted among those with experts, has chosen.
  virtual void gate(std::int32_t layer, CopySink& sink) = 0;
  /// Loads have arrived: arrived() says up to which ticket. Several may be told at once. While others of a gate are
  /// still to come, and of turns, no load may be issued.
  virtual void loaded(CopySink& /*sink*/) {}
  /// The work of a layer has ended.
  virtual void leave(std::int32_t /*layer*/, CopySink& /*sink*/) {}

  // For gate(), and load() for the others, too:
  /// Copies `experts` to the GPU as one copy, whose fixed time is that of `copies` of them and `more`; `slower` times
  /// the transfer of pinned memory. Returns its ticket: loads end in the order of their tickets, from 1 on.
  std::int64_t load(CopySink& sink, std::int64_t experts, std::int64_t copies, Duration more = {}, double slower = 1.0);
  /// The copy that load() of so many issues.
  [[nodiscard]] Copy load_of(std::int64_t experts, std::int64_t copies, double slower = 1.0) const;
  /// The GPU computes them once the load `ticket` has arrived; 0: they are there.
  void compute(std::int64_t experts, std::int64_t rows, std::int64_t ticket = 0);
  /// The GPU computes each by itself, in this order: they are there.
  void compute(std::span<const ExpertUse> uses) { compute_each(uses, 0); }
  /// Each is loaded by itself, as load() of one with so many copies, and computed when it has arrived.
  void load_and_compute(CopySink& sink, std::span<const ExpertUse> uses, std::int64_t copies);
  /// As compute() of those of a layer all of whose experts are in use that are there: bit e % 64 of word e / 64 of
  /// `there` says so of expert e. Returns how many. O(experts / 64), and O(n log n) for n experts whose tokens take
  /// longer than their weights.
  std::int64_t compute_those(const AllUsed& all, std::span<const std::uint64_t> there);
  /// As load_and_compute() of the others. Likewise.
  void load_and_compute_others(CopySink& sink, const AllUsed& all, std::span<const std::uint64_t> there,
                               std::int64_t copies);
  /// As one step after what was listed before: an expert is copied as load() would, then the GPU computes it. Nothing
  /// goes on beside it.
  void load_and_compute(std::int64_t rows, std::int64_t copies, double slower) {
    take_turn(one_on_gpu(rows), {.copies = copies, .slower = slower});
  }
  /// The same of one expert whose slot another one leaves: that goes back to the host before the GPU computes.
  void swap_and_compute(std::int64_t rows, std::int64_t copies) {
    take_turn(one_on_gpu(rows), {.copies = copies, .out = true});
  }
  /// Likewise the CPU, experts > 0 in `time`.
  void compute_on_cpu_in_turn(std::int64_t experts, Duration time);
  /// Many such loads and pieces of the GPU between them, before all that is listed. They are executed together, or
  /// list_turns() is called. Each copy is load_of(1, copies, slower).
  void take_turns(const LayerTurns& turns, std::int64_t copies) {
    together_ = turns;
    copies_together_ = copies;
  }
  /// Lists the steps that gate() gave to take_turns().
  virtual void list_turns(std::int32_t layer);
  /// The CPU computes them: the hidden states go to the host, the outputs come back.
  void compute_on_cpu(CopySink& sink, std::int64_t experts, std::int64_t rows) {
    if (experts > 0) call_cpu(sink, experts, cpu_time(experts, rows), true);
  }
  /// The same of experts > 0 in a time that the policy states.
  void compute_on_cpu_for(CopySink& sink, std::int64_t experts, Duration time) { call_cpu(sink, experts, time, true); }
  /// The same of hidden states that the call before has sent.
  void compute_more_on_cpu_for(CopySink& sink, std::int64_t experts, Duration time) {
    call_cpu(sink, experts, time, false);
  }
  /// The layer does not wait for the last call of the CPU, and the next one with experts does. The outputs are added to
  /// those of that layer's first call, so they take no time of their own on the way back.
  void defer() {
    deferred_ = 1;
    calls_.back().back.bytes = {};
    calls_.back().back.launch = {};
    calls_.back().back.transfer = {};
  }
  /// A call that computes nothing: what was deferred comes back.
  void collect_from_cpu(CopySink& sink) { call_cpu(sink, 0, {}, true); }

  [[nodiscard]] const ExpertDeployment& experts() const { return experts_; }
  [[nodiscard]] ExpertActivation& activation() const { return *experts_.activation; }
  /// Loads that were issued, or will be when the call of the rule ends; their tickets are 1 to loads().
  [[nodiscard]] std::int64_t loads() const { return loads_; }
  [[nodiscard]] std::int64_t arrived() const { return arrived_; }
  [[nodiscard]] const ExpertCpu& cpu() const { return cpu_; }
  /// Seconds in which the CPU reads their weights.
  [[nodiscard]] double cpu_reading_seconds(std::int64_t experts) const;
  /// Seconds in which the CPU computes them: it reads them, or their arithmetic takes longer.
  [[nodiscard]] double cpu_seconds(std::int64_t experts, std::int64_t rows) const;

  /// What experts take on the GPU.
  struct OnGpu {
    Duration time{-1};        // < 0: unknown
    bool arithmetic = false;  // bound by arithmetic, not by memory
    bool operator==(const OnGpu&) const = default;
  };
  static constexpr std::int64_t kMostKept = 4096;  // rows
  /// What one expert takes there for `rows` > 0, kept for the next call with as many rows, if they are at most
  /// kMostKept. Amortised O(1).
  [[nodiscard]] OnGpu one_on_gpu(std::int64_t rows) {
    const auto at = static_cast<std::size_t>(rows);
    return at < one_on_gpu_.size() && one_on_gpu_[at].time >= Duration{} ? one_on_gpu_[at] : keep_one_on_gpu(rows);
  }

  /// Counts of (layer, expert) pairs in use.
  struct Counts {
    std::int64_t resident = 0;  // on the GPU before the gate
    std::int64_t loaded = 0;
    std::int64_t on_cpu = 0;
    std::int64_t late = 0;    // on the way already, but not there at the gate
    std::int64_t unused = 0;  // prefetched for nothing
    Bytes demanded{};
    Bytes prefetched{};
  };
  Counts counts_{};

 private:
  void at_layer_start(std::int32_t layer, std::int32_t sub_batch, CopySink& sink) final;
  void at_copy_done(const Copy& copy, CopySink& sink) final;
  [[nodiscard]] bool ready(std::int32_t /*layer*/, std::int32_t /*sub_batch*/) const final { return true; }
  [[nodiscard]] bool works_in_layers() const final { return true; }
  [[nodiscard]] LayerWork work(std::int32_t layer, std::int32_t sub_batch, CopySink& sink) final;
  void skip_alike(std::int32_t count) final;
  void skip_rounds(std::int32_t count) final;
  void skip_turns() final;

  /// A step of a layer. The GPU takes them in order.
  struct Piece {
    OnGpu gpu{};
    std::int64_t ticket = 0;
    /// Equal steps that follow and have not started, each of which waits for the next ticket, if any; -1: nor is this
    /// one left.
    std::int32_t alike = 0;
    bool has_turn = false;  // the next one of turns_ comes first
  };
  /// What comes before the GPU computes, with nothing beside it.
  struct Turn {
    std::int64_t copies = 0;  // of the expert that is loaded
    double slower = 1.0;
    bool out = false;         // then one expert goes to the host
    std::int64_t on_cpu = 0;  // or experts that the CPU computes, and the GPU none
    Duration cpu_time{};
    bool issued = false;
  };
  void call_cpu(CopySink& sink, std::int64_t experts, Duration time, bool sends);
  /// Issues the loads that this call of the rule has held back, to become one run.
  void flush(CopySink& sink) {
    if (run_) sink.issue(*std::exchange(run_, std::nullopt));
  }
  /// `first`: the ticket of the first one, which the others follow; 0: they are there.
  void compute_each(std::span<const ExpertUse> uses, std::int64_t first);
  /// Some experts of a layer all of whose experts are in use. Their bits are in chosen_.
  struct Chosen {
    std::int64_t count = 0;
    std::span<ExpertUse> slow{};  // whose tokens take longer than their weights, by falling number of tokens
  };
  /// Those of which `there` says so, or the others. Valid until the next call.
  [[nodiscard]] Chosen choose(const AllUsed& all, std::span<const std::uint64_t> there, bool those);
  /// As compute_each() of their uses. Sorts those that are slow.
  void compute_each(const Chosen& chosen, std::int64_t first);
  /// How many of `uses`, from the first one on, take as long as their weights.
  [[nodiscard]] std::size_t weights_take_longer(std::span<const ExpertUse> uses) const;
  /// Loads `count` > 0 experts, each by itself. Returns the ticket of the first one.
  std::int64_t load_each(CopySink& sink, std::int64_t count, std::int64_t copies);
  /// Lists `count` equal steps of the GPU: the first one after the load `ticket`, each of the others after the next
  /// one; 0: at once.
  void list(const OnGpu& gpu, std::int64_t ticket, std::int64_t count);
  /// Where copies do not slow compute down, steps that wait for nothing take as long as one that takes the sum of their
  /// times: those that are bound by arithmetic are one, the others another one. A run that is cut within it counts it
  /// as a whole.
  void join(const OnGpu& gpu);
  /// Lists them, and what was listed before behind them.
  void list_turns_first(std::int32_t layer);
  /// Lists a step with its turn.
  void take_turn(const OnGpu& gpu, const Turn& turn);
  /// So many loads, of `copies` copies each, that load() was not called for count in the model's range_uses(), too.
  /// They are counted when the iteration ends: a call here would make the model forget the copy that load() asks for.
  /// Those of an iteration that is cut short count with the next one, if there is one.
  void count_copies(std::int64_t loads, std::int64_t copies);
  /// Counts them. One load of all their copies has blocks of the same size.
  void count_uncounted();
  /// So many more copies like those of run_.
  void add_to_run(std::int64_t copies, CopySink& sink);
  /// What the GPU waits for before `piece`, whose copy has not arrived.
  [[nodiscard]] LayerWork awaited(const Piece& piece) const;
  /// An expert goes back to the host.
  void send_out(CopySink& sink, std::int64_t copies);
  [[nodiscard]] OnGpu on_gpu(std::int64_t experts, std::int64_t rows) const;
  [[nodiscard]] OnGpu keep_one_on_gpu(std::int64_t rows);
  /// The most rows, below kMostKept, for which one expert takes no longer than for one row: its weights take longer.
  [[nodiscard]] std::int64_t most_rows_by_weights() const;
  /// cpu_seconds() of experts > 0, kept where it was asked for lately. Amortised O(1).
  [[nodiscard]] Duration cpu_time(std::int64_t experts, std::int64_t rows);
  struct OnCpu {
    std::int64_t experts = 0;  // 0: unknown
    std::int64_t rows = 0;
    Duration time{};
  };

  struct CpuCall {
    bool sends = true;
    Copy there{};
    Copy job{};
    Copy back{};
  };
  enum Tag : std::int32_t { kLoad, kThere, kJob, kBack, kOut };

  const ExecutionModel& model_;
  const ExpertDeployment experts_;
  const Blocks capacity_;
  const ExpertCpu cpu_;
  std::vector<std::int32_t> number_of_;  // of each layer of the model, among those with experts; -1: it has none
  std::array<bool, kMostLayerKinds> has_experts_{};  // by kind: whether its layers do
  bool entered_ = false;                             // the gate of the layer has opened
  std::vector<OnGpu> one_on_gpu_;                    // by rows
  std::int64_t rows_by_weights_ = 0;                 // most_rows_by_weights()
  bool joins_ = false;                               // see join()
  std::array<OnCpu, 16> on_cpu_{};                   // by experts, modulo its size
  std::vector<std::uint64_t> chosen_;                // bits by expert
  std::vector<std::int64_t> before_;                 // by word of these: how many bits the words before have
  std::vector<ExpertUse> slow_;                      // room for Chosen::slow
  std::vector<Piece> pieces_;                        // of the layer
  std::size_t next_ = 0;
  std::deque<Turn> turns_;            // of those from `next_` on
  std::vector<Piece> pieces_behind_;  // while turns are listed
  std::deque<Turn> turns_behind_;
  std::optional<LayerTurns> together_{};
  std::int64_t copies_together_ = 0;  // of each of their loads
  bool offered_ = false;              // they were returned by work()
  bool in_turn_ = false;              // what follows waits for the CPU
  bool going_out_ = false;            // an expert is on its way to the host
  std::optional<Copy> run_{};
  std::int64_t uncounted_ = 0;         // loads that were given to count_copies() in this iteration
  std::int64_t uncounted_copies_ = 0;  // of each of these
  std::int64_t loads_ = 0;             // issued, or about to be
  std::int64_t arrived_ = 0;
  boost::circular_buffer<CpuCall> calls_;  // that have not come back; a deque would allocate again and again
  std::size_t on_the_way_ = 0;             // of these, those whose hidden states have arrived
  std::size_t jobs_done_ = 0;              // and those that the CPU has computed
  std::int64_t called_ = 0;
  std::int64_t returned_ = 0;
  std::int64_t deferred_ = 0;  // of the calls
  Duration cpu_busy_{};
  Duration gpu_busy_{};  // with experts
  // Of iterations that have ended:
  Duration around_experts_{};   // in layers with experts, without these
  Duration in_dense_layers_{};  // in the others
  Duration attending_{};        // in both
  LayerCompute compute_{};      // of the iteration that runs
  Bytes cpu_read_{};
};

}  // namespace spillway
