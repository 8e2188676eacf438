#!/usr/bin/env bash
# Which router? Prints the tables of README.md: latency and prefix hits of 8 replicas behind each router, on a trace whose
# prompts repeat and on one whose prompts do not.
# Usage: routers.sh SPILLWAY MOONCAKE.jsonl AZURE.csv. Takes 20 s on two cores of an AMD EPYC.
set -euo pipefail
if [[ $# -ne 3 ]]; then
  echo "usage: routers.sh SPILLWAY MOONCAKE.jsonl AZURE.csv" >&2
  exit 2
fi
spillway=$1

figures() {  # key=value... -> mean and p99 TTFT, p99 ITL, hits, imbalance
  "$spillway" run policy=vllm model=llama-3.1-8b replicas=8 warmup=10% --format csv "$@" 2>/dev/null | awk -F, '
    { value[$1] = $2 }
    END {
      printf "%.0f | %.0f | %.0f | %.1f%% | %.2f", value["mean_ttft_ms"], value["p99_ttft_ms"], value["p99_itl_ms"],
             100 * value["prefix_cache_hit_fraction"], value["replica_imbalance"]
    }'
}

table() {  # trace file, rates
  local trace=$1
  shift
  echo "| requests/s | router | mean TTFT, ms | p99 TTFT, ms | p99 ITL, ms | prefix hits | imbalance |"
  echo "|---|---|---|---|---|---|---|"
  for rate in "$@"; do
    for router in round-robin random least-outstanding power-of-two least-kv session prefix; do
      echo "| $rate | $router | $(figures "workload.trace=$trace" "workload.rate=$rate" "router=$router") |"
    done
    echo "| $rate | prefix, told after 5 s | $(figures "workload.trace=$trace" "workload.rate=$rate" router=prefix \
      router.staleness=5s) |"
  done
}

echo "Mooncake"
echo
table "$2" 4 8
echo
echo "Azure, code"
echo
table "$3" 40 80
