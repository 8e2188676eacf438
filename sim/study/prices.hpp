// What the GPUs of a run cost, and what they draw: hardware.price_per_hour and hardware.power_watts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/config/config.hpp"
#include "sim/metrics/metrics.hpp"

namespace spillway {

inline constexpr const char* kPriceKey = "hardware.price_per_hour";
inline constexpr const char* kPowerKey = "hardware.power_watts";
/// The metrics that follow from them.
inline constexpr const char* kCostMetric = "cost_per_million_output_tokens";
inline constexpr const char* kEnergyMetric = "energy_kwh_per_million_output_tokens";

/// A price and where it is from.
struct Price {
  double per_gpu_hour = 0.0;  // in any currency: nothing is converted
  std::string source{};       // "NAME, 2026-11-01" of a file of prices; empty: the configuration states the price
};

struct GpuPrices {
  std::optional<Price> price{};
  std::optional<double> watts{};  // of each GPU, while it serves or lends
  std::int64_t gpus = 0;          // that serve or lend
};

/// Whether the value of hardware.price_per_hour names a file.
[[nodiscard]] bool is_price_file(const std::string& value);

/// Reads hardware.price_per_hour, a number above 0 or the path of a file
/// {"prices": [{"hardware": "h100-80gb-sxm", "price_per_hour": 2.5, "date": "2026-11-01", "source": "..."}]}, and
/// hardware.power_watts. Prices are of one GPU. An entry may name it as its driver does, "NVIDIA H100 80GB HBM3". Of
/// several prices of a GPU or server the latest counts. A price of `hardware`, as it is named in the configuration,
/// goes before a price of its GPU. Throws ConfigError for a value that is no price, and DataError for a file that
/// cannot be read, or has no price of this hardware.
[[nodiscard]] GpuPrices read_prices(const Settings& settings, const std::string& hardware, const std::string& gpu);

/// Appends the metrics to those of a replication, from its throughput and the GPUs.
void add_costs(const GpuPrices& prices, RunStatistics& run);

/// "2.5 per GPU and hour, 8 GPUs (NAME, 2026-11-01)"; empty without a price.
[[nodiscard]] std::string price_text(const GpuPrices& prices);

}  // namespace spillway
