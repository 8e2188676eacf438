#include "cuda_calibrate/validate/predict.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "hwmodels/calibration/measurements.hpp"
#include "hwmodels/models/gemm.hpp"
#include "sim/core/error.hpp"

namespace spillway::calibrate {
namespace {

using hwmodels::FittedGemm;
using hwmodels::GpuProfile;
using hwmodels::HostProfile;

bool has_copies(const GpuProfile& gpu, bool to_device, CopyMechanism mechanism) {
  return std::ranges::any_of(gpu.fitted.copies, [&](const auto& copy) {
    return copy.model.to_device == to_device && copy.model.mechanism == mechanism;
  });
}

const FittedGemm& two_byte_gemm(const GpuProfile& gpu) { return *gpu.fitted.gemm_in(2, hwmodels::Quantization::none); }

void check(const GpuProfile& gpu) {
  std::vector<Problem> problems;
  if (!gpu.fitted.two_byte_gemm()) {
    problems.push_back({fmt::format("{} has no fitted gemm in 2-byte numbers", gpu.file.name), gpu.file.path,
                        "measure the section gemm and fit the profile again"});
  }
  for (const bool to_device : {true, false}) {
    if ((to_device ? gpu.h2d : gpu.d2h).bandwidth.value() > 0.0) continue;
    const char* direction = to_device ? "h2d" : "d2h";
    problems.push_back({fmt::format("{} has no copies in direction {}: neither {}_bandwidth nor a fit of this "
                                    "direction gives a bandwidth",
                                    gpu.file.name, direction, direction),
                        gpu.file.path, "measure the copy sections and fit the profile again"});
  }
  if (!problems.empty()) throw ConfigError(std::move(problems));
}

/// Returns the profile after checking that it has everything that each prediction needs.
const GpuProfile& checked(const GpuProfile& gpu) {
  check(gpu);
  return gpu;
}

}  // namespace

Predictor::Predictor(const GpuProfile& gpu, const std::optional<HostProfile>& host, std::int64_t threads)
    : gpu_(checked(gpu)), host_(host), threads_(threads), link_(gpu_, hwmodels::load_engine("none"), 1) {
  SPILLWAY_CHECK(threads >= 1, fmt::format("{} threads", threads));
}

double Predictor::multiply_seconds(const Multiply& multiply) const {
  constexpr double kElementBytes = 2.0;
  const hwmodels::GemmTime time(two_byte_gemm(gpu_).model, multiply.n, multiply.k,
                                kElementBytes * real(multiply.n * multiply.k), kElementBytes);
  return real(multiply.calls) * time.at(multiply.m).seconds;
}

double Predictor::host_attention_rate() const {
  double rate = host_->dram_bandwidth.value();
  if (host_->dram_bandwidth_per_thread) {
    rate = std::min(rate, real(threads_) * host_->dram_bandwidth_per_thread->value());
  }
  return rate * host_->cpu_attention_efficiency;
}

double Predictor::attention_seconds(const HostAttention& attention) const {
  const double bytes = real(kv_bytes(attention));
  if (gpu_.fitted.cpu_attention) return gpu_.fitted.cpu_attention->model.seconds(attention.threads, bytes);
  if (host_) return host_->cpu_attention_launch_seconds + bytes / host_attention_rate();
  throw ConfigError(fmt::format("{} has no fitted cpu_attention, and no host is given", gpu_.file.name), gpu_.file.path,
                    "measure the host's sections and fit the profile again, or give --host");
}

Duration Predictor::cpu_time(const HostAttention& attention) const {
  if (attention.batch == 0) return {};
  const CopyTime down = link_.copy(Stream::d2h, 1, Bytes(query_bytes(attention)), CopyMechanism::single);
  const CopyTime up = link_.copy(Stream::h2d, 1, Bytes(output_bytes(attention)), CopyMechanism::single);
  return down.launch + down.transfer + round_seconds(attention_seconds(attention)) + up.launch + up.transfer;
}

StepTimes Predictor::times_of(const LayerSwapping& setting) const {
  const Bytes slot(setting.slot_bytes);
  return {.compute = round_seconds(multiply_seconds(setting.compute)),
          .in = link_.copy(Stream::h2d, 1, slot, CopyMechanism::single),
          .out = link_.copy(Stream::d2h, 1, slot, CopyMechanism::single)};
}

StepTimes Predictor::times_of(const WeightPrefetch& setting) const {
  return {.compute = round_seconds(multiply_seconds(setting.compute)),
          .in = link_.copy(Stream::h2d, 1, Bytes(setting.compute.weight_bytes()), CopyMechanism::single)};
}

StepTimes Predictor::times_of(const SwapIn& setting) const {
  return {
      .compute = round_seconds(multiply_seconds(setting.compute)),
      .in = link_.copy(Stream::h2d, setting.blocks, Bytes(setting.blocks * setting.block_bytes), setting.mechanism)};
}

StepTimes Predictor::times_of(const PageOut& setting) const {
  return {.out =
              link_.copy(Stream::d2h, setting.blocks, Bytes(setting.blocks * setting.block_bytes), setting.mechanism)};
}

StepTimes Predictor::times_of(const CpuOverlap& setting) const {
  return {.compute = round_seconds(multiply_seconds(setting.first)),
          .second_compute = round_seconds(multiply_seconds(setting.second)),
          .first_cpu = cpu_time(setting.first_attention),
          .second_cpu = cpu_time(setting.second_attention)};
}

Simulated Predictor::predict(const Experiment& experiment) const {
  StepTimes times = std::visit([this](const auto& setting) { return times_of(setting); }, experiment);
  times.sharing = link_.copy_sharing();
  return simulate(experiment, times);
}

Scale Predictor::scale() const {
  const CopySharing& sharing = link_.copy_sharing();
  const auto shared = [](BytesPerSecond rate, const Slowdown& slowdown) {
    return rate.value() * real(slowdown.den) / real(slowdown.num);
  };
  Scale scale{.gpu_bytes = gpu_.memory.count() / 2,
              .host_bytes = kHostBytes,
              .swap_rate = std::min(shared(gpu_.h2d.bandwidth, sharing.h2d), shared(gpu_.d2h.bandwidth, sharing.d2h)),
              .h2d_rate = gpu_.h2d.bandwidth.value(),
              // Without a figure for CPU attention, these settings are listed but not predicted.
              .attention_rate = gpu_.h2d.bandwidth.value(),
              .threads = threads_,
              .multiply_seconds = [this](const Multiply& multiply) { return multiply_seconds(multiply); },
              .page_out_seconds =
                  [this](const PageOut& setting) {
                    const CopyTime time = times_of(setting).out;
                    return to_seconds(time.launch + time.transfer);
                  }};
  if (attends()) {
    const HostAttention large{.threads = threads_, .batch = 64, .context = 8192};
    scale.attention_rate = real(kv_bytes(large)) / attention_seconds(large);
  }
  return scale;
}

std::vector<std::string> Predictor::stand_ins(const std::vector<Setting>& settings) const {
  std::set<std::pair<bool, CopyMechanism>> taken;
  for (const Setting& setting : settings) {
    if (const auto* swap_in = std::get_if<SwapIn>(&setting.experiment)) taken.emplace(true, swap_in->mechanism);
    if (const auto* page_out = std::get_if<PageOut>(&setting.experiment)) taken.emplace(false, page_out->mechanism);
    if (std::holds_alternative<LayerSwapping>(setting.experiment)) taken.emplace(false, CopyMechanism::single);
    if (!std::holds_alternative<PageOut>(setting.experiment)) taken.emplace(true, CopyMechanism::single);
  }
  std::vector<std::string> sentences;
  for (const auto& [to_device, mechanism] : taken) {
    if (has_copies(gpu_, to_device, mechanism)) continue;
    sentences.push_back(
        fmt::format("{} has no fit of copies {} by {}: the predictions use the link's bandwidth and launch",
                    gpu_.file.name, to_device ? "h2d" : "d2h", hwmodels::mechanism_name(mechanism)));
  }
  return sentences;
}

}  // namespace spillway::calibrate
