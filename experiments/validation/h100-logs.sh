#!/usr/bin/env bash
# Replays the public logs of vLLM 0.23.0 with Qwen3-14B on one H100 and prints the errors as a table.
#
#   experiments/validation/h100-logs.sh [DATA] [key=value ...]
#
# DATA/engine-logs/h100-qwen3-14b holds the logs (default: ../shared/data): one CSV per load with the client's stamps.
# They have no licence, so they are not part of the repository. key=value changes every run, such as engine=vllm-0.19.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
data=../shared/data
if [[ $# -gt 0 && $1 != *=* ]]; then
  data=$1
  shift
fi
logs=$data/engine-logs/h100-qwen3-14b
if [[ ! -d $logs ]]; then
  echo "error: $logs, the folder with the logs, does not exist; see experiments/validation/README.md" >&2
  exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The settings of the log (meta.json). Its prompts are random, so nothing hits the prefix cache.
simulate() {
  build/release/spillway run policy=vllm hardware=h100-80gb-sxm model="$logs/config.json" \
    engine.max_num_batched_tokens=8192 engine.max_num_seqs=256 memory.gpu_kv="18038 blocks" \
    engine.prefix_caching=false "$@" --requests-out "$work/simulated.csv" --progress off >"$work/out.txt"
}

# Mean, p50 and p99 of the numbers on stdin, with numpy's interpolation.
statistics() {
  sort -g | awk '{ v[NR - 1] = $1; sum += $1 }
    function quantile(q,  at, low) { at = q * (NR - 1); low = int(at)
      return low + 1 < NR ? v[low] + (at - low) * (v[low + 1] - v[low]) : v[low] }
    END { print sum / NR, quantile(0.5), quantile(0.99) }'
}

# The column of the simulator's rows, in order of the head line.
column() { awk -F, -v name="$1" 'NR == 1 { for (i = 1; i <= NF; ++i) at[$i] = i; next } { print $at[name] }'; }

echo "| log | TTFT mean / p50 / p99, measured (ms) | error | TPOT, measured (ms) | error | E2E, measured (ms) | error |"
echo "|---|---|---|---|---|---|---|"
for log in rate_2rps rate_4rps rate_6rps rate_8rps w5_agg12; do
  zcat "$logs/$log.csv.gz" >"$work/measured.csv"
  awk -F, 'NR == 1 { for (i = 1; i <= NF; ++i) at[$i] = i; print "arrival_s,input_tokens,output_tokens"; next }
    { print $at["send_s"] "," $at["input_tokens"] "," $at["output_tokens"] }' "$work/measured.csv" |
    { read -r head; echo "$head"; sort -t, -k1,1 -g; } >"$work/trace.csv"
  simulate workload.trace="$work/trace.csv" "$@"
  row="| $log"
  for metric in ttft tpot e2e; do
    measured=$(awk -F, -v metric="$metric" 'NR == 1 { for (i = 1; i <= NF; ++i) at[$i] = i; next }
      { first = $at["first_chunk_s"] - $at["send_s"]; all = $at["last_chunk_s"] - $at["send_s"]
        print 1e3 * (metric == "ttft" ? first : metric == "e2e" ? all : (all - first) / ($at["output_tokens"] - 1)) }' \
      "$work/measured.csv" | statistics)
    simulated=$(column "${metric}_ms" <"$work/simulated.csv" | statistics)
    row+=$(awk -v m="$measured" -v s="$simulated" 'BEGIN { split(m, a, " "); split(s, b, " ")
      printf " | %.1f / %.1f / %.1f | %+.1f%% / %+.1f%% / %+.1f%%", a[1], a[2], a[3], 100 * (b[1] / a[1] - 1),
        100 * (b[2] / a[2] - 1), 100 * (b[3] / a[3] - 1) }')
  done
  echo "$row |"
done

# The client of the last log holds 256 requests in flight. So do 4,000 requests at once with 256 in the batch; the first
# and the last ones do not count.
measured=$(zcat "$logs/w5_agg24.csv.gz" | awk -F, 'NR == 1 { for (i = 1; i <= NF; ++i) at[$i] = i; next }
  $at["last_chunk_s"] >= 50 && $at["last_chunk_s"] < 800 { tokens += $at["output_tokens"] } END { print tokens / 750 }')
simulate workload.trace=uniform workload.input_tokens="uniform(990,0.06)" workload.output_tokens=128 \
  workload.requests=4000 workload.arrival=all-at-once "$@"
simulated=$(column end_ns <"$work/simulated.csv" | sort -g | sed -n '801p;3401p' | xargs |
  awk '{ print 2600 * 128 / (($2 - $1) * 1e-9) }')
awk -v m="$measured" -v s="$simulated" 'BEGIN {
  printf "\nSaturated (w5_agg24): %.0f output tokens/s measured, %.0f simulated: %+.1f%%\n", m, s, 100 * (s / m - 1) }'
