#!/usr/bin/env bash
# Fits the kernels of the bundled GPU profiles again and writes the profiles to hwmodels/profiles/.
#
#   experiments/profiles/fit.sh [DATA]     DATA: folder with the measured tables that README.md names
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
data=${1:-../shared/data}/ops
if [[ ! -d $data ]]; then
  echo "error: $data, the folder with the measured tables, does not exist; see experiments/profiles/README.md" >&2
  exit 1
fi

fit() {  # profile "what it stands for" measurements...
  local name=$1 stands_for=$2
  shift 2
  echo "$name"
  build/release/spillway calibrate fit "$@" --base "$name" --name "$name" --stands-for "$stands_for" \
    --omit-measurements -o "hwmodels/profiles/$name.json"
}

fit h100-80gb-sxm "NVIDIA H100 SXM5 80 GB (HBM3); kernels of vLLM 0.24 (cuBLAS, FlashAttention 3), fp8 of vLLM 0.19" \
  "$data"/h100-sxm/{gemm,decode_attention,prefill_attention,gemm_by_dtype_v019,collectives,moe}.csv.gz \
  "$data"/h100-sxm/{decode_attention_by_kv,prefill_attention_by_kv,deepep_ll,deepep_normal}.csv.gz \
  experiments/profiles/h100-80gb-sxm-copies.csv
# No table of an H200's MoE kernels is public here.
python3 experiments/profiles/lend-moe.py hwmodels/profiles/{h100-80gb-sxm,h200-141gb}.json
# cuda_calibrate measured the copies. The kernels are those of an engine.
rows=experiments/profiles/h200-141gb-rows.json.gz
fit h200-141gb "NVIDIA H200 SXM5 141 GB (HBM3e); kernels of vLLM 0.24 (cuBLAS, FlashAttention 3), fp8 of vLLM 0.19; \
copies by cuda_calibrate" \
  "$data"/h200-sxm/{gemm,decode_attention,prefill_attention,gemm_by_dtype_v019,collectives}.csv.gz \
  copy_h2d="$rows" copy_d2h="$rows" interference="$rows"
fit a100-80gb-sxm "NVIDIA A100 SXM4 80 GB (HBM2e); bf16 kernels of vLLM 0.14 (cuBLAS, FlashAttention 2)" \
  "$data"/a100-sxm/{gemm,decode_attention,prefill_attention,moe}.csv.gz "$data/vidur-a100/all_reduce.csv.gz" \
  elementwise="$data/vidur-a100/CodeLlama-34b-Instruct-hf-mlp.csv.gz" \
  elementwise="$data/vidur-a100/Llama-2-7b-hf-mlp.csv.gz"
# Heads of 192 fell back to another kernel in this table, and larger ones are of no model that runs here.
heads=$(mktemp -d)
trap 'rm -r "$heads"' EXIT
for kind in decode prefill; do
  gzip -dc "$data/b200-sxm/${kind}_attention_by_kv.csv.gz" | awk -F, 'NR == 1 || $4 <= 128' |
    gzip -n >"$heads/${kind}_attention_by_kv.csv.gz"
done
fit b200-180gb "NVIDIA B200 SXM 180 GB (HBM3e); kernels of vLLM 0.24 (FlashInfer TRT-LLM), GEMM of vLLM 0.19" \
  "$data"/b200-sxm/{gemm_by_dtype_v019,collectives,moe}.csv.gz "$heads"/{decode,prefill}_attention_by_kv.csv.gz
