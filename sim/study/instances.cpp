#include "sim/study/instances.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <variant>

#include "sim/api/key_owners.hpp"
#include "sim/config/instance_keys.hpp"
#include "sim/core/printable.hpp"
#include "sim/core/text.hpp"
#include "sim/study/parameter_table.hpp"

namespace spillway {
namespace {

constexpr std::string_view kTrace = "workload.trace";
constexpr const char* kFreeMemory = "free_memory";
constexpr const char* kHbmShare = "hbm_share";
/// What is no key of a run.
constexpr std::array<std::string_view, 5> kOfElement{"name", "gpus", "share", kFreeMemory, kHbmShare};
/// Of one server; no topology has more.
constexpr std::int64_t kMostGpus = 100'000;

std::string head_of(const std::string& key) { return key.substr(0, key.find('.')); }

/// Keys beside the list that say nothing about an instance.
bool is_of_list(const std::string& key) { return key == kInstancesKey || key == "events" || key == "servers"; }

/// A whole number from 0 on.
std::optional<std::int64_t> gpu_number(std::string_view text) {
  text = trimmed(text);
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number < 0 || number >= kMostGpus)
    return std::nullopt;
  return number;
}

class ListReader {
 public:
  ListReader(const ResolvedConfig& config, std::vector<Problem>& problems)
      : config_(config), problems_(problems), table_(parameter_table()) {}

  std::vector<InstanceEntry> read() {
    const ResolvedKey& list = config_.key(kInstancesKey);
    const std::size_t before = problems_.size();
    std::vector<InstanceEntry> entries;
    for (const std::vector<Assignment>& object : parse_objects(list, problems_)) {
      entries.push_back(entry(object, entries.size()));
    }
    if (problems_.size() > before) {
      std::ranges::move(typos_, std::back_inserter(problems_));
      return {};
    }
    if (entries.empty()) {
      problems_.push_back({"instances is an empty list", list.where, "leave it out, or give an instance"});
      return entries;
    }
    check_names(entries);
    check_gpus(entries);
    if (!typos_.empty()) {
      std::ranges::move(typos_, std::back_inserter(problems_));
      return entries;
    }
    set_shares(entries, list.where);
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (!entries[i].lends) complete(entries[i], i);
    }
    if (std::ranges::all_of(entries, [](const InstanceEntry& entry) { return entry.lends.has_value(); })) {
      problems_.push_back(
          {"no element of instances serves requests: all have free_memory", list.where, "give an element without it"});
    }
    return entries;
  }

 private:
  /// What the element says itself.
  InstanceEntry entry(const std::vector<Assignment>& object, std::size_t number) {
    InstanceEntry entry;
    entry.name = fmt::format("instance-{}", number);
    entry.where = object.empty() ? config_.key(kInstancesKey).where : object.front().where;
    std::set<std::string> said;  // of what only an element has
    StaticLender lender;
    std::optional<Assignment> busy;
    std::vector<std::pair<const Assignment*, std::string>> typos;  // and what was meant
    for (const Assignment& given : object) {
      const bool of_element = std::ranges::count(kOfElement, given.key) > 0;
      if (of_element && !said.insert(given.key).second) {
        problems_.push_back({fmt::format("{} is given twice", given.key), given.where, "remove one of the two"});
      } else if (given.key == "name") {
        read_name(given, entry);
      } else if (given.key == "gpus") {
        read_gpus(given, entry);
      } else if (given.key == "share") {
        read_share(given, entry);
      } else if (given.key == kFreeMemory) {
        read_free_memory(given, lender);
      } else if (given.key == kHbmShare) {
        busy = given;
      } else if (std::string meant = mistyped(given.key); !meant.empty()) {
        said.insert(meant);
        typos.emplace_back(&given, std::move(meant));
      } else {
        read_key(given, entry);
      }
    }
    if (!said.contains("gpus")) {
      problems_.push_back({fmt::format("{} has no gpus", entry.name), entry.where,
                           R"(give the GPUs of the server that it has, such as "gpus": "0-3")"});
    }
    for (const auto& [given, meant] : typos) {
      typos_.push_back({fmt::format("{}: unknown key \"{}\"", entry.name, brief(given->key)), given->where,
                        fmt::format("did you mean \"{}\"?", meant)});
    }
    if (busy) read_hbm_share(*busy, said.contains(kFreeMemory), lender);
    if (said.contains(kFreeMemory)) {
      refuse_keys(entry, said.contains("share"));
      entry.lends = lender;
    }
    return entry;
  }

  /// The name of an element's own that `key`, which is none of a run, comes close to; empty: none.
  [[nodiscard]] std::string mistyped(const std::string& key) const {
    if (find_parameter(table_, key) != nullptr || key.find('.') != key.npos) return "";
    const std::vector<std::string> names(kOfElement.begin(), kOfElement.end());
    return nearest_name(key, names);
  }

  void read_free_memory(const Assignment& given, StaticLender& lender) {
    Parameter size = *find_parameter(table_, "memory.peer");
    size.name = kFreeMemory;
    const auto parsed = given.text ? parse_value(size, *given.text, given.where, problems_) : std::nullopt;
    if (parsed) {
      lender.free = std::get<Bytes>(parsed->value);
    } else if (!given.text) {
      problems_.push_back({"free_memory is no size", given.where, "write a size such as \"35GB\""});
    }
  }

  void read_hbm_share(const Assignment& given, bool lends, StaticLender& lender) {
    if (!lends) {
      problems_.push_back({"hbm_share describes GPUs that serve no requests, but this element has no free_memory",
                           given.where, "leave it out, or give free_memory"});
      return;
    }
    if (!given.text && !given.list) return;  // null
    char* end = nullptr;
    const double share = given.text ? std::strtod(given.text->c_str(), &end) : 0.0;
    if (given.text && end == given.text->c_str() + given.text->size() && share >= 0.0 && share <= 1.0) {
      lender.busy = share;
      return;
    }
    problems_.push_back({fmt::format("hbm_share is {}", given.text ? brief(*given.text) : "no number"), given.where,
                         "give a part of the memory bandwidth, 0 to 1, or leave it out"});
  }

  void refuse_keys(const InstanceEntry& entry, bool share) {
    if (share) {
      problems_.push_back({fmt::format("{} has free_memory, so it serves nothing and has no share", entry.name),
                           entry.where, "leave out share"});
    }
    for (const Assignment& own : entry.assignments) {
      problems_.push_back(
          {fmt::format("{} has free_memory, so it serves nothing and {} has no effect", entry.name, own.key), own.where,
           "leave it out, or leave out free_memory: an instance lends what it does not need"});
    }
  }

  void read_name(const Assignment& given, InstanceEntry& entry) {
    constexpr std::size_t kLongest = 40;
    const std::string name = given.text.value_or("");
    const auto fits = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
             std::string_view("-_.").find(c) != std::string_view::npos;
    };
    if (!name.empty() && name.size() <= kLongest && std::ranges::all_of(name, fits)) {
      entry.name = name;
      return;
    }
    problems_.push_back({fmt::format("name: \"{}\" is no name of an instance", brief(name)), given.where,
                         fmt::format("use up to {} letters, digits and -_.", kLongest)});
  }

  void read_gpus(const Assignment& given, InstanceEntry& entry) {
    const auto refuse = [&](const std::string& what) {
      problems_.push_back({fmt::format("gpus: {}", what), given.where, R"(write 4, "0-3", "0-3,6" or [0, 1])"});
    };
    std::vector<std::string> parts;
    if (given.list) {
      parts = *given.list;
    } else if (given.text) {
      std::string_view rest = *given.text;
      for (std::size_t comma = rest.find(','); comma != rest.npos; comma = rest.find(',')) {
        parts.emplace_back(rest.substr(0, comma));
        rest.remove_prefix(comma + 1);
      }
      parts.emplace_back(rest);
    }
    if (parts.empty()) return refuse("none is given");
    for (const std::string& part : parts) {
      const std::size_t dash = part.find('-');
      const auto first = gpu_number(part.substr(0, dash));
      const auto last = dash == part.npos ? first : gpu_number(part.substr(dash + 1));
      if (!first || !last || *last < *first) return refuse(fmt::format("\"{}\" is no GPU of a server", brief(part)));
      if (std::ssize(entry.gpus) + *last - *first >= kMostGpus) return refuse("they are more than a server has");
      for (std::int64_t gpu = *first; gpu <= *last; ++gpu) entry.gpus.push_back(gpu);
    }
    std::ranges::sort(entry.gpus);
    const auto twice = std::ranges::adjacent_find(entry.gpus);
    if (twice != entry.gpus.end()) refuse(fmt::format("GPU {} is given twice", *twice));
  }

  void read_share(const Assignment& given, InstanceEntry& entry) {
    char* end = nullptr;
    const double share = given.text ? std::strtod(given.text->c_str(), &end) : 0.0;
    if (given.text && end == given.text->c_str() + given.text->size() && share > 0.0 && share <= 1.0) {
      entry.share = share;
      return;
    }
    problems_.push_back({fmt::format("share is {}", given.text ? brief(*given.text) : "no number"), given.where,
                         "give a part of the workload, more than 0 and at most 1"});
  }

  void read_key(const Assignment& given, InstanceEntry& entry) {
    Assignment own = given;
    // {"policy": {"name": "pie"}} stands for policy=pie. What no key is, is left to the configuration.
    if (const Parameter* const parameter = find_parameter(table_, given.key)) own.key = parameter->name;
    if (const std::string why = refusal_in_instance(own.key); !why.empty()) {
      problems_.push_back({fmt::format("{} {}", own.key, why), given.where,
                           why.starts_with("holds") ? "give it beside instances" : "leave it out"});
      return;
    }
    entry.own_workload = entry.own_workload || own.key.starts_with("workload.");
    if (own.key.starts_with("slo.") && own.text) entry.own_slos.push_back(own.key);
    entry.assignments.push_back(std::move(own));
  }

  void check_names(const std::vector<InstanceEntry>& entries) {
    std::set<std::string> names;
    for (const InstanceEntry& entry : entries) {
      if (names.insert(entry.name).second) continue;
      problems_.push_back(
          {fmt::format("two instances are called {}", entry.name), entry.where, "give each a name of its own"});
    }
  }

  void check_gpus(const std::vector<InstanceEntry>& entries) {
    std::map<std::int64_t, const InstanceEntry*> owners;
    for (const InstanceEntry& entry : entries) {
      std::vector<std::int64_t> taken;
      const InstanceEntry* other = nullptr;
      for (const std::int64_t gpu : entry.gpus) {
        const auto [owner, free] = owners.try_emplace(gpu, &entry);
        if (free || (other != nullptr && owner->second != other)) continue;
        other = owner->second;
        taken.push_back(gpu);
      }
      if (taken.empty()) continue;
      problems_.push_back({fmt::format("GPU{} {} {} in two instances, {} and {}", taken.size() == 1 ? "" : "s",
                                       gpus_text(taken), taken.size() == 1 ? "is" : "are", other->name, entry.name),
                           entry.where, "give each GPU to one"});
    }
  }

  void set_shares(std::vector<InstanceEntry>& entries, const std::string& where) {
    double sum = 0.0;
    std::int64_t sharing = 0;
    std::int64_t stated = 0;
    for (const InstanceEntry& entry : entries) {
      if (entry.own_workload && entry.share) {
        problems_.push_back({fmt::format("{} has a share and a workload of its own", entry.name), entry.where,
                             "leave out share, or the workload.* keys"});
      }
      if (entry.own_workload || entry.lends) continue;
      ++sharing;
      stated += entry.share ? 1 : 0;
      sum += entry.share.value_or(0.0);
    }
    if (stated == 0) {
      for (InstanceEntry& entry : entries) {
        if (!entry.own_workload && !entry.lends) entry.share = 1.0 / static_cast<double>(sharing);
      }
      return;
    }
    constexpr double kRounding = 1e-5;  // 0.333333 three times is 1
    if (stated < sharing) {
      problems_.push_back({fmt::format("{} of {} instances state their share", stated, sharing), where,
                           "give the share of each, or of none for equal parts"});
    } else if (std::abs(sum - 1.0) > kRounding) {
      problems_.push_back({fmt::format("the shares sum to {:.6g}", sum), where, "let them sum to 1"});
    }
  }

  /// Adds the keys that it takes from beside the list.
  void complete(InstanceEntry& entry, std::size_t number) {
    std::erase_if(entry.assignments, [](const Assignment& own) { return own.key == "tensor_parallel" && !own.text; });
    const auto has = [&entry](const std::string& key) {
      return std::ranges::any_of(entry.assignments, [&key](const Assignment& own) { return own.key == key; });
    };
    const bool own_policy = has("policy");
    const bool own_router = has(kRouterKey);
    const bool own_trace = has(std::string(kTrace));
    std::vector<Assignment> all;
    for (const ResolvedKey& key : config_.keys) {
      const std::string& name = key.parameter.name;
      if (key.origin <= Origin::policy || is_of_list(name) || has(name)) continue;
      const std::string head = head_of(name);
      if (own_policy && head == "policy") continue;
      if (own_router && head == kRouterKey && name != "router.retry") continue;
      if (own_trace && head == "workload") continue;
      all.push_back({name, key.text, key.origin, key.where, {}});
    }
    const bool has_tensor_parallel =
        has("tensor_parallel") || config_.key("tensor_parallel").origin != Origin::standard;
    all.insert(all.end(), entry.assignments.begin(), entry.assignments.end());
    entry.assignments = std::move(all);
    if (entry.own_workload) draw_apart(entry, number);
    const std::int64_t in_pools =
        count_of(entry, "prefill_replicas").value_or(0) + count_of(entry, "decode_replicas").value_or(0);
    const std::int64_t replicas = count_of(entry, "replicas").value_or(std::max<std::int64_t>(1, in_pools));
    const auto gpus = std::ssize(entry.gpus);
    if (!has_tensor_parallel && gpus % replicas == 0) {
      entry.assignments.push_back(
          {"tensor_parallel", fmt::format("{}", gpus / replicas), Origin::file, entry.where, {}});
    }
    const auto each = count_of(entry, "tensor_parallel");
    if (each && *each * replicas == gpus) return;
    problems_.push_back({fmt::format("{} has {} GPU{}, and {} replica{} of tensor_parallel={} take{} {}", entry.name,
                                     gpus, gpus == 1 ? "" : "s", replicas, replicas == 1 ? "" : "s", each.value_or(1),
                                     replicas == 1 ? "s" : "", each.value_or(1) * replicas),
                         entry.where, "let gpus be replicas times tensor_parallel"});
  }
  /// Equal workloads of two elements would have the same requests at the same instants.
  void draw_apart(InstanceEntry& entry, std::size_t number) const {
    std::erase_if(entry.assignments, [](const Assignment& one) { return one.key == "seed"; });
    const std::int64_t seed = config_.settings.get<std::int64_t>("seed") + static_cast<std::int64_t>(number);
    entry.assignments.push_back({"seed", fmt::format("{}", seed), Origin::file, entry.where, {}});
  }
  /// What a key that counts will be. A value that the key refuses is told by the configuration.
  [[nodiscard]] std::optional<std::int64_t> count_of(const InstanceEntry& entry, const std::string& key) const {
    const Parameter* const parameter = find_parameter(table_, key);
    std::optional<std::int64_t> count;
    for (const Assignment& one : entry.assignments) {
      if (one.key != key || !one.text) continue;
      std::vector<Problem> ignored;
      const auto parsed = parse_value(*parameter, *one.text, one.where, ignored);
      count = parsed ? std::get<std::int64_t>(parsed->value) : 1;
    }
    return count;
  }

  const ResolvedConfig& config_;
  std::vector<Problem>& problems_;
  std::vector<Problem> typos_;  // told beside what else is wrong
  std::vector<Parameter> table_;
};

}  // namespace

std::vector<InstanceEntry> read_instances(const ResolvedConfig& config, std::vector<Problem>& problems) {
  return ListReader(config, problems).read();
}

std::string gpus_text(const std::vector<std::int64_t>& gpus) {
  std::string text;
  for (std::size_t first = 0; first < gpus.size();) {
    std::size_t last = first;
    while (last + 1 < gpus.size() && gpus[last + 1] == gpus[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", gpus[first]);
    if (last > first) text += fmt::format("-{}", gpus[last]);
    first = last + 1;
  }
  return text;
}

}  // namespace spillway
