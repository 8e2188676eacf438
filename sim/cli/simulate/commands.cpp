// Flags of run, sweep, compare, search, place and merge.
#include "sim/cli/commands.hpp"

#include "sim/cli/environment.hpp"
#include "sim/cli/simulate/advise_command.hpp"
#include "sim/cli/simulate/compare_command.hpp"
#include "sim/cli/simulate/place_command.hpp"
#include "sim/cli/simulate/run.hpp"
#include "sim/cli/simulate/search_command.hpp"
#include "sim/cli/simulate/sweep_command.hpp"

namespace spillway::cli {
namespace {

/// Flags missing on the command line take their values from the environment.
constexpr auto kFromEnvironment = [](CLI::App& sub, auto& options) { apply_flag_variables(sub, options.problems); };

std::string grid_help() {
  return "Several values for a key: key=a,b,c, key=lo:hi:step (2:8:2) or key=lo:hi:xK (1:16:x2); in CONFIG.json a\n"
         "list. Every combination is a point; --zip varies keys together.\n";
}

void add_perturb(CLI::App& sub, std::optional<std::string>& perturb, const char* what) {
  sub.add_option("--perturb", perturb, what)->type_name("FRACTION");
}
void add_fixed_locality(CLI::App& sub, bool& fixed) {
  sub.add_flag("--fixed-locality", fixed,
               "If the policy places experts: do not also halve and double experts.locality");
}
constexpr const char* kPerturbAgain = "Robustness: repeat everything 30 times, with times changed by e.g. 5%";

void add_grid_flags(CLI::App& sub, GridOptions& options) {
  add_arguments(sub, options.arguments);
  add_format(sub, options.format, {"table", "json", "csv"});
  sub.add_option("-o,--out", options.directory, "Folder for the results; points with a result there do not run again")
      ->type_name("DIR");
  add_html(sub, options.html);
  add_slos(sub, options.slos);
  sub.add_option("--zip", options.zips, "Keys that change their values together, e.g. model,tensor_parallel")
      ->type_name("KEYS")
      ->allow_extra_args(false);
  add_metrics(sub, options.metrics);
  add_fixed_locality(sub, options.fixed_locality);
  add_progress(sub, options.progress);
  add_jobs(sub, options.jobs, "Threads");
  sub.add_flag("--dry-run", options.dry_run, "Show what would run; run nothing");
}

void add_recordings(CLI::App& sub, RecordingOptions& options) {
  sub.add_option("--timeline", options.timeline,
                 "Trace of the first replication for Perfetto (ui.perfetto.dev); compressed for *.gz")
      ->type_name("FILE");
  sub.add_option("--timeline-window", options.window, "Only this part of the run, e.g. 10s:20s")->type_name("WINDOW");
  sub.add_option("--timeline-events", options.timeline_events, "Most events of a timeline [200000]")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{100'000'000}).description(""))
      ->type_name("N");
  sub.add_option("--series", options.series,
                 "Time series of the first replication as CSV: load, KV, links, tokens; compressed for *.gz")
      ->type_name("FILE");
}

void add_run_flags(CLI::App& sub, RunOptions& options) {
  add_arguments(sub, options.arguments);
  add_format(sub, options.format, {"table", "json", "csv", "vllm"});
  sub.add_option("-o,--out", options.directory, "Folder for result.json, charts.json and config.resolved.json")
      ->type_name("DIR");
  sub.add_option("--requests-out", options.requests_file, "One row per request: JSON lines, or CSV for *.csv")
      ->type_name("FILE");
  add_html(sub, options.html);
  add_recordings(sub, options.recordings);
  add_slos(sub, options.slos);
  sub.add_option("--fail-if", options.gates, "Exit with code 5 if the condition is true, e.g. p99_ttft_ms>800")
      ->type_name("LIST")
      ->allow_extra_args(false);
  add_perturb(sub, options.perturb, "Robustness: 30 more runs with times changed by e.g. 5%");
  add_fixed_locality(sub, options.fixed_locality);
  sub.add_flag_callback(
      "--skip-bad-rows", [&options] { options.arguments.emplace_back("workload.skip_bad_rows=true"); },
      "Skip invalid trace rows and report how many");
  sub.add_flag("--dry-run", options.dry_run, "Show the resolved set-up and whether it can run; run nothing");
  add_progress(sub, options.progress);
  add_jobs(sub, options.jobs, "Threads for replications");
}

void add_sweep_flags(CLI::App& sub, SweepOptions& options) {
  add_grid_flags(sub, options);
  sub.add_option("--shard", options.shard,
                 "Run every n-th point, from the i-th; merge joins the shards [Slurm's array task]")
      ->type_name("I/N");
  CLI::Option* emit = one_of(
      sub.add_option("--emit", options.emit, "Print a script that runs the sweep elsewhere; run nothing"), {"slurm"});
  sub.add_option("--shards", options.shards, "Number of tasks in the emitted script [16]")
      ->needs(emit)
      ->check(CLI::Range(1, 1000))
      ->type_name("N");
  sub.add_flag("--yes", options.yes, "Run more than 10000 points");
}

void add_compare_flags(CLI::App& sub, CompareOptions& options) {
  add_grid_flags(sub, options);
  sub.add_option("--baseline", options.baseline,
                 "Configuration to compare the others with [the first; with policy=all: the default policy]")
      ->type_name("CONFIGURATION");
  add_perturb(sub, options.perturb, kPerturbAgain);
}

void add_search_flags(CLI::App& sub, SearchOptions& options) {
  add_grid_flags(sub, options);
  sub.add_option("--max", options.max_key, "Find the largest value of this key, e.g. workload.rate")->type_name("KEY");
  sub.add_option("--min", options.min_key, "Find the smallest value of this key, e.g. memory.gpu_kv")->type_name("KEY");
  sub.add_option("--from", options.from, "Smallest value to try")->type_name("VALUE");
  sub.add_option("--to", options.to, "Largest value to try")->type_name("VALUE");
  sub.add_option("--tolerance", options.tolerance, "Precision of the value found [1%]")->type_name("FRACTION");
  sub.add_option("--attainment", options.attainment,
                 "Share of requests that must meet the SLOs on single requests [99%]")
      ->type_name("FRACTION");
  add_perturb(sub, options.perturb, kPerturbAgain);
}

void add_advise_flags(CLI::App& sub, AdviseOptions& options) {
  add_grid_flags(sub, options);
  sub.add_flag("--quick", options.quick,
               "2,000 requests a run, fewer settings, no test for steady state, no perturbed times, no crossovers");
  sub.add_option("--tolerance", options.tolerance, "Precision of the capacities [2%]")->type_name("FRACTION");
  sub.add_option("--attainment", options.attainment,
                 "Share of requests that must meet the SLOs on single requests [99%]")
      ->type_name("FRACTION");
  add_perturb(sub, options.perturb, "Whether the ranking survives times changed by so much [5%]");
}

void add_plan_flags(CLI::App& sub, PlanOptions& options) {
  add_grid_flags(sub, options);
  sub.add_flag("--quick", options.quick, "2,000 requests a run, no test for steady state");
  sub.add_option("--tolerance", options.tolerance, "Precision of the capacities [2%]")->type_name("FRACTION");
  sub.add_option("--attainment", options.attainment,
                 "Share of requests that must meet the SLOs on single requests [99%]")
      ->type_name("FRACTION");
}

void add_place_flags(CLI::App& sub, PlaceOptions& options) {
  sub.add_option("cluster", options.cluster, "The servers, and the models to place")
      ->required()
      ->type_name("CLUSTER.json");
  add_format(sub, options.format, {"table", "json"});
  sub.add_flag("--compat", options.compat,
               "Place as AQUA's published code does: the GPUs of a model one by one, no term of the objective below 0");
  sub.add_flag("--place-only", options.place_only, "Do not simulate what the placement is worth");
  add_progress(sub, options.progress);
  add_jobs(sub, options.jobs, "Threads");
}

std::string cluster_help() {
  return "CLUSTER.json: {\"hardware\": \"hgx-h100-8\", \"servers\": 2, \"models\": [\n"
         "  {\"name\": \"sd\", \"copies\": 4, \"lends\": \"30GB\"},\n"
         "  {\"name\": \"opt\", \"borrows\": \"20GB\", \"model\": \"opt-30b\", \"workload\": {\"rate\": 4}}]}\n"
         "A model that neither lends nor borrows is measured with its workload. Any key of a run may stand in a model, "
         "or\n"
         "beside the list for all.\n";
}

void add_merge_flags(CLI::App& sub, MergeOptions& options) {
  sub.add_option("folders", options.folders, "The folders of all shards")->required()->type_name("DIR");
  sub.add_option("-o,--out", options.directory, "Folder for the whole sweep")->required()->type_name("DIR");
  add_format(sub, options.format, {"table", "json", "csv"});
  add_metrics(sub, options.metrics);
}

}  // namespace

void add_simulation_commands(CLI::App& app, Command& command) {
  set_footer_with_keys(
      add_command<RunOptions>(app, command, "run", "Simulate one configuration", add_run_flags, run, kFromEnvironment),
      {"run model=llama-3.1-8b hardware=h100-80gb-sxm workload.rate=8 --slo \"ttft_ms<500\"",
       "run my.json policy=pie -o out --html page.html --timeline trace.json.gz --timeline-window 10s:20s"},
      environment_help);
  set_footer_with_keys(add_command<SweepOptions>(app, command, "sweep",
                                                 "Simulate a grid of configurations; continues where it was stopped",
                                                 add_sweep_flags, sweep, kFromEnvironment),
                       {"sweep policy=vllm,sarathi workload.rate=2:16:x2 -o out/rates -j 2",
                        "sweep my.json workload.rate=1:20:1 replications=5 -o out --emit slurm > submit.sh",
                        "sweep model=llama-3.1-8b,llama-3.1-70b tensor_parallel=1,4 --zip model,tensor_parallel"},
                       grid_help);
  set_footer_with_keys(
      add_command<CompareOptions>(app, command, "compare", "Compare policies, or other settings, on the same traffic",
                                  add_compare_flags, compare, kFromEnvironment),
      {"compare policy=vllm,sarathi,orca workload.rate=8",
       "compare policy=all workload.trace=./trace.csv --slo \"ttft_ms<500\" -j 4",
       "compare policy=vllm-v0 engine.preemption=recompute,swap memory.gpu_kv=6GB --perturb 5%"},
      grid_help);
  set_footer_with_keys(add_command<SearchOptions>(app, command, "search",
                                                  "Find the highest rate, or the limit of another key, that meets SLOs",
                                                  add_search_flags, search, kFromEnvironment),
                       {"search --max workload.rate --slo \"p99_ttft_ms<1000,p99_itl_ms<100\"",
                        "search policy=vllm,sarathi --max workload.rate --slo \"ttft_ms<500\" -j 2",
                        "search --min memory.gpu_kv memory.gpu_kv=20GB workload.rate=8 --slo \"p99_ttft_ms<500\""},
                       grid_help);
  set_footer_with_keys(
      add_command<AdviseOptions>(app, command, "advise", "Rank policies and settings by what they sustain under SLOs",
                                 add_advise_flags, advise, kFromEnvironment),
      {"advise model=llama-3.1-8b hardware=h100-80gb-sxm --slo \"p99_ttft_ms<2000,p99_itl_ms<100\" --quick -j 2",
       "advise policy=vllm,pie,neo hardware=gh200-server,hgx-h100-8 workload.rate=50 --slo \"ttft_ms<1000\" -j 2",
       "advise my.json --slo \"p99_ttft_ms<1000\" --perturb 10% --json"},
      grid_help);
  set_footer_with_keys(
      add_command<PlanOptions>(app, command, "plan", "Find hardware and replicas for a rate: cost against latency",
                               add_plan_flags, plan, kFromEnvironment),
      {"plan model=llama-3.1-8b workload.rate=50 --slo \"p99_ttft_ms<2000,p99_itl_ms<100\" --quick -j 2",
       "plan hardware=h100-80gb-sxm,a100-80gb-sxm tensor_parallel=1,2 workload.rate=200 --slo \"ttft_ms<1000\""},
      grid_help);
  set_footer(add_command<PlaceOptions>(app, command, "place",
                                       "Place models on servers so that each consumer has a lender of memory (AQUA)",
                                       add_place_flags, place),
             {"place cluster.json", "place cluster.json --compat --json"}, cluster_help);
  set_footer(add_command<MergeOptions>(app, command, "merge", "Join the shards of a sweep, or report what is missing",
                                       add_merge_flags, merge),
             {"merge out/shards/* -o out"});
}

}  // namespace spillway::cli
