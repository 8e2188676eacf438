// Flags of trace, calibrate, validate and reproduce.
#include "sim/cli/commands.hpp"

#include "sim/cli/evidence/calibrate_command.hpp"
#include "sim/cli/evidence/reproduce_command.hpp"
#include "sim/cli/evidence/validate_command.hpp"
#include "sim/cli/traces/trace_command.hpp"
#include "traces/trace_writer.hpp"

namespace spillway::cli {
namespace {

void add_skip(CLI::App& sub, TraceOptions& options) {
  sub.add_flag("--skip-bad-rows", options.skip_bad_rows, "Skip invalid trace rows and report how many");
}

void add_trace_output(CLI::App& sub, TraceOptions& options) {
  sub.add_option("-o,--out", options.out, "File to write; .bin, .csv or .jsonl chooses the format")
      ->required()
      ->type_name("FILE");
  one_of(sub.add_option("--format", options.format, "Format to write, whatever the file's name"),
         traces::written_formats());
}

void add_trace(CLI::App& app, Command& command) {
  CLI::App* sub = app.add_subcommand("trace", "Inspect, convert or write traces");
  sub->require_subcommand(1);
  set_footer(*sub, {"trace info trace.csv"});
  set_footer(add_command<TraceOptions>(
                 *sub, command, "info", "Show a trace's lengths, arrivals, conversations and shared prefixes",
                 [](CLI::App& info, TraceOptions& options) {
                   info.add_option("trace", options.input, "A trace file, or a bundled workload")
                       ->required()
                       ->type_name("FILE");
                   add_arguments(info, options.arguments);
                   info.add_flag("--json", options.json, "Print JSON");
                   add_skip(info, options);
                 },
                 trace_info),
             {"trace info trace.csv --json", "trace info sharegpt workload.requests=10000"});
  set_footer(
      add_command<TraceOptions>(
          *sub, command, "convert", "Write a trace file in one of Spillway's own formats",
          [](CLI::App& convert, TraceOptions& options) {
            convert.add_option("trace", options.input, "A trace file")->required()->type_name("FILE");
            add_arguments(convert, options.arguments);
            add_trace_output(convert, options);
            add_skip(convert, options);
          },
          trace_convert),
      {"trace convert trace.csv.gz -o trace.bin", "trace convert log.txt workload.format=azure-csv -o trace.jsonl"});
  set_footer(add_command<TraceOptions>(
                 *sub, command, "synth", "Write the requests that a run with these settings would see",
                 [](CLI::App& synth, TraceOptions& options) {
                   add_arguments(synth, options.arguments);
                   add_trace_output(synth, options);
                 },
                 trace_synth),
             {"trace synth workload.trace=sharegpt workload.rate=8 seed=3 -o sharegpt.jsonl",
              "trace synth workload.input_tokens=\"lognormal(1500,0.8)\" -o long.csv"});
}

void add_measurements(CLI::App& sub, CalibrateOptions& options) {
  sub.add_option(
         "files", options.fit.files,
         "Tables of measured kernels, copies, layers or iterations, also as .gz; OP=FILE reads one op of a file")
      ->required()
      ->type_name("FILE");
  sub.add_flag("--drop-inconsistent", options.fit.drop_inconsistent,
               "Skip impossible rows and report how many, instead of refusing the files");
}

void add_fit_flags(CLI::App& sub, CalibrateOptions& options) {
  add_measurements(sub, options);
  ProfileFit& fit = options.fit;
  sub.add_option("-o,--out", fit.out, "The profile to write")->required()->type_name("FILE");
  sub.add_option(
         "--host-out", fit.host_out,
         "Also write a host for a server's file, fitted to CPU attention, products on the CPU and reads of host memory")
      ->type_name("FILE");
  sub.add_option("--base", fit.base,
                 "GPU or profile to copy facts (memory, datasheet, links) and other fits from; another GPU than the "
                 "measured one lends them, without memory and bandwidth")
      ->type_name("PROFILE");
  sub.add_option("--gpu", fit.gpu, "The GPU that was measured [as the files state, else the base's]")
      ->type_name("TEXT");
  sub.add_option("--memory", options.memory, "The GPU's memory, such as \"48 GB\"")->type_name("SIZE");
  sub.add_option("--bandwidth", options.bandwidth, "The bandwidth of its memory, such as \"864 GB/s\"")
      ->type_name("RATE");
  sub.add_option("--name", fit.name, "The profile's name [the file's]")->type_name("TEXT");
  sub.add_option("--stands-for", fit.stands_for, "GPU and kernel library that were measured")->type_name("TEXT");
  sub.add_option("--model", fit.model, "The model whose layers or iterations were measured")->type_name("MODEL");
  sub.add_flag("--omit-measurements", fit.omit_measurements, "Write the fits without the measured rows");
  sub.add_flag("--json", options.json, "Print the errors as JSON");
}

void add_calibrate(CLI::App& app, Command& command) {
  CLI::App* sub = app.add_subcommand("calibrate", "Fit a GPU profile to measurements, or check one against them");
  sub->require_subcommand(1);
  set_footer(*sub, {"calibrate check h100-80gb-sxm gemm.csv.gz"});
  set_footer(add_command<CalibrateOptions>(
                 *sub, command, "fit", "Fit a profile for hardware=FILE to measurements, and print its held-out errors",
                 add_fit_flags, calibrate_fit),
             {"calibrate fit gemm.csv.gz decode.csv.gz prefill.csv.gz --base h100-80gb-sxm -o my.json",
              "calibrate fit dense.csv attention.csv per_sequence.csv --base rtx4090-24gb -o my.json",
              "calibrate fit cuda_calibrate.json decode.csv.gz prefill.csv.gz --base h200-141gb -o my.json --host-out "
              "my-host.json"});
  set_footer(add_command<CalibrateOptions>(
                 *sub, command, "check", "Print a profile's error on measurements, op by op",
                 [](CLI::App& check, CalibrateOptions& options) {
                   check.add_option("profile", options.profile, "A GPU's name, or a profile's file")
                       ->required()
                       ->type_name("PROFILE");
                   add_measurements(check, options);
                   check.add_flag("--roofline", options.roofline,
                                  "Check the analytic model instead of the fitted kernels");
                   check.add_flag("--json", options.json, "Print JSON");
                 },
                 calibrate_check),
             {"calibrate check my.json gemm.csv.gz --json", "calibrate check h100-80gb-sxm gemm.csv.gz --roofline"});
  set_footer(
      add_command<CalibrateOptions>(
          *sub, command, "errors", "Print the held-out errors that profiles state, as a Markdown table",
          [](CLI::App& errors, CalibrateOptions& options) {
            errors.add_option("profiles", options.fit.files, "Names of GPUs or files of profiles [all bundled GPUs]")
                ->type_name("PROFILE");
          },
          calibrate_errors),
      {"calibrate errors"});
}

void add_validate_flags(CLI::App& sub, ValidateOptions& options) {
  sub.add_option("log", options.replay.folder,
                 "Folder with requests.jsonl, meta.json and, if present, timeseries.csv; or a file of "
                 "measured requests: results of vllm bench serve, GuideLLM or AIPerf, or any with workload.columns")
      ->required()
      ->type_name("LOG");
  sub.add_option("arguments", options.replay.arguments,
                 "Settings that the log does not state, or that replace the log's")
      ->type_name("[key=value ...]");
  sub.add_flag("--drop-unfinished", options.replay.drop_unfinished,
               "Skip requests that did not finish and report how many");
  add_html(sub, options.html);
  sub.add_flag("--json", options.json, "Print JSON");
}

std::string log_help() {
  return "meta.json states the engine's settings, its model and its KV blocks. key=value replaces a setting.\n"
         "A file states none of them: give them as key=value.\n"
         "workload.trace gives the token ids of the prompts, which prefix caching needs.\n";
}

void add_reproduce_flags(CLI::App& sub, ReproduceOptions& options) {
  sub.add_option("names", options.names, "Claims, systems, experiments, or folders with an expected.json")
      ->type_name("CLAIM");
  sub.add_flag("--all", options.all, "Every bundled claim");
  sub.add_flag("--list", options.list, "List the claims; run nothing");
  sub.add_flag("--quick", options.quick, "Fewer seeds, requests or points, with the same bands");
  sub.add_flag("--full", options.full, "Also run the alternative values of what the sources leave open");
  sub.add_flag("--json", options.json, "Print JSON");
  add_html(sub, options.html);
  add_progress(sub, options.progress);
  add_jobs(sub, options.jobs, "Threads");
}

}  // namespace

void add_evidence_commands(CLI::App& app, Command& command) {
  add_trace(app, command);
  add_calibrate(app, command);
  set_footer_with_keys(
      add_command<ValidateOptions>(app, command, "validate",
                                   "Replay a real engine's request log and compare measured with simulated",
                                   add_validate_flags, validate),
      {"validate ./log hardware=./my-gpu.json",
       "validate ./log hardware=./my-gpu.json workload.trace=./prompts.jsonl --html log.html"},
      log_help);
  set_footer(
      add_command<ReproduceOptions>(app, command, "reproduce", "Check published claims: expected, simulated, verdict",
                                    add_reproduce_flags, reproduce),
      {"reproduce --list", "reproduce orca --quick -j 2", "reproduce --all --full --json -j 8"});
}

}  // namespace spillway::cli
