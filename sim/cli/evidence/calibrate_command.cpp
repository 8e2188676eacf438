#include "sim/cli/evidence/calibrate_command.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "hwmodels/calibration/calibration.hpp"
#include "hwmodels/calibration/consistency.hpp"
#include "hwmodels/calibration/host_writer.hpp"
#include "hwmodels/calibration/profile_writer.hpp"
#include "hwmodels/calibration/sharing_fits.hpp"
#include "hwmodels/catalog.hpp"
#include "hwmodels/models/logged_models.hpp"
#include "sim/config/config.hpp"
#include "sim/core/printable.hpp"
#include "sim/io/atomic_file.hpp"
#include "sim/io/output.hpp"

namespace spillway::cli {
namespace {

using hwmodels::CheckLine;
using hwmodels::ErrorSummary;
using hwmodels::GpuProfile;
using hwmodels::Measurements;

/// OP=FILE where OP is one, else a file whose name may hold an equals sign.
hwmodels::MeasurementInput input_of(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos) return {text, std::nullopt};
  const auto op = hwmodels::op_named(text.substr(0, equals));
  if (op) return {text.substr(equals + 1), op};
  std::error_code ignored;
  if (std::filesystem::exists(text, ignored)) return {text, std::nullopt};
  std::vector<std::string> ops;
  for (const hwmodels::Op one : hwmodels::all_ops()) ops.emplace_back(hwmodels::op_name(one));
  throw ConfigError(fmt::format("\"{}\" is no op", text.substr(0, equals)), text,
                    suggestion(text.substr(0, equals), ops) + fmt::format("ops: {}", fmt::join(ops, ", ")));
}

Measurements read(const std::vector<std::string>& files) {
  std::vector<hwmodels::MeasurementInput> inputs;
  inputs.reserve(files.size());
  std::transform(files.begin(), files.end(), std::back_inserter(inputs), input_of);
  Measurements measurements = hwmodels::read_measurements(inputs);
  hwmodels::merge_repeats(measurements);
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

/// Leaves out what cannot be true, says how much that is, and returns why.
std::vector<Problem> leave_out(Measurements& measurements, const hwmodels::DeviceLimits& limits,
                               const hwmodels::LlmModel* layers_of) {
  std::vector<Problem> problems = hwmodels::inconsistencies(measurements, limits, layers_of);
  const std::int64_t dropped = hwmodels::drop_inconsistent(measurements, limits, layers_of);
  if (dropped > 0) {
    fmt::print(stderr, "left out: {} rows that cannot be true; the first: {} ({})\n", dropped,
               printable(problems.front().what), printable(problems.front().where));
  }
  return problems;
}

/// Refuses what cannot be true, or leaves it out.
void settle(Measurements& measurements, const hwmodels::DeviceLimits& limits, const hwmodels::LlmModel* layers_of,
            bool drop) {
  if (drop) return void(leave_out(measurements, limits, layers_of));
  std::vector<Problem> problems = hwmodels::inconsistencies(measurements, limits, layers_of);
  if (problems.empty()) return;
  std::string& fix = problems.back().fix;
  fix += fix.empty() ? "--drop-inconsistent leaves such rows out" : "; --drop-inconsistent leaves such rows out";
  throw DataError(std::move(problems));
}

void print_notes(const Measurements& measurements) {
  for (const hwmodels::MeasurementFile& file : measurements.files) {
    for (const std::string& note : file.notes) {
      fmt::print(stderr, "{}: {}\n", printable(file.path), printable(note));
    }
  }
}

/// A GPU's profile; where its name is wrong is told as `where`.
GpuProfile load(const std::string& name_or_file, const std::string& where) {
  try {
    return hwmodels::load_gpu(name_or_file);
  } catch (const ConfigError& error) {
    std::vector<Problem> problems = error.problems();
    for (Problem& problem : problems) problem.where = where;
    throw ConfigError(std::move(problems));
  }
}

std::string percent(double fraction) { return fmt::format("{:.1f}%", 100.0 * fraction); }

/// Names of files may be in any encoding.
std::string json_text(const nlohmann::json& value) {
  return value.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

nlohmann::json line_json(const std::string& op, const ErrorSummary& error) {
  if (error.n == 0) return {{"op", op}, {"n", 0}, {"median", nullptr}, {"p95", nullptr}, {"bias", nullptr}};
  return {{"op", op}, {"n", error.n}, {"median", error.median}, {"p95", error.p95}, {"bias", error.bias}};
}

std::string header() { return fmt::format("{:<26}{:>8}{:>10}{:>10}{:>10}", "op", "n", "median", "p95", "bias"); }

std::string row(const std::string& op, const ErrorSummary& error) {
  if (error.n == 0) return fmt::format("{:<26}{:>8}{:>10}{:>10}{:>10}", op, 0, "-", "-", "-");
  return fmt::format("{:<26}{:>8}{:>10}{:>10}{:>10}", op, error.n, percent(error.median), percent(error.p95),
                     fmt::format("{:+.1f}%", 100.0 * error.bias));
}

/// What was fitted and no run with this profile takes by itself.
void print_limits(const hwmodels::FittedKernels& fitted) {
  const bool unnamed = (fitted.layers && fitted.layers->model.model.empty()) ||
                       (fitted.iteration && fitted.iteration->model.model.empty());
  if (unnamed) {
    fmt::print(stderr, "no --model says whose layers or iterations these are: latency_model=auto passes over them\n");
  }
  if (fitted.layers && !fitted.layers->model.per_sequence.contains("lm_head")) {
    fmt::print(stderr, "no table holds lm_head: latency_model=tables leaves the output layer out\n");
  }
  if (fitted.layers) {
    const std::vector<std::string> unknown = hwmodels::unknown_layers(fitted.layers->model);
    if (!unknown.empty()) {
      fmt::print(stderr, "not known by name, so taken to run once in every layer: {}\n",
                 printable(fmt::format("{}", fmt::join(unknown, ", "))));
    }
  }
  if (!fitted.host) return;
  fmt::print(stderr,
             "the host side belongs to an engine: for engine=FILE set host_fixed to {:.4g} s and host_per_sequence to "
             "{:.4g} s\n",
             fitted.host->model.fixed_seconds, fitted.host->model.per_sequence_seconds);
}

/// The single values that rows of two things at once gave the profile.
nlohmann::json sharing_json(const std::string& profile, const Measurements& measurements) {
  const nlohmann::json values = nlohmann::json::parse(profile).at("values");
  nlohmann::json sharing = nlohmann::json::object();
  const auto take = [&](const char* key, bool measured) {
    if (measured && values.at(key).at("value").is_number()) sharing[key] = values.at(key).at("value");
  };
  take("h2d_bandwidth_duplex", hwmodels::duplex_bandwidth(measurements, {}, true).has_value());
  take("d2h_bandwidth_duplex", hwmodels::duplex_bandwidth(measurements, {}, false).has_value());
  take("copy_compute_slowdown", hwmodels::compute_slowdown(measurements).has_value());
  return sharing;
}

std::string sharing_text(const nlohmann::json& sharing) {
  std::string text;
  for (const auto& [key, value] : sharing.items()) text += fmt::format("{} {:.4g}\n", key, value.get<double>());
  return text;
}

/// What is being fitted, on a terminal.
class FitProgress {
 public:
  void operator()(std::string_view op) const {
    if (isatty(STDERR_FILENO) == 1) fmt::print(stderr, "\r\033[Kfitting {} ...", op);
  }
  static void clear() {
    if (isatty(STDERR_FILENO) == 1) fmt::print(stderr, "\r\033[K");
  }
};

std::string stem_of(const std::string& path) { return std::filesystem::path(path).stem().string(); }

/// Names a file that a run takes, and that can be written.
void check_writable(const std::string& path, const std::string& option, const char* what, const char* taker) {
  if (!path.ends_with(".json")) {
    throw ConfigError(fmt::format("the {}'s name must end in .json, not be {}", what, path),
                      fmt::format("{} {}", option, path), fmt::format("{} takes such a file", taker));
  }
  const AtomicFile writable(path);
}

/// What a fit builds on.
struct FitBase {
  std::optional<GpuProfile> gpu;
  std::optional<hwmodels::LlmModel> layers_of;
};

FitBase load_base(const CalibrateOptions& options) {
  FitBase base;
  if (!options.base.empty()) base.gpu = load(options.base, "--base " + options.base);
  if (!options.model.empty()) base.layers_of = hwmodels::load_llm(options.model);
  return base;
}

hwmodels::FittedKernels fit_rows(const CalibrateOptions& options, const FitBase& base, Measurements& measurements,
                                 const std::function<void(std::string_view)>& progress) {
  const GpuProfile* gpu = base.gpu ? &*base.gpu : nullptr;
  settle(measurements, limits_of(gpu, measurements), base.layers_of ? &*base.layers_of : nullptr,
         options.drop_inconsistent);
  for (const std::string& note : hwmodels::leave_out_scarce(measurements)) {
    fmt::print(stderr, "{}\n", printable(note));
  }
  hwmodels::FittedKernels fitted = hwmodels::calibrate(measurements, {gpu, options.model}, progress);
  // A base has the link that duplex rows are a share of.
  const bool shares = hwmodels::duplex_bandwidth(measurements, {}, true) ||
                      hwmodels::duplex_bandwidth(measurements, {}, false) || hwmodels::compute_slowdown(measurements);
  if (fitted.empty() && !(gpu != nullptr && shares)) {
    if (progress) FitProgress::clear();
    throw DataError("no row is left to fit", fmt::format("{}", fmt::join(options.files, ", ")),
                    "rows that cannot be true were left out, and copies are fitted to those of one direction alone");
  }
  return fitted;
}

hwmodels::ProfileText text_of(const CalibrateOptions& options, const FitBase& base, const Measurements& measurements) {
  hwmodels::ProfileText text;
  text.path = options.out;
  text.name = options.name.empty() ? stem_of(options.out) : options.name;
  text.base = options.base;
  text.with_measurements = !options.omit_measurements;
  text.stands_for = options.stands_for;
  if (text.stands_for.empty()) {
    const std::string gpu =
        base.gpu ? base.gpu->file.stands_for : measurements.device.name.value_or("a GPU that no file names");
    text.stands_for = fmt::format("{}; fitted to the files below", gpu);
  }
  return text;
}

}  // namespace

std::string fitted_profile(const CalibrateOptions& options) {
  const FitBase base = load_base(options);
  Measurements measurements = read(options.files);
  const hwmodels::FittedKernels fitted = fit_rows(options, base, measurements, {});
  return hwmodels::profile_text(text_of(options, base, measurements), measurements, fitted);
}

ExitCode calibrate_fit(const CalibrateOptions& options) {
  const FitBase base = load_base(options);
  // A fit takes minutes: what cannot be written is told before it.
  check_writable(options.out, "-o", "profile", "hardware=FILE");
  if (!options.host_out.empty()) check_writable(options.host_out, "--host-out", "host", "a server's file");
  Measurements measurements = read(options.files);
  print_notes(measurements);
  const hwmodels::FittedKernels fitted = fit_rows(options, base, measurements, FitProgress());
  FitProgress::clear();
  const hwmodels::ProfileText text = text_of(options, base, measurements);
  std::string out = header() + fmt::format("   {}\n", "held out");
  nlohmann::json ops = nlohmann::json::array();
  for (const hwmodels::FitLine& line : hwmodels::fit_lines(fitted)) {
    out += row(line.op, line.record->held_out) + "   " + line.record->held_out_by + "\n";
    ops.push_back(line_json(line.op, line.record->held_out));
    if (!line.record->roofline) continue;
    out += row("  analytic model", *line.record->roofline) + "   all rows\n";
    ops.back()["roofline"] = line_json(line.op, *line.record->roofline);
  }
  const std::string profile = hwmodels::profile_text(text, measurements, fitted);
  const nlohmann::json sharing = sharing_json(profile, measurements);
  out += sharing_text(sharing);
  std::string host;
  if (!options.host_out.empty()) {
    host = hwmodels::host_text(stem_of(options.host_out), options.host_out, measurements, fitted);
  }
  write_file(options.out, profile);
  if (!host.empty()) write_file(options.host_out, host);
  nlohmann::json result{{"profile", options.out}, {"ops", ops}};
  if (!sharing.empty()) result["sharing"] = sharing;
  if (!host.empty()) result["host"] = options.host_out;
  print_result(options.json ? json_text(result) : out);
  fmt::print(stderr, "wrote {}\n", printable(options.out));
  if (!host.empty()) fmt::print(stderr, "wrote {}\n", printable(options.host_out));
  print_limits(fitted);
  if (!base.gpu) {
    fmt::print(stderr, "memory, links and datasheet figures are null; a run that takes one names it (--base NAME)\n");
  }
  return ExitCode::ok;
}

ExitCode calibrate_check(const CalibrateOptions& options) {
  const GpuProfile profile = load(options.profile, "calibrate check " + options.profile);
  Measurements measurements = read(options.files);
  print_notes(measurements);
  // Judging takes whatever a user has: a few rows that cannot be true do not keep the others from it.
  const std::vector<Problem> problems = leave_out(measurements, limits_of(&profile, measurements), nullptr);
  if (options.roofline) {
    profile.need(
        {"peak_flops", "memory_bandwidth", "gemm_compute_efficiency", "gemm_memory_efficiency",
         "decode_attention_efficiency", "prefill_attention_efficiency", "kernel_overhead", "attention_overhead"},
        "calibrate check --roofline");
  }
  const hwmodels::CheckReport report = options.roofline ? hwmodels::check_roofline(profile, measurements)
                                                        : hwmodels::check_profile(profile, measurements);
  if (report.lines.empty() && !problems.empty()) throw DataError(problems);
  if (report.lines.empty()) {
    throw DataError(fmt::format("nothing to check: {}", fmt::join(report.skipped, "; ")), options.profile,
                    profile.fitted.empty() ? "the profile holds no fits; --roofline judges its analytic model" : "");
  }
  std::string out = header() + "\n";
  nlohmann::json ops = nlohmann::json::array();
  for (const CheckLine& line : report.lines) {
    out += row(line.op, line.error);
    if (line.outside > 0) out += fmt::format("   {} outside the measured range", line.outside);
    out += "\n";
    for (const std::string& worst : line.worst) out += "    " + worst + "\n";
    ops.push_back(line_json(line.op, line.error));
    ops.back()["outside"] = line.outside;
    ops.back()["worst"] = line.worst;
  }
  for (const std::string& skipped : report.skipped) fmt::print(stderr, "not checked: {}\n", printable(skipped));
  print_result(options.json ? json_text({{"profile", profile.file.name}, {"ops", ops}}) : out);
  return ExitCode::ok;
}

ExitCode calibrate_errors(const CalibrateOptions& options) {
  const std::vector<std::string> names = options.files.empty() ? hwmodels::gpu_names() : options.files;
  std::string out =
      "| profile | op | held-out rows | median / p95 | bias | analytic model, all rows |\n"
      "|---|---|---|---|---|---|\n";
  for (const std::string& name : names) {
    const GpuProfile gpu = load(name, "calibrate errors " + name);
    if (!gpu.fitted_from.empty() || gpu.fitted.empty()) {
      const std::string kernels =
          gpu.fitted_from.empty() ? "analytic model only" : fmt::format("kernels of `{}`, scaled", gpu.fitted_from);
      out += fmt::format("| `{}` | {} | none | uncalibrated | | |\n", gpu.file.name, kernels);
      continue;
    }
    for (const hwmodels::FitLine& line : hwmodels::fit_lines(gpu.fitted)) {
      const ErrorSummary& held = line.record->held_out;
      const auto& roofline = line.record->roofline;
      const bool lent = line.record->source_kind == "borrowed";
      const std::string judged = held.n == 0 ? std::string("none | |")
                                             : fmt::format("{} | {} / {} | {:+.1f}%", held.n, percent(held.median),
                                                           percent(held.p95), 100.0 * held.bias);
      out += fmt::format(
          "| `{}` | {}{} | {} | {} |\n", gpu.file.name, line.op, lent ? ", of the lender" : "", judged,
          roofline && roofline->n > 0 ? fmt::format("{} / {}", percent(roofline->median), percent(roofline->p95)) : "");
    }
  }
  print_result(out);
  return ExitCode::ok;
}

}  // namespace spillway::cli
