// Speed and memory of the whole process, start to exit, as a user's shell sees them.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/paths.hpp"

namespace {

using spillway::source_dir;
using spillway::spillway_binary;

struct Usage {
  bool ok = false;
  double peak_bytes = 0.0;
};

/// Runs the binary with its output thrown away.
Usage run_process(const std::string& command, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {spillway_binary(), command, "--progress", "off"});
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int spawned = posix_spawn(&child, spillway_binary().c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  Usage usage;
  if (spawned != 0) return usage;
  int status = 0;
  rusage resources{};
  if (wait4(child, &status, 0, &resources) != child) return usage;
  usage.ok = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  usage.peak_bytes = static_cast<double>(resources.ru_maxrss) * 1024.0;
  return usage;
}

void time_process(benchmark::State& state, const std::vector<std::string>& arguments, double requests,
                  const std::string& command = "run") {
  Usage usage;
  for (auto _ : state) {
    usage = run_process(command, arguments);
    if (!usage.ok) state.SkipWithError("the run failed");
  }
  using benchmark::Counter;
  state.counters["requests/s"] = Counter(requests * static_cast<double>(state.iterations()), Counter::kIsRate);
  state.counters["peak_MB"] = usage.peak_bytes * 1e-6;
}

/// The first what-if of a new user: every default.
void first_what_if(benchmark::State& state) { time_process(state, {}, 2000.0); }
BENCHMARK(first_what_if)->Unit(benchmark::kMillisecond)->UseRealTime();

/// 200 equal points on so many threads, nothing kept.
void sweep_of_200_points(benchmark::State& state) {
  time_process(state, {"seed=1:200:1", "-j", std::to_string(state.range(0))}, 200.0 * 2000.0, "sweep");
}
BENCHMARK(sweep_of_200_points)->Arg(1)->Arg(2)->Unit(benchmark::kSecond)->UseRealTime();

void sharegpt_saturated(benchmark::State& state) {
  time_process(state, {"workload.trace=sharegpt", "workload.requests=1000000", "workload.rate=1000"}, 1e6);
}
BENCHMARK(sharegpt_saturated)->Unit(benchmark::kMillisecond)->UseRealTime();

/// Ten million requests below saturation: memory must not follow their number.
void ten_million_below_saturation(benchmark::State& state) {
  time_process(state, {"workload.trace=sharegpt", "workload.requests=10000000", "workload.rate=25"}, 1e7);
}
BENCHMARK(ten_million_below_saturation)->Unit(benchmark::kSecond)->UseRealTime()->Iterations(1);

/// A CSV of ten million rows, tiled from a real one: read twice, once to check it, without being held.
void ten_million_rows_of_a_file(benchmark::State& state) {
  const std::filesystem::path source =
      std::filesystem::path(source_dir()) / "../shared/data/traces/azure-2023-code.csv";
  if (!std::filesystem::exists(source)) {
    state.SkipWithError("../shared/data/traces/azure-2023-code.csv is not there");
    return;
  }
  const std::filesystem::path tiled =
      std::filesystem::temp_directory_path() / ("spillway_bench_" + std::to_string(getpid()) + ".csv");
  {
    std::vector<std::string> lengths;
    std::ifstream rows(source);
    std::string row;
    std::getline(rows, row);
    while (std::getline(rows, row)) lengths.push_back(row.substr(row.find(','), row.find('\r') - row.find(',')));
    std::ofstream file(tiled);
    file << "arrival_s,input_tokens,output_tokens\n";
    for (std::size_t i = 0; i < 10'000'000; ++i) file << i / 4 << lengths[i % lengths.size()] << '\n';
  }
  time_process(state, {"workload.trace=" + tiled.string()}, 1e7);
  std::filesystem::remove(tiled);
}
BENCHMARK(ten_million_rows_of_a_file)->Unit(benchmark::kSecond)->UseRealTime()->Iterations(1);

/// Four million requests at once, stopped after a minute of simulated time: nearly all of them still wait. Their cost
/// is the difference to the same run with a thousandth of them.
void bytes_per_waiting_request(benchmark::State& state) {
  constexpr double kRequests = 4e6;
  const std::vector<std::string> common{"workload.trace=sharegpt", "workload.arrival=all-at-once", "until=60s"};
  for (auto _ : state) {
    std::vector<std::string> many = common;
    many.emplace_back("workload.requests=4000000");
    std::vector<std::string> few = common;
    few.emplace_back("workload.requests=4000");
    const Usage large = run_process("run", many);
    const Usage small = run_process("run", few);
    if (!large.ok || !small.ok) state.SkipWithError("the run failed");
    state.counters["bytes/waiting"] = (large.peak_bytes - small.peak_bytes) / (kRequests * 0.999);
  }
}
BENCHMARK(bytes_per_waiting_request)->Unit(benchmark::kMillisecond)->UseRealTime()->Iterations(1);

}  // namespace

BENCHMARK_MAIN();
