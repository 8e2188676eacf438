#include "cuda_calibrate/cuda/gpu_facts.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <memory>
#include <string_view>
#include <vector>

#include "cuda_calibrate/cuda/library.hpp"

namespace spillway::calibrate::gpu {
namespace {

/// The few NVML functions in use, declared as in https://docs.nvidia.com/deploy/nvml-api/. Every function returns 0 on
/// success; a device is an opaque pointer.
class Nvml {
 public:
  using Device = void*;

  explicit Nvml(const char* library = "libnvidia-ml.so.1") : library_(library) {
    auto* const init = library_.function<int()>("nvmlInit_v2");
    ready_ = init != nullptr && init() == 0;
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml() {
    auto* const shutdown = library_.function<int()>("nvmlShutdown");
    if (ready_ && shutdown != nullptr) (void)shutdown();
  }

  /// Returns whether the function exists and succeeded.
  template <typename... Arguments>
  [[nodiscard]] bool call(const char* name, Arguments... arguments) const {
    auto* const function = library_.function<int(Arguments...)>(name);
    return ready_ && function != nullptr && function(arguments...) == 0;
  }
  [[nodiscard]] std::optional<std::int64_t> number(const char* name, Device device) const {
    unsigned value = 0;
    return call(name, device, &value) ? std::optional<std::int64_t>(value) : std::nullopt;
  }
  /// `of` is an NVML enumerator: 1 is the SM clock, 2 the memory clock; 0 the temperature of the GPU.
  [[nodiscard]] std::optional<std::int64_t> number(const char* name, Device device, int of) const {
    unsigned value = 0;
    return call(name, device, of, &value) ? std::optional<std::int64_t>(value) : std::nullopt;
  }

 private:
  Library library_;
  bool ready_ = false;
};

/// nvmlFieldValue_t, whose value is 8 bytes that the type interprets.
struct FieldValue {
  unsigned field = 0;
  unsigned scope = 0;
  long long timestamp = 0;
  long long latency = 0;
  int type = 0;
  int status = 0;
  unsigned long long value = 0;
};

constexpr int kSmClockType = 1;
constexpr int kGpuTemperatureSensor = 0;

/// Watts now, else averaged.
std::optional<double> power_of(const Nvml& nvml, Nvml::Device device) {
  constexpr unsigned kPowerInstant = 186;  // NVML_FI_DEV_POWER_INSTANT, in mW
  constexpr int kUnsignedInt = 1;          // NVML_VALUE_TYPE_UNSIGNED_INT
  FieldValue field;
  field.field = kPowerInstant;
  if (nvml.call("nvmlDeviceGetFieldValues", device, 1, &field) && field.status == 0 && field.type == kUnsignedInt) {
    return static_cast<double>(field.value & 0xffffffffULL) / 1000.0;
  }
  const auto milliwatts = nvml.number("nvmlDeviceGetPowerUsage", device);
  return milliwatts ? std::optional(static_cast<double>(*milliwatts) / 1000.0) : std::nullopt;
}

std::optional<std::string> throttling_of(const Nvml& nvml, Nvml::Device device) {
  unsigned long long reasons = 0;
  if (!nvml.call("nvmlDeviceGetCurrentClocksThrottleReasons", device, &reasons)) return std::nullopt;
  return throttle_text(reasons);
}

}  // namespace

struct NvmlSensors::Session {
  explicit Session(const std::string& bus_id, const char* library) : nvml(library) {
    found = nvml.call("nvmlDeviceGetHandleByPciBusId_v2", bus_id.c_str(), &device);
  }
  Nvml nvml;
  Nvml::Device device = nullptr;
  bool found = false;
};

NvmlSensors::NvmlSensors(const std::string& bus_id, const char* library)
    : session_(std::make_unique<Session>(bus_id, library)) {}
NvmlSensors::~NvmlSensors() = default;

std::optional<GpuSensors> NvmlSensors::read() const {
  const auto& [nvml, device, found] = *session_;
  if (!found) return std::nullopt;
  return GpuSensors{nvml.number("nvmlDeviceGetClockInfo", device, kSmClockType), power_of(nvml, device),
                    nvml.number("nvmlDeviceGetTemperature", device, kGpuTemperatureSensor),
                    throttling_of(nvml, device)};
}

void add_nvml_facts(GpuFacts& facts, const std::string& bus_id, const char* library) {
  constexpr int kMemoryClock = 2;
  const Nvml nvml(library);
  Nvml::Device device = nullptr;
  if (!nvml.call("nvmlDeviceGetHandleByPciBusId_v2", bus_id.c_str(), &device)) return;
  std::array<char, 96> uuid{};  // the longest that NVML writes
  if (nvml.call("nvmlDeviceGetUUID", device, uuid.data(), static_cast<unsigned>(uuid.size()))) facts.uuid = uuid.data();
  facts.sm_clock_mhz = nvml.number("nvmlDeviceGetClockInfo", device, kSmClockType);
  facts.max_sm_clock_mhz = nvml.number("nvmlDeviceGetMaxClockInfo", device, kSmClockType);
  facts.memory_clock_mhz = nvml.number("nvmlDeviceGetClockInfo", device, kMemoryClock);
  if (const auto milliwatts = nvml.number("nvmlDeviceGetEnforcedPowerLimit", device)) {
    facts.power_limit_w = static_cast<double>(*milliwatts) / 1000.0;
  }
  facts.temperature_c = nvml.number("nvmlDeviceGetTemperature", device, kGpuTemperatureSensor);
  facts.throttle_reasons = throttling_of(nvml, device);
  unsigned current = 0;
  unsigned pending = 0;
  if (nvml.call("nvmlDeviceGetEccMode", device, &current, &pending)) facts.ecc = current != 0;
  facts.pcie_generation = nvml.number("nvmlDeviceGetMaxPcieLinkGeneration", device);
  facts.pcie_width = nvml.number("nvmlDeviceGetCurrPcieLinkWidth", device);
}

std::optional<std::string> driver_version() {
  const Nvml nvml;
  std::array<char, 128> text{};
  if (!nvml.call("nvmlSystemGetDriverVersion", text.data(), static_cast<unsigned>(text.size()))) return {};
  return std::string(text.data());
}

std::optional<std::string> cudnn_version() {
  for (const char* name : {"libcudnn.so.9", "libcudnn.so.8"}) {
    const Library library(name);
    auto* const version = library.function<std::size_t()>("cudnnGetVersion");
    if (version == nullptr) continue;
    const std::size_t number = version();
    // 91900 means 9.19.0. Up to version 8, 8907 means 8.9.7.
    const std::size_t major = number >= 10000 ? 10000 : 1000;
    return fmt::format("{}.{}.{}", number / major, number % major / 100, number % 100);
  }
  return {};
}

std::string throttle_text(std::uint64_t reasons) {
  constexpr std::array<std::string_view, 9> kNames{"gpu_idle",
                                                   "applications_clocks_setting",
                                                   "sw_power_cap",
                                                   "hw_slowdown",
                                                   "sync_boost",
                                                   "sw_thermal_slowdown",
                                                   "hw_thermal_slowdown",
                                                   "hw_power_brake_slowdown",
                                                   "display_clock_setting"};
  if (reasons == 0) return "none";
  std::vector<std::string> names;
  names.reserve(static_cast<std::size_t>(std::popcount(reasons)));
  for (std::size_t bit = 0; bit < 64; ++bit) {
    if ((reasons >> bit & 1U) == 0) continue;
    names.push_back(bit < kNames.size() ? std::string(kNames[bit]) : fmt::format("bit {}", bit));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::optional<std::int64_t> numa_node_of(const std::string& bus_id, const SystemRoots& roots) {
  std::string name = bus_id;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto node = number_of(fmt::format("{}/bus/pci/devices/{}/numa_node", roots.sys, name));
  return node && *node >= 0 ? node : std::nullopt;
}

}  // namespace spillway::calibrate::gpu
