#include "cuda_calibrate/measure/summary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "cuda_calibrate/measure/rows.hpp"
#include "sim/core/printable.hpp"

namespace spillway::calibrate {
namespace {

using Json = nlohmann::ordered_json;

double number(const Json& row, const char* key) { return row.at(key).get<double>(); }
std::string text_of(const Json& row, const char* key) { return row.value(key, std::string()); }
double seconds(const Json& row) { return number(row, "median") * 1e-6; }

/// Keeps the figure of the largest size.
struct Largest {
  double size = 0.0;
  std::optional<double> value{};
  void offer(double at, double figure) {
    if (at > size) value = figure;
    size = std::max(size, at);
  }
};

void raise(std::optional<double>& best, double value) { best = std::max(best.value_or(0.0), value); }

class HeadlineSearch {
 public:
  void look_at(const Json& row) {
    const std::string op = row.at("op").get<std::string>();
    if (op == "copy_h2d" || op == "copy_d2h") look_at_copy(row, op == "copy_h2d");
    if (op == "gemm" && !row.contains("best_of") && text_of(row, "dtype") != "fp8") {
      raise(found_.gemm, 2.0 * number(row, "m") * number(row, "n") * number(row, "k") / seconds(row));
    }
    if (op == "decode_attention" && !row.contains("skew")) {
      const double kv = 4.0 * number(row, "batch") * number(row, "context") * number(row, "kv_heads");
      raise(found_.decode, kv * number(row, "head_dim") / seconds(row));
    }
    if (op == "host_stream" && text_of(row, "part") == "stream" && text_of(row, "traffic") == "none") {
      raise(found_.host, number(row, "bytes") / seconds(row));
    }
    if (op == "host_gemm") {
      raise(found_.cpu_gemm, 2.0 * number(row, "rows") * number(row, "inputs") * number(row, "outputs") / seconds(row));
    }
    if (op == "cpu_attention") raise(found_.cpu_decode, number(row, "kv_bytes") / seconds(row));
  }

  [[nodiscard]] Headlines result() const {
    Headlines all = found_;
    all.h2d = h2d_.value;
    all.d2h = d2h_.value;
    // A point has both rows or none.
    if (h2d_beside_.value && d2h_beside_.value) all.duplex = *h2d_beside_.value + *d2h_beside_.value;
    return all;
  }

 private:
  void look_at_copy(const Json& row, bool to_device) {
    if (text_of(row, "mechanism") != "single" || row.contains("gpus")) return;
    const double bytes = number(row, "block_bytes");
    if (row.value("duplex", false)) {
      if (number(row, "beside_bytes") == bytes)
        (to_device ? h2d_beside_ : d2h_beside_).offer(bytes, bytes / seconds(row));
    } else if (text_of(row, "memory") == "pinned" && text_of(row, "observed") == "device") {
      (to_device ? h2d_ : d2h_).offer(bytes, bytes / seconds(row));
    }
  }

  Headlines found_{};
  Largest h2d_{};
  Largest d2h_{};
  Largest h2d_beside_{};
  Largest d2h_beside_{};
};

std::string machine_text(const MachineFacts& facts, std::int64_t gpu) {
  std::string text;
  for (const GpuFacts& one : facts.gpus) {
    if (one.index != gpu) continue;
    text += fmt::format("GPU {} of {}{}: {}, {:.1f} GB, {} SMs, {} MiB of L2, sm_{}\n", gpu, facts.gpus.size(),
                        facts.gpus_assumed ? ", assumed" : "", printable(one.name),
                        static_cast<double>(one.memory_bytes) * 1e-9, one.sm_count, one.l2_bytes >> 20,
                        one.compute_capability);
  }
  if (facts.gpus.empty()) text += fmt::format("no GPU: {}\n", printable(facts.gpu_reason));
  const HostFacts& host = facts.host;
  const char* whose = facts.host_assumed ? " (assumed)" : facts.gpus_assumed ? " (this machine)" : "";
  text += fmt::format("host{}: {}, {} cores, {} threads, {:.0f} GB of memory free\n", whose, printable(host.cpu_model),
                      host.physical_cores, host.threads, static_cast<double>(host.available_bytes) * 1e-9);
  return text;
}

std::size_t widest(const std::vector<std::string>& texts) {
  std::size_t width = 0;
  for (const std::string& text : texts) width = std::max(width, text.size());
  return width;
}

}  // namespace

Headlines headlines_of(const Document& document) {
  HeadlineSearch search;
  for (const SectionResult& section : document.sections) {
    for (const Json& row : section.measurements) search.look_at(row);
  }
  return search.result();
}

std::string summary_text(const Document& document) {
  const std::size_t width = widest(section_ids());
  std::string text = fmt::format("{:<{}}  {:<11}  {:>9}  {:>7}\n", "section", width, "status", "points", "seconds");
  for (const SectionResult& section : document.sections) {
    text += fmt::format("{:<{}}  {:<11}  {:>9}  {:>7.1f}", section.id, width, name_of(section.status),
                        fmt::format("{}/{}", section.points_done, section.points_planned), section.seconds);
    if (!section.reason.empty()) text += fmt::format("  {}", printable(section.reason));
    text += "\n";
  }
  const Headlines found = headlines_of(document);
  const auto line = [&](std::string_view what, const std::optional<double>& figure, double unit,
                        std::string_view name) {
    if (figure) text += fmt::format("{:<44} {:>8.1f} {}\n", what, *figure / unit, name);
  };
  text += "\n";
  line("host to GPU, largest pinned copy", found.h2d, 1e9, "GB/s");
  line("GPU to host, largest pinned copy", found.d2h, 1e9, "GB/s");
  line("both directions at once, sum", found.duplex, 1e9, "GB/s");
  line("best matrix multiplication, 2-byte numbers", found.gemm, 1e12, "TFLOP/s");
  line("best decode attention, KV bytes", found.decode, 1e9, "GB/s");
  line("host memory, best number of threads", found.host, 1e9, "GB/s");
  line("best decode attention on the CPU, KV bytes", found.cpu_decode, 1e9, "GB/s");
  line("best product on one socket, fp32", found.cpu_gemm, 1e9, "GFLOP/s");
  return text;
}

std::string plan_text(const Plan& plan, const MachineFacts& facts, std::int64_t gpu) {
  const std::size_t width = widest(section_ids());
  std::string text = machine_text(facts, gpu);
  text +=
      fmt::format("\n{:<{}}  {:>6}  {:>9}  {}\n", "section", width, "points", "estimate", "what is measured, and why");
  for (const Section& section : plan.sections) {
    text += fmt::format("{:<{}}  {:>6}  {:>7.1f} s  {}: {}\n", section.id, width, section.points.size(),
                        section.estimated_seconds, section.title, section.purpose);
    if (!section.reason.empty()) text += fmt::format("{:<{}}  skipped: {}\n", "", width, printable(section.reason));
  }
  text += fmt::format("{:<{}}  {:>6}  {:>7.1f} s  of at most {:.0f} s for a {} run\n", "all", width, plan.points(),
                      plan.estimated_seconds(), budget_of(plan.level).run_seconds, name_of(plan.level));
  return text +
         "Seconds are estimates from the machine's own figures. A section ends when its share of the time is over.\n";
}

Json plan_json(const Plan& plan, const MachineFacts& facts, std::int64_t gpu) {
  Json sections = Json::array();
  for (const Section& section : plan.sections) {
    Json points = Json::array();
    for (const Point& point : section.points) points.push_back(rows_of(point));
    sections.push_back({{"id", section.id},
                        {"title", section.title},
                        {"purpose", section.purpose},
                        {"reason", section.reason.empty() ? Json(nullptr) : Json(section.reason)},
                        {"estimated_seconds", section.estimated_seconds},
                        {"most_seconds", section.most_seconds},
                        {"points", std::move(points)}});
  }
  const Document document = new_document(plan, facts, {{}, {}, 0, gpu}, false);
  return {{"level", name_of(plan.level)},
          {"device", document.provenance.at("device")},
          {"host", document.provenance.at("host")},
          {"assumed", {{"device", facts.gpus_assumed}, {"host", facts.host_assumed}}},
          {"estimated_seconds", plan.estimated_seconds()},
          {"most_seconds", budget_of(plan.level).run_seconds},
          {"sections", std::move(sections)}};
}

std::string progress_text(const RunProgress& progress) {
  return fmt::format("{} {}/{} points, about {:.0f} s left", progress.section->id, progress.point,
                     progress.section->points.size(), progress.seconds_left);
}

std::string section_text(const SectionResult& result) {
  std::string text = fmt::format("{}: {}", result.id, name_of(result.status));
  if (result.points_planned > 0) {
    text += fmt::format(", {} of {} points in {:.1f} s", result.points_done, result.points_planned, result.seconds);
  }
  if (!result.reason.empty()) text += fmt::format(" ({})", printable(result.reason));
  for (const std::string& note : result.notes) text += fmt::format("\n  {}", printable(note));
  return text;
}

}  // namespace spillway::calibrate
