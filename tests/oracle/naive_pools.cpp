#include "tests/oracle/naive_pools.hpp"

#include <algorithm>
#include <cmath>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "tests/oracle/plain_shares.hpp"

namespace spillway::oracle {
namespace {

/// A part of a request's KV on its way.
struct NaiveTransfer {
  std::size_t serial = 0;
  NaiveWay way{};
  double bytes = 0.0;
  SimTime launched{};
  bool moves = false;  // it has been launched
  // What was left at some instant, and the share of its own speed at which it has moved since.
  Duration left{};
  SimTime timed_at{};
  Real share = 1;
  [[nodiscard]] SimTime next() const { return moves ? timed_at + plain_needed(left, share) : launched; }
};

/// What has become of a request since its client, or the router, sent it last.
struct Attempt {
  std::optional<std::size_t> prompt_sent{};  // position in the list of its router
  std::optional<std::size_t> answer_sent{};
  bool in_front_end = false;
  std::optional<std::uint32_t> prompt_number{};  // an engine computes the prompt, and knows it by this number
  std::optional<std::uint32_t> answer_number{};
  std::optional<RequestRecord> prompt{};  // has been computed
  std::uint32_t kept_under = 0;           // its number there: where its KV stays
  std::optional<Blocks> wanted{};         // blocks wait for the KV: of so many
  bool layers_began = false;              // all layers but the last are on their way, or there
  bool layers_there = false;
  SimTime began{};
  bool handed_over = false;
  bool given_up = false;  // by its client, in an iteration in flight
  bool restarts = false;  // when its prompt has been computed
};

struct PoolRequest {
  RequestSpec spec{};  // its arrival is when its client sent it
  SimTime end = kNever;
  SimTime deadline = kNever;
  bool given_up = false;
  std::size_t last = 0;  // the engine of prompts that it was sent to last
  Attempt attempt{};
};

class NaivePools {
 public:
  explicit NaivePools(const NaivePoolsConfig& config) : config_(config) {
    const std::size_t engines = config.gpu_blocks.size();
    surroundings_.reserve(engines);
    of_each_.resize(engines, config.engine);
    for (std::size_t i = 0; i < engines; ++i) {
      of_each_[i].requests.clear();
      of_each_[i].follows.clear();
      of_each_[i].gpu_blocks = config.gpu_blocks[i];
      of_each_[i].phases = computes_prompts(i) ? Phases::prefill : Phases::decode;
      of_each_[i].hands_over = true;
      if (!config.of_pool.empty()) {
        const NaivePool& own = config.of_pool[computes_prompts(i) ? 0 : 1];
        of_each_[i].settings = &own.settings;
        of_each_[i].most_gpu_blocks = own.layout.most;
      }
      surroundings_.emplace_back(*this, i);
      replicas_.push_back(make_naive_replica(of_each_[i], surroundings_[i]));
    }
    const Tokens block = config.engine.block_tokens;
    prompts_ = make_naive_router(config.prompts, block, replicas_, 0, config.prefill);
    answers_ = make_naive_router(config.answers, block, replicas_, config.prefill, engines - config.prefill);
    result_.finished.resize(engines);
    result_.lost.resize(engines);
    result_.link_bytes.resize(config.links.size());
    for (std::size_t i = 0; i < config.engine.requests.size(); ++i) {
      if (config.engine.follows[i].after < 0) coming_.emplace(config.engine.requests[i].arrival, i);
    }
  }

  NaivePoolsResult run() {
    const auto live = [](const PoolRequest& one) { return one.end == kNever; };
    do {
      const NaiveInstant of_engine = next_of_engines();
      const NaiveInstant transfer(next_transfer(), 0, 0);
      const bool fails = failed_ < config_.failures.size();
      const NaiveInstant failure(fails ? config_.failures[failed_].at : kNever, 2, 0);
      const std::optional<std::size_t> impatient = next_to_give_up();
      const NaiveInstant deadline(impatient ? requests_[*impatient].deadline : kNever, 2, 1);
      const NaiveInstant entry(front_end_.empty() ? kNever : front_end_.front().second, 3, 0);
      const NaiveInstant sending(coming_.empty() ? kNever : coming_.begin()->first, 3, 1);
      const NaiveInstant next = std::min({of_engine, transfer, failure, deadline, entry, sending});
      const auto& until = config_.engine.until;
      if (until && NaiveInstant(*until, 6, 0) < next) {
        cut();
        break;
      }
      if (std::get<0>(next) == kNever) {
        lose_waiting();
        continue;
      }
      now_ = std::get<0>(next);
      if (next == transfer) {
        collect_transfers();
      } else if (next == of_engine) {
        step_engines(next);
      } else if (next == failure) {
        change(config_.failures[failed_++]);
      } else if (next == deadline) {
        give_up_now();
      } else if (next == entry) {
        const std::size_t serial = front_end_.front().first;
        front_end_.pop_front();
        passed(serial);
      } else {
        arrive();
      }
      follow();
      // An iteration in flight goes on with requests that nobody wants any more.
    } while (!coming_.empty() || !known_.empty() || std::any_of(requests_.begin(), requests_.end(), live));
    for (NaiveRouter* const router : {prompts_.get(), answers_.get()}) {
      const std::size_t first = result_.sent.size();
      result_.sent.resize(first == 0 ? config_.prefill : replicas_.size());
      for (const Sending& one : router->sent()) ++result_.sent[first + one.replica];
    }
    for (const auto& replica : replicas_) {
      if (replica && !over_) result_.engines.push_back(replica->stop(std::nullopt));
    }
    return result_;
  }

 private:
  // --- what the engines see and report
  struct Report {
    RequestRecord record{};  // its index is the number
    std::size_t engine = 0;
    Outcome outcome{};
  };
  class Surroundings final : public NaiveSurroundings {
   public:
    Surroundings(NaivePools& pools, std::size_t engine) : pools_(pools), engine_(engine) {}
    [[nodiscard]] std::uint64_t next_sequence() override { return pools_.sequence_++; }
    [[nodiscard]] SimTime next_turn(std::int64_t) const override { return kNever; }
    void ended(const RequestRecord& record) override { pools_.ended(record, engine_, record.outcome); }
    [[nodiscard]] bool hands_over(std::uint32_t number) override { return pools_.hands_over(number, engine_); }
    void begins_prompt(std::uint32_t number) override { pools_.begun_.push_back(pools_.at(engine_, number).first); }
    void awaits_kv(std::uint32_t number, Blocks blocks) override {
      pools_.admitted_.emplace_back(pools_.at(engine_, number).first, blocks);
    }

   private:
    NaivePools& pools_;
    std::size_t engine_;
  };

  [[nodiscard]] bool computes_prompts(std::size_t engine) const { return engine < config_.prefill; }
  [[nodiscard]] NaiveRouter& router_of(std::size_t engine) const {
    return computes_prompts(engine) ? *prompts_ : *answers_;
  }
  /// The request that an engine knows by this number, and its place in the list of the router.
  [[nodiscard]] std::pair<std::size_t, std::size_t> at(std::size_t engine, std::uint32_t number) const {
    return known_.at({engine, number});
  }
  void ended(const RequestRecord& record, std::size_t engine, Outcome outcome) {
    const auto number = static_cast<std::uint32_t>(record.index);
    router_of(engine).sent()[at(engine, number).second].end = now_;
    result_.finished[engine] += outcome == Outcome::finished ? 1 : 0;
    result_.lost[engine] += outcome == Outcome::lost ? 1 : 0;
    ended_.push_back({record, engine, outcome});
  }
  [[nodiscard]] bool hands_over(std::uint32_t number, std::size_t engine) const {
    const PoolRequest& request = requests_[at(engine, number).first];
    return is_at(request, engine, number) && !ends_with_prompt(request);
  }
  /// The engine works on the request for its present attempt, and not for one that is over.
  [[nodiscard]] bool is_at(const PoolRequest& request, std::size_t engine, std::uint32_t number) const {
    if (request.end != kNever) return false;
    const Attempt& attempt = request.attempt;
    if (computes_prompts(engine)) return attempt.prompt_number == number && prompt_engine(attempt) == engine;
    return attempt.answer_number == number && answer_engine(attempt) == engine;
  }
  [[nodiscard]] std::size_t prompt_engine(const Attempt& attempt) const {
    return prompts_->sent()[*attempt.prompt_sent].replica;
  }
  [[nodiscard]] std::size_t answer_engine(const Attempt& attempt) const {
    return config_.prefill + answers_->sent()[*attempt.answer_sent].replica;
  }
  [[nodiscard]] NaiveReplica& engine_of_prompt(const Attempt& attempt) { return *replicas_[prompt_engine(attempt)]; }
  [[nodiscard]] NaiveReplica& engine_of_answer(const Attempt& attempt) { return *replicas_[answer_engine(attempt)]; }

  [[nodiscard]] NaiveInstant next_of_engines() const {
    NaiveInstant first(kNever, 0, 0);
    for (const auto& replica : replicas_) {
      const auto next = replica ? replica->next_event() : std::nullopt;
      if (next) first = std::min(first, *next);
    }
    return first;
  }
  /// Whatever decisions report is acted upon when all decisions of the instant have been made.
  void step_engines(NaiveInstant next) {
    constexpr int kDecision = 4;
    std::vector<std::pair<NaiveInstant, NaiveReplica*>> due;
    for (const auto& replica : replicas_) {
      const auto own = replica ? replica->next_event() : std::nullopt;
      if (!own) continue;
      const bool also =
          std::get<1>(next) == kDecision && std::get<1>(*own) == kDecision && std::get<0>(*own) == std::get<0>(next);
      if (*own == next || also) due.emplace_back(*own, replica.get());
    }
    std::sort(due.begin(), due.end());
    for (const auto& [instant, replica] : due) replica->step();
  }

  // --- acting on reports
  void follow() {
    while (!ended_.empty() || !admitted_.empty() || !begun_.empty()) {
      for (const Report& report : std::exchange(ended_, {})) has_ended(report);
      for (const auto& [serial, blocks] : std::exchange(admitted_, {})) was_admitted(serial, blocks);
      for (const std::size_t serial : std::exchange(begun_, {})) prompt_begins(serial);
    }
  }
  void has_ended(const Report& report) {
    const auto number = static_cast<std::uint32_t>(report.record.index);
    const std::size_t serial = at(report.engine, number).first;
    known_.erase({report.engine, number});
    if (!is_at(requests_[serial], report.engine, number)) return;
    computes_prompts(report.engine) ? prompt_ended(serial, number, report) : answer_ended(serial, report);
  }
  void prompt_ended(std::size_t serial, std::uint32_t number, const Report& report) {
    PoolRequest& request = requests_[serial];
    Attempt& attempt = request.attempt;
    attempt.prompt_number.reset();
    if (report.outcome == Outcome::lost) return lose(serial, report.record);
    if (report.outcome != Outcome::finished || ends_with_prompt(request)) {
      return end(serial, report.record, report.outcome);
    }
    attempt.prompt = report.record;
    attempt.kept_under = number;
    if (attempt.given_up) return end(serial, std::nullopt, Outcome::timed_out);
    if (attempt.restarts) return lose(serial, std::nullopt);
    if (attempt.layers_began && !attempt.layers_there) return;
    attempt.wanted ? move_kv(serial) : choose_decode(serial);
  }
  void answer_ended(std::size_t serial, const Report& report) {
    Attempt& attempt = requests_[serial].attempt;
    attempt.answer_number.reset();
    if (report.outcome != Outcome::lost) return end(serial, report.record, report.outcome);
    if (attempt.given_up || config_.retry) {
      if (attempt.handed_over) return lose(serial, report.record);
      cancel(serial);
      attempt.wanted.reset();
      if (!config_.by_layers) return choose_decode(serial);
      // The KV of its prompt could take the memory for which others wait that were admitted before.
      if (!attempt.prompt_number) return lose(serial, report.record);
      attempt.restarts = true;
      return;
    }
    end(serial, report.record, Outcome::lost);
  }
  void was_admitted(std::size_t serial, Blocks blocks) {
    Attempt& attempt = requests_[serial].attempt;
    if (requests_[serial].end != kNever || !attempt.answer_number) return;
    attempt.wanted = blocks;
    attempt.prompt ? move_kv(serial) : submit_prompt(serial);
  }

  // --- clients and engines
  void arrive() {
    PoolRequest& request = requests_.emplace_back();
    request.spec = config_.engine.requests[coming_.begin()->second];
    request.spec.arrival = now_;
    coming_.erase(coming_.begin());
    send(requests_.size() - 1);
  }
  /// The engine of prompts samples the only token.
  [[nodiscard]] bool ends_with_prompt(const PoolRequest& request) const {
    return config_.first_token_at_prefill && request.spec.output == Tokens(1);
  }
  /// The request as an engine of answers sees it.
  [[nodiscard]] RequestSpec answer_of(const PoolRequest& request) const {
    RequestSpec spec = request.spec;
    if (config_.first_token_at_prefill) {
      spec.input = spec.input + Tokens(1);
      spec.output = spec.output - Tokens(1);
      spec.max_new_tokens = spec.max_new_tokens - Tokens(1);
    }
    return spec;
  }
  void send(std::size_t serial) {
    PoolRequest& request = requests_[serial];
    request.attempt = Attempt{};
    const bool both = config_.by_layers && !ends_with_prompt(request);
    if (!prompts_->any_up() || (both && !answers_->any_up())) return wait(serial);
    request.attempt.prompt_sent = prompts_->send(serial, request.spec, now_);
    request.last = prompt_engine(request.attempt);
    if (both) request.attempt.answer_sent = answers_->send(serial, answer_of(request), now_);
    request.attempt.in_front_end = true;
    if (config_.engine.front_end == Duration{}) return passed(serial);
    front_end_.emplace_back(serial, now_ + config_.engine.front_end);
  }
  void wait(std::size_t serial) {
    waiting_.push_back(serial);
    may_give_up(serial);
  }
  void passed(std::size_t serial) {
    Attempt& attempt = requests_[serial].attempt;
    attempt.in_front_end = false;
    const bool both = attempt.answer_sent.has_value();
    if (!replicas_[prompt_engine(attempt)] || (both && !replicas_[answer_engine(attempt)])) {
      return lose(serial, std::nullopt);
    }
    may_give_up(serial);
    both ? submit_answer(serial) : submit_prompt(serial);
  }
  /// The serial number, or one of its own when the engine has known the request before: rising numbers above all serial
  /// ones.
  [[nodiscard]] std::uint32_t number_at(std::size_t engine, std::size_t serial, std::size_t sending) {
    const bool fresh = seen_.emplace(engine, serial).second;
    const std::uint32_t number = fresh ? static_cast<std::uint32_t>(serial) : next_number_++;
    known_[{engine, number}] = {serial, sending};
    return number;
  }
  void submit_prompt(std::size_t serial) {
    const PoolRequest& request = requests_[serial];
    const std::size_t sending = *request.attempt.prompt_sent;
    prompts_->sent()[sending].entered = true;
    const std::uint32_t number = number_at(prompt_engine(request.attempt), serial, sending);
    requests_[serial].attempt.prompt_number = number;
    engine_of_prompt(request.attempt).enter(request.spec, number, static_cast<std::uint32_t>(serial), now_);
  }
  void submit_answer(std::size_t serial) {
    const PoolRequest& request = requests_[serial];
    const std::size_t sending = *request.attempt.answer_sent;
    answers_->sent()[sending].entered = true;
    const std::uint32_t number = number_at(answer_engine(request.attempt), serial, sending);
    requests_[serial].attempt.answer_number = number;
    engine_of_answer(request.attempt).enter(answer_of(request), number, static_cast<std::uint32_t>(serial), now_);
  }
  void choose_decode(std::size_t serial) {
    PoolRequest& request = requests_[serial];
    request.attempt.answer_sent.reset();
    if (!answers_->any_up()) return wait(serial);
    request.attempt.answer_sent = answers_->send(serial, answer_of(request), now_);
    submit_answer(serial);
  }
  void may_give_up(std::size_t serial) {
    const auto& timeout = config_.engine.request_timeout;
    PoolRequest& request = requests_[serial];
    if (!timeout || request.deadline != kNever) return;
    request.deadline = std::max(now_, request.spec.arrival + *timeout);
    patience_.push_back(serial);
  }
  /// Of equal deadlines the one that was known first.
  [[nodiscard]] std::optional<std::size_t> next_to_give_up() const {
    std::optional<std::size_t> next;
    for (const std::size_t serial : patience_) {
      const PoolRequest& one = requests_[serial];
      if (one.end != kNever || one.given_up) continue;
      if (!next || one.deadline < requests_[*next].deadline) next = serial;
    }
    return next;
  }
  /// All whose time is over at this instant; then what follows from it.
  void give_up_now() {
    for (auto next = next_to_give_up(); next && requests_[*next].deadline <= now_; next = next_to_give_up()) {
      give_up(*next);
    }
  }
  void give_up(std::size_t serial) {
    requests_[serial].given_up = true;
    Attempt& attempt = requests_[serial].attempt;
    if (!attempt.prompt_number && !attempt.answer_number) return end(serial, std::nullopt, Outcome::timed_out);
    attempt.given_up = true;
    if (attempt.prompt_number) return engine_of_prompt(attempt).expire(*attempt.prompt_number, now_);
    engine_of_answer(attempt).expire(*attempt.answer_number, now_);
  }

  // --- KV on its way
  void prompt_begins(std::size_t serial) {
    Attempt& attempt = requests_[serial].attempt;
    if (!config_.by_layers || requests_[serial].end != kNever || !attempt.prompt_number) return;
    const bool waited_for = attempt.wanted && *attempt.wanted > Blocks(0);
    if (attempt.layers_began || !waited_for || config_.engine.model->layers() < 2) return;
    attempt.layers_began = true;
    attempt.began = now_;
    start(serial, config_.engine.model->layers() - 1);
  }
  /// The prompt has been computed: its KV moves, or its last layer.
  void move_kv(std::size_t serial) {
    Attempt& attempt = requests_[serial].attempt;
    if (*attempt.wanted == Blocks(0)) return hand_over(serial);
    if (attempt.layers_there) return start(serial, 1);
    attempt.began = now_;
    start(serial, config_.engine.model->layers());
  }
  [[nodiscard]] Bytes bytes_of(const Attempt& attempt) const {
    return config_.engine.block_bytes * attempt.wanted->count();
  }
  void start(std::size_t serial, std::int64_t layers) {
    const Attempt& attempt = requests_[serial].attempt;
    NaiveTransfer one{.serial = serial,
                      .way = config_.way(prompt_engine(attempt), answer_engine(attempt) - config_.prefill)};
    one.bytes = static_cast<double>(config_.gpus * bytes_of(attempt).count() * layers) / config_.engine.model->layers();
    one.launched = one.timed_at = now_ + one.way.launch;
    one.left =
        Duration(std::llround(1e9L * static_cast<Real>(one.bytes) / static_cast<Real>(one.way.bytes_per_second)));
    one.moves = one.way.launch == Duration{};
    transfers_.push_back(one);
    share();
  }
  void cancel(std::size_t serial) {
    if (std::erase_if(transfers_, [serial](const NaiveTransfer& one) { return one.serial == serial; }) > 0) share();
  }
  [[nodiscard]] SimTime next_transfer() const {
    SimTime next = kNever;
    for (const NaiveTransfer& one : transfers_) next = std::min(next, one.next());
    return next;
  }
  void share() {
    std::vector<PlainFlow> flows;
    std::vector<PlainLink> links;
    for (const double capacity : config_.links) links.push_back({capacity});
    for (const NaiveTransfer& one : transfers_) {
      if (!one.moves) continue;
      for (const auto& [link, part] : one.way.crossings) {
        links[link].loads.emplace_back(flows.size(),
                                       static_cast<Real>(part) * static_cast<Real>(one.way.bytes_per_second));
      }
      flows.push_back({1, 1 / static_cast<Real>(one.way.bytes_per_second)});
    }
    std::erase_if(links, [](const PlainLink& link) { return link.loads.empty(); });
    const std::vector<Real> shares = plain_max_min(flows, links);
    std::size_t flow = 0;
    for (NaiveTransfer& one : transfers_) {
      if (!one.moves) continue;
      const Real share = shares[flow++];
      if (same_share(share, one.share)) continue;
      one.left -= plain_done(now_ - one.timed_at, one.share);
      one.timed_at = now_;
      one.share = share;
    }
  }
  void collect_transfers() {
    for (NaiveTransfer& one : transfers_) one.moves = one.moves || one.launched <= now_;
    std::vector<std::size_t> arrived;
    for (const NaiveTransfer& one : transfers_) {
      if (one.next() > now_) continue;
      arrived.push_back(one.serial);
      for (const auto& [link, part] : one.way.crossings) result_.link_bytes[link] += part * one.bytes;
    }
    std::erase_if(transfers_, [this](const NaiveTransfer& one) { return one.next() <= now_; });
    share();
    for (const std::size_t serial : arrived) {
      Attempt& attempt = requests_[serial].attempt;
      if (!attempt.layers_began || attempt.layers_there) {
        hand_over(serial);
        continue;
      }
      attempt.layers_there = true;
      if (attempt.prompt) move_kv(serial);
    }
  }
  void hand_over(std::size_t serial) {
    Attempt& attempt = requests_[serial].attempt;
    if (*attempt.wanted > Blocks(0)) {
      ++result_.transfers;
      result_.bytes += bytes_of(attempt);
      if (attempt.began > attempt.prompt->end) result_.waited += attempt.began - attempt.prompt->end;
      result_.moved += now_ - attempt.began;
    }
    attempt.handed_over = true;
    engine_of_answer(attempt).kv_arrived(*attempt.answer_number, attempt.prompt->end, now_);
    engine_of_prompt(attempt).let_go(attempt.kept_under, now_);
  }

  // --- failures
  void change(const NaiveFailure& failure) {
    const std::size_t engine = failure.replica;
    if (failure.up == (replicas_[engine] != nullptr)) return;
    if (failure.up) {
      replicas_[engine] = make_naive_replica(of_each_[engine], surroundings_[engine]);
      for (const std::size_t serial : std::exchange(waiting_, {})) {
        requests_[serial].attempt.prompt ? choose_decode(serial) : send(serial);
      }
      return;
    }
    for (const RequestRecord& record : replicas_[engine]->go_down(now_)) ended(record, engine, record.outcome);
    replicas_[engine].reset();
    router_of(engine).forget(computes_prompts(engine) ? engine : engine - config_.prefill);
    std::erase_if(seen_, [engine](const auto& one) { return one.first == engine; });
    std::vector<std::size_t> without;
    for (std::size_t serial = 0; serial < requests_.size(); ++serial) {
      if (requests_[serial].end == kNever && loses_with(requests_[serial].attempt, engine)) without.push_back(serial);
    }
    follow();
    for (const std::size_t serial : without) {
      if (requests_[serial].end == kNever) lose(serial, std::nullopt);
    }
  }
  /// An engine of prompts has the KV of the request, or will compute its prompt when another one has room.
  [[nodiscard]] bool loses_with(const Attempt& attempt, std::size_t engine) const {
    if (!attempt.prompt_sent || prompt_engine(attempt) != engine) return false;
    const bool kept = attempt.prompt && !attempt.handed_over;
    return kept || (!prompts_->sent()[*attempt.prompt_sent].entered && !attempt.in_front_end);
  }
  /// `record`: what an engine says of it, if one does.
  void lose(std::size_t serial, const std::optional<RequestRecord>& record) {
    if (!config_.retry) return end(serial, record, Outcome::lost);
    withdraw(serial);
    send(serial);
  }
  /// Nothing comes any more that could help those that wait for an engine to come up.
  void lose_waiting() {
    if (waiting_.empty()) throw std::logic_error("requests wait for ever");
    while (!waiting_.empty()) end(waiting_.front(), std::nullopt, Outcome::lost);
    follow();
  }
  /// The engines that work on a request hear that nobody wants it.
  void withdraw(std::size_t serial) {
    Attempt& attempt = requests_[serial].attempt;
    waiting_.remove(serial);
    front_end_.remove_if([serial](const auto& one) { return one.first == serial; });
    if (attempt.prompt_sent) never_enters(prompts_->sent()[*attempt.prompt_sent]);
    if (attempt.answer_sent) never_enters(answers_->sent()[*attempt.answer_sent]);
    cancel(serial);
    const bool kept = attempt.prompt && !attempt.handed_over;
    if (kept && replicas_[prompt_engine(attempt)]) engine_of_prompt(attempt).let_go(attempt.kept_under, now_);
    if (const auto number = std::exchange(attempt.prompt_number, std::nullopt)) {
      engine_of_prompt(attempt).expire(*number, now_);
    }
    if (const auto number = std::exchange(attempt.answer_number, std::nullopt)) {
      engine_of_answer(attempt).expire(*number, now_);
    }
  }
  void never_enters(Sending& sending) const {
    if (!sending.entered) sending.end = std::min(sending.end, now_);
  }

  // --- ends
  /// `record`: what an engine says of the answer, or of a prompt that was not handed over. None: the prompt's, if it
  /// has been computed.
  void end(std::size_t serial, std::optional<RequestRecord> record, Outcome outcome) {
    const Attempt before = requests_[serial].attempt;
    if (!over_) withdraw(serial);
    PoolRequest& request = requests_[serial];
    RequestRecord all = record.value_or(RequestRecord{});
    if (before.prompt) {
      const RequestRecord& prompt = *before.prompt;
      all.first_scheduled = prompt.first_scheduled;
      all.computing += prompt.computing;
      all.cached += prompt.cached;
      all.preempted_recompute += prompt.preempted_recompute;
      all.preempted_swap += prompt.preempted_swap;
      if (config_.first_token_at_prefill) {
        all.generated += Tokens(1);
        all.first_token = prompt.first_token;
      }
      if (record) all.decode_replica = static_cast<std::uint32_t>(answer_engine(before));
    }
    all.index = serial;
    all.client = request.spec.client;
    all.outcome = outcome;
    all.replica = static_cast<std::uint32_t>(request.last);
    all.arrival = request.spec.arrival;
    all.end = now_;
    all.input = request.spec.input;
    all.output = request.spec.output;
    all.traits = request.spec.traits;
    request.end = now_;
    result_.records.push_back(all);
    if (outcome != Outcome::finished) return;
    const std::vector<Follows>& follows = config_.engine.follows;
    for (std::size_t i = 0; i < follows.size(); ++i) {
      if (follows[i].after >= 0 && follows[i].after == all.traits.conversation) {
        coming_.emplace(now_ + follows[i].think, i);
      }
    }
  }
  /// The horizon: of requests that two engines know, the one that computes the prompt tells.
  void cut() {
    over_ = true;
    now_ = *config_.engine.until;
    for (const auto& replica : replicas_) {
      if (replica) result_.engines.push_back(replica->stop(now_));
    }
    for (const Report& report : ended_) {
      const auto number = static_cast<std::uint32_t>(report.record.index);
      const std::size_t serial = at(report.engine, number).first;
      if (!is_at(requests_[serial], report.engine, number)) continue;
      if (computes_prompts(report.engine) || !requests_[serial].attempt.prompt_number) {
        end(serial, report.record, report.outcome);
      }
    }
    for (std::size_t serial = 0; serial < requests_.size(); ++serial) {
      if (requests_[serial].end == kNever) end(serial, std::nullopt, Outcome::unfinished);
    }
  }

  const NaivePoolsConfig& config_;
  std::vector<NaiveConfig> of_each_;
  std::vector<Surroundings> surroundings_;
  std::vector<std::unique_ptr<NaiveReplica>> replicas_;  // null: down
  std::unique_ptr<NaiveRouter> prompts_;
  std::unique_ptr<NaiveRouter> answers_;
  std::multimap<SimTime, std::size_t> coming_;            // positions of requests that clients will send, if known
  std::vector<PoolRequest> requests_;                     // by serial number
  std::vector<std::size_t> patience_;                     // serial numbers, in the order of knowing their deadlines
  std::list<std::pair<std::size_t, SimTime>> front_end_;  // serial numbers, and when they have passed it
  std::list<std::size_t> waiting_;                        // serial numbers of those that wait for an engine
  std::map<std::pair<std::size_t, std::uint32_t>, std::pair<std::size_t, std::size_t>> known_;  // by engine and number
  std::set<std::pair<std::size_t, std::size_t>> seen_;  // engines and serial numbers that they have known
  std::uint32_t next_number_ = std::uint32_t{1} << 31U;
  std::list<NaiveTransfer> transfers_;  // in order of start
  std::vector<Report> ended_;
  std::vector<std::pair<std::size_t, Blocks>> admitted_;
  std::vector<std::size_t> begun_;
  std::size_t failed_ = 0;
  std::uint64_t sequence_ = 0;
  SimTime now_{};
  bool over_ = false;
  NaivePoolsResult result_;
};

}  // namespace

NaivePoolsResult run_naive_pools(const NaivePoolsConfig& config) { return NaivePools(config).run(); }

}  // namespace spillway::oracle
