#include "cuda_calibrate/host/host_facts.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "cuda_calibrate/host/page_kernels.hpp"

namespace spillway::calibrate {
namespace {

constexpr std::int64_t kKibibyte = 1024;
constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

/// CPU cores of servers with GPUs, by implementer and part number of their ID register; Linux does not print their
/// names.
struct ArmPart {
  std::string_view implementer;
  std::string_view part;
  std::string_view name;
};
constexpr std::array<ArmPart, 13> kArmParts{{{"0x41", "0xd08", "Arm Cortex-A72"},
                                             {"0x41", "0xd0c", "Arm Neoverse-N1"},
                                             {"0x41", "0xd40", "Arm Neoverse-V1"},
                                             {"0x41", "0xd42", "Arm Cortex-A78AE"},
                                             {"0x41", "0xd49", "Arm Neoverse-N2"},
                                             {"0x41", "0xd4f", "Arm Neoverse-V2"},
                                             {"0x41", "0xd83", "Arm Neoverse-V3AE"},
                                             {"0x41", "0xd84", "Arm Neoverse-V3"},
                                             {"0x41", "0xd8e", "Arm Neoverse-N3"},
                                             {"0x46", "0x001", "Fujitsu A64FX"},
                                             {"0x48", "0xd01", "HiSilicon TSV110"},
                                             {"0xc0", "0xac3", "Ampere-1"},
                                             {"0xc0", "0xac4", "Ampere-1a"}}};

/// The paths PATH/PREFIX0, PATH/PREFIX1, ..., by number.
std::map<int, std::string> numbered(const std::string& path, std::string_view prefix) {
  std::map<int, std::string> found;
  std::error_code fault;
  for (std::filesystem::directory_iterator it(path, fault), end; !fault && it != end; it.increment(fault)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(prefix)) continue;
    const std::vector<int> number = cpu_list(std::string_view(name).substr(prefix.size()));
    if (number.size() == 1 && name == fmt::format("{}{}", prefix, number[0])) found[number[0]] = it->path().string();
  }
  return found;
}

std::string cpu_path(const SystemRoots& roots, int cpu) {
  return fmt::format("{}/devices/system/cpu/cpu{}", roots.sys, cpu);
}

std::vector<int> online_cpus(const SystemRoots& roots) {
  std::vector<int> cpus = cpu_list(text_of(roots.sys + "/devices/system/cpu/online"));
  if (!cpus.empty()) return cpus;
  for (const auto& [cpu, path] : numbered(roots.sys + "/devices/system/cpu", "cpu")) cpus.push_back(cpu);
  return cpus;
}

std::vector<int> allowed_cpus(const SystemRoots& roots) {
  if (roots.affinity) return *roots.affinity;
  std::vector<int> cpus;
  // The kernel refuses a set smaller than its own.
  for (int size = 1024; size <= 1 << 16; size *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<std::size_t>(size));
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(size));
    const bool got = sched_getaffinity(0, bytes, set) == 0;
    for (int cpu = 0; got && cpu < size; ++cpu) {
      if (CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes, set)) cpus.push_back(cpu);
    }
    CPU_FREE(set);
    if (got) break;
  }
  return cpus;
}

int core_of(const SystemRoots& roots, int cpu) {
  for (const char* list : {"core_cpus_list", "thread_siblings_list"}) {
    const std::vector<int> siblings = cpu_list(text_of(fmt::format("{}/topology/{}", cpu_path(roots, cpu), list)));
    if (!siblings.empty()) return siblings.front();
  }
  return cpu;
}

int socket_of(const SystemRoots& roots, int cpu) {
  const auto socket = number_of(fmt::format("{}/topology/physical_package_id", cpu_path(roots, cpu)));
  return static_cast<int>(socket.value_or(0));
}

/// NUMA nodes with CPUs, and their CPUs.
std::map<int, std::vector<int>> nodes_of(const SystemRoots& roots) {
  std::map<int, std::vector<int>> nodes;
  for (const auto& [node, path] : numbered(roots.sys + "/devices/system/node", "node")) {
    std::vector<int> cpus = cpu_list(text_of(path + "/cpulist"));
    if (!cpus.empty()) nodes[node] = std::move(cpus);
  }
  return nodes;
}

std::string arm_model(const std::string& cpuinfo) {
  const std::string implementer = field_of(cpuinfo, "CPU implementer");
  const std::string part = field_of(cpuinfo, "CPU part");
  if (implementer.empty() || part.empty()) return {};
  for (const ArmPart& known : kArmParts) {
    if (implementer == known.implementer && part == known.part) return std::string(known.name);
  }
  return fmt::format("implementer {} part {}", implementer, part);
}

std::string cpu_model(const SystemRoots& roots) {
  const std::string cpuinfo = text_of(roots.proc + "/cpuinfo");
  std::string model = field_of(cpuinfo, "model name");
  if (model.empty()) model = arm_model(cpuinfo);
  if (model.empty()) model = field_of(cpuinfo, "Hardware");
  if (model.empty()) model = text_of(roots.sys + "/firmware/devicetree/base/model");
  // Texts in a device tree end in a zero byte.
  model.erase(std::find(model.begin(), model.end(), '\0'), model.end());
  return model.empty() ? "unknown" : model;
}

/// The folders of this process's control groups for a controller, the innermost first, up to the visible root.
std::vector<std::string> control_groups(const SystemRoots& roots, std::string_view controller) {
  const std::string list = text_of(roots.proc + "/self/cgroup") + "\n";
  std::vector<std::string> folders;
  for (std::size_t start = 0, end = 0; (end = list.find('\n', start)) != std::string::npos; start = end + 1) {
    const std::string line = list.substr(start, end - start);  // ID:CONTROLLERS:PATH; version 2 has no controllers
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    if (controllers != ",," && controllers.find(fmt::format(",{},", controller)) == std::string::npos) continue;
    const std::string root = fmt::format("{}/fs/cgroup{}{}", roots.sys, controllers == ",," ? "" : "/",
                                         controllers == ",," ? std::string_view() : controller);
    std::string path = line.substr(second + 1);
    while (path.size() > 1 && path.front() == '/') {
      folders.push_back(root + path);
      path.erase(path.find_last_of('/'));
    }
    folders.push_back(root);
  }
  return folders;
}

/// The number of CPUs that the control groups allow.
std::int64_t quota(const SystemRoots& roots) {
  std::int64_t least = kNoLimit;
  for (const std::string& folder : control_groups(roots, "cpu")) {
    // Version 2 has one file with "QUOTA PERIOD" or "max PERIOD". Version 1 has two files; a quota of -1 means no
    // limit.
    const std::string both = text_of(folder + "/cpu.max");
    const std::size_t blank = both.find(' ');
    const auto time = number_of(folder + (blank == std::string::npos ? "/cpu.cfs_quota_us" : "/cpu.max"));
    const std::int64_t period = blank == std::string::npos ? number_of(folder + "/cpu.cfs_period_us").value_or(0)
                                                           : std::strtoll(both.c_str() + blank, nullptr, 10);
    if (time && *time > 0 && period > 0) least = std::min(least, std::max<std::int64_t>(*time / period, 1));
  }
  return least;
}

/// Bytes left by the control groups. Inactive page cache counts as free, because the system can drop it.
std::int64_t group_leaves(const SystemRoots& roots) {
  std::int64_t least = kNoLimit;
  for (const std::string& folder : control_groups(roots, "memory")) {
    for (const auto& [limit_file, use_file, idle_field] :
         {std::tuple("/memory.max", "/memory.current", "inactive_file"),
          std::tuple("/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file")}) {
      const auto limit = number_of(folder + limit_file);
      const auto used = number_of(folder + use_file);
      if (!limit || !used) continue;
      std::int64_t idle = 0;
      const std::string statistics = fmt::format("\n{}", text_of(folder + "/memory.stat"));
      const std::string key = fmt::format("\n{} ", idle_field);
      if (const std::size_t at = statistics.find(key); at != std::string::npos) {
        idle = std::strtoll(statistics.c_str() + at + key.size(), nullptr, 10);
      }
      least = std::min(least, std::max<std::int64_t>(*limit - std::max<std::int64_t>(*used - idle, 0), 0));
    }
  }
  return least;
}

std::int64_t meminfo(const SystemRoots& roots, std::string_view key) {
  const std::string text = field_of(text_of(roots.proc + "/meminfo"), key);
  return std::strtoll(text.c_str(), nullptr, 10) * kKibibyte;
}

/// Parses sizes such as "32768K" and "114M".
std::int64_t size_of(const std::string& text) {
  char* end = nullptr;
  const std::int64_t value = std::strtoll(text.c_str(), &end, 10);
  if (*end == 'K') return value * kKibibyte;
  if (*end == 'M') return value * kKibibyte * kKibibyte;
  return value;
}

/// The bracketed word of "always [madvise] never".
std::optional<std::string> huge_pages(const SystemRoots& roots) {
  const std::string text = text_of(roots.sys + "/kernel/mm/transparent_hugepage/enabled");
  const std::size_t open = text.find('[');
  const std::size_t close = text.find(']');
  if (open == std::string::npos || close == std::string::npos || close < open) return std::nullopt;
  return text.substr(open + 1, close - open - 1);
}

constexpr const char* architecture() {
#if defined(__x86_64__)
  return "x86_64";
#elif defined(__aarch64__)
  return "aarch64";
#else
#error "only x86-64 and aarch64 hosts have the GPUs that are measured"
#endif
}

}  // namespace

std::vector<Cpu> usable_cpus(const SystemRoots& roots) {
  std::map<int, int> node_of_cpu;
  for (const auto& [node, cpus] : nodes_of(roots)) {
    for (const int cpu : cpus) node_of_cpu[cpu] = node;
  }
  const std::vector<int> ids = allowed_cpus(roots);
  std::vector<Cpu> cpus;
  cpus.reserve(ids.size());
  for (const int id : ids) cpus.push_back({id, core_of(roots, id), node_of_cpu[id], socket_of(roots, id)});
  std::sort(cpus.begin(), cpus.end(), [](const Cpu& a, const Cpu& b) { return a.id < b.id; });
  return cpus;
}

std::vector<Cpu> spread(const std::vector<Cpu>& cpus, std::int64_t count, std::int64_t node) {
  if (std::cmp_greater(count, cpus.size())) {
    throw Unsupported(
        fmt::format("{} threads were requested, but this process may run on only {} CPUs", count, cpus.size()));
  }
  // Ranks of a CPU in its core and of the core in its node. CPUs are sorted by these ranks, then by node.
  std::map<int, int> of_core;
  std::map<std::pair<int, int>, int> of_node;
  struct Ranked {
    bool elsewhere;
    int in_core;
    int in_node;
    int node;
    Cpu cpu;
  };
  std::vector<Ranked> ranked;
  ranked.reserve(cpus.size());
  for (const Cpu& cpu : cpus) {
    const int in_core = of_core[cpu.core]++;
    const int in_node = of_node[{cpu.node, in_core}]++;
    ranked.push_back({node >= 0 && cpu.node != node, in_core, in_node, cpu.node, cpu});
  }
  std::sort(ranked.begin(), ranked.end(), [](const Ranked& a, const Ranked& b) {
    return std::tuple(a.elsewhere, a.in_core, a.in_node, a.node) <
           std::tuple(b.elsewhere, b.in_core, b.in_node, b.node);
  });
  if (node >= 0 && (ranked.empty() || ranked.front().elsewhere)) {
    throw Unsupported(fmt::format("this process may not run on any CPU of NUMA node {}", node));
  }
  std::vector<Cpu> chosen;
  chosen.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) chosen.push_back(ranked[static_cast<std::size_t>(i)].cpu);
  return chosen;
}

std::int64_t available_bytes(const SystemRoots& roots) {
  return std::min(meminfo(roots, "MemAvailable"), group_leaves(roots));
}

std::int64_t last_level_cache_bytes(const SystemRoots& roots) {
  std::int64_t level = 0;
  std::set<std::string> counted;  // counted caches of `level`, by the CPUs that share them
  std::int64_t bytes = 0;
  for (const int cpu : online_cpus(roots)) {
    for (const auto& [index, path] : numbered(cpu_path(roots, cpu) + "/cache", "index")) {
      const std::int64_t this_level = number_of(path + "/level").value_or(0);
      if (this_level < level || text_of(path + "/type") == "Instruction") continue;
      if (this_level > level) {
        level = this_level;
        counted.clear();
        bytes = 0;
      }
      std::string shared = text_of(path + "/shared_cpu_list");
      if (shared.empty()) shared = fmt::format("{}", cpu);
      if (counted.insert(std::move(shared)).second) bytes += size_of(text_of(path + "/size"));
    }
  }
  if (bytes > 0) return bytes;
  // "32768 KB" is one CPU's last-level cache. Without better information, assume that all CPUs share it.
  return std::strtoll(field_of(text_of(roots.proc + "/cpuinfo"), "cache size").c_str(), nullptr, 10) * kKibibyte;
}

HostFacts host_facts(const SystemRoots& roots) {
  HostFacts facts;
  facts.cpu_model = cpu_model(roots);
  facts.architecture = architecture();
  std::set<int> cores;
  std::set<std::string> sockets;
  for (const int cpu : online_cpus(roots)) {
    cores.insert(core_of(roots, cpu));
    sockets.insert(text_of(cpu_path(roots, cpu) + "/topology/physical_package_id"));
  }
  facts.sockets = std::max<std::int64_t>(static_cast<std::int64_t>(sockets.size()), 1);
  facts.threads = static_cast<std::int64_t>(allowed_cpus(roots).size());
  facts.physical_cores = cores.empty() ? facts.threads : static_cast<std::int64_t>(cores.size());
  facts.threads = std::min(facts.threads, quota(roots));
  facts.memory_bytes = meminfo(roots, "MemTotal");
  facts.available_bytes = available_bytes(roots);
  facts.last_level_cache_bytes = last_level_cache_bytes(roots);
  facts.numa_nodes = std::max<std::int64_t>(static_cast<std::int64_t>(nodes_of(roots).size()), 1);
  facts.vector_extension = best_page_kernels().extension;
  facts.transparent_huge_pages = huge_pages(roots);
  facts.kernel = text_of(roots.proc + "/sys/kernel/osrelease");
  return facts;
}

}  // namespace spillway::calibrate
