#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "cuda_calibrate/host/host_attention.hpp"
#include "cuda_calibrate/host/page_kernels.hpp"
#include "cuda_calibrate/host/stream_kernels.hpp"
#include "cuda_calibrate/measure/backend.hpp"

namespace spillway::calibrate {
namespace {

using testing::ElementsAre;

/// The results of every query head, by definition in double precision: softmax(q k / sqrt(d)) v.
std::vector<double> naive(const CpuAttention& attention, const HostAttention& point, std::int64_t sequence,
                          std::int64_t query_head) {
  const std::int64_t kv_head = query_head / (point.heads.query / point.heads.kv);
  const std::vector<float> query = attention.query(sequence, query_head);
  std::vector<double> weights;
  for (std::int64_t t = 0; t < point.context; ++t) {
    const std::vector<float> key = attention.key(sequence, kv_head, t);
    double score = 0.0;
    for (std::size_t i = 0; i < key.size(); ++i) score += double{query[i]} * double{key[i]};
    weights.push_back(std::exp(score / std::sqrt(static_cast<double>(point.heads.size))));
  }
  double all = 0.0;
  for (const double weight : weights) all += weight;
  std::vector<double> result(query.size());
  for (std::int64_t t = 0; t < point.context; ++t) {
    const std::vector<float> value = attention.value(sequence, kv_head, t);
    const double share = weights[static_cast<std::size_t>(t)] / all;
    for (std::size_t i = 0; i < value.size(); ++i) result[i] += share * double{value[i]};
  }
  return result;
}

/// The error bound of fp32, with u = 2^-24, |q|, |k|, |v| <= 1, head size d <= 128 and n tokens. A score is a sum of d
/// products of at most 1 / sqrt(d) each, so its error is at most (d + 2) u sqrt(d) < 1475 u. Through the exponent of
/// the softmax, each weight gets this as a relative error, and the 4 u of the exponential. Adding n weights and n terms
/// adds n u each. The result is a weighted mean of values within 1, so its error is at most 2 (1475 + 4) u + 2 n u:
/// 2.3e-4 for the longest context here, n = 450.
constexpr double kTolerance = 2.3e-4;

void expect_right(const CpuAttention& attention, const HostAttention& point,
                  const std::vector<std::vector<double>>& expected) {
  std::size_t next = 0;
  for (std::int64_t sequence = 0; sequence < point.batch; ++sequence) {
    for (std::int64_t head = 0; head < point.heads.query; ++head) {
      const std::vector<double>& wanted = expected[next++];
      const std::span<const float> got = attention.result(sequence, head);
      ASSERT_EQ(got.size(), wanted.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], wanted[i], kTolerance) << "sequence " << sequence << " head " << head << " number " << i;
      }
    }
  }
}

std::vector<std::vector<double>> expected_of(const CpuAttention& attention, const HostAttention& point) {
  std::vector<std::vector<double>> all;
  for (std::int64_t sequence = 0; sequence < point.batch; ++sequence) {
    for (std::int64_t head = 0; head < point.heads.query; ++head) {
      all.push_back(naive(attention, point, sequence, head));
    }
  }
  return all;
}

/// The CPUs of this machine, repeated: more threads than CPUs test the division of the work.
std::vector<Cpu> some_cpus(std::size_t count) {
  const std::vector<Cpu> cpus = usable_cpus();
  std::vector<Cpu> some;
  for (std::size_t i = 0; i < count; ++i) some.push_back(cpus[i % cpus.size()]);
  return some;
}

class EveryVariant : public testing::TestWithParam<std::string_view> {
 protected:
  static PageKernels kernels() {
    for (const PageKernels& one : page_kernels()) {
      if (one.extension == GetParam()) return one;
    }
    throw std::logic_error("no such variant");
  }
};

std::vector<std::string_view> variants() {
  std::vector<std::string_view> names;
  for (const PageKernels& one : page_kernels()) names.push_back(one.extension);
  return names;
}

TEST_P(EveryVariant, Attention_IsThatOfTheDefinition) {
  for (const Number number : {Number::bf16, Number::fp16, Number::fp32}) {
    for (const std::int64_t size : {64, 128}) {
      for (const std::int64_t group : {1, 4, 8}) {
        // One token, a page minus one, a page, a page plus one, several pages with an odd remainder.
        for (const std::int64_t context : {1, 15, 16, 17, 83}) {
          const HostAttention point{number, 1, {2 * group, 2, size}, 2, context};
          SCOPED_TRACE(
              fmt::format("number {} size {} group {} context {}", static_cast<int>(number), size, group, context));
          CpuAttention attention(point, kernels(), some_cpus(1), 1, 7);
          const auto expected = expected_of(attention, point);
          EXPECT_GT(attention.run(1), 0.0);
          expect_right(attention, point, expected);
        }
      }
    }
  }
}

// 450 tokens are 29 pages, the last of 2 tokens. Two KV heads of three sequences are 174 pages; among 5 threads every
// run of 34 or 35 pages ends within a sequence, and among 40 threads some sequence has 7 parts.
TEST_P(EveryVariant, SequencesInParts_AreMergedAndCachesTakeTurns) {
  for (const std::size_t threads : {2U, 5U, 40U}) {
    const HostAttention point{Number::bf16, static_cast<std::int64_t>(threads), {8, 2, 128}, 3, 450};
    SCOPED_TRACE(threads);
    CpuAttention attention(point, kernels(), some_cpus(threads), 3, 11);
    const auto first = expected_of(attention, point);
    EXPECT_GT(attention.run(1), 0.0);
    expect_right(attention, point, first);
    const auto second = expected_of(attention, point);
    EXPECT_GT(attention.run(1), 0.0);
    expect_right(attention, point, second);
    EXPECT_NE(first, second);
    // Two calls later the first cache is used again.
    EXPECT_GT(attention.run(2), 0.0);
    expect_right(attention, point, first);
  }
}

TEST_P(EveryVariant, Widen_IsExact) {
  // bf16: 1, -2.5 (0xc020: sign, exponent 128, fraction 0x20/0x80), least normal, least subnormal, infinity.
  const std::array<std::uint16_t, 16> bf16{0x3f80, 0xc020, 0x0080, 0x0001, 0x7f80, 0x8000};
  std::array<float, 16> got{};
  const PageKernels some = kernels();
  some.widen(Number::bf16, reinterpret_cast<const std::byte*>(bf16.data()), 16, got.data());
  EXPECT_THAT(std::vector<float>(got.begin(), got.begin() + 6),
              ElementsAre(1.0F, -2.5F, 0x1p-126F, 0x1p-133F, std::numeric_limits<float>::infinity(), 0.0F));
  EXPECT_TRUE(std::signbit(got[5]));
  // fp16: 1, -2.5 (0xc100: exponent 16, fraction 0x100/0x400), largest, least normal, least subnormal, 3 of them.
  const std::array<std::uint16_t, 16> fp16{0x3c00, 0xc100, 0x7bff, 0x0400, 0x0001, 0x8003};
  some.widen(Number::fp16, reinterpret_cast<const std::byte*>(fp16.data()), 16, got.data());
  EXPECT_THAT(std::vector<float>(got.begin(), got.begin() + 6),
              ElementsAre(1.0F, -2.5F, 65504.0F, 0x1p-14F, 0x1p-24F, -3 * 0x1p-24F));
  std::array<float, 16> fp32{};
  for (std::size_t i = 0; i < fp32.size(); ++i) fp32[i] = 0.1F * static_cast<float>(i);
  some.widen(Number::fp32, reinterpret_cast<const std::byte*>(fp32.data()), 16, got.data());
  EXPECT_EQ(got, fp32);
}

// exp is taken of differences from 0 down to where floats end; the polynomial is good to 2e-7 of the value, and the
// difference itself, rounded, to u |x| = 87 * 2^-24 = 5.2e-6 of it.
TEST_P(EveryVariant, Weights_AreExponentials) {
  for (int start = 0; start < 90; ++start) {
    for (const std::int64_t tokens : {1, 5, 16}) {
      std::array<float, kPageTokens> scores{};
      double sum = 0.0;
      for (std::size_t t = 0; t < scores.size(); ++t) {
        scores[t] = 3.0F - static_cast<float>(start) - 0.0625F * static_cast<float>(t);
      }
      const auto before = scores;
      const float got = kernels().weights(scores.data(), tokens, 3.0F);
      for (std::size_t t = 0; t < static_cast<std::size_t>(tokens); ++t) {
        const double wanted = std::exp(double{before[t]} - 3.0);
        EXPECT_NEAR(scores[t], wanted, wanted * 6e-6 + 0x1p-125) << before[t];
        sum += wanted;
      }
      EXPECT_NEAR(got, sum, sum * 1e-5 + 16 * 0x1p-125);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Host, EveryVariant, testing::ValuesIn(variants()),
                         [](const auto& variant) { return std::string(variant.param); });

TEST(PageKernels, PlainCode_IsTheLastResort) {
  EXPECT_EQ(page_kernels().back().extension, "scalar");
  EXPECT_EQ(best_page_kernels().extension, page_kernels().front().extension);
}

TEST(StreamKernels, TriadAndSum_AreThoseOfTheirFormulas) {
  for (const std::size_t count : {0U, 1U, 31U, 32U, 33U, 100U}) {
    std::vector<double> a(count + 1, -1.0);
    std::vector<double> b(count);
    std::vector<double> c(count);
    for (std::size_t i = 0; i < count; ++i) {
      b[i] = static_cast<double>(i);
      c[i] = static_cast<double>(i * i);
    }
    stream_triad(a.data(), b.data(), c.data(), static_cast<std::int64_t>(count));
    double sum = 0.0;
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_EQ(a[i], b[i] + 3.0 * c[i]);
      sum += c[i];
    }
    EXPECT_EQ(a[count], -1.0);
    EXPECT_EQ(stream_sum(c.data(), static_cast<std::int64_t>(count)), sum);  // integers: exact in any order
  }
}

}  // namespace
}  // namespace spillway::calibrate
