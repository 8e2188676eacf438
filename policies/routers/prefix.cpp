// Prefix: a request goes where its prefix has been sent before, unless the load is out of balance.
//
// Source: vllm-project/router and sglang-router (the gateway of SGLang), policy "cache_aware", with its defaults. In
// this order:
//
//   out of balance   The largest number of requests that have not ended exceeds the smallest by more than
//                    router.balance_abs, and is more than router.balance_rel times the smallest: the replica with the
//                    fewest.
//   known prefix     The longest prefix of the prompt that is in the record of some replica covers more than
//                    router.cache_threshold of the prompt: that replica; of several the one with the smallest record.
//   else             The replica with the smallest record.
//
// The record of a replica is what has been sent to it, the prompts, as a tree of blocks, each counted once. It knows
// nothing of answers, nor of what the replica has evicted; it is emptied when the replica goes down. Tokens whose
// content the workload does not say are new in every request. With router.staleness the router knows of what it sent,
// and of what ended, only so much later, as one that is told by events.
#include <algorithm>
#include <deque>
#include <limits>
#include <span>
#include <unordered_map>
#include <utility>

#include "policies/parts/outstanding.hpp"
#include "sim/api/router.hpp"

namespace spillway {
namespace {

constexpr const char* kBalanceAbs = "router.balance_abs";
constexpr const char* kBalanceRel = "router.balance_rel";
constexpr const char* kThreshold = "router.cache_threshold";
constexpr const char* kStaleness = "router.staleness";

/// The prompts that were sent to each replica. A look-up is O(blocks of the prompt); memory is O(different blocks of
/// each replica).
class Records {
 public:
  Records(std::size_t replicas, Tokens block) : block_(block), held_(replicas), sizes_(replicas) {}

  void add(std::size_t replica, std::span<const std::uint64_t> blocks, Tokens input) {
    Tokens fresh = input;
    std::uint64_t chain = 0;
    for (const std::uint64_t block : blocks) {
      chain = follow(chain, block);
      std::vector<std::uint32_t>& holders = holders_[chain];
      const auto number = static_cast<std::uint32_t>(replica);
      const auto place = std::lower_bound(holders.begin(), holders.end(), number);
      if (place != holders.end() && *place == number) {
        fresh -= block_;
      } else {
        holders.insert(place, number);
        held_[replica].push_back(chain);
      }
    }
    sizes_.set(replica, sizes_.at(replica) + fresh.count());
  }
  struct Match {
    Tokens tokens{};
    std::size_t replica = 0;
  };
  /// The longest prefix in any record.
  [[nodiscard]] Match longest(std::span<const std::uint64_t> blocks) const {
    Match match;
    const std::vector<std::uint32_t>* holders = nullptr;
    std::uint64_t chain = 0;
    for (const std::uint64_t block : blocks) {
      chain = follow(chain, block);
      const auto found = holders_.find(chain);
      if (found == holders_.end()) break;
      match.tokens += block_;
      holders = &found->second;
    }
    if (holders == nullptr) return match;
    match.replica = *std::min_element(holders->begin(), holders->end(),
                                      [this](std::uint32_t a, std::uint32_t b) { return sizes_.at(a) < sizes_.at(b); });
    return match;
  }
  [[nodiscard]] std::size_t smallest() const { return sizes_.least(); }
  /// The record is empty, and the smallest of all only while its replica is up. O(its blocks).
  void empty(std::size_t replica, bool up) {
    const auto number = static_cast<std::uint32_t>(replica);
    for (const std::uint64_t chain : std::exchange(held_[replica], {})) {
      const auto entry = holders_.find(chain);
      std::erase(entry->second, number);
      if (entry->second.empty()) holders_.erase(entry);
    }
    sizes_.set(replica, up ? 0 : std::numeric_limits<std::int64_t>::max());
  }
  /// The ids of the prompt's whole blocks; a request may state more, which are those of its answer.
  [[nodiscard]] std::span<const std::uint64_t> prompt_of(const RequestSpec& request) const {
    const auto blocks = static_cast<std::size_t>(request.input.count() / block_.count());
    return std::span(request.prefix_ids).first(std::min(blocks, request.prefix_ids.size()));
  }

 private:
  static std::uint64_t follow(std::uint64_t chain, std::uint64_t block) {
    std::uint64_t state = chain ^ block;
    return split_mix(state) + chain;
  }
  Tokens block_;
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> holders_;  // replicas, ascending, by chain of blocks
  std::vector<std::vector<std::uint64_t>> held_;                           // chains, by replica
  LeastTree sizes_;                                                        // tokens of each record
};

class Prefix final : public Router {
 public:
  explicit Prefix(const RouterContext& context)
      : replicas_(context.replicas),
        balance_abs_(context.settings.get<std::int64_t>(kBalanceAbs)),
        balance_rel_(context.settings.get<double>(kBalanceRel)),
        threshold_(context.settings.get<double>(kThreshold)),
        staleness_(context.settings.get<Duration>(kStaleness)),
        outstanding_(context.replicas.count()),
        records_(context.replicas.count(), context.block_tokens) {}

  [[nodiscard]] std::size_t choose(const RequestSpec& request) override {
    learn();
    const std::size_t chosen = choice(request);
    sent_on(request, chosen);
    return chosen;
  }
  void sent_on(const RequestSpec& request, std::size_t replica) override {
    const std::span<const std::uint64_t> blocks = records_.prompt_of(request);
    note({replicas_.now(), replica, /*sent=*/true, request.input, {blocks.begin(), blocks.end()}});
  }
  void ended(std::size_t replica) override { note({replicas_.now(), replica, /*sent=*/false, {}, {}}); }
  /// The router notices that at once.
  void changed(std::size_t replica, bool up) override {
    outstanding_.set_up(replica, up);
    records_.empty(replica, up);
    for (Event& event : events_) event.gone = event.gone || event.replica == replica;
  }

 private:
  struct Event {
    SimTime at{};
    std::size_t replica = 0;
    bool sent = false;  // false: ended
    Tokens input{};
    std::vector<std::uint64_t> blocks{};
    bool gone = false;  // the replica has been down since
  };

  [[nodiscard]] std::size_t choice(const RequestSpec& request) const {
    const std::int64_t largest = outstanding_.largest();
    const std::int64_t smallest = outstanding_.smallest();
    const bool unbalanced = largest - smallest > balance_abs_ &&
                            static_cast<double>(largest) > balance_rel_ * static_cast<double>(smallest);
    if (unbalanced) return outstanding_.least();
    const Records::Match match = records_.longest(records_.prompt_of(request));
    const auto tokens = static_cast<double>(match.tokens.count());
    const bool covers = tokens > threshold_ * static_cast<double>(request.input.count());
    return covers ? match.replica : records_.smallest();
  }
  void note(Event event) {
    events_.push_back(std::move(event));
    if (staleness_ == Duration{}) learn();
  }
  /// What is older than the staleness.
  void learn() {
    for (; !events_.empty() && replicas_.now() - events_.front().at >= staleness_; events_.pop_front()) {
      const Event& event = events_.front();
      event.sent ? outstanding_.sent(event.replica) : outstanding_.ended(event.replica);
      if (event.sent && !event.gone) records_.add(event.replica, event.blocks, event.input);
    }
  }

  const Replicas& replicas_;
  const std::int64_t balance_abs_;
  const double balance_rel_;
  const double threshold_;
  const Duration staleness_;
  Outstanding outstanding_;
  Records records_;
  std::deque<Event> events_;  // that the router does not know of yet
};

std::vector<Parameter> parameters() {
  const char* const source = "vllm-project/router and SGLang's gateway, their default";
  return {
      {.name = kBalanceAbs,
       .type = ParameterType::integer,
       .unit = "requests",
       .default_value = "64",
       .minimum = 0,
       .maximum = 1e9,
       .doc = "The load is out of balance when the replica with the most requests has more than this many more than "
              "the one with the fewest, and router.balance_rel is exceeded, too",
       .source = source},
      {.name = kBalanceRel,
       .type = ParameterType::real,
       .unit = "-",
       .default_value = "1.5",
       .minimum = 1.0,
       .maximum = 1e9,
       .doc = "The load is out of balance when the replica with the most requests has more than this many times those "
              "of the one with the fewest, and router.balance_abs is exceeded, too",
       .source = source},
      {.name = kThreshold,
       .type = ParameterType::real,
       .unit = "fraction",
       .default_value = "0.3",
       .minimum = 0.0,
       .maximum = 1.0,
       .doc = "A known prefix decides when it covers more than this share of the prompt",
       .source = source},
      {.name = kStaleness,
       .type = ParameterType::duration,
       .unit = "ns",
       .default_value = "0ns",
       .minimum = 0,
       .maximum = 86'400e9,  // a day
       .doc = "Delay after which the router learns which requests it has sent to each replica, and which have ended",
       .source = "Spillway: 0, because a gateway that sends all requests knows at once what it sent"}};
}

const RegisterRouter kRegistered(RouterInfo{
    .name = "prefix",
    .summary = "Where the longest prefix of the prompt was sent before, unless the load is out of balance",
    .source = "vllm-project/router and sglang-router: cache_aware",
    .parameters = parameters(),
    .make = [](const RouterContext& context) { return std::make_unique<Prefix>(context); }});

}  // namespace
}  // namespace spillway
