// Placements by greedy choice, moves and swaps.
#include <algorithm>
#include <limits>
#include <utility>

#include "sim/core/random.hpp"
#include "sim/study/placer/server_loads.hpp"

namespace spillway::placer {
namespace {

/// Where the largest models go first, onto the server that `choose` prefers among those with room.
template <class Choose>
std::optional<ServerLoads> filled(const Classes& classes, Choose choose) {
  ServerLoads loads(classes);
  for (std::size_t c = 0; c < classes.list.size(); ++c) {
    for (std::size_t i = 0; i < classes.list[c].models.size(); ++i) {
      std::optional<std::size_t> best;
      for (std::size_t s = 0; s < loads.servers(); ++s) {
        if (loads.fits(c, s) && (!best || choose(classes.list[c], loads.load(s), loads.load(*best)))) best = s;
      }
      if (!best) return std::nullopt;
      loads.add(c, *best, 1);
    }
  }
  return loads;
}

/// The three largest figures of the servers: without any two servers, the maximum is known at once.
class Largest {
 public:
  void clear() { figures_.fill({}); }
  void add(std::int64_t figure, std::size_t server) {
    Entry entry{figure, server};
    for (Entry& one : figures_) {
      if (entry.figure > one.figure) std::swap(entry, one);
    }
  }
  [[nodiscard]] std::int64_t without(std::size_t a, std::size_t b) const {
    const auto other = std::ranges::find_if(figures_, [&](const Entry& e) { return e.server != a && e.server != b; });
    return other->figure;
  }

 private:
  struct Entry {
    std::int64_t figure = std::numeric_limits<std::int64_t>::min();
    std::size_t server = std::numeric_limits<std::size_t>::max();
  };
  std::array<Entry, 3> figures_{};
};

/// A class of the problem, or no model at all.
constexpr std::size_t kNothing = std::numeric_limits<std::size_t>::max();

class Descent {
 public:
  Descent(const Classes& classes, std::int64_t moves)
      : classes_(classes), left_(moves), random_(0, 0, "placer.local_search") {}

  ServerLoads run(ServerLoads loads) {
    const std::int64_t bound = objective_value(classes_, classes_.least_memory(), classes_.least_surplus());
    descend(loads);
    ServerLoads best = loads;
    std::int64_t value = best.value();
    const std::int64_t patience = kPatience * models();
    for (std::int64_t in_vain = 0; left_ > 0 && in_vain < patience && value > bound && loads.servers() > 1; ++in_vain) {
      ServerLoads other = best;
      shake(other);
      descend(other);
      if (other.value() > value) continue;
      if (other.value() < value) in_vain = 0;
      best = std::move(other);
      value = best.value();
    }
    return best;
  }

 private:
  /// Times to shake for each model without a better placement.
  static constexpr std::int64_t kPatience = 20;

  /// One model of class `from_a` leaves server a for b, and one of `from_b` comes back; either may be kNothing.
  struct Exchange {
    std::size_t a = 0;
    std::size_t b = 0;
    std::size_t from_a = kNothing;
    std::size_t from_b = kNothing;
  };

  /// Takes exchanges that improve until none does.
  void descend(ServerLoads& loads) {
    note(loads);
    for (bool improved = true; improved && left_ > 0;) {
      improved = false;
      for (std::size_t a = 0; a + 1 < loads.servers(); ++a) {
        for (std::size_t b = a + 1; b < loads.servers() && left_ > 0; ++b) {
          improved = exchange_any(loads, a, b) || improved;
        }
      }
    }
  }

  bool exchange_any(ServerLoads& loads, std::size_t a, std::size_t b) {
    bool improved = false;
    constexpr std::int64_t kClassesPerMove = 16;  // that are looked up in the time of a move
    left_ -= 1 + std::ssize(classes_.list) / kClassesPerMove;
    const std::vector<std::size_t> from_b = present(loads, b);
    for (const std::size_t c : present(loads, a)) {
      for (const std::size_t d : from_b) {
        const Exchange exchange{a, b, c, d};
        if (!possible(loads, exchange)) continue;
        --left_;
        if (!improves(loads, exchange)) continue;
        apply(loads, exchange);
        note(loads);
        improved = true;
      }
    }
    return improved;
  }

  [[nodiscard]] bool possible(const ServerLoads& loads, const Exchange& one) const {
    if (one.from_a == one.from_b) return false;
    if (one.from_a != kNothing && loads.count(one.from_a, one.a) == 0) return false;
    if (one.from_b != kNothing && loads.count(one.from_b, one.b) == 0) return false;
    const std::int64_t to_b = gpus(one.from_a) - gpus(one.from_b);
    return loads.load(one.b).gpus + to_b <= classes_.gpus_per_server &&
           loads.load(one.a).gpus - to_b <= classes_.gpus_per_server;
  }

  /// Lowers the objective, or leaves it and brings the two servers closer together.
  [[nodiscard]] bool improves(const ServerLoads& loads, const Exchange& one) const {
    const ServerLoads::Load& a = loads.load(one.a);
    const ServerLoads::Load& b = loads.load(one.b);
    const std::int64_t memory = balance(one.from_a) - balance(one.from_b);
    const std::int64_t surplus = sign(one.from_a) - sign(one.from_b);
    const std::int64_t value =
        objective_value(classes_, std::max({memory_.without(one.a, one.b), a.memory - memory, b.memory + memory}),
                        std::max({surplus_.without(one.a, one.b), a.surplus - surplus, b.surplus + surplus}));
    if (value != value_) return value < value_;
    // Half the change of the sum of squares over both servers: (b + d)^2 - b^2 + (a - d)^2 - a^2 = 2 d (d + b - a).
    const auto gpu_memory = static_cast<double>(classes_.gpu_memory);
    const double of_memory =
        static_cast<double>(memory) / gpu_memory * (static_cast<double>(memory + b.memory - a.memory) / gpu_memory);
    const auto of_surplus = static_cast<double>(surplus * (surplus + b.surplus - a.surplus));
    constexpr double kRounding = 1e-12;  // a change that may be none would let the descent go in circles
    return of_memory + of_surplus < -kRounding;
  }

  static void apply(ServerLoads& loads, const Exchange& one) {
    if (one.from_a != kNothing) {
      loads.add(one.from_a, one.a, -1);
      loads.add(one.from_a, one.b, 1);
    }
    if (one.from_b != kNothing) {
      loads.add(one.from_b, one.b, -1);
      loads.add(one.from_b, one.a, 1);
    }
  }

  /// Exchanges a few models at random.
  void shake(ServerLoads& loads) {
    constexpr int kExchanges = 4;
    for (int i = 0; i < kExchanges; ++i) {
      const std::size_t a = below(loads.servers());
      const std::size_t b = below(loads.servers());
      const Exchange exchange{a, b, any_of(loads, a), any_of(loads, b)};
      --left_;
      if (a != b && possible(loads, exchange)) apply(loads, exchange);
    }
  }
  std::size_t any_of(const ServerLoads& loads, std::size_t server) {
    const std::vector<std::size_t> classes = present(loads, server);
    return classes[below(classes.size())];
  }
  /// kNothing, and the classes with a model on the server.
  [[nodiscard]] std::vector<std::size_t> present(const ServerLoads& loads, std::size_t server) const {
    std::vector<std::size_t> classes{kNothing};
    for (std::size_t c = 0; c < classes_.list.size(); ++c) {
      if (loads.count(c, server) > 0) classes.push_back(c);
    }
    return classes;
  }
  std::size_t below(std::size_t count) {
    return static_cast<std::size_t>(random_.uniform() * static_cast<double>(count));
  }

  void note(const ServerLoads& loads) {
    memory_.clear();
    surplus_.clear();
    for (std::size_t s = 0; s < loads.servers(); ++s) {
      memory_.add(loads.load(s).memory, s);
      surplus_.add(loads.load(s).surplus, s);
    }
    value_ = loads.value();
  }

  [[nodiscard]] std::int64_t models() const {
    std::int64_t count = 0;
    for (const ModelClass& one : classes_.list) count += std::ssize(one.models);
    return count;
  }
  [[nodiscard]] std::int64_t balance(std::size_t c) const { return c == kNothing ? 0 : classes_.list[c].balance; }
  [[nodiscard]] std::int64_t sign(std::size_t c) const { return c == kNothing ? 0 : classes_.list[c].sign; }
  [[nodiscard]] std::int64_t gpus(std::size_t c) const { return c == kNothing ? 0 : classes_.list[c].gpus; }

  const Classes& classes_;
  std::int64_t left_;
  RandomStream random_;
  Largest memory_;
  Largest surplus_;
  std::int64_t value_ = 0;
};

}  // namespace

std::optional<ServerLoads> greedy_placement(const Classes& classes) {
  using Load = ServerLoads::Load;
  // Producers go where least is left to lend, consumers where most is.
  const auto balanced = [](const ModelClass& one, const Load& load, const Load& best) {
    if (load.surplus != best.surplus) return one.sign < 0 ? load.surplus > best.surplus : load.surplus < best.surplus;
    return one.balance < 0 ? load.memory > best.memory : load.memory < best.memory;
  };
  if (auto loads = filled(classes, balanced)) return loads;
  // Best fit decreasing, which packs models of several sizes where balancing leaves gaps.
  return filled(classes, [](const ModelClass&, const Load& load, const Load& best) { return load.gpus > best.gpus; });
}

ServerLoads improve(const Classes& classes, ServerLoads loads, std::int64_t moves) {
  return Descent(classes, moves).run(std::move(loads));
}

}  // namespace spillway::placer
