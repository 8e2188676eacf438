#include "tests/oracle/naive_router.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <stdexcept>
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

class PlainRouter final : public NaiveRouter {
 public:
  PlainRouter(const NaiveRouting& routing, Tokens block_tokens,
              const std::vector<std::unique_ptr<NaiveReplica>>& replicas, std::size_t first, std::size_t count)
      : routing_(routing), block_tokens_(block_tokens), replicas_(replicas), first_(first), count_(count) {}

  [[nodiscard]] bool any_up() const override { return !up().empty(); }
  std::size_t send(std::size_t serial, const RequestSpec& spec, SimTime now) override {
    now_ = now;
    const std::size_t replica = choose(spec);
    sent_.push_back({.serial = serial, .spec = spec, .at = now, .replica = replica});
    return sent_.size() - 1;
  }

 private:
  [[nodiscard]] bool is_up(std::size_t replica) const { return replicas_[first_ + replica] != nullptr; }
  [[nodiscard]] std::vector<std::size_t> up() const {
    std::vector<std::size_t> up;
    for (std::size_t replica = 0; replica < count_; ++replica) {
      if (is_up(replica)) up.push_back(replica);
    }
    return up;
  }
  /// Whether the router knows by now of what happened at `time`.
  [[nodiscard]] bool knows(SimTime time) const { return time != kNever && time + routing_.staleness <= now_; }
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
    return static_cast<std::size_t>(std::floor(routing_.uniform() * static_cast<double>(count)));
  }

  [[nodiscard]] std::size_t choose(const RequestSpec& request) {
    const std::string& rule = routing_.rule;
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
      replica = (replica + 1) % count_;
    } while (!is_up(replica));
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
      const NaiveReplica& one = *replicas_[first_ + a];
      const NaiveReplica& other = *replicas_[first_ + b];
      return one.gpu_blocks_used().count() * other.gpu_blocks().count() >
             other.gpu_blocks_used().count() * one.gpu_blocks().count();
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
    const std::size_t home = jump_hash(key, count_);
    return is_up(home) ? home : up()[jump_hash(mixed(key), up().size())];
  }

  /// What the router knows to have been sent to a replica.
  struct Record {
    std::set<std::vector<std::uint64_t>> chains;  // every beginning of every prompt, in whole blocks
    std::int64_t tokens = 0;
  };
  /// What a client sends is the prompt: ids of the answer are left out.
  [[nodiscard]] std::vector<std::uint64_t> blocks_of(const RequestSpec& request) const {
    std::vector<std::uint64_t> ids = request.prefix_ids;
    while (std::ssize(ids) * block_tokens_.count() > request.input.count()) ids.pop_back();
    return ids;
  }
  [[nodiscard]] Record record_of(std::size_t replica) const {
    const std::int64_t per_block = block_tokens_.count();
    Record record;
    for (const Sending& one : sent_) {
      if (one.replica != replica || one.forgotten || !knows(one.at)) continue;
      const std::vector<std::uint64_t> ids = blocks_of(one.spec);
      for (auto end = ids.begin(); end != ids.end(); ++end) record.chains.emplace(ids.begin(), std::next(end));
      record.tokens += one.spec.input.count() - std::ssize(ids) * per_block;
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
    const bool apart = *most - *fewest > routing_.balance_abs;
    if (apart && static_cast<double>(*most) > routing_.balance_rel * static_cast<double>(*fewest)) {
      return least_outstanding();
    }
    const auto covered = static_cast<double>(longest * block_tokens_.count());
    const bool follows = covered > routing_.cache_threshold * static_cast<double>(request.input.count());
    return least([&](std::size_t replica) {
      const bool passed_over = follows && shared(records.at(replica), ids) < longest;
      return std::pair(passed_over, records.at(replica).tokens);
    });
  }

  const NaiveRouting& routing_;
  const Tokens block_tokens_;
  const std::vector<std::unique_ptr<NaiveReplica>>& replicas_;
  const std::size_t first_;
  const std::size_t count_;
  SimTime now_{};
};

}  // namespace

std::unique_ptr<NaiveRouter> make_naive_router(const NaiveRouting& routing, Tokens block_tokens,
                                               const std::vector<std::unique_ptr<NaiveReplica>>& replicas,
                                               std::size_t first, std::size_t count) {
  return std::make_unique<PlainRouter>(routing, block_tokens, replicas, first, count);
}

}  // namespace spillway::oracle
