"""What the tests share: the program that the module must agree with."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = Path(os.environ.get("SPILLWAY_PROGRAM", ROOT / "build/release/spillway"))


@pytest.fixture
def program():
    """Runs the program without SPILLWAY_* variables; returns what it printed."""
    if not PROGRAM.exists():
        pytest.skip(f"{PROGRAM} is missing: build the program, or name it with SPILLWAY_PROGRAM")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SPILLWAY_")}

    def call(*arguments, code=0):
        done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, env=clean, check=False)
        assert done.returncode == code, done.stderr
        return done.stderr if code else done.stdout

    return call


@pytest.fixture
def root():
    return ROOT
