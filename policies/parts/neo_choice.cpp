#include "policies/parts/neo_choice.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

namespace spillway {
namespace {

/// A batch may lose prompts for the host only while it keeps so many tokens: fewer do not fill the GPU.
constexpr Tokens kEnoughTokens{128};

class Chooser {
 public:
  Chooser(const NeoCandidates& candidates, NeoRules rules, const NeoPredictor& predictor, double launch,
          NeoChoice& choice)
      : in_(candidates), rules_(rules), predict_(predictor), launch_(launch), out_(choice) {}

  void run() {
    start();
    if (rules_ == NeoRules::no_overlap) return put_all_in_one();
    if (rules_ == NeoRules::fastdecode || rules_ == NeoRules::symmetric) return run_all();
    const Prompts gpu_only = drop_prompts(all_, Tokens(0), [](const Prompts&) { return true; });
    place_decodes();
    const Prompts with_cpu = drop_prompts(all_, Tokens(batches_[0].on_cpu), [this](const Prompts& left) {
      Batch first = batches_[0];
      shrink(first, left);
      return slack_of_0(first) >= 0.0 && slack_of_1(first) >= 0.0;
    });
    shrink(batches_[0], with_cpu);
    compare(gpu_only, with_cpu);
  }

 private:
  /// The prompts of batch 0 whose KV goes to the host: the first ones, and what all prompts of the batch come to.
  struct Prompts {
    std::size_t to_host = 0;
    Tokens tokens{};    // of the whole batch but its decodes on the CPU
    double time = 0.0;  // of their attention
  };
  struct Batch {
    Tokens tokens{};
    std::int64_t on_cpu = 0;
    Tokens cpu_context{};
    double linear = 0.0;
    double cpu = 0.0;  // attention there, without the launch
    double prompts = 0.0;
  };

  void start() {
    out_.pipelined = false;
    out_.sub_batch.assign(in_.cpu_decodes.size(), NeoChoice::kRests);
    out_.slack[0] = out_.slack[1] = 0.0;
    out_.both = {};
    all_.to_host = in_.cpu_prompts.size();
    all_.tokens = Tokens(in_.gpu_decodes);
    for (const auto& prompts : {in_.gpu_prompts, in_.cpu_prompts}) {
      for (const Tokens length : prompts) {
        all_.tokens += length;
        all_.time += predict_.prompt(length);
      }
    }
    decodes_ = predict_.gpu_decodes(in_.gpu_context);
    batches_ = {};
    shrink(batches_[0], all_);
  }

  /// `batch`, which is batch 0, keeps these prompts.
  void shrink(Batch& batch, const Prompts& prompts) const {
    batch.tokens = prompts.tokens + Tokens(batch.on_cpu);
    batch.linear = predict_.linear(batch.tokens);
    batch.prompts = prompts.time;
  }

  [[nodiscard]] bool paper() const { return rules_ == NeoRules::paper; }
  [[nodiscard]] double launch() const { return paper() ? 0.0 : launch_; }
  /// Prompts' attention, which the paper's formulas leave out.
  [[nodiscard]] double prompts_of(double time) const { return paper() ? 0.0 : time; }
  [[nodiscard]] double slack_of_0(const Batch& first) const {
    return batches_[1].linear + prompts_of(first.prompts) + decodes_ - (first.cpu + launch());
  }
  [[nodiscard]] double slack_of_1(const Batch& first) const { return first.linear - (batches_[1].cpu + launch()); }

  /// Prompts for the host leave from the end while the batch, with `others` on the CPU, has enough tokens without them,
  /// and `may` agrees.
  template <class May>
  Prompts drop_prompts(Prompts prompts, Tokens others, May may) const {
    while (prompts.to_host > 0) {
      const Tokens length = in_.cpu_prompts[prompts.to_host - 1];
      const Prompts left{prompts.to_host - 1, prompts.tokens - length, prompts.time - predict_.prompt(length)};
      if (left.tokens + others < kEnoughTokens || !may(left)) break;
      prompts = left;
    }
    return prompts;
  }

  void add(Batch& batch, Tokens context) const {
    ++batch.on_cpu;
    batch.tokens += Tokens(1);
    batch.cpu_context += context;
    batch.linear = predict_.linear(batch.tokens);
    batch.cpu = predict_.cpu_decodes(batch.on_cpu, batch.cpu_context);
  }
  void take(std::size_t decode, std::size_t to) {
    add(batches_[to], in_.cpu_decodes[decode]);
    out_.sub_batch[decode] = static_cast<std::int8_t>(to);
  }
  /// It joins if neither sub-batch lacks time for the CPU then.
  bool try_to_take(std::size_t decode, std::size_t to) {
    const Batch before = batches_[to];
    add(batches_[to], in_.cpu_decodes[decode]);
    const std::array<double, 2> slack{slack_of_0(batches_[0]), slack_of_1(batches_[0])};
    if (slack[0] < 0.0 || slack[1] < 0.0) {
      batches_[to] = before;
      return false;
    }
    slack_ = slack;
    out_.sub_batch[decode] = static_cast<std::int8_t>(to);
    return true;
  }
  [[nodiscard]] std::size_t with_more_slack() const { return slack_[1] > slack_[0] ? 1 : 0; }

  void place_decodes() {
    std::int64_t left = in_.budget;
    std::size_t next = 1;
    Tokens refused{};  // the shortest; 0: none
    for (std::size_t i = 0; i < in_.cpu_decodes.size() && left > 0; ++i) {
      if (paper()) {
        left -= try_to_take(i, 1) || try_to_take(i, 0) ? 1 : 0;
        continue;
      }
      if (refused > Tokens(0) && in_.cpu_decodes[i] >= refused) continue;
      if (try_to_take(i, next)) {
        --left;
        next = with_more_slack();
      } else {
        refused = in_.cpu_decodes[i];
      }
    }
  }

  /// The larger predicted rate wins; equal rates: the GPU alone.
  void compare(const Prompts& gpu_only, const Prompts& with_cpu) {
    const auto sequences = [this](const Prompts& prompts) {
      return std::ssize(in_.gpu_prompts) + static_cast<std::int64_t>(prompts.to_host) + in_.gpu_decodes;
    };
    out_.gpu_only = {sequences(gpu_only), predict_.linear(gpu_only.tokens) + prompts_of(gpu_only.time) + decodes_};
    out_.slack[0] = slack_of_0(batches_[0]);
    out_.slack[1] = slack_of_1(batches_[0]);
    // Both inequalities hold, so the GPU takes longer in both stages.
    out_.both = {sequences(with_cpu) + batches_[0].on_cpu + batches_[1].on_cpu,
                 batches_[0].linear + batches_[1].linear + prompts_of(batches_[0].prompts) + decodes_};
    const auto faster = [](const NeoChoice::Mode& a, const NeoChoice::Mode& b) {
      return static_cast<double>(a.sequences) * b.time > static_cast<double>(b.sequences) * a.time;
    };
    out_.pipelined = batches_[1].on_cpu > 0 && faster(out_.both, out_.gpu_only);
    out_.cpu_prompts = (out_.pipelined ? with_cpu : gpu_only).to_host;
    out_.predicted = (out_.pipelined ? out_.both : out_.gpu_only).time;
    if (!out_.pipelined) std::ranges::fill(out_.sub_batch, NeoChoice::kRests);
  }

  /// All of the queue that the budget allows, in two sub-batches.
  void run_all() {
    std::size_t next = 1;
    const std::size_t count =
        std::min(in_.cpu_decodes.size(), static_cast<std::size_t>(std::max<std::int64_t>(in_.budget, 0)));
    for (std::size_t i = 0; i < count; ++i) {
      take(i, next);
      slack_ = {slack_of_0(batches_[0]), slack_of_1(batches_[0])};
      next = rules_ == NeoRules::fastdecode ? with_more_slack()
                                            : (batches_[1].cpu_context < batches_[0].cpu_context ? 1 : 0);
    }
    finish_all(
        std::max(batches_[0].linear, batches_[1].on_cpu > 0 ? batches_[1].cpu + launch_ : 0.0) +
        std::max(batches_[1].linear + all_.time + decodes_, batches_[0].on_cpu > 0 ? batches_[0].cpu + launch_ : 0.0));
  }
  void put_all_in_one() {
    for (std::size_t i = 0; i < in_.cpu_decodes.size() && static_cast<std::int64_t>(i) < in_.budget; ++i) take(i, 0);
    const double cpu = batches_[0].on_cpu > 0 ? batches_[0].cpu + launch_ : 0.0;
    finish_all(batches_[0].linear + all_.time + decodes_ + cpu);
  }
  void finish_all(double time) {
    const std::int64_t on_cpu = batches_[0].on_cpu + batches_[1].on_cpu;
    out_.cpu_prompts = in_.cpu_prompts.size();
    out_.pipelined = on_cpu > 0;
    out_.predicted = time;
    out_.slack[0] = slack_of_0(batches_[0]);
    out_.slack[1] = slack_of_1(batches_[0]);
  }

  const NeoCandidates& in_;
  NeoRules rules_;
  const NeoPredictor& predict_;
  double launch_;
  NeoChoice& out_;
  Prompts all_{};
  double decodes_ = 0.0;  // attention of the GPU's decodes
  std::array<Batch, 2> batches_{};
  std::array<double, 2> slack_{};
};

}  // namespace

void neo_choose(const NeoCandidates& candidates, NeoRules rules, const NeoPredictor& predictor, double launch,
                NeoChoice& choice) {
  Chooser(candidates, rules, predictor, launch, choice).run();
}

}  // namespace spillway
