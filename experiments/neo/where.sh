#!/usr/bin/env bash
# Where NEO pays: throughput of NEO over that of its GPU-only base by memory for KV on the GPU, on hosts of several kinds.
# Prompts of about 1,000 tokens and answers of about 200, 2,000 requests at once, Llama 3.1 8B.
#   experiments/neo/where.sh build/release/spillway
set -euo pipefail
spillway=${1:?usage: where.sh SPILLWAY}

rate() { # arguments of a run: requests per second from the first arrival to the last completion
  "$spillway" run --json "$@" model=llama-3.1-8b engine.max_num_seqs=1024 engine.max_num_batched_tokens=20480 \
    workload.trace=uniform workload.input_tokens=1000 workload.output_tokens=200 workload.requests=2000 \
    workload.arrival=all-at-once |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["metrics"]["request_throughput_per_s"]["value"])'
}

sizes=(1GB 2GB 4GB 8GB 16GB 32GB)
header="| KV on the GPU |"
for size in "${sizes[@]}"; do header+=" $size |"; done
echo "$header"
for row_of in g5.16xlarge a100-nvlink-2 hgx-h100-8 gh200-server hgx-h100-8+ gh200-server+; do
  # +: an engine without CPU time, whose kernels are launched at once
  server=${row_of%+}
  engine=()
  launch=()
  row="| \`$server\` |"
  if [[ $row_of == *+ ]]; then
    engine=(engine.overheads=false)
    launch=(policy.launch=0us)
    row="| \`$server\`, no CPU time of the engine |"
  fi
  for size in "${sizes[@]}"; do
    if ! base=$(rate policy=swiftllm policy.piggyback=true "hardware=$server" "memory.gpu_kv=$size" "${engine[@]}" 2>/dev/null); then
      row+=" - |"
      continue
    fi
    neo=$(rate policy=neo "hardware=$server" "memory.gpu_kv=$size" "${engine[@]}" "${launch[@]}" 2>/dev/null)
    row+=$(python3 -c "print(f' {$base:.2f}, x {$neo / $base:.2f} |')")
  done
  echo "$row"
done
