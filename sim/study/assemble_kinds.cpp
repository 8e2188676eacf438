#include "sim/study/assemble_kinds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <set>
#include <utility>

#include "hwmodels/catalog.hpp"
#include "policies/parts/queue_informer.hpp"
#include "sim/config/instance_keys.hpp"
#include "sim/core/text.hpp"
#include "sim/study/instances.hpp"
#include "sim/study/parameter_table.hpp"
#include "traces/mixed_source.hpp"

namespace spillway {
namespace {

/// Different texts in their order, "a, b".
class Texts {
 public:
  void add(const std::string& text) {
    if (std::ranges::count(texts_, text) == 0) texts_.push_back(text);
  }
  [[nodiscard]] std::string joined(const char* between = ", ") const {
    return fmt::format("{}", fmt::join(texts_, between));
  }

 private:
  std::vector<std::string> texts_;
};

class KindsAssembler {
 public:
  explicit KindsAssembler(ResolvedConfig config) : problems_(assembly_.config) { assembly_.config = std::move(config); }

  Assembly build() {
    std::vector<Problem> found;
    std::vector<InstanceEntry> entries = read_instances(assembly_.config, found);
    const bool listed = problems_.add_all(found);
    if (!listed) {
      for (const InstanceEntry& entry : entries) {
        if (!entry.lends) problems_.attempt([&] { static_cast<void>(resolve(entry)); }, entry.name);
      }
    }
    refuse_pools(entries);
    load_server(listed);
    problems_.attempt(
        [&] { assembly_.prices = read_prices(settings(), hardware_.file().name, hardware_.gpu.file.name); });
    problems_.throw_if_any();
    for (const InstanceEntry& entry : entries) (entry.lends ? lending_gpus_ : serving_gpus_) += std::ssize(entry.gpus);
    add_kinds(entries);
    read_slos(assembly_, problems_);
    if (problems_.empty()) read_failures();
    check_blocks();
    if (problems_.empty()) share_bus();
    if (problems_.empty()) refuse_unused_keys();
    problems_.throw_if_any();
    problems_.attempt([&] { assembly_.workload = open_workload_of_kinds(assembly_, 0); });
    problems_.throw_if_any();
    describe();
    return std::move(assembly_);
  }

 private:
  [[nodiscard]] const Settings& settings() const { return assembly_.config.settings; }

  static ResolvedConfig resolve(const InstanceEntry& entry) {
    return resolve_config(parameter_table(), entry.assignments, {});
  }

  /// What is known of pools before the elements are assembled. One element may have them.
  void refuse_pools(const std::vector<InstanceEntry>& entries) {
    for (const char* const key : {"prefill_replicas", "decode_replicas"}) {
      if (settings().has(key)) {
        problems_.add(fmt::format("{} is given beside instances, so it would apply to every element", key), key,
                      "give it in one element of instances");
      }
    }
    const InstanceEntry* split = nullptr;
    for (const InstanceEntry& entry : entries) {
      if (entry.lends || !has_pools(entry)) continue;
      if (split != nullptr) {
        problems_.add(fmt::format("{} and {} both have pools, but only one element of instances may have them",
                                  split->name, entry.name),
                      entry.where, "leave out prefill_replicas and decode_replicas of one of them");
      }
      split = &entry;
    }
    if (settings().has("servers")) {
      problems_.add("servers has no effect beside instances, which are on one server", "servers", "leave it out");
    }
  }

  /// Says nothing of a server for a list with faults.
  void load_server(bool listed) {
    const auto load = [&] { hardware_ = hwmodels::load_hardware(settings().get<std::string>("hardware")); };
    if (!problems_.attempt(load) || !listed) return;
    const std::string& name = hardware_.file().name;
    if (!hardware_.server) {
      problems_.add(fmt::format("instances are on the GPUs of a server, and {} is one GPU", name), "hardware",
                    "name a server (spillway list hardware)");
    } else if (hardware_.server->servers > 1) {
      problems_.add(
          fmt::format("instances are on one server, and {} is {}", name, hardware_.server->servers), "hardware",
          hardware_.server->of ? fmt::format("use hardware={}", hardware_.server->of->name) : "name one server");
    }
  }

  /// What an instance can lend is known once it is assembled. So those that borrow come last; results list all in the
  /// order of the file.
  void add_kinds(const std::vector<InstanceEntry>& entries) {
    std::vector<std::optional<AssembledKind>> kinds(entries.size());
    const auto assemble_each = [&](bool borrowers) {
      for (std::size_t i = 0; i < entries.size(); ++i) {
        const InstanceEntry& entry = entries[i];
        if (entry.lends || borrows(entry) != borrowers) continue;
        problems_.attempt(
            [&] {
              std::optional<GivenLender> lender;
              if (borrowers) lender = lender_of(entry, entries, kinds);
              if (!borrowers || lender) kinds[i] = assemble_kind(entry, std::move(lender));
            },
            entry.name);
      }
    };
    for (const InstanceEntry& entry : entries) {
      if (entry.lends) problems_.attempt([&] { check_lender(entry); }, entry.name);
    }
    shares_dram_ = std::ranges::any_of(entries, places_experts);
    assemble_each(/*borrowers=*/false);
    assemble_each(/*borrowers=*/true);
    std::vector<std::size_t> number(entries.size());  // of its kind
    for (std::size_t i = 0; i < entries.size(); ++i) {
      number[i] = assembly_.kinds.size();
      if (kinds[i]) assembly_.kinds.push_back(std::move(*kinds[i]));
    }
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (!borrows(entries[i]) || number[i] >= assembly_.kinds.size()) continue;
      std::optional<LoanPlan>& loan = assembly_.kinds[number[i]].assembly.loan;
      if (loan) complete(*loan, entries, number);
    }
  }

  static bool places_experts(const InstanceEntry& entry) {
    if (entry.lends) return false;
    try {
      return resolve(entry).policy->places_experts;
    } catch (const UserError&) {
      return false;  // assembling it says why
    }
  }
  static bool has_pools(const InstanceEntry& entry) {
    return std::ranges::any_of(
        entry.assignments, [](const Assignment& own) { return own.key == "prefill_replicas" && own.text.has_value(); });
  }
  static std::string lender_named_by(const InstanceEntry& entry) {
    std::string name;
    for (const Assignment& own : entry.assignments) {
      if (own.key == "memory.lender") name = own.text.value_or("");
    }
    return name;
  }
  static bool borrows(const InstanceEntry& entry) { return !lender_named_by(entry).empty(); }

  void check_lender(const InstanceEntry& entry) {
    const std::int64_t on_server = hardware_.server->gpus;
    if (entry.gpus.back() >= on_server) {
      problems_.add(fmt::format("{} has no GPU {}", hardware_.file().name, entry.gpus.back()), entry.where,
                    fmt::format("its GPUs are 0 to {}", on_server - 1));
    }
    const Bytes memory = hardware_.gpu.memory;
    if (entry.lends->free > memory) {
      problems_.add(fmt::format("{} has free_memory of {:.1f} GB, more than the {:.1f} GB of {}", entry.name,
                                gigabytes(entry.lends->free), gigabytes(memory), hardware_.gpu.file.name),
                    entry.where, "give what its model leaves of the GPU's memory");
    }
  }

  /// The element that lends to another one. Empty, with the reason in problems_: it cannot.
  std::optional<GivenLender> lender_of(const InstanceEntry& borrower, const std::vector<InstanceEntry>& entries,
                                       const std::vector<std::optional<AssembledKind>>& kinds) {
    const std::string wanted = lender_named_by(borrower);
    const auto refuse = [&](const std::string& what, const std::string& fix) -> std::optional<GivenLender> {
      problems_.add(what, borrower.where, fix);
      return std::nullopt;
    };
    const auto found = std::ranges::find(entries, wanted, &InstanceEntry::name);
    if (found == entries.end() || found->name == borrower.name) {
      std::vector<std::string> others;
      for (const InstanceEntry& one : entries) {
        if (one.name != borrower.name) others.push_back(one.name);
      }
      return refuse(fmt::format("memory.lender={} does not name another element of instances", wanted),
                    suggestion(wanted, others) + fmt::format("the others are: {}", fmt::join(others, ", ")));
    }
    for (const InstanceEntry& one : entries) {
      if (&one == &borrower) break;
      if (lender_named_by(one) != wanted) continue;
      return refuse(fmt::format("{} lends to {}, and a lender has one borrower", wanted, one.name),
                    "name another lender");
    }
    if (borrows(*found)) {
      return refuse(fmt::format("{} borrows memory itself", wanted), "name a lender that does not");
    }
    GivenLender lender{found->name, found->where, found->gpus, {}};
    const std::optional<AssembledKind>& kind = kinds[static_cast<std::size_t>(found - entries.begin())];
    if (!found->lends && !kind) return std::nullopt;  // its own problems are told
    const auto prompts = static_cast<std::ptrdiff_t>(kind ? gpus_of_prompts(*kind) : 0);
    lender.gpus.erase(lender.gpus.begin(), lender.gpus.begin() + prompts);
    if (lender.gpus.size() != borrower.gpus.size()) {
      return refuse(fmt::format("{} has {} GPU{}, and {} {}{}: each GPU borrows from one", borrower.name,
                                borrower.gpus.size(), borrower.gpus.size() == 1 ? "" : "s", wanted, lender.gpus.size(),
                                prompts > 0 ? " that decode" : ""),
                    "name a lender with as many");
    }
    if (found->lends) {
      // The public code: a static producer keeps 5 GiB.
      constexpr Bytes kKept(5LL << 30U);
      lender.most = std::max(Bytes(0), found->lends->free - kKept);
      return lender;
    }
    const Settings& own = kind->assembly.config.settings;
    const PolicyInfo& policy = *kind->assembly.config.policy;
    if (!policy.preempts || policy.admits_parts || policy.layout || policy.keeps_conversations) {
      return refuse(fmt::format("{} cannot lend: the KV memory of policy {} must not change", wanted, policy.name),
                    "let it have policy=vllm, or another one that preempts and keeps no layers on the host");
    }
    if (own.get<std::int64_t>("tensor_parallel") != count_of(borrower, "tensor_parallel")) {
      return refuse(fmt::format("{} and {} differ in tensor_parallel", borrower.name, wanted),
                    "give both the same tensor_parallel: the GPUs of one replica lend to the GPUs of one replica");
    }
    const KvLayout& kv = kind->assembly.instance.kv;
    lender.most = kv.block_bytes * thresholds_of(kind->assembly).lendable(kv.gpu_blocks).count();
    return lender;
  }
  /// Of two pools, that of answers lends: KV that is handed over leaves the other one soon.
  static std::int64_t gpus_of_prompts(const AssembledKind& kind) {
    return kind.assembly.instance.pools.prefill * kind.assembly.config.settings.get<std::int64_t>("tensor_parallel");
  }
  static std::int64_t count_of(const InstanceEntry& entry, const std::string& key) {
    return resolve(entry).settings.get<std::int64_t>(key);
  }

  /// What the plan of a loan says of the lender. An instance offers nothing at first.
  void complete(LoanPlan& loan, const std::vector<InstanceEntry>& entries, const std::vector<std::size_t>& number) {
    const auto found = std::ranges::find(entries, loan.lender, &InstanceEntry::name);
    if (found->lends) {
      loan.busy = found->lends->busy;
      return;
    }
    loan.kind = number[static_cast<std::size_t>(found - entries.begin())];
    loan.first_replica = static_cast<std::size_t>(assembly_.kinds[*loan.kind].assembly.instance.pools.prefill);
    loan.offered = Bytes(0);
    loan.informer = queue_informer(thresholds_of(assembly_.kinds[*loan.kind].assembly));
  }
  static LendingThresholds thresholds_of(const Assembly& lender) {
    const Settings& own = lender.config.settings;
    return {.retained = Blocks(own.get<Bytes>("memory.lend_retain") / lender.instance.kv.block_bytes),
            .offer_at = own.get<std::int64_t>("memory.lend_offer_at"),
            .reclaim_at = own.get<std::int64_t>("memory.lend_reclaim_at")};
  }

  static double gigabytes(Bytes bytes) { return static_cast<double>(bytes.count()) * 1e-9; }

  AssembledKind assemble_kind(const InstanceEntry& entry, std::optional<GivenLender> lender) {
    ResolvedConfig config = resolve(entry);
    const GivenGpus given{entry.name, entry.where, entry.gpus, serving_gpus_, shares_dram_, std::move(lender)};
    // What is said about a common workload is the same for all that have a part of it; each opens it as it would alone.
    Assembly own = assemble_on(std::move(config), given, {});
    own.workload.stream.reset();
    RequestSlo slo;
    for (const std::string& key : entry.own_slos) {
      Duration& limit = key == "slo.ttft_ms" ? slo.ttft : key == "slo.tpot_ms" ? slo.tpot : slo.e2e;
      // 0 would be no limit.
      limit = std::max(Duration(1), round_seconds(own.config.settings.get<double>(key) * 1e-3));
    }
    const std::optional<double> share = entry.own_workload ? std::nullopt : entry.share;
    const std::optional<OfferedLoad> offered = offered_of(own.workload, share.value_or(1.0));
    if (share) own.setup.requests = std::llround(*share * static_cast<double>(own.setup.requests));
    return {entry.name, entry.gpus, share, slo, offered, std::move(own)};
  }

  /// Of a part of a workload. Keeping each arrival with probability p makes of gaps whose squared coefficient of
  /// variation is v those of 1 + p (v - 1): as they become rare, they come as in a Poisson process.
  static std::optional<OfferedLoad> offered_of(const traces::Workload& workload, double part) {
    if (!workload.rate || !workload.variation || workload.concurrency > 0) return std::nullopt;
    const double squared = 1.0 + part * (*workload.variation * *workload.variation - 1.0);
    return OfferedLoad{.rate = part * *workload.rate,
                       .variation = std::sqrt(squared),
                       .together = workload.mean_turns,
                       .requests = std::llround(part * static_cast<double>(workload.requests))};
  }

  /// Content ids of a workload are those of blocks of one size.
  void check_blocks() {
    const AssembledKind* first = nullptr;
    for (const AssembledKind& kind : assembly_.kinds) {
      if (!kind.share) continue;
      if (first == nullptr) first = &kind;
      const Tokens block = kind.assembly.instance.kv.block_tokens;
      const Tokens of_first = first->assembly.instance.kv.block_tokens;
      if (block == of_first) continue;
      problems_.add(fmt::format("instances that share a workload need blocks of one size: {} has {} tokens, {} has {}",
                                first->name, of_first.count(), kind.name, block.count()),
                    kInstancesKey, "give memory.block_tokens beside instances");
    }
  }

  /// The instances can keep what they promise, with the links that they share.
  void share_bus() {
    std::vector<BusInstance> instances;
    for (const AssembledKind& kind : assembly_.kinds) {
      const std::vector<BusInstance> own = kind.assembly.instance.on_bus(0);
      instances.insert(instances.end(), own.begin(), own.end());
    }
    const InstancePlan& first = assembly_.kinds.front().assembly.instance;
    if (const auto problem = broken_promises(instances, first.links, first.link_names, kInstancesKey)) {
      problems_.add(*problem);
    }
  }

  void read_failures() {
    InstancePlan& plan = assembly_.instance;
    plan.replicas = 0;
    for (const AssembledKind& kind : assembly_.kinds) plan.replicas += kind.assembly.instance.replicas;
    if (!settings().has("events") || settings().get<std::string>("events").empty()) return;
    std::vector<Problem> found;
    plan.events = read_events(settings().get<std::string>("events"), plan.replicas, found);
    problems_.add_all(found);
  }

  /// That of all who have one, if it is the same.
  void describe_locality() {
    std::vector<ExpertLocality> assumed;
    for (const AssembledKind& kind : assembly_.kinds) {
      if (const auto& own = kind.assembly.setup.expert_locality) assumed.push_back(*own);
    }
    const bool same = std::ranges::adjacent_find(assumed, std::ranges::not_equal_to{}) == assumed.end();
    if (same && !assumed.empty()) assembly_.setup.expert_locality = assumed.front();
  }

  void describe() {
    Setup& setup = assembly_.setup;
    Texts models;
    Texts engines;
    Texts policies;
    Texts latency_models;
    for (const AssembledKind& kind : assembly_.kinds) {
      const Setup& own = kind.assembly.setup;
      models.add(own.model);
      engines.add(own.engine);
      policies.add(own.policy);
      latency_models.add(own.latency_model);
      setup.engine_calibrated = setup.engine_calibrated && own.engine_calibrated;
      if (setup.knows_future.empty()) setup.knows_future = own.knows_future;
      for (const InputFile& input : kind.assembly.inputs) add_input(input);
    }
    setup.model = models.joined();
    setup.engine = engines.joined();
    setup.policy = policies.joined();
    setup.latency_model = latency_models.joined();
    setup.expected_error = assembly_.kinds.front().assembly.setup.expected_error;
    setup.hardware = hardware_.file().name;
    setup.gpu = hardware_.gpu.file.name;
    setup.servers = 1;
    setup.replicas = assembly_.instance.replicas;
    setup.requests = assembly_.workload.requests;
    setup.skipped_rows = assembly_.workload.skipped_rows;
    Texts workloads;
    for (const AssembledKind& kind : assembly_.kinds) {
      const std::string& own = kind.assembly.setup.workload;
      workloads.add(kind.share ? own : fmt::format("{} ({})", own, kind.name));
    }
    setup.workload = workloads.joined("; ");
    for (const AssembledKind& kind : assembly_.kinds) {
      const Tokens longest = kind.assembly.setup.max_model_len;
      if (setup.max_model_len == Tokens(0) || longest < setup.max_model_len) setup.max_model_len = longest;
    }
    describe_locality();
    add_events_file(assembly_);
    assembly_.prices.gpus = serving_gpus_ + lending_gpus_;
    describe_prices(assembly_);
    add_warnings();
    const std::int64_t unused = hardware_.server->gpus - serving_gpus_ - lending_gpus_;
    if (unused > 0) {
      warn(fmt::format("{} of the {} GPUs of {} {} not used", unused, hardware_.server->gpus, setup.hardware,
                       unused == 1 ? "is" : "are"));
    }
    warn_of_host_memory();
  }

  void add_input(const InputFile& input) {
    const auto same = [&input](const InputFile& one) { return one.role == input.role && one.name == input.name; };
    if (std::ranges::none_of(assembly_.inputs, same)) assembly_.inputs.push_back(input);
  }

  void warn(std::string warning) { assembly_.warnings.push_back(std::move(warning)); }

  /// Each warning once, with the kinds whose it is unless it is that of all.
  void add_warnings() {
    std::set<std::string> said;
    for (const AssembledKind& kind : assembly_.kinds) {
      for (const std::string& warning : kind.assembly.warnings) {
        if (!said.insert(warning).second) continue;
        std::vector<std::string> names;
        for (const AssembledKind& other : assembly_.kinds) {
          if (std::ranges::count(other.assembly.warnings, warning) > 0) names.push_back(other.name);
        }
        const bool of_all = names.size() == assembly_.kinds.size();
        const std::string whole = of_all ? warning : fmt::format("{}: {}", fmt::join(names, ", "), warning);
        if (std::ranges::count(kind.assembly.setup.accuracy, warning) > 0) assembly_.setup.accuracy.push_back(whole);
        warn(whole);
      }
    }
  }

  void warn_of_host_memory() {
    Bytes wanted;
    Bytes most;
    for (const AssembledKind& kind : assembly_.kinds) {
      wanted += kind.assembly.instance.on_host;
      most = std::max(most, kind.assembly.instance.on_host);
    }
    const Bytes dram = hardware_.host->dram;
    if (wanted <= dram || most > dram) return;  // a single one has said so
    warn(fmt::format("all instances together keep up to {:.2f} GB on the host, more than the {:.2f} GB of DRAM of {}",
                     gigabytes(wanted), gigabytes(dram), hardware_.host->file.name));
  }

  /// A key beside the list that every element states itself, or that belongs to what none has.
  void refuse_unused_keys() {
    for (const ResolvedKey& key : assembly_.config.keys) {
      const std::string& name = key.parameter.name;
      if (key.origin <= Origin::policy || !refusal_in_instance(name).empty()) continue;
      const bool common = name.starts_with("workload.") && std::ranges::any_of(assembly_.kinds, shares);
      const bool used = common || std::ranges::any_of(assembly_.kinds, [&](const AssembledKind& kind) {
                          const std::vector<ResolvedKey>& own = kind.assembly.config.keys;
                          return std::ranges::any_of(own, [&](const ResolvedKey& one) {
                            return one.parameter.name == name && one.origin == key.origin && one.where == key.where;
                          });
                        });
      if (used) continue;
      const std::string what = fmt::format("{} has no effect: no instance uses the value given beside the list", name);
      if (key.origin == Origin::environment) {
        warn(what);
      } else {
        problems_.add(what, name, "change it in the elements of instances");
      }
    }
  }
  static bool shares(const AssembledKind& kind) { return kind.share.has_value(); }

  Assembly assembly_;
  Problems problems_;
  hwmodels::Hardware hardware_;
  std::int64_t serving_gpus_ = 0;
  bool shares_dram_ = false;       // as GivenGpus::shares_dram
  std::int64_t lending_gpus_ = 0;  // that serve nothing
};

/// The load of independent streams together: gaps vary as the streams' do, weighted by their rates.
struct LoadSum {
  double rate = 0.0;
  double variance = 0.0;  // squared coefficient of variation times rate
  double requests = 0.0;
  double arrivals = 0.0;  // that start conversations, too
  bool known = true;
  void add(const traces::Workload& workload) {
    known = known && workload.rate && workload.variation && workload.concurrency == 0;
    if (!known) return;
    rate += *workload.rate;
    variance += *workload.rate * *workload.variation * *workload.variation;
    requests += static_cast<double>(workload.requests);
    arrivals += static_cast<double>(workload.requests) / workload.mean_turns;
  }
};

}  // namespace

Assembly assemble_kinds(ResolvedConfig config) { return KindsAssembler(std::move(config)).build(); }

traces::Workload open_workload_of_kinds(const Assembly& assembly, std::int64_t replication) {
  struct Opened {
    traces::Workload workload;
    std::vector<traces::Receiver> receivers;
    std::string of;  // the kind whose own it is
  };
  std::vector<Opened> opened;
  Opened common;
  Tokens longest(traces::kMaxTokens);
  for (std::size_t i = 0; i < assembly.kinds.size(); ++i) {
    const AssembledKind& kind = assembly.kinds[i];
    const auto pool = static_cast<std::uint32_t>(i);
    if (kind.share) {
      longest = std::min(longest, kind.assembly.instance.max_model_len);
      common.receivers.push_back({pool, *kind.share, kind.slo});
    } else {
      opened.push_back({open_workload(kind.assembly, replication), {{pool, 1.0, kind.slo}}, kind.name});
    }
  }
  if (!common.receivers.empty()) {
    Settings settings = assembly.config.settings;
    const InstancePlan& first = assembly.kinds[common.receivers.front().pool].assembly.instance;
    settings.set("memory.block_tokens", first.kv.block_tokens.count());
    common.workload = traces::open_workload(settings, replication, longest);
    opened.insert(opened.begin(), std::move(common));
  }
  traces::Workload all;
  std::vector<traces::MixedPart> parts;
  LoadSum load;
  std::set<std::string> warnings;
  for (Opened& one : opened) {
    traces::Workload& workload = one.workload;
    load.add(workload);
    all.name += fmt::format("{}{}{}", all.name.empty() ? "" : ", ", one.of.empty() ? "" : one.of + ": ", workload.name);
    all.arrival = opened.size() == 1 ? workload.arrival : "mixed";
    all.concurrency = opened.size() == 1 ? workload.concurrency : 0;
    all.requests += workload.requests;
    all.prefix_ids = all.prefix_ids || workload.prefix_ids;
    all.conversations = all.conversations || workload.conversations;
    all.skipped_rows += workload.skipped_rows;
    all.random = all.random || workload.random || one.receivers.size() > 1;
    for (const std::string& warning : workload.warnings) {
      if (warnings.insert(warning).second) all.warnings.push_back(warning);
    }
    parts.push_back({std::move(workload.stream), std::move(one.receivers)});
  }
  if (load.known && load.rate > 0.0) {
    all.rate = load.rate;
    all.variation = std::sqrt(load.variance / load.rate);
    all.mean_turns = load.requests / load.arrivals;
  }
  const auto seed = assembly.config.settings.get<std::int64_t>("seed");
  all.stream = std::make_unique<traces::MixedSource>(std::move(parts), seed, replication);
  return all;
}

}  // namespace spillway
