#include "cuda_calibrate/host/host_gemm.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "cuda_calibrate/host/host_facts.hpp"
#include "cuda_calibrate/host/host_memory.hpp"

namespace spillway::calibrate {
namespace {

constexpr std::int64_t kWidth = sizeof(float);

/// The start of a thread's even share of `all`.
std::int64_t share(std::int64_t part, std::int64_t parts, std::int64_t all) { return part * all / parts; }

const float* floats(const HostBuffer& buffer) { return reinterpret_cast<const float*>(buffer.get()); }

const HostGemm& checked(const HostGemm& point) {
  for (const auto& [what, count] : {std::pair("rows", point.rows),
                                    {"inputs", point.inputs},
                                    {"outputs", point.outputs},
                                    {"experts", point.experts}}) {
    if (count < 1) throw Unsupported(fmt::format("{} {} leave nothing to compute", count, what));
  }
  return point;
}

}  // namespace

std::int64_t parts_along_rows(std::int64_t rows, std::int64_t outputs, std::int64_t threads) {
  const auto size = [&](std::int64_t parts) {
    const double along_outputs = static_cast<double>(threads / parts);
    // A thread without a tile leaves a larger tile to others.
    return std::max(static_cast<double>(rows) / static_cast<double>(parts), 1.0) +
           std::max(static_cast<double>(outputs) / along_outputs, 1.0);
  };
  std::int64_t best = 1;
  for (std::int64_t parts = 2; parts <= threads; ++parts) {
    if (threads % parts == 0 && size(parts) < size(best)) best = parts;
  }
  return best;
}

std::vector<Cpu> on_one_socket(const std::vector<Cpu>& cpus) {
  std::map<int, std::vector<Cpu>> sockets;
  for (const Cpu& cpu : cpus) sockets[cpu.socket].push_back(cpu);
  const auto most = std::max_element(sockets.begin(), sockets.end(),
                                     [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  return most == sockets.end() ? std::vector<Cpu>{} : most->second;
}

HostProduct::HostProduct(const HostGemm& point, const ProductKernel& kernel, std::vector<Cpu> cpus, std::uint64_t seed)
    : point_(checked(point)), kernel_(kernel), team_(std::move(cpus)) {
  const auto threads = static_cast<std::int64_t>(team_.size());
  row_parts_ = parts_along_rows(point_.rows, point_.outputs, threads);
  const std::int64_t xs = point_.rows * point_.inputs;
  const std::int64_t ys = point_.rows * point_.outputs;
  const std::int64_t all = point_.experts * point_.outputs * point_.inputs;
  need_memory((xs + ys + all) * kWidth);
  x_ = ordinary_memory(xs * kWidth);
  y_ = ordinary_memory(ys * kWidth);
  weights_ = ordinary_memory(all * kWidth);
  // Every thread fills its share first, so that all memory lies on the NUMA nodes of the threads.
  team_.run([&](std::size_t thread) {
    const auto i = static_cast<std::int64_t>(thread);
    RandomBits random(seed + thread);
    const auto fill = [&](const HostBuffer& buffer, std::int64_t count) {
      const std::int64_t from = share(i, threads, count);
      fill_numbers(buffer.get() + from * kWidth, share(i + 1, threads, count) - from, Number::fp32, random);
    };
    fill(x_, xs);
    fill(y_, ys);
    fill(weights_, all);
  });
}

double HostProduct::run(std::int64_t calls) {
  const std::int64_t output_parts = static_cast<std::int64_t>(team_.size()) / row_parts_;
  const std::int64_t before = next_;
  const double seconds = team_.timed([&](std::size_t thread) {
    const auto i = static_cast<std::int64_t>(thread);
    const std::int64_t row = share(i / output_parts, row_parts_, point_.rows);
    const std::int64_t rows = share(i / output_parts + 1, row_parts_, point_.rows) - row;
    const std::int64_t output = share(i % output_parts, output_parts, point_.outputs);
    const std::int64_t outputs = share(i % output_parts + 1, output_parts, point_.outputs) - output;
    for (std::int64_t call = 0; call < calls; ++call) {
      if (rows > 0 && outputs > 0) {
        kernel_.multiply(floats(x_) + row * point_.inputs,
                         matrix((before + call) % point_.experts) + output * point_.inputs, rows, point_.inputs,
                         outputs, reinterpret_cast<float*>(y_.get()) + row * point_.outputs + output, point_.outputs);
      }
      team_.meet();
    }
  });
  next_ = (before + calls) % point_.experts;
  return seconds;
}

const float* HostProduct::matrix(std::int64_t expert) const {
  return floats(weights_) + expert * point_.outputs * point_.inputs;
}

std::span<const float> HostProduct::x(std::int64_t row) const {
  return {floats(x_) + row * point_.inputs, static_cast<std::size_t>(point_.inputs)};
}

std::span<const float> HostProduct::weights(std::int64_t expert, std::int64_t output) const {
  return {matrix(expert) + output * point_.inputs, static_cast<std::size_t>(point_.inputs)};
}

std::span<const float> HostProduct::y(std::int64_t row) const {
  return {floats(y_) + row * point_.outputs, static_cast<std::size_t>(point_.outputs)};
}

namespace {

class HostGemmCase final : public Case {
 public:
  HostGemmCase(const HostGemm& point, std::uint64_t seed)
      : product_(point, product_kernels().front(), spread(on_one_socket(usable_cpus()), point.threads), seed) {}

  std::vector<double> sample(std::int64_t calls) override { return {product_.run(calls) / static_cast<double>(calls)}; }
  [[nodiscard]] std::int64_t most_calls() const override { return std::int64_t{1} << 20U; }
  [[nodiscard]] std::string kernel() const override { return name_of(product_kernels().front()); }
  [[nodiscard]] std::string note() const override { return product_.note(); }

 private:
  HostProduct product_;
};

}  // namespace

std::unique_ptr<Case> make_host_gemm(const HostGemm& point, std::uint64_t seed) {
  (void)checked(point);
  return std::make_unique<HostGemmCase>(point, seed);
}

}  // namespace spillway::calibrate
