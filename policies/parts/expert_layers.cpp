#include "policies/parts/expert_layers.hpp"

#include <fmt/format.h>

#include <bit>
#include <limits>
#include <utility>

#include "policies/parts/expert_slots.hpp"
#include "policies/parts/layer_figures.hpp"
#include "policies/parts/quantities.hpp"
#include "policies/parts/weight_layers.hpp"
#include "sim/core/error.hpp"

namespace spillway {
namespace {

constexpr const char* kCpuEfficiency = "policy.cpu_efficiency";
constexpr const char* kPageable = "policy.pageable";
constexpr const char* kSync = "policy.sync";
constexpr const char* kCpuStart = "policy.cpu_start";

/// For calls that must not issue a copy.
class NoCopies final : public CopySink {
 public:
  void issue(const Copy& /*copy*/) override {
    throw InvariantError("a policy loads experts where those of a gate have arrived in rounds");
  }
};

}  // namespace

Bytes beside_dense_weights(const Deployment& deployment) {
  return deployment.memory - (deployment.weights - deployment.experts->all_bytes());
}

Layout lay_out_experts(const Deployment& deployment, const Settings& settings, const ExpertPlacement& placement) {
  const ExpertDeployment& experts = *deployment.experts;
  const Bytes dense = deployment.weights - experts.all_bytes();
  const double each = megabytes(experts.bytes);
  return lay_out_weights(
      deployment, settings,
      {.gpu = dense + experts.bytes * placement.on_gpu + placement.buffers,
       .host = experts.bytes * placement.on_host,
       .on_gpu = fmt::format("{} experts of {:.1f} MB on the GPU, {:.2f} GB of other weights, {:.2f} GB of buffers",
                             placement.on_gpu, each, gigabytes(dense), gigabytes(placement.buffers)),
       .on_host = fmt::format("{} experts of {:.1f} MB", placement.on_host, each),
       .terms = placement.terms,
       .less_host = "keep more experts on the GPU",
       .less_gpu = placement.lower});
}

Parameter cpu_efficiency_parameter(const std::string& standard, const std::string& source) {
  return {.name = kCpuEfficiency,
          .type = ParameterType::real,
          .unit = "fraction",
          .default_value = standard,
          .minimum = 0.01,
          .maximum = 1.0,
          .doc =
              "Share of the peak of one socket's memory channels at which the CPU reads experts. Copies between host "
              "and GPU take from the same memory: both together get at most the host's dram_bandwidth",
          .source = source};
}

Parameter pageable_parameter() {
  return {.name = kPageable,
          .type = ParameterType::real,
          .unit = "fraction",
          .default_value = "0.55",
          .minimum = 0.01,
          .maximum = 1.0,
          .doc =
              "Bandwidth of a copy from memory that is not page-locked, as a share of the bandwidth from page-locked "
              "memory",
          .source = "14.4 of 26.2 GB/s on one machine (a third party's measurement; hwmodels/README.md)"};
}

double pageable_slowdown(const Settings& settings) { return 1.0 / settings.get<double>(kPageable); }

std::vector<Parameter> cpu_call_parameters() {
  const auto time = [](const char* name, const char* standard, const char* doc, const char* source) {
    return Parameter{.name = name,
                     .type = ParameterType::duration,
                     .unit = "ns",
                     .default_value = standard,
                     .minimum = 0.0,
                     .maximum = 1e9,
                     .doc = doc,
                     .source = source};
  };
  return {
      time(
          kSync, "25us",
          "Fixed time of each transfer between GPU and CPU, in each direction: waiting for the GPU and starting a copy",
          "assumed: a stream synchronisation and a small copy; no measurement was found"),
      time(kCpuStart, "100us", "Fixed time of a layer's experts on the CPU: starting the threads",
           "assumed: a thread pool's barrier over tens of threads; no measurement was found")};
}

ExpertCpu expert_cpu(const Deployment& deployment, const Settings& settings) {
  const ExpertDeployment& experts = *deployment.experts;
  if (experts.dram_peak <= 0.0) {
    throw ConfigError("experts on the CPU need the bandwidth of the host's memory, and the hardware states none",
                      "hardware", "name a server whose host states dram_peak, such as hardware=hgx-h100-8");
  }
  if (experts.cpu_flops.empty()) {
    throw ConfigError(
        "experts on the CPU need the host's rate of matrix products, and the host states none", "hardware",
        "give the host's file gemm_flops_64_rows, as cuda_calibrate or a benchmark of a GEMM measures it, "
        "or name another server, such as hardware=hgx-h100-8");
  }
  return {.bandwidth = settings.get<double>(kCpuEfficiency) * experts.dram_peak,
          .flops = experts.cpu_flops,
          .start = settings.get<Duration>(kCpuStart),
          .sync = settings.get<Duration>(kSync)};
}

std::vector<FigureDefinition> expert_figures() {
  return {{"expert_hit_fraction", "fraction",
           "Share of the experts used by an iteration that were on the GPU when the layer's router chose them. Mean "
           "over the run; each pair of layer and expert counts once per iteration.",
           Better::larger},
          {"expert_load_fraction", "fraction",
           "Share of the experts used by an iteration that the layer waited for while they were copied to the GPU."},
          {"expert_cpu_fraction", "fraction", "Share of the experts used by an iteration that the CPU computed."},
          {"late_prefetch_fraction", "fraction",
           "Share of the experts used by an iteration whose copy had started before the router chose them, but had not "
           "ended. These experts also count as copied or as computed by the CPU."},
          {"unused_prefetches",
           "experts",
           "Experts that were copied for a prediction and were not used, in the whole run.",
           {},
           Merge::sum},
          {"demanded_expert_bytes",
           "bytes",
           "Bytes of experts copied to the GPU because a router had chosen them, in the whole run, per GPU.",
           {},
           Merge::sum},
          {"prefetched_expert_bytes",
           "bytes",
           "Bytes of experts copied to the GPU before a router had chosen, in the whole run, per GPU.",
           {},
           Merge::sum},
          {"cpu_expert_bytes", "bytes", "Weights of experts that the CPU read, in the whole run.", {}, Merge::sum},
          {"cpu_expert_seconds", "s", "Time in which the CPU computed experts, in the whole run.", {}, Merge::sum},
          {"gpu_expert_seconds",
           "s",
           "Time in which the GPU computed routed experts, in the whole run, without the slowdown by copies.",
           {},
           Merge::sum},
          {"gpu_expert_layer_seconds",
           "s",
           "Time that layers with routed experts took without these: attention, routers, shared experts, and the "
           "launches and exchanges of data between GPUs that nothing hides. In the whole run, without the slowdown by "
           "copies.",
           {},
           Merge::sum},
          {"gpu_dense_layer_seconds",
           "s",
           "Time that layers without routed experts took, launches and exchanges of data between GPUs included, in "
           "the whole run, without the slowdown by copies.",
           {},
           Merge::sum},
          {"gpu_attention_seconds",
           "s",
           "The part of gpu_expert_layer_seconds and gpu_dense_layer_seconds in which the GPU attended, at the full "
           "clock. Missing if the latency model does not tell attention apart.",
           {},
           Merge::sum}};
}

ExpertLayers::ExpertLayers(const Deployment& deployment, Blocks capacity, ExpertCpu cpu)
    : model_(*deployment.model),
      experts_(*deployment.experts),
      capacity_(capacity),
      cpu_(std::move(cpu)),
      number_of_(static_cast<std::size_t>(deployment.layers), -1) {
  const LayerKinds& kinds = model_.layer_kinds();
  for (std::size_t i = 0; i < experts_.layers.size(); ++i) {
    const auto layer = static_cast<std::size_t>(experts_.layers[i]);
    number_of_[layer] = static_cast<std::int32_t>(i);
    has_experts_[kinds.several() ? kinds.of_layer[layer] : 0] = true;
  }
  rows_by_weights_ = most_rows_by_weights();
  joins_ = model_.copy_sharing().compute.none();
}

LayerRule* ExpertLayers::begin(const BatchShape& /*shape*/, const LayerCompute& compute) {
  compute_ = compute;
  return this;
}

void ExpertLayers::iteration_ended(const LayerReport& /*report*/) {
  for (std::size_t kind = 0; kind < kMostLayerKinds; ++kind) {
    (has_experts_[kind] ? around_experts_ : in_dense_layers_) += compute_.kinds[kind];
  }
  attending_ += compute_.attention;
  count_uncounted();
}

double ExpertLayers::cpu_reading_seconds(std::int64_t experts) const {
  // Whole experts, of which each GPU would have a share.
  return real(experts_.gpus) * real(experts_.bytes.count()) * real(experts) / cpu_.bandwidth;
}

double ExpertLayers::cpu_seconds(std::int64_t experts, std::int64_t rows) const {
  const double rate = cpu_.flops.at(real(rows) / real(experts));
  return std::max(cpu_reading_seconds(experts), 2.0 * real(experts_.gpus) * experts_.parameters * real(rows) / rate);
}

Duration ExpertLayers::cpu_time(std::int64_t experts, std::int64_t rows) {
  OnCpu& known = on_cpu_[static_cast<std::size_t>(experts) % on_cpu_.size()];
  if (known.experts != experts || known.rows != rows) {
    known = {experts, rows, round_seconds(cpu_seconds(experts, rows))};
  }
  return known.time;
}

std::int64_t ExpertLayers::load(CopySink& sink, std::int64_t experts, std::int64_t copies, Duration more,
                                double slower) {
  Copy copy = load_of(experts, copies, slower);
  copy.launch += more;
  if (run_ && run_->bytes == copy.bytes && run_->launch == copy.launch && run_->transfer == copy.transfer) {
    add_to_run(1, sink);
  } else {
    flush(sink);
    run_ = copy;
  }
  return ++loads_;
}

Copy ExpertLayers::load_of(std::int64_t experts, std::int64_t copies, double slower) const {
  const Bytes bytes = experts_.bytes * experts;
  const CopyTime time = model_.copy(Stream::h2d, copies, bytes, CopyMechanism::many);
  const Duration transfer = slower == 1.0 ? time.transfer : round_seconds(to_seconds(time.transfer) * slower);
  return {.stream = Stream::h2d, .bytes = bytes, .launch = time.launch, .transfer = transfer, .tag = kLoad};
}

void ExpertLayers::add_to_run(std::int64_t copies, CopySink& sink) {
  constexpr std::int64_t kMost = std::numeric_limits<decltype(Copy::alike)>::max();
  while (copies > 0) {
    if (run_->alike == kMost) {
      Copy next = *run_;
      next.alike = 0;
      flush(sink);
      run_ = next;
      --copies;
    }
    const std::int64_t added = std::min(copies, kMost - run_->alike);
    run_->alike = static_cast<std::int16_t>(run_->alike + added);
    copies -= added;
  }
}

ExpertLayers::OnGpu ExpertLayers::on_gpu(std::int64_t experts, std::int64_t rows) const {
  const double seconds = experts_.gpu_seconds(experts, rows);
  const bool arithmetic = seconds * experts_.gpu_bandwidth > real(experts_.bytes.count()) * real(experts);
  return {.time = round_seconds(seconds), .arithmetic = arithmetic};
}

ExpertLayers::OnGpu ExpertLayers::keep_one_on_gpu(std::int64_t rows) {
  if (rows > kMostKept) return on_gpu(1, rows);
  const auto at = static_cast<std::size_t>(rows);
  if (at >= one_on_gpu_.size()) one_on_gpu_.resize(at + 1);
  return one_on_gpu_[at] = on_gpu(1, rows);
}

std::int64_t ExpertLayers::most_rows_by_weights() const {
  // The time never falls when rows are added.
  const OnGpu of_one = on_gpu(1, 1);
  std::int64_t most = 1;
  std::int64_t too_many = kMostKept;
  while (most + 1 < too_many) {
    const std::int64_t middle = (most + too_many) / 2;
    (on_gpu(1, middle) == of_one ? most : too_many) = middle;
  }
  return most;
}

void ExpertLayers::compute(std::int64_t experts, std::int64_t rows, std::int64_t ticket) {
  if (experts == 0) return;
  list(experts == 1 ? one_on_gpu(rows) : on_gpu(experts, rows), ticket, 1);
}

void ExpertLayers::list(const OnGpu& gpu, std::int64_t ticket, std::int64_t count) {
  if (ticket == 0 && joins_) return join({.time = gpu.time * count, .arithmetic = gpu.arithmetic});
  const auto alike = static_cast<std::int32_t>(count - 1);
  if (!pieces_.empty()) {
    Piece& last = pieces_.back();
    const std::int64_t next = last.ticket > 0 ? last.ticket + last.alike + 1 : 0;
    if (ticket == next && !last.has_turn && last.gpu == gpu) {
      last.alike += 1 + alike;
      return;
    }
  }
  pieces_.push_back({gpu, ticket, alike});
}

void ExpertLayers::join(const OnGpu& gpu) {
  constexpr std::size_t kKinds = 2;  // bound by arithmetic, and by memory
  for (std::size_t i = pieces_.size(); i > 0 && i + kKinds > pieces_.size(); --i) {
    Piece& piece = pieces_[i - 1];
    if (piece.ticket > 0 || piece.has_turn) break;
    if (piece.gpu.arithmetic != gpu.arithmetic) continue;
    piece.gpu.time += gpu.time;
    return;
  }
  pieces_.push_back({.gpu = gpu});
}

std::size_t ExpertLayers::weights_take_longer(std::span<const ExpertUse> uses) const {
  const auto most = static_cast<std::int32_t>(rows_by_weights_);
  constexpr std::size_t kAtOnce = 8;
  std::size_t first = 0;
  for (; first + kAtOnce <= uses.size(); first += kAtOnce) {
    std::int32_t more = 0;  // without a branch for each
    for (std::size_t i = 0; i < kAtOnce; ++i) more |= most - uses[first + i].tokens;
    if (more < 0) break;
  }
  while (first < uses.size() && uses[first].tokens <= most) ++first;
  return first;
}

void ExpertLayers::compute_each(std::span<const ExpertUse> uses, std::int64_t first) {
  for (std::size_t i = 0; i < uses.size();) {
    const std::int64_t tokens = uses[i].tokens;
    const OnGpu gpu = one_on_gpu(tokens);
    // Most experts take as long as the one before, since their weights take longer than their tokens.
    std::size_t same = i + 1;
    if (tokens <= rows_by_weights_) {
      same += weights_take_longer(uses.subspan(same));
    } else {
      while (same < uses.size() && one_on_gpu(uses[same].tokens) == gpu) ++same;
    }
    list(gpu, first > 0 ? first + static_cast<std::int64_t>(i) : 0, static_cast<std::int64_t>(same - i));
    i = same;
  }
}

void ExpertLayers::load_and_compute(CopySink& sink, std::span<const ExpertUse> uses, std::int64_t copies) {
  if (!uses.empty()) compute_each(uses, load_each(sink, std::ssize(uses), copies));
}

std::int64_t ExpertLayers::load_each(CopySink& sink, std::int64_t count, std::int64_t copies) {
  const std::int64_t first = load(sink, 1, copies);
  add_to_run(count - 1, sink);
  count_copies(count - 1, copies);
  loads_ += count - 1;
  return first;
}

std::int64_t ExpertLayers::compute_those(const AllUsed& all, std::span<const std::uint64_t> there) {
  const Chosen chosen = choose(all, there, true);
  if (chosen.count == 0) return 0;
  if (!joins_) {
    compute_each(chosen, 0);
    return chosen.count;
  }
  std::array<Duration, 2> times{};  // bound by memory, by arithmetic
  const OnGpu fast = one_on_gpu(1);
  times[static_cast<std::size_t>(fast.arithmetic)] = fast.time * (chosen.count - std::ssize(chosen.slow));
  for (const ExpertUse& use : chosen.slow) {
    const OnGpu gpu = one_on_gpu(use.tokens);
    times[static_cast<std::size_t>(gpu.arithmetic)] += gpu.time;
  }
  // In the order of the experts: the kind of the first one comes first.
  std::size_t word = 0;
  while (chosen_[word] == 0) ++word;
  const auto first = static_cast<std::int32_t>(word * SplitUses::kBits) + std::countr_zero(chosen_[word]);
  const auto use = std::ranges::find(chosen.slow, first, &ExpertUse::expert);
  const bool of_first = (use == chosen.slow.end() ? fast : one_on_gpu(use->tokens)).arithmetic;
  for (const bool arithmetic : {of_first, !of_first}) {
    const Duration time = times[static_cast<std::size_t>(arithmetic)];
    if (time > Duration{}) join({.time = time, .arithmetic = arithmetic});
  }
  return chosen.count;
}

void ExpertLayers::load_and_compute_others(CopySink& sink, const AllUsed& all, std::span<const std::uint64_t> there,
                                           std::int64_t copies) {
  const Chosen chosen = choose(all, there, false);
  if (chosen.count > 0) compute_each(chosen, load_each(sink, chosen.count, copies));
}

ExpertLayers::Chosen ExpertLayers::choose(const AllUsed& all, std::span<const std::uint64_t> there, bool those) {
  const std::uint64_t flip = those ? 0 : ~std::uint64_t{0};
  chosen_.resize(there.size());
  before_.resize(there.size());
  const std::size_t count = all.experts.size();
  std::int64_t chosen = 0;
  for (std::size_t word = 0; word < there.size(); ++word) {
    const std::size_t first = word * SplitUses::kBits;
    const std::size_t unused = first + SplitUses::kBits > count ? first + SplitUses::kBits - count : 0;
    const std::uint64_t bits = (there[word] ^ flip) & (~std::uint64_t{0} >> unused);
    chosen_[word] = bits;
    before_[word] = chosen;
    chosen += count_bits(bits);
  }
  if (slow_.size() < count) slow_.resize(count);
  std::size_t slow = 0;
  for (std::size_t place = 0; place < count && all.tokens[place] > rows_by_weights_; ++place) {
    slow_[slow] = {all.experts[place], all.tokens[place]};
    slow += static_cast<std::size_t>(is_held(chosen_, all.experts[place]));
  }
  return {.count = chosen, .slow = std::span(slow_).first(slow)};
}

void ExpertLayers::compute_each(const Chosen& chosen, std::int64_t first) {
  std::ranges::sort(chosen.slow, {}, &ExpertUse::expert);
  std::int64_t listed = 0;
  const auto list_until = [&](std::int64_t end, const OnGpu& gpu) {
    if (listed < end) list(gpu, first > 0 ? first + listed : 0, end - listed);
    listed = end;
  };
  const OnGpu fast = one_on_gpu(1);  // as long as their weights
  for (const ExpertUse& use : chosen.slow) {
    const auto expert = static_cast<std::size_t>(use.expert);
    const std::size_t word = expert / SplitUses::kBits;
    const std::uint64_t below = (std::uint64_t{1} << (expert % SplitUses::kBits)) - 1;
    const std::int64_t place = before_[word] + count_bits(chosen_[word] & below);
    list_until(place, fast);
    list_until(place + 1, one_on_gpu(use.tokens));
  }
  list_until(chosen.count, fast);
}

void ExpertLayers::count_copies(std::int64_t loads, std::int64_t copies) {
  if (copies != uncounted_copies_) count_uncounted();
  uncounted_copies_ = copies;
  uncounted_ += loads;
}

void ExpertLayers::count_uncounted() {
  const std::int64_t loads = std::exchange(uncounted_, 0);
  if (loads == 0) return;
  static_cast<void>(model_.copy(Stream::h2d, uncounted_copies_ * loads, experts_.bytes * loads, CopyMechanism::many));
}

void ExpertLayers::take_turn(const OnGpu& gpu, const Turn& turn) {
  pieces_.push_back({.gpu = gpu, .has_turn = true});
  turns_.push_back(turn);
}

void ExpertLayers::compute_on_cpu_in_turn(std::int64_t experts, Duration time) {
  pieces_.push_back({.has_turn = true});
  turns_.push_back({.on_cpu = experts, .cpu_time = time});
}

void ExpertLayers::call_cpu(CopySink& sink, std::int64_t experts, Duration time, bool sends) {
  const auto way = [&](Stream stream, Tag tag) {
    const Bytes bytes(experts_.hidden_bytes * activation().tokens());
    return Copy{.stream = stream,
                .bytes = bytes,
                .launch = cpu_.sync,
                .transfer = model_.copy(stream, 1, bytes, CopyMechanism::single).transfer,
                .tag = tag};
  };
  const Bytes read = experts_.bytes * experts * experts_.gpus;
  const Duration start = experts > 0 ? cpu_.start : Duration(0);
  if (calls_.full()) calls_.set_capacity(2 * calls_.capacity() + 1);
  calls_.push_back({.sends = sends,
                    .there = way(Stream::d2h, kThere),
                    .job = {.stream = Stream::cpu, .bytes = read, .launch = start, .transfer = time, .tag = kJob},
                    .back = way(Stream::h2d, kBack)});
  cpu_read_ += read;
  ++called_;
  flush(sink);
  if (sends) {
    sink.issue(calls_.back().there);
  } else if (on_the_way_ + 1 == calls_.size()) {
    sink.issue(calls_[on_the_way_++].job);  // what the call before has sent is there
  }
}

void ExpertLayers::at_layer_start(std::int32_t /*layer*/, std::int32_t /*sub_batch*/, CopySink& /*sink*/) {
  entered_ = false;
}

void ExpertLayers::at_copy_done(const Copy& copy, CopySink& sink) {
  switch (copy.tag) {
    case kThere:
      do {
        sink.issue(calls_[on_the_way_++].job);
      } while (on_the_way_ < calls_.size() && !calls_[on_the_way_].sends);
      break;
    case kJob:
      sink.issue(calls_[jobs_done_++].back);
      break;
    case kBack:
      calls_.pop_front();
      --on_the_way_;
      --jobs_done_;
      ++returned_;
      break;
    case kOut:
      going_out_ = false;
      break;
    default:
      ++arrived_;
      loaded(sink);
      flush(sink);
  }
}

void ExpertLayers::send_out(CopySink& sink, std::int64_t copies) {
  const CopyTime time = model_.copy(Stream::d2h, copies, experts_.bytes, CopyMechanism::many);
  going_out_ = true;
  sink.issue(
      {.stream = Stream::d2h, .bytes = experts_.bytes, .launch = time.launch, .transfer = time.transfer, .tag = kOut});
}

LayerWork ExpertLayers::work(std::int32_t layer, std::int32_t /*sub_batch*/, CopySink& sink) {
  const std::int32_t number = number_of_[static_cast<std::size_t>(layer)];
  if (number < 0) return {};
  if (!entered_) {
    entered_ = true;
    pieces_.clear();
    turns_.clear();
    next_ = 0;
    deferred_ = 0;
    in_turn_ = false;
    together_.reset();
    offered_ = false;
    gate(number, sink);
    flush(sink);
  }
  if (together_) {
    if (!std::exchange(offered_, true)) return {.kind = LayerWork::Kind::turns, .turns = &*together_};
    together_.reset();
    list_turns_first(number);
  }
  while (next_ < pieces_.size()) {
    if (in_turn_ && returned_ < called_) return {.kind = LayerWork::Kind::waits, .wait = Wait::experts};
    Piece& piece = pieces_[next_];
    if (piece.has_turn) {
      Turn& turn = turns_.front();
      if (turn.on_cpu > 0) {
        ++next_;
        in_turn_ = true;
        call_cpu(sink, turn.on_cpu, turn.cpu_time, true);
        turns_.pop_front();
        continue;
      }
      if (!std::exchange(turn.issued, true)) {
        piece.ticket = load(sink, 1, turn.copies, {}, turn.slower);
        flush(sink);
      }
    }
    if (going_out_) return {.kind = LayerWork::Kind::waits};
    if (piece.ticket > arrived_) return awaited(piece);
    std::int32_t alike = piece.alike;
    if (piece.has_turn) {
      Turn& turn = turns_.front();
      if (turn.out) {
        const std::int64_t copies = turn.copies;
        piece.has_turn = false;
        turns_.pop_front();
        send_out(sink, copies);
        return {.kind = LayerWork::Kind::waits};
      }
      turns_.pop_front();
    } else if (piece.ticket > 0) {
      alike = static_cast<std::int32_t>(std::min<std::int64_t>(alike, arrived_ - piece.ticket));
      ++piece.ticket;
    }
    gpu_busy_ += piece.gpu.time;
    if (--piece.alike < 0) ++next_;
    return {
        .kind = LayerWork::Kind::computes, .time = piece.gpu.time, .arithmetic = piece.gpu.arithmetic, .alike = alike};
  }
  if (returned_ + deferred_ < called_) return {.kind = LayerWork::Kind::waits, .wait = Wait::experts};
  leave(number, sink);
  flush(sink);
  return {};
}

void ExpertLayers::skip_alike(std::int32_t count) {
  Piece& piece = pieces_[next_];
  gpu_busy_ += piece.gpu.time * count;
  if (piece.ticket > 0) piece.ticket += count;
  piece.alike -= count;
  if (piece.alike < 0) ++next_;
}

LayerWork ExpertLayers::awaited(const Piece& piece) const {
  // The loads of other steps, if there are any before, arrive first.
  const bool is_next = piece.ticket == arrived_ + 1 && !piece.has_turn;
  return {.kind = LayerWork::Kind::waits,
          .time = piece.gpu.time,
          .arithmetic = piece.gpu.arithmetic,
          .alike = is_next ? piece.alike + 1 : 0};
}

void ExpertLayers::skip_rounds(std::int32_t count) {
  Piece& piece = pieces_[next_];
  arrived_ += count;
  piece.ticket += count;
  gpu_busy_ += piece.gpu.time * count;
  piece.alike -= count;
  if (piece.alike < 0) ++next_;
  NoCopies none;
  loaded(none);
  flush(none);
}

void ExpertLayers::skip_turns() {
  loads_ += together_->copies;
  arrived_ += together_->copies;
  count_copies(together_->copies, copies_together_);
  gpu_busy_ += together_->time;
  together_.reset();
  NoCopies none;
  loaded(none);
}

void ExpertLayers::list_turns(std::int32_t layer) {
  throw InvariantError("a policy does not list its turns of layer " + std::to_string(layer));
}

void ExpertLayers::list_turns_first(std::int32_t layer) {
  pieces_.swap(pieces_behind_);
  turns_.swap(turns_behind_);
  list_turns(layer);
  pieces_.insert(pieces_.end(), pieces_behind_.begin(), pieces_behind_.end());
  turns_.insert(turns_.end(), turns_behind_.begin(), turns_behind_.end());
  pieces_behind_.clear();
  turns_behind_.clear();
}

void ExpertLayers::copied(const Copy& copy, SimTime started, SimTime ended) {
  if (copy.stream == Stream::cpu) cpu_busy_ += ended - started;
}

Figures ExpertLayers::figures() const {
  Figures figures;
  const double all = real(counts_.resident + counts_.loaded + counts_.on_cpu);
  if (all > 0.0) {
    figures["expert_hit_fraction"] = real(counts_.resident) / all;
    figures["expert_load_fraction"] = real(counts_.loaded) / all;
    figures["expert_cpu_fraction"] = real(counts_.on_cpu) / all;
    figures["late_prefetch_fraction"] = real(counts_.late) / all;
  }
  figures["unused_prefetches"] = real(counts_.unused);
  figures["demanded_expert_bytes"] = real(counts_.demanded.count());
  figures["prefetched_expert_bytes"] = real(counts_.prefetched.count());
  figures["cpu_expert_bytes"] = real(cpu_read_.count());
  figures["cpu_expert_seconds"] = to_seconds(cpu_busy_);
  figures["gpu_expert_seconds"] = to_seconds(gpu_busy_);
  figures["gpu_expert_layer_seconds"] = to_seconds(around_experts_);
  figures["gpu_dense_layer_seconds"] = to_seconds(in_dense_layers_);
  if (attending_ > Duration{}) figures["gpu_attention_seconds"] = to_seconds(attending_);
  return figures;
}

}  // namespace spillway
