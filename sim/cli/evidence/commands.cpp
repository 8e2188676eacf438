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
  sub.add_flag("--skip-bad-rows", options.skip_bad_rows, "Leave out rows that are no request, and count them");
}

void add_trace_output(CLI::App& sub, TraceOptions& options) {
  sub.add_option("-o,--out", options.out, "File to write; .bin, .csv or .jsonl chooses the format")
      ->required()
      ->type_name("FILE");
  one_of(sub.add_option("--format", options.format, "Format to write, whatever the file's name"),
         traces::written_formats());
}

void add_trace(CLI::App& app, Command& command) {
  CLI::App* sub = app.add_subcommand("trace", "Look at, convert or write traces");
  sub->require_subcommand(1);
  set_footer(*sub, {"trace info trace.csv"});
  set_footer(add_command<TraceOptions>(
                 *sub, command, "info", "What a trace holds: lengths, arrivals, conversations, shared prefixes",
                 [](CLI::App& info, TraceOptions& options) {
                   info.add_option("trace", options.input, "A trace file, or a bundled workload")
                       ->required()
                       ->type_name("FILE");
                   add_arguments(info, options.arguments);
                   info.add_flag("--json", options.json, "As JSON");
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
  sub.add_option("files", options.fit.files,
                 "Tables of measured kernels, copies, layers or iterations, .gz or not; OP=FILE takes one op of a file")
      ->required()
      ->type_name("FILE");
  sub.add_flag("--drop-inconsistent", options.fit.drop_inconsistent,
               "Leave rows out that cannot be true, and count them, instead of refusing the files");
}

void add_fit_flags(CLI::App& sub, CalibrateOptions& options) {
  add_measurements(sub, options);
  ProfileFit& fit = options.fit;
  sub.add_option("-o,--out", fit.out, "The profile to write")->required()->type_name("FILE");
  sub.add_option("--host-out", fit.host_out,
                 "Also write the host, from CPU attention and reads of host memory, for a server's file to name")
      ->type_name("FILE");
  sub.add_option("--base", fit.base,
                 "GPU or profile whose facts (memory, datasheet, links) and other fits are taken over")
      ->type_name("PROFILE");
  sub.add_option("--name", fit.name, "The profile's name [the file's]")->type_name("TEXT");
  sub.add_option("--stands-for", fit.stands_for, "GPU and kernel library that were measured")->type_name("TEXT");
  sub.add_option("--model", fit.model, "The model that layer tables were measured on")->type_name("MODEL");
  sub.add_flag("--omit-measurements", fit.omit_measurements, "Write the fits without the measured rows");
  sub.add_flag("--json", options.json, "Print the errors as JSON");
}

void add_calibrate(CLI::App& app, Command& command) {
  CLI::App* sub = app.add_subcommand("calibrate", "Fit a GPU profile to measurements, or judge one by them");
  sub->require_subcommand(1);
  set_footer(*sub, {"calibrate check h100-80gb-sxm gemm.csv.gz"});
  set_footer(add_command<CalibrateOptions>(*sub, command, "fit",
                                           "Measurements to a profile that hardware=FILE takes, with held-out error",
                                           add_fit_flags, calibrate_fit),
             {"calibrate fit gemm.csv.gz decode.csv.gz prefill.csv.gz --base h100-80gb-sxm -o my.json",
              "calibrate fit dense.csv attention.csv per_sequence.csv --base rtx4090-24gb -o my.json",
              "calibrate fit cuda_calibrate.json decode.csv.gz prefill.csv.gz --base h200-141gb -o my.json --host-out "
              "my-host.json"});
  set_footer(add_command<CalibrateOptions>(
                 *sub, command, "check", "A profile's error on measurements, op by op",
                 [](CLI::App& check, CalibrateOptions& options) {
                   check.add_option("profile", options.profile, "A GPU's name, or a profile's file")
                       ->required()
                       ->type_name("PROFILE");
                   add_measurements(check, options);
                   check.add_flag("--roofline", options.roofline,
                                  "Judge the analytic model in place of the fitted kernels");
                   check.add_flag("--json", options.json, "Print JSON");
                 },
                 calibrate_check),
             {"calibrate check my.json gemm.csv.gz --json", "calibrate check h100-80gb-sxm gemm.csv.gz --roofline"});
  set_footer(add_command<CalibrateOptions>(
                 *sub, command, "errors", "The held-out errors that profiles state, as a Markdown table",
                 [](CLI::App& errors, CalibrateOptions& options) {
                   errors
                       .add_option("profiles", options.fit.files,
                                   "GPUs' names or profiles' files [all that Spillway carries]")
                       ->type_name("PROFILE");
                 },
                 calibrate_errors),
             {"calibrate errors"});
}

void add_validate_flags(CLI::App& sub, ValidateOptions& options) {
  sub.add_option("log", options.replay.folder,
                 "Folder with requests.jsonl and meta.json, and timeseries.csv where there is one")
      ->required()
      ->type_name("LOG_DIR");
  sub.add_option("arguments", options.replay.arguments, "What the log does not say, or what is to be tried instead")
      ->type_name("[key=value ...]");
  sub.add_flag("--drop-unfinished", options.replay.drop_unfinished,
               "Leave out requests that did not finish, and count them");
  sub.add_option("--html", options.html, "Write a page with the figures and pictures of both sides")->type_name("FILE");
  sub.add_flag("--json", options.json, "Print JSON");
}

std::string log_help() {
  return "The engine's settings, its model and its KV blocks are read from meta.json; key=value says otherwise.\n"
         "workload.trace gives the token ids of the prompts, so that prefixes can hit.\n";
}

void add_reproduce_flags(CLI::App& sub, ReproduceOptions& options) {
  sub.add_option("names", options.names, "Claims, systems, experiments, or folders with an expected.json")
      ->type_name("CLAIM");
  sub.add_flag("--all", options.all, "Every claim that Spillway carries");
  sub.add_flag("--list", options.list, "List the claims; run nothing");
  sub.add_flag("--quick", options.quick, "Fewer seeds, requests or points, with the same bands");
  sub.add_flag("--full", options.full, "Also at the other values of what the sources leave open");
  sub.add_flag("--json", options.json, "Print JSON");
  add_progress(sub, options.progress);
  add_jobs(sub, options.jobs, "Threads");
}

}  // namespace

void add_evidence_commands(CLI::App& app, Command& command) {
  add_trace(app, command);
  add_calibrate(app, command);
  set_footer_with_keys(add_command<ValidateOptions>(app, command, "validate",
                                                    "Replay a real engine's request log: simulated against measured",
                                                    add_validate_flags, validate),
                       {"validate ./log hardware=./my-gpu.json",
                        "validate ./log hardware=./my-gpu.json workload.trace=./prompts.jsonl --html log.html"},
                       log_help);
  set_footer(add_command<ReproduceOptions>(app, command, "reproduce", "Published claims: expected, simulated, verdict",
                                           add_reproduce_flags, reproduce),
             {"reproduce --list", "reproduce orca --quick -j 2", "reproduce --all --full --json -j 8"});
}

}  // namespace spillway::cli
