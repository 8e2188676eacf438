#!/usr/bin/env python3
"""How much KV a run keeps beyond the windows of its layers, and what that changes. Prints the table of README.md.

  experiments/moe/windows.py build/release/spillway

Each setting runs with 512 requests in flight on one H100. The KV that its requests held, weighted by the steps of their
answers, is divided by what they would hold in an engine that frees the blocks of windowed layers beyond the window, as
vLLM does: of a context of n tokens, ceil((window - 1) / 16) + 1 blocks of 16 tokens at most. The run is then repeated
on an H100 with that many times as much memory for KV. Real engines free memory as contexts grow, so this is the mean
effect, not the effect at each time.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROFILE = ROOT / "hwmodels/profiles/h100-80gb-sxm.json"
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


def run(model, workload, hardware):
    requests = folder / "requests.jsonl"
    done = subprocess.run(
        [sys.argv[1], "run", "--json", "--requests-out", str(requests), f"model={model}", f"hardware={hardware}",
         "workload.arrival=all-at-once", "workload.concurrency=512", "engine.max_num_seqs=512",
         "engine.prefix_caching=false", *workload],
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


def larger(extra):
    """An H100 with `extra` bytes more for KV."""
    profile = json.loads(PROFILE.read_text())
    profile["values"]["memory"]["value"] += int(extra / 0.9)  # engine.gpu_memory_utilization
    path = folder / "larger.json"
    path.write_text(json.dumps(profile))
    return path


def figures(result):
    value = {name: metric["value"] for name, metric in result["metrics"].items()}
    return (f"{value['output_throughput_tokens_per_s']:.0f} | {value['mean_ttft_ms'] / 1e3:.1f} | {value['mean_tpot_ms']:.1f} | "
            f"{value['mean_batch_requests']:.0f}")


print("| model, workload | KV for | held / kept | run | tokens/s | TTFT (s) | TPOT (ms) | requests in the batch |")
print("|---|---|---|---|---|---|---|---|")
for model, (windowed, full, window) in MODELS.items():
    for name, workload in WORKLOADS.items():
        result, requests = run(model, workload, "h100-80gb-sxm")
        setup = result["setup"]
        ratio = held_over_kept(requests, windowed, full, window)
        capacity = setup["gpu_kv_blocks"] * setup["block_bytes_per_gpu"]
        freed, _ = run(model, workload, larger((ratio - 1) * capacity))
        tokens = setup["gpu_kv_blocks"] * BLOCK
        title = f"| {pathlib.Path(model).stem}, {name} | {tokens} tokens | {ratio:.2f} |"
        print(f"{title} as it is | {figures(result)} |")
        print(f"| | | | windows freed | {figures(freed)} |", flush=True)
