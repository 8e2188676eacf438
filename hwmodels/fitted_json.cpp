#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "hwmodels/calibration/measurements.hpp"
#include "hwmodels/fitted.hpp"
#include "hwmodels/models/exact_math.hpp"
#include "sim/core/text.hpp"

namespace spillway::hwmodels {
namespace {

using nlohmann::json;

/// What a number may be.
struct Limits {
  double low;
  double high;
  std::string_view rule;
};
constexpr Limits kTime{0.0, 10.0, "a time of 0 to 10 s"};
constexpr Limits kSpeed{1e6, 2.5e13, "between 1 MB/s and 25 TB/s, which no memory of today exceeds"};
constexpr Limits kArithmetic{1e9, 1e16, "between 1e9 and 1e16 FLOP/s, which no GPU of today exceeds"};
constexpr Limits kShare{0.0, 1.0, "between 0 and 1"};
constexpr Limits kFactor{0.0, 1e6, "between 0 and 1e6"};
constexpr Limits kSize{0.0, 1e18, "between 0 and 1e18"};
constexpr Limits kLength{0.01, 100.0, "between 0.01 and 100 octaves"};
constexpr Limits kWeight{-1e6, 1e6, "between -1e6 and 1e6"};
constexpr Limits kCell{-1.0, 1000.0, "a time of at most 1000 s, or -1 where nothing was measured"};
constexpr Limits kFraction{-1.0, 1e6, "at least -1"};

/// Writes fields into a JSON object. Has the same calls as Reader, so that one description serves both.
class Writer {
 public:
  explicit Writer(json& object) : object_(object) {}
  void number(const char* key, const double& value, const Limits& /*limits*/) { object_[key] = value; }
  void integer(const char* key, const std::int64_t& value, std::int64_t /*low*/, std::int64_t /*high*/) {
    object_[key] = value;
  }
  void flag(const char* key, const bool& value) { object_[key] = value; }
  void text(const char* key, const std::string& value) { object_[key] = value; }
  void numbers(const char* key, const std::vector<double>& values, const Limits& /*limits*/) { object_[key] = values; }
  /// Rows of `width` numbers.
  void table(const char* key, const std::vector<double>& values, std::size_t width, const Limits& /*limits*/) {
    json rows = json::array();
    for (std::size_t i = 0; i < values.size(); i += width) {
      rows.push_back(json(std::vector<double>(values.begin() + static_cast<std::ptrdiff_t>(i),
                                              values.begin() + static_cast<std::ptrdiff_t>(i + width))));
    }
    object_[key] = std::move(rows);
  }

 private:
  json& object_;
};

class Reader {
 public:
  Reader(const json& object, std::string where, std::vector<Problem>& problems)
      : object_(object), where_(std::move(where)), problems_(problems) {
    if (!object_.is_object()) fail({}, fmt::format("must be an object, not {}", shown(object_)));
  }
  void number(const char* key, double& value, const Limits& limits) {
    const json* found = find(key);
    if (found != nullptr) value = checked(*found, key, limits, value);
  }
  void integer(const char* key, std::int64_t& value, std::int64_t low, std::int64_t high) {
    const json* found = find(key);
    if (found == nullptr) return;
    if (!found->is_number_integer() || *found < low || *found > high) {
      return fail(key, fmt::format("must be an integer between {} and {}, not {}", low, high, shown(*found)));
    }
    value = found->get<std::int64_t>();
  }
  void flag(const char* key, bool& value) {
    const json* found = find(key);
    if (found == nullptr) return;
    if (!found->is_boolean()) return fail(key, fmt::format("must be true or false, not {}", shown(*found)));
    value = found->get<bool>();
  }
  void text(const char* key, std::string& value) {
    const json* found = find(key);
    if (found == nullptr) return;
    if (!found->is_string()) return fail(key, fmt::format("must be a text, not {}", shown(*found)));
    value = found->get<std::string>();
  }
  void numbers(const char* key, std::vector<double>& values, const Limits& limits) {
    const json* found = array(key);
    if (found == nullptr) return;
    values.clear();
    for (std::size_t i = 0; i < found->size(); ++i) {
      values.push_back(checked((*found)[i], fmt::format("{}/{}", key, i), limits, 0.0));
    }
  }
  void table(const char* key, std::vector<double>& values, std::size_t width, const Limits& limits) {
    const json* found = array(key);
    if (found == nullptr) return;
    values.clear();
    for (std::size_t i = 0; i < found->size(); ++i) {
      const json& row = (*found)[i];
      const std::string at = fmt::format("{}/{}", key, i);
      if (!row.is_array() || row.size() != width) {
        fail(at, fmt::format("must be a list of {} numbers, not {}", width, shown(row)));
        continue;
      }
      for (std::size_t j = 0; j < width; ++j) {
        values.push_back(checked(row[j], fmt::format("{}/{}", at, j), limits, 0.0));
      }
    }
  }
  /// The member, or null (and a problem, unless it is optional).
  const json* find(const char* key, bool optional = false) {
    asked_.emplace_back(key);
    if (!object_.is_object()) return nullptr;
    const auto it = object_.find(key);
    if (it != object_.end()) return &*it;
    if (!optional) fail(key, "missing");
    return nullptr;
  }
  const json* array(const char* key, bool optional = false) {
    const json* found = find(key, optional);
    if (found == nullptr || found->is_array()) return found;
    fail(key, fmt::format("must be a list, not {}", shown(*found)));
    return nullptr;
  }
  /// Whatever was not asked for is unknown.
  void finish() {
    if (!object_.is_object()) return;
    for (const auto& [key, value] : object_.items()) {
      if (std::find(asked_.begin(), asked_.end(), key) != asked_.end()) continue;
      const std::string near = nearest_name(key, asked_);
      fail(key, "unknown field", near.empty() ? std::string() : fmt::format("did you mean \"{}\"?", near));
    }
  }
  void require(bool holds, const std::string& key, const std::string& rule) {
    if (!holds) fail(key, rule);
  }
  void fail(const std::string& key, std::string what, std::string fix = {}) {
    constexpr std::size_t kMost = 100;
    if (problems_.size() >= kMost) return;
    problems_.push_back({std::move(what), key.empty() ? where_ : fmt::format("{}/{}", where_, key), std::move(fix)});
  }
  [[nodiscard]] std::string place(const std::string& key) const { return fmt::format("{}/{}", where_, key); }
  [[nodiscard]] std::vector<Problem>& problems() { return problems_; }

 private:
  static std::string shown(const json& value) {
    constexpr std::size_t kMost = 60;
    std::string text = value.dump();
    if (text.size() > kMost) text = text.substr(0, kMost) + "...";
    return text;
  }
  double checked(const json& value, const std::string& key, const Limits& limits, double otherwise) {
    if (value.is_number() && value.get<double>() >= limits.low && value.get<double>() <= limits.high) {
      return value.get<double>();
    }
    fail(key, fmt::format("must be {}, not {}", limits.rule, shown(value)));
    return otherwise;
  }

  const json& object_;
  std::string where_;
  std::vector<Problem>& problems_;
  std::vector<std::string> asked_;
};

/// Six digits keep a weight's effect far below the noise and a profile's text short.
double rounded(double value) { return std::round(value * 1e6) / 1e6; }

template <class Io, class Surface>
void describe_surface(Io& io, Surface& surface) {
  constexpr std::size_t kWidth = 5;
  std::vector<double> lengths{surface.work_lengths[0], surface.work_lengths[1], surface.shape_lengths[0],
                              surface.shape_lengths[1]};
  std::vector<double> rows;
  for (std::size_t i = 0; i < surface.anchors.size(); ++i) {
    const ResidualPoint& at = surface.anchors[i];
    rows.insert(rows.end(), {at.work[0], at.work[1], at.shape[0], at.shape[1], rounded(surface.weights[i])});
  }
  io.numbers("residual_lengths_octaves", lengths, kLength);
  io.table("residual_points", rows, kWidth, kWeight);
  if constexpr (!std::is_const_v<Surface>) {
    io.require(lengths.size() == 4, "residual_lengths_octaves", "must hold 4 numbers");
    if (lengths.size() != 4) return;
    surface.work_lengths = {lengths[0], lengths[1]};
    surface.shape_lengths = {lengths[2], lengths[3]};
    surface.anchors.clear();
    surface.weights.clear();
    for (std::size_t i = 0; i + kWidth <= rows.size(); i += kWidth) {
      surface.anchors.push_back({{rows[i], rows[i + 1]}, {rows[i + 2], rows[i + 3]}});
      surface.weights.push_back(rows[i + 4]);
    }
  }
}

template <class Io, class Value>
void describe_exponent(Io& io, Value& exponent) {
  io.number("norm_exponent", exponent, {1.0, 8.0, "one of 1, 1.5, 2, 4, 8"});
  if constexpr (!std::is_const_v<Value>) {
    io.require(std::find(kNormExponents.begin(), kNormExponents.end(), exponent) != kNormExponents.end(),
               "norm_exponent", "must be one of 1, 1.5, 2, 4, 8");
  }
}

constexpr std::int64_t kMostSms = 100'000;

template <class Io, class Model>
void describe_gemm(Io& io, Model& model) {
  io.integer("sm_count", model.sm_count, 1, kMostSms);
  io.number("launch_s", model.launch_seconds, kTime);
  io.number("flops_per_s", model.flops, kArithmetic);
  io.number("bandwidth_bytes_per_s", model.bandwidth, kSpeed);
  io.number("edge_loss", model.edge_loss, kFactor);
  io.number("prologue_columns", model.prologue, kFactor);
  io.number("split_cost", model.split_cost, kFactor);
  describe_exponent(io, model.norm_exponent);
  describe_surface(io, model.residual);
}

template <class Io, class Model>
void describe_decode(Io& io, Model& model) {
  io.integer("sm_count", model.sm_count, 1, kMostSms);
  io.number("launch_s", model.launch_seconds, kTime);
  io.number("head_s", model.head_seconds, kTime);
  io.number("bandwidth_bytes_per_s", model.bandwidth, kSpeed);
  io.number("block_s", model.block_seconds, kTime);
  io.number("token_s", model.token_seconds, kTime);
  io.number("group_growth", model.group_growth, kFactor);
  io.number("split_s", model.split_seconds, kTime);
  describe_exponent(io, model.norm_exponent);
  io.flag("splits_grouped_heads_only", model.splits_grouped_heads_only);
  describe_surface(io, model.residual);
}

template <class Io, class Model>
void describe_prefill(Io& io, Model& model) {
  io.integer("sm_count", model.sm_count, 1, kMostSms);
  io.number("launch_s", model.launch_seconds, kTime);
  io.number("bandwidth_bytes_per_s", model.bandwidth, kSpeed);
  io.number("tile_s", model.tile_seconds, kTime);
  io.number("block_s", model.block_seconds, kTime);
  io.number("longest_weight", model.longest_weight, kFactor);
  describe_exponent(io, model.norm_exponent);
  io.flag("packs_groups", model.packs_groups);
  describe_surface(io, model.residual);
}

template <class Io, class Points>
void describe_curve(Io& io, const char* key, Points& curve) {
  std::vector<double> rows;
  for (const Curve::Point& point : curve.points) rows.insert(rows.end(), {point.size, point.seconds});
  io.table(key, rows, 2, kSize);
  if constexpr (!std::is_const_v<Points>) {
    curve.points.clear();
    for (std::size_t i = 0; i + 2 <= rows.size(); i += 2) curve.points.push_back({rows[i], rows[i + 1]});
    const bool ascending =
        std::adjacent_find(curve.points.begin(), curve.points.end(),
                           [](const auto& a, const auto& b) { return a.size >= b.size; }) == curve.points.end();
    io.require(ascending, key, "sizes must ascend");
    io.require(std::all_of(curve.points.begin(), curve.points.end(),
                           [](const auto& point) { return point.seconds <= kCell.high; }),
               key, "a time must be at most 1000 s");
  }
}

template <class Io, class Model>
void describe_elementwise(Io& io, Model& model) {
  io.number("launch_s", model.launch_seconds, kTime);
  io.number("bandwidth_bytes_per_s", model.bandwidth, kSpeed);
}

template <class Io, class Model>
void describe_cpu(Io& io, Model& model) {
  io.number("launch_s", model.launch_seconds, kTime);
  io.number("bandwidth_per_thread_bytes_per_s", model.bandwidth_per_thread, kSpeed);
  io.number("bandwidth_bytes_per_s", model.bandwidth, kSpeed);
}

template <class Io, class Model>
void describe_host(Io& io, Model& model) {
  io.number("fixed_s", model.fixed_seconds, kTime);
  io.number("per_sequence_s", model.per_sequence_seconds, kTime);
}

template <class Io, class Model>
void describe_iteration(Io& io, Model& model) {
  io.number("fixed_s", model.fixed_seconds, kTime);
  io.number("token_s", model.token_seconds, kTime);
  io.number("context_s", model.context_seconds, kTime);
  io.number("pair_s", model.pair_seconds, kTime);
  io.text("model", model.model);
}

template <class Io, class Model>
void describe_mixed(Io& io, Model& model) {
  io.number("fused_share", model.fused_share, kShare);
}

/// Direction and mechanism as text.
void describe_copy(Writer& io, const CopyModel& model) {
  io.text("direction", model.to_device ? "h2d" : "d2h");
  io.text("mechanism", std::string(mechanism_name(model.mechanism)));
  io.number("launch_s", model.launch_seconds, kTime);
  io.number("bandwidth_bytes_per_s", model.bandwidth, kSpeed);
  describe_curve(io, "small", model.small);
}
void describe_copy(Reader& io, CopyModel& model) {
  std::string direction;
  std::string mechanism;
  io.text("direction", direction);
  io.text("mechanism", mechanism);
  io.require(direction == "h2d" || direction == "d2h", "direction", "must be \"h2d\" or \"d2h\"");
  const auto named = mechanism_named(mechanism);
  io.require(named.has_value(), "mechanism", "must be one of single, many, batched, kernel, gather, peer");
  model.to_device = direction == "h2d";
  model.mechanism = named.value_or(CopyMechanism::many);
  io.number("launch_s", model.launch_seconds, kTime);
  io.number("bandwidth_bytes_per_s", model.bandwidth, kSpeed);
  describe_curve(io, "small", model.small);
}

/// Curves by a key of the map.
template <class Key, class ToText>
json curves_json(const std::map<Key, Curve>& curves, const ToText& to_text) {
  json object = json::object();
  for (const auto& [key, curve] : curves) {
    Writer io(object);
    describe_curve(io, to_text(key).c_str(), curve);
  }
  return object;
}

std::map<std::string, Curve> read_curves(Reader& io, const char* key) {
  std::map<std::string, Curve> curves;
  const json* found = io.find(key);
  if (found == nullptr) return curves;
  Reader inner(*found, io.place(key), io.problems());
  if (!found->is_object()) return curves;
  for (const auto& [name, points] : found->items()) {
    describe_curve(inner, name.c_str(), curves[name]);
    inner.require(!curves[name].points.empty(), name, "must hold at least one point");
  }
  return curves;
}

void describe_all_reduce(Writer& /*io*/, json& object, const AllReduceModel& model) {
  object["seconds_by_bytes_by_ranks"] =
      curves_json(model.by_ranks, [](std::int64_t ranks) { return std::to_string(ranks); });
}

AllReduceModel read_all_reduce(Reader& io) {
  AllReduceModel model;
  for (auto& [text, curve] : read_curves(io, "seconds_by_bytes_by_ranks")) {
    const auto ranks = parse_integer(text);
    const bool good = ranks && *ranks >= 2 && *ranks <= 1'000'000;
    io.require(good, "seconds_by_bytes_by_ranks/" + text, "must be a number of ranks, at least 2");
    if (good) model.by_ranks[*ranks] = std::move(curve);
  }
  io.require(!model.by_ranks.empty(), "seconds_by_bytes_by_ranks", "must hold at least one number of ranks");
  return model;
}

template <class Io, class Tables>
void describe_grid(Io& io, Tables& tables) {
  io.text("model", tables.model);
  io.numbers("chunk_tokens", tables.chunk_axis, kSize);
  io.numbers("chunk_context_tokens", tables.chunk_context_axis, kSize);
  io.numbers("decodes", tables.decodes_axis, kSize);
  io.numbers("decode_context_tokens", tables.decode_context_axis, kSize);
  io.numbers("attention_s", tables.attention_seconds, kCell);
}

/// Ascending; that of a count begins with none.
void check_axis(Reader& io, const char* key, const std::vector<double>& axis, bool count) {
  io.require(std::adjacent_find(axis.begin(), axis.end(), std::greater_equal<>()) == axis.end(), key, "must ascend");
  io.require(!count || axis.empty() || axis.front() == 0.0, key, "must begin with 0");
}

void check_cells(Reader& io, const LayerTables& tables) {
  const std::array<std::size_t, 4> sizes{tables.chunk_axis.size(), tables.chunk_context_axis.size(),
                                         tables.decodes_axis.size(), tables.decode_context_axis.size()};
  // No product of axes that a file can hold exceeds a double.
  double cells = 1.0;
  for (const std::size_t size : sizes) cells *= static_cast<double>(size);
  const std::vector<double>& seconds = tables.attention_seconds;
  if (cells != static_cast<double>(seconds.size())) {
    return io.fail("attention_s",
                   fmt::format("must hold {:.0f} numbers, the product of the axes, not {}", cells, seconds.size()));
  }
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    const std::size_t decodes = i / sizes[3] % sizes[2];
    const std::size_t chunk = i / sizes[3] / sizes[2] / sizes[1];
    if (seconds[i] >= 0.0 || (chunk == 0 && decodes == 0)) continue;
    return io.fail(fmt::format("attention_s/{}", i), "must be a time where there is a chunk or a decode");
  }
}

LayerTables read_layers(Reader& io) {
  LayerTables tables;
  describe_grid(io, tables);
  tables.per_token = read_curves(io, "seconds_by_tokens");
  tables.per_sequence = read_curves(io, "seconds_by_sequences");
  check_axis(io, "chunk_tokens", tables.chunk_axis, true);
  check_axis(io, "chunk_context_tokens", tables.chunk_context_axis, false);
  check_axis(io, "decodes", tables.decodes_axis, true);
  check_axis(io, "decode_context_tokens", tables.decode_context_axis, false);
  check_cells(io, tables);
  return tables;
}

json summary_json(const ErrorSummary& error) {
  return {{"n", error.n}, {"median", error.median}, {"p95", error.p95}, {"bias", error.bias}};
}

ErrorSummary read_summary(const json& object, const std::string& where, std::vector<Problem>& problems) {
  ErrorSummary error;
  Reader io(object, where, problems);
  io.integer("n", error.n, 0, 1'000'000'000'000);
  io.number("median", error.median, kFraction);
  io.number("p95", error.p95, kFraction);
  io.number("bias", error.bias, kFraction);
  io.finish();
  return error;
}

/// The record's members stand beside the model's.
void write_record(json& object, const FitRecord& record) {
  object["source"] = {{"kind", record.source_kind}, {"cite", record.citation}};
  object["held_out"] = summary_json(record.held_out);
  object["held_out_by"] = record.held_out_by;
  if (record.roofline) object["roofline"] = summary_json(*record.roofline);
  json ranges = json::object();
  for (const MeasuredRange& range : record.ranges) ranges[range.quantity] = {range.low, range.high};
  object["measured"] = std::move(ranges);
}

FitRecord read_record(Reader& io) {
  FitRecord record;
  if (const json* source = io.find("source")) {
    Reader inner(*source, io.place("source"), io.problems());
    inner.text("kind", record.source_kind);
    inner.text("cite", record.citation);
    inner.require(record.source_kind == "measured" || record.source_kind == "borrowed", "kind",
                  "must be \"measured\" or \"borrowed\"");
    inner.finish();
  }
  if (const json* held = io.find("held_out"))
    record.held_out = read_summary(*held, io.place("held_out"), io.problems());
  io.text("held_out_by", record.held_out_by);
  if (const json* roofline = io.find("roofline", true)) {
    record.roofline = read_summary(*roofline, io.place("roofline"), io.problems());
  }
  if (const json* ranges = io.find("measured")) {
    Reader inner(*ranges, io.place("measured"), io.problems());
    if (ranges->is_object()) {
      for (const auto& [quantity, bounds] : ranges->items()) {
        std::vector<double> ends;
        inner.numbers(quantity.c_str(), ends, kSize);
        inner.require(ends.size() == 2 && ends[0] <= ends[1], quantity, "must be [lowest, highest]");
        if (ends.size() == 2) record.ranges.push_back({quantity, ends[0], ends[1]});
      }
    }
  }
  return record;
}

template <class Model, class Describe>
json entry_json(const Fitted<Model>& fitted, const Describe& describe) {
  json object = json::object();
  Writer io(object);
  describe(io, fitted.model);
  write_record(object, fitted.record);
  return object;
}

template <class Model, class Describe>
Fitted<Model> read_entry(const json& object, const std::string& where, std::vector<Problem>& problems,
                         const Describe& describe) {
  Fitted<Model> fitted;
  Reader io(object, where, problems);
  describe(io, fitted.model);
  fitted.record = read_record(io);
  io.finish();
  return fitted;
}

template <class Model, class Describe>
void read_optional(Reader& section, Op op, std::optional<Fitted<Model>>& fitted, const Describe& describe) {
  const std::string key(op_name(op));
  const json* object = section.find(key.c_str(), true);
  if (object != nullptr) fitted = read_entry<Model>(*object, section.place(key), section.problems(), describe);
}

const auto kDescribeDecode = [](auto& io, auto& model) { describe_decode(io, model); };
const auto kDescribePrefill = [](auto& io, auto& model) { describe_prefill(io, model); };
const auto kDescribeMixed = [](auto& io, auto& model) { describe_mixed(io, model); };
const auto kDescribeElementwise = [](auto& io, auto& model) { describe_elementwise(io, model); };
const auto kDescribeCpu = [](auto& io, auto& model) { describe_cpu(io, model); };
const auto kDescribeHost = [](auto& io, auto& model) { describe_host(io, model); };
const auto kDescribeIteration = [](auto& io, auto& model) { describe_iteration(io, model); };

}  // namespace

json to_json(const FittedKernels& kernels) {
  json section = json::object();
  const auto put = [&](Op op, json object) { section[std::string(op_name(op))] = std::move(object); };
  json gemms = json::array();
  for (const FittedGemm& gemm : kernels.gemm) {
    json object = {{"dtype_bytes", gemm.dtype_bytes}};
    Writer io(object);
    describe_gemm(io, gemm.model);
    write_record(object, gemm.record);
    gemms.push_back(std::move(object));
  }
  if (!gemms.empty()) put(Op::gemm, std::move(gemms));
  if (kernels.decode_attention) put(Op::decode_attention, entry_json(*kernels.decode_attention, kDescribeDecode));
  if (kernels.prefill_attention) put(Op::prefill_attention, entry_json(*kernels.prefill_attention, kDescribePrefill));
  if (kernels.mixed_attention) put(Op::mixed_attention, entry_json(*kernels.mixed_attention, kDescribeMixed));
  if (kernels.elementwise) put(Op::elementwise, entry_json(*kernels.elementwise, kDescribeElementwise));
  if (kernels.all_reduce) {
    put(Op::all_reduce, entry_json(*kernels.all_reduce, [](Writer&, const AllReduceModel&) {}));
    Writer none(section);
    describe_all_reduce(none, section[std::string(op_name(Op::all_reduce))], kernels.all_reduce->model);
  }
  json copies = json::array();
  for (const Fitted<CopyModel>& copy : kernels.copies) {
    copies.push_back(entry_json(copy, [](Writer& io, const CopyModel& model) { describe_copy(io, model); }));
  }
  if (!copies.empty()) section["copies"] = std::move(copies);
  if (kernels.cpu_attention) put(Op::cpu_attention, entry_json(*kernels.cpu_attention, kDescribeCpu));
  if (kernels.host) put(Op::host, entry_json(*kernels.host, kDescribeHost));
  if (kernels.layers) {
    json object = entry_json(*kernels.layers, [](Writer& io, const LayerTables& tables) { describe_grid(io, tables); });
    const auto same = [](const std::string& name) { return name; };
    object["seconds_by_tokens"] = curves_json(kernels.layers->model.per_token, same);
    object["seconds_by_sequences"] = curves_json(kernels.layers->model.per_sequence, same);
    put(Op::layer, std::move(object));
  }
  if (kernels.decode_iteration) {
    write_record(section[std::string(kDecodeIteration)], *kernels.decode_iteration);
  }
  if (kernels.iteration) put(Op::iteration, entry_json(*kernels.iteration, kDescribeIteration));
  return section;
}

FittedKernels read_fitted(const json& section, const std::string& where, std::vector<Problem>& problems) {
  FittedKernels kernels;
  Reader io(section, where, problems);
  if (const json* gemms = io.array("gemm", true)) {
    for (std::size_t i = 0; i < gemms->size(); ++i) {
      FittedGemm gemm;
      Reader inner((*gemms)[i], io.place(fmt::format("gemm/{}", i)), problems);
      inner.integer("dtype_bytes", gemm.dtype_bytes, 1, 8);
      describe_gemm(inner, gemm.model);
      gemm.record = read_record(inner);
      inner.require(std::none_of(kernels.gemm.begin(), kernels.gemm.end(),
                                 [&](const FittedGemm& other) { return other.dtype_bytes == gemm.dtype_bytes; }),
                    "dtype_bytes", "must not be that of another entry");
      inner.finish();
      kernels.gemm.push_back(std::move(gemm));
    }
  }
  read_optional(io, Op::decode_attention, kernels.decode_attention, kDescribeDecode);
  read_optional(io, Op::prefill_attention, kernels.prefill_attention, kDescribePrefill);
  read_optional(io, Op::mixed_attention, kernels.mixed_attention, kDescribeMixed);
  read_optional(io, Op::elementwise, kernels.elementwise, kDescribeElementwise);
  read_optional(io, Op::all_reduce, kernels.all_reduce,
                [](Reader& in, AllReduceModel& model) { model = read_all_reduce(in); });
  if (const json* copies = io.array("copies", true)) {
    for (std::size_t i = 0; i < copies->size(); ++i) {
      const std::string at = fmt::format("copies/{}", i);
      auto copy = read_entry<CopyModel>((*copies)[i], io.place(at), problems,
                                        [](Reader& in, CopyModel& model) { describe_copy(in, model); });
      io.require(std::none_of(kernels.copies.begin(), kernels.copies.end(),
                              [&](const Fitted<CopyModel>& other) {
                                return other.model.to_device == copy.model.to_device &&
                                       other.model.mechanism == copy.model.mechanism;
                              }),
                 at, "must not have direction and mechanism of another entry");
      kernels.copies.push_back(std::move(copy));
    }
  }
  read_optional(io, Op::cpu_attention, kernels.cpu_attention, kDescribeCpu);
  read_optional(io, Op::host, kernels.host, kDescribeHost);
  read_optional(io, Op::layer, kernels.layers, [](Reader& in, LayerTables& tables) { tables = read_layers(in); });
  read_optional(io, Op::iteration, kernels.iteration, kDescribeIteration);
  if (const json* object = io.find(std::string(kDecodeIteration).c_str(), true)) {
    Reader inner(*object, io.place(std::string(kDecodeIteration)), problems);
    kernels.decode_iteration = read_record(inner);
    inner.finish();
  }
  io.finish();
  return kernels;
}

}  // namespace spillway::hwmodels
