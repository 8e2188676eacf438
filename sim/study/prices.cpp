#include "sim/study/prices.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "hwmodels/catalog.hpp"
#include "hwmodels/external_names.hpp"
#include "sim/config/names.hpp"
#include "sim/core/printable.hpp"
#include "sim/core/text.hpp"
#include "sim/study/result.hpp"

namespace spillway {
namespace {

constexpr double kHighestPrice = 1e6;

/// One entry of a file of prices.
struct ListedPrice {
  std::string hardware;
  double per_hour = 0.0;
  std::string date;
  std::string source;
};

/// YYYY-MM-DD with a month and a day that exist in some year.
bool is_date(const std::string& text) {
  constexpr std::string_view kForm = "dddd-dd-dd";
  if (text.size() != kForm.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool digit = std::isdigit(static_cast<unsigned char>(text[i])) != 0;
    if (kForm[i] == 'd' ? !digit : text[i] != '-') return false;
  }
  constexpr std::array<int, 12> kDays{31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  const int month = std::stoi(text.substr(5, 2));
  const int day = std::stoi(text.substr(8, 2));
  return month >= 1 && month <= 12 && day >= 1 && day <= kDays.at(static_cast<std::size_t>(month - 1));
}

class PriceFile {
 public:
  explicit PriceFile(std::string path) : path_(std::move(path)) {
    const nlohmann::json document =
        nlohmann::json::parse(hwmodels::read_file(path_), nullptr, /*allow_exceptions=*/false);
    if (document.is_discarded()) fail("is not JSON", "");
    const bool list = document.is_object() && document.contains("prices") && document["prices"].is_array();
    if (!list) fail("holds no list \"prices\"", "");
    for (const auto& [key, value] : document.items()) {
      if (key != "prices") fail(fmt::format("unknown field \"{}\"", brief(key)), "/" + key);
    }
    for (std::size_t i = 0; i < document["prices"].size(); ++i) {
      read(document["prices"][i], fmt::format("/prices/{}", i));
    }
    if (!problems_.empty()) throw DataError(std::move(problems_));
    if (prices_.empty()) fail("holds no price", "/prices");
  }

  /// The latest price of hardware of that name; null when there is none.
  [[nodiscard]] const ListedPrice* latest(const std::string& hardware) const {
    const ListedPrice* best = nullptr;
    for (const ListedPrice& one : prices_) {
      if (one.hardware != hardware) continue;
      if (best == nullptr || one.date > best->date) best = &one;
    }
    return best;
  }
  [[nodiscard]] std::vector<std::string> hardware() const {
    std::vector<std::string> names;
    for (const ListedPrice& one : prices_) {
      if (std::ranges::find(names, one.hardware) == names.end()) names.push_back(one.hardware);
    }
    return names;
  }

 private:
  static constexpr const char* kForm =
      R"({"hardware": "h100-80gb-sxm", "price_per_hour": 2.5, "date": "2026-11-01", "source": "where it is from"})";

  [[noreturn]] void fail(const std::string& what, const std::string& pointer) const {
    throw DataError(what, place(pointer), fmt::format("write {{\"prices\": [{}]}}", kForm));
  }
  [[nodiscard]] std::string place(const std::string& pointer) const {
    return pointer.empty() ? path_ : fmt::format("{} at {}", path_, pointer);
  }
  void complain(const std::string& what, const std::string& pointer) {
    problems_.push_back({what, place(pointer), fmt::format("an entry has the form {}", kForm)});
  }

  void read(const nlohmann::json& entry, const std::string& pointer) {
    if (!entry.is_object()) return complain("must be an object", pointer);
    constexpr std::array<const char*, 3> kTexts{"hardware", "date", "source"};
    for (const auto& [key, value] : entry.items()) {
      const bool known = key == "price_per_hour" || std::ranges::find(kTexts, key) != kTexts.end();
      if (!known) complain(fmt::format("unknown field \"{}\"", brief(key)), pointer + "/" + key);
    }
    std::array<std::string, kTexts.size()> texts;
    const std::size_t before = problems_.size();
    for (std::size_t i = 0; i < kTexts.size(); ++i) {
      const auto it = entry.find(kTexts[i]);
      if (it == entry.end() || !it->is_string() || it->get<std::string>().empty()) {
        complain(fmt::format("must state {}, a text", kTexts[i]), pointer);
      } else {
        texts[i] = it->get<std::string>();
      }
    }
    const auto price = entry.find("price_per_hour");
    const bool number = price != entry.end() && price->is_number();
    const double value = number ? price->get<double>() : 0.0;
    if (!(value > 0.0 && value <= kHighestPrice)) {
      complain(fmt::format("must state price_per_hour, a number above 0 and up to {:g}", kHighestPrice), pointer);
    }
    if (!texts[1].empty() && !is_date(texts[1])) {
      complain(fmt::format("\"{}\" is not a date such as 2026-11-01", brief(texts[1])), pointer + "/date");
    }
    if (problems_.size() > before) return;
    std::string full = match_name(texts[0], hwmodels::hardware_names(), Abbreviations::allowed).name;
    if (full.empty() && texts[0].starts_with("NVIDIA ")) full = hwmodels::gpu_of_device(texts[0]).value_or("");
    if (full.empty()) full = texts[0];  // of the user's own hardware
    ListedPrice listed{full, value, texts[1], texts[2]};
    const bool twice = std::ranges::any_of(prices_, [&](const ListedPrice& other) {
      return other.hardware == listed.hardware && other.date == listed.date;
    });
    if (twice) return complain(fmt::format("a second price of {} on {}", listed.hardware, listed.date), pointer);
    prices_.push_back(std::move(listed));
  }

  std::string path_;
  std::vector<ListedPrice> prices_;
  std::vector<Problem> problems_;
};

Price read_price(const std::string& value, const std::string& hardware, const std::string& gpu) {
  if (!is_price_file(value)) {
    const auto number = parse_number(value);
    if (number && *number > 0.0 && *number <= kHighestPrice) return {.per_gpu_hour = *number};
    throw ConfigError(fmt::format("{}: \"{}\" is not a price", kPriceKey, brief(value)), kPriceKey,
                      fmt::format("give a number above 0 and up to {:g}, of one GPU, or the path of a file of prices "
                                  "(spillway explain {})",
                                  kHighestPrice, kPriceKey));
  }
  const PriceFile file(value);
  const ListedPrice* price = file.latest(hardware);
  if (price == nullptr) price = file.latest(gpu);
  if (price == nullptr) {
    const std::string wanted = hardware == gpu ? gpu : fmt::format("{} or its {}", hardware, gpu);
    throw DataError(fmt::format("{}: no price of {}", kPriceKey, wanted), value,
                    fmt::format("add one; the file has prices of {}", fmt::join(file.hardware(), ", ")));
  }
  return {.per_gpu_hour = price->per_hour, .source = fmt::format("{}, {}", price->source, price->date)};
}

/// A figure per million output tokens, from a rate per GPU and hour.
Metric per_million_tokens(const char* name, const char* unit, double per_gpu_hour, std::int64_t gpus,
                          const RunStatistics& run) {
  constexpr double kSecondsPerHour = 3600.0;
  constexpr double kMillion = 1e6;
  const Metric* const throughput = run.find("output_throughput_tokens_per_s");
  Metric metric{.name = name, .unit = unit, .value = std::nullopt};
  if (throughput == nullptr) return metric;
  metric.n = throughput->n;
  if (!throughput->value || *throughput->value <= 0.0) return metric;
  metric.value = per_gpu_hour * static_cast<double>(gpus) / kSecondsPerHour / *throughput->value * kMillion;
  return metric;
}

}  // namespace

bool is_price_file(const std::string& value) { return hwmodels::is_path(value); }

GpuPrices read_prices(const Settings& settings, const std::string& hardware, const std::string& gpu) {
  GpuPrices prices;
  if (settings.has(kPriceKey)) prices.price = read_price(settings.get<std::string>(kPriceKey), hardware, gpu);
  if (settings.has(kPowerKey)) prices.watts = settings.get<double>(kPowerKey);
  return prices;
}

void add_costs(const GpuPrices& prices, RunStatistics& run) {
  constexpr double kWattsPerKilowatt = 1000.0;
  if (prices.price) {
    run.metrics.push_back(
        per_million_tokens(kCostMetric, "price/1e6 tokens", prices.price->per_gpu_hour, prices.gpus, run));
  }
  if (prices.watts) {
    run.metrics.push_back(
        per_million_tokens(kEnergyMetric, "kWh/1e6 tokens", *prices.watts / kWattsPerKilowatt, prices.gpus, run));
  }
}

std::string price_text(const GpuPrices& prices) {
  if (!prices.price) return {};
  return fmt::format("{:g} per GPU and hour, {} GPU{}{}", prices.price->per_gpu_hour, prices.gpus,
                     prices.gpus == 1 ? "" : "s",
                     prices.price->source.empty() ? "" : fmt::format(" ({})", prices.price->source));
}

}  // namespace spillway
