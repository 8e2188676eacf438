#!/usr/bin/env bash
# Installs the Python package with pip into a new virtual environment, and runs its tests and its example there.
#
#   tests/python.sh [ARGUMENT...]    arguments of pytest, such as -k sweep
#
# The module is built in build/python, which the next call reuses. Its results are compared with those of
# build/release/spillway, or of the program that SPILLWAY_PROGRAM names.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tests/packages.sh build python pytest
# Debian's Python has the packages; another one that comes first in PATH may not.
python=/usr/bin/python3
[[ -x $python ]] || python=python3
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
# As the release preset: a compiler cache then has the object files.
export CMAKE_ARGS=-DSPILLWAY_WERROR=ON
"$python" -m venv --system-site-packages "$place/venv"
"$place/venv/bin/pip" install --quiet --no-build-isolation --no-deps --disable-pip-version-check .
# Elsewhere, so that Python imports what is installed, not the sources.
tests=$PWD/sim/python/tests
example=$PWD/sim/python/examples/pie_expansion.py
export SPILLWAY_PROGRAM=${SPILLWAY_PROGRAM:-$PWD/build/release/spillway}
cd "$place"
PYTHONDONTWRITEBYTECODE=1 "$place/venv/bin/python" -m pytest -q -p no:cacheprovider --durations=5 "$tests" "$@"
[[ $# -gt 0 ]] || "$place/venv/bin/python" "$example" --quick -o "$place/figure.png"
