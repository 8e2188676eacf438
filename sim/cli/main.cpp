// The command line: subcommands, their options, and how errors end.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "sim/cli/about/completion.hpp"
#include "sim/cli/about/config_command.hpp"
#include "sim/cli/about/list.hpp"
#include "sim/cli/environment.hpp"
#include "sim/cli/evidence/calibrate_command.hpp"
#include "sim/cli/evidence/reproduce_command.hpp"
#include "sim/cli/evidence/validate_command.hpp"
#include "sim/cli/simulate/compare_command.hpp"
#include "sim/cli/simulate/run.hpp"
#include "sim/cli/simulate/search_command.hpp"
#include "sim/cli/simulate/sweep_command.hpp"
#include "sim/cli/traces/trace_command.hpp"
#include "sim/config/config.hpp"
#include "sim/core/error.hpp"
#include "sim/core/printable.hpp"
#include "sim/io/output.hpp"
#include "traces/trace_writer.hpp"

namespace spillway::cli {
namespace {

/// What the command line asked for; set by CLI11's callbacks, called when parsing is over.
using Command = std::function<ExitCode()>;

void add_arguments(CLI::App& app, std::vector<std::string>& arguments) {
  app.add_option("arguments", arguments, "CONFIG.json (JSON, comments allowed) and key=value, in any order")
      ->type_name("[CONFIG.json] [key=value ...]");
}

/// The names stand in --help and in completions.
CLI::Option* one_of(CLI::Option* option, const std::vector<std::string>& names) {
  return option->check(CLI::IsMember(names).description(""))->type_name(fmt::format("{}", fmt::join(names, "|")));
}

void add_run(CLI::App& app, RunOptions& options, Command& command) {
  CLI::App* sub = app.add_subcommand("run", "Simulate one configuration");
  add_arguments(*sub, options.arguments);
  CLI::Option* format =
      one_of(sub->add_option("--format", options.format, "What stdout gets"), {"table", "json", "csv", "vllm"});
  sub->add_flag_callback(
         "--json", [&options] { options.format = "json"; }, "Same as --format json")
      ->excludes(format);
  sub->add_option("-o,--out", options.directory, "Folder for result.json and config.resolved.json")->type_name("DIR");
  sub->add_option("--requests-out", options.requests_file, "One row per request: JSON lines, or CSV for *.csv")
      ->type_name("FILE");
  sub->add_option("--slo", options.slos, "Limits, e.g. ttft_ms<500 (per request: goodput), p99_ttft_ms<1000 (the run)")
      ->type_name("LIST")
      ->allow_extra_args(false);
  sub->add_option("--fail-if", options.gates, "Exit 5 when a metric is so, e.g. p99_ttft_ms>800")
      ->type_name("LIST")
      ->allow_extra_args(false);
  sub->add_option("--perturb", options.perturb, "Robustness: 30 runs more with times changed by e.g. 5%")
      ->type_name("FRACTION");
  sub->add_flag_callback(
      "--skip-bad-rows", [&options] { options.arguments.emplace_back("workload.skip_bad_rows=true"); },
      "Leave rows of the trace out that are no requests, and count them");
  sub->add_flag("--dry-run", options.dry_run, "Show the resolved set-up and whether it can run; run nothing");
  one_of(sub->add_option("--progress", options.progress, "Progress on stderr"), {"auto", "off"});
  sub->add_option("-j,--jobs", options.jobs, "Threads for replications")->check(CLI::Range(1, 1024))->type_name("N");
  sub->footer([] {
    return "Example: spillway run model=llama-3.1-8b hardware=h100-80gb-sxm workload.rate=8 --slo \"ttft_ms<500\"\n"
           "Example: spillway run my.json policy=vllm-v0 engine.preemption=swap -o out\n"
           "Example: spillway run workload.trace=./trace.csv replications=5 -j 4 --format csv\n\n" +
           environment_help() + "\n" + exit_codes_help() + "\n" + keys_help();
  });
  sub->callback([&options, &command, sub] {
    apply_flag_variables(*sub, options.problems);
    command = [&options] { return run(options); };
  });
}

/// Flags that the commands for several configurations share.
template <class Options>
void add_grid_options(CLI::App& sub, Options& options) {
  add_arguments(sub, options.arguments);
  CLI::Option* format =
      one_of(sub.add_option("--format", options.format, "What stdout gets"), {"table", "json", "csv"});
  sub.add_flag_callback(
         "--json", [&options] { options.format = "json"; }, "Same as --format json")
      ->excludes(format);
  sub.add_option("-o,--out", options.directory, "Folder that keeps every result: what it holds is not run again")
      ->type_name("DIR");
  sub.add_option("--slo", options.slos, "Limits, e.g. ttft_ms<500 (per request: goodput), p99_ttft_ms<1000 (the run)")
      ->type_name("LIST")
      ->allow_extra_args(false);
  sub.add_option("--zip", options.zips, "Keys that take their values together, e.g. model,tensor_parallel")
      ->type_name("KEYS")
      ->allow_extra_args(false);
  sub.add_option("--metrics", options.metrics, "Metrics of the table, e.g. p99_ttft_ms,mean_batch_requests")
      ->type_name("LIST")
      ->allow_extra_args(false);
  one_of(sub.add_option("--progress", options.progress, "Progress on stderr"), {"auto", "off"});
  sub.add_option("-j,--jobs", options.jobs, "Threads")->check(CLI::Range(1, 1024))->type_name("N");
  sub.add_flag("--dry-run", options.dry_run, "Show what would be run; run nothing");
}

std::string grid_help() {
  return "Several values for a key: key=a,b,c, key=lo:hi:step (2:8:2) or key=lo:hi:xK (1:16:x2); in CONFIG.json a\n"
         "list. Every combination is a point; --zip lets keys go together.\n";
}

void add_sweep(CLI::App& app, SweepOptions& options, Command& command) {
  CLI::App* sub = app.add_subcommand("sweep", "Simulate a grid of configurations; resumes where it was stopped");
  add_grid_options(*sub, options);
  sub->add_option("--shard", options.shard, "Run every n-th point from the i-th, for merge; default: as Slurm says")
      ->type_name("I/N");
  one_of(sub->add_option("--emit", options.emit, "Print a script that runs the sweep elsewhere; run nothing"),
         {"slurm"});
  sub->add_option("--shards", options.shards, "Tasks of the emitted script [16]")
      ->check(CLI::Range(1, 1000))
      ->type_name("N");
  sub->add_flag("--yes", options.yes, "Run more than 10000 points");
  sub->footer([] {
    return "Example: spillway sweep policy=vllm,sarathi workload.rate=2:16:x2 -o out/rates -j 2\n"
           "Example: spillway sweep my.json workload.rate=1:20:1 replications=5 -o out --emit slurm > submit.sh\n"
           "Example: spillway sweep model=llama-3.1-8b,llama-3.1-70b tensor_parallel=1,4 --zip "
           "model,tensor_parallel\n\n" +
           grid_help() + "\n" + exit_codes_help() + "\n" + keys_help();
  });
  sub->callback([&options, &command, sub] {
    apply_flag_variables(*sub, options.problems);
    command = [&options] { return sweep(options); };
  });
}

void add_perturb(CLI::App& sub, std::optional<std::string>& perturb) {
  sub.add_option("--perturb", perturb, "Robustness: the same again, 30 times, with times changed by e.g. 5%")
      ->type_name("FRACTION");
}

void add_compare(CLI::App& app, CompareOptions& options, Command& command) {
  CLI::App* sub = app.add_subcommand("compare", "Policies, or other settings, on the same traffic");
  add_grid_options(*sub, options);
  sub->add_option("--baseline", options.baseline, "Which one the others are held against [the first]")
      ->type_name("CONFIGURATION");
  add_perturb(*sub, options.perturb);
  sub->footer([] {
    return "Example: spillway compare policy=vllm,sarathi,orca workload.rate=8\n"
           "Example: spillway compare policy=all workload.trace=./trace.csv --slo \"ttft_ms<500\" -j 4\n"
           "Example: spillway compare policy=vllm-v0 engine.preemption=recompute,swap memory.gpu_kv=6GB --perturb "
           "5%\n\n" +
           grid_help() + "\n" + exit_codes_help() + "\n" + keys_help();
  });
  sub->callback([&options, &command, sub] {
    apply_flag_variables(*sub, options.problems);
    command = [&options] { return compare(options); };
  });
}

void add_search(CLI::App& app, SearchOptions& options, Command& command) {
  CLI::App* sub = app.add_subcommand("search", "The highest rate, or any key's limit, under SLOs");
  add_grid_options(*sub, options);
  sub->add_option("--max", options.max_key, "Search the largest value of this key, e.g. workload.rate")
      ->type_name("KEY");
  sub->add_option("--min", options.min_key, "Search the smallest value of this key, e.g. memory.gpu_kv")
      ->type_name("KEY");
  sub->add_option("--from", options.from, "Least value to try")->type_name("VALUE");
  sub->add_option("--to", options.to, "Largest value to try")->type_name("VALUE");
  sub->add_option("--tolerance", options.tolerance, "How close to find it [1%]")->type_name("FRACTION");
  sub->add_option("--attainment", options.attainment, "Requests that must meet SLOs on single requests [99%]")
      ->type_name("FRACTION");
  add_perturb(*sub, options.perturb);
  sub->footer([] {
    return "Example: spillway search --max workload.rate --slo \"p99_ttft_ms<1000,p99_itl_ms<100\"\n"
           "Example: spillway search policy=vllm,sarathi --max workload.rate --slo \"ttft_ms<500\" -j 2\n"
           "Example: spillway search --min memory.gpu_kv memory.gpu_kv=20GB workload.rate=8 --slo "
           "\"p99_ttft_ms<500\"\n\n" +
           grid_help() + "\n" + exit_codes_help() + "\n" + keys_help();
  });
  sub->callback([&options, &command, sub] {
    apply_flag_variables(*sub, options.problems);
    command = [&options] { return search(options); };
  });
}

void add_merge(CLI::App& app, MergeOptions& options, Command& command) {
  CLI::App* sub = app.add_subcommand("merge", "Put the shards of a sweep together, and say what is missing");
  sub->add_option("folders", options.folders, "The folders of all shards")->required()->type_name("DIR");
  sub->add_option("-o,--out", options.directory, "Folder for the whole sweep")->required()->type_name("DIR");
  CLI::Option* format =
      one_of(sub->add_option("--format", options.format, "What stdout gets"), {"table", "json", "csv"});
  sub->add_flag_callback(
         "--json", [&options] { options.format = "json"; }, "Same as --format json")
      ->excludes(format);
  sub->add_option("--metrics", options.metrics, "Metrics of the table")->type_name("LIST")->allow_extra_args(false);
  sub->footer([] { return "Example: spillway merge out/shards/* -o out\n\n" + exit_codes_help(); });
  sub->callback([&] { command = [&] { return merge(options); }; });
}

void add_list(CLI::App& app, std::string& kind, bool& json, Command& command) {
  CLI::App* sub =
      app.add_subcommand("list", "Names: policies, hardware, models, engines, workloads, metrics or experiments");
  sub->add_option("kind", kind, "What to list")->required()->type_name(fmt::format("{}", fmt::join(list_kinds(), "|")));
  sub->add_flag("--json", json, "As JSON");
  sub->footer([] { return "Example: spillway list policies\n\n" + exit_codes_help(); });
  sub->callback([&] { command = [&] { return list(kind, json); }; });
}

void add_explain(CLI::App& app, std::string& name, Command& command) {
  CLI::App* sub = app.add_subcommand(
      "explain", "What a policy, metric, key, GPU, server, model, engine, workload, experiment or claim is");
  sub->add_option("name", name, "Any name that list or config show prints, or a model's file")
      ->required()
      ->type_name("NAME");
  sub->footer([] { return "Example: spillway explain ttft_ms\n\n" + exit_codes_help(); });
  sub->callback([&] { command = [&] { return explain(name); }; });
}

void add_config(CLI::App& app, std::vector<std::string>& arguments, bool& json, Command& command) {
  CLI::App* sub = app.add_subcommand("config", "Check or show a configuration, or print its JSON Schema");
  sub->require_subcommand(1);
  sub->footer([] { return "Example: spillway config check my.json\n\n" + exit_codes_help(); });

  CLI::App* check = sub->add_subcommand("check", "Report every problem of a configuration; run nothing");
  add_arguments(*check, arguments);
  check->footer([] { return "Example: spillway config check my.json workload.rate=8\n\n" + exit_codes_help(); });
  check->callback([&] { command = [&] { return config_check(arguments); }; });

  CLI::App* show = sub->add_subcommand("show", "Print every value with its origin");
  add_arguments(*show, arguments);
  show->add_flag("--json", json, "As JSON");
  show->footer([] { return "Example: spillway config show my.json policy=vllm-v0\n\n" + exit_codes_help(); });
  show->callback([&] { command = [&] { return config_show(arguments, json); }; });

  CLI::App* schema = sub->add_subcommand("schema", "Print the JSON Schema (2020-12) of configuration files");
  schema->footer([] { return "Example: spillway config schema > spillway.schema.json\n\n" + exit_codes_help(); });
  schema->callback([&] { command = [] { return config_schema_command(); }; });
}

void add_trace_output(CLI::App& sub, TraceOptions& options) {
  sub.add_option("-o,--out", options.out, "File to write; .bin, .csv or .jsonl chooses the format")
      ->required()
      ->type_name("FILE");
  one_of(sub.add_option("--format", options.format, "Format to write, whatever the file's name"),
         traces::written_formats());
}

void add_trace(CLI::App& app, TraceOptions& options, Command& command) {
  CLI::App* sub = app.add_subcommand("trace", "Look at, convert or write traces");
  sub->require_subcommand(1);
  sub->footer([] { return "Example: spillway trace info trace.csv\n\n" + exit_codes_help(); });
  const auto add_skip = [&options](CLI::App& to) {
    to.add_flag("--skip-bad-rows", options.skip_bad_rows, "Leave out rows that are no request, and count them");
  };

  CLI::App* info = sub->add_subcommand("info", "What a trace holds: lengths, arrivals, conversations, shared prefixes");
  info->add_option("trace", options.input, "A trace file, or a bundled workload")->required()->type_name("FILE");
  add_arguments(*info, options.arguments);
  info->add_flag("--json", options.json, "As JSON");
  add_skip(*info);
  info->footer([] {
    return "Example: spillway trace info trace.csv --json\n"
           "Example: spillway trace info sharegpt workload.requests=10000\n\n" +
           exit_codes_help();
  });
  info->callback([&] { command = [&] { return trace_info(options); }; });

  CLI::App* convert = sub->add_subcommand("convert", "Write a trace file in one of Spillway's own formats");
  convert->add_option("trace", options.input, "A trace file")->required()->type_name("FILE");
  add_arguments(*convert, options.arguments);
  add_trace_output(*convert, options);
  add_skip(*convert);
  convert->footer([] {
    return "Example: spillway trace convert trace.csv.gz -o trace.bin\n"
           "Example: spillway trace convert log.txt workload.format=azure-csv -o trace.jsonl\n\n" +
           exit_codes_help();
  });
  convert->callback([&] { command = [&] { return trace_convert(options); }; });

  CLI::App* synth = sub->add_subcommand("synth", "Write the requests that a run with these settings would see");
  add_arguments(*synth, options.arguments);
  add_trace_output(*synth, options);
  synth->footer([] {
    return "Example: spillway trace synth workload.trace=sharegpt workload.rate=8 seed=3 -o sharegpt.jsonl\n"
           "Example: spillway trace synth workload.input_tokens=\"lognormal(1500,0.8)\" -o long.csv\n\n" +
           exit_codes_help();
  });
  synth->callback([&] { command = [&] { return trace_synth(options); }; });
}

void add_calibrate(CLI::App& app, CalibrateOptions& options, Command& command) {
  CLI::App* sub = app.add_subcommand("calibrate", "Fit a GPU profile to measurements, or judge one by them");
  sub->require_subcommand(1);
  sub->footer([] { return "Example: spillway calibrate check h100-80gb-sxm gemm.csv.gz\n\n" + exit_codes_help(); });
  const auto add_files = [&](CLI::App& to) {
    to.add_option(
          "files", options.files,
          "Tables of measured kernels, copies, layers or iterations, .gz or not; OP=FILE takes one op of a file")
        ->required()
        ->type_name("FILE");
    to.add_flag("--drop-inconsistent", options.drop_inconsistent,
                "Leave rows out that cannot be true, and count them, instead of refusing the files");
  };

  CLI::App* fit = sub->add_subcommand("fit", "Measurements to a profile that hardware=FILE takes, with held-out error");
  add_files(*fit);
  fit->add_option("-o,--out", options.out, "The profile to write")->required()->type_name("FILE");
  fit->add_option("--host-out", options.host_out,
                  "Also write the host, from CPU attention and reads of host memory, for a server's file to name")
      ->type_name("FILE");
  fit->add_option("--base", options.base,
                  "GPU or profile whose facts (memory, datasheet, links) and other fits are taken over")
      ->type_name("PROFILE");
  fit->add_option("--name", options.name, "The profile's name [the file's]")->type_name("TEXT");
  fit->add_option("--stands-for", options.stands_for, "GPU and kernel library that were measured")->type_name("TEXT");
  fit->add_option("--model", options.model, "The model that layer tables were measured on")->type_name("MODEL");
  fit->add_flag("--omit-measurements", options.omit_measurements, "Write the fits without the measured rows");
  fit->add_flag("--json", options.json, "Print the errors as JSON");
  fit->footer([] {
    return "Example: spillway calibrate fit gemm.csv.gz decode.csv.gz prefill.csv.gz --base h100-80gb-sxm -o my.json\n"
           "Example: spillway calibrate fit dense.csv attention.csv per_sequence.csv --base rtx4090-24gb -o "
           "my.json\n"
           "Example: spillway calibrate fit cuda_calibrate.json decode.csv.gz prefill.csv.gz --base h200-141gb -o "
           "my.json "
           "--host-out my-host.json\n\n" +
           exit_codes_help();
  });
  fit->callback([&] { command = [&] { return calibrate_fit(options); }; });

  CLI::App* check = sub->add_subcommand("check", "A profile's error on measurements, op by op");
  check->add_option("profile", options.profile, "A GPU's name, or a profile's file")->required()->type_name("PROFILE");
  add_files(*check);
  check->add_flag("--roofline", options.roofline, "Judge the analytic model in place of the fitted kernels");
  check->add_flag("--json", options.json, "Print JSON");
  check->footer([] {
    return "Example: spillway calibrate check my.json gemm.csv.gz --json\n"
           "Example: spillway calibrate check h100-80gb-sxm gemm.csv.gz --roofline\n\n" +
           exit_codes_help();
  });
  check->callback([&] { command = [&] { return calibrate_check(options); }; });

  CLI::App* errors = sub->add_subcommand("errors", "The held-out errors that profiles state, as a Markdown table");
  errors->add_option("profiles", options.files, "GPUs' names or profiles' files [all that Spillway carries]")
      ->type_name("PROFILE");
  errors->footer([] { return "Example: spillway calibrate errors\n\n" + exit_codes_help(); });
  errors->callback([&] { command = [&] { return calibrate_errors(options); }; });
}

void add_validate(CLI::App& app, ValidateOptions& options, Command& command) {
  CLI::App* sub = app.add_subcommand("validate", "Replay a real engine's request log: simulated against measured");
  sub->add_option("log", options.folder,
                  "Folder with requests.jsonl and meta.json, and timeseries.csv where there is one")
      ->required()
      ->type_name("LOG_DIR");
  sub->add_option("arguments", options.arguments, "What the log does not say, or what is to be tried instead")
      ->type_name("[key=value ...]");
  sub->add_flag("--drop-unfinished", options.drop_unfinished, "Leave out requests that did not finish, and count them");
  sub->add_option("--html", options.html, "Write a page with the figures and pictures of both sides")
      ->type_name("FILE");
  sub->add_flag("--json", options.json, "Print JSON");
  sub->footer([] {
    return "Example: spillway validate ./log hardware=./my-gpu.json\n"
           "Example: spillway validate ./log hardware=./my-gpu.json workload.trace=./prompts.jsonl --html log.html\n\n"
           "The engine's settings, its model and its KV blocks are read from meta.json; key=value says otherwise.\n"
           "workload.trace gives the token ids of the prompts, so that prefixes can hit.\n\n" +
           exit_codes_help() + "\n" + keys_help();
  });
  sub->callback([&] { command = [&] { return validate(options); }; });
}

void add_reproduce(CLI::App& app, ReproduceOptions& options, Command& command) {
  CLI::App* sub = app.add_subcommand("reproduce", "Published claims: expected, simulated, verdict");
  sub->add_option("names", options.names, "Claims, systems, experiments, or folders with an expected.json")
      ->type_name("CLAIM");
  sub->add_flag("--all", options.all, "Every claim that Spillway carries");
  sub->add_flag("--list", options.list, "List the claims; run nothing");
  sub->add_flag("--quick", options.quick, "Fewer seeds, requests or points, with the same bands");
  sub->add_flag("--full", options.full, "Also at the other values of what the sources leave open");
  sub->add_flag("--json", options.json, "Print JSON");
  one_of(sub->add_option("--progress", options.progress, "Progress on stderr"), {"auto", "off"});
  sub->add_option("-j,--jobs", options.jobs, "Threads")->check(CLI::Range(1, 1024))->type_name("N");
  sub->footer([] {
    return "Example: spillway reproduce --list\n"
           "Example: spillway reproduce orca --quick -j 2\n"
           "Example: spillway reproduce --all --full --json -j 8\n\n" +
           exit_codes_help();
  });
  sub->callback([&] { command = [&] { return reproduce(options); }; });
}

void add_completion(CLI::App& app, std::string& shell, Command& command) {
  CLI::App* sub = app.add_subcommand("completion", "Print a shell's completion script");
  sub->add_option("shell", shell, fmt::format("{}", fmt::join(completion_shells(), " or ")))
      ->required()
      ->type_name("SHELL");
  sub->footer([] {
    return "Example: spillway completion bash > ~/.local/share/bash-completion/completions/spillway\n"
           "Example: source <(spillway completion bash)\n\n" +
           exit_codes_help();
  });
  sub->callback([&] { command = [&] { return completion(shell); }; });
}

/// What the completion scripts call; no group: it is not in --help.
void add_complete(CLI::App& app, std::string& line, std::string& breaks, Command& command) {
  CLI::App* sub = app.add_subcommand("complete", "Print what may stand at the end of a command line")->group("");
  sub->add_option("--breaks", breaks, "Characters after which the shell replaces text");
  sub->add_option("line", line, "The command line up to the cursor")->required();
  sub->footer([] { return "Example: spillway complete -- \"spillway run pol\"\n\n" + exit_codes_help(); });
  sub->callback([&] {
    command = [&] {
      std::string text;
      for (const std::string& one : completions(app, line, breaks)) text += one + "\n";
      print_result(text);
      return ExitCode::ok;
    };
  });
}

/// The app whose options the user was typing.
const CLI::App* deepest(const CLI::App* app) {
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  return app;
}

/// CLI11's usage errors in the form of all others, with the nearest name.
int usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* sub = deepest(&app);
  std::vector<std::string> names;
  for (const CLI::Option* option : sub->get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  std::vector<std::string> commands;
  for (const CLI::App* command : sub->get_subcommands(nullptr)) {
    if (!command->get_group().empty()) commands.push_back(command->get_name());
  }
  names.insert(names.end(), commands.begin(), commands.end());
  std::string what = error.what();
  std::string fix;
  const std::vector<std::string> rest = app.remaining(true);
  for (const std::string& word : rest) {
    if (fix.empty()) fix = suggestion(word, names);
  }
  // CLI11 takes an unknown command for an argument and then misses a command.
  const bool no_command = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr && !commands.empty();
  if (no_command) {
    if (!rest.empty()) what = fmt::format("unknown command \"{}\"", rest.front());
    fix += fmt::format("commands: {}; ", fmt::join(commands, ", "));
  }
  std::string where;
  for (const CLI::App* at = sub; at != nullptr; at = at->get_parent()) {
    where = at->get_name() + (where.empty() ? "" : " " + where);
  }
  print_problems({{what, where, fix + "see " + where + " --help"}}, "nothing was run");
  return static_cast<int>(ExitCode::usage);
}

int main_guarded(int argc, char** argv) {
  CLI::App app{"Spillway simulates LLM serving: which policy, with which settings, gives which latency and throughput?",
               "spillway"};
  app.set_version_flag("--version", fmt::format("spillway {}", tool_version()));
  app.require_subcommand(1);
  app.footer([] { return "Example: spillway run workload.rate=8\n\n" + exit_codes_help(); });
  Command command;
  RunOptions options;
  std::string name;
  std::vector<std::string> arguments;
  std::string breaks;
  bool json = false;
  TraceOptions trace_options;
  CalibrateOptions calibrate_options;
  ValidateOptions validate_options;
  ReproduceOptions reproduce_options;
  SweepOptions sweep_options;
  MergeOptions merge_options;
  CompareOptions compare_options;
  SearchOptions search_options;
  add_run(app, options, command);
  add_sweep(app, sweep_options, command);
  add_compare(app, compare_options, command);
  add_search(app, search_options, command);
  add_merge(app, merge_options, command);
  add_list(app, name, json, command);
  add_explain(app, name, command);
  add_config(app, arguments, json, command);
  add_trace(app, trace_options, command);
  add_calibrate(app, calibrate_options, command);
  add_validate(app, validate_options, command);
  add_reproduce(app, reproduce_options, command);
  add_completion(app, name, command);
  add_complete(app, name, breaks, command);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    return usage_error(app, error);
  }
  return static_cast<int>(command());
}

}  // namespace
}  // namespace spillway::cli

int main(int argc, char** argv) {
  try {
    return spillway::cli::main_guarded(argc, argv);
  } catch (const spillway::UserError& error) {
    spillway::print_problems(error.problems(), "nothing was run");
    return static_cast<int>(error.code());
  } catch (const spillway::BrokenPromise& error) {
    fmt::print(stderr, "error: {}.\n  Correct the policy; nothing was written.\n", spillway::printable(error.what()));
    return static_cast<int>(spillway::ExitCode::invariant);
  } catch (const std::exception& error) {
    fmt::print(stderr, "internal error: {}\n  This is a defect of Spillway; nothing was written.\n",
               spillway::printable(error.what()));
    return static_cast<int>(spillway::ExitCode::invariant);
  }
}
