import gc
import json
import math
import pickle
import re
import threading
import time

import numpy as np
import pytest

import spillway

SMALL = {"workload.requests": 60}

# One of each kind: defaults, groups, units and texts, replications, SLOs, layers on the host, conversations, replicas,
# pools, instances that lend, experts (which `run` repeats with other localities), and perturbed times.
CONFIGURATIONS = {
    "default": {},
    "nested": {"policy": {"name": "vllm-v0"}, "workload": {"rate": 7.5, "requests": 50}, "memory": {"gpu_kv": "4GB"}},
    "replications": {"replications": 3, "seed": 5, "workload.requests": 40},
    "pie": {"policy": "pie", "hardware": "gh200-96gb", "memory.host_kv": "20GB", "workload.requests": 40},
    "conversations": {"policy": "pensieve", "workload.trace": "sharegpt-chat", "workload.requests": 80},
    "replicas": {"replicas": 2, "workload.rate": 20, "workload.requests": 100},
    "pools": {"prefill_replicas": 1, "decode_replicas": 1, "hardware": "hgx-h100-8", "workload.requests": 40},
    "experts": {"policy": "fiddler", "model": "mixtral-8x7b", "hardware": "hgx-h100-8", "workload.requests": 10},
    "instances": {
        "hardware": "hgx-h100-8",
        "instances": [
            {"name": "chat", "gpus": "0-3", "model": "llama-3.1-70b", "workload": {"rate": 6, "requests": 30}},
            {"name": "small", "gpus": [4, 5], "replicas": 2, "policy": "vllm-v0", "slo.ttft_ms": 50,
             "workload": {"trace": "alpaca", "rate": 20, "requests": 60}},
        ],
    },
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_result_has_the_bytes_of_the_program(name, program, tmp_path):
    config = CONFIGURATIONS[name]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    slo = ["ttft_ms<500", "p99_itl_ms<100"]
    expected = program("run", path, "--json", "--slo", slo[0], "--slo", slo[1])
    assert spillway.run(config, slo=slo).to_json() == expected
    assert spillway.run(path, slo=slo, jobs=3, requests=False).to_json() == expected
    assert spillway.run(**config, slo=",".join(slo)).to_json() == expected


def test_the_other_forms_are_the_programs_too(program):
    arguments = ["run", "workload.requests=60", "--perturb", "5%"]
    result = spillway.run(SMALL, perturb="5%", jobs=2)
    assert result.to_json() == program(*arguments, "--json")
    assert result.to_table() == program(*arguments)
    assert result.to_csv() == program("run", "workload.requests=60", "--format", "csv")
    assert result == spillway.run(SMALL, perturb=0.05)
    assert str(result) + "\n" == result.to_table()
    assert result.to_html().startswith("<!DOCTYPE html>")


def test_keywords_override_and_may_have_underscores_for_dots():
    dotted = spillway.run({"workload.rate": 2, **SMALL}, **{"workload.rate": 8})
    assert dotted.config["workload.rate"] == 8
    assert dotted == spillway.run(SMALL, workload_rate=8) == spillway.run(SMALL, workload={"rate": np.float64(8)})
    # The key engine.max_num_seqs has underscores of its own.
    assert spillway.run(SMALL, engine_max_num_seqs=np.int32(7)).config["engine.max_num_seqs"] == 7
    assert spillway.run(SMALL, slo={"ttft_ms": 500}) == spillway.run(SMALL, slo="ttft_ms<500")


def test_a_null_is_as_if_the_key_were_absent():
    assert spillway.run({"workload.rate": 8, **SMALL}, workload_rate=None) == spillway.run(SMALL)


def test_variables_of_the_environment_are_not_read(monkeypatch):
    expected = spillway.run(SMALL)
    monkeypatch.setenv("SPILLWAY_SEED", "99")
    monkeypatch.setenv("SPILLWAY_NO_SUCH_KEY", "1")
    assert spillway.run(SMALL) == expected


def test_figures():
    result = spillway.run(SMALL, replications=3, slo="ttft_ms<500")
    parsed = result.to_dict()
    metric = result.metrics["p99_ttft_ms"]
    assert metric.value == result["p99_ttft_ms"] == float(metric) == parsed["metrics"]["p99_ttft_ms"]["value"]
    assert metric.unit == "ms"
    assert metric.value == pytest.approx(np.mean(metric.replications)) and len(metric.replications) == 3
    assert metric.half_width == parsed["metrics"]["p99_ttft_ms"]["half_width"]
    assert math.isnan(spillway.run(SMALL)["jain_index"])  # one client: there is no such figure
    assert "goodput_requests_per_s" in result and "goodput" not in result
    with pytest.raises(KeyError, match="no such metric"):
        result["goodput"]
    assert result.bottleneck == parsed["bottleneck"]["sentence"]
    assert list(result.warnings) == parsed["warnings"]
    parsed["metrics"].clear()
    assert result.metrics  # what a caller does to its copy changes nothing


def test_repr_is_one_readable_line():
    text = repr(spillway.run(SMALL, policy="sarathi"))
    assert re.fullmatch(r"<spillway\.Result sarathi, \S+ on \S+: 60 of 60 requests finished, mean_ttft_ms=[0-9.]+, .*>",
                        text)


def test_requests_are_those_of_the_program(program, tmp_path):
    pandas = pytest.importorskip("pandas")
    config = {"workload.rate": 60, "workload.requests": 300, "replications": 2, "engine.request_timeout": "2s",
              "memory.gpu_kv": "1GB"}
    file = tmp_path / "requests.csv"
    program("run", *(f"{key}={value}" for key, value in config.items()), "--requests-out", file, "-j", 2)
    expected = pandas.read_csv(file, float_precision="round_trip")
    found = pandas.DataFrame(spillway.run(config, jobs=2).requests)
    assert set(expected["outcome"]) > {"finished"}  # some have no first token
    assert list(found.columns) == list(expected.columns)
    for column in expected:
        # pandas reads a column with a missing value as float64, and one without values as float64 too.
        numbers = found[column].astype(float) if expected[column].dtype == float else found[column]
        assert (numbers == expected[column])[expected[column].notna()].all(), column
        assert (found[column].isna() == expected[column].isna()).all(), column


def test_requests_of_several_kinds_name_their_instance():
    requests = spillway.run(CONFIGURATIONS["instances"]).requests
    names, counts = np.unique(requests["instance"], return_counts=True)
    assert dict(zip(names.tolist(), counts.tolist())) == {"chat": 30, "small": 60}


def test_arrays_view_the_simulators_memory():
    result = spillway.run(SMALL)
    ttft = result.requests["ttft_ms"]
    assert ttft.dtype == np.float64 and result.requests["index"].dtype == np.int64
    assert ttft.shape == (60,) and ttft.strides == (8,)
    assert not ttft.flags.owndata and not ttft.flags.writeable
    # A second look is at the same memory.
    again = spillway._core.arrays(result._owner)["ttft_ms"][0]
    assert again.__array_interface__["data"][0] == ttft.__array_interface__["data"][0]
    assert set(result.requests["outcome"]) == {"finished"}
    # By the definition of the mean, from the same requests.
    assert ttft.mean() == pytest.approx(result["mean_ttft_ms"], rel=1e-12)
    copy = ttft.copy()
    del result, again
    gc.collect()
    others = [spillway.run(SMALL, seed=seed) for seed in range(3)]  # would reuse memory that was freed
    assert (ttft == copy).all() and others
    with pytest.raises(ValueError):
        ttft[0] = 1


def test_a_run_may_keep_no_requests():
    with pytest.raises(ValueError, match="requests=False"):
        spillway.run(SMALL, requests=False).requests


def test_pickles():
    result = spillway.run(SMALL)
    copy = pickle.loads(pickle.dumps(result))
    assert copy == result and copy.to_table() == result.to_table() and hash(copy) == hash(result)
    assert all((copy.requests[name] == values)[values == values].all() for name, values in result.requests.items())
    error = pytest.raises(spillway.ConfigError, spillway.run, sed=1).value
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert pickle.loads(pickle.dumps(error)).problems == error.problems


def test_results_are_made_by_run_only():
    with pytest.raises(TypeError, match="run"):
        spillway.Result()


def test_unknown_keys_are_all_named_with_the_nearest_names(program):
    bad = {"polcy": "vllm", "workload.rat": 8, "engine.max_num_seqs": 0, "model": "llama-3.1-9b"}
    error = pytest.raises(spillway.ConfigError, spillway.run, bad).value
    assert isinstance(error, ValueError)
    assert len(error.problems) == 4
    assert error.problems[0].where == "config (/polcy)"
    # Word for word as the program, but for the place.
    printed = program("run", *(f"{key}={value}" for key, value in bad.items()), code=2)

    def without_places(text):
        return [line for line in text.splitlines() if not line.startswith("  at ")]

    assert without_places(str(error)) == without_places(printed)[:-1]
    assert 'did you mean "policy"?' in str(error)
    keyword = pytest.raises(spillway.ConfigError, spillway.run, workload_rat=8).value
    assert 'unknown key "workload_rat"' in str(keyword) and "workload.rate" in str(keyword)
    assert keyword.problems[0].where == "keywords (/workload_rat)"


@pytest.mark.parametrize(
    "config, text",
    [
        ({"workload.rate": float("nan")}, "nan is no value"),
        ({"workload.rate": object()}, "type object"),
        ({"policy": ["vllm", "sarathi"]}, "spillway sweep takes several"),
        ("no-such-file.json", "cannot read the configuration file no-such-file.json"),
        ("", "the path of the configuration is empty"),
        ({"slo.ttft_ms": "soon"}, "slo.ttft_ms"),
        ({"model": "llama-3.1-70b", "memory.gpu_kv": None}, "does not fit"),
    ],
)
def test_bad_configurations(config, text):
    with pytest.raises(spillway.ConfigError) as error:
        spillway.run(config)
    assert text in str(error.value)


def test_bad_slos_jobs_and_types():
    with pytest.raises(spillway.ConfigError, match="p99_tttf_ms"):
        spillway.run(SMALL, slo="p99_tttf_ms<5")
    with pytest.raises(spillway.ConfigError, match="0 threads"):
        spillway.run(SMALL, jobs=0)
    with pytest.raises(TypeError, match="dictionary or the path"):
        spillway.run(5)
    with pytest.raises(TypeError, match="progress"):
        spillway.run(SMALL, progress=3)


def test_a_bad_trace_is_a_data_error(tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,minus,5\n")
    with pytest.raises(spillway.DataError, match="trace.csv"):
        spillway.run({"workload.trace": str(trace)})


LONG = {"workload.requests": 20_000_000, "workload.rate": 20}  # minutes


def test_progress_is_reported_in_the_calling_thread():
    seen = []
    spillway.run(SMALL, replications=4, jobs=2, progress=lambda p: seen.append((p, threading.get_ident())))
    assert {thread for _, thread in seen} == {threading.get_ident()}
    last = seen[-1][0]
    assert (last.done, last.total, last.fraction, last.failed) == (240, 240, 1.0, 0)
    assert last.simulated_s > 0 and isinstance(last, spillway.Progress)
    done = [p.done for p, _ in seen]
    assert done == sorted(done)


def test_progress_may_be_printed(capfd):
    spillway.run(SMALL, progress=True)
    assert capfd.readouterr() == ("", "")  # too short
    spillway.run({**LONG, "workload.requests": 500_000}, requests=False, progress=True)
    printed = capfd.readouterr()
    lines = printed.err.splitlines()
    # stderr is no terminal: at most a line for each tenth.
    assert printed.out == "" and 1 <= len(lines) <= 9
    assert all(re.fullmatch(r"[0-9]+/500000 requests, simulated [0-9]+ s, [0-9]+ s left", one) for one in lines)


def test_a_callback_that_raises_ends_the_run():
    class Enough(Exception):
        pass

    def stop(progress):
        if progress.done > 0:
            raise Enough(progress.done)

    begin = time.monotonic()
    with pytest.raises(Enough) as raised:
        spillway.run(LONG, requests=False, progress=stop)
    assert 0 < raised.value.args[0] < LONG["workload.requests"]
    assert time.monotonic() - begin < 20
    # At the first call, before anything has run, and at the last.
    for call in (0, 1):
        calls = iter([False] * call + [True] * 100)

        def fail(_):
            if next(calls):
                raise Enough

        with pytest.raises(Enough):
            spillway.run(SMALL, progress=fail)


def test_other_threads_run_meanwhile():
    ended = threading.Event()
    counted = 0

    def count():
        nonlocal counted
        while not ended.wait(0.01):
            counted += 1

    thread = threading.Thread(target=count)
    thread.start()
    begin = time.monotonic()
    spillway.run({**LONG, "workload.requests": 400_000}, requests=False)
    seconds = time.monotonic() - begin
    ended.set()
    thread.join()
    # It wakes up every 10 ms, on a busy machine less often. With the GIL held it would not count at all.
    assert counted > seconds * 100 * 0.2


def test_several_threads_may_run_at_once():
    configs = [{**SMALL, "policy": policy} for policy in ("vllm", "vllm-v0", "sarathi", "orca")]
    expected = [spillway.run(config).to_json() for config in configs]
    found = [None] * len(configs)

    def work(i):
        for _ in range(5):
            found[i] = spillway.run(configs[i]).to_json()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(configs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == expected
