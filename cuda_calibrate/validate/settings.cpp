#include "cuda_calibrate/validate/settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "hwmodels/calibration/measurements.hpp"
#include "policies/parts/weight_stream.hpp"

namespace spillway::calibrate {
namespace {

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

// Sizes between those of language models' projections, which calibrations measure, and not powers of two.
struct Weights {
  std::int64_t n = 0;
  std::int64_t k = 0;
};
constexpr std::array<Weights, 8> kWeights{
    {{5248, 3456}, {7040, 4736}, {11392, 2944}, {2688, 9344}, {6784, 5504}, {9600, 6016}, {3712, 7296}, {15488, 3200}}};
constexpr std::array<std::int64_t, 8> kTokens{72, 456, 920, 1832, 24, 3640, 208, 2744};

constexpr std::int64_t kFewestTokens = 24;
constexpr std::int64_t kPage = 4096;
// A stream accepts this many launches behind a gate before the CPU must wait for the GPU.
constexpr std::int64_t kMostLaunches = 900;

/// An odd number of pages, more than one, of about `bytes`: not a power of two.
std::int64_t odd_pages(double bytes) {
  const auto pairs = static_cast<std::int64_t>(bytes / (2.0 * real(kPage)));
  return (2 * std::max<std::int64_t>(pairs, 1) + 1) * kPage;
}

/// An odd multiple of 8 near `count`, at least 24: not a power of two.
std::int64_t odd_eights(double count) {
  return 8 * (2 * std::max<std::int64_t>(static_cast<std::int64_t>(count / 16.0), 1) + 1);
}

/// The number of calls closest to `seconds`, 1 .. most. If one call takes more than twice as long, the call gets fewer
/// tokens.
Multiply lasting(const Scale& scale, Multiply one, double seconds, std::int64_t most) {
  one.calls = 1;
  double each = scale.multiply_seconds(one);
  while (each > 2.0 * seconds && one.m > kFewestTokens) {
    one.m = odd_eights(real(one.m) / 1.5);
    each = scale.multiply_seconds(one);
  }
  one.calls = std::clamp<std::int64_t>(std::llround(seconds / each), 1, most);
  return one;
}

std::int32_t iterations_of(double seconds_each, std::int64_t launches_each) {
  constexpr double kSeconds = 0.04;
  const std::int64_t most = std::clamp<std::int64_t>(kMostLaunches / std::max<std::int64_t>(launches_each, 1), 2, 12);
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(std::llround(kSeconds / seconds_each), 2, most));
}

Multiply shape(std::size_t tokens, std::size_t weights) {
  const Weights& w = kWeights[weights % kWeights.size()];
  return {.m = kTokens[tokens % kTokens.size()], .n = w.n, .k = w.k};
}

void add_layer_swapping(const Scale& scale, std::vector<Experiment>& all) {
  struct Depth {
    std::int32_t layers;
    std::int32_t on_host;
  };
  constexpr std::array<Depth, 8> kDepths{{{9, 2}, {12, 5}, {18, 4}, {24, 9}, {30, 13}, {36, 7}, {40, 19}, {48, 25}}};
  std::size_t index = 0;
  // Relative to copies that just keep up: a layer is away for (m + 1) max(in, out) + in, and needed after n - 1 other
  // layers.
  for (const double load : {0.35, 1.0, 2.0}) {
    for (const Depth& depth : kDepths) {
      constexpr double kLayerSeconds = 0.4e-3;
      const Multiply compute = lasting(scale, shape(index, index + index / 8), kLayerSeconds, 8);
      const double layer = scale.multiply_seconds(compute);
      const double copy = load * layer * (depth.layers - 1) / (depth.on_host + 2);
      const double most = std::min(real(scale.gpu_bytes) / depth.layers, real(scale.host_bytes) / (depth.on_host + 2));
      all.emplace_back(LayerSwapping{
          .layers = depth.layers,
          .on_host = depth.on_host,
          .compute = compute,
          .slot_bytes = odd_pages(std::min(copy * scale.swap_rate, most - 2.0 * real(kPage))),
          .iterations = iterations_of(depth.layers * layer * std::max(1.0, load), depth.layers * compute.calls)});
      ++index;
    }
  }
}

/// The number of tokens for which one layer computes for about `seconds`.
Multiply with_tokens(const Scale& scale, Multiply compute, double seconds) {
  constexpr double kMostTokens = 8'000.0;
  Multiply best = compute;
  double nearest = HUGE_VAL;
  for (double tokens = real(kFewestTokens); tokens < kMostTokens; tokens *= 1.1) {
    compute.m = odd_eights(tokens);
    const double away = std::abs(std::log(scale.multiply_seconds(compute) / seconds));
    if (away >= nearest) continue;
    nearest = away;
    best = compute;
  }
  return best;
}

void add_weight_prefetch(const Scale& scale, std::vector<Experiment>& all) {
  struct Case {
    std::int32_t layers;
    std::int32_t interval;
    double load;  // time of a copy over the compute that should hide it
    bool double_buffer;
  };
  constexpr std::array<Case, 12> kCases{{{18, 1, 0.5, false},
                                         {22, 1, 1.0, false},
                                         {26, 1, 2.0, false},
                                         {28, 2, 0.6, false},
                                         {26, 2, 1.5, true},
                                         {30, 3, 1.0, false},
                                         {31, 3, 0.5, true},
                                         {32, 4, 2.0, false},
                                         {34, 5, 1.0, false},
                                         {36, 6, 0.7, false},
                                         {40, 8, 1.4, true},
                                         {45, 12, 1.0, false}}};
  for (std::size_t i = 0; i < kCases.size(); ++i) {
    const Case& one = kCases[i];
    const Multiply weights = shape(0, i);
    const double copy = real(weights.weight_bytes()) / scale.h2d_rate;
    const std::int32_t behind = std::max(one.interval - 1, 1);
    const Multiply compute = with_tokens(scale, weights, copy / one.load / behind);
    const double layer = scale.multiply_seconds(compute);
    const double iteration = one.layers * layer + host_layers(one.layers, one.interval) * copy;
    all.emplace_back(WeightPrefetch{.layers = one.layers,
                                    .interval = one.interval,
                                    .double_buffer = one.double_buffer,
                                    .compute = compute,
                                    .iterations = iterations_of(iteration, one.layers)});
  }
}

void add_swap_in(const Scale& scale, std::vector<Experiment>& all) {
  struct Case {
    std::int32_t layers;
    double load;  // time of a layer's copy over its compute
    CopyMechanism mechanism;
    std::int64_t blocks;
  };
  constexpr std::array<Case, 5> kCases{{{14, 0.5, CopyMechanism::single, 1},
                                        {20, 1.0, CopyMechanism::single, 1},
                                        {26, 2.0, CopyMechanism::single, 1},
                                        {22, 0.8, CopyMechanism::many, 13},
                                        {18, 1.5, CopyMechanism::many, 21}}};
  for (std::size_t i = 0; i < kCases.size(); ++i) {
    const Case& one = kCases[i];
    constexpr double kLayerSeconds = 1.0e-3;
    const Multiply compute = lasting(scale, shape(2 * i + 1, i + 3), kLayerSeconds, 16);
    const double most = real(std::min(scale.gpu_bytes, scale.host_bytes)) / one.layers - 2.0 * real(kPage);
    const double bytes = std::min(one.load * scale.multiply_seconds(compute) * scale.h2d_rate, most);
    for (const bool pipelined : {true, false}) {
      all.emplace_back(SwapIn{.layers = one.layers,
                              .pipelined = pipelined,
                              .compute = compute,
                              .mechanism = one.mechanism,
                              .blocks = one.blocks,
                              .block_bytes = odd_pages(bytes / real(one.blocks))});
    }
  }
}

void add_page_out(const Scale& scale, std::vector<Experiment>& all) {
  struct Case {
    std::int64_t block_bytes;
    std::int64_t blocks;
  };
  constexpr std::array<Case, 4> kCases{{{5 * kPage, 300}, {13 * kPage, 220}, {39 * kPage, 150}, {155 * kPage, 70}}};
  for (const Case& one : kCases) {
    for (const CopyMechanism mechanism : {CopyMechanism::many, CopyMechanism::gather}) {
      constexpr double kSeconds = 0.015;
      PageOut page_out{.mechanism = mechanism, .blocks = one.blocks, .block_bytes = one.block_bytes};
      page_out.calls = static_cast<std::int32_t>(
          std::clamp<std::int64_t>(std::llround(kSeconds / scale.page_out_seconds(page_out)), 3, 400));
      all.emplace_back(page_out);
    }
  }
}

void add_cpu_overlap(const Scale& scale, std::vector<Experiment>& all) {
  struct Case {
    std::int32_t layers;
    double second_load;  // CPU time for a sub-batch over the time of concurrent GPU work
    double first_load;   // 0: the first sub-batch attends only on the GPU
    std::int64_t batch;
    Heads heads;
  };
  constexpr Heads kGrouped{.query = 32, .kv = 8, .size = 128};
  constexpr Heads kFew{.query = 28, .kv = 4, .size = 128};
  constexpr std::array<Case, 10> kCases{{{10, 0.4, 0.0, 11, kGrouped},
                                         {12, 0.7, 0.0, 23, kGrouped},
                                         {14, 1.0, 0.0, 37, kFew},
                                         {11, 1.4, 0.0, 53, kGrouped},
                                         {13, 2.0, 0.0, 19, kFew},
                                         {10, 0.5, 0.5, 29, kGrouped},
                                         {12, 0.9, 0.6, 43, kGrouped},
                                         {14, 1.2, 0.9, 59, kFew},
                                         {11, 1.6, 1.3, 27, kGrouped},
                                         {13, 0.8, 1.8, 35, kFew}}};
  for (std::size_t i = 0; i < kCases.size(); ++i) {
    const Case& one = kCases[i];
    constexpr double kFirstSeconds = 1.5e-3;
    constexpr double kSecondSeconds = 0.8e-3;
    const Multiply first = lasting(scale, shape(5 + 2 * i, i), kFirstSeconds, 16);
    const Multiply second = lasting(scale, shape(2 * i, i + 1), kSecondSeconds, 16);
    // The CPU works for one sub-batch while the GPU computes the other sub-batch's layer.
    const auto attention = [&](double load, const Multiply& beside) {
      HostAttention call{.threads = scale.threads, .heads = one.heads, .batch = load > 0.0 ? one.batch : 0};
      const double kv =
          std::min(load * scale.multiply_seconds(beside) * scale.attention_rate, real(scale.host_bytes) / 4.0);
      call.context = odd_eights(kv / (4.0 * real(one.heads.kv * one.heads.size * one.batch)));
      return call;
    };
    all.emplace_back(CpuOverlap{.layers = one.layers,
                                .first = first,
                                .second = second,
                                .first_attention = attention(one.first_load, second),
                                .second_attention = attention(one.second_load, first)});
  }
}

std::string megabytes(std::int64_t bytes) { return fmt::format("{:.2f} MB", real(bytes) / 1e6); }

std::string text_of(const Multiply& multiply) {
  return fmt::format("{} x {}x{}x{}", multiply.calls, multiply.m, multiply.n, multiply.k);
}

std::string text_of(const HostAttention& attention) {
  if (attention.batch == 0) return "none";
  return fmt::format("{} of {} tokens, {}/{} heads, {}", attention.batch, attention.context, attention.heads.query,
                     attention.heads.kv, megabytes(kv_bytes(attention)));
}

}  // namespace

std::string letter_of(const Experiment& experiment) {
  return std::string(1, static_cast<char>('a' + experiment.index()));
}

std::string title_of(const std::string& letter) {
  if (letter == "a") return "KV of layers swapped in FIFO order (Pie)";
  if (letter == "b") return "weights prefetched at an interval (Select-N)";
  if (letter == "c") return "swap-in layer by layer or blocking (Pensieve)";
  if (letter == "d") return "page-out, gathered or scattered (AQUA)";
  return "CPU attention beside GPU work (NEO)";
}

std::string text_of(const Experiment& experiment) {
  return std::visit(
      Overloaded{[](const LayerSwapping& s) {
                   return fmt::format("n={} m={} slot {} gemm {}, {} passes", s.layers, s.on_host,
                                      megabytes(s.slot_bytes), text_of(s.compute), s.iterations);
                 },
                 [](const WeightPrefetch& s) {
                   return fmt::format("n={} interval {}{} weights {} gemm {}, {} passes", s.layers, s.interval,
                                      s.double_buffer ? " two buffers" : "", megabytes(s.compute.weight_bytes()),
                                      text_of(s.compute), s.iterations);
                 },
                 [](const SwapIn& s) {
                   return fmt::format("n={} {} {} of {} by {} gemm {}", s.layers,
                                      s.pipelined ? "by layers" : "blocking", s.blocks, megabytes(s.block_bytes),
                                      hwmodels::mechanism_name(s.mechanism), text_of(s.compute));
                 },
                 [](const PageOut& s) {
                   return fmt::format("{} of {} KiB by {}, {} times", s.blocks, s.block_bytes / 1024,
                                      hwmodels::mechanism_name(s.mechanism), s.calls);
                 },
                 [](const CpuOverlap& s) {
                   return fmt::format("n={} gemm {} and {}, CPU {} and {}, {} threads", s.layers, text_of(s.first),
                                      text_of(s.second), text_of(s.first_attention), text_of(s.second_attention),
                                      s.second_attention.threads);
                 }},
      experiment);
}

std::int64_t kv_bytes(const HostAttention& attention) {
  return attention.batch * attention.context * attention.heads.kv * attention.heads.size * 4;
}
std::int64_t query_bytes(const HostAttention& attention) {
  return attention.batch * (attention.heads.query + 2 * attention.heads.kv) * attention.heads.size * 2;
}
std::int64_t output_bytes(const HostAttention& attention) {
  return attention.batch * attention.heads.query * attention.heads.size * 4;
}

Footprint footprint_of(const Experiment& experiment) {
  return std::visit(
      Overloaded{[](const LayerSwapping& s) {
                   return Footprint{s.slot_bytes * (s.layers - s.on_host), s.slot_bytes * (s.on_host + 2)};
                 },
                 [](const WeightPrefetch& s) {
                   return Footprint{s.compute.weight_bytes() * staging_buffers(s.layers, s.interval, s.double_buffer),
                                    s.compute.weight_bytes() * host_layers(s.layers, s.interval)};
                 },
                 [](const SwapIn& s) {
                   const std::int64_t bytes = s.block_bytes * s.blocks * s.layers;
                   return Footprint{bytes, bytes};
                 },
                 [](const PageOut& s) {
                   const std::int64_t bytes = s.block_bytes * s.blocks * std::min(s.calls, kPageOutSlots);
                   return Footprint{bytes, bytes};
                 },
                 [](const CpuOverlap& s) {
                   const std::int64_t moved = query_bytes(s.first_attention) + output_bytes(s.first_attention) +
                                              query_bytes(s.second_attention) + output_bytes(s.second_attention);
                   const std::int64_t kv = kv_bytes(s.first_attention) + kv_bytes(s.second_attention);
                   return Footprint{moved, moved + kv};
                 }},
      experiment);
}

std::vector<Setting> held_out_settings(const Scale& scale) {
  std::vector<Experiment> all;
  all.reserve(64);
  add_layer_swapping(scale, all);
  add_weight_prefetch(scale, all);
  add_swap_in(scale, all);
  add_page_out(scale, all);
  add_cpu_overlap(scale, all);
  std::vector<Setting> settings;
  settings.reserve(all.size());
  std::array<int, 5> numbers{};
  for (const Experiment& experiment : all) {
    settings.push_back({fmt::format("{}{:02}", letter_of(experiment), ++numbers[experiment.index()]), experiment});
  }
  return settings;
}

}  // namespace spillway::calibrate
