#!/usr/bin/env bash
# Builds and tests the project: installs missing packages, configures, builds and runs every test.
#
#   tests/run.sh [PRESET [ARGUMENT...]]    a preset of CMakePresets.json: release (default), dev, asan-ubsan, tsan;
#                                          and arguments of ctest, such as --label-exclude cli
#
# Writes the results to build/PRESET/tests.xml (JUnit).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=${1:-release}
shift $(($# > 0 ? 1 : 0))

tests/packages.sh build test
# A folder of another generator is configured anew. SPILLWAY_TESTS is set here because experiments/quickstart.sh may
# have configured the same folder without tests.
fresh=()
grep -qs '^CMAKE_GENERATOR:INTERNAL=Ninja$' "build/$preset/CMakeCache.txt" || fresh=(--fresh)
cmake --preset "$preset" "${fresh[@]}" -DSPILLWAY_TESTS=ON
cmake --build --preset "$preset" --parallel "$(nproc)"
ctest --preset "$preset" --parallel "$(nproc)" --output-junit tests.xml "$@"
