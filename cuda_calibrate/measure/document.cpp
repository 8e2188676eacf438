#include "cuda_calibrate/measure/document.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <utility>

#include "cuda_calibrate/measure/rows.hpp"
#include "cuda_calibrate/measure/statistics.hpp"
#include "sim/core/error.hpp"
#include "sim/io/file_reader.hpp"
#include "sim/io/output.hpp"

namespace spillway::calibrate {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchemaVersion = 1;
constexpr FileWords kWords{"measurement file", "measurement"};

template <class Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json device_json(const GpuFacts* gpu) {
  // Without a GPU, omit its facts.
  if (gpu == nullptr)
    return {{"name", nullptr}, {"memory_bytes", nullptr}, {"sm_count", nullptr}, {"l2_bytes", nullptr}};
  return {{"name", gpu->name},
          {"uuid", or_null(gpu->uuid)},
          {"index", gpu->index},
          {"memory_bytes", gpu->memory_bytes},
          {"sm_count", gpu->sm_count},
          {"l2_bytes", gpu->l2_bytes},
          {"compute_capability", gpu->compute_capability},
          {"bf16", gpu->bf16},
          {"fp8", gpu->fp8},
          {"sm_clock_mhz", or_null(gpu->sm_clock_mhz)},
          {"max_sm_clock_mhz", or_null(gpu->max_sm_clock_mhz)},
          {"memory_clock_mhz", or_null(gpu->memory_clock_mhz)},
          {"power_limit_w", or_null(gpu->power_limit_w)},
          {"temperature_c", or_null(gpu->temperature_c)},
          {"throttle_reasons", or_null(gpu->throttle_reasons)},
          {"ecc", or_null(gpu->ecc)},
          {"pcie_generation", or_null(gpu->pcie_generation)},
          {"pcie_width", or_null(gpu->pcie_width)},
          {"numa_node", or_null(gpu->numa_node)}};
}

Json host_json(const HostFacts& host) {
  return {{"cpu_model", host.cpu_model},
          {"architecture", host.architecture},
          {"physical_cores", host.physical_cores},
          {"threads", host.threads},
          {"memory_bytes", host.memory_bytes},
          {"available_bytes", host.available_bytes},
          {"last_level_cache_bytes", host.last_level_cache_bytes},
          {"numa_nodes", host.numa_nodes},
          {"sockets", host.sockets},
          {"vector_extension", host.vector_extension},
          {"transparent_huge_pages", or_null(host.transparent_huge_pages)},
          {"kernel", host.kernel}};
}

const GpuFacts* gpu_of(const MachineFacts& facts, std::int64_t index) {
  const auto it =
      std::find_if(facts.gpus.begin(), facts.gpus.end(), [&](const GpuFacts& gpu) { return gpu.index == index; });
  return it == facts.gpus.end() ? nullptr : &*it;
}

/// Microseconds with 8 digits: more precise than any timer, without the tail of a binary fraction.
double microseconds(double seconds) { return std::strtod(fmt::format("{:.8g}", seconds * 1e6).c_str(), nullptr); }

Json section_json(const SectionResult& section) {
  Json json{{"id", section.id},
            {"status", name_of(section.status)},
            {"reason", section.reason.empty() ? Json(nullptr) : Json(section.reason)},
            {"seconds", section.seconds},
            {"points_planned", section.points_planned},
            {"points_done", section.points_done},
            {"plan", section.plan},
            {"skipped", section.skipped},
            {"notes", section.notes}};
  json["gpu_start"] = or_null(section.gpu_start);
  json["gpu_end"] = or_null(section.gpu_end);
  return json;
}

/// JSON on one line. A command line may contain bytes that are not UTF-8.
std::string line_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string lines_of(const std::vector<Json>& entries) {
  std::string text = "[";
  for (const Json& entry : entries) text += fmt::format("{}\n    {}", text.size() > 1 ? "," : "", line_of(entry));
  return text + (entries.empty() ? "]" : "\n  ]");
}

std::string content_of(const std::string& path) {
  FileReader file(path, kWords);
  std::string text;
  std::array<char, 65536> buffer{};
  while (const std::size_t got = file.read(buffer.data(), buffer.size())) text.append(buffer.data(), got);
  return text;
}

/// The finished sections of a document, by id, with their rows. Throws Json's exceptions for any other form.
std::map<std::string, SectionResult> done_sections(const Json& json) {
  std::map<std::string, SectionResult> sections;
  for (const Json& one : json.at("sections")) {
    if (one.at("status").get<std::string>() != name_of(SectionStatus::done)) continue;
    SectionResult section;
    section.id = one.at("id").get<std::string>();
    section.status = SectionStatus::done;
    section.seconds = one.at("seconds").get<double>();
    section.points_planned = one.at("points_planned").get<std::int64_t>();
    section.points_done = one.at("points_done").get<std::int64_t>();
    section.plan = one.at("plan").get<std::string>();
    section.skipped = one.at("skipped").get<std::vector<Json>>();
    section.notes = one.value("notes", std::vector<std::string>());
    for (const auto& [key, to] : {std::pair("gpu_start", &section.gpu_start), {"gpu_end", &section.gpu_end}}) {
      if (!one.at(key).is_null()) *to = one.at(key);
    }
    sections.emplace(section.id, std::move(section));
  }
  const Json& rows = json.at("measurements");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto it = sections.find(rows[i].at("section").get<std::string>());
    if (it == sections.end()) continue;
    it->second.measurements.push_back(rows[i]);
    if (json.contains("raw")) it->second.raw.push_back(json.at("raw").at(i).get<std::vector<double>>());
  }
  return sections;
}

/// Besides the plan, the properties that a resumed run must share with the file.
std::vector<std::pair<std::string, std::string>> identity(const Json& provenance, bool raw) {
  const Json& device = provenance.at("device");
  return {{"GPU", device.at("name").dump()},
          {"index of the GPU", device.value("index", Json(nullptr)).dump()},
          {"CPU", provenance.at("host").at("cpu_model").dump()},
          {"seed", provenance.at("seed").dump()},
          {"level", provenance.at("level").dump()},
          {"raw timings", raw ? "kept" : "not kept"}};
}

std::vector<Problem> differences(const std::string& path, const Json& before, const Document& document) {
  std::vector<Problem> problems;
  const std::string fix = "run the same command, or write to another file";
  const auto then = identity(before.at("provenance"), before.contains("raw"));
  const auto now = identity(document.provenance, document.with_raw);
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (then[i].second == now[i].second) continue;
    problems.push_back(
        {fmt::format("{}: {} in the file, {} now", now[i].first, then[i].second, now[i].second), path, fix});
  }
  if (!problems.empty()) return problems;  // other plans follow from these differences
  std::map<std::string, std::string> plans;
  for (const Json& one : before.at("sections")) {
    plans[one.at("id").get<std::string>()] = one.at("plan").get<std::string>();
  }
  for (const SectionResult& section : document.sections) {
    const auto it = plans.find(section.id);
    if (it == plans.end()) {
      problems.push_back({fmt::format("section {} is not in the file", section.id), path, fix});
    } else if (it->second != section.plan) {
      problems.push_back({fmt::format("section {} has other points in the file", section.id), path, fix});
    }
    if (it != plans.end()) plans.erase(it);
  }
  for (const auto& [id, plan] : plans) {
    problems.push_back({fmt::format("section {} is in the file, but not chosen now", id), path, fix});
  }
  return problems;
}

}  // namespace

std::string_view name_of(SectionStatus status) {
  switch (status) {
    case SectionStatus::done:
      return "done";
    case SectionStatus::skipped:
      return "skipped";
    case SectionStatus::interrupted:
      return "interrupted";
    case SectionStatus::failed:
      return "failed";
    case SectionStatus::pending:
      return "pending";
  }
  throw InvariantError("a status without a name");
}

std::string Document::text() const {
  std::vector<Json> about;
  std::vector<Json> rows;
  std::vector<Json> timings;
  about.reserve(sections.size());
  for (const SectionResult& section : sections) {
    about.push_back(section_json(section));
    rows.insert(rows.end(), section.measurements.begin(), section.measurements.end());
    timings.insert(timings.end(), section.raw.begin(), section.raw.end());
  }
  std::string text = fmt::format(
      "{{\n  \"schema_version\": {},\n  \"kind\": \"measurements\",\n  \"provenance\": {},\n  \"sections\": {},\n"
      "  \"measurements\": {}",
      kSchemaVersion, line_of(provenance), lines_of(about), lines_of(rows));
  if (with_raw) text += fmt::format(",\n  \"raw\": {}", lines_of(timings));
  return text + "\n}\n";
}

Document new_document(const Plan& plan, const MachineFacts& facts, const RunLabels& labels, bool with_raw) {
  Document document;
  document.with_raw = with_raw;
  Json gpus = Json::array();
  for (const GpuFacts& gpu : facts.gpus) gpus.push_back(gpu.name);
  document.provenance = {{"device", device_json(gpu_of(facts, labels.gpu))},
                         {"gpus", gpus},
                         {"host", host_json(facts.host)},
                         {"software",
                          {{"tool", fmt::format("cuda_calibrate {} ({})", tool_version(), tool_build())},
                           {"driver", or_null(facts.driver)},
                           {"cuda_runtime", or_null(facts.cuda_runtime)},
                           {"cublas", or_null(facts.cublas)},
                           {"cudnn", or_null(facts.cudnn)}}},
                         {"command", labels.command},
                         {"seed", labels.seed},
                         {"level", name_of(plan.level)},
                         {"started", labels.started},
                         {"finished", nullptr}};
  document.sections.reserve(plan.sections.size());
  for (const Section& section : plan.sections) {
    SectionResult result;
    result.id = section.id;
    result.points_planned = static_cast<std::int64_t>(section.points.size());
    result.plan = plan_digest(section, plan.level);
    document.sections.push_back(std::move(result));
  }
  return document;
}

std::optional<Json> gpu_state(const MachineFacts& facts, std::int64_t index) {
  const GpuFacts* gpu = gpu_of(facts, index);
  if (gpu == nullptr) return std::nullopt;
  return Json{{"sm_clock_mhz", or_null(gpu->sm_clock_mhz)},
              {"memory_clock_mhz", or_null(gpu->memory_clock_mhz)},
              {"temperature_c", or_null(gpu->temperature_c)},
              {"throttle_reasons", or_null(gpu->throttle_reasons)}};
}

void add_measurements(SectionResult& section, const Point& point, const Timings& timings, const std::string& kernel,
                      bool raw) {
  std::vector<Json> rows = rows_of(point);
  SPILLWAY_CHECK(rows.size() == timings.series.size(), fmt::format("{} rows", rows.size()));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Spread spread = spread_of(timings.series[i]);
    Json& row = rows[i];
    row["unit"] = "us";
    row["median"] = microseconds(spread.median);
    row["p10"] = microseconds(spread.p10);
    row["p90"] = microseconds(spread.p90);
    row["samples"] = spread.n;
    row["calls"] = timings.calls;
    // Elementwise rows already name their kernel.
    if (!row.contains("kernel")) row["kernel"] = kernel;
    row["section"] = section.id;
    section.measurements.push_back(std::move(row));
    if (!raw) continue;
    std::vector<double> all;
    all.reserve(timings.series[i].size());
    for (const double seconds : timings.series[i]) all.push_back(microseconds(seconds));
    section.raw.push_back(std::move(all));
  }
}

void add_sustained(SectionResult& section, const Point& point, const SustainedRun& run, const std::string& kernel,
                   bool raw) {
  const Json about = rows_of(point).front();
  for (const SustainedInterval& interval : run.intervals) {
    Json row = about;
    row["time_s"] = microseconds(interval.end_seconds * 1e-6);
    const auto put = [&](const char* key, const auto& value) {
      if (value) row[key] = *value;
    };
    put("sm_clock_mhz", interval.sensors.sm_clock_mhz);
    put("power_w", interval.sensors.power_w);
    put("temperature_c", interval.sensors.temperature_c);
    put("throttle_reasons", interval.sensors.throttle_reasons);
    row["unit"] = "us";
    row["median"] = microseconds(interval.call_seconds);
    row["samples"] = 1;
    row["calls"] = interval.calls;
    row["kernel"] = kernel;
    row["section"] = section.id;
    section.measurements.push_back(std::move(row));
    if (raw) section.raw.push_back({microseconds(interval.call_seconds)});
  }
}

std::int64_t resume_from(const std::string& path, Document& document) {
  if (!std::filesystem::exists(path)) return 0;
  std::map<std::string, SectionResult> done;
  std::vector<Problem> problems;
  try {
    const Json before = Json::parse(content_of(path));
    problems = differences(path, before, document);
    done = done_sections(before);
    if (problems.empty()) document.provenance["started"] = before.at("provenance").at("started");
  } catch (const Json::exception& error) {
    throw DataError(fmt::format("the file was not written by cuda_calibrate: {}", error.what()), path,
                    "write to another file, or omit --resume to overwrite this one");
  }
  if (!problems.empty()) throw ConfigError(std::move(problems));
  std::int64_t taken = 0;
  for (SectionResult& section : document.sections) {
    const auto it = done.find(section.id);
    if (it == done.end()) continue;
    section = std::move(it->second);
    ++taken;
  }
  return taken;
}

std::optional<std::int64_t> memory_of_plan(const std::string& path) {
  if (!std::filesystem::exists(path)) return std::nullopt;
  const Json json = Json::parse(content_of(path), nullptr, false);
  const auto at = Json::json_pointer("/provenance/host/available_bytes");
  if (!json.is_object() || !json.contains(at) || !json.at(at).is_number_integer()) return std::nullopt;
  return json.at(at).get<std::int64_t>();
}

void write_document(const std::string& path, const Document& document) {
  const std::string text = document.text();
  const std::string other = path + ".part";
  errno = 0;
  {
    std::ofstream out(other, std::ios::binary | std::ios::trunc);
    out << text;
    out.close();
    if (!out) {
      const std::string why = std::strerror(errno);
      std::remove(other.c_str());
      throw ConfigError(fmt::format("cannot write the file: {}", why), other, "check the folder and its free space");
    }
  }
  if (std::rename(other.c_str(), path.c_str()) != 0) {
    const std::string why = std::strerror(errno);
    std::remove(other.c_str());
    throw ConfigError(fmt::format("cannot rename the finished file: {}", why), path,
                      "name a file in a folder that you may write to");
  }
}

}  // namespace spillway::calibrate
