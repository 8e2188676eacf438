#!/usr/bin/env python3
"""Draws Pie's Fig. 6 for OPT-13B and ShareGPT: throughput against the expansion of the KV cache.

    python sim/python/examples/pie_expansion.py -o pie_expansion.png     # 5 runs of 2,000 requests per point
    python sim/python/examples/pie_expansion.py --quick                  # 1 run of 200 requests per point

Settings are those of experiments/pie/expected.json, which lists the ones that the paper leaves open. With 3 GB of KV on
the GPU the paper's throughput rises up to an expansion of 2; with 7 GB it peaks at 1.4 to 1.6 (claims PIE-11, PIE-11b).
"""

import argparse

import matplotlib

matplotlib.use("Agg")  # draws into a file, without a screen
import matplotlib.pyplot as plt
import pandas

import spillway

SETTINGS = {
    "policy": {"name": "pie", "copy": "kernel", "version": "0.2.0"},
    "engine": "vllm-0.2.0",
    "model": "opt-13b",
    "hardware": "gh200-96gb",
    "workload": {"trace": "sharegpt", "arrival": "poisson"},
    "until": "20min",
    "warmup": "10%",
}
OVERLOAD = 3  # the offered rate, as a multiple of the capacity at expansion 1: the server is never idle


def throughput(kv, size, jobs):
    """One row per expansion, for so much GPU memory for KV."""
    at_once = {"workload_arrival": "all-at-once", "policy_expansion": 1, "memory_gpu_kv": kv, "jobs": jobs, **size}
    capacity = spillway.run(SETTINGS, requests=False, **at_once)["request_throughput_per_s"]
    rows = spillway.sweep(SETTINGS, policy_expansion="1:2:0.1", workload_rate=OVERLOAD * capacity, memory_gpu_kv=kv,
                          jobs=jobs, progress=True, **size)
    return pandas.DataFrame(rows)


def draw(sizes, size, jobs, path):
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for kv in sizes:
        frame = throughput(kv, size, jobs)
        relative = frame["output_throughput_tokens_per_s"] / frame["output_throughput_tokens_per_s"].iloc[0]
        axes.plot(frame["policy.expansion"], relative, marker="o", markersize=4, label=f"{kv[:-2]} GB of KV on the GPU")
        best = relative.idxmax()
        print(f"{kv}: best at expansion {frame['policy.expansion'][best]:g}, {relative[best]:.2f} times expansion 1")
    axes.set_xlabel("expansion of the KV cache (ratio)")
    axes.set_ylabel("output throughput over that at expansion 1 (ratio)")
    axes.set_title("Pie, OPT-13B on a GH200, ShareGPT (simulated)")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=150)
    print(f"The figure is in {path}.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", default="pie_expansion.png", help="the file to write")
    parser.add_argument("--quick", action="store_true", help="1 run of 200 requests per point instead of 5 of 2,000")
    parser.add_argument("-j", "--jobs", type=int, default=2, help="threads")
    options = parser.parse_args()
    length = {"workload_requests": 200} if options.quick else {"workload_requests": 2000, "replications": 5}
    draw(["3GB", "5GB", "7GB"], length, options.jobs, options.out)
