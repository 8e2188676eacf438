#include "cuda_calibrate/measure/rows.hpp"

#include <nlohmann/json.hpp>
#include <string_view>

#include "sim/core/error.hpp"

namespace spillway::calibrate {
namespace {

using Json = nlohmann::ordered_json;
using Rows = std::vector<Json>;

std::string_view name_of(Number number) {
  switch (number) {
    case Number::bf16:
      return "bf16";
    case Number::fp16:
      return "fp16";
    case Number::fp8:
      return "fp8";
    case Number::fp32:
      return "fp32";
  }
  throw InvariantError("a number format without a name");
}

std::int64_t bytes_of(Number number) {
  if (number == Number::fp8) return 1;
  return number == Number::fp32 ? 4 : 2;
}

std::string_view name_of(HostMemory memory) {
  switch (memory) {
    case HostMemory::pinned:
      return "pinned";
    case HostMemory::pageable:
      return "pageable";
    case HostMemory::registered:
      return "registered";
  }
  throw InvariantError("a kind of memory without a name");
}

std::string_view name_of(Traffic traffic) {
  switch (traffic) {
    case Traffic::none:
      return "none";
    case Traffic::h2d:
      return "h2d";
    case Traffic::d2h:
      return "d2h";
    case Traffic::both:
      return "both";
  }
  throw InvariantError("a traffic without a name");
}

std::string_view name_of(Mechanism mechanism) {
  switch (mechanism) {
    case Mechanism::many:
      return "many";
    case Mechanism::batched:
      return "batched";
    case Mechanism::gather:
      return "gather";
    case Mechanism::kernel:
      return "kernel";
  }
  throw InvariantError("a mechanism without a name");
}

std::string_view name_of(LaunchKind kind) {
  switch (kind) {
    case LaunchKind::kernel:
      return "kernel";
    case LaunchKind::graph:
      return "graph";
    case LaunchKind::synchronise:
      return "synchronise";
    case LaunchKind::host_gap:
      return "host_gap";
  }
  throw InvariantError("a launch without a name");
}

/// The copies of a traffic, H2D first.
std::vector<std::string_view> copies_of(Traffic traffic) {
  switch (traffic) {
    case Traffic::none:
      return {};
    case Traffic::h2d:
      return {"copy_h2d"};
    case Traffic::d2h:
      return {"copy_d2h"};
    case Traffic::both:
      return {"copy_h2d", "copy_d2h"};
  }
  throw InvariantError("a traffic without copies");
}

Json copy(std::string_view op, std::string_view mechanism, std::int64_t block_bytes, std::int64_t copies) {
  return {{"op", op}, {"mechanism", mechanism}, {"block_bytes", block_bytes}, {"copies", copies}};
}

std::string_view op_of(Direction direction) { return direction == Direction::h2d ? "copy_h2d" : "copy_d2h"; }

void add_heads(Json& row, const Heads& heads) {
  row["q_heads"] = heads.query;
  row["kv_heads"] = heads.kv;
  row["head_dim"] = heads.size;
}

Json row_of(const Gemm& point) {
  Json row{{"op", "gemm"}, {"m", point.m}, {"n", point.n}, {"k", point.k}, {"dtype", name_of(point.number)}};
  if (point.best_of > 1) row["best_of"] = point.best_of;
  return row;
}

Json row_of(const DecodeAttention& point) {
  Json row{{"op", "decode_attention"}, {"batch", point.batch}};
  add_heads(row, point.heads);
  row["new_tokens"] = 1;
  row["context"] = point.context;
  row["dtype"] = name_of(point.number);
  if (point.skew > 1.0) row["skew"] = point.skew;
  return row;
}

Rows rows_for(const ContiguousCopy& point) {
  Json row = copy(op_of(point.direction), "single", point.bytes, 1);
  row["memory"] = name_of(point.memory);
  Json seen_by_host = row;
  row["observed"] = "device";
  seen_by_host["observed"] = "host";
  return {row, seen_by_host};
}

Rows rows_for(const RelayCopy& point) {
  Json row = copy("copy_h2d", "relay", point.bytes, 1);
  row["memory"] = name_of(HostMemory::pageable);
  row["observed"] = "host";
  row["threads"] = point.threads;
  return {row};
}

Rows rows_for(const DuplexCopy& point) {
  Json h2d = copy("copy_h2d", "single", point.h2d_bytes, 1);
  Json d2h = copy("copy_d2h", "single", point.d2h_bytes, 1);
  for (Json* row : {&h2d, &d2h}) (*row)["duplex"] = true;
  h2d["beside_bytes"] = point.d2h_bytes;
  d2h["beside_bytes"] = point.h2d_bytes;
  return {h2d, d2h};
}

Rows rows_for(const ScatteredCopy& point) {
  Json row = copy(op_of(point.direction), name_of(point.mechanism), point.block_bytes, point.blocks);
  row["memory"] = name_of(HostMemory::pinned);
  row["order"] = point.order == Order::random ? "random" : "sequential";
  if (point.mechanism == Mechanism::kernel) row["ctas"] = point.ctas;
  row["pool_bytes"] = point.pool_bytes;
  return {row};
}

Rows rows_for(const AllGpusCopy& point) {
  Rows rows;
  for (const std::string_view op : copies_of(point.traffic)) {
    Json row = copy(op, "single", point.bytes, 1);
    if (point.traffic == Traffic::both) {
      row["duplex"] = true;
      row["beside_bytes"] = point.bytes;
    }
    row["gpus"] = point.gpus;
    if (point.numa_node >= 0) row["numa_node"] = point.numa_node;
    rows.push_back(std::move(row));
  }
  return rows;
}

Rows rows_for(const PeerCopy& point) {
  const Json row{
      {"op", "peer"}, {"from", point.from}, {"to", point.to}, {"bytes", point.bytes}, {"duplex", point.duplex}};
  return {row};
}

Rows rows_for(const Gemm& point) { return {row_of(point)}; }
Rows rows_for(const DecodeAttention& point) { return {row_of(point)}; }

Rows rows_for(const PrefillAttention& point) {
  Json row{{"op", "prefill_attention"}, {"batch", point.batch}};
  add_heads(row, point.heads);
  row["new_tokens"] = point.new_tokens;
  row["context"] = point.context;
  row["dtype"] = name_of(point.number);
  return {row};
}

Rows rows_for(const MixedAttention& point) {
  Json row{{"op", "mixed_attention"},
           {"chunk", point.chunk},
           {"chunk_context", point.chunk_context},
           {"decodes", point.decodes},
           {"decode_context", point.decode_context}};
  add_heads(row, point.heads);
  row["dtype"] = name_of(point.number);
  return {row};
}

Rows rows_for(const Interference& point) {
  Json compute = std::visit([](const auto& one) { return row_of(one); }, point.compute);
  compute.erase("new_tokens");
  const auto row = [&](std::string_view part, bool beside) {
    return Json{{"op", "interference"},
                {"part", part},
                {"beside", beside},
                {"compute", compute},
                {"traffic", name_of(point.traffic)},
                {"mechanism", point.by_kernel ? "kernel" : "single"},
                {"copy_bytes", point.copy_bytes}};
  };
  Rows rows{row("compute", false), row("compute", true)};
  for (const bool beside : {false, true}) {
    for (const std::string_view part : copies_of(point.traffic)) rows.push_back(row(part, beside));
  }
  return rows;
}

Rows rows_for(const Sustained& point) {
  Json compute = std::visit([](const auto& one) { return row_of(one); }, point.compute);
  compute.erase("new_tokens");
  const Json row{{"op", "sustained"}, {"compute", compute}, {"run_s", point.seconds}};
  return {row};
}

Rows rows_for(const Launch& point) {
  const Json row{{"op", "launch"}, {"kind", name_of(point.kind)}, {"nodes", point.nodes}};
  return {row};
}

Rows rows_for(const Elementwise& point) {
  const auto row = [&](std::string_view kernel, std::int64_t bytes_per_number) -> Rows {
    const Json one{{"op", "elementwise"},
                   {"kernel", kernel},
                   {"tokens", point.tokens},
                   {"bytes", bytes_per_number * point.tokens * point.width},
                   {"width", point.width}};
    return {one};
  };
  switch (point.kind) {
    case ElementwiseKind::rms_norm:
      return row("rms_norm", 4);
    case ElementwiseKind::silu_mul:
      return row("silu_mul", 6);
    case ElementwiseKind::rope:
      return row("rope", 4);
    case ElementwiseKind::copy:
      return row("copy", 4);
  }
  throw InvariantError("an elementwise kernel without a row");
}

Rows rows_for(const HostStream& point) {
  const auto row = [&](std::string_view part, std::int64_t bytes) {
    Json one{{"op", "host_stream"},
             {"part", part},
             {"kind", point.kind == StreamKind::triad ? "triad" : "read"},
             {"threads", point.threads},
             {"bytes", bytes},
             {"memory", point.pinned ? "pinned" : "pageable"},
             {"traffic", name_of(point.copies)}};
    if (point.numa_node >= 0) one["numa_node"] = point.numa_node;
    return one;
  };
  Rows rows{row("stream", point.bytes)};
  for (const std::string_view part : copies_of(point.copies)) rows.push_back(row(part, point.copy_bytes));
  return rows;
}

Rows rows_for(const HostAttention& point) {
  Json row{{"op", "cpu_attention"},
           {"threads", point.threads},
           {"batch", point.batch},
           {"context", point.context},
           {"kv_bytes", 2 * point.batch * point.context * point.heads.kv * point.heads.size * bytes_of(point.number)},
           {"dtype", name_of(point.number)}};
  add_heads(row, point.heads);
  return {row};
}

Rows rows_for(const HostGemm& point) {
  const Json row{{"op", "host_gemm"},
                 {"rows", point.rows},
                 {"inputs", point.inputs},
                 {"outputs", point.outputs},
                 {"experts", point.experts},
                 {"threads", point.threads},
                 {"dtype", name_of(Number::fp32)}};
  return {row};
}

}  // namespace

std::vector<nlohmann::ordered_json> rows_of(const Point& point) {
  return std::visit([](const auto& one) { return rows_for(one); }, point);
}

}  // namespace spillway::calibrate
