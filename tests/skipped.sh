#!/usr/bin/env bash
# Lists the skipped tests of a JUnit file with their reasons. Fails if a reason names a path that exists, because a test
# then claims wrongly that its input is missing. Paths are relative to the repository.
#
#   tests/skipped.sh build/release/tests.xml
set -euo pipefail
report=$(realpath "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# "name<TAB>reason" of each skipped test: GoogleTest prints "FILE:LINE: Skipped", the reason, then "[  SKIPPED ]".
skipped=$(awk '
  /<testcase / { match($0, /name="[^"]*"/); name = substr($0, RSTART + 6, RLENGTH - 7); skipped = 0; inside = 0; reason = "" }
  /<skipped/ { skipped = 1 }
  /\[  SKIPPED \]/ { inside = 0 }
  inside { reason = reason (reason == "" ? "" : " ") $0 }
  /: Skipped$/ { inside = 1 }
  /<\/testcase>/ { if (skipped) print name "\t" (reason == "" ? "no reason given" : reason) }
' "$report" | sed 's/&quot;/"/g; s/&apos;/'"'"'/g; s/&lt;/</g; s/&gt;/>/g; s/&amp;/\&/g')

if [[ -z $skipped ]]; then
  echo "No test was skipped."
  exit 0
fi
status=0
while IFS=$'\t' read -r name reason; do
  echo "skipped: $name: $reason"
  for word in $(tr -s '"'"'"'`(),;<>' ' ' <<<"$reason"); do
    path=${word%[.:]}
    if [[ $path == */* && -e $path ]]; then
      echo "error: $name was skipped although $path exists"
      status=1
    fi
  done
done <<<"$skipped"
exit "$status"
