#!/usr/bin/env bash
# Submits a sweep to a real Slurm, as a user would, and compares the results with those of the same sweep run locally.
#
#   tests/slurm_sweep.sh SPILLWAY
#
# Exits with 77 (skipped) if Slurm cannot be run or is not installed (tests/packages.sh slurm installs it).
set -euo pipefail
spillway=$(realpath "$1")
slurm=$(dirname "$(realpath "${BASH_SOURCE[0]}")")/slurm.sh
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"

skip() {  # reason; printed as GoogleTest prints it, because tests/skipped.sh reads it
  echo "tests/slurm_sweep.sh: Skipped"
  echo "$1"
  echo "[  SKIPPED ]"
  exit 77
}
# The reason must not name a path that exists, or tests/skipped.sh reports an error.
command -v slurmctld >/dev/null || skip "slurmctld is not installed"

grid=(policy=vllm,sarathi workload.rate=2:16:x2 workload.requests=100 replications=2)
"$spillway" sweep "${grid[@]}" -o "the results" --emit slurm --shards 3 >submit.sh
code=0
"$slurm" submit.sh >log.txt 2>&1 || code=$?
cat log.txt
[[ $code -ne 77 ]] || skip "$(grep '^skipped:' log.txt)"
[[ $code -eq 0 ]] || exit "$code"

"$spillway" sweep "${grid[@]}" -o here >/dev/null
diff --recursive --exclude=.lock --exclude=shards --exclude=merge.log "the results" here
echo "The merged results equal those of a local sweep."
