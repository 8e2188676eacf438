#!/usr/bin/env bash
# From a fresh checkout to a first result: installs what a build needs and lacks, builds the simulator, and replays one hour
# of a production code-completion service on one H100. Works from any folder; running it again only repeats the simulation.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tests/packages.sh build
# A build folder that is there keeps its options; a new one needs no test libraries, and one of another generator is new.
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
