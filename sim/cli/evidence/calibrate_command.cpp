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
#include "hwmodels/calibration/profile_check.hpp"
#include "hwmodels/calibration/profile_writer.hpp"
#include "hwmodels/calibration/sharing_fits.hpp"
#include "hwmodels/calibration/sustained_fits.hpp"
#include "hwmodels/catalog.hpp"
#include "hwmodels/models/logged_models.hpp"
#include "sim/config/config.hpp"
#include "sim/core/printable.hpp"
#include "sim/core/text.hpp"
#include "sim/io/atomic_file.hpp"
#include "sim/io/output.hpp"

namespace spillway::cli {
namespace {

using hwmodels::CheckLine;
using hwmodels::ErrorSummary;
using hwmodels::GpuProfile;
using hwmodels::Measurements;

constexpr Bytes kLeastMemory{1'000'000'000};
constexpr BytesPerSecond kLeastBandwidth{1e9};

void print_note(const std::string& note) { fmt::print(stderr, "{}\n", printable(note)); }

std::string percent(double fraction) { return fmt::format("{:.1f}%", 100.0 * fraction); }

/// JSON as text. File names may be in any encoding.
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

/// Prints which fitted parts a run with this profile does not use by default.
void print_limits(const hwmodels::FittedKernels& fitted) {
  const bool unnamed = (fitted.layers && fitted.layers->model.model.empty()) ||
                       (fitted.iteration && fitted.iteration->model.model.empty());
  if (unnamed) {
    fmt::print(stderr,
               "the layers or iterations name no model, so latency_model=auto does not use them: give --model\n");
  }
  if (fitted.layers && !fitted.layers->model.per_sequence.contains("lm_head")) {
    fmt::print(stderr, "no table contains lm_head, so latency_model=tables leaves out the output layer\n");
  }
  if (fitted.layers) {
    const std::vector<std::string> unknown = hwmodels::unknown_layers(fitted.layers->model);
    if (!unknown.empty()) {
      fmt::print(stderr, "unknown operations, assumed to run once in every layer: {}\n",
                 printable(fmt::format("{}", fmt::join(unknown, ", "))));
    }
  }
  if (!fitted.host) return;
  fmt::print(
      stderr,
      "CPU times belong to an engine, not to a GPU: in engine=FILE set host_fixed to {:.4g} s and host_per_sequence to "
      "{:.4g} s\n",
      fitted.host->model.fixed_seconds, fitted.host->model.per_sequence_seconds);
}

std::string sharing_text(const nlohmann::json& sharing) {
  std::string text;
  for (const auto& [key, value] : sharing.items()) text += fmt::format("{} {:.4g}\n", key, value.get<double>());
  return text;
}

/// A value of a host's file.
std::string rate_text(const std::string& key, const nlohmann::ordered_json& value) {
  return value.is_null() ? fmt::format("{} null: bound by memory\n", key)
                         : fmt::format("{} {:.4g} FLOP/s\n", key, value.get<double>());
}

/// Shows the op being fitted on a terminal. The destructor clears the line, also after an error.
class FitProgress {
 public:
  FitProgress() = default;
  FitProgress(const FitProgress&) = delete;
  FitProgress& operator=(const FitProgress&) = delete;
  ~FitProgress() { print("\r\033[K"); }
  [[nodiscard]] std::function<void(std::string_view)> sink() const {
    return [](std::string_view op) { print(fmt::format("\r\033[Kfitting {} ...", op)); };
  }

 private:
  static void print(const std::string& text) {
    if (isatty(STDERR_FILENO) == 1) fmt::print(stderr, "{}", text);
  }
};

/// The single values of the profile that were fitted from rows of two concurrent operations.
nlohmann::json sharing_json(const std::string& profile, const Measurements& measurements) {
  const nlohmann::json values = nlohmann::json::parse(profile).at("values");
  nlohmann::json sharing = nlohmann::json::object();
  const auto take = [&](const char* key, bool measured) {
    if (measured && values.at(key).at("value").is_number()) sharing[key] = values.at(key).at("value");
  };
  take("h2d_bandwidth_duplex", hwmodels::duplex_bandwidth(measurements, {}, true).has_value());
  take("d2h_bandwidth_duplex", hwmodels::duplex_bandwidth(measurements, {}, false).has_value());
  for (const bool by_kernel : {false, true}) {
    take(hwmodels::slowdown_key(by_kernel), hwmodels::compute_slowdown(measurements, by_kernel).has_value());
  }
  const auto sustained = hwmodels::fit_sustained(measurements);
  for (const char* key : {"sustained_share", "sustained_slowdown", "sustained_window"}) {
    take(key, sustained && sustained->values);
  }
  return sharing;
}

/// Checks that a path names a .json file in a writable location.
void check_writable(const std::string& path, const std::string& option, const char* what, const char* taker) {
  if (!path.ends_with(".json")) {
    throw ConfigError(fmt::format("the {}'s name must end in .json, but it is {}", what, path),
                      fmt::format("{} {}", option, path), fmt::format("name it *.json, as {} needs", taker));
  }
  const AtomicFile writable(path);
}

/// The fit with the facts of the GPU that the user states.
ProfileFit with_facts(const CalibrateOptions& options) {
  ProfileFit fit = options.fit;
  std::vector<Problem> problems;
  if (!options.memory.empty()) {
    fit.memory = parse_bytes(options.memory);
    if (!fit.memory || *fit.memory < kLeastMemory) {
      problems.push_back({fmt::format("\"{}\" is not the size of a GPU's memory, at least 1 GB", options.memory),
                          "--memory", "write a number with a unit, such as \"48 GB\" or \"45 GiB\""});
    }
  }
  if (!options.bandwidth.empty()) {
    fit.bandwidth = parse_rate(options.bandwidth);
    if (!fit.bandwidth || *fit.bandwidth < kLeastBandwidth) {
      problems.push_back(
          {fmt::format("\"{}\" is not the bandwidth of a GPU's memory, at least 1 GB/s", options.bandwidth),
           "--bandwidth", "write a number with a unit, such as \"864 GB/s\""});
    }
  }
  if (!problems.empty()) throw ConfigError(std::move(problems));
  return fit;
}

/// "memory and memory_bandwidth are null: give --memory and --bandwidth", as far as they are; else empty.
std::string missing_facts(const std::string& profile) {
  const nlohmann::json values = nlohmann::json::parse(profile).at("values");
  std::vector<std::string> fields;
  std::vector<std::string> options;
  for (const auto& [field, option] : {std::pair("memory", "--memory"), {"memory_bandwidth", "--bandwidth"}}) {
    if (!values.at(field).at("value").is_null()) continue;
    fields.emplace_back(field);
    options.emplace_back(option);
  }
  if (fields.empty()) return {};
  return fmt::format("{} {} null: give {}", fmt::join(fields, " and "), fields.size() == 1 ? "is" : "are",
                     fmt::join(options, " and "));
}

}  // namespace

ExitCode calibrate_fit(const CalibrateOptions& options) {
  const ProfileFit wanted = with_facts(options);
  // A fit takes minutes, so check the name and the output file first.
  if (!wanted.base.empty()) static_cast<void>(load_gpu_named_at(wanted.base, "--base " + wanted.base));
  if (!wanted.model.empty()) static_cast<void>(hwmodels::load_llm(wanted.model));
  check_writable(wanted.out, "-o", "profile", "hardware=FILE");
  if (!wanted.host_out.empty()) check_writable(wanted.host_out, "--host-out", "host", "a server's file");
  const FittedProfile result = [&] {
    const FitProgress progress;
    return fit_profile(wanted, print_note, progress.sink());
  }();
  std::string out = header() + fmt::format("   {}\n", "held out");
  nlohmann::json ops = nlohmann::json::array();
  for (const hwmodels::FitLine& line : hwmodels::fit_lines(result.fitted)) {
    out += row(line.op, line.record->held_out) + "   " + line.record->held_out_by + "\n";
    ops.push_back(line_json(line.op, line.record->held_out));
    if (!line.record->roofline) continue;
    out += row("  analytic model", *line.record->roofline) + "   all rows\n";
    ops.back()["roofline"] = line_json(line.op, *line.record->roofline);
  }
  const nlohmann::json sharing = sharing_json(result.profile, result.measurements);
  out += sharing_text(sharing);
  const nlohmann::ordered_json rates = hwmodels::host_gemm_values(result.measurements);
  for (const auto& [key, rate] : rates.items()) out += rate_text(key, rate.at("value"));
  write_file(wanted.out, result.profile);
  if (!result.host.empty()) write_file(wanted.host_out, result.host);
  nlohmann::json json{{"profile", wanted.out}, {"ops", ops}};
  if (!sharing.empty()) json["sharing"] = sharing;
  if (!result.host.empty()) json["host"] = wanted.host_out;
  if (!rates.empty()) json["host_values"] = rates;
  print_result(options.json ? json_text(json) : out);
  print_note("wrote " + wanted.out);
  if (!result.host.empty()) print_note("wrote " + wanted.host_out);
  print_limits(result.fitted);
  if (!result.based) {
    print_note("memory, links and datasheet figures are null; use --base NAME to copy them from a profile");
  } else if (const std::string missing = missing_facts(result.profile); !missing.empty()) {
    print_note(missing);
  }
  return ExitCode::ok;
}

ExitCode calibrate_check(const CalibrateOptions& options) {
  const GpuProfile profile = load_gpu_named_at(options.profile, "calibrate check " + options.profile);
  Measurements measurements = read_rows(options.fit.files, print_note);
  // Use the possible rows even if some rows are impossible.
  const std::vector<Problem> problems = leave_out(measurements, limits_of(&profile, measurements), nullptr, print_note);
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
    throw DataError(
        fmt::format("nothing to check: {}", fmt::join(report.skipped, "; ")), options.profile,
        profile.fitted.empty() ? "the profile has no fits; use --roofline to check its analytic model" : "");
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
  const std::vector<std::string> names = options.fit.files.empty() ? hwmodels::gpu_names() : options.fit.files;
  std::string out =
      "| profile | op | held-out rows | median / p95 | bias | analytic model, all rows |\n"
      "|---|---|---|---|---|---|\n";
  for (const std::string& name : names) {
    const GpuProfile gpu = load_gpu_named_at(name, "calibrate errors " + name);
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
          "| `{}` | {}{} | {} | {} |\n", gpu.file.name, line.op,
          lent ? (held.n == 0 ? ", borrowed" : ", of the lender") : "", judged,
          roofline && roofline->n > 0 ? fmt::format("{} / {}", percent(roofline->median), percent(roofline->p95)) : "");
    }
  }
  print_result(out);
  return ExitCode::ok;
}

}  // namespace spillway::cli
