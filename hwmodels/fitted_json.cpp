// The section "fitted" of a GPU profile as JSON: every fit with its record.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "hwmodels/calibration/measurements.hpp"
#include "hwmodels/fitted.hpp"
#include "hwmodels/fitted_json_fields.hpp"
#include "hwmodels/fitted_models_json.hpp"
#include "hwmodels/numbers.hpp"

namespace spillway::hwmodels {
namespace {

using nlohmann::json;

constexpr const char* kCustomAllReduce = "all_reduce_custom";
constexpr Limits kRangeEnd{0.0, 1e18, "between 0 and 1e18"};
constexpr Limits kFraction{-1.0, 1e6, "at least -1"};

constexpr std::size_t kShapeWidth = 6;
constexpr Limits kShapeValue{1.0, 1e12, "between 1 and 1e12"};

template <class Io, class Benchmark>
void describe_benchmark(Io& io, Benchmark& benchmark) {
  io.number("cache_bytes", benchmark.cache_bytes, {0.0, 1e12, "between 0 and 1e12"});
  io.flag("gates_always", benchmark.gates_always);
  io.flag("ties_in_order", benchmark.ties_in_order);
}

json summary_json(const ErrorSummary& error) {
  return {{"n", error.n}, {"median", error.median}, {"p95", error.p95}, {"bias", error.bias}};
}

ErrorSummary read_summary(const json& object, const std::string& where, std::vector<Problem>& problems) {
  ErrorSummary error;
  FitReader io(object, where, problems);
  io.integer("n", error.n, 0, 1'000'000'000'000);
  io.number("median", error.median, kFraction);
  io.number("p95", error.p95, kFraction);
  io.number("bias", error.bias, kFraction);
  io.finish();
  return error;
}

/// The record and the model share one JSON object.
void write_record(json& object, const FitRecord& record) {
  object["source"] = {{"kind", record.source_kind}, {"cite", record.citation}};
  object["held_out"] = summary_json(record.held_out);
  object["held_out_by"] = record.held_out_by;
  if (record.roofline) object["roofline"] = summary_json(*record.roofline);
  json ranges = json::object();
  for (const MeasuredRange& range : record.ranges) ranges[range.quantity] = {range.low, range.high};
  object["measured"] = std::move(ranges);
}

FitRecord read_record(FitReader& io) {
  FitRecord record;
  if (const json* source = io.find("source")) {
    FitReader inner(*source, io.pointer("source"), io.problems());
    inner.text("kind", record.source_kind);
    inner.text("cite", record.citation);
    inner.require(record.source_kind == "measured" || record.source_kind == "borrowed", "kind",
                  "must be \"measured\" or \"borrowed\"");
    inner.finish();
  }
  if (const json* held = io.find("held_out"))
    record.held_out = read_summary(*held, io.pointer("held_out"), io.problems());
  io.text("held_out_by", record.held_out_by);
  if (const json* roofline = io.find("roofline", true)) {
    record.roofline = read_summary(*roofline, io.pointer("roofline"), io.problems());
  }
  if (const json* ranges = io.find("measured")) {
    FitReader inner(*ranges, io.pointer("measured"), io.problems());
    if (ranges->is_object()) {
      for (const auto& [quantity, bounds] : ranges->items()) {
        std::vector<double> ends;
        inner.numbers(quantity.c_str(), ends, kRangeEnd);
        inner.require(ends.size() == 2 && ends[0] <= ends[1], quantity, "must be [lowest, highest]");
        if (ends.size() == 2) record.ranges.push_back({quantity, ends[0], ends[1]});
      }
    }
  }
  return record;
}

template <class Model>
json entry_json(const Fitted<Model>& fitted) {
  json object = json::object();
  FitWriter io(object);
  describe(io, fitted.model);
  write_record(object, fitted.record);
  return object;
}

template <class Model>
Fitted<Model> read_entry(const json& object, const std::string& where, std::vector<Problem>& problems) {
  Fitted<Model> fitted;
  FitReader io(object, where, problems);
  describe(io, fitted.model);
  fitted.record = read_record(io);
  io.finish();
  return fitted;
}

Quantization read_quantization(FitReader& io) {
  if (io.find("quantization", true) == nullptr) return Quantization::none;
  std::string name;
  io.text("quantization", name);
  const auto named = quantization_named(name);
  io.require(named && *named != Quantization::none, "quantization", "must be fp8, fp8_block, nvfp4, mxfp4 or int4");
  return named.value_or(Quantization::none);
}

json moe_json(const FittedMoe& moe) {
  json object = {{"kernel", moe.kernel}};
  if (moe.model.quantization != Quantization::none) object["quantization"] = format_of(moe.model.quantization).name;
  FitWriter io(object);
  describe(io, moe.model);
  write_record(object, moe.record);
  json benchmark = json::object();
  FitWriter inner(benchmark);
  describe_benchmark(inner, moe.benchmark);
  object["benchmark"] = std::move(benchmark);
  std::vector<double> shapes;
  for (const MoeShape& shape : moe.shapes) {
    for (const std::int64_t value :
         {shape.hidden, shape.width, shape.top_k, shape.experts, shape.expert_parallel, shape.matrices})
      shapes.push_back(real(value));
  }
  io.table("shapes", shapes, kShapeWidth, kShapeValue);
  return object;
}

FittedMoe read_moe(const json& object, const std::string& where, std::vector<Problem>& problems) {
  FittedMoe moe;
  FitReader io(object, where, problems);
  io.text("kernel", moe.kernel);
  moe.model.quantization = read_quantization(io);
  describe(io, moe.model);
  moe.record = read_record(io);
  if (const json* benchmark = io.find("benchmark")) {
    FitReader inner(*benchmark, io.pointer("benchmark"), problems);
    describe_benchmark(inner, moe.benchmark);
    inner.finish();
  }
  std::vector<double> values;
  io.table("shapes", values, kShapeWidth, kShapeValue);
  bool good = !values.empty();
  for (std::size_t i = 0; i + kShapeWidth <= values.size(); i += kShapeWidth) {
    const auto value = [&](std::size_t column) { return static_cast<std::int64_t>(values[i + column]); };
    const MoeShape shape{value(0), value(1), value(2), value(3), value(4), value(5)};
    // A number below 1 is cut to 0.
    const std::int64_t least = std::min({shape.hidden, shape.width, shape.top_k, shape.experts, shape.expert_parallel});
    good = good && least >= 1 && shape.top_k <= shape.experts && shape.experts % shape.expert_parallel == 0 &&
           (shape.matrices == 2 || shape.matrices == 3);
    moe.shapes.push_back(shape);
  }
  io.require(good, "shapes",
             "must hold at least one [hidden, width, top_k, experts, expert_parallel, matrices of 2 or 3]");
  io.finish();
  return moe;
}

/// The key of a fit for KV in one byte.
std::string fp8_kv(Op op) { return fmt::format("{}_fp8_kv", op_name(op)); }

template <class Model>
void read_optional(FitReader& section, const std::string& key, std::optional<Fitted<Model>>& fitted) {
  const json* object = section.find(key.c_str(), true);
  if (object != nullptr) fitted = read_entry<Model>(*object, section.pointer(key), section.problems());
}

template <class Model>
void read_optional(FitReader& section, Op op, std::optional<Fitted<Model>>& fitted) {
  read_optional(section, std::string(op_name(op)), fitted);
}

}  // namespace

json to_json(const FittedKernels& kernels) {
  json section = json::object();
  const auto put = [&](Op op, const auto& fitted) {
    if (fitted) section[std::string(op_name(op))] = entry_json(*fitted);
  };
  for (const FittedGemm& gemm : kernels.gemm) {
    json object = {{"dtype_bytes", gemm.dtype_bytes}};
    if (gemm.quantization != Quantization::none) object["quantization"] = format_of(gemm.quantization).name;
    FitWriter io(object);
    describe(io, gemm.model);
    write_record(object, gemm.record);
    section[std::string(op_name(Op::gemm))].push_back(std::move(object));
  }
  for (const FittedMoe& moe : kernels.moe) section[std::string(op_name(Op::moe))].push_back(moe_json(moe));
  for (const FittedExchange& exchange : kernels.exchanges)
    section[std::string(op_name(Op::expert_exchange))].push_back(entry_json(exchange));
  put(Op::decode_attention, kernels.decode_attention);
  put(Op::prefill_attention, kernels.prefill_attention);
  const auto put_fp8 = [&](Op op, const auto& fitted) {
    if (fitted) section[fp8_kv(op)] = entry_json(*fitted);
  };
  put_fp8(Op::decode_attention, kernels.decode_attention_fp8_kv);
  put_fp8(Op::prefill_attention, kernels.prefill_attention_fp8_kv);
  put(Op::mixed_attention, kernels.mixed_attention);
  put(Op::elementwise, kernels.elementwise);
  put(Op::all_reduce, kernels.all_reduce);
  if (kernels.all_reduce_custom) section[kCustomAllReduce] = entry_json(*kernels.all_reduce_custom);
  for (const Fitted<CopyModel>& copy : kernels.copies) section["copies"].push_back(entry_json(copy));
  put(Op::cpu_attention, kernels.cpu_attention);
  put(Op::host, kernels.host);
  put(Op::layer, kernels.layers);
  put(Op::iteration, kernels.iteration);
  const auto put_record = [&](std::string_view key, const std::optional<FitRecord>& record) {
    if (record) write_record(section[std::string(key)], *record);
  };
  put_record(kLayerAttention, kernels.layer_attention);
  put_record(kDecodeIteration, kernels.decode_iteration);
  return section;
}

FittedKernels read_fitted(const json& section, const std::string& where, std::vector<Problem>& problems) {
  FittedKernels kernels;
  FitReader io(section, where, problems);
  if (const json* gemms = io.array("gemm", true)) {
    for (std::size_t i = 0; i < gemms->size(); ++i) {
      FittedGemm gemm;
      FitReader inner((*gemms)[i], io.pointer(fmt::format("gemm/{}", i)), problems);
      inner.integer("dtype_bytes", gemm.dtype_bytes, 1, 8);
      gemm.quantization = read_quantization(inner);
      describe(inner, gemm.model);
      const bool quantises = format_of(gemm.quantization).input_bytes < 2.0;
      inner.require(gemm.model.quantise.has_value() == quantises, "quantise",
                    quantises ? "must be there, as the format has quantised activations"
                              : "must not be there, as the format has 16-bit activations");
      gemm.record = read_record(inner);
      inner.require(std::none_of(kernels.gemm.begin(), kernels.gemm.end(),
                                 [&](const FittedGemm& other) { return other.same_format(gemm); }),
                    "dtype_bytes", "must not be that of another entry");
      inner.finish();
      kernels.gemm.push_back(std::move(gemm));
    }
  }
  if (const json* list = io.array("moe", true)) {
    for (std::size_t i = 0; i < list->size(); ++i) {
      const std::string at = fmt::format("moe/{}", i);
      FittedMoe moe = read_moe((*list)[i], io.pointer(at), problems);
      io.require(std::none_of(kernels.moe.begin(), kernels.moe.end(),
                              [&](const FittedMoe& other) {
                                return other.kernel == moe.kernel && other.model.quantization == moe.model.quantization;
                              }),
                 at, "must not have kernel and quantization of another entry");
      kernels.moe.push_back(std::move(moe));
    }
  }
  if (const json* list = io.array("expert_exchange", true)) {
    for (std::size_t i = 0; i < list->size(); ++i) {
      const std::string at = fmt::format("expert_exchange/{}", i);
      auto exchange = read_entry<ExchangeModel>((*list)[i], io.pointer(at), problems);
      io.require(std::none_of(kernels.exchanges.begin(), kernels.exchanges.end(),
                              [&](const FittedExchange& other) { return other.model.same_kernel(exchange.model); }),
                 at, "must not have backend, step and ranks of another entry");
      kernels.exchanges.push_back(std::move(exchange));
    }
  }
  read_optional(io, Op::decode_attention, kernels.decode_attention);
  read_optional(io, Op::prefill_attention, kernels.prefill_attention);
  read_optional(io, fp8_kv(Op::decode_attention), kernels.decode_attention_fp8_kv);
  read_optional(io, fp8_kv(Op::prefill_attention), kernels.prefill_attention_fp8_kv);
  read_optional(io, Op::mixed_attention, kernels.mixed_attention);
  read_optional(io, Op::elementwise, kernels.elementwise);
  read_optional(io, Op::all_reduce, kernels.all_reduce);
  read_optional(io, kCustomAllReduce, kernels.all_reduce_custom);
  if (const json* copies = io.array("copies", true)) {
    for (std::size_t i = 0; i < copies->size(); ++i) {
      const std::string at = fmt::format("copies/{}", i);
      auto copy = read_entry<CopyModel>((*copies)[i], io.pointer(at), problems);
      io.require(std::none_of(kernels.copies.begin(), kernels.copies.end(),
                              [&](const Fitted<CopyModel>& other) {
                                return other.model.to_device == copy.model.to_device &&
                                       other.model.mechanism == copy.model.mechanism;
                              }),
                 at, "must not have direction and mechanism of another entry");
      kernels.copies.push_back(std::move(copy));
    }
  }
  read_optional(io, Op::cpu_attention, kernels.cpu_attention);
  read_optional(io, Op::host, kernels.host);
  read_optional(io, Op::layer, kernels.layers);
  read_optional(io, Op::iteration, kernels.iteration);
  const auto read_only = [&](std::string_view key, std::optional<FitRecord>& record) {
    const json* object = io.find(std::string(key).c_str(), true);
    if (object == nullptr) return;
    FitReader inner(*object, io.pointer(std::string(key)), problems);
    record = read_record(inner);
    inner.finish();
  };
  read_only(kLayerAttention, kernels.layer_attention);
  read_only(kDecodeIteration, kernels.decode_iteration);
  io.finish();
  return kernels;
}

}  // namespace spillway::hwmodels
