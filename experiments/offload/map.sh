#!/usr/bin/env bash
# When does a host tier of the prefix cache help? Prints the tables of README.md: mean end-to-end latency with the tier
# over that without, by share of repeated prompts, context, size of the tier and connector, and by link bandwidth.
# Usage: map.sh [SPILLWAY]. Takes 28 s on two cores of an AMD EPYC.
set -euo pipefail
spillway=${1:-spillway}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

requests=600
working_set=262144  # tokens of all prompts that repeat: 34 GB of KV, where the GPU has 10
tokens_per_s=12000  # of prompts that arrive

# Prompts of `context` tokens and 16 more. A share of them is drawn from the working set, the others are new.
write_workload() {  # share of repeated prompts in percent, context -> file
  awk -v share="$1" -v context="$2" -v requests="$requests" -v set="$working_set" 'BEGIN {
    srand(1)
    groups = int(set / context)
    for (i = 1; i <= requests; ++i) {
      repeats = int(i * share / 100) > int((i - 1) * share / 100)
      id = repeats ? int(rand() * groups) : groups + i
      printf "{\"input_tokens\": %d, \"output_tokens\": 128, \"prefix_ids\": [%d], \"prefix_block_tokens\": %d}\n",
             context + 16, id, context
    }
  }' >"$folder/$1-$2.jsonl"
  echo "$folder/$1-$2.jsonl"
}

# Mean end-to-end latency in ms.
latency() {  # workload context key=value...
  local workload=$1 context=$2
  shift 2
  "$spillway" run policy=vllm model=llama-3.1-8b memory.gpu_kv=10GB engine.prefix_caching=true \
    engine.max_model_len=40000 workload.trace="$workload" workload.arrival=poisson warmup=25% \
    workload.rate="$(awk -v c="$context" -v t="$tokens_per_s" 'BEGIN { print t / c }')" --format csv "$@" 2>/dev/null |
    awk -F, '$1 == "mean_e2e_ms" { print $2 }'
}

# Keys of the ideal tier (none), or of the connector with copies per layer or per block of all layers.
connector() {
  if [[ $1 == none ]]; then echo engine.kv_connector=none; else echo "engine.kv_connector_layout=$1"; fi
}

over() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", a / b }'; }

echo "| repeated prompts | context | none, ms | per layer, 2 GB | per layer, 17 GB | per layer, 51 GB | per block, 17 GB | per block, 51 GB | ideal, 17 GB | ideal, 51 GB |"
echo "|---|---|---|---|---|---|---|---|---|---|"
for context in 1024 4096 16384; do
  for share in 0 25 50 75 95; do
    workload=$(write_workload "$share" "$context")
    none=$(latency "$workload" "$context")
    row="| $share% | $context | $(printf %.0f "$none") |"
    for tier in per-layer:2GB per-layer:17GB per-layer:51GB cross-layer:17GB cross-layer:51GB none:17GB none:51GB; do
      with=$(latency "$workload" "$context" "$(connector "${tier%:*}")" "memory.host_cache=${tier#*:}")
      row="$row $(over "$with" "$none") |"
    done
    echo "$row"
  done
done

# Long answers fill a small tier with blocks that nobody may evict.
awk 'BEGIN {
  srand(2)
  for (i = 0; i < 6000; ++i) {
    printf "{\"input_tokens\": 600, \"output_tokens\": 400, \"prefix_ids\": [%d], \"prefix_block_tokens\": 592}\n", int(rand() * 400)
  }
}' >"$folder/long.jsonl"
echo
echo "| copies | tier | mean TTFT, ms | mean end-to-end latency, ms | host hits | refused stores | CPU time of scheduler, s | of starting copies, s |"
echo "|---|---|---|---|---|---|---|---|"
for tier in cross-layer:0GB cross-layer:1GB cross-layer:2GB cross-layer:4GB cross-layer:8GB cross-layer:40GB per-layer:40GB; do
  layout=${tier%:*}
  case $layout in cross-layer) copies="per block" ;; *) copies="per layer" ;; esac
  "$spillway" run policy=vllm model=llama-3.1-8b memory.gpu_kv=20GB engine.prefix_caching=true engine.max_num_seqs=512 \
    workload.trace="$folder/long.jsonl" workload.arrival=poisson workload.rate=20 memory.host_cache="${tier#*:}" \
    engine.kv_connector_layout="$layout" --format csv \
    2>/dev/null |
    awk -F, -v layout="$copies" -v size="${tier#*:}" '{ value[$1] = $2 }
      END { printf "| %s | %s | %.0f | %.0f | %.1f%% | %.0f | %.1f | %.1f |\n", layout, size, value["mean_ttft_ms"], value["mean_e2e_ms"],
                   100 * value["host_cache_hit_fraction"], value["connector_refused_stores"], value["connector_cpu_s"], value["connector_copy_cpu_s"] }'
done

# No prompt repeats, and the KV fits the GPU: the tier only costs.
awk 'BEGIN { for (i = 0; i < 4000; ++i) print "{\"input_tokens\": 1000, \"output_tokens\": 200}" }' >"$folder/new.jsonl"
echo
echo "| engine | requests/s | none: finished per s, mean TTFT, ms | per block | per layer |"
echo "|---|---|---|---|---|"
for engine in vllm-0.11 vllm-0.23; do
  for rate in 10 20 30; do
    row="| $engine | $rate |"
    for tier in none cross-layer per-layer; do
      size=$([[ $tier == none ]] && echo 0GB || echo 40GB)
      row="$row $("$spillway" run policy=vllm engine=$engine model=llama-3.1-8b engine.prefix_caching=true \
        workload.trace="$folder/new.jsonl" workload.arrival=poisson workload.rate="$rate" "$(connector "$tier")" \
        memory.host_cache="$size" --format csv 2>/dev/null |
        awk -F, '{ value[$1] = $2 } END { printf "%.2f, %.0f", value["request_throughput_per_s"], value["mean_ttft_ms"] }') |"
    done
    echo "$row"
  done
done

echo
echo "| link, GB/s each way | ideal, 51 GB | per block, 51 GB | per layer, 51 GB |"
echo "|---|---|---|---|"
profile=$(dirname "${BASH_SOURCE[0]}")/../../hwmodels/profiles/a100-80gb-sxm.json
workload=$(write_workload 75 4096)
tokens_per_s=6000
none=$(latency "$workload" 4096 hardware=a100-80gb-sxm)
for bandwidth in 1 2 4 8 16 32; do
  awk -v value="${bandwidth}e9" '
    link { sub(/"value": [0-9.e+]+/, "\"value\": " value) }
    { link = $0 ~ /"(h2d|d2h)_bandwidth(_duplex)?": \{/; print }' "$profile" >"$folder/link.json"
  row="| $bandwidth |"
  for tier in none cross-layer per-layer; do
    with=$(latency "$workload" 4096 hardware="$folder/link.json" "$(connector $tier)" memory.host_cache=51GB)
    row="$row $(over "$with" "$none") |"
  done
  echo "$row"
done
