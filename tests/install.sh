#!/usr/bin/env bash
# Installs a build into a temporary folder and runs it from another folder.
#
#   tests/install.sh BUILD_FOLDER [CMAKE]
set -euo pipefail
build=$(realpath "$1")
cmake=${2:-cmake}
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
prefix=$place/prefix

"$cmake" --install "$build" --prefix "$prefix" >/dev/null
mkdir "$place/elsewhere"
cd "$place/elsewhere"

fail() {
  echo "error: $1" >&2
  exit 1
}
version=$("$prefix/bin/spillway" --version)
[[ $version =~ ^spillway\ [0-9]+\.[0-9]+\.[0-9]+$ ]] || fail "--version prints: $version"
"$prefix/bin/spillway" run workload.requests=10 >result.txt
grep -q "10 submitted" result.txt || fail "run workload.requests=10 prints: $(cat result.txt)"

"$prefix/bin/cuda_calibrate" --dry-run --assume t4-16gb >plan.txt
grep -q "Tesla T4" plan.txt || fail "cuda_calibrate --dry-run prints: $(cat plan.txt)"

completion=$prefix/share/bash-completion/completions/spillway
[[ -s $completion ]] || fail "$completion is missing or empty"
cmp "$completion" <("$prefix/bin/spillway" completion bash) || fail "the installed completion differs from \"spillway completion bash\""
# Sourcing the completion must also work under -eu, and must print nothing.
said=$(bash -euc 'source "$1"; complete -p spillway' bash "$completion" 2>&1)
[[ $said == "complete -F _spillway spillway" ]] || fail "sourcing the completion prints: $said"

for document in README.md LICENSE CITATION.cff; do
  [[ -s $prefix/share/doc/spillway/$document ]] || fail "share/doc/spillway/$document is missing"
done
echo "installed: $(cd "$prefix" && find . -type f | sort | xargs)"
