#include "sim/report/placement.hpp"

#include <fmt/format.h>

#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "sim/core/text.hpp"
#include "sim/io/columns.hpp"
#include "sim/io/json_values.hpp"
#include "sim/io/lines.hpp"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;
using placer::ConsumerWorth;

constexpr std::array<const char*, 3> kWorthMetrics{"p99_ttft_ms", "mean_tpot_ms", "mean_e2e_ms"};

std::string gigabytes(Bytes bytes) { return figure(static_cast<double>(bytes.count()) * 1e-9) + " GB"; }

std::string plural(std::int64_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string role(const std::optional<Bytes>& balance) {
  const Bytes known = balance.value_or(Bytes(0));
  if (known == Bytes(0)) return "lends nothing";
  return known > Bytes(0) ? "lends " + gigabytes(known) : "borrows " + gigabytes(Bytes(0) - known);
}

/// Balance and sign of each server, and the models on it.
struct ServerRow {
  std::map<std::size_t, std::int64_t> models{};  // GPUs by element
  std::int64_t gpus = 0;
  Bytes left{};
  std::int64_t surplus = 0;
};

std::vector<ServerRow> server_rows(const PlacementReport& report) {
  std::vector<ServerRow> rows(static_cast<std::size_t>(report.cluster->servers));
  const std::vector<std::size_t> elements = report.cluster->elements();
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const placer::ClusterModel& model = report.cluster->models[elements[i]];
    const std::vector<std::int64_t>& servers = report.placement.servers[i];
    const Bytes balance = model.balance.value_or(Bytes(0));
    for (const std::int64_t server : servers) {
      ServerRow& row = rows[static_cast<std::size_t>(server)];
      const std::int64_t gpus = model.gpus / std::ssize(servers);
      row.models[elements[i]] += gpus;
      row.gpus += gpus;
      row.left += Bytes(balance.count() / std::ssize(servers));
      row.surplus += balance > Bytes(0) ? 1 : balance < Bytes(0) ? -1 : 0;
    }
  }
  return rows;
}

std::string servers_table(const PlacementReport& report) {
  Columns table;
  table.add("server");
  table.add("GPUs");
  table.add("left to lend");
  table.add("producers less consumers");
  table.add("models", true);
  std::size_t number = 0;
  for (const ServerRow& row : server_rows(report)) {
    std::string models;
    for (const auto& [element, gpus] : row.models) {
      const placer::ClusterModel& model = report.cluster->models[element];
      const std::int64_t copies = report.compat ? gpus : gpus / model.gpus;
      models += fmt::format("{}{}{}", models.empty() ? "" : ", ", shown(model.name),
                            copies > 1 ? fmt::format(" x{}", copies) : "");
    }
    table.row({fmt::format("{}", number++), fmt::format("{}", row.gpus), gigabytes(row.left),
               fmt::format("{}", row.surplus), models.empty() ? "-" : models});
  }
  return table.text();
}

std::string worth_table(const PlacementReport& report) {
  Columns table;
  table.add("consumer", true);
  table.add("copies");
  table.add("lender", true);
  for (const char* const metric : kWorthMetrics) {
    table.add(fmt::format("{} lent", metric));
    table.add("host");
  }
  for (const ConsumerWorth& one : *report.worth) {
    const placer::ClusterModel& consumer = report.cluster->models[one.element];
    std::vector<std::string> cells{
        fmt::format("{} ({})", shown(consumer.name), role(consumer.balance)), fmt::format("{}", one.copies),
        one.lender ? fmt::format("{} ({})", shown(report.cluster->models[*one.lender].name), gigabytes(one.lends))
                   : "none"};
    if (!one.left_out.empty()) {
      cells.push_back(one.left_out);
    } else {
      for (const char* const metric : kWorthMetrics) {
        for (const std::vector<Metric>* metrics : {&one.lent, &one.host}) {
          const Metric& figure = metric_or_none(*metrics, metric);
          cells.push_back(figure_with_interval(figure.value, figure.half_width));
        }
      }
    }
    table.row(std::move(cells));
  }
  return table.text();
}

std::string gap_text(const placer::Placement& placement) {
  if (placement.optimal()) return "no placement has a lower value";
  constexpr double kTiny = 5e-4;
  if (placement.gap() < kTiny)
    return fmt::format("no placement is better by {} or more", format_bytes(placement.value - placement.bound));
  return fmt::format("within {} of the optimum: no placement has less than {}", percent(placement.gap()),
                     gigabytes(placement.bound));
}

}  // namespace

std::string to_placement_table(const PlacementReport& report) {
  const placer::Cluster& cluster = *report.cluster;
  const placer::Placement& placement = report.placement;
  std::int64_t gpus = 0;
  for (const placer::ClusterModel& model : cluster.models) gpus += model.gpus * model.copies;
  const std::int64_t each = cluster.hardware.server->gpus;
  Lines head;
  head.add("Cluster", fmt::format("{} x {} of {} GPUs with {}; {} for {} of {} GPUs{}", cluster.servers,
                                  shown(cluster.hardware_name), each, gigabytes(cluster.hardware.gpu.memory),
                                  plural(std::ssize(placement.servers), "model"), gpus, cluster.servers * each,
                                  report.compat ? "; placed as AQUA's published code does" : ""));
  for (const placer::ProfiledModel& one : report.profiled) {
    head.add("Profile", fmt::format("{}: {}", shown(cluster.models[one.element].name), one.terms));
  }
  head.add("Objective",
           fmt::format("{}: {} left to lend (the most on one server) plus {} (memory of one GPU) x a surplus of {}",
                       gigabytes(placement.value), gigabytes(placement.objective.memory),
                       gigabytes(cluster.hardware.gpu.memory), plural(placement.objective.surplus, "producer")));
  head.add("Gap", gap_text(placement));
  head.add("Pairs", fmt::format("{} with a producer on the same server to borrow from, {} without, paging to host DRAM",
                                plural(std::ssize(placement.pairs), "consumer"), placement.unmatched.size()));
  for (const std::string& warning : cluster.warnings) head.add("Warning", warning);
  std::string text = head.text() + "\n" + servers_table(report);
  if (!report.worth || report.worth->empty()) return text;
  text += "\n" + worth_table(report);
  Lines notes;
  notes.add("Note",
            "lent: policy=aqua, with the memory of the lender. host: policy=cfs, which pages to host DRAM. "
            "Each runs alone on its GPUs; a lender's own load is not modelled.");
  return text + notes.text();
}

std::string to_placement_json(const PlacementReport& report) {
  const placer::Cluster& cluster = *report.cluster;
  const placer::Placement& placement = report.placement;
  Json json{{"hardware", cluster.hardware_name},
            {"servers", cluster.servers},
            {"gpus_per_server", cluster.hardware.server->gpus},
            {"gpu_memory_bytes", cluster.hardware.gpu.memory.count()},
            {"compat", report.compat},
            {"objective",
             {{"memory_left_bytes", placement.objective.memory.count()},
              {"surplus_producers", placement.objective.surplus},
              {"value_bytes", placement.value.count()},
              {"bound_bytes", placement.bound.count()},
              {"gap_fraction", placement.gap()},
              {"optimal", placement.optimal()}}}};
  json["models"] = Json::array();
  const std::vector<std::size_t> elements = cluster.elements();
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const placer::ClusterModel& model = cluster.models[elements[i]];
    json["models"].push_back({{"name", model.name},
                              {"tensor_parallel", model.gpus},
                              {"balance_bytes", model.balance.value_or(Bytes(0)).count()},
                              {"servers", placement.servers[i]}});
  }
  json["profiles"] = Json::array();
  for (const placer::ProfiledModel& one : report.profiled) {
    json["profiles"].push_back({{"name", cluster.models[one.element].name},
                                {"balance_bytes", one.balance.count()},
                                {"stable_rate_requests_per_s", one.stable_rate},
                                {"free_bytes", one.free.count()},
                                {"terms", one.terms}});
  }
  json["pairs"] = Json::array();
  for (const placer::LendingPair& pair : placement.pairs) {
    json["pairs"].push_back({{"producer", pair.producer}, {"consumer", pair.consumer}});  // positions in models
  }
  json["unmatched"] = placement.unmatched;
  json["warnings"] = cluster.warnings;
  if (!report.worth) return json.dump(2) + "\n";
  json["worth"] = Json::array();
  for (const ConsumerWorth& one : *report.worth) {
    Json row{{"consumer", cluster.models[one.element].name},
             {"copies", one.copies},
             {"lender", one.lender ? Json(cluster.models[*one.lender].name) : Json(nullptr)},
             {"lends_bytes", one.lends.count()},
             {"left_out", one.left_out.empty() ? Json(nullptr) : Json(one.left_out)}};
    for (const char* const metric : kWorthMetrics) {
      row["lent"][metric] = nullable(metric_or_none(one.lent, metric).value);
      row["host"][metric] = nullable(metric_or_none(one.host, metric).value);
    }
    json["worth"].push_back(std::move(row));
  }
  return json.dump(2) + "\n";
}

}  // namespace spillway
