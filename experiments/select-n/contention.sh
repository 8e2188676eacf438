#!/usr/bin/env bash
# How do GPUs share a bus? Prints the tables of README.md: 1, 2 and 4 GPUs of a10-pcie-4 with DeepSpeed and with Select-N,
# coordinated or not; then two GPUs whose memory leaves little choice.
# Usage: contention.sh [SPILLWAY]. Takes 10 s on one core of an AMD EPYC.
set -euo pipefail
spillway=${1:-spillway}

row() {  # model GPUs requests/s-per-GPU SLO-in-ms name key=value...
  local model=$1 gpus=$2 rate=$3 slo=$4 name=$5
  shift 5
  "$spillway" run hardware=a10-pcie-4 model="$model" replicas="$gpus" slo.tpot_ms="$slo" workload.trace=sharegpt \
    workload.requests=$((300 * gpus)) workload.rate="$(awk "BEGIN { print $rate * $gpus }")" --format csv "$@" 2>/dev/null |
    awk -F, -v gpus="$gpus" -v rate="$rate" -v slo="$slo" -v name="$name" '
      { value[$1] = $2 }
      END {
        printf "| %s | %s | %s | %.2f | %.2f | %.1f%% | %.0f | %.1f | %.2f | %.1f | %s | %s |\n", gpus, rate, name,
               value["mean_tpot_ms"] / slo, value["p99_tpot_ms"] / slo, 100 * value["slo_met_fraction"],
               value["output_throughput_tokens_per_s"], value["mean_interval_layers"],
               value["peak_host_layer_bytes"] / 1e9, value["moved_h2d_bytes"] / 1e12,
               value["refused_requests"] == "" ? "-" : value["refused_requests"],
               value["rerouted_requests"] == "" ? "-" : value["rerouted_requests"]
      }'
}

head_of_table() {
  echo
  echo "| GPUs | requests/s per GPU | policy | mean TPOT / SLO | p99 TPOT / SLO | SLO met | output tokens/s | mean interval | on the host, GB per GPU | copied, TB | refused | sent on |"
  echo "|---|---|---|---|---|---|---|---|---|---|---|---|"
}

alone=policy.coordinate=false
echo "OPT-6.7B, SLO of 100 ms"
head_of_table
for gpus in 1 2 4; do
  row opt-6.7b "$gpus" 0.5 100 "Select-N" policy=select-n policy.slo=100ms
  [[ $gpus -eq 1 ]] || row opt-6.7b "$gpus" 0.5 100 "Select-N, each for itself" policy=select-n policy.slo=100ms $alone
  row opt-6.7b "$gpus" 0.5 100 DeepSpeed policy=deepspeed
done
echo
echo "OPT-13B, SLO of 800 ms"
head_of_table
for rate in 0.01 0.03 0.1; do
  row opt-13b 2 "$rate" 800 "Select-N" policy=select-n policy.slo=800ms
  row opt-13b 2 "$rate" 800 "Select-N, each for itself" policy=select-n policy.slo=800ms $alone
  row opt-13b 2 "$rate" 800 DeepSpeed policy=deepspeed
done
