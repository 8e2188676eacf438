// VTC: fair serving by virtual token counters, on S-LoRA's engine.
//
// Source: Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024, Algorithm 2, and VTC-artifact
// (192c2e2), slora/server/router/{vtc_req_queue,req_queue,manager}.py. A client pays for its prompts and for every
// token that it gets. The client that has paid least comes next. A batch decodes ten times, then new prompts have an
// iteration to themselves: as many as surely fit to their last token. So no request is preempted. Over the memory of
// another policy each request reserves its longest answer instead.
//
// Cost: O(running + log clients) per request that arrives, is admitted or does not fit.
#include <optional>
#include <vector>

#include "policies/parts/admission.hpp"
#include "policies/parts/fcfs_queue.hpp"
#include "policies/parts/refusals.hpp"
#include "policies/parts/token_counters.hpp"
#include "policies/parts/token_pool.hpp"
#include "sim/api/registry.hpp"

namespace spillway {
namespace {

class VtcScheduler final : public Scheduler {
 public:
  /// Without a `pool`, which plans the memory of all running requests, each reserves what it may ever need.
  VtcScheduler(const Settings& settings, TokenPool* pool)
      : pool_(pool),
        clients_(Prices{settings.get<std::string>("policy.cost") == "profile"},
                 settings.get<std::string>("policy.lift") == "last-left"),
        batch_tokens_(settings.get<std::int64_t>("engine.max_num_batched_tokens")),
        max_num_seqs_(settings.get<std::int64_t>("engine.max_num_seqs")),
        decodes_between_(settings.get<std::int64_t>("policy.decodes_between_prompts")),
        fair_(settings.get<std::string>("policy.order") == "vtc"),
        double_charge_(settings.get<bool>("policy.double_charge")) {}

  void arrived(const RequestView& request) override {
    remember(request);
    if (fair_) {
      clients_.arrived(request);
    } else {
      queue_.push_back(request.id);
    }
  }

  /// A client that arrives during a decode step is lifted to the counter of the others before that step.
  void iteration_ended() override {
    if (!decoding_) return;
    clients_.decoded();
    if (pool_ != nullptr) pool_->decoded();
    charge_again_ = fair_ && double_charge_;
  }

  void ended(RequestId id, Outcome outcome) override {
    const Known& request = known_[id.slot];
    if (!request.runs) {
      if (fair_) clients_.dropped(request.client);
      return;
    }
    if (charge_again_ && outcome == Outcome::finished) {
      clients_.pay_again();
      charge_again_ = false;
    }
    if (fair_) clients_.left(id, request.client);
    if (pool_ != nullptr) pool_->left(id);
  }

  void decide(const View& view, const KvSpace& kv, Decision& decision) override {
    decoding_ = charge_again_ = false;
    const bool due = view.batch().running == 0 || decode_steps_ >= decodes_between_;
    if (due && build_mini_batch(view, kv, decision)) {
      decode_steps_ = 0;
      return decision.decodes(0);
    }
    decision.decodes(view.batch().decoding);
    decoding_ = view.batch().decoding > 0;
    ++decode_steps_;
  }

 private:
  bool build_mini_batch(const View& view, const KvSpace& kv, Decision& decision) {
    Tokens tokens;
    bool any = false;
    for (RequestId head = next(view); head.valid(); head = next(view)) {
      const RequestView request = view.request(head);
      const auto ask = [&] { return kv.admits(request, longest(request)); };
      Fit fit = request.remaining() > batch_tokens_ ? Fit::never : ask();
      if (fit == Fit::never) {
        pop(request);
        decision.reject(head);
        continue;
      }
      if (const auto why = obstacle(view, tokens + request.remaining())) {
        decision.blocked(*why);
        break;
      }
      fit = fetch_and_ask(head, longest(request), fit, decision, ask);
      if (fit != Fit::now) {
        wait_for_memory(fit, decision);
        break;
      }
      pop(request);
      join(view, request, decision);
      tokens += request.remaining();
      any = true;
    }
    if (pool_ != nullptr) pool_->prefilled();
    return any;
  }

  [[nodiscard]] std::optional<Blocked> obstacle(const View& view, Tokens tokens) const {
    if (view.batch().running >= max_num_seqs_) return Blocked::batch_size;
    if (tokens > batch_tokens_) return Blocked::token_budget;
    return std::nullopt;
  }
  static Tokens longest(const RequestView& request) { return request.input + request.max_new_tokens; }

  void join(const View& view, const RequestView& request, Decision& decision) {
    decision.join(request.id);
    if (pool_ == nullptr) decision.reserve(request.id, longest(request));
    decision.chunk(request.id, view.request(request.id).remaining());
    known_[request.id.slot].runs = true;
    if (fair_) clients_.joined(request);
    if (pool_ != nullptr) pool_->joined(request);
  }

  [[nodiscard]] RequestId next(const View& view) { return fair_ ? clients_.next(view) : queue_.head(view); }
  void pop(const RequestView& request) {
    if (fair_) {
      clients_.pop(request.client);
    } else {
      queue_.pop_front();
    }
  }
  void remember(const RequestView& request) {
    if (known_.size() <= request.id.slot) known_.resize(request.id.slot + 1);
    known_[request.id.slot] = Known{request.client, false};
  }

  /// Facts of a live request, which the View no longer shows once the request has ended.
  struct Known {
    std::uint32_t client = 0;
    bool runs = false;
  };

  TokenPool* const pool_;
  TokenCounters clients_;
  FcfsQueue queue_;  // policy.order=fcfs
  const Tokens batch_tokens_;
  const std::int64_t max_num_seqs_;
  const std::int64_t decodes_between_;
  const bool fair_;
  const bool double_charge_;
  std::vector<Known> known_;       // live requests, by slot
  std::int64_t decode_steps_ = 0;  // since the last mini-batch
  bool decoding_ = false;          // the last iteration was a decode step
  bool charge_again_ = false;      // a request that finishes in it makes everyone pay again
};

std::vector<Parameter> parameters() {
  return {
      {.name = "policy.order",
       .type = ParameterType::choice,
       .unit = "-",
       .default_value = "vtc",
       .choices = {"vtc", "fcfs"},
       .doc = "Which prompt comes next. vtc: a prompt of the client that has paid least; fcfs: the prompt that arrived "
              "first (S-LoRA's own scheduler, with the same admission)",
       .source = "VTC-artifact, vtc_req_queue.py and req_queue.py"},
      {.name = "policy.cost",
       .type = ParameterType::choice,
       .unit = "-",
       .default_value = "linear",
       .choices = {"linear", "profile"},
       .doc = "Price of tokens. linear: 1 per input and 2 per output token; profile: the increase of "
              "h(p,q) = 0.21001891 p + 0.10075395 q + 0.0039868 p q + 0.00324733 q^2 + 1.14601454",
       .source = "VTC, section 5 (weights 1 and 2) and VTC-artifact's cost_func=profile"},
      {.name = "policy.lift",
       .type = ParameterType::choice,
       .unit = "-",
       .default_value = "waiting",
       .choices = {"waiting", "last-left"},
       .doc = "Lift of the counter of a returning client to at least the smallest counter of the waiting clients. What "
              "happens when no client waits: waiting: no lift; last-left: to the counter of the client whose queue "
              "became empty last",
       .source = "waiting: VTC-artifact's code; last-left: VTC, Algorithm 2"},
      {.name = "policy.double_charge",
       .type = ParameterType::boolean,
       .unit = "-",
       .default_value = "false",
       .doc = "true: all clients in a decode step pay twice if a request finishes in it, a quirk of the code",
       .source = "VTC-artifact's code; the paper charges once"},
      {.name = "policy.decodes_between_prompts",
       .type = ParameterType::integer,
       .unit = "decode steps",
       .default_value = "10",
       .minimum = 0,
       .maximum = 1e6,
       .doc = "Decode steps after a mini-batch of prompts before the next one is tried",
       .source = "slora/server/router/manager.py, max_wait_tokens = 10"}};
}

std::vector<Problem> check(const Settings& settings) {
  std::vector<Problem> problems;
  refuse_swap(settings, "policy vtc never preempts, so it cannot swap", "leave engine.preemption at recompute",
              problems);
  refuse_chunked_prefill(settings, "vtc", problems);
  return problems;
}

PolicyInfo info() {
  PolicyInfo info;
  info.name = "vtc";
  info.summary = "VTC on S-LoRA: the client that was served least comes next; admission by worst-case memory";
  info.source = "Sheng et al., OSDI 2024, Algorithm 2; VTC-artifact (192c2e2), slora/server/router";
  info.limits =
      "All clients have the same weight. Adapters cost neither time nor memory. Fairness needs a workload with several "
      "clients (workload.clients); with one client the order is first come, first served. Spillway rejects a prompt "
      "that can never be admitted; the code waits for ever. S-LoRA admits up to max(pool / 6, longest request) prompt "
      "tokens at once; Spillway uses a fixed number, engine.max_num_batched_tokens.";
  info.parameters = parameters();
  info.preempts = false;
  info.takes_kv_over = false;
  info.default_engine = [](const Settings&) { return "s-lora"; };
  info.engine_defaults = [](const Settings&) {
    return std::map<std::string, std::string>{{"engine.chunked_prefill", "false"},
                                              {"engine.max_num_seqs", "1000"},
                                              {"engine.max_num_batched_tokens", "16384"},
                                              {"memory.block_tokens", "1"}};
  };
  info.check = check;
  info.make = [](const PolicyContext& context) {
    auto pool = std::make_unique<TokenPool>(context.view);
    auto scheduler = std::make_unique<VtcScheduler>(context.settings, pool.get());
    return Policy{std::move(scheduler), std::move(pool)};
  };
  info.make_scheduler = [](const PolicyContext& context) {
    return std::make_unique<VtcScheduler>(context.settings, nullptr);
  };
  return info;
}

const RegisterPolicy kRegistered(info());

}  // namespace
}  // namespace spillway
