#!/usr/bin/env bash
# Replays the log of vLLM 0.19 on an RTX 4090 unchanged, then with one change at a time, to show the effect of each.
#
#   experiments/validation/variations.sh [DATA]     DATA: folder with engine-logs/ and traces/; default ../shared/data
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
data=${1:-../shared/data}
log=$data/engine-logs/rtx4090-llama31-8b
ids=workload.trace=$data/traces/sharegpt-llama31-8b-300.jsonl.gz
if [[ ! -d $log ]]; then
  echo "error: the log $log does not exist; see experiments/validation/README.md" >&2
  exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
build/release/spillway calibrate fit "$log"/{dense,attention,per_sequence}.csv --base rtx4090-24gb \
  --model llama-3.1-8b -o "$work/engine.json" >/dev/null 2>&1

# Prints the errors of the means and the largest error of a percentile.
row() {  # name key=value...
  local name=$1
  shift
  build/release/spillway validate "$log" hardware="$work/engine.json" "$@" --json >"$work/out.json"
  awk -v name="$name" '
    /"metrics": \{/ && !done { inside = 1 }
    inside && /"(mean|p[0-9]+)_[a-z0-9]+_ms": \{/ { split($1, part, "\""); metric = part[2] }
    inside && /"error":/ {
      error = $2 * 100
      if (metric ~ /^mean/) mean[metric] = error
      else if ((error < 0 ? -error : error) > worst) { worst = error < 0 ? -error : error; at = metric }
    }
    /"per_request"/ { inside = 0; done = 1 }
    END { printf "| %s | %+.1f%% | %+.1f%% | %+.1f%% | %.1f%% (%s) |\n", name, mean["mean_ttft_ms"], mean["mean_tpot_ms"],
                 mean["mean_e2e_ms"], worst, at }' "$work/out.json"
}

block=2097152  # bytes: 16 tokens, 32 layers, 8 KV heads of 128, K and V, 2 bytes
echo "| what is changed | mean TTFT | mean TPOT | mean E2E | largest of the percentiles |"
echo "|---|---|---|---|---|"
row "nothing" "$ids"
row "no token ids, so no prefix hits"
row "2,511 KV blocks, as the rule computes them, in place of 2,588" "$ids" memory.gpu_kv=$((2511 * block))B
row "2,666 KV blocks, 3% more" "$ids" memory.gpu_kv=$((2666 * block))B
row "admission without free blocks for the whole input" "$ids" policy.reserve_full_input=false
row "1 ms of CPU time per iteration that nothing hides" "$ids" engine=./experiments/validation/host-1ms.json
row "kernels borrowed from the A100 in place of the engine's tables" "$ids" latency_model=fitted
