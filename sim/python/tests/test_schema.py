"""Results against their JSON Schema."""

import copy
import json

import pytest

import spillway

from test_run import CONFIGURATIONS

jsonschema = pytest.importorskip("jsonschema")

MORE = {
    "clients": {"workload.clients": 3, "policy": "vtc", "workload.requests": 60, "replications": 2},
    "lending": {
        "hardware": "hgx-h100-8",
        "instances": [
            {"name": "chat", "gpus": "0-1", "model": "llama-3.1-70b", "policy": "aqua",
             "memory": {"gpu_kv": "1.45GB", "lender": "small"}, "workload": {"rate": 1.5, "requests": 40}},
            {"name": "small", "gpus": "2-3", "policy": "vllm", "workload": {"rate": 20, "requests": 200}},
        ],
    },
    "perturbed": {"workload.requests": 20, "replications": 2},
    "late": {"workload.rate": 60, "workload.requests": 200, "memory.gpu_kv": "1GB", "engine.request_timeout": "2s",
             "until": "8s", "warmup": "10%"},
    "host and disk": {"workload.trace": "sharegpt-chat", "workload.requests": 100, "memory.host_cache": "4GB",
                      "memory.disk_cache": "8GB"},
    "priced": {"hardware.price_per_hour": 2.5, "hardware.power_watts": 700, "workload.requests": 20},
    "windows": {"model": "gpt-oss-20b", "workload.requests": 20},
    "a replica goes down": {"replicas": 2, "workload.rate": 20, "workload.requests": 100,
                            "events": [{"at": "1s", "replica": 1, "event": "down"}]},
}


@pytest.fixture(scope="module")
def validator():
    schema = spillway.schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def mistakes(validator, result):
    return [f"{list(one.absolute_path)}: {one.message[:300]}" for one in validator.iter_errors(result)]


@pytest.mark.parametrize("name", [*CONFIGURATIONS, *MORE])
def test_results_meet_the_schema(name, validator):
    config = {**CONFIGURATIONS, **MORE}[name]
    perturb = "5%" if name == "perturbed" else None
    result = spillway.run(config, slo="ttft_ms<500,p99.9_itl_ms<100", perturb=perturb, requests=False).to_dict()
    assert mistakes(validator, result) == []


def test_results_of_every_policy_meet_the_schema(validator):
    ran = []
    for policy in spillway.list("policies"):
        for model in ("llama-3.1-8b", "opt-13b", "mixtral-8x7b"):
            for hardware in ("hgx-h100-8", "gh200-server"):
                config = {"policy": policy["name"], "model": model, "hardware": hardware, "workload.requests": 10}
                try:
                    result = spillway.run(config, requests=False, fixed_locality=True).to_dict()
                except spillway.ConfigError:
                    continue  # not for this model or server
                assert mistakes(validator, result) == [], config
                ran.append(policy["name"])
    assert set(ran) == {policy["name"] for policy in spillway.list("policies")}


def test_the_program_prints_the_schema(program):
    assert json.loads(program("schema")) == spillway.schema() == json.loads(program("schema", "result"))
    assert json.loads(program("schema", "config")) == spillway.config_schema()


def test_the_schema_knows_every_metric_and_key():
    definitions = spillway.schema()["$defs"]
    metrics = definitions["metrics"]
    names = [*metrics["properties"], *metrics["patternProperties"]]
    for metric in spillway.list("metrics"):
        if metric["name"].endswith("_over_time"):
            continue  # a series
        assert any(metric["name"] in name for name in names), metric["name"]
    keys = {key["name"] for key in spillway.list("keys")}
    assert set(definitions["configuration"]["properties"]) == keys


BROKEN = {
    "another version": lambda r: r.update(schema_version=2),
    "a missing part": lambda r: r.pop("conservation"),
    "an unknown part": lambda r: r.update(surprise=1),
    "a figure without its unit": lambda r: r["metrics"]["mean_ttft_ms"].pop("unit"),
    "another unit": lambda r: r["metrics"]["mean_ttft_ms"].update(unit="s"),
    "a missing figure": lambda r: r["metrics"].pop("p99_ttft_ms"),
    "an unknown figure": lambda r: r["metrics"].update(p99_tft_ms=r["metrics"]["p99_ttft_ms"]),
    "a text for a figure": lambda r: r["metrics"]["mean_ttft_ms"].update(value="12"),
    "an unknown key": lambda r: r["config"].update({"workload.rat": 8}),
    "a value of another type": lambda r: r["config"].update({"replications": "many"}),
    "a count below 0": lambda r: r["conservation"]["all"].update(finished=-1),
    "a set-up without its policy": lambda r: r["setup"].pop("policy"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_result_does_not_meet_the_schema(name, validator):
    result = spillway.run(workload_requests=20, requests=False).to_dict()
    assert validator.is_valid(result)
    broken = copy.deepcopy(result)
    BROKEN[name](broken)
    assert mistakes(validator, broken)
