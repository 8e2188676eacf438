#include "hwmodels/fitted_models_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "hwmodels/calibration/measurements.hpp"
#include "hwmodels/models/exact_math.hpp"
#include "sim/core/text.hpp"

namespace spillway::hwmodels {
namespace {

using nlohmann::json;

constexpr Limits kTime{0.0, 10.0, "a time of 0 to 10 s"};
constexpr Limits kSpeed{1e6, 2.5e13, "between 1 MB/s and 25 TB/s (no memory of today is faster)"};
constexpr Limits kArithmetic{1e9, 1e16, "between 1e9 and 1e16 FLOP/s (no GPU of today is faster)"};
// Few rows do not tell the arithmetic of a kernel that is bound by its weights; the fit may then exceed any GPU.
constexpr Limits kTensorArithmetic{1e9, 1e18, "between 1e9 and 1e18 FLOP/s"};
constexpr Limits kShare{0.0, 1.0, "between 0 and 1"};
constexpr Limits kFactor{0.0, 1e6, "between 0 and 1e6"};
constexpr Limits kSize{0.0, 1e18, "between 0 and 1e18"};
constexpr Limits kLength{0.01, 100.0, "between 0.01 and 100 octaves"};
constexpr Limits kWeight{-1e6, 1e6, "between -1e6 and 1e6"};
constexpr Limits kCell{-1.0, 1000.0, "a time of at most 1000 s, or -1 where nothing was measured"};

/// Rounded to six decimals: the effect on a prediction is far below the noise, and the profile's text stays short.
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
void describe_moe(Io& io, Model& model) {
  io.integer("sm_count", model.sm_count, 1, kMostSms);
  io.number("launch_s", model.launch_seconds, kTime);
  io.number("flops_per_s", model.flops, kTensorArithmetic);
  io.number("bandwidth_bytes_per_s", model.bandwidth, kSpeed);
  io.number("edge_rows", model.edge_rows, kFactor);
  io.number("prologue_columns", model.prologue, kFactor);
  io.number("ragged_loss", model.ragged_loss, kFactor);
  io.number("pair_s", model.pair_seconds, kTime);
  io.number("pair_hidden_s", model.pair_hidden_seconds, kTime);
  io.number("pair_width_s", model.pair_width_seconds, kTime);
  io.number("row_hidden_s", model.row_hidden_seconds, kTime);
  io.number("row_width_s", model.row_width_seconds, kTime);
  io.number("expert_s", model.expert_seconds, kTime);
  io.number("token_hidden_s", model.token_hidden_seconds, kTime);
  io.integer("width_multiple", model.width_multiple, 1, 4096);
  describe_exponent(io, model.norm_exponent);
  describe_surface(io, model.residual);
}

template <class Io, class Model>
void describe_exchange(Io& io, Model& model) {
  io.integer("ranks", model.ranks, 2, 1'000'000);
  io.number("launch_s", model.launch_seconds, kTime);
  io.number("token_s", model.token_seconds, kTime);
  io.number("byte_s", model.byte_seconds, kTime);
  describe_exponent(io, model.norm_exponent);
}

template <class Io, class Model>
void describe_quantise(Io& io, Model& model) {
  io.number("launch_s", model.launch_seconds, kTime);
  io.number("column_s", model.column_seconds, kTime);
  io.number("element_s", model.element_seconds, kTime);
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
  io.number("block_s", model.decodes.block_seconds, kTime);
  io.number("empty_block_s", model.decodes.empty_seconds, kTime);
}

/// A JSON object with one curve for each key of the map.
template <class Key, class ToText>
json curves_json(const std::map<Key, Curve>& curves, const ToText& to_text) {
  json object = json::object();
  for (const auto& [key, curve] : curves) {
    FitWriter io(object);
    describe_curve(io, to_text(key).c_str(), curve);
  }
  return object;
}

std::map<std::string, Curve> read_curves(FitReader& io, const char* key) {
  std::map<std::string, Curve> curves;
  const json* found = io.find(key);
  if (found == nullptr) return curves;
  FitReader inner(*found, io.pointer(key), io.problems());
  if (!found->is_object()) return curves;
  for (const auto& [name, points] : found->items()) {
    describe_curve(inner, name.c_str(), curves[name]);
    inner.require(!curves[name].points.empty(), name, "must hold at least one point");
  }
  return curves;
}

AllReduceModel read_all_reduce(FitReader& io) {
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

/// An axis ascends. The axis of a count begins with 0.
void check_axis(FitReader& io, const char* key, const std::vector<double>& axis, bool count) {
  io.require(std::adjacent_find(axis.begin(), axis.end(), std::greater_equal<>()) == axis.end(), key, "must ascend");
  io.require(!count || axis.empty() || axis.front() == 0.0, key, "must begin with 0");
}

void check_cells(FitReader& io, const LayerTables& tables) {
  const std::array<std::size_t, 4> sizes{tables.chunk_axis.size(), tables.chunk_context_axis.size(),
                                         tables.decodes_axis.size(), tables.decode_context_axis.size()};
  // The product of axes that fit a file does not overflow a double.
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
    return io.fail(fmt::format("attention_s/{}", i), "must be a time: the call has a chunk or a decode");
  }
}

LayerTables read_layers(FitReader& io) {
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

}  // namespace

void describe(FitWriter& io, const GemmModel& model) {
  describe_gemm(io, model);
  if (!model.quantise) return;
  json object = json::object();
  FitWriter inner(object);
  describe_quantise(inner, *model.quantise);
  io.set("quantise", std::move(object));
}
void describe(FitReader& io, GemmModel& model) {
  describe_gemm(io, model);
  const json* object = io.find("quantise", true);
  if (object == nullptr) return;
  FitReader inner(*object, io.pointer("quantise"), io.problems());
  model.quantise.emplace();
  describe_quantise(inner, *model.quantise);
  inner.finish();
}

void describe(FitWriter& io, const MoeModel& model) { describe_moe(io, model); }
void describe(FitReader& io, MoeModel& model) { describe_moe(io, model); }

void describe(FitWriter& io, const ExchangeModel& model) {
  io.text("backend", std::string(exchange_name(model.backend)));
  io.text("step", std::string(exchange_name(model.step)));
  io.text("copies", std::string(exchange_name(model.copies)));
  describe_exchange(io, model);
}
void describe(FitReader& io, ExchangeModel& model) {
  const auto named = [&](const char* key, const auto& find, const char* rule, auto& value) {
    std::string name;
    io.text(key, name);
    const auto found = find(name);
    io.require(found.has_value(), key, rule);
    value = found.value_or(value);
  };
  named("backend", exchange_backend_named,
        "must be deepep_low_latency, deepep_normal, nvlink_one_sided, nvlink_two_sided or nccl", model.backend);
  named("step", exchange_step_named, "must be prepare, dispatch or combine", model.step);
  named("copies", exchange_copies_named, "must be per_expert, per_gpu or all_gpus", model.copies);
  describe_exchange(io, model);
}

void describe(FitWriter& io, const DecodeAttentionModel& model) {
  describe_decode(io, model);
  if (model.kv_head_seconds) io.number("kv_head_s", *model.kv_head_seconds, kTime);
}
void describe(FitReader& io, DecodeAttentionModel& model) {
  describe_decode(io, model);
  if (io.find("kv_head_s", true) != nullptr) io.number("kv_head_s", model.kv_head_seconds.emplace(), kTime);
}

void describe(FitWriter& io, const PrefillAttentionModel& model) {
  describe_prefill(io, model);
  if (model.earlier_tile_seconds) io.number("earlier_tile_s", *model.earlier_tile_seconds, kTime);
  if (model.write_token_seconds) io.number("write_token_s", *model.write_token_seconds, kTime);
}
void describe(FitReader& io, PrefillAttentionModel& model) {
  describe_prefill(io, model);
  if (io.find("earlier_tile_s", true) != nullptr)
    io.number("earlier_tile_s", model.earlier_tile_seconds.emplace(), kTime);
  if (io.find("write_token_s", true) != nullptr) io.number("write_token_s", model.write_token_seconds.emplace(), kTime);
}

void describe(FitWriter& io, const MixedAttentionModel& model) { describe_mixed(io, model); }
void describe(FitReader& io, MixedAttentionModel& model) { describe_mixed(io, model); }

void describe(FitWriter& io, const ElementwiseModel& model) { describe_elementwise(io, model); }
void describe(FitReader& io, ElementwiseModel& model) { describe_elementwise(io, model); }

void describe(FitWriter& io, const CpuAttentionModel& model) { describe_cpu(io, model); }
void describe(FitReader& io, CpuAttentionModel& model) { describe_cpu(io, model); }

void describe(FitWriter& io, const HostModel& model) { describe_host(io, model); }
void describe(FitReader& io, HostModel& model) { describe_host(io, model); }

void describe(FitWriter& io, const IterationModel& model) { describe_iteration(io, model); }
void describe(FitReader& io, IterationModel& model) { describe_iteration(io, model); }

void describe(FitWriter& io, const CopyModel& model) {
  io.text("direction", model.to_device ? "h2d" : "d2h");
  io.text("mechanism", std::string(mechanism_name(model.mechanism)));
  io.number("launch_s", model.launch_seconds, kTime);
  io.number("bandwidth_bytes_per_s", model.bandwidth, kSpeed);
  describe_curve(io, "small", model.small);
}
void describe(FitReader& io, CopyModel& model) {
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

void describe(FitWriter& io, const AllReduceModel& model) {
  io.set("seconds_by_bytes_by_ranks",
         curves_json(model.by_ranks, [](std::int64_t ranks) { return std::to_string(ranks); }));
}
void describe(FitReader& io, AllReduceModel& model) { model = read_all_reduce(io); }

void describe(FitWriter& io, const LayerTables& tables) {
  describe_grid(io, tables);
  const auto same = [](const std::string& name) { return name; };
  io.set("seconds_by_tokens", curves_json(tables.per_token, same));
  io.set("seconds_by_sequences", curves_json(tables.per_sequence, same));
}
void describe(FitReader& io, LayerTables& tables) { tables = read_layers(io); }

}  // namespace spillway::hwmodels
