import ast
import inspect
import json
from pathlib import Path

import pytest

import spillway


def test_lists_and_explanations_are_the_programs(program):
    for kind in ("policies", "routers", "hardware", "models", "engines", "workloads", "metrics", "experiments", "keys"):
        expected = json.loads(program("list", kind, "--json"))
        assert [{name: text for name, text in one.items() if text} for one in spillway.list(kind)] == expected
    for name in ("vllm", "ttft_ms", "workload.rate", "h100-80gb-sxm"):
        assert spillway.explain(name) == program("explain", name)
    assert spillway.config_schema() == json.loads(program("config", "schema"))
    assert f"spillway {spillway.__version__}\n" == program("--version")
    with pytest.raises(spillway.ConfigError, match='did you mean "policies"'):
        spillway.list("polices")
    with pytest.raises(spillway.ConfigError, match='unknown name "vlm"'):
        spillway.explain("vlm")


def test_load(tmp_path, program):
    result = spillway.run(workload_requests=40)
    path = tmp_path / "result.json"
    result.save(path)
    loaded = spillway.load(path)
    assert loaded == result and loaded["mean_ttft_ms"] == result["mean_ttft_ms"]
    assert repr(loaded) == repr(result) == str(loaded)
    assert spillway.run(loaded.config) == result
    program("report", path, "-o", tmp_path / "page.html")
    with pytest.raises(ValueError, match="no table"):
        loaded.to_table()
    with pytest.raises(ValueError, match="keeps no requests"):
        loaded.requests


@pytest.mark.parametrize(
    "change, text",
    [
        (lambda json: json.update(schema_version=0), "schema version 0, and this program reads version 1"),
        (lambda json: json.pop("schema_version"), "schema version none"),
        (lambda json: json.pop("metrics"), "no result of a run"),
    ],
)
def test_a_result_of_another_schema_is_refused(change, text, tmp_path, program):
    json_ = spillway.run(workload_requests=20).to_dict()
    change(json_)
    path = tmp_path / "old.json"
    path.write_text(json.dumps(json_))
    with pytest.raises(spillway.DataError, match=text) as error:
        spillway.load(path)
    assert error.value.problems[0].where == str(path)
    if "version" in text:
        assert text in program("report", path, "-o", tmp_path / "page.html", code=3)


def test_what_cannot_be_read(tmp_path):
    with pytest.raises(spillway.DataError, match="cannot be read"):
        spillway.load(tmp_path / "missing.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(spillway.DataError, match="cannot be read"):
        spillway.load(tmp_path / "bad.json")


PACKAGE = Path(spillway.__file__).parent
STUB = ast.parse((PACKAGE / "__init__.pyi").read_text())


def stub_names(body):
    names = {}
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names[node.name] = node
        elif isinstance(node, ast.AnnAssign):
            names[node.target.id] = node
    return {name: node for name, node in names.items() if not name.startswith("_")}


def test_the_stub_has_the_names_of_the_module():
    names = stub_names(STUB.body)
    assert set(names) == set(spillway.__all__)
    assert set(spillway.__all__) == {name for name in vars(spillway)
                                     if not name.startswith("_") and not inspect.ismodule(getattr(spillway, name))}
    for name, node in names.items():
        found = getattr(spillway, name)
        assert inspect.getdoc(found), f"{name} has no docstring"
        if isinstance(node, ast.ClassDef):
            if issubclass(found, Exception):
                continue
            members = {member for member in vars(found) if not member.startswith("_")}
            members |= {field for field in getattr(found, "__dataclass_fields__", ())}
            assert set(stub_names(node.body)) == members, name


def test_the_stub_has_the_parameters_of_the_module():
    def shown(arguments):
        positional = [one.arg for one in arguments.args]
        keywords = [one.arg for one in arguments.kwonlyargs]
        defaults = [ast.literal_eval(one) for one in arguments.defaults + arguments.kw_defaults if one is not None]
        return positional + keywords + ([arguments.kwarg.arg] if arguments.kwarg else []), defaults

    for name, node in stub_names(STUB.body).items():
        if not isinstance(node, ast.FunctionDef):
            continue
        parameters = inspect.signature(getattr(spillway, name)).parameters
        defaults = [one.default for one in parameters.values() if one.default is not inspect.Parameter.empty]
        assert shown(node.args) == (list(parameters), defaults), name


def test_the_package_is_typed():
    assert (PACKAGE / "py.typed").exists()
