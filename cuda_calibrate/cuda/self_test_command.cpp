#include "cuda_calibrate/cuda/self_test_command.hpp"

#include <fmt/format.h>

#include <utility>

#include "sim/core/error.hpp"
#include "sim/io/output.hpp"

namespace spillway::calibrate {
namespace {

constexpr std::int64_t kMostGpus = 1024;

struct SelfTestArguments {
  std::int64_t gpu = 0;
  std::uint64_t seed = 1;
};

std::unique_ptr<Backend> backend_of(
    const SelfTestArguments& arguments,
    const std::function<std::unique_ptr<Backend>(std::int64_t gpu, std::uint64_t seed)>& make_backend) {
  try {
    return make_backend(arguments.gpu, arguments.seed);
  } catch (const DeviceError& error) {
    throw ConfigError(error.what(), "--gpu", "nvidia-smi lists the GPUs and their state");
  }
}

ExitCode self_test(Backend& backend, std::int64_t gpu) {
  std::vector<std::string> said;
  try {
    said = backend.self_test();
  } catch (const Unsupported& error) {
    throw ConfigError(error.what(), "self-test", backend.facts().gpu_reason);
  } catch (const OutOfMemory& error) {
    throw ConfigError(error.what(), "self-test", "end other programs that use the GPU");
  } catch (const DeviceError& error) {
    print_problems({{error.what(), fmt::format("GPU {}", gpu), "do not use times that were measured here"}},
                   "the self-test failed");
    return ExitCode::gate;
  }
  print_result(fmt::format("GPU {}: every kernel gives the right results\n", gpu));
  for (const std::string& line : said) print_result(line + "\n");
  return ExitCode::ok;
}

}  // namespace

Subcommand self_test_subcommand(
    std::function<std::unique_ptr<Backend>(std::int64_t gpu, std::uint64_t seed)> make_backend) {
  return [make_backend = std::move(make_backend)](CLI::App& app, Command& command) {
    const auto arguments = std::make_shared<SelfTestArguments>();
    CLI::App* sub = app.add_subcommand("self-test", "Compare the results of the GPU's kernels with their definitions");
    sub->add_option("--gpu", arguments->gpu, "Index of the GPU [0]")
        ->check(CLI::Range(std::int64_t{0}, kMostGpus))
        ->type_name("N");
    sub->add_option("--seed", arguments->seed, "Seed of the random data [1]")->type_name("N");
    sub->footer([] {
      return "Example: cuda_calibrate self-test\n\nExits with 5 when a kernel is wrong.\n\n" + exit_codes_help();
    });
    sub->callback([arguments, make_backend, &command] {
      command = [arguments, make_backend] { return self_test(*backend_of(*arguments, make_backend), arguments->gpu); };
    });
  };
}

}  // namespace spillway::calibrate
