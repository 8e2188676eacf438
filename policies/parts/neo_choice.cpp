#include "policies/parts/neo_choice.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace spillway {
namespace {

/// A batch may lose prompts for the host only while it keeps so many tokens: fewer do not fill the GPU.
constexpr Tokens kEnoughTokens{128};

/// The rules for one kind of predictor: the greedy step asks it twice for each decode, so its calls are to be inline.
template <class Predictor>
class Chooser {
 public:
  Chooser(const NeoCandidates& candidates, NeoRules rules, const Predictor& predictor, double launch, NeoChoice& choice)
      : in_(candidates), rules_(rules), predict_(predictor), launch_(launch), out_(choice) {}

  void run() {
    start();
    if (rules_ == NeoRules::no_overlap) return put_all_in_one();
    if (rules_ == NeoRules::fastdecode || rules_ == NeoRules::symmetric) return run_all();
    const Prompts gpu_only = drop_prompts(all_, Tokens(0), [](const Prompts&) { return true; });
    paper() ? place_decodes_as_printed() : place_decodes();
    const Prompts with_cpu = drop_prompts(all_, Tokens(batches_[0].on_cpu), [this](const Prompts& left) {
      Batch first = batches_[0];
      shrink(first, left);
      return slack_of_0(first, batches_[1]) >= 0.0 && slack_of_1(first, batches_[1]) >= 0.0;
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
    out_.slack = {};
    out_.both = {};
    all_.to_host = in_.cpu_prompts.size();
    all_.tokens = Tokens(in_.gpu_decodes);
    for (const auto& prompts : {in_.gpu_prompts, in_.cpu_prompts}) {
      for (const NeoPrompt& prompt : prompts) {
        all_.tokens += prompt.computed();
        all_.time += time_of(prompt);
      }
    }
    decodes_ = predict_.gpu_decodes(in_.gpu_context);
    batches_ = {};
    shrink(batches_[0], all_);
  }

  /// The attention of a prompt. f(0) = 0.
  [[nodiscard]] double time_of(const NeoPrompt& prompt) const {
    return predict_.prompt(prompt.length) - predict_.prompt(prompt.cached);
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
  [[nodiscard]] double slack_of_0(const Batch& first, const Batch& second) const {
    return second.linear + prompts_of(first.prompts) + decodes_ - (first.cpu + launch());
  }
  [[nodiscard]] double slack_of_1(const Batch& first, const Batch& second) const {
    return first.linear - (second.cpu + launch());
  }
  [[nodiscard]] std::array<double, 2> slacks() const {
    return {slack_of_0(batches_[0], batches_[1]), slack_of_1(batches_[0], batches_[1])};
  }

  /// Prompts for the host leave from the end while the batch, with `others` on the CPU, has enough tokens without them,
  /// and `may` agrees.
  template <class May>
  Prompts drop_prompts(Prompts prompts, Tokens others, May may) const {
    while (prompts.to_host > 0) {
      const NeoPrompt& last = in_.cpu_prompts[prompts.to_host - 1];
      const Prompts left{prompts.to_host - 1, prompts.tokens - last.computed(), prompts.time - time_of(last)};
      if (left.tokens + others < kEnoughTokens || !may(left)) break;
      prompts = left;
    }
    return prompts;
  }

  [[nodiscard]] Batch with(const Batch& batch, Tokens context) const {
    Batch more = batch;
    ++more.on_cpu;
    more.tokens += Tokens(1);
    more.cpu_context += context;
    more.linear = predict_.linear(more.tokens);
    more.cpu = predict_.cpu_decodes(more.on_cpu, more.cpu_context);
    return more;
  }
  /// The sub-batches while decodes join them. As a local variable of a loop it stays in registers.
  struct Growing {
    Batch first{};
    Batch second{};
    double slack_0 = 0.0;
    double slack_1 = 0.0;
    [[nodiscard]] bool second_has_more_slack() const { return slack_1 > slack_0; }
  };
  enum class Step : std::uint8_t { code, paper, all };
  /// A decode joins, in a greedy step only if neither sub-batch lacks time for the CPU then. One call for each
  /// combination, so that each is inline.
  template <Step Kind, bool Second>
  [[nodiscard]] bool join(Growing& both, Tokens context) const {
    const Batch more = with(Second ? both.second : both.first, context);
    const double slack_0 = Second ? slack_of_0(both.first, more) : slack_of_0(more, both.second);
    const double slack_1 = Second ? slack_of_1(both.first, more) : slack_of_1(more, both.second);
    if (Kind != Step::all && (slack_0 < 0.0 || slack_1 < 0.0)) return false;
    (Second ? both.second : both.first) = more;
    both.slack_0 = slack_0;
    both.slack_1 = slack_1;
    return true;
  }
  void keep(const Growing& both) { batches_ = {both.first, both.second}; }

  void place_decodes() {
    Growing both{batches_[0], batches_[1]};
    std::int64_t left = in_.budget;
    bool second = true;
    Tokens refused{};  // the shortest; 0: none
    for (std::size_t i = 0; i < in_.cpu_decodes.size() && left > 0; ++i) {
      const Tokens context = in_.cpu_decodes[i];
      if (refused > Tokens(0) && context >= refused) continue;
      // A branch, which is predicted: the next decode need not wait for this one's slack.
      if (second ? join<Step::code, true>(both, context) : join<Step::code, false>(both, context)) {
        out_.sub_batch[i] = second ? 1 : 0;
        second = both.second_has_more_slack();
        --left;
      } else {
        refused = context;
      }
    }
    keep(both);
  }
  void place_decodes_as_printed() {
    Growing both{batches_[0], batches_[1]};
    std::int64_t left = in_.budget;
    for (std::size_t i = 0; i < in_.cpu_decodes.size() && left > 0; ++i) {
      const Tokens context = in_.cpu_decodes[i];
      const bool second = join<Step::paper, true>(both, context);
      if (!second && !join<Step::paper, false>(both, context)) continue;
      out_.sub_batch[i] = second ? 1 : 0;
      --left;
    }
    keep(both);
  }

  /// The larger predicted rate wins; equal rates: the GPU alone.
  void compare(const Prompts& gpu_only, const Prompts& with_cpu) {
    const auto sequences = [this](const Prompts& prompts) {
      return std::ssize(in_.gpu_prompts) + static_cast<std::int64_t>(prompts.to_host) + in_.gpu_decodes;
    };
    out_.gpu_only = {sequences(gpu_only), predict_.linear(gpu_only.tokens) + prompts_of(gpu_only.time) + decodes_};
    out_.slack = slacks();
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

  /// Decodes of the queue that the budget allows.
  [[nodiscard]] std::size_t allowed() const {
    return std::min(in_.cpu_decodes.size(), static_cast<std::size_t>(std::max<std::int64_t>(in_.budget, 0)));
  }
  /// All of them, in two sub-batches.
  void run_all() {
    Growing both{batches_[0], batches_[1]};
    bool second = true;
    for (std::size_t i = 0; i < allowed(); ++i) {
      const Tokens context = in_.cpu_decodes[i];
      static_cast<void>(second ? join<Step::all, true>(both, context) : join<Step::all, false>(both, context));
      out_.sub_batch[i] = second ? 1 : 0;
      second = rules_ == NeoRules::fastdecode ? both.second_has_more_slack()
                                              : both.second.cpu_context < both.first.cpu_context;
    }
    keep(both);
    finish_all(
        std::max(batches_[0].linear, batches_[1].on_cpu > 0 ? batches_[1].cpu + launch_ : 0.0) +
        std::max(batches_[1].linear + all_.time + decodes_, batches_[0].on_cpu > 0 ? batches_[0].cpu + launch_ : 0.0));
  }
  void put_all_in_one() {
    for (std::size_t i = 0; i < allowed(); ++i) {
      batches_[0] = with(batches_[0], in_.cpu_decodes[i]);
      out_.sub_batch[i] = 0;
    }
    const double cpu = batches_[0].on_cpu > 0 ? batches_[0].cpu + launch_ : 0.0;
    finish_all(batches_[0].linear + all_.time + decodes_ + cpu);
  }
  void finish_all(double time) {
    const std::int64_t on_cpu = batches_[0].on_cpu + batches_[1].on_cpu;
    out_.cpu_prompts = in_.cpu_prompts.size();
    out_.pipelined = on_cpu > 0;
    out_.predicted = time;
    out_.slack = slacks();
  }

  const NeoCandidates& in_;
  NeoRules rules_;
  const Predictor& predict_;
  double launch_;
  NeoChoice& out_;
  Prompts all_{};
  double decodes_ = 0.0;  // attention of the GPU's decodes
  std::array<Batch, 2> batches_{};
};

}  // namespace

void neo_choose(const NeoCandidates& candidates, NeoRules rules, const NeoPredictor& predictor, double launch,
                NeoChoice& choice) {
  Chooser(candidates, rules, predictor, launch, choice).run();
}

void neo_choose(const NeoCandidates& candidates, NeoRules rules, const NeoTables& predictor, double launch,
                NeoChoice& choice) {
  Chooser(candidates, rules, predictor, launch, choice).run();
}

}  // namespace spillway
