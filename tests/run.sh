#!/usr/bin/env bash
# Builds and tests the project: installs what is missing, configures, builds, runs every test.
#
#   tests/run.sh [PRESET]    a preset of CMakePresets.json: release (default), dev, asan-ubsan, tsan
#
# The results stay in build/PRESET/tests.xml (JUnit).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=${1:-release}

tests/packages.sh build test
# A folder that another generator has filled is begun anew. Tests are said explicitly because experiments/quickstart.sh
# may have configured the same folder without them.
fresh=()
grep -qs '^CMAKE_GENERATOR:INTERNAL=Ninja$' "build/$preset/CMakeCache.txt" || fresh=(--fresh)
cmake --preset "$preset" "${fresh[@]}" -DSPILLWAY_TESTS=ON
cmake --build --preset "$preset" --parallel "$(nproc)"
ctest --preset "$preset" --parallel "$(nproc)" --output-junit tests.xml
