#include "cuda_calibrate/measure/cli.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

#include "cuda_calibrate/measure/document.hpp"
#include "cuda_calibrate/measure/known_gpus.hpp"
#include "cuda_calibrate/measure/plan.hpp"
#include "cuda_calibrate/measure/runner.hpp"
#include "cuda_calibrate/measure/summary.hpp"
#include "hwmodels/catalog.hpp"
#include "sim/core/printable.hpp"
#include "sim/core/text.hpp"
#include "sim/io/output.hpp"

namespace spillway::calibrate {
namespace {

constexpr std::int64_t kMostGpus = 1024;

/// Splits texts at commas.
std::vector<std::string> words_of(const std::vector<std::string>& lists) {
  std::vector<std::string> words;
  for (const std::string& list : lists) {
    std::size_t begin = 0;
    while (begin <= list.size()) {
      const std::size_t end = std::min(list.find(',', begin), list.size());
      const std::string_view word = trimmed(std::string_view(list).substr(begin, end - begin));
      if (!word.empty()) words.emplace_back(word);
      begin = end + 1;
    }
  }
  return words;
}

Level level_of(const Arguments& arguments) {
  if (arguments.quick) return Level::quick;
  return arguments.full ? Level::full : Level::normal;
}

/// The linear layers of one GPU, and the LM head.
std::vector<WeightShape> shapes_of(const Arguments& arguments) {
  if (arguments.model.empty()) return {};
  const hwmodels::LlmModel model = hwmodels::load_llm(arguments.model);
  if (const auto problem = model.tensor_parallel_problem(arguments.tensor_parallel)) {
    throw ConfigError({*problem});
  }
  std::vector<WeightShape> shapes;
  shapes.reserve(model.layer_matrices(arguments.tensor_parallel).size() + 1);
  for (const hwmodels::Matrix& matrix : model.layer_matrices(arguments.tensor_parallel)) {
    shapes.push_back({matrix.outputs, matrix.inputs});
  }
  const hwmodels::Matrix head = model.head_matrix(arguments.tensor_parallel);
  shapes.push_back({head.outputs, head.inputs});
  return shapes;
}

void check(const Arguments& arguments) {
  if (!arguments.assume.empty() && !arguments.dry_run) {
    throw ConfigError("hardware that is only assumed cannot be measured", "--assume", "add --dry-run");
  }
  if (arguments.json && !arguments.dry_run) {
    throw ConfigError("--json prints only a plan", "--json", "add --dry-run; measurements go to the file of -o");
  }
  if (arguments.out.empty() && !arguments.dry_run && !arguments.list) {
    throw ConfigError("no file was named for the measurements", "-o",
                      "name a file: cuda_calibrate --quick -o gpu.json");
  }
  if (arguments.resume && arguments.force) {
    throw ConfigError("--resume keeps the file that --force replaces", "--force", "give one of them");
  }
  std::error_code ignored;
  const bool writes = !arguments.dry_run && !arguments.list && !arguments.resume && !arguments.force;
  if (writes && std::filesystem::is_regular_file(arguments.out, ignored)) {
    throw ConfigError(fmt::format("the file {} exists", printable(arguments.out)), "-o",
                      "add --resume to measure what it lacks, or --force to replace it");
  }
  if (arguments.tensor_parallel != 1 && arguments.model.empty()) {
    throw ConfigError("--tensor-parallel needs a model to split", "--tensor-parallel", "add --model");
  }
}

ExitCode list_sections() {
  // Titles and purposes do not depend on the machine, so assume one without a GPU.
  std::string text;
  for (const Section& section : make_plan({}, MachineFacts{}).sections) {
    text += fmt::format("{:<18} {}: {}\n", section.id, section.title, section.purpose);
  }
  print_result(text);
  return ExitCode::ok;
}

/// Progress on stderr: one rewritten line on a terminal, elsewhere one line per section.
class ProgressPrinter {
 public:
  ProgressPrinter() : terminal_(::isatty(STDERR_FILENO) == 1) {}
  ~ProgressPrinter() { clear(); }
  ProgressPrinter(const ProgressPrinter&) = delete;
  ProgressPrinter& operator=(const ProgressPrinter&) = delete;

  void show(const RunProgress& progress) {
    if (progress.section_ended) {
      clear();
      // The final table lists sections that the machine cannot measure.
      if (progress.result->points_planned > 0) fmt::print(stderr, "{}\n", section_text(*progress.result));
    } else if (terminal_) {
      fmt::print(stderr, "\r{}\x1b[K", progress_text(progress));
      std::fflush(stderr);
      on_screen_ = true;
    }
  }

 private:
  void clear() {
    if (on_screen_) fmt::print(stderr, "\r\x1b[K");
    on_screen_ = false;
  }

  bool terminal_;
  bool on_screen_ = false;
};

std::unique_ptr<Backend> backend_of(const Arguments& arguments, const Environment& environment) {
  try {
    return environment.make_backend(arguments.gpu, arguments.seed);
  } catch (const DeviceError& error) {
    throw ConfigError(error.what(), "--gpu", "nvidia-smi lists the GPUs and their state");
  }
}

ExitCode measure(const Arguments& arguments, const Environment& environment, Backend& backend,
                 const MachineFacts& facts, const Plan& plan) {
  const RunLabels labels{arguments.command, environment.utc(), arguments.seed, arguments.gpu};
  Document document = new_document(plan, facts, labels, arguments.raw);
  const std::int64_t taken = arguments.resume ? resume_from(arguments.out, document) : 0;
  if (taken > 0) fmt::print(stderr, "sections kept from an earlier run: {}, in {}\n", taken, printable(arguments.out));
  // Detect a missing folder now, not after the first section.
  write_document(arguments.out, document);
  RunOutcome outcome;
  {
    ProgressPrinter printer;
    const RunHooks hooks{environment.clock, environment.utc,
                         [&](const RunProgress& progress) { printer.show(progress); },
                         [&](const Document& done) { write_document(arguments.out, done); }, &environment.interrupts()};
    outcome = run_plan(plan, backend, arguments.gpu, document, hooks);
  }
  print_result(summary_text(document));
  const std::string resume = fmt::format("run the same command with --resume to continue {}", arguments.out);
  if (outcome.code == ExitCode::interrupted) fmt::print(stderr, "interrupted; {}\n", printable(resume));
  if (outcome.code == ExitCode::data) print_problems({{outcome.lost, "the GPU", resume}}, "the run stopped");
  if (outcome.code == ExitCode::partial) fmt::print(stderr, "some sections failed; {}\n", printable(resume));
  return outcome.code;
}

void add_options(CLI::App& app, Arguments& arguments) {
  app.add_option("-o,--out", arguments.out, "File for the measurements, which spillway calibrate fit reads")
      ->type_name("FILE");
  CLI::Option* quick = app.add_flag("--quick", arguments.quick, "Fewest points: at most 60 s");
  app.add_flag("--full", arguments.full, "Most points: at most 15 min in total, 5 min per section")->excludes(quick);
  app.add_option("--sections", arguments.sections, "Measure only these sections, e.g. copy,gemm or attention.decode")
      ->type_name("LIST")
      ->allow_extra_args(false);
  app.add_option("--skip", arguments.skip, "Leave out these sections")->type_name("LIST")->allow_extra_args(false);
  app.add_option("--gpu", arguments.gpu, "Index of the GPU [0]")
      ->check(CLI::Range(std::int64_t{0}, kMostGpus))
      ->type_name("N");
  app.add_option("--seed", arguments.seed, "Seed of the random data [1]")->type_name("N");
  app.add_option("--model", arguments.model,
                 "Also measure the matrices of this model: a name, or a Hugging Face config.json")
      ->type_name("MODEL");
  app.add_option("--tensor-parallel", arguments.tensor_parallel, "Number of GPUs that the model is split over [1]")
      ->check(CLI::Range(std::int64_t{1}, kMostGpus))
      ->type_name("N");
  app.add_flag("--resume", arguments.resume, "Measure only the sections that the file does not have yet");
  app.add_flag("--force", arguments.force, "Replace the file of an earlier run");
  app.add_flag("--raw", arguments.raw, "Write every timing, not only the medians");
  app.add_flag("--list", arguments.list, "List the sections; measure nothing");
  app.add_flag("--dry-run", arguments.dry_run, "Show what would be measured and about how long it takes");
  app.add_flag("--json", arguments.json, "Print the plan of --dry-run as JSON, with every point");
  app.add_option("--assume", arguments.assume, "Plan for this GPU or server, not for this machine")
      ->type_name("HARDWARE");
  app.footer([] {
    return "Example: cuda_calibrate --dry-run --quick --assume h100-80gb-sxm\n"
           "Example: cuda_calibrate --quick -o quick.json && spillway calibrate fit quick.json -o my-gpu.json\n"
           "Example: cuda_calibrate --full --model llama-3.1-8b -o full.json\n"
           "Example: cuda_calibrate --full --resume -o full.json\n\n"
           "Without CUDA or without a GPU, the tool measures the sections of the host and states why it skips the\n"
           "others. Ctrl-C keeps the finished sections.\n\n" +
           exit_codes_help();
  });
}

int usage_error(const CLI::App& app, const CLI::ParseError& error) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  for (const CLI::App* sub : app.get_subcommands(nullptr)) names.push_back(sub->get_name());
  std::string fix;
  for (const std::string& word : app.remaining(true)) {
    const std::string near = nearest_name(word, names);
    if (fix.empty() && !near.empty()) fix = fmt::format("did you mean {}? ", near);
  }
  print_problems({{error.what(), "cuda_calibrate", fmt::format("{}see cuda_calibrate --help", fix)}},
                 "nothing was measured");
  return static_cast<int>(ExitCode::usage);
}

int parse_and_run(int argc, const char* const* argv, const Environment& environment,
                  const std::vector<Subcommand>& subcommands) {
  CLI::App app{"Measures a GPU and its host for Spillway: copies, kernels, host memory", "cuda_calibrate"};
  app.set_version_flag("--version", fmt::format("cuda_calibrate {}", tool_version()));
  Arguments arguments;
  arguments.command = command_text(argc, argv);
  add_options(app, arguments);
  Command command;
  for (const Subcommand& add : subcommands) add(app, command);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return usage_error(app, error);
  }
  return static_cast<int>(command ? command() : calibrate(arguments, environment));
}

}  // namespace

ExitCode calibrate(const Arguments& arguments, const Environment& environment) {
  check(arguments);
  if (arguments.list) return list_sections();
  const PlanOptions options{level_of(arguments), words_of(arguments.sections), words_of(arguments.skip),
                            shapes_of(arguments), arguments.gpu};
  // An assumed GPU belongs to this host, so ask the host without a GPU.
  const std::unique_ptr<Backend> backend = backend_of(arguments, environment);
  MachineFacts facts = backend->facts();
  if (!arguments.assume.empty()) facts = assumed_facts(arguments.assume, facts.host);
  if (arguments.resume) facts.host.available_bytes = memory_of_plan(arguments.out).value_or(facts.host.available_bytes);
  const Plan plan = make_plan(options, facts);
  if (!arguments.dry_run) return measure(arguments, environment, *backend, facts, plan);
  print_result(arguments.json ? fmt::format("{}\n", plan_json(plan, facts, arguments.gpu).dump(2))
                              : plan_text(plan, facts, arguments.gpu));
  return ExitCode::ok;
}

std::string command_text(int argc, const char* const* argv) {
  if (argc < 1) return {};
  const std::string program = std::filesystem::path(argv[0]).filename().string();
  return fmt::format("{}{}{}", program, argc > 1 ? " " : "", fmt::join(argv + 1, argv + argc, " "));
}

int tool_main(int argc, const char* const* argv, const Environment& environment,
              const std::vector<Subcommand>& subcommands) {
  try {
    return parse_and_run(argc, argv, environment, subcommands);
  } catch (const UserError& error) {
    print_problems(error.problems(), "nothing more was measured");
    return static_cast<int>(error.code());
  } catch (const DeviceError& error) {
    print_problems({{error.what(), "the GPU", "nvidia-smi shows its state"}}, "nothing more was measured");
    return static_cast<int>(ExitCode::data);
  } catch (const std::exception& error) {
    fmt::print(stderr, "internal error: {}\n  This is a defect of cuda_calibrate.\n", printable(error.what()));
    return static_cast<int>(ExitCode::invariant);
  }
}

}  // namespace spillway::calibrate
