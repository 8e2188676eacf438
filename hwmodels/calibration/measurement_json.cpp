#include "hwmodels/calibration/measurement_json.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "hwmodels/calibration/row_selection.hpp"
#include "hwmodels/json_messages.hpp"
#include "sim/core/text.hpp"

namespace spillway::hwmodels {
namespace {

using nlohmann::json;

constexpr std::int64_t kMeasurementsVersion = 1;
constexpr std::size_t kMostTextBytes = std::size_t{64} << 20U;
constexpr const char* kCorrectEntry = "correct or delete the entry";
constexpr std::string_view kOwnKernel = "spillway";

/// The keys of an entry, except those that all ops have.
const std::vector<std::string>& keys_of(Op op) {
  static const std::map<Op, std::vector<std::string>> kKeys = [] {
    const std::vector<std::string> attention{"batch",      "q_heads", "kv_heads", "head_dim",
                                             "new_tokens", "context", "dtype",    "skew"};
    const std::vector<std::string> copies{"mechanism", "block_bytes", "copies",      "duplex", "memory",
                                          "observed",  "order",       "threads",     "ctas",   "pool_bytes",
                                          "gpus",      "numa_node",   "beside_bytes"};
    return std::map<Op, std::vector<std::string>>{
        {Op::gemm, {"m", "n", "k", "dtype", "best_of"}},
        {Op::decode_attention, attention},
        {Op::prefill_attention, attention},
        {Op::mixed_attention,
         {"chunk", "chunk_context", "decodes", "decode_context", "q_heads", "kv_heads", "head_dim", "dtype"}},
        {Op::elementwise, {"tokens", "bytes", "width"}},
        {Op::all_reduce, {"ranks", "bytes"}},
        {Op::copy_h2d, copies},
        {Op::copy_d2h, copies},
        {Op::cpu_attention, {"threads", "batch", "context", "kv_bytes", "dtype", "q_heads", "kv_heads", "head_dim"}},
        {Op::host, {"sequences", "tensor_parallel"}},
        {Op::layer, {"per_sequence", "count"}},
        {Op::iteration, {"tokens", "context", "chunk_pairs"}},
        {Op::interference, {"part", "beside", "compute", "traffic", "mechanism", "copy_bytes"}},
        {Op::host_stream, {"part", "kind", "threads", "bytes", "memory", "traffic", "numa_node"}},
        {Op::sustained, {"compute", "run_s", "time_s", "sm_clock_mhz", "power_w", "temperature_c", "throttle_reasons"}},
        {Op::moe, {"moe_dtype", "tokens", "hidden", "inter", "topk", "experts", "tp", "ep", "distribution"}},
        {Op::expert_exchange, {"backend", "step", "ranks", "tokens", "hidden", "topk", "experts", "element_bytes"}},
        {Op::host_gemm, {"rows", "inputs", "outputs", "experts", "threads", "dtype"}}};
  }();
  return kKeys.at(op);
}

/// A value in short, for messages.
std::string brief(const json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  return excerpt(value.dump(-1, ' ', true, json::error_handler_t::replace));
}

class JsonRow : public RowSource {
 public:
  JsonRow(const json& entry, std::int64_t index, std::int32_t file, Complaints& complaints)
      : entry_(entry), index_(index), file_(file), complaints_(complaints) {}

  [[nodiscard]] RowPlace place() const override { return {file_, index_}; }
  [[nodiscard]] bool has(std::string_view name) const override { return entry_.contains(name); }
  /// Whether the entry has this text.
  [[nodiscard]] bool is(std::string_view name, std::string_view text) const {
    const auto it = entry_.find(name);
    return it != entry_.end() && it->is_string() && it->get_ref<const std::string&>() == text;
  }

  std::optional<std::string> word(std::string_view name) override {
    const json* value = find(name);
    if (value == nullptr) return std::nullopt;
    if (value->is_string() && !value->get_ref<const std::string&>().empty()) return value->get<std::string>();
    bad(name, fmt::format("{} is not a text", brief(*value)), kCorrectEntry);
    return std::nullopt;
  }

  /// Whether the object `name` of the entry has this text under `key`.
  [[nodiscard]] bool is_of(std::string_view name, std::string_view key, std::string_view text) const {
    const auto it = entry_.find(name);
    if (it == entry_.end() || !it->is_object()) return false;
    const auto inner = it->find(key);
    return inner != it->end() && inner->is_string() && inner->get_ref<const std::string&>() == text;
  }

  /// An object, as text.
  std::optional<std::string> object(std::string_view name) {
    const json* value = find(name);
    if (value == nullptr) return std::nullopt;
    if (value->is_object()) return value->dump(-1, ' ', true, json::error_handler_t::replace);
    bad(name, fmt::format("{} is not an object", brief(*value)), kCorrectEntry);
    return std::nullopt;
  }

  std::optional<bool> flag(std::string_view name) override {
    const json* value = find(name);
    if (value == nullptr) return std::nullopt;
    if (value->is_boolean()) return value->get<bool>();
    bad(name, fmt::format("{} is neither true nor false", brief(*value)), kCorrectEntry);
    return std::nullopt;
  }

  std::optional<double> seconds() override {
    static const std::map<std::string, double, std::less<>> kSecondsPer{{"us", 1e-6}, {"ms", 1e-3}, {"s", 1.0}};
    const auto unit = word("unit");
    const auto scale = unit ? kSecondsPer.find(*unit) : kSecondsPer.end();
    if (unit && scale == kSecondsPer.end()) {
      bad("unit", fmt::format("unknown unit \"{}\"", excerpt(*unit)), "allowed: us, ms, s");
    }
    const auto median = number("median");
    const bool ordered = !median || check_spread(*median);
    if (!median || scale == kSecondsPer.end() || !ordered) return std::nullopt;
    return duration("median", *median * scale->second);
  }

  void bad(std::string_view name, std::string what, std::string fix) override {
    complaints_.add(fmt::format(" at /measurements/{}/{}", index_, excerpt(name)), std::move(what), std::move(fix));
  }

 protected:
  std::optional<std::int64_t> integer(std::string_view name) override {
    const json* value = find(name);
    if (value == nullptr) return std::nullopt;
    const bool fits = value->is_number_unsigned() ? value->get<std::uint64_t>() <= std::uint64_t{INT64_MAX}
                                                  : value->is_number_integer();
    if (fits) return value->get<std::int64_t>();
    bad(name, fmt::format("{} is not a whole number", brief(*value)), kCorrectEntry);
    return std::nullopt;
  }

  std::optional<double> number(std::string_view name) override {
    const json* value = find(name);
    if (value == nullptr) return std::nullopt;
    if (value->is_number()) return value->get<double>();
    bad(name, fmt::format("{} is not a number", brief(*value)), kCorrectEntry);
    return std::nullopt;
  }

 private:
  const json* find(std::string_view name) {
    const auto it = entry_.find(name);
    if (it != entry_.end()) return &*it;
    bad(name, fmt::format("{} is missing", name), kCorrectEntry);
    return nullptr;
  }

  /// p10 and p90 lie around the median.
  bool check_spread(double median) {
    bool holds = true;
    for (const char* name : {"p10", "p90"}) {
      if (!has(name)) continue;
      const auto value = number(name);
      const bool below = std::string_view(name) == "p10";
      if (value && (below ? *value <= median : *value >= median)) continue;
      if (value)
        bad(name, fmt::format("{} is {} the median, {}", *value, below ? "above" : "below", median), kCorrectEntry);
      holds = false;
    }
    return holds;
  }

  const json& entry_;
  std::int64_t index_;
  std::int32_t file_;
  Complaints& complaints_;
};

class JsonReader {
 public:
  JsonReader(const std::string& path, std::int32_t file, FilePart& part, Complaints& complaints)
      : file_(file), part_(part), complaints_(complaints), selection_(part.rows) {
    try {
      document_ = json::parse(read_text(path));
    } catch (const json::exception& error) {
      complaints_.add("", fmt::format("not a JSON document: {}", json_fault(error)), "check that it was copied whole");
    }
  }

  void read() {
    if (complaints_.any()) return;
    if (!document_.is_object()) return complaints_.add("", "the file must hold a JSON object", {});
    if (!expect("schema_version", kMeasurementsVersion) || !expect("kind", "measurements")) return;
    read_device();
    const auto list = document_.find("measurements");
    if (list == document_.end() || !list->is_array()) {
      return complaints_.add(" at /measurements", "must be a list of measurements", {});
    }
    for (std::size_t i = 0; i < list->size(); ++i) read_entry((*list)[i], static_cast<std::int64_t>(i));
    for (std::string& note : selection_.finish()) part_.notes.push_back(std::move(note));
  }

 private:
  static std::string read_text(const std::string& path) {
    FileReader file(path, kMeasurementWords);
    std::string text;
    std::array<char, 65536> buffer{};
    while (const std::size_t got = file.read(buffer.data(), buffer.size())) {
      text.append(buffer.data(), got);
      if (text.size() > kMostTextBytes) {
        throw DataError(fmt::format("the text is longer than {} MiB, the most that a file of measurements may have",
                                    kMostTextBytes >> 20U),
                        path, "check that it is the file that you mean");
      }
    }
    return text;
  }

  /// Nothing else is reported for another version or kind, because its fields differ.
  bool expect(const char* key, const json& wanted) {
    const auto it = document_.find(key);
    if (it != document_.end() && *it == wanted) return true;
    complaints_.add(fmt::format(" at /{}", key),
                    it == document_.end() ? fmt::format("must be {}, but is missing", wanted.dump())
                                          : fmt::format("must be {}, not {}", wanted.dump(), brief(*it)),
                    {});
    return false;
  }

  void read_device() {
    const auto provenance = document_.find("provenance");
    if (provenance == document_.end() || !provenance->is_object()) {
      return complaints_.add(" at /provenance", "must be an object that says where the measurements come from", {});
    }
    read_host(*provenance);
    const auto device = provenance->find("device");
    if (device == provenance->end() || device->is_null()) return;
    if (!device->is_object()) return complaints_.add(" at /provenance/device", "must be an object", {});
    MeasuredDevice& to = part_.rows.device;
    to.name = stated_text(*device, "device", "name");
    to.memory_bytes = stated_count(*device, "device", "memory_bytes");
    to.sm_count = stated_count(*device, "device", "sm_count");
    to.l2_bytes = stated_count(*device, "device", "l2_bytes");
  }

  void read_host(const json& provenance) {
    const auto host = provenance.find("host");
    if (host == provenance.end() || host->is_null()) return;
    if (!host->is_object()) return complaints_.add(" at /provenance/host", "must be an object", {});
    MeasuredHost& to = part_.rows.machine;
    to.cpu_model = stated_text(*host, "host", "cpu_model");
    to.physical_cores = stated_count(*host, "host", "physical_cores");
    to.threads = stated_count(*host, "host", "threads");
    to.memory_bytes = stated_count(*host, "host", "memory_bytes");
    to.sockets = stated_count(*host, "host", "sockets");
  }

  std::optional<std::string> stated_text(const json& facts, const char* of, const char* key) {
    const auto it = facts.find(key);
    if (it == facts.end() || it->is_null()) return std::nullopt;
    if (it->is_string()) return it->get<std::string>();
    complaints_.add(fmt::format(" at /provenance/{}/{}", of, key), fmt::format("{} is not a text", brief(*it)), {});
    return std::nullopt;
  }

  std::optional<std::int64_t> stated_count(const json& facts, const char* of, const char* key) {
    const auto it = facts.find(key);
    if (it == facts.end() || it->is_null()) return std::nullopt;
    constexpr std::int64_t kMost = 1'000'000'000'000'000;
    if (it->is_number_integer() && *it >= 1 && *it <= kMost) return it->get<std::int64_t>();
    complaints_.add(fmt::format(" at /provenance/{}/{}", of, key),
                    fmt::format("{} is not a whole number from 1 to {}", brief(*it), kMost), {});
    return std::nullopt;
  }

  void read_entry(const json& entry, std::int64_t index) {
    if (!entry.is_object()) {
      return complaints_.add(fmt::format(" at /measurements/{}", index), "a measurement must be an object",
                             kCorrectEntry);
    }
    JsonRow row(entry, index, file_, complaints_);
    const auto name = row.word("op");
    if (!name) return;
    const auto op = op_named(*name);
    if (!op && selection_.without_place(*name)) return;
    if (!op) {
      std::vector<std::string> allowed;
      for (const Op one : all_ops()) allowed.emplace_back(op_name(one));
      return row.bad("op", fmt::format("unknown op \"{}\"", excerpt(*name)), allowed_text(*name, allowed));
    }
    check_keys(entry, *op, row);
    add(*op, row);
  }

  /// Reports misspelt optional keys, which would otherwise silently have their default.
  static void check_keys(const json& entry, Op op, JsonRow& row) {
    std::vector<std::string> known{"op", "unit", "median", "p10", "p90", "n", "samples", "calls", "section", "kernel"};
    known.insert(known.end(), keys_of(op).begin(), keys_of(op).end());
    for (const auto& [key, value] : entry.items()) {
      const std::string meant = slip_of(key, known);
      if (!meant.empty()) row.bad(key, "unknown key", fmt::format("did you mean \"{}\"?", meant));
    }
    for (const char* count : {"n", "samples"}) {
      if (entry.contains(count)) (void)row.count(count);
    }
    if (entry.contains("kernel")) (void)row.word("kernel");
  }

  void add(Op op, JsonRow& row) {
    Measurements& to = part_.rows;
    const auto keep = [](auto& rows, auto&& one) {
      if (one) rows.push_back(std::move(*one));
    };
    const auto select = [](auto&& one, const auto& take) {
      if (one) take(*one);
    };
    switch (op) {
      case Op::gemm:
        return select(gemm_row(row), [&](const auto& one) { selection_.gemm(row, one); });
      case Op::decode_attention:
      case Op::prefill_attention:
        return add_attention(op, row);
      case Op::mixed_attention:
        return select(mixed_row(row, {"chunk", "chunk_context", "decodes", "decode_context"}),
                      [&](const auto& one) { selection_.mixed(row, one, is_own(row)); });
      case Op::elementwise:
        return select(elementwise_row(row), [&](auto& one) { selection_.elementwise(row, std::move(one)); });
      case Op::all_reduce:
        return keep(to.all_reduce, all_reduce_row(row));
      case Op::copy_h2d:
      case Op::copy_d2h:
        return select(copy_row(row, op == Op::copy_h2d, false), [&](const auto& one) { selection_.copy(row, one); });
      case Op::cpu_attention:
        return select(cpu_attention_row(row), [&](const auto& one) { selection_.cpu_attention(row, one); });
      case Op::host: {
        const auto sequences = row.count("sequences");
        const auto gpus = row.has("tensor_parallel") ? row.count("tensor_parallel") : std::optional<std::int64_t>(1);
        const auto seconds = row.seconds();
        if (sequences && gpus && seconds) to.host.push_back({*sequences, *gpus, *seconds, row.place()});
        return;
      }
      case Op::layer: {
        const auto per_sequence = row.has("per_sequence") ? row.flag("per_sequence") : std::optional(false);
        return keep(to.layers, layer_row(row, "kernel", "count", per_sequence.value_or(false)));
      }
      case Op::iteration:
        return keep(to.iterations, iteration_row(row));
      case Op::interference:
        return selection_.interference(row, row.object("compute"), is_own(row));
      case Op::host_stream:
        return selection_.host_stream(row);
      case Op::sustained:
        return add_sustained(row);
      case Op::moe:
        return keep(to.moe, moe_row(row));
      case Op::expert_exchange:
        return keep(to.exchanges, exchange_row(row));
      case Op::host_gemm: {
        const bool good = !row.has("experts") || row.count("experts");
        auto one = host_gemm_row(row, {"rows", "inputs", "outputs"});
        if (good) keep(to.host_gemms, std::move(one));
        return;
      }
    }
  }

  static bool is_own(const JsonRow& row) { return row.is("kernel", kOwnKernel); }

  void add_sustained(JsonRow& row) {
    const auto compute = row.object("compute");
    const auto end = row.amount("time_s", 0.0, 1e6);
    bool good = compute && end && row.amount("run_s", 1e-9, 1e6);
    const auto optional = [&](const char* key, const auto& read) {
      decltype(read(key)) value;
      if (row.has(key)) {
        value = read(key);
        good = good && value;
      }
      return value;
    };
    const auto clock = optional("sm_clock_mhz", [&](const char* key) { return row.count(key); });
    const auto power = optional("power_w", [&](const char* key) { return row.amount(key, 0.0, 1e6); });
    (void)optional("temperature_c", [&](const char* key) { return row.count(key, -100); });
    (void)optional("throttle_reasons", [&](const char* key) { return row.word(key); });
    const auto seconds = row.seconds();
    if (!good || !seconds) return;
    const bool gemm = row.is_of("compute", "op", "gemm");
    part_.rows.sustained.push_back({*compute, gemm, *end, clock, power, *seconds, row.place()});
  }

  void add_attention(Op op, JsonRow& row) {
    const auto attention = attention_row(row);
    if (!attention) return;
    if (op_of(*attention) != op) {
      return row.bad(op == Op::decode_attention && attention->new_tokens == 1 ? "context" : "new_tokens",
                     fmt::format("{} new tokens after {} are {}", attention->new_tokens, attention->context,
                                 op_name(op_of(*attention))),
                     "decode has 1 new token and a context; anything else is prefill");
    }
    selection_.attention(row, *attention, is_own(row));
  }

  json document_;
  std::int32_t file_;
  FilePart& part_;
  Complaints& complaints_;
  RowSelection selection_;
};

}  // namespace

void read_json(const std::string& path, std::int32_t file, FilePart& part, Complaints& complaints) {
  JsonReader(path, file, part, complaints).read();
}

}  // namespace spillway::hwmodels
