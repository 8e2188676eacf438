#include "tests/oracle/naive_cluster.hpp"

#include <algorithm>
#include <cmath>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace spillway::oracle {
namespace {

/// One step of SplitMix64 from `state`.
std::uint64_t mixed(std::uint64_t state) {
  std::uint64_t z = state + 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27U)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31U);
}

/// Jump consistent hash: Lamping and Veach, arXiv 1406.2294.
std::size_t jump_hash(std::uint64_t key, std::size_t buckets) {
  std::int64_t bucket = -1;
  for (std::int64_t next = 0; next < static_cast<std::int64_t>(buckets);) {
    bucket = next;
    key = key * 2862933555777941757ULL + 1;
    const double draw = static_cast<double>(std::int64_t{1} << 31U) / static_cast<double>((key >> 33U) + 1);
    next = static_cast<std::int64_t>(static_cast<double>(bucket + 1) * draw);
  }
  return static_cast<std::size_t>(bucket);
}

struct ClusterRequest {
  RequestSpec spec{};  // its arrival is when its client sent it
  SimTime end = kNever;
  SimTime deadline = kNever;  // once it has reached a scheduler or has had to wait for a replica
  bool given_up = false;
};

/// A request is sent to a replica: by its client, or again by the router.
struct Sending {
  std::size_t serial = 0;
  SimTime at{};
  std::size_t replica = 0;
  SimTime end = kNever;
  bool entered = false;    // it has passed the front end
  bool forgotten = false;  // the replica has gone down since
};

class NaiveCluster final : private NaiveSurroundings {
 public:
  explicit NaiveCluster(const NaiveClusterConfig& config) : config_(config), of_each_(config.engine) {
    of_each_.requests.clear();
    of_each_.follows.clear();
    for (std::size_t i = 0; i < config.replicas; ++i) replicas_.push_back(make_naive_replica(of_each_, *this));
    for (std::size_t i = 0; i < config.engine.requests.size(); ++i) {
      if (config.engine.follows[i].after < 0) coming_.emplace(config.engine.requests[i].arrival, i);
    }
  }

  NaiveClusterResult run() {
    const auto live = [](const ClusterRequest& one) { return one.end == kNever; };
    do {
      NaiveReplica* first = nullptr;
      NaiveInstant of_engine(kNever, 0, 0);
      for (const auto& replica : replicas_) {
        const auto next = replica ? replica->next_event() : std::nullopt;
        if (!next || *next >= of_engine) continue;
        of_engine = *next;
        first = replica.get();
      }
      const bool fails = failed_ < config_.failures.size();
      const NaiveInstant failure(fails ? config_.failures[failed_].at : kNever, 2, 0);
      const std::optional<std::size_t> impatient = next_to_give_up();
      const NaiveInstant deadline(impatient ? requests_[*impatient].deadline : kNever, 2, 1);
      const NaiveInstant entry(on_the_way_.empty() ? kNever : enters(on_the_way_.front()), 3, 0);
      const NaiveInstant sending(coming_.empty() ? kNever : coming_.begin()->first, 3, 1);
      const NaiveInstant next = std::min({of_engine, failure, deadline, entry, sending});
      const auto& until = config_.engine.until;
      if (until && NaiveInstant(*until, 6, 0) < next) {
        cut();
        break;
      }
      if (std::get<0>(next) == kNever) {
        give_up_waiting();
        break;
      }
      now_ = std::get<0>(next);
      if (next == of_engine) {
        first->step();
      } else if (next == failure) {
        change(config_.failures[failed_++]);
      } else if (next == deadline) {
        give_up(*impatient);
      } else if (next == entry) {
        enter();
      } else {
        arrive();
      }
    } while (!coming_.empty() || std::any_of(requests_.begin(), requests_.end(), live));
    result_.sent.assign(replicas_.size(), 0);
    for (const Sending& one : sent_) ++result_.sent[one.replica];
    for (const auto& replica : replicas_) {
      if (replica && !over_) result_.replicas.push_back(replica->stop(std::nullopt));
    }
    return result_;
  }

 private:
  // --- clients and the front end
  [[nodiscard]] SimTime enters(std::size_t sending) const { return sent_[sending].at + config_.engine.front_end; }
  void arrive() {
    ClusterRequest& request = requests_.emplace_back();
    request.spec = config_.engine.requests[coming_.begin()->second];
    request.spec.arrival = now_;
    coming_.erase(coming_.begin());
    send(requests_.size() - 1);
  }
  void send(std::size_t serial) {
    if (up().empty()) {
      waiting_.push_back(serial);
      may_give_up(serial);
      return;
    }
    const std::size_t replica = choose(requests_[serial].spec);
    on_the_way_.push_back(sent_.size());
    sent_.push_back({.serial = serial, .at = now_, .replica = replica});
    if (config_.engine.front_end == Duration{}) enter();
  }
  /// What was sent first has passed the front end. At one instant that comes before what is sent then.
  void enter() {
    const std::size_t sending = on_the_way_.front();
    on_the_way_.pop_front();
    const std::size_t serial = sent_[sending].serial;
    const std::unique_ptr<NaiveReplica>& replica = replicas_[sent_[sending].replica];
    if (!replica) {
      sent_[sending].end = now_;
      return config_.retry ? send(serial) : end(serial, Outcome::lost);
    }
    sent_[sending].entered = true;
    replica->enter(requests_[serial].spec, static_cast<std::uint32_t>(serial), now_);
    if (requests_[serial].end == kNever) may_give_up(serial);
  }
  void may_give_up(std::size_t serial) {
    const auto& timeout = config_.engine.request_timeout;
    ClusterRequest& request = requests_[serial];
    if (!timeout || request.deadline != kNever) return;
    request.deadline = std::max(now_, request.spec.arrival + *timeout);
    patience_.push_back(serial);
  }
  [[nodiscard]] std::vector<std::size_t> outside() const {
    std::vector<std::size_t> serials(waiting_.begin(), waiting_.end());
    for (const std::size_t sending : on_the_way_) serials.push_back(sent_[sending].serial);
    return serials;
  }
  /// The request whose client gives up next: of equal deadlines the one that was known first.
  [[nodiscard]] std::optional<std::size_t> next_to_give_up() const {
    std::optional<std::size_t> next;
    for (const std::size_t serial : patience_) {
      const ClusterRequest& one = requests_[serial];
      if (one.end != kNever || one.given_up) continue;
      if (!next || one.deadline < requests_[*next].deadline) next = serial;
    }
    return next;
  }
  void give_up(std::size_t serial) {
    requests_[serial].given_up = true;
    const Sending* const last = last_sending(serial);
    if (last != nullptr && last->entered && last->end == kNever) {
      return replicas_[last->replica]->expire(static_cast<std::uint32_t>(serial), now_);
    }
    end(serial, Outcome::timed_out);
    waiting_.remove(serial);
    on_the_way_.remove_if([&](std::size_t sending) { return sent_[sending].serial == serial; });
  }
  void give_up_waiting() {
    if (waiting_.empty()) throw std::logic_error("requests wait for ever");
    for (const std::size_t serial : waiting_) end(serial, Outcome::lost);
  }
  void cut() {
    over_ = true;
    now_ = *config_.engine.until;
    for (const auto& replica : replicas_) {
      if (replica) result_.replicas.push_back(replica->stop(now_));
    }
    for (const std::size_t serial : outside()) end(serial, Outcome::unfinished);
  }
  /// A request ends in no engine: nothing of it has been computed.
  void end(std::size_t serial, Outcome outcome) {
    const RequestSpec& spec = requests_[serial].spec;
    RequestRecord record;
    record.index = serial;
    record.client = spec.client;
    record.outcome = outcome;
    record.arrival = spec.arrival;
    record.end = now_;
    record.input = spec.input;
    record.output = spec.output;
    record.traits = spec.traits;
    ended(record);
  }

  // --- replicas that go down
  [[nodiscard]] std::vector<std::size_t> up() const {
    std::vector<std::size_t> up;
    for (std::size_t replica = 0; replica < replicas_.size(); ++replica) {
      if (replicas_[replica]) up.push_back(replica);
    }
    return up;
  }
  void change(const NaiveFailure& failure) {
    std::unique_ptr<NaiveReplica>& replica = replicas_[failure.replica];
    if (failure.up) {
      replica = make_naive_replica(of_each_, *this);
      for (const std::size_t serial : std::exchange(waiting_, {})) send(serial);
      return;
    }
    const std::vector<RequestRecord> live = replica->go_down(now_);
    replica.reset();
    for (Sending& one : sent_) one.forgotten = one.forgotten || one.replica == failure.replica;
    for (const RequestRecord& record : live) {
      if (record.outcome != Outcome::lost || !config_.retry) {
        ended(record);
      } else {
        last_sending(record.index)->end = now_;
        send(record.index);
      }
    }
  }

  // --- what the engines see
  [[nodiscard]] std::uint64_t next_sequence() override { return sequence_++; }
  [[nodiscard]] SimTime next_turn(std::int64_t conversation) const override {
    SimTime next = kNever;
    for (const auto& [time, position] : coming_) {
      if (config_.engine.requests[position].traits.conversation == conversation) next = std::min(next, time);
    }
    for (const ClusterRequest& one : requests_) {
      const bool live = one.end == kNever;
      if (live && one.spec.traits.conversation == conversation) next = std::min(next, one.spec.arrival);
    }
    return next;
  }
  /// Null: the request was never sent.
  [[nodiscard]] Sending* last_sending(std::size_t serial) {
    Sending* last = nullptr;
    for (Sending& one : sent_) {
      if (one.serial == serial) last = &one;
    }
    return last;
  }
  void ended(const RequestRecord& of_engine) override {
    requests_[of_engine.index].end = now_;
    RequestRecord record = of_engine;
    if (Sending* const last = last_sending(record.index); last != nullptr) {
      last->end = std::min(last->end, now_);
      record.replica = static_cast<std::uint32_t>(last->replica);
    }
    result_.records.push_back(record);
    if (record.outcome != Outcome::finished) return;
    const std::vector<Follows>& follows = config_.engine.follows;
    for (std::size_t i = 0; i < follows.size(); ++i) {
      if (follows[i].after >= 0 && follows[i].after == record.traits.conversation) {
        coming_.emplace(now_ + follows[i].think, i);
      }
    }
  }

  // --- routing
  /// Whether the router knows by now of what happened at `time`.
  [[nodiscard]] bool knows(SimTime time) const { return time != kNever && time + config_.routing.staleness <= now_; }
  [[nodiscard]] std::int64_t outstanding(std::size_t replica) const {
    return std::count_if(sent_.begin(), sent_.end(), [&](const Sending& one) {
      return one.replica == replica && knows(one.at) && !knows(one.end);
    });
  }
  /// The first of the replicas that are up with the least `cost`.
  template <class Cost>
  [[nodiscard]] std::size_t least(const Cost& cost) const {
    std::size_t best = up().front();
    for (const std::size_t replica : up()) {
      if (cost(replica) < cost(best)) best = replica;
    }
    return best;
  }
  [[nodiscard]] std::size_t least_outstanding() const {
    return least([this](std::size_t replica) { return outstanding(replica); });
  }
  [[nodiscard]] std::size_t drawn(std::size_t count) const {
    return static_cast<std::size_t>(std::floor(config_.routing.uniform() * static_cast<double>(count)));
  }

  [[nodiscard]] std::size_t choose(const RequestSpec& request) {
    const std::string& rule = config_.routing.rule;
    if (rule == "least-outstanding") return least_outstanding();
    if (rule == "round-robin") return in_turn();
    if (rule == "random") return up()[drawn(up().size())];
    if (rule == "power-of-two") return one_of_two();
    if (rule == "least-kv") return least_kv();
    if (rule == "session") return of_session(request.traits.conversation);
    if (rule == "prefix") return of_prefix(request);
    throw std::logic_error("no plain form of router " + rule);
  }
  [[nodiscard]] std::size_t in_turn() const {
    if (sent_.empty()) return up().front();
    std::size_t replica = sent_.back().replica;
    do {
      replica = (replica + 1) % replicas_.size();
    } while (!replicas_[replica]);
    return replica;
  }
  [[nodiscard]] std::size_t one_of_two() const {
    const std::vector<std::size_t> up = this->up();
    if (up.size() == 1) return up.front();
    const std::size_t first = drawn(up.size());
    std::size_t second = drawn(up.size() - 1);
    if (second >= first) ++second;
    return outstanding(up[second]) < outstanding(up[first]) ? up[second] : up[first];
  }
  [[nodiscard]] std::size_t least_kv() const {
    const auto fuller = [this](std::size_t a, std::size_t b) {  // as fractions, exactly
      return replicas_[a]->gpu_blocks_used().count() * replicas_[b]->gpu_blocks().count() >
             replicas_[b]->gpu_blocks_used().count() * replicas_[a]->gpu_blocks().count();
    };
    std::size_t best = up().front();
    for (const std::size_t replica : up()) {
      const bool same = !fuller(best, replica) && !fuller(replica, best);
      if (fuller(best, replica) || (same && outstanding(replica) < outstanding(best))) best = replica;
    }
    return best;
  }
  [[nodiscard]] std::size_t of_session(std::int64_t conversation) const {
    if (conversation < 0) return least_outstanding();
    const std::uint64_t key = mixed(static_cast<std::uint64_t>(conversation));
    const std::size_t home = jump_hash(key, replicas_.size());
    return replicas_[home] ? home : up()[jump_hash(mixed(key), up().size())];
  }

  /// What the router knows to have been sent to a replica.
  struct Record {
    std::set<std::vector<std::uint64_t>> chains;  // every beginning of every prompt, in whole blocks
    std::int64_t tokens = 0;
  };
  /// What a client sends is the prompt: ids of the answer are left out.
  [[nodiscard]] std::vector<std::uint64_t> blocks_of(const RequestSpec& request) const {
    std::vector<std::uint64_t> ids = request.prefix_ids;
    while (std::ssize(ids) * config_.engine.block_tokens.count() > request.input.count()) ids.pop_back();
    return ids;
  }
  [[nodiscard]] Record record_of(std::size_t replica) const {
    const std::int64_t per_block = config_.engine.block_tokens.count();
    Record record;
    for (const Sending& one : sent_) {
      if (one.replica != replica || one.forgotten || !knows(one.at)) continue;
      const RequestSpec& spec = requests_[one.serial].spec;
      const std::vector<std::uint64_t> ids = blocks_of(spec);
      for (auto end = ids.begin(); end != ids.end(); ++end) record.chains.emplace(ids.begin(), std::next(end));
      record.tokens += spec.input.count() - std::ssize(ids) * per_block;
    }
    record.tokens += std::ssize(record.chains) * per_block;
    return record;
  }
  /// Leading blocks of the prompt that the record has.
  [[nodiscard]] static std::int64_t shared(const Record& record, const std::vector<std::uint64_t>& ids) {
    std::int64_t blocks = 0;
    while (blocks < std::ssize(ids) && record.chains.contains({ids.begin(), ids.begin() + blocks + 1})) ++blocks;
    return blocks;
  }
  [[nodiscard]] std::size_t of_prefix(const RequestSpec& request) const {
    std::vector<std::int64_t> sent;
    std::map<std::size_t, Record> records;
    std::int64_t longest = 0;
    const std::vector<std::uint64_t> ids = blocks_of(request);
    for (const std::size_t replica : up()) {
      sent.push_back(outstanding(replica));
      records[replica] = record_of(replica);
      longest = std::max(longest, shared(records[replica], ids));
    }
    const auto [fewest, most] = std::minmax_element(sent.begin(), sent.end());
    const NaiveRouting& routing = config_.routing;
    const bool apart = *most - *fewest > routing.balance_abs;
    if (apart && static_cast<double>(*most) > routing.balance_rel * static_cast<double>(*fewest)) {
      return least_outstanding();
    }
    const auto covered = static_cast<double>(longest * config_.engine.block_tokens.count());
    const bool follows = covered > routing.cache_threshold * static_cast<double>(request.input.count());
    return least([&](std::size_t replica) {
      const bool passed_over = follows && shared(records.at(replica), ids) < longest;
      return std::pair(passed_over, records.at(replica).tokens);
    });
  }

  const NaiveClusterConfig& config_;
  NaiveConfig of_each_;
  std::vector<std::unique_ptr<NaiveReplica>> replicas_;  // null: down
  std::multimap<SimTime, std::size_t> coming_;           // positions of requests that clients will send, if known
  std::vector<ClusterRequest> requests_;                 // by serial number
  std::vector<Sending> sent_;                            // in order
  std::vector<std::size_t> patience_;                    // serial numbers, in the order of knowing their deadlines
  std::list<std::size_t> on_the_way_;                    // of sent_: those in the front end
  std::list<std::size_t> waiting_;                       // serial numbers of those that wait for a replica
  std::size_t failed_ = 0;                               // failures so far
  std::uint64_t sequence_ = 0;
  SimTime now_{};
  bool over_ = false;
  NaiveClusterResult result_;
};

}  // namespace

NaiveClusterResult run_naive_cluster(const NaiveClusterConfig& config) { return NaiveCluster(config).run(); }

}  // namespace spillway::oracle
