#!/usr/bin/env bash
# Shows the effect of Orca's buddy allocator. Compares Orca (Oracle) with reservations rounded up to powers of two, the
# sizes that a buddy allocator provides, with exact reservations and with vLLM.
#
#   experiments/orca/buddy.sh [SPILLWAY]      default build/release/spillway
set -euo pipefail
spillway=$(realpath "${1:-build/release/spillway}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
"$spillway" trace synth workload.trace=sharegpt workload.requests=2000 workload.rate=1 -o exact.csv 2>/dev/null
awk -F, -v OFS=, '
  NR == 1 { print "input_tokens", "output_tokens", "max_new_tokens"; next }
  {
    size = 1
    while (size < $2 + $3) size *= 2
    print $2, $3, (size > 2048 ? 2048 : size) - $2
  }' exact.csv >buddy.csv
cut -d, -f2,3 exact.csv >lengths.csv

# Prints the mean batch and the mean normalised latency at rising rates.
row() {  # name trace key=value...
  local name=$1 trace=$2 rate
  shift 2
  for rate in 1.4 1.6 1.8 2 2.4 2.8 3.2 4; do
    "$spillway" run model=opt-13b hardware=a100-80gb-sxm engine=vllm-0.2.0 memory.gpu_kv=12GB engine.max_model_len=2048 \
      warmup=10% workload.trace="./$trace" workload.rate=$rate "$@" --format csv 2>/dev/null |
      awk -F, -v name="$name" -v rate=$rate '
        $1 == "mean_batch_requests" { batch = $2 }
        $1 == "mean_normalised_ms_per_token" { latency = $2 }
        END { printf "%-26s %4.1f requests/s %6.2f at once %8.1f ms per token\n", name, rate, batch, latency }'
  done
}

row "vLLM" lengths.csv policy=vllm-v0 policy.version=0.2.0
row "Orca (Oracle)" lengths.csv policy=orca policy.reserve=max_tokens
row "Orca (Oracle), powers of 2" buddy.csv policy=orca policy.reserve=max_tokens
