#include "sim/report/time_series.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <string_view>
#include <utility>

#include "sim/core/error.hpp"
#include "sim/engine/iteration_runner.hpp"

namespace spillway {
namespace {

struct StreamText {
  std::string_view name;
  std::string_view what;
};
/// Of Stream but compute, in order.
constexpr std::array<StreamText, static_cast<std::size_t>(kStreams) - 1> kStreamTexts{
    {{"h2d", "copies from the host"},
     {"d2h", "copies to the host"},
     {"peer_in", "copies from other GPUs"},
     {"peer_out", "copies to other GPUs"},
     {"cpu", "attention or experts on the CPU"}}};
/// Of Wait, in order.
constexpr std::array<StreamText, kWaits> kWaitTexts{{{"weights", "weights"},
                                                     {"layers", "layers or their KV"},
                                                     {"kv", "KV that requests swap or load"},
                                                     {"cpu_attention", "attention on the CPU"},
                                                     {"queries", "queries on the way to the CPU"},
                                                     {"outputs", "outputs on the way back from the CPU"},
                                                     {"experts", "experts on the CPU"}}};

}  // namespace

struct TimeSeries::Column {
  std::string name;
  std::string definition;
  std::size_t sum = 0;
  double scale = 1.0;    // of the sum, before it is divided by the bin's length in nanoseconds
  std::size_t over = 0;  // != 0: divided by this sum instead
  std::size_t tier = kMostTiers;
};

/// The bins of a replica.
class TimeSeries::Instance final : public InstanceObserver {
 public:
  explicit Instance(TimeSeries& series) : series_(series) {}

  void begins(std::span<const std::string> tiers, SimTime /*now*/) override {
    stopped_ = kNever;
    tiers_.clear();
    for (const std::string& name : tiers) {
      auto found = std::ranges::find(series_.tiers_, name);
      if (found == series_.tiers_.end()) found = series_.tiers_.insert(found, name);
      tiers_.push_back(static_cast<std::size_t>(found - series_.tiers_.begin()));
      SPILLWAY_CHECK(tiers_.back() < kMostTiers, "more tiers than a time series has columns for");
      has_tier_[tiers_.back()] = true;
    }
  }
  void sub_batch(const SubBatchWork& work) override {
    prompt_ += work.prompt;
    decodes_ += work.decodes;
  }
  void executed(const ExecutedIteration& iteration) override {
    report({.start = iteration.start,
            .end = iteration.end,
            .time = kBusy,
            .amounts = {{{kPromptTokens, prompt_.count()}, {kDecodeTokens, decodes_}}}});
    prompt_ = Tokens(0);
    decodes_ = 0;
  }
  void copied(const Copy& copy, SimTime started, SimTime ended) override {
    const auto stream = static_cast<std::size_t>(copy.stream);
    report(
        {.start = started, .end = ended, .time = kBusy + stream, .amounts = {{{kBytes + stream, copy.bytes.count()}}}});
  }
  void handed_over(std::uint32_t /*index*/, Bytes bytes, bool came, SimTime began, SimTime arrived) override {
    series_.hands_over_ = true;
    const std::size_t first = kHandedOver + (came ? 0U : 2U);
    report({.start = began, .end = arrived, .time = first, .amounts = {{{first + 1, bytes.count()}}}});
  }
  void waited(Wait what, SimTime from, SimTime until) override {
    report({.start = from, .end = until, .time = kWaited + static_cast<std::size_t>(what), .amounts = {}});
  }
  void lasted(SimTime from, SimTime until, const InstanceLevels& levels) override {
    series_.reach(until);
    const auto goes_on = [until](const Piece& one) { return one.end > until; };
    const auto passed = std::partition(pieces_.begin(), pieces_.end(), goes_on);
    std::for_each(passed, pieces_.end(), [&](const Piece& one) { add(one, until); });
    pieces_.erase(passed, pieces_.end());
    visit(from, until, [&](Bin& bin, SimTime begin, SimTime end) {
      const Wide length = (end - begin).count();
      bin[kRunning] += levels.running * length;
      bin[kWaiting] += levels.waiting * length;
      for (std::size_t i = 0; i < levels.tiers.size(); ++i) {
        bin[kUsed + 2 * tiers_[i]] += levels.tiers[i].used.count() * length;
        bin[kUsed + 2 * tiers_[i] + 1] += levels.tiers[i].total.count() * length;
      }
    });
  }
  void stopped(SimTime now) override {
    flush(now);
    stopped_ = now;
  }

  /// What was reported counts up to `end`.
  void flush(SimTime end) {
    series_.reach(end);
    for (const Piece& one : pieces_) add(one, end);
    pieces_.clear();
  }
  void join(std::int64_t factor) {
    const auto step = static_cast<std::size_t>(factor);
    for (std::size_t i = 0; i < bins_.size(); ++i) {
      Bin& to = bins_[i / step];
      if (i % step == 0) {
        to = bins_[i];
      } else {
        for (std::size_t s = 0; s < kSums; ++s) to[s] += bins_[i][s];
      }
    }
    bins_.resize((bins_.size() + step - 1) / step);
  }
  [[nodiscard]] Wide sum(std::size_t bin, std::size_t which) const {
    return bin < bins_.size() ? bins_[bin][which] : Wide{0};
  }
  [[nodiscard]] bool has_tier(std::size_t tier) const { return has_tier_[tier]; }

 private:
  /// Something that lasts: its time, and amounts that are spread evenly over it.
  struct Piece {
    SimTime start{};
    SimTime end{};
    std::size_t time = 0;
    std::array<std::pair<std::size_t, std::int64_t>, 2> amounts{};
  };

  void report(const Piece& piece) {
    if (stopped_ == kNever) {
      pieces_.push_back(piece);
    } else if (piece.start < stopped_) {
      add(piece, stopped_);  // a copy that was under way
    }
  }
  /// Calls visit(bin, begin, end) for the part of the interval in each bin, at least once.
  template <class Visit>
  void visit(SimTime from, SimTime until, Visit visit) {
    const std::int64_t width = series_.width_.count();
    std::int64_t number = from.ns() / width;
    do {
      if (bins_.size() <= static_cast<std::size_t>(number)) bins_.resize(static_cast<std::size_t>(number) + 1);
      const SimTime begin = std::max(from, SimTime(number * width));
      const SimTime end = std::min(until, SimTime((number + 1) * width));
      visit(bins_[static_cast<std::size_t>(number)], begin, end);
      ++number;
    } while (number * width < until.ns());
  }
  /// Adds a piece up to `limit`.
  void add(const Piece& piece, SimTime limit) {
    if (piece.start > limit) return;
    const std::int64_t length = (piece.end - piece.start).count();
    const auto so_far = [&](std::int64_t amount, SimTime time) {
      return length == 0 ? amount : static_cast<std::int64_t>(Wide{amount} * (time - piece.start).count() / length);
    };
    visit(piece.start, std::min(piece.end, limit), [&](Bin& bin, SimTime begin, SimTime end) {
      bin[piece.time] += (end - begin).count();
      for (const auto& [sum, amount] : piece.amounts) {
        bin[sum] += length == 0 ? amount : so_far(amount, end) - so_far(amount, begin);
      }
    });
  }

  TimeSeries& series_;
  SimTime stopped_ = kNever;
  std::vector<std::size_t> tiers_;  // of the instance, in TimeSeries::tiers_
  std::array<bool, kMostTiers> has_tier_{};
  std::vector<Bin> bins_;
  std::vector<Piece> pieces_;  // not known to have happened
  Tokens prompt_{};            // of the iteration in flight
  std::int64_t decodes_ = 0;
};

TimeSeries::TimeSeries() = default;
TimeSeries::~TimeSeries() = default;

InstanceObserver* TimeSeries::observer(std::size_t replica) {
  std::unique_ptr<Instance>& one = instances_[replica];
  if (!one) one = std::make_unique<Instance>(*this);
  return one.get();
}

std::size_t TimeSeries::most_bins() const {
  return std::clamp<std::size_t>(kMostRows / std::max<std::size_t>(1, instances_.size()), 100, kMostBins);
}

void TimeSeries::reach(SimTime end) {
  end_ = std::max(end_, end);
  while (bins() > most_bins()) join(doubled_ ? 5 : 2);
}

std::size_t TimeSeries::bins() const {
  return static_cast<std::size_t>((end_.ns() + width_.count() - 1) / width_.count());
}

void TimeSeries::join(std::int64_t factor) {
  for (auto& [replica, one] : instances_) one->join(factor);
  width_ = width_ * factor;
  doubled_ = !doubled_;
}

void TimeSeries::finish() {
  const SimTime end = end_;
  for (auto& [replica, one] : instances_) one->flush(end);
}

void TimeSeries::coarsen(std::size_t most) {
  while (bins() > most) join(doubled_ ? 5 : 2);
}

std::vector<TimeSeries::Column> TimeSeries::all_columns() const {
  constexpr double kPerSecond = 1e9;
  std::vector<Column> columns{
      {.name = "running_requests", .definition = "Requests in the batch", .sum = kRunning},
      {.name = "waiting_requests",
       .definition = "Requests that have arrived and are not in the batch",
       .sum = kWaiting},
      {.name = "busy_fraction", .definition = "Share of the time in which an iteration ran", .sum = kBusy},
      {.name = "prefill_tokens_per_s",
       .definition = "Tokens of prompts computed, and of contexts computed again",
       .sum = kPromptTokens,
       .scale = kPerSecond},
      {.name = "decode_tokens_per_s",
       .definition = "Tokens computed one by one after the first of each answer",
       .sum = kDecodeTokens,
       .scale = kPerSecond}};
  for (std::size_t i = 0; i < kStreamTexts.size(); ++i) {
    const StreamText& text = kStreamTexts[i];
    columns.push_back({.name = fmt::format("{}_busy_fraction", text.name),
                       .definition = fmt::format("Share of the time with {} under way, launches included", text.what),
                       .sum = kBusy + i + 1});
    columns.push_back({.name = fmt::format("{}_bytes_per_s", text.name),
                       .definition = fmt::format("Bytes of {}, per GPU", text.what),
                       .sum = kBytes + i + 1,
                       .scale = kPerSecond});
  }
  for (std::size_t i = 0; i < kWaitTexts.size(); ++i) {
    columns.push_back(
        {.name = fmt::format("waits_for_{}_fraction", kWaitTexts[i].name),
         .definition = fmt::format("Share of the time in which the GPU waited for {}", kWaitTexts[i].what),
         .sum = kWaited + i});
  }
  for (const std::size_t way : hands_over_ ? std::vector<std::size_t>{0, 1} : std::vector<std::size_t>{}) {
    const char* const name = way == 0 ? "handover_in" : "handover_out";
    const char* const what = way == 0 ? "from a prefill replica" : "to a decode replica";
    columns.push_back({.name = fmt::format("{}_transfers", name),
                       .definition = fmt::format("Transfers of KV {} under way, launches included", what),
                       .sum = kHandedOver + 2 * way});
    columns.push_back({.name = fmt::format("{}_bytes_per_s", name),
                       .definition = fmt::format("Bytes of KV {}, per GPU", what),
                       .sum = kHandedOver + 2 * way + 1,
                       .scale = kPerSecond});
  }
  for (std::size_t i = 0; i < tiers_.size(); ++i) {
    columns.push_back({.name = fmt::format("{}_kv_blocks", tiers_[i]),
                       .definition = fmt::format("KV blocks in use on the tier {}", tiers_[i]),
                       .sum = kUsed + 2 * i,
                       .tier = i});
    columns.push_back({.name = fmt::format("{}_kv_fraction", tiers_[i]),
                       .definition = fmt::format("Share of the KV blocks of the tier {} that are in use", tiers_[i]),
                       .sum = kUsed + 2 * i,
                       .over = kUsed + 2 * i + 1,
                       .tier = i});
  }
  return columns;
}

std::vector<SeriesColumn> TimeSeries::columns() const {
  std::vector<SeriesColumn> columns;
  for (Column& one : all_columns()) columns.push_back({std::move(one.name), std::move(one.definition)});
  return columns;
}

SimTime TimeSeries::begin_of(std::size_t bin) const { return SimTime() + width_ * static_cast<std::int64_t>(bin); }
SimTime TimeSeries::end_of(std::size_t bin) const { return std::min(end_, begin_of(bin + 1)); }

std::vector<std::vector<double>> TimeSeries::values(std::size_t instance) const {
  const Instance& one = *std::next(instances_.begin(), static_cast<std::ptrdiff_t>(instance))->second;
  std::vector<std::vector<double>> values;
  for (const Column& column : all_columns()) {
    std::vector<double>& of_column = values.emplace_back();
    for (std::size_t bin = 0; bin < bins(); ++bin) {
      const auto sum = static_cast<double>(one.sum(bin, column.sum));
      const double over = column.over > 0 ? static_cast<double>(one.sum(bin, column.over))
                                          : static_cast<double>((end_of(bin) - begin_of(bin)).count());
      const bool exists = (column.tier == kMostTiers || one.has_tier(column.tier)) && over > 0.0;
      of_column.push_back(exists ? sum * column.scale / over : std::numeric_limits<double>::quiet_NaN());
    }
  }
  return values;
}

std::string TimeSeries::csv() const {
  std::string out = "instance,begin_s,end_s";
  for (const Column& column : all_columns()) out += "," + column.name;
  out += "\n";
  for (std::size_t i = 0; i < instances_.size(); ++i) {
    const std::vector<std::vector<double>> all = values(i);
    for (std::size_t bin = 0; bin < bins(); ++bin) {
      fmt::format_to(std::back_inserter(out), "{},{},{}", i, to_seconds(begin_of(bin)), to_seconds(end_of(bin)));
      for (const std::vector<double>& column : all) {
        out += ",";
        if (!std::isnan(column[bin])) fmt::format_to(std::back_inserter(out), "{}", column[bin]);
      }
      out += "\n";
    }
  }
  return out;
}

}  // namespace spillway
