#!/usr/bin/env bash
# From a fresh checkout to a first result: installs missing build packages, builds the simulator, and replays one hour
# of a production code-completion service on one H100. Works from any folder. A second run only repeats the simulation.
set -euo pipefail
cd -P "$(dirname "${BASH_SOURCE[0]}")/.."

tests/packages.sh build
# An existing build folder keeps its options. A new folder is configured without tests, which need more libraries. A
# folder of another generator is configured anew.
options=()
grep -qs '^CMAKE_GENERATOR:INTERNAL=Ninja$' build/release/CMakeCache.txt || options=(--fresh -DSPILLWAY_TESTS=OFF)
cmake --preset release "${options[@]}"
cmake --build --preset release --target spillway --parallel "$(nproc)"

trace=../shared/data/traces/azure-2023-code.csv
[[ -f $trace ]] || trace=azure-conv  # the bundled workload
echo
echo "\$ build/release/spillway run workload.trace=$trace -o out/quickstart"
build/release/spillway run "workload.trace=$trace" -o out/quickstart
echo
echo "Results: $PWD/out/quickstart"
