"""Spillway simulates LLM serving: which policy, with which settings, gives which latency and throughput?

    import spillway

    result = spillway.run({"policy": "vllm", "hardware": "h100-80gb-sxm"}, workload_rate=8, slo="ttft_ms<500")
    print(result)                       # the screen that the program prints
    result["p99_ttft_ms"]               # a figure; spillway.list("metrics") has their meaning and units
    result.requests["ttft_ms"]          # a numpy array with one value per request

    rates = spillway.sweep(policy=["vllm", "sarathi"], workload_rate="2:16:x2", jobs=2)
    pandas.DataFrame(rates)             # one row per point

Settings are those of the command line: spillway.list("keys") has them all, and spillway.explain("workload.rate") says
what one does. A configuration is a dictionary, flat ({"workload.rate": 8}) or nested ({"workload": {"rate": 8}}), or
the path of a JSON file. Keywords override it. A keyword's name may have underscores for dots: workload_rate=8.
Environment variables SPILLWAY_* are not read: a call's result depends on its arguments alone.

The same settings give the same bytes as `spillway run --json`, on any machine and with any number of jobs.

Threads: all functions may be called from several threads at once. While a simulation runs, other Python threads run
too. Progress callbacks run in the thread that called. Ctrl-C raises KeyboardInterrupt in the main thread, as Python
does, and ends a simulation that this thread waits for within about 0.1 s, once its input has been read.
"""

import builtins as _builtins
import collections.abc as _abc
import json as _json
import math as _math
import os as _os
import sys as _sys
import time as _time
from dataclasses import dataclass as _dataclass

import numpy as _numpy

from . import _core
from ._errors import ConfigError, DataError, Error, InvariantError, Problem

__all__ = [
    "ConfigError", "DataError", "Error", "InvariantError", "Metric", "Problem", "Progress", "Result", "Sweep",
    "config_schema", "explain", "list", "load", "run", "schema", "sweep",
]

__version__ = _core.version()

_SCHEMA_VERSION = _core.schema_version


@_dataclass(frozen=True)
class Metric:
    """One figure of a result."""

    value: float
    """NaN when the figure does not exist for this run, which is not 0."""
    unit: str
    n: int
    """Samples behind it."""
    half_width: float
    """Of the 95% t-interval over replications; NaN with a single one."""
    replications: tuple
    """The value in each replication; empty with a single one."""

    def __float__(self):
        return self.value


@_dataclass(frozen=True)
class Progress:
    """How far a run or a sweep is."""

    done: int
    """Requests of a run, of all its replications; points of a sweep."""
    total: int
    fraction: float
    """Of the work, from 0 to 1. Points of a sweep differ in size."""
    simulated_s: float
    """Simulated time, of all replications and points."""
    failed: int
    """Points of a sweep that failed."""
    running: "int | None"
    """Requests in the batch; None in a sweep."""
    waiting: "int | None"
    """Requests in the queue; None in a sweep."""


class Result:
    """What a run found: the figures, and the rows of its requests.

    `result["p99_ttft_ms"]` is a figure, `result.metrics` has all of them with units, `result.requests` the requests,
    `result.to_dict()` everything that the program writes. print(result) shows the program's screen.

    A result does not change. It can be pickled; what comes back has copies of the arrays.
    """

    __slots__ = ("_json", "_table", "_csv", "_owner", "_requests", "_dict")

    def __init__(self, *args, **kwargs):
        raise TypeError("spillway.run and spillway.load make results")

    @classmethod
    def _make(cls, text, table, csv, owner=None, requests=None):
        self = object.__new__(cls)
        self._json, self._table, self._csv, self._owner, self._requests = text, table, csv, owner, requests
        self._dict = None
        return self

    def to_json(self):
        """result.json: the bytes of `spillway run --json`."""
        return self._json

    def to_dict(self):
        """The contents of result.json as new objects, which may be changed."""
        return _json.loads(self._json)

    def to_csv(self):
        """name,value,unit,n: one row per metric, as `spillway run --format csv` prints it."""
        return self._text(self._csv, "CSV")

    def to_table(self):
        """The screen that `spillway run` prints."""
        return self._text(self._table, "table")

    def to_html(self):
        """One HTML page with charts, for any browser, offline."""
        return _core.html("run", self._json)

    @staticmethod
    def _text(text, what):
        if text is None:
            raise ValueError(f"a result that was loaded from JSON has no {what}: run its config again")
        return text

    @property
    def _contents(self):
        if self._dict is None:
            self._dict = _json.loads(self._json)
        return self._dict

    @property
    def metrics(self):
        """Every figure by its name, as Metric."""
        return {name: _metric(one) for name, one in self._contents["metrics"].items()}

    def __getitem__(self, name):
        """The value of a metric; NaN when it does not exist for this run."""
        metrics = self._contents["metrics"]
        if name not in metrics:
            raise KeyError(f"{name}: this result has no such metric; result.metrics lists its {len(metrics)}")
        return _number(metrics[name]["value"])

    def __contains__(self, name):
        return name in self._contents["metrics"]

    __iter__ = None

    @property
    def config(self):
        """Every key of the run with its value: running it again gives the same result."""
        return dict(self._contents["config"])

    @property
    def warnings(self):
        """What to know before relying on the figures."""
        return tuple(self._contents["warnings"])

    @property
    def bottleneck(self):
        """One sentence: what limits the run."""
        return self._contents["bottleneck"]["sentence"]

    @property
    def requests(self):
        """The requests: a dictionary of equally long numpy arrays, which pandas.DataFrame takes.

        The columns are those of `spillway run --requests-out`: times since the start of the run in ns, latencies in
        ms, lengths in tokens. Rows are in order of replication, and in one replication in order of ending. Columns
        that may lack a value are float64, with NaN for none; they are exact up to 2**53 ns (104 simulated days).
        Others are int64. The arrays are read-only and view the simulator's memory, which lives as long as one of them
        does: some 200 bytes for each request. Only the texts ("outcome", "instance") are made when asked for.
        """
        if self._requests is None:
            if self._owner is None:
                raise ValueError("this result keeps no requests: it was loaded, or run with requests=False")
            self._requests = {
                name: _numpy.array(texts)[values] if texts else values
                for name, (values, texts) in _core.arrays(self._owner).items()
            }
        return dict(self._requests)

    def save(self, path):
        """Writes result.json, which spillway.load and `spillway report` read."""
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write(self._json)

    def __eq__(self, other):
        return self._json == other._json if isinstance(other, Result) else NotImplemented

    def __hash__(self):
        return hash(self._json)

    def __reduce__(self):
        requests = None
        if self._owner is not None or self._requests is not None:
            requests = self.requests
        return _restored, (self._json, self._table, self._csv, requests)

    def __str__(self):
        return self._table.rstrip("\n") if self._table is not None else repr(self)

    def __repr__(self):
        json = self._contents
        setup, counts = json["setup"], json["conservation"]["all"]
        figures = [f"{name}={self[name]:.4g}" for name in ("mean_ttft_ms", "p99_ttft_ms", "mean_tpot_ms",
                                                           "output_throughput_tokens_per_s") if name in self]
        return (f"<spillway.Result {setup['policy']}, {setup['model']} on {setup['hardware']}: "
                f"{counts['finished']} of {counts['submitted']} requests finished, {', '.join(figures)}>")


class Sweep(_abc.Sequence):
    """The points of a sweep, a dictionary each, in order of the grid. pandas.DataFrame(sweep) is its table.

    A row has `point`, the keys of the sweep with their values, `bottleneck`, `steady_state`, every metric, with
    several replications `half_width_` and its name too, `error` (empty unless the point failed) and `id`. A figure
    that a point does not have is NaN.
    """

    def __init__(self, *args, **kwargs):
        raise TypeError("spillway.sweep makes sweeps")

    @classmethod
    def _make(cls, text, table, csv, values):
        self = object.__new__(cls)
        self._json, self._table, self._csv = text, table, csv
        self._rows = _sweep_rows(_json.loads(text), _json.loads(values))
        return self

    def __getitem__(self, index):
        rows = self._rows[index]
        return [dict(one) for one in rows] if isinstance(index, slice) else dict(rows)

    def __len__(self):
        return len(self._rows)

    @property
    def keys(self):
        """The keys that have several values."""
        return [key for axis in _json.loads(self._json)["axes"] for key in axis["keys"]]

    @property
    def failed(self):
        """The rows of the points that could not be run, with the reason in `error`."""
        return [dict(one) for one in self._rows if one["error"]]

    def to_json(self):
        """The bytes of `spillway sweep --json`."""
        return self._json

    def to_csv(self):
        """One row per point, as `spillway sweep --format csv` prints it."""
        return self._csv

    def to_table(self):
        """The table that `spillway sweep` prints."""
        return self._table

    def to_html(self):
        """One HTML page with charts, for any browser, offline."""
        return _core.html("sweep", self._json)

    def __str__(self):
        return self._table.rstrip("\n")

    def __repr__(self):
        keys = ", ".join(self.keys) or "no keys"
        failed = f", {len(self.failed)} failed" if self.failed else ""
        return f"<spillway.Sweep of {keys}: {len(self)} points{failed}>"


def run(config=None, *, slo=None, requests=True, perturb=None, fixed_locality=False, jobs=1, progress=None, **settings):
    """Simulates one configuration. Returns a Result.

    config          a dictionary of settings, or the path of a JSON file; None: only `settings`
    slo             SLOs, as "ttft_ms<500,p99_ttft_ms<1000", or several such texts, or {"ttft_ms": 500}
    requests        keep the rows of the requests, some 200 bytes each, for Result.requests
    perturb         robustness: 30 more runs with times changed by this fraction, as "5%" or 0.05
    fixed_locality  if the policy places experts: skip the runs with experts.locality halved and doubled
    jobs            threads for replications
    progress        a function that is called with a Progress about ten times a second, in the calling thread; True:
                    print a line to sys.stderr. If it raises, the run ends and the exception goes on.
    settings        settings that override config's

    Raises ConfigError with every mistake in the settings and the nearest names, DataError for a file that cannot be
    used, InvariantError for a defect. Ctrl-C raises KeyboardInterrupt, and nothing is kept.
    """
    text, path, keywords = _given(config, settings, slo)
    reports = _reports(progress, "requests")
    json, table, csv, owner = _core.run(text, path, keywords, _slos(slo), None if perturb is None else str(perturb),
                                        bool(fixed_locality), bool(requests), _jobs(jobs), reports)
    return Result._make(json, table, csv, owner)


def sweep(config=None, *, slo=None, zip=(), metrics=(), directory=None, fixed_locality=False, jobs=1, progress=None,
          **settings):
    """Simulates a grid of configurations. Returns a Sweep, which pandas.DataFrame takes.

    A key has several values as a list, or in the notation of the command line: "2,4,8", "2:16:2", "1:16:x2". Every
    combination is a point; the last key varies fastest.

    zip             keys that change their values together: "model,tensor_parallel", or several of them
    metrics         metrics of Sweep.to_table(); the rows have all
    directory       folder for the results; points with a result there do not run again
    jobs            threads

    config, slo, fixed_locality, progress and settings are those of run. A point that fails has the reason in its row's
    `error`; mistakes that all points share are raised before any runs. Ctrl-C raises KeyboardInterrupt: the same call with
    the same directory continues.
    """
    text, path, keywords = _given(config, settings, slo)
    reports = _reports(progress, "points")
    texts = _core.sweep(text, path, keywords, _slos(slo), _texts(zip), _texts(metrics),
                        "" if directory is None else _os.fspath(directory), bool(fixed_locality), _jobs(jobs), reports)
    return Sweep._make(*texts)


def explain(name):
    """What a policy, metric, key, GPU, server, model, engine, workload, experiment or claim is, as text."""
    return _core.explain(name)


def list(kind):
    """The names of one kind: policies, routers, hardware, models, engines, workloads, metrics, experiments or keys.

    Returns dictionaries with name, summary, details and kind, which pandas.DataFrame takes.
    """
    return [dict(name=name, summary=summary, details=details, kind=of) for name, summary, details, of in
            _core.listed(kind)]


def config_schema():
    """The JSON Schema (2020-12) of configurations, as a dictionary."""
    return _json.loads(_core.config_schema())


def schema():
    """The JSON Schema (2020-12) of results, of Result.to_dict(), as a dictionary."""
    return _json.loads(_core.result_schema())


def load(path):
    """Reads a result.json. The result has no requests and no screen. Raises DataError for any other file."""
    name = _os.fspath(path)
    try:
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read()
        json = _json.loads(text)
    except (OSError, ValueError) as error:
        raise DataError([(f"the result cannot be read: {error}", name, "name a result.json of spillway")]) from error
    if not isinstance(json, dict) or not {"setup", "metrics", "conservation"} <= json.keys():
        raise DataError([("this is no result of a run", name, "name a result.json of spillway run")])
    if json.get("schema_version") != _SCHEMA_VERSION:
        found = json.get("schema_version", "none")
        raise DataError([(f"the result has schema version {found}, and this program reads version {_SCHEMA_VERSION}",
                          name, "run it again with this program, or use the one that wrote it")])
    return Result._make(text, None, None)


def _restored(text, table, csv, requests):
    return Result._make(text, table, csv, None, requests)


def _number(value):
    return _math.nan if value is None else float(value)


def _metric(json):
    return Metric(_number(json["value"]), json["unit"], json["n"], _number(json.get("half_width")),
                  tuple(_number(one) for one in json.get("replications", ())))


def _sweep_rows(json, values):
    keys = [key for axis in json["axes"] for key in axis["keys"]]
    points = json["points"]
    # Columns in the order of the program's CSV: a figure that one point lacks is NaN there.
    metrics = {name: None for point in points for name in point.get("metrics", {})}
    intervals = any("half_width" in one for point in points for one in point.get("metrics", {}).values())
    locality = "experts.locality" not in keys and any("expert_locality" in point for point in points)
    others = any("runs" in point.get("other_localities", {}) for point in points)
    rows = []
    for point, typed in _builtins.zip(points, values):
        row = {"point": point["point"], **dict(_builtins.zip(keys, typed))}
        if locality:
            row["experts.locality"] = _number(point.get("expert_locality"))
        if others:
            runs = point.get("other_localities", {}).get("runs") or [{}, {}]
            for name, run in _builtins.zip(("halved", "doubled"), runs):
                for metric in ("output_throughput_tokens_per_s", "p50_tpot_ms"):
                    row[f"{name}_locality_{metric}"] = _number(run.get(metric))
        row["bottleneck"] = point.get("bottleneck", "")
        row["steady_state"] = point.get("steady_state", "")
        of_point = point.get("metrics", {})
        for name in metrics:
            one = of_point.get(name, {})
            row[name] = _number(one.get("value"))
            if intervals:
                row["half_width_" + name] = _number(one.get("half_width"))
        row["error"] = point.get("error", "")
        row["id"] = point.get("id", "")
        rows.append(row)
    return rows


def _plain(value):
    """A value as JSON has it: numpy's numbers and arrays, ranges and paths included."""
    if isinstance(value, _abc.Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (str, bool, int)) or value is None:
        return value
    if isinstance(value, float):
        if not _math.isfinite(value):
            raise ConfigError([(f"{value} is no value of a key", "config", "give a finite number, or None")])
        return value
    if isinstance(value, _numpy.generic):
        return _plain(value.item())
    if isinstance(value, _numpy.ndarray):
        return _plain(value.tolist())
    if isinstance(value, _os.PathLike):
        return _os.fspath(value)
    if isinstance(value, _abc.Iterable):
        return [_plain(one) for one in value]
    raise ConfigError([(f"a value of type {type(value).__name__} cannot be a setting", "config",
                        "give numbers, texts, True or False, None, dictionaries or lists")])


def _given(config, settings, slo):
    text, path = "{}", ""
    if isinstance(slo, _abc.Mapping):  # the keys slo.*
        settings = {**settings, "slo": slo}
    if isinstance(config, _abc.Mapping):
        text = _json.dumps(_plain(config))
    elif isinstance(config, (str, _os.PathLike)):
        path = _os.fspath(config)
        if not path:
            raise ConfigError([("the path of the configuration is empty", "config", "name a file, or give None")])
    elif config is not None:
        raise TypeError(f"config is a dictionary or the path of a JSON file, not {type(config).__name__}")
    return text, path, _json.dumps(_plain(settings))


def _texts(value):
    return [value] if isinstance(value, str) else [str(one) for one in value]


def _slos(slo):
    return [] if slo is None or isinstance(slo, _abc.Mapping) else _texts(slo)


def _jobs(jobs):
    if not 1 <= jobs <= 1024:
        raise ConfigError([(f"{jobs} threads", "jobs", "give a number from 1 to 1024")])
    return int(jobs)


def _reports(progress, unit):
    """A function for _core, which calls it with the fields of Progress."""
    if progress is None or progress is False:
        return None
    call = _Line(unit) if progress is True else progress
    if not callable(call):
        raise TypeError(f"progress is a function, True or None, not {type(progress).__name__}")

    def report(done, total, fraction, simulated_s, failed, running, waiting):
        call(Progress(done, total, fraction, simulated_s, failed, None if running < 0 else running,
                      None if waiting < 0 else waiting))

    return report


class _Line:
    """Prints progress to sys.stderr as the program does: a terminal's line again and again, elsewhere a line for each
    tenth. Work of less than 0.5 s prints nothing."""

    def __init__(self, unit):
        self.unit, self.begin, self.shown, self.tenths = unit, _time.monotonic(), False, 0
        self.terminal = hasattr(_sys.stderr, "isatty") and _sys.stderr.isatty()

    def __call__(self, progress):
        seconds = _time.monotonic() - self.begin
        tenths = int(progress.fraction * 10)
        if seconds < 0.5 or progress.fraction >= 1:
            if self.shown:
                print("\r\x1b[K", end="", file=_sys.stderr, flush=True)
            return
        left = f", {seconds * (1 / progress.fraction - 1):.0f} s left" if progress.fraction > 0 else ""
        text = f"{progress.done}/{progress.total} {self.unit}, simulated {progress.simulated_s:.0f} s{left}"
        if self.terminal:
            print(f"\r{text}\x1b[K", end="", file=_sys.stderr, flush=True)
            self.shown = True
        elif tenths > self.tenths:
            print(text, file=_sys.stderr, flush=True)
        self.tenths = max(tenths, self.tenths)
