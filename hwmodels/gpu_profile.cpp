#include "hwmodels/gpu_profile.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "hwmodels/field_reader.hpp"

namespace spillway::hwmodels {
namespace {

using nlohmann::json;

constexpr const char* kLender = "borrowed_from";
constexpr Range kSlowdown{1.0, 10.0, "between 1 and 10"};

/// Reads fields that may be null, and records which ones are.
class Nullable {
 public:
  Nullable(FieldReader& in, std::vector<std::string>& unknown) : in_(in), unknown_(unknown) {}
  double number(const char* key, const char* unit, const Range& range) {
    const auto value = in_.number_or_null(key, unit, range);
    if (!value) unknown_.emplace_back(key);
    return value.value_or(0.0);
  }
  BytesPerSecond bandwidth(const char* key) { return BytesPerSecond(number(key, "bytes/s", kBandwidth)); }
  std::int64_t integer(const char* key, const char* unit, std::int64_t low, std::int64_t high) {
    const auto value = in_.integer_or_null(key, unit, low, high);
    if (!value) unknown_.emplace_back(key);
    return value.value_or(0);
  }

 private:
  FieldReader& in_;
  std::vector<std::string>& unknown_;
};

ScalingFacts facts_of(const GpuProfile& gpu) {
  const double bandwidth = gpu.memory_bandwidth.value();
  return {.sm_count = gpu.sm_count,
          .gemm_flops = gpu.peak_flops * gpu.gemm_compute_efficiency,
          .prefill_flops = gpu.peak_flops * gpu.prefill_attention_efficiency,
          .memory_bandwidth = bandwidth,
          .gemm_bandwidth = bandwidth * gpu.gemm_memory_efficiency,
          .decode_bandwidth = bandwidth * gpu.decode_attention_efficiency};
}

void read_sustained_clock(FieldReader& in, GpuProfile& gpu) {
  const double share = in.number_or_zero("sustained_share", "1", kEfficiency);
  const double slowdown = in.number_or_zero("sustained_slowdown", "1", kSlowdown);
  const double window = in.number_or_zero("sustained_window", "s", {1e-3, 1e3, "between 1 ms and 1000 s"});
  const bool any = share > 0.0 || slowdown > 0.0 || window > 0.0;
  const bool all = share > 0.0 && slowdown > 0.0 && window > 0.0;
  in.require(any == all, "sustained_share", "goes with sustained_slowdown and sustained_window: state all or none");
  if (all) gpu.sustained_clock = SustainedClock{share, slowdown, round_seconds(window)};
}

void read_kernel_copies(FieldReader& in, KernelCopies& copies) {
  const auto bandwidth = [&](const char* key) -> std::optional<BytesPerSecond> {
    const auto value = in.optional_number_or_null(key, "bytes/s", kBandwidth);
    return value ? std::optional(BytesPerSecond(*value)) : std::nullopt;
  };
  copies.h2d = bandwidth("h2d_bandwidth_kernel");
  copies.d2h = bandwidth("d2h_bandwidth_kernel");
  copies.h2d_launch_seconds = in.optional_number_or_null("h2d_launch_kernel", "s", kSeconds);
  copies.d2h_launch_seconds = in.optional_number_or_null("d2h_launch_kernel", "s", kSeconds);
  copies.h2d_duplex = bandwidth("h2d_bandwidth_duplex_kernel");
  copies.d2h_duplex = bandwidth("d2h_bandwidth_duplex_kernel");
  copies.compute_slowdown = in.optional_number_or_null("copy_compute_slowdown_kernel", "1", kSlowdown);
}

/// Keys of a mechanism's figures, as messages name them.
struct CopyKeys {
  const char* h2d;
  const char* d2h;
  const char* h2d_duplex;
  const char* d2h_duplex;
};
constexpr CopyKeys kEngineKeys{"h2d_bandwidth", "d2h_bandwidth", "h2d_bandwidth_duplex", "d2h_bandwidth_duplex"};
constexpr CopyKeys kKernelKeys{"h2d_bandwidth_kernel", "d2h_bandwidth_kernel", "h2d_bandwidth_duplex_kernel",
                               "d2h_bandwidth_duplex_kernel"};

/// `copies` must be possible: within the link's peak, and both directions together no faster than one alone.
void require_sound(FieldReader& in, const GpuProfile& gpu, const CopyFigures& copies, const CopyKeys& keys) {
  const auto sound = [&](BytesPerSecond alone, std::optional<BytesPerSecond> duplex, const char* key,
                         const char* duplex_key) {
    in.require(gpu.host_link_peak.value() == 0.0 || alone <= gpu.host_link_peak, key, "exceeds host_link_peak");
    in.require(duplex.value_or(alone) <= alone, duplex_key,
               fmt::format("exceeds {}, the bandwidth of the direction alone", key));
    in.require(!duplex || 1000.0 * duplex->value() >= alone.value(), duplex_key,
               "is less than a thousandth of the bandwidth of the direction alone");
  };
  sound(copies.h2d.bandwidth, copies.h2d_duplex, keys.h2d, keys.h2d_duplex);
  sound(copies.d2h.bandwidth, copies.d2h_duplex, keys.d2h, keys.d2h_duplex);
}

void read_kernels(FieldReader& in, GpuProfile& gpu) {
  const json* section = in.section("fitted");
  if (section == nullptr) return;
  if (!section->is_object() || !section->contains(kLender)) {
    std::vector<Problem> problems;
    gpu.fitted = read_fitted(*section, "/fitted", problems);
    return in.adopt(std::move(problems));
  }
  const json& lender = (*section)[kLender];
  const std::string at = fmt::format("/fitted/{}", kLender);
  if (section->size() > 1) in.adopt({{"must be the only field: kernels are either fitted or borrowed", at, {}}});
  if (!lender.is_string() || find_embedded(kGpu, lender.get<std::string>()) == nullptr) {
    return in.adopt({{fmt::format("must be the name of a GPU, not {}", lender.dump()), at,
                      lender.is_string() ? nearest_and_all(lender.get<std::string>(), gpu_names()) : std::string()}});
  }
  if (!gpu.unknown.empty()) {
    return in.adopt(
        {{fmt::format("scaling borrowed kernels requires {}, which is null", gpu.unknown.front()), at, {}}});
  }
  // A lender that itself borrows is not read further: two profiles could lend to each other.
  const auto own = [](const FieldReader& file) {
    const json* theirs = file.section("fitted");
    return theirs != nullptr && theirs->is_object() && !theirs->contains(kLender);
  };
  FieldReader file = open_data_file(kGpu, lender.get<std::string>());
  const GpuProfile from = own(file) ? read_gpu(std::move(file)) : GpuProfile{};
  if (!from.fitted.complete()) {
    return in.adopt({{fmt::format("{} has no fitted kernels of its own to lend", lender.get<std::string>()), at, {}}});
  }
  gpu.fitted = borrowed(from.fitted, from.file.name, facts_of(from), facts_of(gpu));
  gpu.fitted_from = from.file.name;
}

void read_borrowed(FieldReader& in, GpuProfile& gpu) {
  const json* section = in.section("borrowed");
  if (section == nullptr) return;
  const auto text = [](const json& one) { return one.is_string() && !one.get_ref<const std::string&>().empty(); };
  const auto parts = section->is_object() ? section->find("parts") : section->end();
  const bool sound = section->is_object() && section->size() == 2 && section->contains("from") &&
                     text((*section)["from"]) && parts != section->end() && parts->is_array() && !parts->empty() &&
                     std::all_of(parts->begin(), parts->end(), text);
  if (!sound) {
    return in.adopt({{"must be an object with \"from\", the name of a GPU, and \"parts\", a list of what it lends",
                      "/borrowed",
                      {}}});
  }
  gpu.borrowed = BorrowedParts{(*section)["from"], *parts};
}

/// Fitted kernels take precedence, so a plain value that differs from them would have no effect. Refuses such a value.
void require_agreement(FieldReader& in, const GpuProfile& gpu) {
  const auto require = [&](bool agree, const char* key, double plain, double fitted, const char* fit) {
    in.require(
        agree, key,
        fmt::format("says {:.4g}, but fitted.{} says {:.4g}, which takes precedence: change both, or remove fitted.{}",
                    plain, fit, fitted, fit));
  };
  const auto require_close = [&](const char* key, double plain, double fitted) {
    const bool stated = std::find(gpu.unknown.begin(), gpu.unknown.end(), key) == gpu.unknown.end();
    require(!stated || std::abs(plain - fitted) <= 0.05 * fitted, key, plain, fitted, "copies");
  };
  for (const Fitted<CopyModel>& copy : gpu.fitted.copies) {
    if (copy.model.mechanism == CopyMechanism::kernel) {
      const std::optional<BytesPerSecond> plain = copy.model.to_device ? gpu.kernel_copies.h2d : gpu.kernel_copies.d2h;
      if (plain) {
        require_close(copy.model.to_device ? kKernelKeys.h2d : kKernelKeys.d2h, plain->value(), copy.model.bandwidth);
      }
    }
    if (copy.model.mechanism != CopyMechanism::many) continue;
    const HostLink& link = copy.model.to_device ? gpu.h2d : gpu.d2h;
    require_close(copy.model.to_device ? "h2d_bandwidth" : "d2h_bandwidth", link.bandwidth.value(),
                  copy.model.bandwidth);
    require_close(copy.model.to_device ? "h2d_launch" : "d2h_launch", link.launch_seconds, copy.model.launch_seconds);
  }
  if (!gpu.fitted.all_reduce || !gpu.all_reduce || gpu.fitted.all_reduce->model.by_ranks.empty()) return;
  const BusBandwidth bus = bus_bandwidth(*gpu.all_reduce, gpu.fitted.all_reduce->model);
  require(bus.agree(), "all_reduce_bandwidth", bus.plain, bus.fitted, "all_reduce");
}

}  // namespace

BusBandwidth bus_bandwidth(const AllReduce& plain, const AllReduceModel& fitted) {
  const auto& [ranks, curve] = *fitted.by_ranks.rbegin();
  const Curve::Point& largest = curve.points.back();
  const double moved = 2.0 * static_cast<double>(ranks - 1) / static_cast<double>(ranks) * largest.size;
  return {.plain = moved / (plain.latency_seconds + moved / plain.bus_bandwidth.value()),
          .fitted = moved / largest.seconds};
}

std::string borrowed_text(const BorrowedParts& borrowed) {
  return fmt::format("{}: {}", borrowed_citation(borrowed.from), fmt::join(borrowed.parts, ", "));
}

CopyFigures GpuProfile::copy_figures(CopyMechanism mechanism) const {
  CopyFigures figures{h2d, d2h, h2d_bandwidth_duplex, d2h_bandwidth_duplex, copy_compute_slowdown};
  if (mechanism != CopyMechanism::kernel) return figures;
  const KernelCopies& own = kernel_copies;
  figures.h2d = {own.h2d.value_or(h2d.bandwidth), own.h2d_launch_seconds.value_or(h2d.launch_seconds)};
  figures.d2h = {own.d2h.value_or(d2h.bandwidth), own.d2h_launch_seconds.value_or(d2h.launch_seconds)};
  const auto duplex = [](std::optional<BytesPerSecond> stated, std::optional<BytesPerSecond> engine,
                         BytesPerSecond alone) {
    return stated || !engine ? stated : std::optional(std::min(*engine, alone));
  };
  figures.h2d_duplex = duplex(own.h2d_duplex, h2d_bandwidth_duplex, figures.h2d.bandwidth);
  figures.d2h_duplex = duplex(own.d2h_duplex, d2h_bandwidth_duplex, figures.d2h.bandwidth);
  if (own.compute_slowdown) figures.compute_slowdown = own.compute_slowdown;
  return figures;
}

bool GpuProfile::has_kernel_copies() const {
  const KernelCopies& own = kernel_copies;
  return own.h2d || own.d2h || own.h2d_duplex || own.d2h_duplex ||
         std::ranges::any_of(fitted.copies, [](const Fitted<CopyModel>& copy) {
           return copy.model.mechanism == CopyMechanism::kernel;
         });
}

bool GpuProfile::prefers_kernel_copies() const {
  return has_kernel_copies() && kernel_copies.compute_slowdown.value_or(1.0) <= copy_compute_slowdown.value_or(1.0);
}

std::string layer_copies_text(const GpuProfile& gpu) {
  const bool kernel = gpu.layer_copies == CopyMechanism::kernel;
  const CopyFigures copies = gpu.copy_figures(gpu.layer_copies);
  const KernelCopies& own = gpu.kernel_copies;
  bool lent = false;
  const auto rate = [&](BytesPerSecond bandwidth, bool stated) {
    lent = lent || !stated;
    return fmt::format("{:.4g}{}", bandwidth.value() * 1e-9, stated ? "" : "*");
  };
  const auto alone = [&](bool to_device) {
    const auto fitted = std::ranges::find_if(gpu.fitted.copies, [&](const Fitted<CopyModel>& copy) {
      return copy.model.to_device == to_device && copy.model.mechanism == gpu.layer_copies;
    });
    if (fitted != gpu.fitted.copies.end()) return rate(BytesPerSecond(fitted->model.bandwidth), true);
    return rate((to_device ? copies.h2d : copies.d2h).bandwidth, !kernel || (to_device ? own.h2d : own.d2h));
  };
  std::string text = kernel ? "SMs: " : "copy engines: ";
  text += alone(true) + " GB/s in and ";
  text += alone(false) + " out alone";
  if (copies.h2d_duplex && copies.d2h_duplex) {
    text += fmt::format(", {} and ", rate(*copies.h2d_duplex, !kernel || own.h2d_duplex));
    text += rate(*copies.d2h_duplex, !kernel || own.d2h_duplex) + " together";
  }
  return text + fmt::format(" ({}{})", gpu.file.name, lent ? "; *: of its copy engines" : "");
}

void GpuProfile::need(std::initializer_list<std::string_view> fields, std::string_view purpose) const {
  for (const std::string_view field : fields) {
    if (std::find(unknown.begin(), unknown.end(), field) == unknown.end()) continue;
    std::string option = "--base NAME for the datasheet's figures";
    if (field == "memory") option += ", or with --memory SIZE";
    if (field == "memory_bandwidth") option += ", or with --bandwidth RATE";
    throw ConfigError(fmt::format("{} does not state {}, which {} requires", file.name, field, purpose), "hardware",
                      fmt::format("set {} in {}, or fit the profile again with {}", field, file.path, option));
  }
}

std::vector<std::string> gpu_names() { return names_of(kGpu); }

GpuProfile load_gpu(std::string_view name_or_file) { return read_gpu(open_data_file(kGpu, name_or_file)); }

GpuProfile read_gpu(FieldReader in) {
  GpuProfile gpu;
  Nullable fields(in, gpu.unknown);
  gpu.memory = Bytes(fields.integer("memory", "bytes", 1, 1'000'000'000'000'000));
  gpu.peak_flops = fields.number("peak_flops", "FLOP/s", kFlops);
  gpu.memory_bandwidth = fields.bandwidth("memory_bandwidth");
  gpu.gemm_compute_efficiency = fields.number("gemm_compute_efficiency", "1", kEfficiency);
  gpu.gemm_memory_efficiency = fields.number("gemm_memory_efficiency", "1", kEfficiency);
  gpu.decode_attention_efficiency = fields.number("decode_attention_efficiency", "1", kEfficiency);
  gpu.prefill_attention_efficiency = fields.number("prefill_attention_efficiency", "1", kEfficiency);
  gpu.kernel_overhead_seconds = fields.number("kernel_overhead", "s", kSeconds);
  gpu.attention_overhead_seconds = fields.number("attention_overhead", "s", kSeconds);
  gpu.h2d.bandwidth = fields.bandwidth("h2d_bandwidth");
  gpu.h2d.launch_seconds = fields.number("h2d_launch", "s", kSeconds);
  gpu.d2h.bandwidth = fields.bandwidth("d2h_bandwidth");
  gpu.d2h.launch_seconds = fields.number("d2h_launch", "s", kSeconds);
  gpu.host_link_peak = fields.bandwidth("host_link_peak");
  const auto latency = in.number_or_null("all_reduce_latency", "s", kSeconds);
  const auto bus = in.number_or_null("all_reduce_bandwidth", "bytes/s", kBandwidth);
  if (latency && bus) gpu.all_reduce = AllReduce{*latency, BytesPerSecond(*bus)};
  const auto h2d_duplex = in.number_or_null("h2d_bandwidth_duplex", "bytes/s", kBandwidth);
  const auto d2h_duplex = in.number_or_null("d2h_bandwidth_duplex", "bytes/s", kBandwidth);
  if (h2d_duplex) gpu.h2d_bandwidth_duplex = BytesPerSecond(*h2d_duplex);
  if (d2h_duplex) gpu.d2h_bandwidth_duplex = BytesPerSecond(*d2h_duplex);
  gpu.copy_compute_slowdown = in.number_or_null("copy_compute_slowdown", "1", kSlowdown);
  read_kernel_copies(in, gpu.kernel_copies);
  read_sustained_clock(in, gpu);
  gpu.sm_count = fields.integer("sm_count", "1", 1, 100'000);
  gpu.l2_cache = Bytes(fields.integer("l2_cache", "bytes", 1, 1'000'000'000'000));
  require_sound(in, gpu, gpu.copy_figures(CopyMechanism::single), kEngineKeys);
  require_sound(in, gpu, gpu.copy_figures(CopyMechanism::kernel), kKernelKeys);
  in.require(latency.has_value() == bus.has_value(), "all_reduce_bandwidth",
             "must be null exactly when all_reduce_latency is");
  read_kernels(in, gpu);
  read_borrowed(in, gpu);
  require_agreement(in, gpu);
  gpu.file = in.finish();
  return gpu;
}

}  // namespace spillway::hwmodels
