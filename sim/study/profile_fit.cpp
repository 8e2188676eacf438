#include "sim/study/profile_fit.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <utility>

#include "hwmodels/calibration/calibration.hpp"
#include "hwmodels/calibration/host_writer.hpp"
#include "hwmodels/calibration/measured_gpu.hpp"
#include "hwmodels/calibration/profile_writer.hpp"
#include "hwmodels/calibration/sharing_fits.hpp"
#include "hwmodels/calibration/sustained_fits.hpp"
#include "sim/config/config.hpp"
#include "sim/config/names.hpp"

namespace spillway {
namespace {

using hwmodels::GpuProfile;
using hwmodels::Measurements;

void tell(const NoteSink& note, const std::string& text) {
  if (note) note(text);
}

/// Splits OP=FILE if OP is an op. Otherwise the whole text is a file name, which may contain an equals sign.
hwmodels::MeasurementInput measurement_input_of(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos) return {text, std::nullopt};
  const auto op = hwmodels::op_named(text.substr(0, equals));
  if (op) return {text.substr(equals + 1), op};
  std::error_code ignored;
  if (std::filesystem::exists(text, ignored)) return {text, std::nullopt};
  std::vector<std::string> ops;
  for (const hwmodels::Op one : hwmodels::all_ops()) ops.emplace_back(hwmodels::op_name(one));
  throw ConfigError(fmt::format("\"{}\" is not an op", text.substr(0, equals)), text,
                    suggestion(text.substr(0, equals), ops) + fmt::format("ops: {}", fmt::join(ops, ", ")));
}

/// Refuses impossible rows, or leaves them out.
void settle(Measurements& measurements, const hwmodels::DeviceLimits& limits, const hwmodels::LlmModel* layers_of,
            bool drop, const NoteSink& note) {
  if (drop) return void(leave_out(measurements, limits, layers_of, note));
  std::vector<Problem> problems = hwmodels::inconsistencies(measurements, limits, layers_of);
  if (problems.empty()) return;
  std::string& fix = problems.back().fix;
  fix += fix.empty() ? "use --drop-inconsistent to leave out such rows"
                     : "; use --drop-inconsistent to leave out such rows";
  throw DataError(std::move(problems));
}

std::string stem_of(const std::string& path) { return std::filesystem::path(path).stem().string(); }

/// The starting point of a fit.
struct FitBase {
  std::optional<GpuProfile> gpu;
  std::optional<hwmodels::LlmModel> layers_of;
  std::string another_gpu;  // why the base is of another GPU; empty: it is not

  /// The base, if it is of the measured GPU.
  [[nodiscard]] const GpuProfile* same_gpu() const { return gpu && another_gpu.empty() ? &*gpu : nullptr; }
  /// The base, if its datasheet figures are those of the measured GPU, too.
  [[nodiscard]] const GpuProfile* datasheet() const {
    const GpuProfile* same = same_gpu();
    if (same == nullptr || !same->borrowed) return same;
    const std::vector<std::string>& parts = same->borrowed->parts;
    const bool lent = std::find(parts.begin(), parts.end(), hwmodels::BorrowedParts::kFacts) != parts.end();
    return lent ? nullptr : same;
  }
};

FitBase load_base(const ProfileFit& fit, const hwmodels::MeasuredDevice& device) {
  FitBase base;
  if (!fit.base.empty()) base.gpu = load_gpu_named_at(fit.base, "--base " + fit.base);
  if (!fit.model.empty()) base.layers_of = hwmodels::load_llm(fit.model);
  if (base.gpu) {
    base.another_gpu =
        hwmodels::why_another_gpu(*base.gpu, device, {fit.gpu, fit.stands_for, fit.name, fit.memory, fit.bandwidth});
  }
  return base;
}

hwmodels::FittedKernels fit_rows(const ProfileFit& fit, const FitBase& base, Measurements& measurements,
                                 const NoteSink& note, const std::function<void(std::string_view)>& progress) {
  const GpuProfile* gpu = base.datasheet();
  hwmodels::DeviceLimits limits = limits_of(gpu, measurements);
  if (fit.bandwidth) limits.memory_bandwidth = fit.bandwidth->value();
  settle(measurements, limits, base.layers_of ? &*base.layers_of : nullptr, fit.drop_inconsistent, note);
  for (const std::string& text : hwmodels::leave_out_scarce(measurements)) {
    tell(note, text);
  }
  hwmodels::FittedKernels fitted = hwmodels::calibrate(measurements, {gpu, fit.model}, progress);
  // Duplex rows are shares of a link. Without fitted copies, the base supplies the link. Products on the CPU belong to
  // a host.
  const auto sustained = hwmodels::fit_sustained(measurements);
  if (sustained && !sustained->values) tell(note, fmt::format("no sustained clock was fitted: {}", sustained->why));
  const bool shares = (sustained && sustained->values) || hwmodels::duplex_bandwidth(measurements, {}, true) ||
                      hwmodels::duplex_bandwidth(measurements, {}, false) ||
                      hwmodels::compute_slowdown(measurements, false) ||
                      hwmodels::compute_slowdown(measurements, true) || !measurements.host_gemms.empty();
  if (fitted.empty() && !(base.gpu && shares)) {
    throw DataError("no row is left to fit", fmt::format("{}", fmt::join(fit.files, ", ")),
                    "impossible rows were left out, and copies are fitted only to rows of one direction alone");
  }
  return fitted;
}

/// Names the ops whose fit says little about calls that were not measured.
void warn_of_errors(const hwmodels::FittedKernels& fitted, const NoteSink& note) {
  for (const hwmodels::FitLine& line : hwmodels::fit_lines(fitted)) {
    const hwmodels::ErrorSummary& error = line.record->held_out;
    if (error.n == 0 || error.median <= kMostMedianError) continue;
    tell(note,
         fmt::format("warning: the fit of {} is off by {:.0f}% on held-out rows (median; more than {:.0f}%). Measure "
                     "more sizes, or again on an idle machine",
                     line.op, 100.0 * error.median, 100.0 * kMostMedianError));
  }
}

hwmodels::ProfileText text_of(const ProfileFit& fit, const FitBase& base, const Measurements& measurements) {
  hwmodels::ProfileText text;
  text.path = fit.out;
  text.another_gpu = !base.another_gpu.empty();
  text.memory = fit.memory;
  text.bandwidth = fit.bandwidth;
  text.name = fit.name.empty() ? stem_of(fit.out) : fit.name;
  text.base = fit.base;
  text.with_measurements = !fit.omit_measurements;
  text.stands_for = fit.stands_for;
  if (text.stands_for.empty()) {
    std::string gpu = fit.gpu.empty() ? measurements.device.name.value_or("a GPU that the files do not name") : fit.gpu;
    if (base.same_gpu() != nullptr) gpu = base.gpu->file.stands_for;
    text.stands_for = fmt::format("{}; fitted to the files below", gpu);
  }
  return text;
}

}  // namespace

hwmodels::Measurements read_rows(const std::vector<std::string>& files, const NoteSink& note) {
  std::vector<hwmodels::MeasurementInput> inputs;
  inputs.reserve(files.size());
  std::transform(files.begin(), files.end(), std::back_inserter(inputs), measurement_input_of);
  Measurements measurements = hwmodels::read_measurements(inputs);
  hwmodels::merge_repeats(measurements);
  for (const hwmodels::MeasurementFile& file : measurements.files) {
    for (const std::string& text : file.notes) tell(note, fmt::format("{}: {}", file.path, text));
  }
  return measurements;
}

hwmodels::DeviceLimits limits_of(const GpuProfile* gpu, const Measurements& measurements) {
  hwmodels::DeviceLimits limits;
  const auto known = [](double value) { return value > 0.0 ? std::optional(value) : std::nullopt; };
  if (gpu != nullptr) {
    limits.peak_flops = known(gpu->peak_flops);
    limits.memory_bandwidth = known(gpu->memory_bandwidth.value());
    limits.l2_bytes = known(static_cast<double>(gpu->l2_cache.count()));
    limits.link_peak = known(gpu->host_link_peak.value());
    limits.name = gpu->file.name;
  }
  if (measurements.device.l2_bytes) limits.l2_bytes = static_cast<double>(*measurements.device.l2_bytes);
  if (limits.name.empty()) limits.name = measurements.device.name.value_or("");
  return limits;
}

std::vector<Problem> leave_out(Measurements& measurements, const hwmodels::DeviceLimits& limits,
                               const hwmodels::LlmModel* layers_of, const NoteSink& note) {
  std::vector<Problem> problems = hwmodels::inconsistencies(measurements, limits, layers_of);
  const std::int64_t dropped = hwmodels::drop_inconsistent(measurements, limits, layers_of);
  if (dropped > 0) {
    tell(note, fmt::format("left out: {} impossible rows; the first: {} ({})", dropped, problems.front().what,
                           problems.front().where));
  }
  return problems;
}

hwmodels::GpuProfile load_gpu_named_at(const std::string& name_or_file, const std::string& where) {
  try {
    const std::string full = match_name(name_or_file, hwmodels::gpu_names(), Abbreviations::allowed).name;
    return hwmodels::load_gpu(full.empty() ? name_or_file : full);
  } catch (const ConfigError& error) {
    std::vector<Problem> problems = error.problems();
    for (Problem& problem : problems) problem.where = where;
    throw ConfigError(std::move(problems));
  }
}

FittedProfile fit_profile(const ProfileFit& fit, const NoteSink& note,
                          const std::function<void(std::string_view op)>& progress) {
  FittedProfile result;
  result.measurements = read_rows(fit.files, note);
  const FitBase base = load_base(fit, result.measurements.device);
  result.based = base.gpu.has_value();
  if (!base.another_gpu.empty()) {
    tell(note, fmt::format("{} is another GPU than the measured one: {}. What it supplies is borrowed, not calibrated",
                           base.gpu->file.name, base.another_gpu));
  }
  result.fitted = fit_rows(fit, base, result.measurements, note, progress);
  warn_of_errors(result.fitted, note);
  result.profile = hwmodels::profile_text(text_of(fit, base, result.measurements), result.measurements, result.fitted);
  if (!fit.host_out.empty()) {
    result.host = hwmodels::host_text(stem_of(fit.host_out), fit.host_out, result.measurements, result.fitted);
  }
  return result;
}

}  // namespace spillway
