#!/usr/bin/env python3
"""What a run gains when layers with a window free the KV beyond it. Prints the table of README.md.

  experiments/moe/windows.py build/release/spillway

Each setting runs with 512 requests in flight on one H100, with engine.hybrid_kv_cache=false and true. "Held / kept" is
computed from the requests alone: the KV that they held in the first run, weighted by the steps of their answers, over
what an engine keeps that frees blocks beyond the window. Of a context of n tokens that is at most
ceil((window - 1) / 16) + 1 blocks of 16 tokens.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = 16
MODELS = {  # model: layers over a window, layers over all tokens, window
    "gpt-oss-20b": (12, 12, 128),
    str(ROOT / "experiments/moe/gemma-3-27b.json"): (52, 10, 1024),
}
WORKLOADS = {
    "azure-conv": ["workload.trace=azure-conv", "workload.requests=2000"],
    "8192 in, 1024 out": ["workload.trace=uniform", "workload.input_tokens=8192", "workload.output_tokens=1024",
                          "workload.requests=1000"],
}
folder = pathlib.Path(tempfile.mkdtemp())


def run(model, workload, frees):
    requests = folder / "requests.jsonl"
    done = subprocess.run(
        [sys.argv[1], "run", "--json", "--requests-out", str(requests), f"model={model}", "hardware=h100-80gb-sxm",
         "workload.arrival=all-at-once", "workload.concurrency=512", "engine.max_num_seqs=512",
         "engine.prefix_caching=false", f"engine.hybrid_kv_cache={frees}", *workload],
        capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout), [json.loads(line) for line in requests.open()]


def held_over_kept(requests, windowed, full, window):
    """KV of the requests over what an engine keeps that frees blocks beyond the window, both summed over steps."""
    most = -(-(window - 1) // BLOCK) + 1
    held = kept = 0
    for request in requests:
        first = request["input_tokens"] + 1
        for context in range(first, first + request["generated_tokens"]):
            blocks = -(-context // BLOCK)
            held += (windowed + full) * blocks
            kept += full * blocks + windowed * min(blocks, most)
    return held / kept


def figures(result):
    value = {name: metric["value"] for name, metric in result["metrics"].items()}
    return (f"{value['output_throughput_tokens_per_s']:.0f} | {value['mean_ttft_ms'] / 1e3:.1f} | {value['mean_tpot_ms']:.1f} | "
            f"{value['mean_batch_requests']:.0f}")


print("| model, workload | KV for | held / kept | run | tokens/s | TTFT (s) | TPOT (ms) | requests in the batch |")
print("|---|---|---|---|---|---|---|---|")
for model, (windowed, full, window) in MODELS.items():
    for name, workload in WORKLOADS.items():
        result, requests = run(model, workload, "false")
        freed, _ = run(model, workload, "true")
        ratio = held_over_kept(requests, windowed, full, window)
        tokens = result["setup"]["gpu_kv_blocks"] * BLOCK
        title = f"| {pathlib.Path(model).stem}, {name} | {tokens} tokens | {ratio:.2f} |"
        print(f"{title} kept | {figures(result)} |")
        print(f"| | | | freed | {figures(freed)} |", flush=True)
