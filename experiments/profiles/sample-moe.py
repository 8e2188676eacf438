"""Fits MoE kernels to 800 rows of a table and prints the error on the other rows.

    experiments/profiles/sample-moe.py [DATA]      # DATA/ops holds the tables; default ../shared/data

Rows are drawn at random, or as whole series: all token counts of a format, shape, parallelism and distribution. Three
draws of each. The GPU is unknown: no profile is given as a base.
"""

import csv
import gzip
import os
import random
import subprocess
import sys
import tempfile

ROWS = 800


def write(folder, head, rows):
    os.makedirs(folder)
    path = os.path.join(folder, "moe.csv.gz")
    with gzip.open(path, "wt", encoding="utf-8") as file:
        csv.writer(file).writerows([head] + rows)
    return path


def drawn(rows, series_of, whole_series, seed):
    """The indices of the rows to fit."""
    source = random.Random(1000 * seed)
    if not whole_series:
        return set(source.sample(range(len(rows)), ROWS))
    series = {}
    for i, row in enumerate(rows):
        series.setdefault(series_of(row), []).append(i)
    order = sorted(series)
    source.shuffle(order)
    taken = set()
    while len(taken) < ROWS:
        taken |= set(series[order.pop(0)])
    return taken


def spillway(*arguments):
    return subprocess.run(["build/release/spillway", "calibrate", *arguments], check=True, capture_output=True, text=True)


def main(data="../shared/data"):
    print("| table | sample | median / p95 of each draw |\n|---|---|---|")
    for gpu in ("a100-sxm", "h100-sxm", "b200-sxm", "l40s"):
        with gzip.open(f"{data}/ops/{gpu}/moe.csv.gz", "rt", encoding="utf-8") as file:
            head, *rows = csv.reader(file)
        keys = [i for i, name in enumerate(head) if name not in ("tokens", "latency_us")]
        for whole_series in (False, True):
            errors = []
            for seed in (1, 2, 3):
                taken = drawn(rows, lambda row: tuple(row[i] for i in keys), whole_series, seed)
                with tempfile.TemporaryDirectory() as folder:
                    fit = write(folder + "/fit", head, [row for i, row in enumerate(rows) if i in taken])
                    rest = write(folder + "/rest", head, [row for i, row in enumerate(rows) if i not in taken])
                    profile = folder + "/sampled.json"
                    spillway("fit", fit, "--name", "sampled", "-o", profile)
                    # The first line is that of all formats: moe, count, median, p95, or that of the only one.
                    words = spillway("check", profile, rest).stdout.splitlines()[1].split()
                first = next(i for i, word in enumerate(words) if word.endswith("%"))
                errors.append(f"{words[first]} / {words[first + 1]}")
            print(f"| {gpu} | {'whole series' if whole_series else 'rows'} | {', '.join(errors)} |", flush=True)


main(*sys.argv[1:])
