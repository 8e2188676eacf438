#include "sim/study/placer/placement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <utility>

#include "sim/core/error.hpp"
#include "sim/core/text.hpp"
#include "sim/study/placer/server_loads.hpp"

namespace spillway::placer {
namespace {

std::string plural(std::int64_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

/// What no placement can meet, whatever it does.
std::vector<Problem> hopeless(const PlacementProblem& problem) {
  std::vector<Problem> problems;
  const auto add = [&problems](Problem one) {
    // Copies of a model have the same problem.
    const auto same = [&one](const Problem& other) { return other.what == one.what; };
    if (std::ranges::none_of(problems, same)) problems.push_back(std::move(one));
  };
  std::int64_t gpus = 0;
  for (const PlacedModel& model : problem.models) {
    gpus += model.gpus;
    const Bytes own = problem.gpu_memory * model.gpus;
    if (model.balance > own) {
      add({fmt::format("{} lends {}, and {} of {} have {}", model.name, format_bytes(model.balance),
                       plural(model.gpus, "GPU"), format_bytes(problem.gpu_memory), format_bytes(own)),
           model.name, "lower lends: a model lends HBM that it leaves free", true});
    }
    if (model.gpus > problem.gpus_per_server && !problem.compat) {
      add({fmt::format("no placement keeps a model on one server: {} takes {}, and a server has {}", model.name,
                       plural(model.gpus, "GPU"), problem.gpus_per_server),
           model.name, "lower tensor_parallel, or use larger servers", true});
    }
  }
  const std::int64_t there = problem.servers * problem.gpus_per_server;
  if (gpus > there) {
    problems.push_back(
        {fmt::format("no placement gives each GPU one model: the models take {}, and {} of {} have {}",
                     plural(gpus, "GPU"), plural(problem.servers, "server"), problem.gpus_per_server, there),
         "servers",
         fmt::format("use {} or fewer models",
                     plural((gpus + problem.gpus_per_server - 1) / problem.gpus_per_server, "server")),
         true});
  }
  return problems;
}

/// Models that fill a server only in part leave gaps that no other model fits.
ConfigError no_packing(const PlacementProblem& problem, bool proven) {
  return ConfigError::infeasible(
      fmt::format("{} keeps the GPUs of each model on one server: {} on {} of {} GPUs leave gaps",
                  proven ? "no placement" : "the search ended before a placement was found that",
                  plural(std::ssize(problem.models), "model"), plural(problem.servers, "server"),
                  problem.gpus_per_server),
      "servers", "use more servers, or a tensor_parallel that divides their GPUs");
}

ConfigError all_consumers() {
  return ConfigError::infeasible(
      "no placement exists in which a server lends as much as it borrows. The published objective needs one, because "
      "both of its maxima are at least 0",
      "compat", "leave out --compat, or add producers");
}

/// The servers of each model, from the number of models of each class. Servers are numbered as they are filled: models
/// in their order, each to the first server that has a model of its class left.
std::vector<std::vector<std::int64_t>> servers_of(const PlacementProblem& problem, const Classes& classes,
                                                  const ServerLoads& loads) {
  std::vector<std::vector<std::int64_t>> servers(problem.models.size());
  for (std::size_t c = 0; c < classes.list.size(); ++c) {
    std::size_t next = 0;
    for (std::size_t s = 0; s < loads.servers(); ++s) {
      for (std::int64_t i = 0; i < loads.count(c, s); ++i) {
        servers[classes.list[c].models[next++]].push_back(static_cast<std::int64_t>(s));
      }
    }
  }
  // The first model is on server 0, the next one that is elsewhere on server 1, and so on.
  std::vector<std::optional<std::int64_t>> renamed(loads.servers());
  std::int64_t used = 0;
  for (std::vector<std::int64_t>& of_model : servers) {
    for (std::int64_t& server : of_model) {
      std::optional<std::int64_t>& name = renamed[static_cast<std::size_t>(server)];
      if (!name) name = used++;
      server = *name;
    }
  }
  return servers;
}

}  // namespace

double Placement::gap() const {
  if (value == bound) return 0.0;
  const auto larger = static_cast<double>(std::max(std::abs(value.count()), std::abs(bound.count())));
  return static_cast<double>((value - bound).count()) / larger;
}

PlacementObjective objective_of(const PlacementProblem& problem,
                                const std::vector<std::vector<std::int64_t>>& servers) {
  const Classes classes(problem);
  ServerLoads loads(classes);
  std::vector<std::size_t> next(servers.size());
  for (std::size_t c = 0; c < classes.list.size(); ++c) {
    for (const std::size_t model : classes.list[c].models) {
      loads.add(c, static_cast<std::size_t>(servers[model][next[model]++]), 1);
    }
  }
  PlacementObjective objective{Bytes(loads.load(0).memory), loads.load(0).surplus};
  for (std::size_t s = 1; s < loads.servers(); ++s) {
    objective.memory = std::max(objective.memory, Bytes(loads.load(s).memory));
    objective.surplus = std::max(objective.surplus, loads.load(s).surplus);
  }
  return objective;
}

void pair_up(const PlacementProblem& problem, Placement& placement) {
  struct Side {
    std::size_t model = 0;
    std::int64_t size = 0;
  };
  const auto server_count = static_cast<std::size_t>(problem.servers);
  std::vector<std::vector<Side>> producers(server_count);
  std::vector<std::vector<Side>> consumers(server_count);
  for (std::size_t i = 0; i < problem.models.size(); ++i) {
    const std::int64_t balance = problem.models[i].balance.count();
    if (balance == 0) continue;
    // A model whose GPUs are apart lends and borrows with each of them.
    for (const std::int64_t server : placement.servers[i]) {
      auto& sides = (balance > 0 ? producers : consumers)[static_cast<std::size_t>(server)];
      sides.push_back({i, std::abs(balance) / std::ssize(placement.servers[i])});
    }
  }
  placement.pairs.clear();
  placement.unmatched.clear();
  for (std::size_t s = 0; s < server_count; ++s) {
    std::ranges::stable_sort(producers[s], std::ranges::greater{}, &Side::size);
    std::ranges::stable_sort(consumers[s], std::ranges::greater{}, &Side::size);
    for (std::size_t i = 0; i < consumers[s].size(); ++i) {
      if (i < producers[s].size()) {
        placement.pairs.push_back({producers[s][i].model, consumers[s][i].model});
      } else {
        placement.unmatched.push_back(consumers[s][i].model);
      }
    }
  }
  std::ranges::sort(placement.unmatched);
}

Placement place(const PlacementProblem& problem, const PlacementEffort& effort) {
  if (std::vector<Problem> problems = hopeless(problem); !problems.empty()) throw ConfigError(std::move(problems));
  const Classes classes(problem);
  std::optional<ServerLoads> best = greedy_placement(classes);
  if (best) best = improve(classes, std::move(*best), effort.moves);
  std::int64_t bound = objective_value(classes, classes.least_memory(), classes.least_surplus());
  constexpr std::int64_t kMostColumns = 10'000;  // whose first linear program takes about a second
  const bool small = std::ssize(classes.list) * classes.servers <= kMostColumns;
  if (!best || best->value() >= kForbidden || (small && best->value() > bound)) {
    ExactOutcome exact = solve_exactly(classes, best, effort.pivots);
    if (exact.better && (!best || exact.better->value() < best->value())) best = std::move(exact.better);
    if (!best) throw no_packing(problem, !exact.solvable);
    if (best->value() >= kForbidden) throw all_consumers();
    bound = exact.bound;
  }
  Placement placement;
  placement.servers = servers_of(problem, classes, *best);
  placement.objective = objective_of(problem, placement.servers);
  placement.value = placement.objective.value(problem.gpu_memory);
  placement.bound = std::min(placement.value, Bytes(bound));
  pair_up(problem, placement);
  return placement;
}

}  // namespace spillway::placer
