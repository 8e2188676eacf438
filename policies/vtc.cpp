// VTC: fair serving by virtual token counters, on S-LoRA's engine.
//
// Source: Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024, Algorithm 2, and VTC-artifact
// (192c2e2), slora/server/router/{vtc_req_queue,req_queue,manager}.py. A client pays for its prompts and for every
// token that it is given; the client that has paid least comes next. A batch decodes ten times, then new prompts have
// an iteration to themselves, as many as are sure to fit to their last token; so nothing is ever preempted.
//
// Cost: O(clients + running) per request that is admitted or does not fit.
#include <algorithm>
#include <deque>
#include <optional>
#include <unordered_map>
#include <vector>

#include "policies/parts/fcfs_queue.hpp"
#include "sim/api/registry.hpp"

namespace spillway {
namespace {

/// S-LoRA's token pool: a request may join when the worst case of all that run still fits. Sorted by what is left to
/// generate, r_1 >= r_2 >= ..., the pool is fullest when request i ends: it then holds what the first i have now, and i
/// times r_i more. Memory counts in tokens; with larger blocks every request may waste all but one token of its last.
///
/// The scheduler tells it who runs and when all of them have taken a token. O(running) per call.
class TokenPool final : public OffloadPolicy {
 public:
  explicit TokenPool(const View& view) : view_(view) {}

  [[nodiscard]] Fit admits(const RequestView& request, Tokens /*upto*/) const override {
    const std::int64_t pool = view_.tier(Tier::gpu).total.count() * view_.block_tokens().count();
    const Running fresh = running(request);
    if (fresh.has + fresh.left >= pool) return Fit::never;
    return worst_case(fresh) < pool ? Fit::now : Fit::later;
  }
  [[nodiscard]] Fit grows(const RequestView&, Tokens) const override { return Fit::now; }
  [[nodiscard]] Fit decodes(std::int64_t) const override { return Fit::now; }
  [[nodiscard]] Fit resumes(const RequestView&) const override { return Fit::never; }
  [[nodiscard]] Leave preempts(const RequestView&) const override { return Leave::preempt_recompute; }

  void joined(const RequestView& request) {
    fresh_.push_back(running(request));
    insert(fresh_.back());
  }
  /// The mini-batch is complete. Its iteration gives every request its first token, which the code counts as still to
  /// come only while it builds the mini-batch.
  void prefilled() {
    for (Running request : fresh_) {
      left(request.id);
      --request.left;
      insert(request);
    }
    fresh_.clear();
  }
  void decoded() { ++steps_; }
  void left(RequestId id) {
    std::erase_if(running_, [&](const Running& request) { return request.id == id; });
  }

 private:
  /// Relative to the decode steps so far, in which every running request takes part: now it has `has` + steps tokens
  /// and `left` - steps to go.
  struct Running {
    RequestId id;
    std::int64_t has = 0;
    std::int64_t left = 0;
  };

  [[nodiscard]] Running running(const RequestView& request) const {
    const std::int64_t wasted = view_.block_tokens().count() - 1;
    return {request.id, request.input.count() + 1 + wasted - steps_, request.max_new_tokens.count() - 1 + steps_};
  }
  void insert(const Running& request) {
    const auto after =
        std::find_if(running_.begin(), running_.end(), [&](const Running& other) { return other.left < request.left; });
    running_.insert(after, request);
  }
  /// Tokens in the pool when it is fullest, were `fresh` to join.
  [[nodiscard]] std::int64_t worst_case(const Running& fresh) const {
    std::int64_t most = 0;
    std::int64_t has = 0;
    std::int64_t rank = 0;
    const auto take = [&](const Running& request) {
      has += request.has + steps_;
      most = std::max(most, (request.left - steps_) * ++rank + has);
    };
    bool taken = false;
    for (const Running& request : running_) {
      if (!taken && request.left < fresh.left) {
        take(fresh);
        taken = true;
      }
      take(request);
    }
    if (!taken) take(fresh);
    return most;
  }

  const View& view_;
  std::vector<Running> running_;  // by `left`, the longest first
  std::vector<Running> fresh_;    // the mini-batch that is being built
  std::int64_t steps_ = 0;
};

/// What a client pays for a prompt of p tokens, and for the q-th token of its answer.
struct Prices {
  bool profile = false;  // h(p, q), fitted to the time that a request takes, instead of 1 and 2

  [[nodiscard]] double prompt(std::int64_t p) const { return profile ? h(p, 0) : static_cast<double>(p); }
  [[nodiscard]] double token(std::int64_t p, std::int64_t q) const { return profile ? h(p, q) - h(p, q - 1) : 2.0; }
  static double h(std::int64_t input_tokens, std::int64_t output_tokens) {
    const auto p = static_cast<double>(input_tokens);
    const auto q = static_cast<double>(output_tokens);
    return 0.21001891 * p + 0.10075395 * q + 0.0039868 * p * q + 0.00324733 * q * q + 1.14601454;
  }
};

/// The clients, in the order in which they were first seen: who waits, and what each has paid.
class Clients {
 public:
  explicit Clients(const Settings& settings)
      : prices_{settings.get<std::string>("policy.cost") == "profile"},
        lifts_to_last_left_(settings.get<std::string>("policy.lift") == "last-left") {}

  void arrived(const View& view, const RequestView& request) {
    const std::size_t c = index(request.client);
    const bool was_empty = !waits(c, view);
    clients_[c].waiting.push_back(request.id);
    if (was_empty) lift(c, view);
  }
  /// The first request of the client that waits and has paid least, the one first seen among equals; or kNoRequest.
  [[nodiscard]] RequestId next(const View& view) {
    std::size_t best = clients_.size();
    for (std::size_t c = 0; c < clients_.size(); ++c) {
      if (waits(c, view) && (best == clients_.size() || counter(c) < counter(best))) best = c;
    }
    return best == clients_.size() ? kNoRequest : clients_[best].waiting.front();
  }
  /// The first request of a client leaves its queue.
  void pop(std::uint32_t client) {
    const std::size_t c = index(client);
    clients_[c].waiting.pop_front();
    if (clients_[c].waiting.empty()) last_left_ = c;
  }
  void joined(const RequestView& request) {
    Client& client = settled(index(request.client));
    client.counter += prices_.prompt(request.input.count());
    // The prompt's iteration gives its first token, and the first decode step the second.
    client.running.push_back({request.id, request.input.count(), steps_ - 1});
  }
  void left(RequestId id, std::uint32_t client) {
    std::erase_if(settled(index(client)).running, [&](const Running& request) { return request.id == id; });
  }
  /// Everyone who runs has taken a token and owes for it. O(1): counters are settled when they are looked at.
  void decoded() { ++steps_; }
  /// Everyone who runs pays once more for the last step.
  void pay_again() {
    for (std::size_t c = 0; c < clients_.size(); ++c) settled(c).counter += step_price(clients_[c], steps_);
  }

 private:
  struct Running {
    RequestId id;
    std::int64_t input = 0;
    std::int64_t first_step = 0;  // it has steps - first_step tokens
  };
  struct Client {
    std::deque<RequestId> waiting;
    std::vector<Running> running;
    double counter = 0.0;      // what it has paid up to ...
    std::int64_t settled = 0;  // ... this decode step
  };

  std::size_t index(std::uint32_t name) {
    const auto [at, fresh] = by_name_.try_emplace(name, clients_.size());
    if (fresh) clients_.emplace_back();
    return at->second;
  }
  /// Forgets requests whose clients gave up.
  [[nodiscard]] bool waits(std::size_t c, const View& view) {
    std::deque<RequestId>& waiting = clients_[c].waiting;
    while (!waiting.empty() && !view.alive(waiting.front())) {
      waiting.pop_front();
      if (waiting.empty()) last_left_ = c;
    }
    return !waiting.empty();
  }
  [[nodiscard]] double step_price(const Client& client, std::int64_t step) const {
    if (!prices_.profile) return prices_.token(0, 1) * static_cast<double>(client.running.size());
    double price = 0.0;
    for (const Running& request : client.running) price += prices_.token(request.input, step - request.first_step);
    return price;
  }
  Client& settled(std::size_t c) {
    Client& client = clients_[c];
    if (!prices_.profile) {
      client.counter += step_price(client, steps_) * static_cast<double>(steps_ - client.settled);
    } else {
      for (std::int64_t step = client.settled + 1; step <= steps_; ++step) client.counter += step_price(client, step);
    }
    client.settled = steps_;
    return client;
  }
  [[nodiscard]] double counter(std::size_t c) { return settled(c).counter; }

  /// A client that comes back starts level with the poorest of the others that wait: idling earns nothing.
  void lift(std::size_t c, const View& view) {
    std::size_t level = clients_.size();
    for (std::size_t other = 0; other < clients_.size(); ++other) {
      if (other == c || !waits(other, view)) continue;
      if (level == clients_.size() || counter(other) < counter(level)) level = other;
    }
    if (level == clients_.size() && lifts_to_last_left_ && last_left_ < clients_.size()) level = last_left_;
    if (level < clients_.size()) settled(c).counter = std::max(counter(c), counter(level));
  }

  const Prices prices_;
  const bool lifts_to_last_left_;
  std::vector<Client> clients_;
  std::unordered_map<std::uint32_t, std::size_t> by_name_;  // only looked up
  std::int64_t steps_ = 0;
  std::size_t last_left_ = SIZE_MAX;  // the client whose queue became empty last
};

class VtcScheduler final : public Scheduler {
 public:
  VtcScheduler(const Settings& settings, const View& view, TokenPool& pool)
      : view_(view),
        pool_(pool),
        clients_(settings),
        batch_tokens_(settings.get<std::int64_t>("engine.max_num_batched_tokens")),
        max_num_seqs_(settings.get<std::int64_t>("engine.max_num_seqs")),
        decodes_between_(settings.get<std::int64_t>("policy.decodes_between_prompts")),
        fair_(settings.get<std::string>("policy.order") == "vtc"),
        double_charge_(settings.get<bool>("policy.double_charge")) {}

  void arrived(const RequestView& request) override {
    if (fair_) clients_.arrived(view_, request);
    if (!fair_) queue_.push_back(request.id);
  }

  /// A client that arrives during a decode step is lifted to what the others had paid before it.
  void iteration_ended() override {
    if (!decoding_) return;
    clients_.decoded();
    pool_.decoded();
    charge_again_ = double_charge_;
  }

  void ended(RequestId id, Outcome outcome) override {
    if (!runs(id)) return;
    if (charge_again_ && outcome == Outcome::finished) {
      clients_.pay_again();
      charge_again_ = false;
    }
    clients_.left(id, *client_[id.slot]);
    client_[id.slot].reset();
    pool_.left(id);
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
      const Fit fit = request.input > batch_tokens_ ? Fit::never : kv.admits(request, request.input);
      if (fit == Fit::never) {
        pop(request);
        decision.reject(head);
        continue;
      }
      if (const auto why = obstacle(view, fit, tokens + request.input)) {
        decision.blocked(*why);
        break;
      }
      pop(request);
      join(view, request, decision);
      tokens += request.input;
      any = true;
    }
    pool_.prefilled();
    return any;
  }

  [[nodiscard]] std::optional<Blocked> obstacle(const View& view, Fit fit, Tokens tokens) const {
    if (view.batch().running >= max_num_seqs_) return Blocked::batch_size;
    if (tokens > batch_tokens_) return Blocked::token_budget;
    if (fit != Fit::now) return Blocked::kv_capacity;
    return std::nullopt;
  }

  void join(const View& view, const RequestView& request, Decision& decision) {
    decision.join(request.id);
    decision.chunk(request.id, view.request(request.id).remaining());
    if (client_.size() <= request.id.slot) client_.resize(request.id.slot + 1);
    client_[request.id.slot] = request.client;
    clients_.joined(request);
    pool_.joined(request);
  }

  [[nodiscard]] RequestId next(const View& view) { return fair_ ? clients_.next(view) : queue_.head(view); }
  void pop(const RequestView& request) {
    if (fair_) clients_.pop(request.client);
    if (!fair_) queue_.pop_front();
  }
  [[nodiscard]] bool runs(RequestId id) const { return id.slot < client_.size() && client_[id.slot].has_value(); }

  const View& view_;
  TokenPool& pool_;
  Clients clients_;
  FcfsQueue queue_;  // policy.order=fcfs
  const Tokens batch_tokens_;
  const std::int64_t max_num_seqs_;
  const std::int64_t decodes_between_;
  const bool fair_;
  const bool double_charge_;
  std::vector<std::optional<std::uint32_t>> client_;  // of running requests, by slot
  std::int64_t decode_steps_ = 0;                     // since the last mini-batch
  bool decoding_ = false;                             // the last iteration was a decode step
  bool charge_again_ = false;                         // if a request finished in it
};

std::vector<Parameter> parameters() {
  return {{.name = "policy.order",
           .type = ParameterType::choice,
           .unit = "-",
           .default_value = "vtc",
           .choices = {"vtc", "fcfs"},
           .doc = "Whose prompt comes next: vtc, of the client that has paid least; fcfs, the one that arrived first "
                  "(S-LoRA's own scheduler, with the same admission)",
           .source = "VTC-artifact, vtc_req_queue.py and req_queue.py"},
          {.name = "policy.cost",
           .type = ParameterType::choice,
           .unit = "-",
           .default_value = "linear",
           .choices = {"linear", "profile"},
           .doc = "What tokens cost: linear, 1 per input and 2 per output token; profile, what they add to "
                  "h(p,q) = 0.21001891 p + 0.10075395 q + 0.0039868 p q + 0.00324733 q^2 + 1.14601454",
           .source = "VTC, section 5 (weights 1 and 2) and VTC-artifact's cost_func=profile"},
          {.name = "policy.lift",
           .type = ParameterType::choice,
           .unit = "-",
           .default_value = "waiting",
           .choices = {"waiting", "last-left"},
           .doc = "Counter of a client that comes back: at least the smallest of the clients that wait; when nobody "
                  "waits, waiting leaves it as it is and last-left lifts it to that of the client whose queue became "
                  "empty last",
           .source = "waiting: VTC-artifact's code; last-left: VTC, Algorithm 2"},
          {.name = "policy.double_charge",
           .type = ParameterType::boolean,
           .unit = "-",
           .default_value = "false",
           .doc = "Everyone in a decode step pays twice when a request finishes in it: a quirk of the code",
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
  if (settings.get<std::string>("engine.preemption") == "swap") {
    problems.push_back(
        {"policy vtc never preempts, so it cannot swap", "engine.preemption", "leave engine.preemption at recompute"});
  }
  if (settings.get<bool>("engine.chunked_prefill")) {
    problems.push_back({"policy vtc computes whole prompts: it has no chunked prefill", "engine.chunked_prefill",
                        "leave it at false"});
  }
  return problems;
}

PolicyInfo info() {
  PolicyInfo info;
  info.name = "vtc";
  info.summary = "VTC on S-LoRA: the client that was served least comes next; admission by worst-case memory";
  info.source = "Sheng et al., OSDI 2024, Algorithm 2; VTC-artifact (192c2e2), slora/server/router";
  info.limits =
      "All clients weigh the same; adapters cost neither time nor memory. Fairness needs a workload that names "
      "clients: "
      "with one it is first come, first served. A prompt that can never be admitted is rejected, where the code waits "
      "for ever.";
  info.parameters = parameters();
  info.preempts = false;
  info.default_engine = [](const Settings&) { return "s-lora"; };
  info.engine_defaults = [](const Settings&) {
    return std::map<std::string, std::string>{{"engine.chunked_prefill", "false"},
                                              {"engine.max_num_seqs", "1000"},
                                              {"engine.max_num_batched_tokens", "3072"},
                                              {"memory.block_tokens", "1"}};
  };
  info.check = check;
  info.make = [](const PolicyContext& context) {
    auto pool = std::make_unique<TokenPool>(context.view);
    auto scheduler = std::make_unique<VtcScheduler>(context.settings, context.view, *pool);
    return Policy{std::move(scheduler), std::move(pool)};
  };
  return info;
}

const RegisterPolicy kRegistered(info());

}  // namespace
}  // namespace spillway
