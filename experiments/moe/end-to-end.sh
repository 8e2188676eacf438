#!/usr/bin/env bash
# Simulates measured settings of whole servers with mixtures of experts and prints the errors of TPOT and TTFT as tables.
#
#   experiments/moe/end-to-end.sh [--rows] [DATA] [key=value ...]
#
# DATA/e2e/silicon_visible.csv holds the measurements (default: ../shared/data): ai-dynamo/aiconfigurator 095f58a,
# silicon_sample.csv, Apache-2.0. --rows prints every setting too. key=value changes every run, such as
# expert_load=power_law:1.2. Aggregated serving only. A row that repeats another measurement counts once. Rows do not
# count that name pipeline parallelism, more than eight GPUs, or other numbers of GPUs for attention and for experts.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. experiments/validation/error-table.sh
take_arguments "$@"

# One line per setting: system backend version model format tp dp ep isl osl concurrency varies ttft tpot.
awk -F, 'NR == 1 { for (i = 1; i <= NF; ++i) at[$i] = i; next }
  $at["mode"] == "agg" && $at["model_path"] ~ /gpt-oss-120b|Qwen3-235B-A22B|MiniMax-M2.5|DeepSeek-(V3|R1)|Kimi-K2/ {
    key = $at["system"] " " $at["backend"] " " $at["silicon_ttft_ms"] " " $at["silicon_tpot_ms"]
    if (seen[key]++) next
    tp = $at["tp_size"]; dp = $at["attention_dp_size"] == "" ? 1 : $at["attention_dp_size"]; ep = $at["moe_ep_size"]
    if ($at["pp_size"] > 1) next
    if (tp * dp > 8 || tp * dp != $at["moe_tp_size"] * ep) next
    clients = $at["concurrency"] != "" ? $at["concurrency"] : $at["batch_size"]
    model = $at["model_path"]; sub(/.*\//, "", model)
    version = $at["backend_version"] == "" ? "-" : $at["backend_version"]
    print $at["system"], $at["backend"], version, model, $at["moe_quant_mode"], tp, dp, ep, $at["isl"], $at["osl"], clients,
      ($at["source_kind"] ~ /^csv/), $at["silicon_ttft_ms"], $at["silicon_tpot_ms"] }' "$table" >"$work/settings.txt"

declare -A gpus=([h100_sxm]=h100-80gb-sxm [h200_sxm]=h200-141gb [b200_sxm]=b200-180gb)
# vLLM schedules asynchronously by default since 0.14 (recalled, not looked up): vllm-0.19 stands for those versions.
# tensorrt-llm-1 has 5.5 ms of CPU time per iteration, fitted to servers of 1.0. Version 1.2 takes 2.3 ms for a whole
# iteration of gpt-oss-120b on B200s, so it runs without.
engine_of() {  # backend version
  case "$1 $2" in
    "vllm 0."[0-9].* | "vllm 0.1"[0-3].* | "vllm -") echo vllm-0.11 ;;
    vllm*) echo vllm-0.19 ;;
    "trtllm 1.0"*) echo tensorrt-llm-1 ;;
    trtllm*) echo tensorrt-llm-1 engine.overheads=false ;;
    sglang*) echo sglang-0.5 ;;
  esac
}

# The model and the format of its weights, as arguments. The names of formats in the table are those of a planner, not
# of the checkpoints: gpt-oss holds its experts in mxfp4 whatever they say, and the FP8 checkpoints of Qwen3 and
# MiniMax have 128 x 128 blocks. On a B200, TensorRT-LLM and the published recipes of vLLM quantise the activations of
# gpt-oss to mxfp8 (recalled, not looked up), so the kernel is the one that does.
model_of() {  # model format system
  case "$1 $2" in
    gpt-oss-120b*) [[ $3 == b200_sxm ]] && echo "model=gpt-oss-120b engine.moe_kernel=mxfp8" || echo "model=gpt-oss-120b" ;;
    Qwen3-235B*) echo "model=qwen3-235b-a22b engine.quantization=fp8_block" ;;
    MiniMax-M2.5*fp8*) echo "model=minimax-m2.5" ;;
    MiniMax-M2.5*) echo "model=experiments/moe/minimax-m2.5-nvfp4.json" ;;
    DeepSeek*fp8*) echo "model=deepseek-v3" ;;
    DeepSeek*) echo "model=experiments/moe/deepseek-v3-nvfp4.json" ;;
    Kimi*) echo "model=experiments/moe/kimi-k2-$2.json" ;;
  esac
}
# The number of tokens on average, as a workload of lengths. Clients of the rows of 2025-10 draw lengths from 0.8 to 1 of
# the nominal ones; the others send nominal lengths.
lengths() {  # nominal varies
  if [[ $2 == 1 ]]; then echo "uniform($((($1 * 9 + 5) / 10)),0.111)"; else echo "$1"; fi
}

# Ten requests per client, as the benchmark clients of these rows send. The settings of the servers are not stated.
while read -r system backend version model format tp dp ep isl osl clients varies ttft tpot; do
  # shellcheck disable=SC2046  # several arguments
  if ! simulated=$(build/release/spillway run policy=vllm hardware="${gpus[$system]}" engine=$(engine_of "$backend" "$version") \
    $(model_of "$model" "$format" "$system") tensor_parallel="$tp" data_parallel="$dp" expert_parallel="$ep" \
    workload.trace=uniform workload.input_tokens="$(lengths "$isl" "$varies")" \
    workload.output_tokens="$(lengths "$osl" "$varies")" workload.concurrency="$clients" \
    workload.requests=$((10 * clients)) engine.max_num_batched_tokens=8192 engine.max_num_seqs=1024 \
    engine.prefix_caching=false "${changes[@]}" --json --progress off 2>"$work/error.txt" | means); then
    echo "$system $backend $model $format $tp/$dp/$ep: $(head -1 "$work/error.txt")" >>"$work/refused.txt"
    continue
  fi
  echo "$system $backend $model $format $tp/$dp/$ep $isl $osl $clients $ttft $tpot $simulated"
done <"$work/settings.txt" >"$work/results.txt"

if $rows; then
  echo "| system | server | model | weights | tensor/data/expert | tokens in / out | in flight | TPOT, measured (ms) | error | TTFT, measured (ms) | error |"
  echo "|---|---|---|---|---|---|---|---|---|---|---|"
  sort -k1,5 -k8,8n "$work/results.txt" | awk '{
    printf "| %s | %s | %s | %s | %s | %d / %d | %d | %.2f | %+.1f%% | %.0f | %+.0f%% |\n", $1, $2, $3, $4, $5, $6, $7,
      $8, $10, 100 * ($12 / $10 - 1), $9, 100 * ($11 / $9 - 1) }'
  echo
fi

echo "| system, server, model | rows | TPOT: bias / median / p90 / worst | TTFT: the same |"
echo "|---|---|---|---|"
cut -d' ' -f1-4 "$work/results.txt" | sort -u | while read -r system backend model format; do
  awk -v key="$system $backend $model $format" '$1 " " $2 " " $3 " " $4 == key' "$work/results.txt" |
    line "$system, $backend, $model $format"
done
counted=$work/counted.txt
awk '$3 !~ /DeepSeek|Kimi/' "$work/results.txt" >"$counted"
for systems in "h100_sxm|b200_sxm" h200_sxm; do
  awk -v systems="^($systems)\$" '$1 ~ systems' "$counted" >"$work/of-system.txt"
  [[ ! -s $work/of-system.txt ]] || line "keys and values of heads, ${systems/|/ and }" <"$work/of-system.txt"
done
if [[ -s $work/refused.txt ]]; then
  echo
  echo "Not simulated:"
  sort "$work/refused.txt" | uniq -c
fi
