#!/usr/bin/env bash
# Which chunks should leave on real conversations? Prints the table of README.md: LRU, retention value and farthest
# next use where GPU and host hold 0.3, 1 and 3 times what the conversations need.
# Usage: real_turns.sh [SPILLWAY] [FOLDER]. FOLDER holds sharegpt-turns-1000.csv and mooncake-synthetic.jsonl. Without
# them the table has the paper's workload alone. Takes 45 s on one core of an Intel Xeon.
set -euo pipefail
spillway=${1:-spillway}
traces=${2:-$(dirname "${BASH_SOURCE[0]}")/../../../shared/data/traces}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

policies="lru retention farthest-next-use"
gpu=16  # GB of KV on each GPU, or the whole cache if it is smaller. The host has the rest of the cache.
chat=(policy=pensieve engine=vllm-0.2.0 model=llama-2-13b-kv10 hardware=a100-80gb-pcie engine.max_model_len=16384
  workload.max_context=16384 workload.arrival=poisson warmup=10% replications=3)
documents=(policy=pensieve engine=vllm-0.2.0 model=llama-3.1-8b hardware=h100-80gb-sxm tensor_parallel=8 warmup=10%)
unlimited=memory.host_cache=4000GB

run() {
  "$spillway" run "$@" 2>"$folder/errors" || { cat "$folder/errors" >&2; exit 1; }
}

# Requests of a run with an unlimited cache -> mean GB per GPU that its conversations need. A conversation needs the KV
# of a turn's prompt and answer from the arrival of the turn to that of the next turn; of the last turn, to its end. The
# mean is over the time from a tenth of the last arrival to the last arrival.
need() {  # file, bytes per token and GPU
  awk -F, -v bytes="$2" '
    NR == 1 { for (i = 1; i <= NF; ++i) at[$i] = i; next }
    $at["outcome"] != "finished" { next }
    {
      run = $at["replication"]; n = ++turns[run]
      who[run, n] = $at["conversation"]; turn[run, n] = $at["turn"]
      begin[run, n] = $at["arrival_ns"] / 1e9; end[run, n] = $at["end_ns"] / 1e9
      tokens[run, n] = $at["input_tokens"] + $at["output_tokens"]
      from[run, who[run, n], turn[run, n]] = begin[run, n]
      if (begin[run, n] > last[run]) last[run] = begin[run, n]
    }
    END {
      for (run in turns) {
        for (n = 1; n <= turns[run]; ++n) {
          next_turn = run SUBSEP who[run, n] SUBSEP turn[run, n] + 1
          until = next_turn in from ? from[next_turn] : end[run, n]
          if (until > last[run]) until = last[run]
          start = begin[run, n] > last[run] / 10 ? begin[run, n] : last[run] / 10
          if (until > start) sum += tokens[run, n] * (until - start) / (0.9 * last[run])
        }
        ++runs
      }
      printf "%.1f", sum / runs * bytes / 1e9
    }' "$1"
}

# One row per size of the cache. Cells: LRU, retention value, farthest next use.
rows() {  # name, bytes per token and GPU, key=value...
  local name=$1 bytes=$2
  shift 2
  run "$@" memory.gpu_kv="${gpu}GB" "$unlimited" --requests-out "$folder/all.csv" >"$folder/run"
  local needed
  needed=$(need "$folder/all.csv" "$bytes")
  for times in 0.3 1 3; do
    local memory
    memory=$(awk -v all="$needed" -v times="$times" -v gpu="$gpu" 'BEGIN {
      all *= times
      if (gpu > all) gpu = all
      printf "memory.gpu_kv=%.1fGB memory.host_cache=%.1fGB", gpu, all - gpu
    }')
    for policy in $policies; do
      # shellcheck disable=SC2086  # two settings
      run "$@" $memory policy.eviction="$policy" --format csv >"$folder/$policy"
    done
    awk -F, -v name="$name" -v size="$times x $needed GB" '
      { value[FILENAME, $1] = $2 }
      FNR == 1 { file[++files] = FILENAME }
      function cells(metric, scale, form,   i, text) {
        for (i = 1; i <= files; ++i) text = text (i > 1 ? " / " : "") sprintf(form, value[file[i], metric] * scale)
        return text
      }
      END { printf "| %s | %s | %s | %s | %s | %s |\n", name, size, cells("history_gpu_hit_fraction", 100, "%.1f"),
                   cells("history_host_hit_fraction", 100, "%.1f"), cells("recomputed_history_tokens", 0.001, "%.0f"),
                   cells("mean_normalised_ms_per_token", 1, "%.1f") }' \
      "$folder/lru" "$folder/retention" "$folder/farthest-next-use"
  done
}

echo "| workload | GPU and host | history on the GPU, % | of the rest on the host, % | computed again, 1,000 tokens | normalised latency, ms/token |"
echo "|---|---|---|---|---|---|"
rows "the paper's" 204800 "${chat[@]}" workload.trace=sharegpt-chat workload.rate=2.5 workload.requests=8000
turns=$traces/sharegpt-turns-1000.csv
if [[ -f $turns ]]; then
  rows "real turns" 204800 "${chat[@]}" workload.trace="$turns" workload.rate=1 workload.think_time="exponential(60s)"
  rows "real turns, long think times" 204800 "${chat[@]}" workload.trace="$turns" workload.rate=1 \
    workload.think_time="lognormal(60s,6.5)"
fi
mooncake=$traces/mooncake-synthetic.jsonl
[[ -f $mooncake ]] || exit 0

# Nobody knows the next turn of a log before its time, farthest next use neither. So the turns get the think times that
# they have with an unlimited cache: they come at the recorded times, as far as the answers are there.
run "${documents[@]}" workload.trace="$mooncake" workload.sessions=prefix memory.gpu_kv="${gpu}GB" "$unlimited" \
  --requests-out "$folder/log.csv" >"$folder/run"
awk -F, '
  NR == 1 { for (i = 1; i <= NF; ++i) at[$i] = i; next }
  $at["outcome"] == "finished" {
    printf "%d %d %.9f %.9f %d %d\n", $at["conversation"], $at["turn"], $at["arrival_ns"] / 1e9, $at["end_ns"] / 1e9,
           $at["input_tokens"], $at["output_tokens"]
  }' "$folder/log.csv" | sort -n -k1,1 -k2,2 | awk '
  {
    time = $2 > 1 ? sprintf("\"think_s\": %.9f", $3 - end) : sprintf("\"arrival_s\": %.9f", $3)
    printf "{\"conversation\": %d, \"turn\": %d, %s, \"input_tokens\": %d, \"output_tokens\": %d}\n",
           $1, $2, time, $5, $6
    end = $4
  }' >"$folder/sessions.jsonl"
rows "Mooncake's sessions" 16384 "${documents[@]}" workload.trace="$folder/sessions.jsonl"
echo
echo "Mooncake's requests that run: $(wc -l <"$folder/sessions.jsonl") of $(wc -l <"$mooncake")"
