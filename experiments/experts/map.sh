#!/usr/bin/env bash
# Where to keep experts that do not fit a GPU: prints the tables of README.md. gpt-oss-120b, one request at a time, decode
# tokens/s by memory of the GPU, bandwidth of the host's memory and locality of experts.
# Usage: map.sh [SPILLWAY]. Takes 10 s of CPU time.
set -euo pipefail
spillway=${1:-spillway}
here=$(dirname "${BASH_SOURCE[0]}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# Servers of one or more GPUs like an RTX 4090, whose memory is varied, and a host whose memory bandwidth is varied.
hardware() {  # GB of the GPU, GB/s of the host -> server
  local name=$1-$2
  sed 's/"memory": {"value": [0-9]*/"memory": {"value": '"$1"'000000000/' "$here/rtx4090-reduce.json" >"$folder/gpu-$name.json"
  sed -e 's/"dram_peak": {"value": [0-9.e]*/"dram_peak": {"value": '"$2"'e9/' \
    -e 's/"dram_bandwidth": {"value": [0-9.e]*/"dram_bandwidth": {"value": '"$(($2 * 8 / 10))"'e9/' \
    "$here/xeon-6454s-amx-host.json" >"$folder/host-$name.json"
  sed -e "s/rtx4090-reduce.json/gpu-$name.json/; s/xeon-6454s-amx-host.json/host-$name.json/" "$here/kt-4090-4.json" >"$folder/$name.json"
  echo "$folder/$name.json"
}

# Decode tokens/s, or - where the model does not fit.
speed() {  # GB of the GPU, GB/s of the host, key=value...
  local server
  server=$(hardware "$1" "$2")
  shift 2
  "$spillway" run latency_model=roofline engine=none engine.gpu_memory_utilization=0.97 hardware="$server" \
    workload.trace=sharegpt workload.input_tokens=128 workload.output_tokens=256 workload.concurrency=1 \
    workload.requests=2 --format csv "$@" 2>/dev/null |
    awk -F, '$1 == "mean_tpot_ms" { printf "%.1f", 1000 / $2; found = 1 } END { if (!found) printf "-" }' || true
}

moe=model=gpt-oss-120b
sizes=(16 24 48)
bandwidths=(50 100 200 400 800)
localities=(0 0.4 0.8)

echo "| GB of the GPU | locality | whole layers | awaited | loaded ahead | cache with CPU: 50 GB/s | 100 | 200 | 400 | 800 |"
echo "|---|---|---|---|---|---|---|---|---|---|"
for size in "${sizes[@]}"; do
  for locality in "${localities[@]}"; do
    row="| $size | $locality | $(speed "$size" 100 $moe policy=deepspeed) |"
    row="$row $(speed "$size" 100 $moe policy=expert-cache policy.miss=wait experts.locality="$locality") |"
    row="$row $(speed "$size" 100 $moe policy=mixtral-offloading experts.locality="$locality") |"
    for bandwidth in "${bandwidths[@]}"; do
      row="$row $(speed "$size" "$bandwidth" $moe policy=expert-cache experts.locality="$locality") |"
    done
    echo "$row"
  done
done

echo
echo "| GB of the GPU | host, GB/s | llama.cpp | KTransformers | Fiddler | two GPUs: llama.cpp | KTransformers | dense model of 14B |"
echo "|---|---|---|---|---|---|---|---|"
for size in "${sizes[@]}"; do
  for bandwidth in "${bandwidths[@]}"; do
    row="| $size | $bandwidth |"
    for policy in llama-cpp-moe "ktransformers policy.placement=frequency" fiddler; do
      # shellcheck disable=SC2086  # several arguments
      row="$row $(speed "$size" "$bandwidth" $moe policy=$policy) |"
    done
    for policy in llama-cpp-moe "ktransformers policy.placement=frequency"; do
      # shellcheck disable=SC2086  # several arguments
      row="$row $(speed "$size" "$bandwidth" $moe policy=$policy tensor_parallel=2) |"
    done
    row="$row $(speed "$size" "$bandwidth" model="$here/qwen3-14b-q4.json" policy=vllm) |"
    echo "$row"
  done
done
