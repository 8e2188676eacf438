#!/usr/bin/env python3
"""What decides NEO's gains: one assumption at a time is changed, and the tables of README.md are printed.

  experiments/neo/causes.py build/release/spillway [code | t4 | h100]

code  Azure's code trace on an A10G. NEO's throughput over that of its base, all requests at once, and NEO's rate
      over vLLM's at which the mean latency per token of the last 75% reaches a limit.
t4    NEO and FastDecode+ over the base by output length on a T4, then on other GPUs.
h100  NEO over the base by output length on two H100 with more and less of their host.
"""

import functools
import json
import pathlib
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parents[2]
HARDWARE = ROOT / "hwmodels"
WINDOW = "slo.run=p30_e2e_ms<1e9,p70_e2e_ms<1e9"  # makes a run report both percentiles
AT_ONCE = {"workload.arrival": "all-at-once", "workload.requests": "2000"}
BASE = {"policy": "swiftllm", "policy.piggyback": "true"}
VLLM = {"policy": "vllm-v0", "policy.version": "0.6.3", "engine.chunked_prefill": "true"}
NEO = {"policy": "neo"}
FASTDECODE = {"policy": "fastdecode"}

pool = ThreadPoolExecutor(2)
folder = tempfile.TemporaryDirectory()


@functools.cache
def metrics_of(*words):
    done = subprocess.run([sys.argv[1], "run", "--json", *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return {name: metric["value"] for name, metric in json.loads(done.stdout)["metrics"].items()}


def run(settings, *more):
    """The metrics of a run."""
    return metrics_of(*(f"{key}={value}" for key, value in settings.items()), *more)


def hardware(name, server, gpu=None, of_gpu=None, of_host=None):
    """A copy of a bundled server with another GPU, or other values of its GPU or host."""
    path = pathlib.Path(folder.name)
    copy = json.loads((HARDWARE / "servers" / f"{server}.json").read_text())
    copy["name"] = name
    for part, kind, values, other in (("gpu", "profiles", of_gpu, gpu), ("host", "hosts", of_host, None)):
        if values is None and other is None:
            continue
        profile = json.loads((HARDWARE / kind / f"{other or copy['values'][part]['value']}.json").read_text())
        profile["name"] = f"{name}-{part}"
        for key, value in (values or {}).items():
            profile["values"][key]["value"] = value
        (path / f"{name}-{part}.json").write_text(json.dumps(profile))
        copy["values"][part]["value"] = f"{name}-{part}.json"
    (path / f"{name}.json").write_text(json.dumps(copy))
    return {"hardware": path / f"{name}.json"}


def window_rate(metrics, requests=2000):
    return 0.4 * requests / (metrics["p70_e2e_ms"] - metrics["p30_e2e_ms"]) * 1000


def rate_at(curve, limit):
    """Rate at which the latency of a rising curve reaches the limit, on a straight line between its points."""
    for (rate, latency), (next_rate, next_latency) in zip(curve, curve[1:]):
        if latency <= limit < next_latency:
            return rate + (next_rate - rate) * (limit - latency) / (next_latency - latency)
    return None


A10G = {
    "hardware": "g5.4xlarge",
    "model": "llama-3.1-8b",
    "memory.gpu_kv": "1650 blocks",
    "engine.max_model_len": "20000",
    "engine.max_num_seqs": "1024",
    "engine.max_num_batched_tokens": "20480",
}


def code():
    limits = (500, 1000, 2000, 5000)
    names = " | ".join(f"{limit / 1000:g} s" for limit in limits)
    print(f"| | base at once, requests/s | NEO at once, of base | {names} |")
    print("|---|" + "---|" * (2 + len(limits)))

    def row(name, every=None, neo=NEO, base=BASE, vllm=None):
        setup = A10G | {"workload.trace": "azure-code"} | (every or {})
        blocks = int(setup["memory.gpu_kv"].split()[0])
        compared = setup | VLLM | {"engine.max_num_batched_tokens": 16 * blocks} | (vllm or {})
        at_once = [*pool.map(lambda policy: window_rate(run(setup | policy | AT_ONCE, WINDOW)), (base, neo))]
        rates = [at_once[0] * share for share in (0.6, 0.7, 0.8, 0.9, 0.95, 1, 1.05, 1.1, 1.15, 1.2, 1.3, 1.45)]

        def latency(policy, rate):
            online = {"workload.rate": f"{rate:.4f}", "workload.arrival": "poisson", "workload.requests": "2000"}
            return rate, run(policy | online | {"warmup": "25%"})["mean_normalised_ms_per_token"]

        curves = [[*pool.map(lambda rate, of=of: latency(of, rate), rates)] for of in (compared, setup | neo)]
        cells = []
        for limit in limits:
            of_vllm, of_neo = (rate_at(curve, limit) for curve in curves)
            cells.append(f"{of_neo / of_vllm:.2f}" if of_vllm and of_neo else "-")
        print(f"| {name} | {at_once[0]:.2f} | {at_once[1] / at_once[0]:.2f} | " + " | ".join(cells) + " |", flush=True)

    row("as the paper states it")
    for seed in (2, 3):
        row(f"seed {seed}", {"seed": seed})
    trace = ROOT / "../shared/data/traces/azure-2023-code.csv"
    if trace.exists():
        row("lengths of the trace itself", {"workload.trace": trace})
    row("the paper's rules", neo=NEO | {"policy.rules": "paper"})
    row("no launch predicted", neo=NEO | {"policy.launch": "0us"})
    row("no CPU time of the engine", {"engine.overheads": "false"})
    for bandwidth in (20.5, 82, 164):
        name = f"host-{bandwidth:g}"
        row(f"host of {bandwidth:g} GB/s, not 41",
            hardware(name, "g5.4xlarge", of_host={"dram_bandwidth": bandwidth * 1e9}))
    row("`g5.16xlarge`", {"hardware": "g5.16xlarge"})
    row("8,192 tokens per iteration", {"engine.max_num_batched_tokens": "8192"})
    for chunk in (512, 2048):
        row(f"vLLM, chunks of {chunk:,}", vllm={"engine.max_num_batched_tokens": chunk})
    row("base without piggybacking", base=BASE | {"policy.piggyback": "false"})
    shorter = {"engine.max_model_len": "10000"}
    for blocks in (825, 1238, 2475, 3300):
        row(f"{blocks:,} blocks", shorter | {"memory.gpu_kv": f"{blocks} blocks"})
    for peak in (40, 90, 125, 165):
        name = f"peak-{peak}"
        row(f"prompts at {0.56 * peak:.0f} TFLOP/s, not 39",
            hardware(name, "g5.4xlarge", of_gpu={"peak_flops": peak * 1e12}))
    row("weights read at 240 GB/s, not 456", hardware("slow", "g5.4xlarge", of_gpu={"gemm_memory_efficiency": 0.4}))
    row("an A10 (`a10-24gb`)", hardware("a10", "g5.4xlarge", gpu="a10-24gb"))
    # What NEO could gain at most: its base with KV for every request. NEO's column shows this base.
    unlimited = BASE | {"memory.gpu_kv": "40000 blocks"}
    row("bound: base with 40,000 blocks", hardware("large", "g5.4xlarge", of_gpu={"memory": 400 * 10**9}), unlimited)
    row("bound of the A10", hardware("large-a10", "g5.4xlarge", "a10-24gb", {"memory": 400 * 10**9}), unlimited)
    print("\n| requests/s of the base, whole run | as they are | answers of one token | ratio |\n|---|---|---|---|")
    for name, machine in (("A10G", {}), ("A10", hardware("a10", "g5.4xlarge", gpu="a10-24gb"))):
        setup = A10G | machine | BASE | AT_ONCE | {"workload.trace": "azure-code"}
        rates = [run(setup | more)["request_throughput_per_s"] for more in ({}, {"workload.output_tokens": "1"})]
        print(f"| {name} | {rates[0]:.2f} | {rates[1]:.2f} | {rates[1] / rates[0]:.2f} |")


def over_base(setup, policy, base, lengths, requests=2000):
    """Throughputs of a policy over the base's, by output length."""
    window = AT_ONCE | {"workload.trace": "uniform", "workload.requests": requests}

    def rate(of, length):
        return window_rate(run(setup | of | window | {"workload.output_tokens": length}, WINDOW), requests)

    ours, theirs = ([*pool.map(lambda length, of=of: rate(of, length), lengths)] for of in (policy, base))
    return [our / their for our, their in zip(ours, theirs)]


def by_length(name, setup, policies, lengths, base=BASE, requests=2000):
    cells = [" ".join(f"{gain:.2f}" for gain in over_base(setup, of, base, lengths, requests)) for of in policies]
    print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


T4 = {
    "hardware": "g4dn.4xlarge",
    "model": "llama-2-7b",
    "memory.gpu_kv": "54 blocks",
    "engine.max_model_len": "832",
    "engine.max_num_batched_tokens": "832",
    "engine.max_num_seqs": "512",
    "workload.input_tokens": "200",
}


def t4():
    lengths = (50, 100, 200, 300)
    host = {"memory.host_kv": "20GB"}

    def row(name, every=None, of_both=None, neo=None):
        both = host | (of_both or {})
        by_length(name, T4 | (every or {}), (NEO | both | (neo or {}), FASTDECODE | both), lengths)

    print("| outputs of 50, 100, 200, 300 tokens | NEO | FastDecode+ |\n|---|---|---|")
    row("as the paper states it")
    for bandwidth in (8, 20, 80, 110, 150, 300):
        values = {"dram_bandwidth": bandwidth * 1e9, "dram_peak": max(140.8, 1.25 * bandwidth) * 1e9}
        row(f"host of {bandwidth} GB/s, not 47", hardware(f"t4-host-{bandwidth}", "g4dn.4xlarge", of_host=values))
    row("no launch predicted", neo={"policy.launch": "0us"})
    row("no launch, attention on the CPU predicted 90% too short",
        neo={"policy.launch": "0us", "policy.predictor_error": "-0.9"})
    row("the paper's rules", neo={"policy.rules": "paper"})
    row("no launch predicted or charged", {"engine.overheads": "false"}, neo={"policy.launch": "0us"})
    for efficiency in (0.2, 0.6):
        row(f"prompts at {65 * efficiency:.0f} TFLOP/s, not 21",
            hardware(f"t4-compute-{efficiency}", "g4dn.4xlarge", of_gpu={"gemm_compute_efficiency": efficiency}))
    for efficiency in (0.5, 0.9):
        row(f"weights read at {320 * efficiency:.0f} GB/s, not 240",
            hardware(f"t4-memory-{efficiency}", "g4dn.4xlarge", of_gpu={"gemm_memory_efficiency": efficiency}))
    for size in (10, 40):
        row(f"{size} GB on the host, not 20", of_both={"memory.host_kv": f"{size}GB"})
    for tokens in (100, 400):
        row(f"prompts of {tokens} tokens, not 200", {"workload.input_tokens": tokens})
    row("4,096 tokens per iteration, not 832", {"engine.max_num_batched_tokens": "4096"})
    for blocks in (108, 216):
        row(f"{blocks} blocks, not 54", {"memory.gpu_kv": f"{blocks} blocks"})
    both = (NEO, FASTDECODE)
    for server in ("g5.4xlarge", "g5.16xlarge"):
        by_length(f"`{server}`, prompts of 1,000", A10G | {"hardware": server, "workload.input_tokens": "1000"}, both,
                  lengths)
    by_length("`hgx-h100-numa`, prompts of 2,000", H100 | {"hardware": "hgx-h100-numa"}, both, lengths)


H100 = {
    "model": "llama-3.1-70b",
    "tensor_parallel": "2",
    "engine.max_num_batched_tokens": "20480",
    "engine.max_num_seqs": "1024",
    "workload.input_tokens": "2000",
}


def h100():
    lengths = (50, 100, 150, 200, 300)
    socket = ROOT / "experiments/neo/hgx-h100-socket.json"
    print("| outputs of 50, 100, 150, 200, 300 tokens | 2,000 requests | 8,000 requests |\n|---|---|---|")

    def row(name, setup, neo=None):
        cells = []
        for requests in (2000, 8000):
            gains = over_base(H100 | setup, NEO | (neo or {}), BASE, lengths, requests)
            cells.append(" ".join(f"{gain:.2f}" for gain in gains))
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)

    row("a NUMA node: 123 GB/s (`hgx-h100-numa`)", {"hardware": "hgx-h100-numa"})
    row("it never pipelines", {"hardware": "hgx-h100-numa"}, {"policy.predictor_error": "20"})
    row("no CPU time of the engine", {"hardware": "hgx-h100-numa", "engine.overheads": "false"})
    row("no launch predicted", {"hardware": "hgx-h100-numa"}, {"policy.launch": "0us"})
    row("4 GB of KV, not 9.45", {"hardware": "hgx-h100-numa", "memory.gpu_kv": "4GB"})
    row("a socket: 246 GB/s", {"hardware": socket})
    row("the whole host: 492 GB/s (`hgx-h100-8`)", {"hardware": "hgx-h100-8"})


def main():
    tables = {"code": code, "t4": t4, "h100": h100}
    if len(sys.argv) < 2 or any(name not in tables for name in sys.argv[2:]):
        sys.exit("usage: causes.py SPILLWAY [code | t4 | h100]")
    for name in sys.argv[2:] or tables:
        tables[name]()
        print()


main()
