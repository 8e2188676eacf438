#include "hwmodels/calibration/measurements.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

namespace spillway::hwmodels {
namespace {

constexpr std::array kOps{
    Op::gemm,       Op::decode_attention, Op::prefill_attention, Op::mixed_attention, Op::elementwise,
    Op::all_reduce, Op::copy_h2d,         Op::copy_d2h,          Op::cpu_attention,   Op::host,
    Op::layer,      Op::iteration,        Op::interference,      Op::host_stream,     Op::sustained,
    Op::moe,        Op::expert_exchange,  Op::host_gemm};
constexpr std::array<std::string_view, kOps.size()> kOpNames{
    "gemm",       "decode_attention", "prefill_attention", "mixed_attention", "elementwise",
    "all_reduce", "copy_h2d",         "copy_d2h",          "cpu_attention",   "host",
    "layer",      "iteration",        "interference",      "host_stream",     "sustained",
    "moe",        "expert_exchange",  "host_gemm"};
constexpr std::array<std::string_view, 7> kMechanismNames{"single", "many", "batched", "kernel",
                                                          "gather", "peer", "relay"};

/// The index of a name in a list; the size of the list when the name is absent.
template <class Names>
std::size_t index_of(const Names& names, std::string_view name) {
  return static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin());
}

}  // namespace

std::string_view op_name(Op op) { return kOpNames.at(static_cast<std::size_t>(op)); }

std::optional<Op> op_named(std::string_view name) {
  const std::size_t i = index_of(kOpNames, name);
  return i < kOps.size() ? std::optional(kOps[i]) : std::nullopt;
}

std::span<const Op> all_ops() { return kOps; }

std::string_view mechanism_name(CopyMechanism mechanism) {
  return kMechanismNames.at(static_cast<std::size_t>(mechanism));
}

std::optional<CopyMechanism> mechanism_named(std::string_view name) {
  const std::size_t i = index_of(kMechanismNames, name);
  return i < kMechanismNames.size() ? std::optional(static_cast<CopyMechanism>(i)) : std::nullopt;
}

std::vector<AttentionRow> attention_rows(const Measurements& measurements, bool decode, bool fp8_kv) {
  std::vector<AttentionRow> kept;
  std::copy_if(measurements.attention.begin(), measurements.attention.end(), std::back_inserter(kept),
               [&](const AttentionRow& row) { return row.decode() == decode && row.fp8_kv == fp8_kv; });
  return kept;
}

std::string row_text(const RowPlace& place) { return fmt::format("file {} row {}", place.file + 1, place.row); }

std::string place_text(const Measurements& measurements, const RowPlace& place) {
  const MeasurementFile& file = measurements.files.at(static_cast<std::size_t>(place.file));
  return file.format == "measurements-json" ? fmt::format("{} at /measurements/{}", file.path, place.row)
                                            : fmt::format("{} line {}", file.path, place.row);
}

}  // namespace spillway::hwmodels
