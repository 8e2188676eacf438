#include "hwmodels/calibration/measured_gpu.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace spillway::hwmodels {
namespace {

constexpr double kSameMemory = 0.05;
constexpr double kSameBandwidth = 0.02;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return c >= 'a' && c <= 'z'; }

/// Runs of letters and digits, in lower case.
std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    if (is_digit(lower) || is_letter(lower)) {
      words.back() += lower;
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  return words;
}

/// Whether a word is a series of GPUs, a number of up to four digits and up to two letters: h100, rtx4090, a10g,
/// gtx1080ti.
bool is_model(std::string_view word) {
  constexpr std::array<std::string_view, 12> kSeries{"rtx", "gtx", "mi", "gh", "gb", "a", "b", "h", "l", "p", "t", "v"};
  for (const std::string_view series : kSeries) {
    if (!word.starts_with(series)) continue;
    const std::string_view rest = word.substr(series.size());
    const auto letters = std::find_if_not(rest.begin(), rest.end(), is_digit);
    const auto digits = letters - rest.begin();
    const auto suffix = rest.end() - letters;
    // One digit names few GPUs, and much else, as L2 does.
    if (digits == 1 && word != "t4" && word != "l4" && word != "p4") continue;
    if (digits >= 1 && digits <= 4 && suffix <= 2 && std::all_of(letters, rest.end(), is_letter)) return true;
  }
  return false;
}

bool apart(double a, double b, double share) { return std::abs(a - b) > share * b; }

bool is_unknown(const GpuProfile& gpu, std::string_view field) {
  return std::find(gpu.unknown.begin(), gpu.unknown.end(), field) != gpu.unknown.end();
}

/// The model of the base, or the name when it tells none.
std::string model_of(const GpuProfile& base) {
  const std::string model = gpu_model(base.file.stands_for);
  return model.empty() ? gpu_model(base.file.name) : model;
}

/// Whether a GPU's full name means the base. A name of no known series counts when the base mentions it.
bool means(const GpuProfile& base, const std::string& name) {
  const std::string model = gpu_model(name);
  return model.empty() ? base.file.stands_for.find(name) != std::string::npos : model == model_of(base);
}

}  // namespace

std::string gpu_model(std::string_view text) {
  const std::vector<std::string> words = words_of(text);
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (is_model(words[i])) return words[i];
    std::string pair = i + 1 < words.size() ? words[i] + words[i + 1] : std::string();
    if ((words[i] == "rtx" || words[i] == "gtx") && is_model(pair)) return pair;
  }
  return {};
}

std::string why_another_gpu(const GpuProfile& base, const MeasuredDevice& device, const StatedGpu& stated) {
  if (!stated.name.empty()) {
    if (!means(base, stated.name)) return fmt::format("--gpu names {}", stated.name);
  } else if (device.name) {
    if (!means(base, *device.name)) return fmt::format("the files were measured on {}", *device.name);
  } else {
    for (const auto& [option, text] : {std::pair("--stands-for", &stated.stands_for), {"--name", &stated.profile}}) {
      const std::string model = gpu_model(*text);
      if (!model.empty() && model != model_of(base)) return fmt::format("{} names {}", option, model);
    }
  }
  if (device.sm_count && !is_unknown(base, "sm_count") && *device.sm_count != base.sm_count) {
    return fmt::format("the measured GPU has {} SMs, not {}", *device.sm_count, base.sm_count);
  }
  const auto other_memory = [&](std::int64_t bytes) {
    return !is_unknown(base, "memory") &&
           apart(static_cast<double>(bytes), static_cast<double>(base.memory.count()), kSameMemory);
  };
  const std::string memory = fmt::format("{:.4g} GB", static_cast<double>(base.memory.count()) / 1e9);
  if (stated.memory && other_memory(stated.memory->count())) {
    return fmt::format("--memory is {:.4g} GB, not {}", static_cast<double>(stated.memory->count()) / 1e9, memory);
  }
  if (device.memory_bytes && other_memory(*device.memory_bytes)) {
    return fmt::format("the measured GPU has {:.4g} GB, not {}", static_cast<double>(*device.memory_bytes) / 1e9,
                       memory);
  }
  if (stated.bandwidth && !is_unknown(base, "memory_bandwidth") &&
      apart(stated.bandwidth->value(), base.memory_bandwidth.value(), kSameBandwidth)) {
    return fmt::format("--bandwidth is {:.4g} GB/s, not {:.4g} GB/s", stated.bandwidth->value() / 1e9,
                       base.memory_bandwidth.value() / 1e9);
  }
  return {};
}

}  // namespace spillway::hwmodels
