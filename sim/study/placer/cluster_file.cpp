#include "sim/study/placer/cluster_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>

#include "sim/config/names.hpp"
#include "sim/core/printable.hpp"
#include "sim/core/text.hpp"
#include "sim/study/parameter_table.hpp"

namespace spillway::placer {
namespace {

constexpr std::array<std::string_view, 6> kElementKeys{"name", "copies", "lends", "borrows", "prompts", "context"};
constexpr std::array<std::string_view, 3> kClusterKeys{"hardware", "servers", "models"};
constexpr std::int64_t kMostModels = 10'000;

/// Keys of a run that the placement decides.
bool is_decided(const std::string& key) {
  constexpr std::array<std::string_view, 8> kDecided{"policy",   "memory.peer", "instances",        "events",
                                                     "replicas", "servers",     "prefill_replicas", "decode_replicas"};
  return std::ranges::find(kDecided, key) != kDecided.end();
}

class ClusterReader {
 public:
  explicit ClusterReader(const std::string& path) : path_(path), table_(parameter_table()) {}

  Cluster read() {
    const std::vector<Assignment> given = read_config_file(path_, problems_);
    if (!problems_.empty()) throw ConfigError(std::move(problems_));
    for (const Assignment& one : given) read_key(one);
    if (cluster_.hardware_name.empty()) complain("hardware is missing", path_, R"(write "hardware": "hgx-h100-8")");
    if (!models_) complain("models is missing", path_, R"(write "models": [{"name": "sd", "lends": "30GB"}, ...])");
    load_hardware();
    if (models_) read_models();
    if (!problems_.empty()) throw ConfigError(std::move(problems_));
    return std::move(cluster_);
  }

 private:
  void complain(std::string what, std::string where, std::string fix) {
    problems_.push_back({std::move(what), std::move(where), std::move(fix)});
  }
  template <class Own>
  void unknown(const Assignment& given, const Own& own) {
    std::vector<std::string> names(own.begin(), own.end());
    // A misspelt key of the file itself is likelier than one of a run.
    std::string fix = suggestion(given.key, names);
    if (fix.empty()) {
      for (const Parameter& one : table_) names.push_back(one.name);
      fix = suggestion(given.key, names);
    }
    complain(fmt::format("unknown key \"{}\"", brief(given.key)), given.where,
             fmt::format("{}it has {}, and keys of a run", fix, fmt::join(own, ", ")));
  }
  std::optional<std::int64_t> count(const Assignment& given, std::int64_t most) {
    const auto number = given.text ? parse_integer(*given.text) : std::nullopt;
    if (number && *number >= 1 && *number <= most) return number;
    complain(fmt::format("{} is {}", given.key, given.text ? brief(*given.text) : "no number"), given.where,
             fmt::format("give a whole number from 1 to {}", most));
    return std::nullopt;
  }

  /// A key beside the list.
  void read_key(const Assignment& given) {
    if (given.key == "hardware") {
      hardware_where_ = given.where;
      cluster_.hardware_name = given.text.value_or("");
      shared_.push_back(given);
    } else if (given.key == "servers") {
      servers_ = count(given, kMostModels);
    } else if (given.key == "models") {
      models_ = given;
    } else if (find_parameter(table_, given.key) == nullptr) {
      unknown(given, kClusterKeys);
    } else if (is_decided(given.key)) {
      decided(given);
    } else {
      shared_.push_back(given);
    }
  }
  void decided(const Assignment& given) {
    complain(fmt::format("{} has no place here: the placement decides it", given.key), given.where, "leave it out");
  }

  void load_hardware() {
    if (cluster_.hardware_name.empty()) return;
    const std::string full =
        match_name(cluster_.hardware_name, hwmodels::hardware_names(), Abbreviations::allowed).name;
    if (!full.empty()) cluster_.hardware_name = full;
    try {
      cluster_.hardware = hwmodels::load_hardware(cluster_.hardware_name);
    } catch (const UserError& error) {
      for (Problem problem : error.problems()) {
        if (problem.where == "hardware") problem.where = hardware_where_;
        problems_.push_back(std::move(problem));
      }
      return;
    }
    if (!cluster_.hardware.server) {
      complain(fmt::format("{} is a GPU alone, and models are placed on servers", brief(cluster_.hardware_name)),
               hardware_where_, "name a server, as hgx-h100-8 (spillway list hardware)");
      return;
    }
    cluster_.servers = servers_.value_or(cluster_.hardware.server->servers);
  }

  void read_models() {
    ResolvedKey list;
    list.parameter.name = models_->key;
    list.text = models_->text.value_or("[]");
    list.origin = Origin::file;
    list.where = models_->where;
    const std::vector<std::vector<Assignment>> objects = parse_objects(list, problems_);
    if (objects.empty() && problems_.empty()) complain("models is an empty list", list.where, "give a model");
    std::set<std::string> names;
    for (const std::vector<Assignment>& object : objects) {
      ClusterModel model = element(object);
      if (!names.insert(model.name).second) {
        complain(fmt::format("two models are called {}", brief(model.name)), model.where,
                 "give each a name of its own; \"copies\" makes several equal ones");
      }
      cluster_.models.push_back(std::move(model));
    }
  }

  ClusterModel element(const std::vector<Assignment>& object) {
    ClusterModel model;
    model.name = fmt::format("model-{}", cluster_.models.size());
    model.where = object.empty() ? models_->where : object.front().where;
    std::set<std::string> own;
    for (Assignment given : object) {
      if (const Parameter* const parameter = find_parameter(table_, given.key)) given.key = parameter->name;
      const bool of_element = std::ranges::find(kElementKeys, given.key) != kElementKeys.end();
      if (!own.insert(given.key).second && of_element) {
        complain(fmt::format("{} is given twice", given.key), given.where, "remove one of the two");
      } else if (of_element) {
        read_element_key(given, model);
      } else if (find_parameter(table_, given.key) == nullptr) {
        unknown(given, kElementKeys);
      } else if (is_decided(given.key) || given.key == "hardware") {
        decided(given);
      } else {
        model.assignments.push_back(std::move(given));
      }
    }
    for (const Assignment& one : shared_) {
      if (!own.contains(one.key)) model.assignments.push_back(one);
    }
    const auto has = [&model](const auto& fits) { return std::ranges::any_of(model.assignments, fits); };
    const bool llm = has([](const Assignment& one) { return one.key == "model"; });
    model.has_workload = llm && has([](const Assignment& one) { return one.key.starts_with("workload."); });
    if (own.contains("prompts") != own.contains("context") || (own.contains("prompts") && (!llm || model.balance))) {
      complain(fmt::format("{}: prompts and context belong together, to a model that neither lends nor borrows",
                           brief(model.name)),
               model.where, R"(write "model": "opt-30b", "prompts": 4, "context": 8192)");
    }
    if (own.contains("lends") && own.contains("borrows")) {
      complain(fmt::format("{} lends and borrows", brief(model.name)), model.where, "leave out one of the two");
    } else if (!own.contains("lends") && !own.contains("borrows") && !own.contains("prompts") && !model.has_workload) {
      complain(fmt::format("{} neither lends nor borrows, and has no workload from which to measure either",
                           brief(model.name)),
               model.where, R"(give "lends": "30GB", "borrows": "20GB", or "model" and "workload" for the profiler)");
    }
    resolve(model);
    return model;
  }

  void read_element_key(const Assignment& given, ClusterModel& model) {
    if (given.key == "name") {
      model.name = given.text.value_or("");
      if (model.name.empty()) complain("name is empty", given.where, "give the model a name");
      return;
    }
    if (given.key == "copies") {
      model.copies = count(given, kMostModels).value_or(1);
      return;
    }
    if (given.key == "prompts") {
      model.prompts = count(given, kMostModels).value_or(1);
      return;
    }
    if (given.key == "context") {
      constexpr std::int64_t kLongest = 100'000'000;
      model.context = Tokens(count(given, kLongest).value_or(1));
      return;
    }
    const auto bytes = given.text ? parse_bytes(*given.text) : std::nullopt;
    if (!bytes) {
      complain(fmt::format("{} is {}, no size", given.key, given.text ? brief(*given.text) : "null"), given.where,
               R"(write a size with its unit, as "30GB")");
    } else {
      model.balance = given.key == "lends" ? *bytes : Bytes(0) - *bytes;
    }
  }

  /// Checks what a run would refuse. Keys policy.* are those of a consumer's run.
  void resolve(ClusterModel& model) {
    try {
      std::vector<Assignment> run = model.assignments;
      run.push_back({"policy", "aqua", Origin::file, model.where, {}});
      const ResolvedConfig config = resolve_config(table_, run, {});
      model.gpus = config.settings.get<std::int64_t>("tensor_parallel");
    } catch (const UserError& error) {
      for (const Problem& problem : error.problems()) {
        const auto same = [&problem](const Problem& one) {
          return one.what == problem.what && one.where == problem.where;
        };
        if (std::ranges::none_of(problems_, same)) problems_.push_back(problem);  // a key beside the list
      }
    }
  }

  const std::string& path_;
  std::vector<Parameter> table_;
  std::vector<Problem> problems_;
  Cluster cluster_;
  std::string hardware_where_;
  std::optional<std::int64_t> servers_;
  std::optional<Assignment> models_;
  std::vector<Assignment> shared_;
};

}  // namespace

PlacementProblem Cluster::problem(bool compat) const {
  PlacementProblem problem{.models = {},
                           .servers = servers,
                           .gpus_per_server = hardware.server->gpus,
                           .gpu_memory = hardware.gpu.memory,
                           .compat = compat};
  for (const ClusterModel& model : models) {
    for (std::int64_t copy = 0; copy < model.copies; ++copy) {
      problem.models.push_back({model.name, model.gpus, model.balance.value_or(Bytes(0))});
    }
  }
  return problem;
}

std::vector<std::size_t> Cluster::elements() const {
  std::vector<std::size_t> elements;
  for (std::size_t i = 0; i < models.size(); ++i) {
    elements.insert(elements.end(), static_cast<std::size_t>(models[i].copies), i);
  }
  return elements;
}

std::string Cluster::place_of(const std::string& where) const {
  const auto model = std::ranges::find(models, where, &ClusterModel::name);
  return model == models.end() ? where : model->where;
}

void require_paths(Cluster& cluster) {
  const hwmodels::ServerProfile& server = *cluster.hardware.server;
  const auto consumer = std::ranges::find_if(
      cluster.models, [](const ClusterModel& one) { return one.balance && *one.balance < Bytes(0); });
  if (consumer == cluster.models.end()) return;
  if (!server.peer) {
    throw ConfigError(
        fmt::format("{} borrows, and no GPU of {} reaches the memory of another one: its file states no peer_bandwidth",
                    brief(consumer->name), server.file.name),
        consumer->where, "use a server whose GPUs have links to each other (spillway list hardware)");
  }
  const std::size_t groups = hwmodels::islands(server.topology, {0, server.gpus}).size();
  if (!server.topology.gpus.empty() && groups > 1) {
    cluster.warnings.push_back(
        fmt::format("the GPUs of {} reach each other within {} groups only, which the placement does not know: put a "
                    "consumer and its lender in one group",
                    server.file.name, groups));
  }
}

Cluster read_cluster(const std::string& path) { return ClusterReader(path).read(); }

}  // namespace spillway::placer
