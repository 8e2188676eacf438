#!/usr/bin/env bash
# One pool or two? Prints the tables of README.md: the highest rate at which four GPUs meet the SLOs, as four replicas with
# prompts in chunks and as a prefill and a decode pool, over lengths of prompts and answers; then over the link on which KV
# is handed over.
# Usage: pools.sh [SPILLWAY]. Takes 2 min 30 s on one core of an AMD EPYC.
set -euo pipefail
spillway=${1:-spillway}

limit() {  # key=value... -> requests/s; - if no rate meets the SLOs
  { "$spillway" search --max workload.rate --tolerance 2% --slo "$slo" policy=vllm model=llama-3.1-8b \
    hardware=hgx-h100-8 workload.trace=uniform workload.arrival=poisson workload.requests=1000 replications=1 --json \
    "$@" 2>/dev/null || true; } |  # no rate may meet the SLOs
    awk '/"value":/ { gsub(/[^0-9.]/, ""); found = $0; exit } END { printf found == "" ? "-" : "%.1f", found }'
}

row() {  # input output
  local lengths=("workload.input_tokens=$1" "workload.output_tokens=$2")
  local cells="$1 | $2 | $(limit "${lengths[@]}" replicas=4)"
  for chunk in 512 256; do
    cells="$cells | $(limit "${lengths[@]}" replicas=4 "engine.max_num_batched_tokens=$chunk")"
  done
  for prefill in 1 2 3; do
    cells="$cells | $(limit "${lengths[@]}" "prefill_replicas=$prefill" "decode_replicas=$((4 - prefill))" \
      handover.first_token=prefill handover.mode=layers)"
  done
  echo "| $cells |"
}

for slo in "p99_ttft_ms<1000,p99_itl_ms<10" "p99_ttft_ms<1000,p99_itl_ms<20" "p99_ttft_ms<1000,p99_itl_ms<50"; do
  echo "$slo"
  echo
  echo "| input | output | 4 replicas | chunks of 512 | chunks of 256 | 1 + 3 | 2 + 2 | 3 + 1 |"
  echo "|---|---|---|---|---|---|---|---|"
  for input in 512 2048 8192; do
    for output in 64 256 1024; do
      row "$input" "$output"
    done
  done
  echo
done

slo="p99_ttft_ms<1000,p99_itl_ms<20"
echo "The link: 8192 in, 256 out, 3 + 1"
echo
echo "| GB/s per GPU | whole | layer by layer |"
echo "|---|---|---|"
for bandwidth in 50 12.5 3.125 1.25; do
  cells=$bandwidth
  for mode in whole layers; do
    cells="$cells | $(limit workload.input_tokens=8192 workload.output_tokens=256 prefill_replicas=3 decode_replicas=1 \
      handover.first_token=prefill "handover.mode=$mode" handover.link=network "handover.network_bandwidth=$bandwidth")"
  done
  echo "| $cells |"
done
