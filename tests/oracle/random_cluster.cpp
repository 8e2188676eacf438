#include "tests/oracle/random_cluster.hpp"

namespace spillway::oracle {

void number_conversations(Dice& dice, NaiveConfig& config) {
  for (RequestSpec& request : config.requests) {
    request.traits.conversation = dice.chance(20) ? -1 : dice.between(0, 9);
  }
  config.follows.assign(config.requests.size(), {.after = -2});
}

void name_prompts(Dice& dice, NaiveConfig& config) {
  const std::int64_t families = dice.between(1, 5);
  for (RequestSpec& request : config.requests) {
    if (dice.chance(20)) continue;
    const auto family = static_cast<std::uint64_t>(dice.between(1, families));
    const std::int64_t blocks = request.input.count() / config.block_tokens.count();
    const std::int64_t common = dice.between(0, blocks);
    const std::int64_t named = dice.chance(30) ? dice.between(0, blocks) : blocks;
    for (std::int64_t b = 0; b < named; ++b) {
      const auto number = static_cast<std::uint64_t>(b);
      request.prefix_ids.push_back(b < common ? 1000 * family + number : dice.roll());
    }
  }
}

void make_bursts(Dice& dice, NaiveConfig& config) {
  std::int64_t left = 0;
  for (std::size_t i = 0; i < config.requests.size(); ++i) {
    if (left-- > 0) {
      config.requests[i].arrival = config.requests[i - 1].arrival;
    } else {
      left = dice.between(0, 12);
    }
  }
}

void meet_in_front_end(NaiveConfig& config) {
  if (config.front_end == Duration{}) return;
  for (RequestSpec& request : config.requests) {
    request.arrival = SimTime(request.arrival.ns() / config.front_end.count() * config.front_end.count());
  }
}

NaiveRouting draw_routing(Dice& dice, const std::string& rule) {
  NaiveRouting routing{.rule = rule};
  if (dice.chance(70)) routing.balance_abs = dice.between(0, 10);
  if (dice.chance(70)) routing.balance_rel = 1.0 + 0.25 * static_cast<double>(dice.between(0, 8));
  if (dice.chance(50)) routing.cache_threshold = 0.125 * static_cast<double>(dice.between(0, 8));
  if (rule == "prefix" && dice.chance(50)) routing.staleness = Duration(dice.between(1, 3000));
  return routing;
}

std::vector<NaiveFailure> draw_failures(Dice& dice, const std::vector<RequestSpec>& requests, std::size_t replicas) {
  std::vector<NaiveFailure> failures;
  const std::int64_t span = requests.back().arrival.ns() + 3000;
  for (std::size_t replica = 0; replica < replicas; ++replica) {
    if (dice.chance(30)) continue;
    const auto any = static_cast<std::size_t>(dice.between(0, std::ssize(requests) - 1));
    std::int64_t now = dice.chance(20) ? requests[any].arrival.ns() : dice.between(0, span);
    for (std::int64_t left = dice.between(1, 3); left > 0; --left) {
      failures.push_back({.at = SimTime(now), .replica = replica, .up = false});
      if (dice.chance(20)) break;
      now += dice.between(1, span / 2);
      failures.push_back({.at = SimTime(now), .replica = replica, .up = true});
      now += dice.between(1, span / 2);
    }
  }
  std::stable_sort(failures.begin(), failures.end(),
                   [](const NaiveFailure& a, const NaiveFailure& b) { return a.at < b.at; });
  return failures;
}

namespace {
RandomStream stream_of(std::int64_t seed) { return {seed, 0, "router"}; }
}  // namespace

MakeRouter router_of(const NaiveRouting& routing, Tokens block_tokens, std::int64_t seed) {
  return [routing, block_tokens, seed](const Replicas& replicas) {
    const RouterInfo& router = *RouterRegistry::instance().find(routing.rule);
    Settings settings;
    for (const Parameter& parameter : router.parameters) settings.set(parameter.name, default_value(parameter));
    if (routing.rule == "prefix") {
      settings.set("router.balance_abs", routing.balance_abs);
      settings.set("router.balance_rel", routing.balance_rel);
      settings.set("router.cache_threshold", routing.cache_threshold);
      settings.set("router.staleness", routing.staleness);
    }
    return router.make(RouterContext{settings, replicas, block_tokens, stream_of(seed)});
  };
}

void draw_from(NaiveRouting& routing, std::int64_t seed) {
  routing.uniform = [draws = stream_of(seed)]() mutable { return draws.uniform(); };
}

}  // namespace spillway::oracle
