#include "hwmodels/calibration/profile_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "hwmodels/calibration/sharing_fits.hpp"
#include "hwmodels/calibration/sustained_fits.hpp"
#include "hwmodels/field_reader.hpp"
#include "hwmodels/gpu_profile.hpp"

namespace spillway::hwmodels {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

/// The base's document; without a base, the document of any GPU with every value null.
ordered_json document_of(const std::string& base) {
  if (is_path(base)) return ordered_json::parse(read_file(base));
  const std::string name = base.empty() ? gpu_names().front() : base;
  ordered_json document = ordered_json::parse(find_embedded(kGpu, name)->content);
  if (!base.empty()) return document;
  document.erase("fitted");
  for (auto& [key, entry] : document["values"].items()) {
    entry["value"] = nullptr;
    entry["source"] = {{"kind", "assumed"}, {"cite", "no measured file states it"}};
  }
  return document;
}

ordered_json measured_source(const std::string& cite) { return {{"kind", "measured"}, {"cite", cite}}; }

void set_value(ordered_json& values, const char* key, const ordered_json& value, const std::string& cite) {
  values[key]["value"] = value;
  values[key]["source"] = measured_source(cite);
}

void set_stated(ordered_json& values, const char* key, const ordered_json& value, const char* option) {
  values[key]["value"] = value;
  values[key]["source"] = {{"kind", "datasheet"}, {"cite", fmt::format("given by {}", option)}};
}

/// Removes what the base states of copies by SMs in a direction whose copies were measured: it is of another machine.
void drop_kernel_copies(ordered_json& values, const std::string& direction) {
  for (const char* figure : {"_bandwidth_kernel", "_launch_kernel", "_bandwidth_duplex_kernel"}) {
    values.erase(direction + figure);
  }
}

/// Replaces the base's link by the measured one, consistent with the base's other figures. The slope of a fit may
/// exceed the peak, compensated by the launch, so it is limited to the peak. When the base's duplex bandwidth exceeds
/// the measured link, its ratio to the bandwidth of one direction alone is kept.
void set_link(ordered_json& values, const std::string& direction, const Fitted<CopyModel>& link) {
  const ordered_json alone = values[direction + "_bandwidth"]["value"];
  const ordered_json& peak = values["host_link_peak"]["value"];
  double bandwidth = link.model.bandwidth;
  if (peak.is_number()) bandwidth = std::min(bandwidth, peak.get<double>());
  set_value(values, (direction + "_bandwidth").c_str(), bandwidth, link.record.citation);
  set_value(values, (direction + "_launch").c_str(), link.model.launch_seconds, link.record.citation);
  ordered_json& duplex = values[direction + "_bandwidth_duplex"];
  if (!duplex["value"].is_number() || !alone.is_number() || duplex["value"].get<double>() <= bandwidth) return;
  duplex["value"] = duplex["value"].get<double>() / alone.get<double>() * bandwidth;
  duplex["source"] = {{"kind", "assumed"}, {"cite", "the base's share of the bandwidth of one direction alone"}};
}

/// Sets the duplex bandwidth, at most that of the direction alone. Does nothing where the latter is unknown.
void set_duplex(ordered_json& values, const std::string& direction, const MeasuredFigure& duplex) {
  const ordered_json& alone = values[direction + "_bandwidth"]["value"];
  if (!alone.is_number()) return;
  set_value(values, (direction + "_bandwidth_duplex").c_str(), std::min(duplex.value, alone.get<double>()),
            duplex.citation);
}

/// Replaces the base's sustained clock by the measured one, or removes it when the clock stays.
void set_sustained(ordered_json& values, const SustainedFit& fit) {
  if (!fit.values && !fit.stays) return;
  for (const char* key : {"sustained_share", "sustained_slowdown", "sustained_window"}) values.erase(key);
  if (!fit.values) return;
  const auto put = [&](const char* key, const char* unit, double value) {
    values[key] = {{"value", value}, {"unit", unit}};
    set_value(values, key, value, fit.citation);
  };
  put("sustained_share", "1", fit.values->share);
  put("sustained_slowdown", "1", fit.values->slowdown);
  put("sustained_window", "s", fit.values->window_seconds);
}

/// Replaces the base's two all-reduce figures unless they agree with the fit. The latency is the time of the smallest
/// buffer; the bandwidth gives the measured time of the largest buffer.
void set_all_reduce(ordered_json& values, const std::optional<AllReduce>& base, const Fitted<AllReduceModel>& fitted) {
  if (base && bus_bandwidth(*base, fitted.model).agree()) return;
  const auto& [ranks, curve] = *fitted.model.by_ranks.rbegin();
  const Curve::Point& largest = curve.points.back();
  const double moved = 2.0 * static_cast<double>(ranks - 1) / static_cast<double>(ranks) * largest.size;
  const double latency = curve.points.front().seconds;
  const bool grows = latency < largest.seconds;
  set_value(values, "all_reduce_latency", grows ? latency : 0.0, fitted.record.citation);
  set_value(values, "all_reduce_bandwidth", moved / (largest.seconds - (grows ? latency : 0.0)),
            fitted.record.citation);
}

/// `base`, with each fit of `fresh` in place of its own.
FittedKernels merged(FittedKernels base, const FittedKernels& fresh) {
  const auto take = [](auto& old, const auto& found) {
    if (found) old = found;
  };
  const auto take_each = [](auto& old, const auto& found, const auto& same) {
    for (const auto& one : found) {
      const auto it = std::find_if(old.begin(), old.end(), [&](const auto& other) { return same(one, other); });
      if (it == old.end()) {
        old.push_back(one);
      } else {
        *it = one;
      }
    }
  };
  // The error of whole iterations was that of the kernels now replaced.
  if (fresh.gemm_in(2, Quantization::none) != nullptr || fresh.decode_attention) base.decode_iteration.reset();
  take_each(base.gemm, fresh.gemm, [](const FittedGemm& a, const FittedGemm& b) { return a.same_format(b); });
  take_each(base.moe, fresh.moe, [](const FittedMoe& a, const FittedMoe& b) {
    return a.model.quantization == b.model.quantization && a.kernel == b.kernel;
  });
  take_each(base.exchanges, fresh.exchanges,
            [](const FittedExchange& a, const FittedExchange& b) { return a.model.same_kernel(b.model); });
  take(base.decode_attention, fresh.decode_attention);
  take(base.prefill_attention, fresh.prefill_attention);
  take(base.decode_attention_fp8_kv, fresh.decode_attention_fp8_kv);
  take(base.prefill_attention_fp8_kv, fresh.prefill_attention_fp8_kv);
  take(base.mixed_attention, fresh.mixed_attention);
  take(base.elementwise, fresh.elementwise);
  take(base.all_reduce, fresh.all_reduce);
  take(base.all_reduce_custom, fresh.all_reduce_custom);
  take_each(base.copies, fresh.copies, [](const Fitted<CopyModel>& a, const Fitted<CopyModel>& b) {
    return a.model.to_device == b.model.to_device && a.model.mechanism == b.model.mechanism;
  });
  take(base.cpu_attention, fresh.cpu_attention);
  take(base.host, fresh.host);
  take(base.layers, fresh.layers);
  if (fresh.layers) base.layer_attention = fresh.layer_attention;
  take(base.iteration, fresh.iteration);
  take(base.decode_iteration, fresh.decode_iteration);
  return base;
}

/// The copies that give the plain figures of the link: the loop of copies, else single copies.
const Fitted<CopyModel>* link_of(const FittedKernels& fitted, bool to_device) {
  const Fitted<CopyModel>* link = nullptr;
  for (const Fitted<CopyModel>& copy : fitted.copies) {
    if (copy.model.to_device != to_device) continue;
    if (copy.model.mechanism == CopyMechanism::many) return &copy;
    if (copy.model.mechanism == CopyMechanism::single) link = &copy;
  }
  return link;
}

template <class Row, class... Members>
ordered_json rows_json(const std::vector<Row>& rows, std::vector<std::string> columns, Members... members) {
  ordered_json table = ordered_json::array();
  for (const Row& row : rows) table.push_back(ordered_json::array({row.*members...}));
  return {{"columns", std::move(columns)}, {"rows", std::move(table)}};
}

ordered_json all_rows(const Measurements& in) {
  ordered_json rows = ordered_json::object();
  const auto put = [&](const std::string& key, bool any, ordered_json table) {
    if (any) rows[key] = std::move(table);
  };
  for (const QuantizationFormat& format : kQuantizationFormats) {
    std::vector<GemmRow> gemm = in.gemm;
    std::erase_if(gemm, [&](const GemmRow& row) { return row.quantization != format.quantization; });
    const bool plain = format.quantization == Quantization::none;
    put(plain ? "gemm" : fmt::format("gemm_{}", format.name), !gemm.empty(),
        rows_json(gemm, {"m", "n", "k", "dtype_bytes", "seconds"}, &GemmRow::m, &GemmRow::n, &GemmRow::k,
                  &GemmRow::dtype_bytes, &GemmRow::seconds));
  }
  for (const bool fp8_kv : {false, true}) {
    std::vector<AttentionRow> attention = in.attention;
    std::erase_if(attention, [&](const AttentionRow& row) { return row.fp8_kv != fp8_kv; });
    put(fp8_kv ? "attention_fp8_kv" : "attention", !attention.empty(),
        rows_json(attention, {"batch", "q_heads", "kv_heads", "head_dim", "new_tokens", "context", "seconds"},
                  &AttentionRow::batch, &AttentionRow::q_heads, &AttentionRow::kv_heads, &AttentionRow::head_dim,
                  &AttentionRow::new_tokens, &AttentionRow::context, &AttentionRow::seconds));
  }
  put("mixed_attention", !in.mixed.empty(),
      rows_json(in.mixed, {"chunk", "chunk_context", "decodes", "decode_context", "seconds"}, &MixedRow::chunk,
                &MixedRow::chunk_context, &MixedRow::decodes, &MixedRow::decode_context, &MixedRow::seconds));
  put("elementwise", !in.elementwise.empty(),
      rows_json(in.elementwise, {"kernel", "tokens", "bytes", "seconds"}, &ElementwiseRow::kernel,
                &ElementwiseRow::tokens, &ElementwiseRow::bytes, &ElementwiseRow::seconds));
  for (const bool custom : {false, true}) {
    std::vector<AllReduceRow> reductions = in.all_reduce;
    std::erase_if(reductions, [&](const AllReduceRow& row) { return row.custom != custom; });
    put(custom ? "all_reduce_custom" : "all_reduce", !reductions.empty(),
        rows_json(reductions, {"ranks", "bytes", "seconds"}, &AllReduceRow::ranks, &AllReduceRow::bytes,
                  &AllReduceRow::seconds));
  }
  put("layer", !in.layers.empty(),
      rows_json(in.layers, {"kernel", "per_sequence", "count", "seconds"}, &LayerRow::kernel, &LayerRow::per_sequence,
                &LayerRow::count, &LayerRow::seconds));
  put("iteration", !in.iterations.empty(),
      rows_json(in.iterations, {"tokens", "context", "chunk_pairs", "seconds"}, &IterationRow::tokens,
                &IterationRow::context, &IterationRow::chunk_pairs, &IterationRow::seconds));
  put("host", !in.host.empty(),
      rows_json(in.host, {"sequences", "tensor_parallel", "seconds"}, &HostRow::sequences, &HostRow::tensor_parallel,
                &HostRow::seconds));
  put("cpu_attention", !in.cpu_attention.empty(),
      rows_json(in.cpu_attention, {"threads", "batch", "context", "kv_bytes", "seconds"}, &CpuAttentionRow::threads,
                &CpuAttentionRow::batch, &CpuAttentionRow::context, &CpuAttentionRow::kv_bytes,
                &CpuAttentionRow::seconds));
  put("interference", !in.interference.empty(),
      rows_json(in.interference, {"compute", "traffic", "copy_bytes", "by_kernel", "beside", "seconds"},
                &InterferenceRow::compute, &InterferenceRow::traffic, &InterferenceRow::copy_bytes,
                &InterferenceRow::by_kernel, &InterferenceRow::beside, &InterferenceRow::seconds));
  if (!in.sustained.empty()) {
    ordered_json table = ordered_json::array();
    const auto or_null = [](const auto& value) { return value ? ordered_json(*value) : ordered_json(nullptr); };
    for (const SustainedRow& row : in.sustained) {
      table.push_back({row.compute, row.end_seconds, or_null(row.sm_clock_mhz), or_null(row.power_w), row.seconds});
    }
    rows["sustained"] = {{"columns", {"compute", "end_seconds", "sm_clock_mhz", "power_w", "seconds"}},
                         {"rows", std::move(table)}};
  }
  put("host_stream", !in.host_streams.empty(),
      rows_json(in.host_streams, {"threads", "bytes", "seconds"}, &HostStreamRow::threads, &HostStreamRow::bytes,
                &HostStreamRow::seconds));
  put("host_gemm", !in.host_gemms.empty(),
      rows_json(in.host_gemms, {"rows", "inputs", "outputs", "threads", "dtype_bytes", "seconds"}, &HostGemmRow::rows,
                &HostGemmRow::inputs, &HostGemmRow::outputs, &HostGemmRow::threads, &HostGemmRow::dtype_bytes,
                &HostGemmRow::seconds));
  if (!in.moe.empty()) {
    ordered_json table = ordered_json::array();
    for (const MoeRow& row : in.moe) {
      table.push_back({std::string(format_of(row.quantization).name), row.kernel, row.tokens, row.hidden,
                       row.intermediate, row.top_k, row.experts, row.tensor_parallel, row.expert_parallel,
                       row.power_law ? ordered_json(*row.power_law) : ordered_json(nullptr), row.seconds});
    }
    rows["moe"] = {{"columns",
                    {"quantization", "kernel", "tokens", "hidden", "intermediate", "top_k", "experts",
                     "tensor_parallel", "expert_parallel", "power_law", "seconds"}},
                   {"rows", std::move(table)}};
  }
  if (!in.exchanges.empty()) {
    ordered_json table = ordered_json::array();
    for (const ExchangeRow& row : in.exchanges) {
      table.push_back({std::string(exchange_name(row.backend)), std::string(exchange_name(row.step)), row.ranks,
                       row.shape.tokens, row.shape.hidden, row.shape.top_k, row.shape.element_bytes, row.experts,
                       row.seconds});
    }
    rows["expert_exchange"] = {
        {"columns", {"backend", "step", "ranks", "tokens", "hidden", "top_k", "element_bytes", "experts", "seconds"}},
        {"rows", std::move(table)}};
  }
  if (!in.copies.empty()) {
    ordered_json columns = {"direction", "mechanism", "duplex", "block_bytes", "copies", "seconds"};
    const bool beside =
        std::any_of(in.copies.begin(), in.copies.end(), [](const CopyRow& row) { return row.beside_bytes > 0; });
    if (beside) columns.push_back("beside_bytes");
    ordered_json table = ordered_json::array();
    for (const CopyRow& row : in.copies) {
      table.push_back({row.to_device ? "h2d" : "d2h", std::string(mechanism_name(row.mechanism)), row.duplex,
                       row.block_bytes, row.copies, row.seconds});
      if (beside) table.back().push_back(row.beside_bytes);
    }
    rows["copies"] = {{"columns", std::move(columns)}, {"rows", std::move(table)}};
  }
  return rows;
}

ordered_json measurements_json(const Measurements& in, bool with_rows) {
  ordered_json files = ordered_json::array();
  for (const MeasurementFile& file : in.files) {
    files.push_back({{"name", file.path.substr(file.path.find_last_of('/') + 1)},
                     {"sha256", file.sha256},
                     {"format", file.format},
                     {"rows", file.rows},
                     {"notes", file.notes}});
  }
  ordered_json section = {{"files", std::move(files)}};
  if (with_rows) section["rows"] = all_rows(in);
  return section;
}

/// Appends JSON with one line per innermost object or list, so that rows of numbers stay on one line.
void pretty(const ordered_json& value, const std::string& indent, std::string& out) {
  const auto nested = [](const ordered_json& one) { return one.is_structured() && !one.empty(); };
  // Names of kernels and files may be in any encoding.
  const auto text_of = [](const ordered_json& one) {
    return one.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  };
  if (!nested(value) || std::none_of(value.begin(), value.end(), nested)) {
    out += text_of(value);
    return;
  }
  const std::string deeper = indent + " ";
  const bool object = value.is_object();
  out += object ? "{" : "[";
  const char* separator = "\n";
  for (const auto& [key, member] : value.items()) {
    out += separator + deeper;
    if (object) out += text_of(ordered_json(key)) + ": ";
    pretty(member, deeper, out);
    separator = ",\n";
  }
  out += "\n" + indent + (object ? "}" : "]");
}

/// Marks every value as lent, and leaves out memory and bandwidth, which differ between GPUs of one kind.
void lend_values(ordered_json& values, const std::string& lender) {
  for (auto& [key, entry] : values.items()) {
    if (entry["value"].is_null()) continue;
    entry["source"] = {{"kind", "borrowed"}, {"cite", borrowed_citation(lender)}};
  }
  for (const auto& [key, option] : {std::pair("memory", "--memory"), {"memory_bandwidth", "--bandwidth"}}) {
    values[key]["value"] = nullptr;
    values[key]["source"] = {
        {"kind", "assumed"},
        {"cite", fmt::format("no measured file states it, and {} is another GPU: give {}", lender, option)}};
  }
  for (const char* key : {"sustained_share", "sustained_slowdown", "sustained_window"}) values.erase(key);
}

/// The kernels of a base of another GPU, scaled as far as the memory bandwidth and the SMs of the measured GPU are
/// known.
FittedKernels scaled(const GpuProfile& base, const ProfileText& text, const MeasuredDevice& device) {
  if (base.memory_bandwidth.value() == 0.0 || base.sm_count == 0) return base.fitted;
  const auto facts = [](std::int64_t sms, BytesPerSecond memory) {
    return ScalingFacts{sms, 1.0, 1.0, memory.value(), memory.value(), memory.value()};
  };
  const ScalingFacts from = facts(base.sm_count, base.memory_bandwidth);
  const ScalingFacts to =
      facts(device.sm_count.value_or(base.sm_count), text.bandwidth.value_or(base.memory_bandwidth));
  FittedKernels kernels = borrowed(base.fitted, base.file.name, from, to);
  kernels.all_reduce = base.fitted.all_reduce;
  kernels.copies = base.fitted.copies;
  return kernels;
}

/// What the kernels and values still hold of the lender; `facts`: links and datasheet figures, too.
BorrowedParts parts_of(const std::string& lender, const FittedKernels& kernels, const FittedKernels& fresh,
                       bool facts) {
  BorrowedParts borrowed{lender, {}};
  const auto add = [&](bool lent, std::string_view part) {
    if (lent) borrowed.parts.emplace_back(part);
  };
  const auto is_lent = [](const auto& fitted) { return fitted && fitted->record.source_kind == "borrowed"; };
  add(std::any_of(kernels.gemm.begin(), kernels.gemm.end(),
                  [](const FittedGemm& gemm) { return gemm.record.source_kind == "borrowed"; }),
      "gemm");
  const bool both = is_lent(kernels.decode_attention) && is_lent(kernels.prefill_attention);
  add(both, "attention");
  add(!both && is_lent(kernels.decode_attention), "decode_attention");
  add(!both && is_lent(kernels.prefill_attention), "prefill_attention");
  add(!both && is_lent(kernels.mixed_attention), "mixed_attention");
  add(is_lent(kernels.elementwise), "elementwise");
  add(facts ? !fresh.all_reduce : is_lent(kernels.all_reduce), "collectives");
  add(facts && (link_of(fresh, true) == nullptr || link_of(fresh, false) == nullptr), "links");
  add(facts, BorrowedParts::kFacts);
  return borrowed;
}

}  // namespace

std::string profile_text(const ProfileText& text, const Measurements& measurements, const FittedKernels& fitted) {
  ordered_json document = document_of(text.base);
  FittedKernels kernels = fitted;
  std::optional<AllReduce> plain_all_reduce;
  std::optional<BorrowedParts> borrowed;
  if (!text.base.empty()) {
    GpuProfile base = load_gpu(text.base);
    plain_all_reduce = base.all_reduce;
    std::string lender = base.fitted_from;
    if (base.borrowed) lender = base.borrowed->from;
    if (text.another_gpu) lender = base.file.name;
    const bool facts = text.another_gpu || base.borrowed;
    if (text.another_gpu) {
      lend_values(document["values"], lender);
      // The lender's peak would limit the measured link.
      if (link_of(fitted, true) != nullptr || link_of(fitted, false) != nullptr) {
        document["values"]["host_link_peak"]["value"] = nullptr;
      }
      base.fitted = scaled(base, text, measurements.device);
    }
    if (text.another_gpu || !base.fitted_from.empty()) base.fitted = lent(std::move(base.fitted), lender);
    kernels = merged(std::move(base.fitted), fitted);
    if (!lender.empty()) borrowed = parts_of(lender, kernels, fitted, facts);
  }
  document["name"] = text.name;
  document["stands_for"] = text.stands_for;
  document["error"] = error_text(kernels);
  document.erase("borrowed");
  if (borrowed && !borrowed->parts.empty()) {
    document["error"] = borrowed_text(*borrowed) + "; " + document["error"].get<std::string>();
    document["borrowed"] = {{"from", borrowed->from}, {"parts", borrowed->parts}};
  }
  ordered_json& values = document["values"];
  const MeasuredDevice& device = measurements.device;
  const std::string tool = "stated by the measuring tool";
  if (device.memory_bytes) set_value(values, "memory", *device.memory_bytes, tool);
  if (device.sm_count) set_value(values, "sm_count", *device.sm_count, tool);
  if (device.l2_bytes) set_value(values, "l2_cache", *device.l2_bytes, tool);
  if (text.memory) set_stated(values, "memory", text.memory->count(), "--memory");
  if (text.bandwidth) set_stated(values, "memory_bandwidth", text.bandwidth->value(), "--bandwidth");
  for (const bool to_device : {true, false}) {
    const auto here = [to_device](const Fitted<CopyModel>& copy) { return copy.model.to_device == to_device; };
    if (std::ranges::any_of(fitted.copies, here)) drop_kernel_copies(values, to_device ? "h2d" : "d2h");
    // A loop of copies that the base keeps still gives the link when only single copies were measured.
    const Fitted<CopyModel>* fresh = link_of(fitted, to_device);
    const Fitted<CopyModel>* link = link_of(kernels, to_device);
    if (fresh == nullptr || fresh->model.mechanism != link->model.mechanism) continue;
    set_link(values, to_device ? "h2d" : "d2h", *fresh);
  }
  for (const bool to_device : {true, false}) {
    const auto duplex = duplex_bandwidth(measurements, kernels.copies, to_device);
    if (duplex) set_duplex(values, to_device ? "h2d" : "d2h", *duplex);
  }
  for (const bool by_kernel : {false, true}) {
    const auto slowdown = compute_slowdown(measurements, by_kernel);
    if (!slowdown) continue;
    values[slowdown_key(by_kernel)]["unit"] = "1";
    set_value(values, slowdown_key(by_kernel), slowdown->value, slowdown->citation);
  }
  if (const auto sustained = fit_sustained(measurements)) set_sustained(values, *sustained);
  if (fitted.all_reduce) set_all_reduce(values, plain_all_reduce, *fitted.all_reduce);
  document["fitted"] = ordered_json(to_json(kernels));
  document["measurements"] = measurements_json(measurements, text.with_measurements);
  std::string out;
  pretty(document, "", out);
  out += "\n";
  if (out.size() > kMostFileBytes) {
    throw DataError(fmt::format("the profile would have {} MB, more than the {} MB that a data file may have",
                                out.size() / 1'000'000, kMostFileBytes / 1'000'000),
                    text.path, "use --omit-measurements, which leaves out the measured rows");
  }
  try {
    static_cast<void>(read_gpu(FieldReader(kGpu, text.path, out)));
  } catch (const DataError& error) {
    std::vector<Problem> problems = error.problems();
    for (Problem& problem : problems) {
      problem.what = "a run would refuse the profile: " + problem.what;
      problem.fix = "the measurements cause this: check their units and shapes, and the facts of the device";
    }
    throw DataError(std::move(problems));
  }
  return out;
}

}  // namespace spillway::hwmodels
