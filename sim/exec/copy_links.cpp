#include "sim/exec/copy_links.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/core/error.hpp"

namespace spillway {
namespace {

__extension__ using Wide = __int128;  // holds every product of two int64

constexpr double kMillion = 1e6;

/// To a millionth, as the profile's own ratios.
double whole_millionths(double share) { return 1.0 - std::floor((1.0 - share) * kMillion + 0.5) / kMillion; }

double capacity_of(const Slowdown& slowdown) {
  return static_cast<double>(slowdown.den) / static_cast<double>(slowdown.num);
}

double times(const Slowdown& slowdown) { return static_cast<double>(slowdown.num) / static_cast<double>(slowdown.den); }

/// Bytes/s. A copy that takes no time loads no shared link.
double rate_of(const TransferSize& copy) {
  return copy.transfer > Duration{} ? static_cast<double>(copy.bytes.count()) / to_seconds(copy.transfer) : 0.0;
}
double rate_of(const Copy& copy) { return rate_of({copy.bytes, copy.transfer}); }

}  // namespace

TransferSizes sizes_of(const Transfers& transfers) {
  TransferSizes sizes;
  for (std::size_t lane = 0; lane < transfers.size(); ++lane) {
    if (transfers[lane] != nullptr) sizes[lane] = {transfers[lane]->bytes, transfers[lane]->transfer};
  }
  return sizes;
}

void add_shared_links(Links& links, std::span<const BytesPerSecond> capacities) {
  for (const BytesPerSecond& capacity : capacities) links.add_link(capacity.value());
}

CopyLinks::CopyLinks(const CopySharing& sharing) : CopyLinks(sharing, {}, {}) {}

CopyLinks::CopyLinks(const CopySharing& sharing, CopyRoute route, std::span<const BytesPerSecond> shared)
    : route_(std::move(route)),
      streams_(route_.cpu.empty() ? kLinks - 1 : kLinks),
      shares_(route_.shares()),
      shared_(shared),
      duplex_{capacity_of(sharing.h2d), capacity_of(sharing.d2h)} {
  for (const auto* crossings : route_.all()) {
    for (const LinkCrossing& crossing : *crossings) {
      SPILLWAY_CHECK(crossing.link < shared_.size(), "a route over a link that is not there");
      SPILLWAY_CHECK(crossing.gpus > 0, "a route over a link that no GPU crosses");
    }
  }
  fill_own();
}

void CopyLinks::set_traffic(std::vector<double> shares) {
  traffic_ = std::move(shares);
  ++traffic_changes_;
  std::erase_if(traffic_, [](double& share) { return (share = whole_millionths(share)) <= 0.0; });
  fill_own();
}

void CopyLinks::fill_own() {
  answers_.clear();
  own_idle_ = traffic_.empty() && duplex_[0] == 1.0 && duplex_[1] == 1.0;
  // At one byte per second no shared link matters.
  lone_ = {fill({{1.0, -1.0, -1.0, -1.0, -1.0}})[0], fill({{-1.0, 1.0, -1.0, -1.0, -1.0}})[1]};
  duplexed_ = fill({{1.0, 1.0, -1.0, -1.0, -1.0}});
}

CopyLinks::Demands CopyLinks::demands_of(const TransferSizes& transfers) {
  Demands demands;
  for (std::size_t lane = 0; lane < transfers.size(); ++lane) {
    if (transfers[lane].bytes >= Bytes(0)) demands.rate[lane] = rate_of(transfers[lane]);
  }
  return demands;
}

void CopyLinks::expect_on_shared(const Copy& copy) {
  const auto lane = static_cast<std::size_t>(copy.stream) - static_cast<std::size_t>(Stream::h2d);
  if (lane >= kLinks) return;
  const TransferSize size{copy.bytes, copy.transfer};
  if (expected_[0][lane] == size || expected_[1][lane] == size) return;
  expected_[1][lane] = std::exchange(expected_[0][lane], size);
  if (rate_of(copy) <= most_[lane]) return;
  most_[lane] = rate_of(copy);
  const auto routes = std::as_const(route_).all();
  std::vector<double> wanted(shared_.size());
  for (std::size_t other = 0; other < kLinks; ++other) {
    for (const LinkCrossing& crossing : *routes[other]) {
      double& sum = wanted[crossing.link];
      const double rate = static_cast<double>(crossing.gpus) * most_[other];
      if (rate > shared_[crossing.link].value()) fits_alone_ = false;
      sum += rate;
      if (sum > shared_[crossing.link].value()) contended_ = true;
    }
  }
}

const Slowdowns& CopyLinks::alone_on_shared(const Transfers& transfers) {
  const auto transferring = std::ranges::count_if(transfers, [](const Copy* copy) { return copy != nullptr; });
  if (transferring == 0 || (transferring == 1 && free_alone())) return kUnslowed;
  const TransferSizes asked = sizes_of(transfers);
  // Sets that differ have other sums, as a rule, so one comparison each will do.
  std::int64_t sum = 0;
  for (const TransferSize& size : asked) sum = 3 * sum + size.bytes.count() + size.transfer.count();
  for (std::size_t i = 0; i < answers_.size(); ++i, ++next_answer_) {
    if (next_answer_ >= answers_.size()) next_answer_ = 0;
    const Answer& answer = answers_[next_answer_];
    if (answer.sum != sum || answer.asked != asked) continue;
    ++next_answer_;
    return answer.slowdowns;
  }
  const Answer now{sum, asked, fill(demands_of(asked))};
  if (answers_.size() < kMostAnswers) return answers_.emplace_back(now).slowdowns;
  Answer& oldest = answers_[std::exchange(oldest_, (oldest_ + 1) % kMostAnswers)];
  oldest = now;
  return oldest.slowdowns;
}

Slowdowns CopyLinks::fill(const Demands& demands) const {
  Links links;
  add_shared_links(links, shared_);
  const Flows flows = add_flows(links, demands);
  links.fill();
  Slowdowns slowdowns;
  for (std::size_t lane = 0; lane < flows.size(); ++lane) {
    if (flows[lane]) slowdowns[lane] = slowdown_at(links.rate(*flows[lane]));
  }
  return slowdowns;
}

CopyLinks::Flows CopyLinks::add_flows(Links& all, const TransferSizes& transfers,
                                      std::span<const std::size_t> places) const {
  return add_flows(all, demands_of(transfers), places);
}

CopyLinks::Flows CopyLinks::add_flows(Links& all, const Demands& demands, std::span<const std::size_t> places) const {
  Flows flows;
  const bool both = demands.rate[0] >= 0.0 && demands.rate[1] >= 0.0;
  const auto shared = route_.all();
  for (std::size_t lane = 0; lane < flows.size(); ++lane) {
    const double rate = demands.rate[lane];
    if (rate < 0.0) continue;
    const double weight = rate > 0.0 ? 1.0 / rate : 1.0;  // equal rises in bytes/s
    std::vector<Hop> route;
    const bool to_host = lane < duplex_.size();
    const auto cross_own = [&](double capacity) {
      const Hop own{all.add_link(capacity)};
      route.push_back(own);
      for (const double share : to_host ? std::span(traffic_) : std::span<const double>()) {
        all.add_flow({.route = {&own, 1}, .demand = share * capacity, .weight = weight});
      }
    };
    cross_own(1.0);
    if (both && to_host && duplex_[lane] < 1.0) cross_own(duplex_[lane]);
    for (const LinkCrossing& crossing : *shared[lane]) {
      const std::size_t link = places.empty() ? crossing.link : places[crossing.link];
      route.push_back({static_cast<LinkId>(link), static_cast<double>(crossing.gpus) * rate});
    }
    flows[lane] = all.add_flow({.route = route, .demand = 1.0, .weight = weight});
  }
  return flows;
}

PlannedCopies::PlannedCopies(const ExecutionModel& model, CopyRoute route, std::span<const BytesPerSecond> shared)
    : model_(model), links_(model.copy_sharing(), std::move(route), shared) {}

Copy PlannedCopies::copy_of(Stream direction, Bytes bytes, const CopyTime& time) const {
  return {.stream = direction, .bytes = bytes, .launch = time.launch, .transfer = time.transfer};
}

CopyTime PlannedCopies::copy(Stream direction, std::int64_t copies, Bytes bytes, CopyMechanism mechanism) const {
  CopyTime time = model_.copy(direction, copies, bytes, mechanism);
  const Copy copy = copy_of(direction, bytes, time);
  const std::size_t lane = static_cast<std::size_t>(direction) - static_cast<std::size_t>(Stream::h2d);
  Transfers transfers{};
  transfers[lane] = &copy;
  links_.expect(copy);
  const Slowdown slowdown = links_.alone(transfers)[lane];
  time.transfer = Duration(
      static_cast<std::int64_t>((Wide{time.transfer.count()} * slowdown.num + slowdown.den - 1) / slowdown.den));
  return time;
}

CopySharing PlannedCopies::copy_sharing() const {
  if (!links_.shares()) return model_.copy_sharing();
  const auto one = [this](Stream direction) {
    const Bytes bytes(1'000'000'000);
    return copy_of(direction, bytes, model_.copy(direction, 1, bytes, CopyMechanism::single));
  };
  const Copy in = one(Stream::h2d);
  const Copy out = one(Stream::d2h);
  links_.expect(in);
  links_.expect(out);
  const Slowdowns both = links_.alone({&in, &out});
  const auto longer = [](const Slowdown& together, const Slowdown& apart) {
    return slowdown_at(std::min(1.0, times(apart) / times(together)));
  };
  CopySharing sharing = model_.copy_sharing();
  sharing.h2d = longer(both[0], links_.alone({&in, nullptr})[0]);
  sharing.d2h = longer(both[1], links_.alone({nullptr, &out})[1]);
  return sharing;
}

}  // namespace spillway
