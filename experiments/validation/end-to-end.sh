#!/usr/bin/env bash
# Simulates measured settings of whole servers (dense models) and prints the errors of TPOT and TTFT as tables.
#
#   experiments/validation/end-to-end.sh [--rows] [DATA] [key=value ...]
#
# DATA/e2e/silicon_visible.csv holds the measurements (default: ../shared/data): ai-dynamo/aiconfigurator 095f58a,
# silicon_sample.csv, Apache-2.0. --rows prints every setting too. key=value changes every run, such as
# engine.overheads=false. A row that repeats another measurement counts once. The 21 rows of Llama-3.1-8B-Instruct-FP8 on
# H200 contradict the others and do not count.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. experiments/validation/error-table.sh
take_arguments "$@"

# One line per setting: system backend model format tp isl osl concurrency varies ttft tpot. Clients of the rows of
# 2025-10 draw lengths from 0.8 to 1 of the nominal ones; the others send nominal lengths.
awk -F, 'NR == 1 { for (i = 1; i <= NF; ++i) at[$i] = i; next }
  $at["model_path"] ~ /Llama-3.1-(8B|70B)|Qwen3-32B/ && $at["model_path"] !~ /Instruct-FP8/ {
    key = $at["system"] " " $at["backend"] " " $at["silicon_ttft_ms"] " " $at["silicon_tpot_ms"]
    if (seen[key]++) next
    clients = $at["concurrency"] != "" ? $at["concurrency"] : $at["batch_size"]
    print $at["system"], $at["backend"], $at["model_path"], $at["gemm_quant_mode"], $at["tp_size"], $at["isl"],
      $at["osl"], clients, ($at["source_kind"] ~ /^csv/), $at["silicon_ttft_ms"], $at["silicon_tpot_ms"] }' "$table" \
  >"$work/settings.txt"

declare -A gpus=([h100_sxm]=h100-80gb-sxm [h200_sxm]=h200-141gb)
declare -A engines=([vllm]=vllm-0.11 [trtllm]=tensorrt-llm-1 [sglang]=sglang-0.5)
declare -A models=([meta-llama/Llama-3.1-70B]=llama-3.1-70b [meta-llama/Llama-3.1-8B-Instruct]=llama-3.1-8b
  [Qwen/Qwen3-32B]=$data/models/Qwen--Qwen3-32B.json)

# The number of tokens on average, as a workload of lengths.
lengths() {  # nominal varies
  if [[ $2 == 1 ]]; then echo "uniform($((($1 * 9 + 5) / 10)),0.111)"; else echo "$1"; fi
}

# Ten requests per client, as the benchmark clients of these rows send. KV is in fp8 where the weights are per tensor:
# with 16 bits, the rows with the longest contexts would not fit. The settings of the servers are not stated.
while read -r system backend model format tp isl osl clients varies ttft tpot; do
  kv=auto
  if [[ $format == fp8 ]]; then kv=fp8; fi
  simulated=$(build/release/spillway run policy=vllm hardware="${gpus[$system]}" engine="${engines[$backend]}" \
    model="${models[$model]}" engine.quantization="$format" memory.kv_dtype="$kv" tensor_parallel="$tp" \
    workload.trace=uniform workload.input_tokens="$(lengths "$isl" "$varies")" \
    workload.output_tokens="$(lengths "$osl" "$varies")" workload.concurrency="$clients" \
    workload.requests=$((10 * clients)) engine.max_num_batched_tokens=8192 engine.max_num_seqs=1024 \
    engine.prefix_caching=false "${changes[@]}" --json --progress off | means)
  echo "$system $backend $model $format $tp $isl $osl $clients $ttft $tpot $simulated"
done <"$work/settings.txt" >"$work/results.txt"

if $rows; then
  echo "| system | server | model | weights | GPUs | tokens in / out | in flight | TPOT, measured (ms) | error | TTFT, measured (ms) | error |"
  echo "|---|---|---|---|---|---|---|---|---|---|---|"
  sort -k1,3 -k5,5n -k6,8n "$work/results.txt" | awk '{
    printf "| %s | %s | %s | %s | %d | %d / %d | %d | %.2f | %+.1f%% | %.0f | %+.0f%% |\n", $1, $2, $3, $4, $5, $6, $7,
      $8, $10, 100 * ($12 / $10 - 1), $9, 100 * ($11 / $9 - 1) }'
  echo
fi

echo "| system, server, model, GPUs | rows | TPOT: bias / median / p90 / worst | TTFT: the same |"
echo "|---|---|---|---|"
cut -d' ' -f1-5 "$work/results.txt" | sort -u -k1,3 -k5,5n | while read -r system backend model format tp; do
  awk -v key="$system $backend $model $format $tp" '$1 " " $2 " " $3 " " $4 " " $5 == key' "$work/results.txt" |
    line "$system, $backend, ${model#*/} $format, $tp"
done
line "all" <"$work/results.txt"
