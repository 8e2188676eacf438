// FlexGen's cost model and policy search in plain words. Rules: FMInference/FlexGen (19753bc),
// experimental/cost_model.py, without a disk; hidden states, queries and keys as wide as the model has them.
//
// A block of one form has three shares to choose: of weights, KV and hidden states on the host. Its time is the larger
// of a few linear functions of them, its memory has four linear limits. So the fastest placement lies where three
// planes meet: limits, ends of the shares, or places where one function becomes the larger one. All such corners are
// tried for each share of the weights that whole matrices can make up.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <iterator>
#include <numeric>
#include <set>
#include <vector>

#include "sim/core/error.hpp"
#include "tests/models/flexgen.hpp"

namespace spillway::oracle {
namespace {

using Real = long double;            // corners are then exact enough to be compared to 1e-9
using Shares = std::array<Real, 3>;  // of weights, KV and hidden states, on the host
using Cost = std::function<Real(const Shares&)>;

Real number(std::int64_t count) { return static_cast<Real>(count); }
Real number(Bytes bytes) { return number(bytes.count()); }

/// Bytes per second and operations per second.
struct Speeds {
  Real to_gpu, kv_to_host, hidden_to_host;
  Real prompt_matrices, prompt_attention, token_matrices, token_attention, cpu_attention;
};

/// The form of a block, and everything else that the formulas need.
struct Block {
  Real layers, h1, h2, heads, q, k;  // widths of hidden states, MLP, queries, keys
  Real s, n;                         // prompt and generated tokens
  Real gbs, bls;                     // requests of a micro-batch and of the block
  Real gpu, cpu;                     // memory that may be used
  Speeds speeds;
  [[nodiscard]] Real wi() const { return 8 * h1 * (q + k) / 2 + 4 * h1 * h2; }  // 8 h1^2 + 4 h1 h2 of OPT
};

struct Times {
  Real h2d, d2h, compute;
};

Times prefill(const Block& b, const Shares& x) {
  const auto& [w, c, h] = x;
  const Real hidden = 2 * b.s * b.h1 * b.bls;
  return {(w * b.wi() + h * hidden) / b.speeds.to_gpu,
          c * 4 * (b.s + 1) * b.k * b.bls / b.speeds.kv_to_host + h * hidden / b.speeds.hidden_to_host,
          b.bls * b.s * b.wi() / b.speeds.prompt_matrices + 4 * b.bls * b.s * b.s * b.q / b.speeds.prompt_attention};
}

Times decode(const Block& b, const Shares& x) {
  const auto& [w, c, h] = x;
  const Real hidden = 2 * b.h1 * b.bls;
  const Real attention = 4 * b.bls * (b.s + b.n / 2) * b.q;
  return {(w * b.wi() + h * hidden) / b.speeds.to_gpu, h * hidden / b.speeds.hidden_to_host,
          b.bls * b.wi() / b.speeds.token_matrices + (1 - c) * attention / b.speeds.token_attention +
              c * attention / b.speeds.cpu_attention};
}

Real block_time(const Block& b, const Shares& x) {
  const Times p = prefill(b, x);
  const Times d = decode(b, x);
  const Real of_prompts = std::max({p.h2d, p.d2h, p.compute});
  const Real of_token = d.h2d + std::max(d.d2h, d.compute);
  return b.layers * of_prompts + b.layers * (b.n - 1) * of_token;
}

Real throughput(const Block& b, const Shares& x) { return b.bls * b.n / block_time(b, x); }

/// Peaks over the memory that may be used.
std::array<Cost, 4> memory_use(const Block& b) {
  const auto lives_on_gpu = [b](const Shares& x, Real hidden_tokens) {
    const auto& [w, c, h] = x;
    return b.layers * (1 - w) * b.wi() + b.layers * (1 - c) * 4 * (b.s + b.n) * b.k * b.bls +
           (1 - h) * 2 * hidden_tokens * b.h1 * b.bls + 2 * w * b.wi() + h * 2 * hidden_tokens * b.h1 * b.gbs;
  };
  const auto lives_on_cpu = [b](const Shares& x, Real hidden_tokens) {
    const auto& [w, c, h] = x;
    return b.layers * w * b.wi() + b.layers * c * 4 * (b.s + b.n) * b.k * b.bls + h * 2 * hidden_tokens * b.h1 * b.bls;
  };
  return {[b, lives_on_gpu](const Shares& x) {
            const Real qkv = b.gbs * b.s * (2 * b.h1 + 2 * b.q + 4 * b.k);
            const Real scores = b.gbs * b.s * (2 * b.q + 2 * b.k + 2 * b.heads * b.s);
            const Real mlp = b.gbs * b.s * (4 * b.h1 + 2 * (b.h1 + b.h2));
            return (lives_on_gpu(x, b.s) + qkv + scores + mlp) / b.gpu;
          },
          [b, lives_on_gpu](const Shares& x) {
            const Real qkv = b.gbs * (2 * b.h1 + 2 * b.q + 4 * b.k);
            const Real scores = (1 - x[1]) * b.gbs * (2 * b.q + (b.s + b.n) * (2 * b.k + 2 * b.heads));
            const Real mlp = b.gbs * (4 * b.h1 + 2 * (b.h1 + b.h2));
            return (lives_on_gpu(x, 1) + qkv + scores + mlp) / b.gpu;
          },
          [b, lives_on_cpu](const Shares& x) {
            return (lives_on_cpu(x, b.s) + x[0] * b.wi() + x[2] * 2 * b.s * b.h1 * b.gbs) / b.cpu;
          },
          [b, lives_on_cpu](const Shares& x) {
            const Real scores = x[1] * b.gbs * (2 * b.heads * (b.s + b.n) + 2 * b.q);
            return (lives_on_cpu(x, 1) + scores) / b.cpu;
          }};
}

bool fits(const Block& b, const Shares& x, Real tolerance) {
  for (const Cost& use : memory_use(b)) {
    if (use(x) > 1 + tolerance) return false;
  }
  return true;
}

/// a[0] x + a[1] y + a[2] z = b, as far from 0 as 1 in one of a.
struct Plane {
  Shares a{};
  Real b = 0;
};

/// Where a linear function is 0.
void add_plane(std::vector<Plane>& planes, const Cost& f) {
  const Real at_origin = f({0, 0, 0});
  Plane plane{{f({1, 0, 0}) - at_origin, f({0, 1, 0}) - at_origin, f({0, 0, 1}) - at_origin}, -at_origin};
  const Real largest = std::max({std::abs(plane.a[0]), std::abs(plane.a[1]), std::abs(plane.a[2])});
  if (largest <= 1e-15L * std::abs(at_origin)) return;  // it is 0 nowhere near
  for (Real& a : plane.a) a /= largest;
  plane.b /= largest;
  planes.push_back(plane);
}

std::vector<Plane> planes_of(const Block& b) {
  std::vector<Plane> planes;
  for (std::size_t i = 0; i < 3; ++i) {
    for (const Real end : {0.0L, 1.0L}) {
      add_plane(planes, [=](const Shares& x) { return x[i] - end; });
    }
  }
  for (const Cost& use : memory_use(b)) {
    add_plane(planes, [&](const Shares& x) { return use(x) - 1; });
  }
  add_plane(planes, [&](const Shares& x) { return prefill(b, x).h2d - prefill(b, x).d2h; });
  add_plane(planes, [&](const Shares& x) { return prefill(b, x).h2d - prefill(b, x).compute; });
  add_plane(planes, [&](const Shares& x) { return prefill(b, x).d2h - prefill(b, x).compute; });
  add_plane(planes, [&](const Shares& x) { return decode(b, x).d2h - decode(b, x).compute; });
  return planes;
}

Real determinant(const Shares& a, const Shares& b, const Shares& c) {
  return a[0] * (b[1] * c[2] - b[2] * c[1]) - a[1] * (b[0] * c[2] - b[2] * c[0]) + a[2] * (b[0] * c[1] - b[1] * c[0]);
}

std::optional<Shares> meet(const Plane& p, const Plane& q, const Plane& r) {
  const Real all = determinant(p.a, q.a, r.a);
  if (std::abs(all) < 1e-14L) return std::nullopt;
  Shares x{};
  for (std::size_t i = 0; i < 3; ++i) {
    Shares a = p.a;
    Shares b = q.a;
    Shares c = r.a;
    a[i] = p.b;
    b[i] = q.b;
    c[i] = r.b;
    x[i] = determinant(a, b, c) / all;
    if (x[i] < -1e-13L || x[i] > 1 + 1e-13L) return std::nullopt;
    x[i] = std::clamp<Real>(x[i], 0, 1);
  }
  return x;
}

/// The fastest placement of this block with this share of the weights on the host; of equally fast ones the one with
/// the least there.
std::optional<Shares> fastest(const Block& b, Real weights) {
  const Plane fixed{{1, 0, 0}, weights};
  const std::vector<Plane> planes = planes_of(b);
  std::optional<Shares> best;
  const auto sum = [](const Shares& x) { return x[0] + x[1] + x[2]; };
  const auto better = [&](const Shares& x) {
    const Real time = block_time(b, x);
    const Real other = block_time(b, *best);
    if (std::abs(time - other) > 1e-12L * other) return time < other;
    return sum(x) < sum(*best);
  };
  for (std::size_t i = 0; i < planes.size(); ++i) {
    for (std::size_t j = i + 1; j < planes.size(); ++j) {
      const std::optional<Shares> x = meet(fixed, planes[i], planes[j]);
      if (x && fits(b, *x, 1e-12L) && (!best || better(*x))) best = x;
    }
  }
  return best;
}

/// Shares to ask for, one between every two neighbouring middles of matrices.
std::vector<double> shares_to_ask(const Deployment& deployment) {
  std::set<double> middles;
  for (const auto* const block : {&deployment.attention_matrices, &deployment.mlp_matrices}) {
    const Bytes all = std::accumulate(block->begin(), block->end(), Bytes(0));
    Bytes before{};
    for (const Bytes matrix : *block) {
      middles.insert((static_cast<double>(before.count()) + 0.5 * static_cast<double>(matrix.count())) /
                     static_cast<double>(all.count()));
      before += matrix;
    }
  }
  std::vector<double> asked{0.0};
  for (auto next = std::next(middles.begin()); next != middles.end(); ++next) {
    asked.push_back((*std::prev(next) + *next) / 2);
  }
  asked.push_back(1.0);
  return asked;
}

// --- what the deployment offers
// --------------------------------------------------------------------------------------------------------------------

/// A layer's time for `gbs` prompts, in sequences of at most `piece` tokens.
Real prompt_layer(const Deployment& deployment, std::int64_t gbs, std::int64_t prompt, std::int64_t piece) {
  std::vector<PrefillChunk> sequences;
  for (std::int64_t i = 0; i < gbs; ++i) {
    for (std::int64_t done = 0; done < prompt; done += piece) {
      sequences.push_back({Tokens(std::min(piece, prompt - done)), Tokens(0)});
    }
  }
  BatchShape shape;
  shape.chunks = sequences;
  shape.sampled_sequences = static_cast<std::int64_t>(sequences.size());
  return number(deployment.model->iteration(shape).layer.count()) * 1e-9L;
}

Real token_layer(const Deployment& deployment, std::int64_t gbs, std::int64_t context) {
  BatchShape shape;
  shape.decode_sequences = shape.sampled_sequences = gbs;
  shape.decode_context = Tokens(gbs * context);
  shape.decode_longest = Tokens(context);
  return number(deployment.model->iteration(shape).layer.count()) * 1e-9L;
}

/// By the profile: from times of a whole micro-batch, with and without attention that is worth the name.
Speeds measured(const Deployment& deployment, const Block& b, std::int64_t gbs, std::int64_t s, std::int64_t n) {
  const auto link = [&](Stream stream) {
    const CopyTime time = deployment.planner().copy(stream, 1, Bytes(1'000'000'000), CopyMechanism::single);
    return 1.0L / (number((time.launch + time.transfer).count()) * 1e-9L) * 1e9L;
  };
  const auto attention = [](Real with, Real without) { return std::max(with - without, 1e-6L * with); };
  Speeds speeds{};
  speeds.to_gpu = link(Stream::h2d);
  speeds.kv_to_host = speeds.hidden_to_host = link(Stream::d2h);
  const Real prompts = prompt_layer(deployment, gbs, s, s);
  const Real pieces = prompt_layer(deployment, gbs, s, 16);
  speeds.prompt_matrices = number(gbs * s) * b.wi() / pieces;
  speeds.prompt_attention = 4 * b.q * number(gbs * s * s) / attention(prompts, pieces);
  const std::int64_t context = s + n / 2;
  const Real first = token_layer(deployment, gbs, 1);
  speeds.token_matrices = number(gbs) * b.wi() / first;
  speeds.token_attention = 4 * b.q * number(gbs * context) / attention(token_layer(deployment, gbs, context), first);
  return speeds;
}

/// Fitted to a T4 by FlexGen's authors; GiB/s and TFLOP/s.
Speeds published(const Block& b) {
  constexpr Real kGiB = 1024.0L * 1024.0L * 1024.0L;
  const Real small_batch = std::max(0.0L, std::log2(64.0L / b.gbs));
  const Real small_model = std::max(0.0L, std::log2(4096.0L / b.h1));
  const Real fit = 1 + 0.0168L * small_batch * small_model - 0.0328L * small_batch - 0.0621L * small_model;
  return {.to_gpu = 12.89L * kGiB,
          .kv_to_host = 0.97L * kGiB,
          .hidden_to_host = 4.82L * kGiB,
          .prompt_matrices = 21.24e12L,
          .prompt_attention = 9.97e12L,
          .token_matrices = 4.3e12L,
          .token_attention = 0.079e12L,
          .cpu_attention = 0.0123e12L * std::max(0.1L, fit)};
}

Block block_of(const Deployment& deployment, const Settings& settings, std::int64_t gbs, std::int64_t batches) {
  const std::int64_t s = settings.get<std::int64_t>("policy.pad_input");
  const std::int64_t n = settings.get<std::int64_t>("policy.pad_output");
  const bool of_profile = settings.get<std::string>("policy.constants") == "profile";
  const bool cpu_attention = settings.get<bool>("policy.cpu_attention");
  const std::optional<Bytes> host = flexgen_host_memory(deployment, settings);
  if (!host) throw ConfigError("the host's memory is not known", "hardware");

  Block b{};
  b.layers = number(deployment.layers);
  b.h1 = number(deployment.hidden);
  b.q = number(deployment.query_width);
  b.k = number(deployment.kv_width);
  b.heads = number(deployment.heads);
  // An MLP of two matrices that makes the layer as large as it is.
  b.h2 = std::max(1.0L, std::round(number(deployment.layer_weights) / (4 * b.h1)) - b.q - b.k);
  b.s = number(s);
  b.n = number(n);
  b.gbs = number(gbs);
  b.bls = number(gbs * batches);

  // The GPU's memory but for weights outside the layers.
  Bytes gpu = deployment.memory;
  if (deployment.gpu_kv_given) gpu = std::min(gpu, deployment.weights + deployment.gpu_kv);
  const Bytes outside = deployment.weights - deployment.layer_weights * deployment.layers;
  const Real usable = of_profile ? 1.0L : 0.8L;
  b.gpu = usable * number(gpu - outside);
  b.cpu = usable * number(*host);
  if (b.gpu <= 0) throw ConfigError("no memory for any layer", "hardware");

  b.speeds = of_profile ? measured(deployment, b, gbs, s, n) : published(b);
  const Real per_byte = b.q / b.k;  // two operations for each two bytes, for every query that shares them
  if (!cpu_attention) {
    b.speeds.cpu_attention = b.speeds.to_gpu * per_byte;  // loaded first, as fast as the link is
  } else if (of_profile) {
    if (!deployment.cpu_attention_bandwidth) throw ConfigError("how fast the CPU attends is not known", "hardware");
    // Of a call that reads a whole micro-batch's KV, at its mean length.
    const Real kv = b.gbs * (b.s + b.n / 2) * 4 * b.k;
    const Real time = deployment.cpu_attention_launch + kv * 5 / *deployment.cpu_attention_bandwidth;
    b.speeds.cpu_attention = kv / time * per_byte;
  }
  return b;
}

struct Found {
  std::int64_t gbs = 0;
  std::int64_t batches = 0;
  double asked = 0;  // share of the weights
  Shares shares{};
  Real throughput = 0;
};

}  // namespace

FlexgenRating rate_placement(const Deployment& deployment, const Settings& settings,
                             const FlexgenPlacement& placement) {
  const Block b = block_of(deployment, settings, placement.gpu_batch, placement.batches);
  const Shares shares{flexgen_weights(deployment, placement.weights_host).share, placement.cache_host,
                      placement.hidden_host};
  return {.throughput = static_cast<double>(throughput(b, shares)), .fits = fits(b, shares, 1e-7L)};
}

FlexgenFound fastest_placement(const Deployment& deployment, const Settings& settings) {
  constexpr Real kFaster = 1 + 1e-9L;
  std::optional<Found> best;
  for (std::int64_t gbs = 1;; gbs += gbs < 4 ? 1 : gbs) {
    std::optional<Found> of_batch;
    for (const double asked : shares_to_ask(deployment)) {
      const Real weights = flexgen_weights(deployment, asked).share;
      // One micro-batch more, until there is no room or throughput rises no longer.
      std::optional<Found> of_weights;
      for (std::int64_t batches = 1;; ++batches) {
        const Block b = block_of(deployment, settings, gbs, batches);
        const std::optional<Shares> shares = fastest(b, weights);
        if (!shares || (of_weights && throughput(b, *shares) <= of_weights->throughput * kFaster)) break;
        of_weights = {gbs, batches, asked, *shares, throughput(b, *shares)};
      }
      if (!of_weights) continue;
      if (!of_batch || of_weights->throughput > of_batch->throughput * kFaster) of_batch = of_weights;
    }
    if (!of_batch) break;
    if (!best || best->throughput <= of_batch->throughput * kFaster) best = of_batch;
  }
  if (!best) throw ConfigError("not one request fits", "");
  const auto share = [&](std::size_t i) { return static_cast<double>(best->shares[i]); };
  return {.placement = {.gpu_batch = best->gbs,
                        .batches = best->batches,
                        .weights_host = best->asked,
                        .cache_host = share(1),
                        .hidden_host = share(2)},
          .throughput = static_cast<double>(best->throughput)};
}

FlexgenPlacement keep_objective(const Deployment& deployment, const Settings& settings) {
  if (deployment.peak_flops <= 0.0) throw ConfigError("the peak rate is not known", "hardware");
  const std::int64_t gbs = settings.get<std::int64_t>("policy.gpu_batch");
  const Real s = number(settings.get<std::int64_t>("policy.pad_input"));
  const Real n = number(settings.get<std::int64_t>("policy.pad_output"));
  const Real weights = number(deployment.layer_weights);
  const bool prompts = settings.get<std::string>("policy.slo_phase") == "prefill";
  // Two operations for each number of the weights and for each token attended to, of queries and of values.
  const Real of_token = weights + 4 * number(deployment.query_width) * (prompts ? s : s + n / 2);
  Real compute = number(gbs) * (prompts ? s : 1) * of_token / deployment.peak_flops;
  if (settings.get<std::string>("policy.slo_estimate") == "roofline") {
    if (deployment.memory_bandwidth <= 0.0) throw ConfigError("the GPU's bandwidth is not known", "hardware");
    const Real tokens = number(gbs) * (prompts ? s : s + n / 2);
    const Real kv = number(deployment.block_bytes) / number(deployment.block_tokens.count() * deployment.layers);
    compute = std::max(compute, (weights + tokens * kv) / deployment.memory_bandwidth);
  }
  const CopyTime copy = deployment.planner().copy(Stream::h2d, 1, deployment.layer_weights, CopyMechanism::single);
  // A layer's whole weights over this GPU's part of the bus.
  const Real transfer = number((copy.launch + copy.transfer).count()) * 1e-9L * number(deployment.gpus);
  const Real limit = (1 + static_cast<Real>(settings.get<double>("policy.slo_margin"))) * compute;
  FlexgenPlacement placement;
  placement.gpu_batch = gbs;
  placement.weights_host = static_cast<double>(std::min(1.0L, limit / transfer));
  return placement;
}

FlexgenWeights flexgen_weights(const Deployment& deployment, double asked) {
  FlexgenWeights on_host;
  double all = 0.0;
  for (const auto* const block : {&deployment.attention_matrices, &deployment.mlp_matrices}) {
    double size = 0.0;
    for (const Bytes matrix : *block) size += static_cast<double>(matrix.count());
    double before = 0.0;
    for (const Bytes matrix : *block) {
      const auto bytes = static_cast<double>(matrix.count());
      if ((before + bytes / 2) / size < asked) {
        on_host.share += bytes;
        ++on_host.matrices;
      }
      before += bytes;
    }
    all += size;
  }
  on_host.share /= all;
  return on_host;
}

}  // namespace spillway::oracle
