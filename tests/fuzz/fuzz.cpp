// Feeds mutated samples to every reader of traces and of settings. Any outcome but success or a documented error ends
// the program with exit code 1: it saves the input and prints the command that replays it.
//
//   fuzz [--seconds N | --inputs N] [--seed S] [--only readers|settings|NAME] [--replay FILE] [--out FOLDER]
//
// Input k of a target depends only on (seed, target, k). The targets take turns, so --inputs N gives the same inputs on
// every machine; --seconds gives as many of these as the time allows.
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "sim/config/config.hpp"
#include "tests/fuzz/mutation.hpp"
#include "tests/fuzz/targets.hpp"

namespace spillway::fuzz {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kHang{10};  // for one input; the slowest inputs take 0.1 s
// Resident memory: several times the need of the largest inputs. A sanitizer keeps 256 MiB of freed memory.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t kMemory = std::size_t{2} << 30U;
#else
constexpr std::size_t kMemory = std::size_t{256} << 20U;
#endif
constexpr std::chrono::milliseconds kPoll{20};

struct Options {
  std::optional<double> seconds;
  std::optional<std::int64_t> inputs;
  std::int64_t seed = 1;
  std::string only;
  std::string replay;
  std::string out = ".";
};

/// State of the fuzzing process for the process that watches it, in shared memory.
struct Shared {
  std::atomic<std::int64_t> input;     // counts the inputs begun, of all targets
  std::atomic<std::size_t> target;     // index of its target
  std::atomic<std::int64_t> began_ns;  // on Clock; 0: no input is at hand
};

std::int64_t now_ns() { return std::chrono::nanoseconds(Clock::now().time_since_epoch()).count(); }

/// Input k of a target: first its samples, then mutations.
std::string input_of(const Target& target, const std::vector<std::string>& all, std::int64_t seed, std::int64_t k) {
  if (static_cast<std::size_t>(k) < target.samples.size()) return target.samples[static_cast<std::size_t>(k)];
  RandomStream stream(seed, k, "fuzz." + target.name);
  // Mostly samples of the target: those of others are mostly refused at their start.
  const bool own = !target.samples.empty() && below(8, stream) != 0;
  const std::vector<std::string>& from = own ? target.samples : all;
  const std::string& sample = from[below(from.size(), stream)];
  if (own && target.mutate && below(4, stream) != 0) return target.mutate(sample, stream);
  if (target.group != "readers" || below(8, stream) != 0) return mutated(sample, all, stream);
  return below(2, stream) == 0 ? gzipped(mutated(sample, all, stream)) : mutated(gzipped(sample), all, stream);
}

struct Counts {
  std::int64_t inputs = 0;
  std::int64_t accepted = 0;
  std::int64_t mutated = 0;           // inputs that are no sample
  std::int64_t accepted_mutated = 0;  // accepted inputs that are no sample
  std::int64_t spent_ns = 0;          // making, writing and reading of inputs
  std::int64_t slowest_ns = 0;        // reading of one input
};

/// Peak memory of this process, in KiB.
std::int64_t peak_kib() {
  rusage usage{};
  (void)getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

void print_counts(const std::vector<Target>& targets, const std::vector<Counts>& counts) {
  Counts all;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const Counts& one = counts[i];
    fmt::print("{:<20} {:>9} inputs, {:>8} accepted, {:>8} refused, {:>7.0f} inputs/s, slowest {:.0f} ms\n",
               targets[i].name, one.inputs, one.accepted, one.inputs - one.accepted,
               static_cast<double>(one.inputs) / std::max(1e-9, static_cast<double>(one.spent_ns) * 1e-9),
               static_cast<double>(one.slowest_ns) * 1e-6);
    all.inputs += one.inputs;
    all.spent_ns += one.spent_ns;
  }
  fmt::print("{} inputs, {:.0f} inputs/s, {} KiB of memory at most: no failure\n", all.inputs,
             static_cast<double>(all.inputs) / std::max(1e-9, static_cast<double>(all.spent_ns) * 1e-9), peak_kib());
}

/// Runs one input; prints a failure and returns false. A sample must be accepted: an outdated sample would test no more
/// than the first check.
bool passes(const Target& target, const std::string& path, bool is_sample, Counts& counts) {
  try {
    const bool accepted = target.check(path) == Outcome::accepted;
    if (is_sample && !accepted) throw Failure("the sample itself is refused");
    counts.accepted += accepted ? 1 : 0;
    counts.mutated += is_sample ? 0 : 1;
    counts.accepted_mutated += accepted && !is_sample ? 1 : 0;
  } catch (const std::exception& error) {
    fmt::print("failure: {}\n", error.what());
    return false;
  }
  if (static_cast<std::size_t>(peak_kib()) <= kMemory / 1024) return true;
  fmt::print("failure: {} KiB of memory\n", peak_kib());
  return false;
}

/// Without accepted inputs, the code behind the first checks is not tested.
bool reaches_all(const std::vector<Target>& targets, const std::vector<Counts>& counts) {
  constexpr std::int64_t kEnough = 1000;
  bool all = true;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (targets[i].samples.empty() || counts[i].mutated < kEnough || counts[i].accepted_mutated > 0) continue;
    fmt::print("failure: target {} accepted none of {} mutated inputs\n", targets[i].name, counts[i].mutated);
    all = false;
  }
  return all;
}

/// The fuzzing process. Returns its exit code.
int fuzz(const Options& options, const std::vector<Target>& targets, const std::string& path, Shared& shared) {
  std::vector<std::string> all;
  for (const Target& target : targets) all.insert(all.end(), target.samples.begin(), target.samples.end());
  std::vector<Counts> counts(targets.size());
  const std::int64_t limit_ns =
      options.inputs ? INT64_MAX : static_cast<std::int64_t>(options.seconds.value_or(60.0) * 1e9);
  const std::int64_t start = now_ns();
  for (std::int64_t i = 0; i < options.inputs.value_or(INT64_MAX); ++i) {
    const std::int64_t began = now_ns();
    if (began - start >= limit_ns) break;
    const auto at = static_cast<std::size_t>(i) % targets.size();
    const std::int64_t k = i / static_cast<std::int64_t>(targets.size());
    const bool is_sample = options.replay.empty() && k < static_cast<std::int64_t>(targets[at].samples.size());
    if (options.replay.empty()) {
      std::ofstream(path, std::ios::binary | std::ios::trunc) << input_of(targets[at], all, options.seed, k);
    } else if (i == static_cast<std::int64_t>(targets.size())) {
      break;
    }
    shared.input = i;
    shared.target = at;
    shared.began_ns = now_ns();
    if (!passes(targets[at], path, is_sample, counts[at])) return EXIT_FAILURE;
    const std::int64_t end = now_ns();
    counts[at].slowest_ns = std::max(counts[at].slowest_ns, end - shared.began_ns);
    shared.began_ns = 0;
    ++counts[at].inputs;
    counts[at].spent_ns += end - began;
  }
  print_counts(targets, counts);
  return reaches_all(targets, counts) ? EXIT_SUCCESS : EXIT_FAILURE;
}

std::size_t resident_bytes(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/statm", process));
  std::size_t total = 0;
  std::size_t resident = 0;
  file >> total >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

/// Waits for the fuzzing process and ends it when an input takes too much time or memory. Returns the failure; empty:
/// none.
std::string watch(pid_t process, const Shared& shared) {
  int status = 0;
  std::string why;
  while (waitpid(process, &status, WNOHANG) == 0) {
    std::this_thread::sleep_for(kPoll);
    const std::int64_t began = shared.began_ns;
    if (began != 0 && now_ns() - began > std::chrono::nanoseconds(kHang).count()) {
      why = fmt::format("an input takes more than {} s", kHang.count());
    } else if (resident_bytes(process) > 2 * kMemory) {
      why = fmt::format("the process takes more than {} bytes", 2 * kMemory);
    }
    if (why.empty()) continue;
    (void)kill(process, SIGKILL);
    (void)waitpid(process, &status, 0);
    return why;
  }
  if (WIFSIGNALED(status)) return fmt::format("the process was ended by signal {}", WTERMSIG(status));
  return WEXITSTATUS(status) == EXIT_SUCCESS ? "" : fmt::format("exit code {}", WEXITSTATUS(status));
}

std::vector<Target> chosen_targets(const std::string& only) {
  std::vector<Target> targets = all_targets();
  std::erase_if(targets,
                [&](const Target& target) { return !only.empty() && only != target.name && only != target.group; });
  if (targets.empty()) throw ConfigError(fmt::format("no target is called \"{}\"", only), "--only");
  return targets;
}

/// Fuzzes in a child process, so that the parent can save the input after a crash or a hang. Returns the exit code.
int run(const Options& options) {
  // Variables would change how inputs are read, and an unknown variable would refuse all of them.
  for (const std::string& variable : spillway_environment()) {
    (void)unsetenv(variable.substr(0, variable.find('=')).c_str());
  }
  const std::vector<Target> targets = chosen_targets(options.only);
  // Inputs are in memory where possible: writing them to a disk would take most of the time.
  const bool shm = access("/dev/shm", W_OK) == 0;
  std::string folder = (shm ? "/dev/shm" : std::filesystem::temp_directory_path().string()) + "/spillway-fuzz-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) throw DataError("the folder cannot be made", folder);
  const std::string path = options.replay.empty() ? folder + "/input" : options.replay;
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw DataError("no memory can be shared", "mmap");
  auto* shared = new (memory) Shared();
  (void)std::fflush(nullptr);
  const pid_t process = fork();
  if (process < 0) throw DataError("no process can be started", "fork");
  if (process == 0) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int code = fuzz(options, targets, path, *shared);
    (void)std::fflush(nullptr);
    _exit(code);
  }
  const std::string why = watch(process, *shared);
  if (!why.empty()) {
    const Target& target = targets[shared->target];
    std::string saved = path;
    if (options.replay.empty()) {
      saved = fmt::format("{}/fuzz-{}-{}-{}", options.out, target.name, options.seed, shared->input.load());
      std::filesystem::copy_file(path, saved, std::filesystem::copy_options::overwrite_existing);
    }
    fmt::print("failure: {} on input {} of seed {}, target {}\nreplay with: fuzz --only {} --replay {}\n", why,
               shared->input.load(), options.seed, target.name, target.name, std::filesystem::absolute(saved).string());
  }
  std::filesystem::remove_all(folder);
  return why.empty() ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace
}  // namespace spillway::fuzz

int main(int argc, char** argv) {
  spillway::fuzz::Options options;
  CLI::App app{"Mutated samples for every reader of traces and of settings"};
  auto* seconds = app.add_option("--seconds", options.seconds, "how long [60]")->check(CLI::PositiveNumber);
  app.add_option("--inputs", options.inputs, "how many instead")->check(CLI::PositiveNumber)->excludes(seconds);
  app.add_option("--seed", options.seed, "of the mutations [1]");
  app.add_option(
      "--only", options.only,
      "readers, settings, or one target: auto, a trace format, config, model, hardware, host, engine, measurements");
  app.add_option("--replay", options.replay, "feed this file, unchanged")->check(CLI::ExistingFile);
  app.add_option("--out", options.out, "folder for an input that fails [.]")->check(CLI::ExistingDirectory);
  CLI11_PARSE(app, argc, argv)
  try {
    return spillway::fuzz::run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return EXIT_FAILURE;
  }
}
