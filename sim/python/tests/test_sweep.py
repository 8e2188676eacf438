import math
import os
import pickle
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import spillway

GRID = {"workload.requests": 40, "policy": ["vllm", "sarathi"], "workload.rate": [2, 8]}


def test_a_sweep_has_the_bytes_of_the_program(program):
    arguments = ["sweep", "workload.requests=40", "policy=vllm,sarathi", "workload.rate=2,8", "--slo", "ttft_ms<500"]
    found = spillway.sweep(GRID, slo="ttft_ms<500", jobs=2)
    assert found.to_json() == program(*arguments, "--json")
    assert found.to_csv() == program(*arguments, "--format", "csv")
    assert found.to_table() == program(*arguments) == str(found) + "\n"
    texts = spillway.sweep(workload_requests=40, policy="vllm,sarathi", workload_rate="2:8:x4", slo="ttft_ms<500")
    assert texts.to_json() == found.to_json()
    arrays = spillway.sweep(workload_requests=40, policy=("vllm", "sarathi"), workload_rate=np.array([2, 8]),
                            slo="ttft_ms<500")
    assert arrays.to_json() == found.to_json()


def test_a_file_may_have_the_grid(tmp_path):
    path = tmp_path / "grid.json"
    path.write_text('{"workload": {"requests": 40, "rate": [2, 8]}, "policy": ["vllm", "sarathi"]}')
    assert [row["policy"] for row in spillway.sweep(path)] == ["vllm", "sarathi"] * 2
    assert len(spillway.sweep(str(path), policy="orca")) == 2


def test_rows():
    rows = spillway.sweep(GRID, replications=2)
    assert len(rows) == 4 and rows.keys == ["policy", "workload.rate"]
    assert [(row["policy"], row["workload.rate"]) for row in rows] == [
        ("vllm", 2.0), ("vllm", 8.0), ("sarathi", 2.0), ("sarathi", 8.0)]
    one = spillway.run(policy="sarathi", workload_rate=8, workload_requests=40, replications=2)
    assert rows[-1]["p99_ttft_ms"] == one["p99_ttft_ms"]
    assert rows[3]["half_width_p99_ttft_ms"] == one.metrics["p99_ttft_ms"].half_width
    assert rows[1:3] == [rows[1], rows[2]] and not rows.failed
    assert repr(rows) == "<spillway.Sweep of policy, workload.rate: 4 points>"
    assert pickle.loads(pickle.dumps(rows)).to_json() == rows.to_json()
    rows[0]["policy"] = "mine"
    assert rows[0]["policy"] == "vllm"
    with pytest.raises(IndexError):
        rows[4]


def test_pandas_takes_a_sweep():
    pandas = pytest.importorskip("pandas")
    from io import StringIO

    found = spillway.sweep(GRID, **{"engine.overheads": [True, False]})
    frame = pandas.DataFrame(found)
    expected = pandas.read_csv(StringIO(found.to_csv()), float_precision="round_trip")
    assert list(frame.columns) == list(expected.columns)
    assert frame["policy"].dtype == object and frame["workload.rate"].dtype in (np.int64, np.float64)
    assert frame["engine.overheads"].dtype == bool and frame["p99_ttft_ms"].dtype == np.float64
    for column in frame.select_dtypes(np.float64):
        assert (frame[column].isna() == expected[column].isna()).all(), column
        assert (frame[column] == expected[column])[frame[column].notna()].all(), column
    best = frame.sort_values("mean_ttft_ms").iloc[0]
    assert best["mean_ttft_ms"] == min(row["mean_ttft_ms"] for row in found)
    assert frame.pivot_table(index="workload.rate", columns="policy", values="mean_ttft_ms").shape == (2, 2)


@pytest.mark.parametrize("fixed", [False, True])
def test_rows_have_other_localities(fixed):
    pandas = pytest.importorskip("pandas")
    from io import StringIO

    found = spillway.sweep(model="qwen3-30b-a3b", hardware="hgx-h100-8", policy=["expert-cache", "vllm"],
                           workload_requests=4, workload_concurrency=1, workload_input_tokens=50,
                           workload_output_tokens=12, fixed_locality=fixed)
    expected = pandas.read_csv(StringIO(found.to_csv()), float_precision="round_trip")
    assert list(pandas.DataFrame(found).columns) == list(expected.columns)
    names = [f"{one}_locality_{metric}" for one in ("halved", "doubled")
             for metric in ("output_throughput_tokens_per_s", "p50_tpot_ms")]
    assert [name in expected.columns for name in names] == [not fixed] * 4
    for name in [] if fixed else names:
        assert found[0][name] == expected[name][0], name
        assert np.isnan(found[1][name]), name


def test_zipped_keys():
    rows = spillway.sweep(model=["llama-3.1-8b", "llama-3.1-70b"], tensor_parallel=[1, 4], hardware="hgx-h100-8",
                          workload_requests=20, zip="model,tensor_parallel")
    assert [(row["model"], row["tensor_parallel"]) for row in rows] == [("llama-3.1-8b", 1), ("llama-3.1-70b", 4)]


def test_a_point_that_fails_says_why():
    rows = spillway.sweep(model=["llama-3.1-8b", "llama-3.1-70b"], hardware="h100-80gb-sxm", workload_requests=20)
    assert not rows[0]["error"] and "fit" in rows[1]["error"]
    assert math.isnan(rows[1]["mean_ttft_ms"]) and rows[1]["bottleneck"] == ""
    assert rows.failed == [rows[1]]
    assert repr(rows) == "<spillway.Sweep of model: 2 points, 1 failed>"


def test_mistakes():
    with pytest.raises(spillway.ConfigError, match='did you mean "policy"') as error:
        spillway.sweep(polcy=["vllm", "orca"], workload_rate="8:2:1", metrics="p99_tft_ms")
    assert len(error.value.problems) == 3
    with pytest.raises(spillway.ConfigError, match="out of range"):
        spillway.sweep(engine_max_num_seqs=0, seed=[1, 2])
    with pytest.raises(spillway.ConfigError, match="empty list"):
        spillway.sweep(policy=[])


def test_a_folder_keeps_the_points(tmp_path):
    first = spillway.sweep(GRID, directory=tmp_path)
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "points").iterdir()}
    assert len(stamps) == 4
    assert spillway.sweep(GRID, directory=tmp_path).to_json() == first.to_json()
    assert stamps == {path: path.stat().st_mtime_ns for path in (tmp_path / "points").iterdir()}


def test_progress_and_a_callback_that_raises():
    seen = []
    spillway.sweep(GRID, jobs=2, progress=seen.append)
    assert (seen[-1].done, seen[-1].total, seen[-1].fraction) == (4, 4, 1.0)
    assert seen[-1].running is None and seen[-1].simulated_s > 0

    def fail(progress):
        if progress.done > 0:
            raise OSError("disk on fire")

    begin = time.monotonic()
    with pytest.raises(OSError, match="disk on fire"):
        spillway.sweep(workload_requests=20_000, seed="1:1000:1", progress=fail)
    assert time.monotonic() - begin < 30


SCRIPT = """
import sys, threading, time, spillway
def say(progress):
    if progress.done > 0:
        print("running", flush=True)
try:
    spillway.sweep(workload_requests=20000, seed="1:2000:1", jobs=2, directory=sys.argv[1], progress=say)
except KeyboardInterrupt:
    print("interrupted", threading.active_count(), flush=True)
    time.sleep(0.1)
    print(spillway.run(workload_requests=20)["p99_ttft_ms"] > 0, flush=True)
    sys.exit(7)
"""


def test_ctrl_c_ends_a_sweep_and_keeps_its_points(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path)], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "running\n"
    child.send_signal(signal.SIGINT)
    begin = time.monotonic()
    out, err = child.communicate(timeout=60)
    assert child.returncode == 7, err
    assert time.monotonic() - begin < 10
    # The interpreter goes on as usual: no thread is left, and runs work.
    assert out.splitlines()[-2:] == ["interrupted 1", "True"]
    kept = os.listdir(tmp_path / "points")
    assert 0 < len(kept) < 2000
    # The points that are there do not run again.
    few = f"1:{min(3, len(kept))}:1" if len(kept) > 1 else "1,2"
    assert len(spillway.sweep(workload_requests=20000, seed=few, directory=tmp_path)) >= 2


def test_ctrl_c_ends_a_run():
    script = ("import spillway, os, signal, threading, time\n"
              "threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()\n"
              "spillway.run(workload_requests=20000000, workload_rate=20, requests=False)\n")
    begin = time.monotonic()
    child = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert time.monotonic() - begin < 20
    assert child.returncode == -signal.SIGINT and child.stderr.rstrip().endswith("KeyboardInterrupt")
