// Small tables of kernels of an invented GPU, as files that `calibrate` reads.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/paths.hpp"

namespace spillway::test {

/// The H100's profile with its facts but without fits, even if the bundled profile has fits.
inline std::string bare_profile() {
  std::ifstream file(source_dir() + "/hwmodels/profiles/h100-80gb-sxm.json");
  nlohmann::json profile = nlohmann::json::parse(file);
  profile.erase("fitted");
  profile.erase("measurements");
  return profile.dump();
}

/// 30 rows: 5 series (n, k) at an H100's speed.
inline std::string gemm_table() {
  struct Shape {
    double n;
    double k;
  };
  std::string text = "m,n,k,latency_us\n";
  for (const Shape s : {Shape{4096, 4096}, {6144, 4096}, {28672, 4096}, {4096, 14336}, {8192, 8192}}) {
    for (const double m : {1.0, 16.0, 128.0, 512.0, 2048.0, 8192.0}) {
      const double compute = 2e6 * m * s.n * s.k / 6.5e14;
      const double memory = 2e6 * (s.n * s.k + m * s.k + m * s.n) / 2.6e12;
      text += fmt::format("{},{},{},{:.6f}\n", m, s.n, s.k, 4.0 + std::max(compute, memory));
    }
  }
  return text;
}

/// 27 rows of decode and 24 of prefill, for three pairs of heads.
inline std::string attention_table() {
  struct Heads {
    double query;
    double kv;
  };
  std::string text = "batch,q_heads,kv_heads,head_dim,new_tokens,context,latency_us\n";
  for (const Heads heads : {Heads{32, 8}, {64, 8}, {32, 32}}) {
    for (const double batch : {1.0, 8.0, 64.0}) {
      for (const double context : {512.0, 2048.0, 8192.0}) {
        text += fmt::format("{},{},{},128,1,{},{:.6f}\n", batch, heads.query, heads.kv, context,
                            8.0 + 4e6 * batch * context * heads.kv * 128.0 / 2.2e12);
      }
    }
    for (const double batch : {1.0, 4.0}) {
      for (const double length : {128.0, 512.0, 2048.0, 4096.0}) {
        text += fmt::format("{},{},{},128,{},0,{:.6f}\n", batch, heads.query, heads.kv, length,
                            10.0 + 2e6 * batch * heads.query * 128.0 * length * (length + 1.0) / 4.5e14);
      }
    }
  }
  return text;
}

/// 8 rows of two kernels, each taking 2 us + bytes / 2 TB/s: 2e6 bytes take 1 us longer.
inline std::string elementwise_table() {
  std::string text = "kernel,tokens,bytes,latency_us\n";
  for (const char* kernel : {"rmsnorm", "silu"}) {
    for (const int tokens : {1, 10, 100, 1000})
      text += fmt::format("{},{},{},{}\n", kernel, tokens, tokens * 2'000'000, 2 + tokens);
  }
  return text;
}

/// Four layers by tokens, each 80 us + n / 4 us.
inline std::string dense_table() {
  std::string text = "layer,tokens,time_us\n";
  for (const char* layer : {"qkv_proj", "o_proj", "gate_up_proj", "down_proj"}) {
    for (const int tokens : {1, 64, 512, 2048}) text += fmt::format("{},{},{}\n", layer, tokens, 80.0 + 0.25 * tokens);
  }
  return text;
}

/// 34 calls on a grid of chunks of 0, 512 and 2048 after 0 and 1024 tokens, and 0, 1 and 64 decodes of 128 and 4096.
inline std::string engine_attention_table() {
  std::string text = "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n";
  const auto row = [&](int chunk, int before, int decodes, int context) {
    text += fmt::format("{},{},{},{},{}\n", chunk, before, decodes, context,
                        20.0 + 0.05 * chunk + 0.001 * before + 0.002 * decodes * context);
  };
  for (const int decodes : {1, 64}) {
    for (const int context : {128, 4096}) row(0, 0, decodes, context);
  }
  for (const int chunk : {512, 2048}) {
    for (const int before : {0, 1024}) {
      row(chunk, before, 0, 0);
      for (const int decodes : {1, 64}) {
        for (const int context : {128, 4096}) row(chunk, before, decodes, context);
      }
    }
  }
  return text;
}

/// Ten iterations of 5 ms + 10 us per token + 10 ns per token of context + 1 ns per pair.
inline std::string iteration_table() {
  std::string text = "tokens,context,chunk_pairs,time_ms\n";
  for (const int tokens : {8, 64}) {
    for (const int context : {1000, 100'000})
      text += fmt::format("{},{},0,{}\n", tokens, context, 5.0 + 0.01 * tokens + 1e-5 * context);
  }
  for (const int tokens : {512, 1024, 2048}) {
    for (const int context : {4000, 50'000}) {
      const double pairs = 0.5 * tokens * tokens;
      text += fmt::format("{},{},{},{}\n", tokens, context, pairs, 5.0 + 0.01 * tokens + 1e-5 * context + 1e-6 * pairs);
    }
  }
  return text;
}

}  // namespace spillway::test
