#include "cuda_calibrate/validate/validate.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "cuda_calibrate/host/host_facts.hpp"
#include "cuda_calibrate/measure/document.hpp"
#include "cuda_calibrate/measure/plan.hpp"
#include "cuda_calibrate/measure/statistics.hpp"
#include "hwmodels/calibration/measurements.hpp"
#include "hwmodels/models/engine_side.hpp"
#include "sim/core/printable.hpp"
#include "sim/core/text.hpp"
#include "sim/io/atomic_file.hpp"
#include "sim/io/output.hpp"

namespace spillway::calibrate {
namespace {

using hwmodels::GpuProfile;
using hwmodels::HostProfile;
using nlohmann::json;

constexpr std::int64_t kMostRepeats = 1000;
constexpr std::int64_t kMostThreads = 4096;
constexpr std::int64_t kMostGpus = 1024;

struct Subject {
  GpuProfile gpu;
  std::optional<HostProfile> host;
};

/// The GPU and the host of the profile. --host replaces the host. The experiments use one GPU: a server's totals are
/// those of several GPUs at once.
Subject load(const ValidateArguments& arguments) {
  hwmodels::Hardware hardware = hwmodels::load_hardware(arguments.profile);
  Subject subject{std::move(hardware.gpu), std::move(hardware.host)};
  if (!arguments.host.empty()) subject.host = hwmodels::load_host(arguments.host);
  return subject;
}

/// The cores of the named host, limited to this machine's cores if the machine will use them. Without a named host, all
/// cores of this machine.
std::int64_t threads_of(const ValidateArguments& arguments, const std::optional<HostProfile>& host) {
  if (arguments.threads > 0) return arguments.threads;
  const std::int64_t here = std::max<std::int64_t>(host_facts().physical_cores, 1);
  if (!host) return here;
  return arguments.dry_run || arguments.list ? host->cores : std::min(host->cores, here);
}

void check(const ValidateArguments& arguments) {
  std::vector<Problem> problems;
  for (const std::string& letter : arguments.experiments) {
    if (letter.size() == 1 && letter.front() >= 'a' && letter.front() <= 'e') continue;
    problems.push_back({fmt::format("unknown experiment \"{}\"", letter), "--experiments", "a, b, c, d or e"});
  }
  if (!problems.empty()) throw ConfigError(std::move(problems));
}

std::vector<Setting> chosen(std::vector<Setting> settings, const std::vector<std::string>& experiments) {
  std::erase_if(settings, [&](const Setting& setting) {
    return !experiments.empty() && std::ranges::find(experiments, letter_of(setting.experiment)) == experiments.end();
  });
  return settings;
}

std::string list_text(const std::vector<Setting>& settings) {
  std::string text;
  for (const Setting& setting : settings) text += fmt::format("{}  {}\n", setting.name, text_of(setting.experiment));
  return text;
}

/// The profile's JSON if the profile is a user's file; else null.
json profile_json(const GpuProfile& profile) {
  std::ifstream file(profile.file.path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  // The path of an embedded profile is relative to the repository; a different file may exist there.
  return file && sha256_hex(text) == profile.file.sha256 ? json::parse(text) : json();
}

struct FileOfFit {
  std::string name;
  std::string sha256;
};

std::vector<FileOfFit> files_of_fit(const GpuProfile& profile) {
  const json document = profile_json(profile);
  std::vector<FileOfFit> files;
  const json::json_pointer at("/measurements/files");
  if (!document.is_object() || !document.contains(at) || !document.at(at).is_array()) return files;
  for (const json& file : document.at(at)) {
    if (!file.is_object() || !file.contains("name") || !file.contains("sha256")) continue;
    files.push_back({file.value("name", std::string()), file.value("sha256", std::string())});
  }
  return files;
}

/// Empty when the file does not exist or has changed.
std::optional<std::string> device_of(const std::string& path, const std::string& sha256) {
  if (!std::filesystem::is_regular_file(path)) return std::nullopt;
  try {
    const hwmodels::MeasurementInput input{path, {}};
    const hwmodels::Measurements read = hwmodels::read_measurements(std::span(&input, 1));
    return read.files.front().sha256 == sha256 ? read.device.name : std::nullopt;
  } catch (const DataError&) {
    return std::nullopt;
  }
}

std::unique_ptr<Machine> machine_of(const ValidateArguments& arguments, const ValidateEnvironment& environment) {
  try {
    return environment.make_machine(arguments.gpu, arguments.seed);
  } catch (const DeviceError& error) {
    throw ConfigError(error.what(), "--gpu", "without a GPU, add --dry-run to print the predictions");
  } catch (const Unsupported& error) {
    throw ConfigError(error.what(), "--gpu", "without a GPU, add --dry-run to print the predictions");
  }
}

const GpuFacts& gpu_of(const MachineFacts& facts, std::int64_t index) {
  const auto gpu = std::ranges::find(facts.gpus, index, &GpuFacts::index);
  if (gpu == facts.gpus.end()) {
    throw ConfigError(facts.gpu_reason.empty() ? fmt::format("there is no GPU {}", index) : facts.gpu_reason, "--gpu",
                      "nvidia-smi lists the GPUs and their state");
  }
  return *gpu;
}

ValidationReport new_report(const ValidateArguments& arguments, const Predictor& predictor,
                            const std::vector<Setting>& settings) {
  const GpuProfile& gpu = predictor.gpu();
  ValidationReport report;
  report.profile = gpu.file.name;
  report.profile_path = arguments.profile;
  report.profile_sha256 = gpu.file.sha256;
  report.profile_error = gpu.file.error;
  report.notes = predictor.stand_ins(settings);
  if (!gpu.fitted_from.empty()) {
    report.notes.push_back(
        fmt::format("the kernels of {} are borrowed from {}, not measured", gpu.file.name, gpu.fitted_from));
  }
  report.outcomes = predicted(predictor, settings);
  return report;
}

void print(const ValidationReport& report, bool markdown) {
  print_result(markdown ? markdown_of(report) : text_of(report));
}

void save(const ValidationReport& report, const std::string& path) {
  if (!path.empty()) write_file(path, json_of(report).dump(2) + "\n");
}

/// Throws ConfigError when the profile describes another GPU than this one. Notes facts that could not be checked.
void check_gpu(const ValidateArguments& arguments, const GpuProfile& profile, const GpuFacts& gpu,
               std::vector<std::string>& notes) {
  const std::optional<std::string> name = measured_gpu(profile, arguments.measurements);
  const std::vector<std::string> differences = gpu_differences(profile, name, gpu);
  if (!name) {
    notes.push_back(
        fmt::format("no measurements were found that name the GPU of {}; only its SMs and memory "
                    "were compared",
                    profile.file.name));
  }
  if (differences.empty()) return;
  if (!arguments.any_gpu) {
    std::vector<Problem> problems;
    problems.reserve(differences.size());
    for (const std::string& difference : differences) {
      problems.push_back({difference, profile.file.path, "fit a profile of this GPU, or add --any-gpu"});
    }
    throw ConfigError(std::move(problems));
  }
  notes.insert(notes.end(), differences.begin(), differences.end());
}

ExitCode run(const ValidateArguments& arguments, const ValidateEnvironment& environment, const Predictor& predictor,
             ValidationReport& report) {
  const std::unique_ptr<Machine> machine = machine_of(arguments, environment);
  const MachineFacts facts = machine->facts();
  const GpuFacts& gpu = gpu_of(facts, machine->gpu());
  check_gpu(arguments, predictor.gpu(), gpu, report.notes);
  report.gpu = gpu.name;
  const RunLabels labels{environment.command, environment.utc(), arguments.seed, gpu.index};
  report.provenance = new_document(Plan{}, facts, labels, false).provenance;
  report.provenance.erase("level");  // only calibrations have levels
  // Detect a missing folder now, not after the first setting.
  save(report, arguments.out);
  const MeasureHooks hooks{arguments.repeats,
                           [&](const Outcome& outcome) {
                             fmt::print(stderr, "{}\n", printable(line_of(outcome)));
                             save(report, arguments.out);
                           },
                           &environment.interrupts()};
  const MeasureOutcome outcome = measure(predictor, *machine, report.outcomes, hooks);
  report.provenance["finished"] = environment.utc();
  save(report, arguments.out);
  print(report, arguments.markdown);
  if (outcome.code == ExitCode::data) {
    print_problems({{outcome.lost, "the GPU", "the settings measured before are kept"}}, "the run stopped");
  }
  if (outcome.code != ExitCode::ok) return outcome.code;
  return goal_met(error_lines(report.outcomes).back()) ? ExitCode::ok : ExitCode::gate;
}

}  // namespace

std::vector<Outcome> predicted(const Predictor& predictor, const std::vector<Setting>& settings) {
  std::vector<Outcome> outcomes;
  outcomes.reserve(settings.size());
  for (const Setting& setting : settings) {
    Outcome outcome{.setting = setting};
    try {
      outcome.predicted = to_seconds(predictor.predict(setting.experiment).length);
    } catch (const ConfigError& error) {
      outcome.reason = error.what();
    }
    outcomes.push_back(std::move(outcome));
  }
  return outcomes;
}

MeasureOutcome measure(const Predictor& predictor, Machine& machine, std::vector<Outcome>& outcomes,
                       const MeasureHooks& hooks) {
  MeasureOutcome result;
  for (Outcome& outcome : outcomes) {
    if (!outcome.predicted) continue;
    if (result.code == ExitCode::ok && hooks.stop != nullptr && *hooks.stop) result.code = ExitCode::interrupted;
    if (result.code != ExitCode::ok) {
      outcome.reason = result.code == ExitCode::interrupted ? "interrupted" : "the GPU was lost";
      continue;
    }
    try {
      const std::unique_ptr<Execution> execution =
          machine.prepare(predictor.predict(outcome.setting.experiment).schedule);
      for (std::int64_t i = 0; i < kWarmUps; ++i) static_cast<void>(execution->run());
      std::vector<double> seconds;
      seconds.reserve(static_cast<std::size_t>(hooks.repeats));
      for (std::int64_t i = 0; i < hooks.repeats; ++i) seconds.push_back(execution->run());
      outcome.measured = spread_of(seconds);
    } catch (const Unsupported& error) {
      outcome.reason = error.what();
    } catch (const OutOfMemory& error) {
      outcome.reason = error.what();
    } catch (const DeviceError& error) {
      outcome.reason = error.what();
      if (error.sticky()) {
        result.code = ExitCode::data;
        result.lost = error.what();
      }
    }
    hooks.done(outcome);
  }
  return result;
}

std::optional<std::string> measured_gpu(const GpuProfile& profile, const std::string& measurements) {
  const std::vector<FileOfFit> files = files_of_fit(profile);
  if (measurements.empty()) {
    const std::filesystem::path folder = std::filesystem::path(profile.file.path).parent_path();
    for (const FileOfFit& file : files) {
      if (auto name = device_of((folder / file.name).string(), file.sha256)) return name;
    }
    return std::nullopt;
  }
  const hwmodels::MeasurementInput input{measurements, {}};
  const hwmodels::Measurements read = hwmodels::read_measurements(std::span(&input, 1));
  const std::string& sha256 = read.files.front().sha256;
  if (std::ranges::find(files, sha256, &FileOfFit::sha256) == files.end()) {
    throw ConfigError(fmt::format("{} was not fitted from this file", profile.file.name), measurements,
                      "name the file that calibrate fit read, or fit the profile again");
  }
  return read.device.name;
}

std::vector<std::string> gpu_differences(const GpuProfile& profile, const std::optional<std::string>& measured_on,
                                         const GpuFacts& gpu) {
  std::vector<std::string> differences;
  if (measured_on && *measured_on != gpu.name) {
    differences.push_back(
        fmt::format("{} was measured on {}, but this GPU is {}", profile.file.name, *measured_on, gpu.name));
  }
  if (profile.sm_count > 0 && gpu.sm_count != profile.sm_count) {
    differences.push_back(
        fmt::format("{} has {} SMs, but {} has {}", profile.file.name, profile.sm_count, gpu.name, gpu.sm_count));
  }
  constexpr double kSameMemory = 0.03;
  const auto memory = static_cast<double>(profile.memory.count());
  if (std::abs(static_cast<double>(gpu.memory_bytes) - memory) > kSameMemory * memory) {
    differences.push_back(fmt::format("{} has {:.1f} GB, but {} has {:.1f} GB", profile.file.name, memory / 1e9,
                                      gpu.name, static_cast<double>(gpu.memory_bytes) / 1e9));
  }
  return differences;
}

ExitCode validate(const ValidateArguments& arguments, const ValidateEnvironment& environment) {
  check(arguments);
  const Subject subject = load(arguments);
  const Predictor predictor(subject.gpu, subject.host, threads_of(arguments, subject.host));
  const std::vector<Setting> settings = chosen(held_out_settings(predictor.scale()), arguments.experiments);
  if (arguments.list) {
    print_result(list_text(settings));
    return ExitCode::ok;
  }
  ValidationReport report = new_report(arguments, predictor, settings);
  if (!arguments.dry_run) return run(arguments, environment, predictor, report);
  save(report, arguments.out);
  print(report, arguments.markdown);
  return ExitCode::ok;
}

Subcommand validate_subcommand(ValidateEnvironment environment) {
  return [environment = std::move(environment)](CLI::App& app, Command& command) {
    const auto arguments = std::make_shared<ValidateArguments>();
    CLI::App* sub =
        app.add_subcommand("validate", "Execute what the simulator predicts from a profile, and compare the times");
    sub->add_option("profile", arguments->profile, "GPU or server: a name, or a file of calibrate fit")
        ->required()
        ->type_name("PROFILE");
    sub->add_option("--host", arguments->host, "Host of the CPU attention, if the profile has no fit of it")
        ->type_name("NAME");
    sub->add_option("--experiments", arguments->experiments,
                    "Only these experiments: a layer swaps, b weight prefetch, c swap-in, d page-out, e CPU attention")
        ->type_name("LIST")
        ->delimiter(',')
        ->allow_extra_args(false);
    sub->add_option("-o,--out", arguments->out, "File for predictions, measurements and errors, as JSON")
        ->type_name("FILE");
    sub->add_flag("--list", arguments->list, "List the settings; measure nothing");
    sub->add_flag("--dry-run", arguments->dry_run, "Print the predictions; measure nothing");
    sub->add_flag("--markdown", arguments->markdown, "Print the tables as Markdown");
    sub->add_flag("--any-gpu", arguments->any_gpu, "Accept the profile of another GPU");
    sub->add_option("--measurements", arguments->measurements,
                    "The file that the profile was fitted from, if it is in another folder than the profile")
        ->type_name("FILE");
    sub->add_option("--gpu", arguments->gpu, "Index of the GPU [0]")
        ->check(CLI::Range(std::int64_t{0}, kMostGpus))
        ->type_name("N");
    sub->add_option("--seed", arguments->seed, "Seed of the random data [1]")->type_name("N");
    sub->add_option("--repeats", arguments->repeats, "Timed runs of each setting; their median is the result [7]")
        ->check(CLI::Range(std::int64_t{7}, kMostRepeats))
        ->type_name("N");
    sub->add_option("--threads", arguments->threads,
                    "Threads of CPU attention [physical cores of --host, or of this machine]")
        ->check(CLI::Range(std::int64_t{1}, kMostThreads))
        ->type_name("N");
    sub->footer([] {
      return "Example: cuda_calibrate validate h100-80gb-sxm --host hgx-h100-host --dry-run\n"
             "Example: cuda_calibrate validate my-gpu.json -o validation.json\n"
             "Example: cuda_calibrate validate my-gpu.json --experiments a,b --markdown\n\n"
             "Exits with 5 when the median of the errors exceeds 5% or their 95th percentile 15%. Ctrl-C keeps the\n"
             "finished settings.\n\n" +
             exit_codes_help();
    });
    sub->callback([arguments, environment, &command] {
      command = [arguments, environment] { return validate(*arguments, environment); };
    });
  };
}

}  // namespace spillway::calibrate
