#include "sim/study/placer/server_loads.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>
#include <tuple>

namespace spillway::placer {
namespace {

/// a / b rounded up; b > 0.
std::int64_t rounded_up(std::int64_t a, std::int64_t b) { return a / b + (a % b > 0 ? 1 : 0); }

/// The least multiple of `unit` that the largest of `servers` figures can be when they add up to `total`.
std::int64_t least_maximum(std::int64_t total, std::int64_t servers, std::int64_t unit, bool compat) {
  const std::int64_t least = rounded_up(total, servers * unit) * unit;
  return compat ? std::max<std::int64_t>(0, least) : least;
}

std::int64_t sign_of(std::int64_t balance) { return balance > 0 ? 1 : balance < 0 ? -1 : 0; }

}  // namespace

Classes::Classes(const PlacementProblem& problem)
    : servers(problem.servers),
      gpus_per_server(problem.gpus_per_server),
      gpu_memory(problem.gpu_memory.count()),
      compat(problem.compat) {
  // Large models first, because they find room least easily; of equal size the largest balance first.
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t>;  // -GPUs, -|balance|, balance
  std::map<Key, ModelClass> classes;
  const auto add = [&classes](std::size_t model, std::int64_t balance, std::int64_t gpus) {
    ModelClass& of = classes[{-gpus, -std::abs(balance), balance}];
    of.balance = balance;
    of.gpus = gpus;
    of.sign = sign_of(balance);
    of.models.push_back(model);
  };
  for (std::size_t i = 0; i < problem.models.size(); ++i) {
    const PlacedModel& model = problem.models[i];
    const std::int64_t balance = model.balance.count();
    if (!compat) {
      add(i, balance, model.gpus);
      continue;
    }
    // The parts add up to the balance: the first ones have a byte more.
    const std::int64_t rest = balance % model.gpus;
    for (std::int64_t gpu = 0; gpu < model.gpus; ++gpu) {
      add(i, balance / model.gpus + (gpu < std::abs(rest) ? sign_of(rest) : 0), 1);
    }
  }
  for (auto& [key, of] : classes) list.push_back(std::move(of));
}

std::int64_t Classes::total_balance() const {
  std::int64_t total = 0;
  for (const ModelClass& one : list) total += one.balance * std::ssize(one.models);
  return total;
}

std::int64_t Classes::total_sign() const {
  std::int64_t total = 0;
  for (const ModelClass& one : list) total += one.sign * std::ssize(one.models);
  return total;
}

std::int64_t Classes::balance_unit() const {
  std::int64_t unit = 0;
  for (const ModelClass& one : list) unit = std::gcd(unit, one.balance);
  return std::max<std::int64_t>(1, unit);  // all balances may be 0
}
std::int64_t Classes::unit() const { return std::gcd(gpu_memory, balance_unit()); }

std::int64_t Classes::least_memory() const { return least_maximum(total_balance(), servers, balance_unit(), compat); }

std::int64_t Classes::least_surplus() const {
  const std::int64_t least = least_maximum(total_sign(), servers, 1, compat);
  std::int64_t models = 0;
  for (const ModelClass& one : list) {
    if (one.gpus != 1) return least;
    if (one.sign != 0) models += std::ssize(one.models);
  }
  // A server full of producers and consumers has a surplus of its GPUs' parity. Only a GPU without either changes that.
  if ((gpus_per_server - least) % 2 == 0) return least;
  const std::int64_t others = std::min(servers, servers * gpus_per_server - models);
  return least * servers - (servers - others) >= total_sign() ? least : least + 1;
}

std::int64_t objective_value(const Classes& classes, std::int64_t memory, std::int64_t surplus) {
  if (classes.compat && (memory < 0 || surplus < 0)) {
    return kForbidden - std::min<std::int64_t>(memory, 0) - std::min<std::int64_t>(surplus, 0) * classes.gpu_memory;
  }
  return memory + classes.gpu_memory * surplus;
}

ServerLoads::ServerLoads(const Classes& classes)
    : classes_(&classes),
      counts_(static_cast<std::size_t>(classes.servers), std::vector<std::int64_t>(classes.list.size())),
      loads_(static_cast<std::size_t>(classes.servers)) {}

void ServerLoads::add(std::size_t model_class, std::size_t server, std::int64_t count) {
  const ModelClass& of = classes_->list[model_class];
  counts_[server][model_class] += count;
  Load& load = loads_[server];
  load.memory += count * of.balance;
  load.surplus += count * of.sign;
  load.gpus += count * of.gpus;
}

bool ServerLoads::fits(std::size_t model_class, std::size_t server) const {
  return loads_[server].gpus + classes_->list[model_class].gpus <= classes_->gpus_per_server;
}

std::int64_t ServerLoads::value() const {
  std::int64_t memory = loads_.front().memory;
  std::int64_t surplus = loads_.front().surplus;
  for (const Load& load : loads_) {
    memory = std::max(memory, load.memory);
    surplus = std::max(surplus, load.surplus);
  }
  return objective_value(*classes_, memory, surplus);
}

}  // namespace spillway::placer
