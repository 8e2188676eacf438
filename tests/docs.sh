#!/usr/bin/env bash
# Checks the documentation: the site builds without a warning, its links lead somewhere, no page loads anything from the
# network, its pictures are those that docs/pictures.py draws, and every command of its pages prints what the page shows.
#
#   tests/docs.sh            all of it; needs build/release/spillway and cuda_calibrate
#   tests/docs.sh site       without the commands
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

docs/build.py build/release/spillway
docs/check.py build/docs/site
drawn=$(mktemp -d)
trap 'rm -rf "$drawn"' EXIT
docs/pictures.py "$drawn"
diff -r docs/pictures "$drawn" || { echo "error: docs/pictures differs from what docs/pictures.py draws" >&2; exit 1; }
[[ ${1:-} != site ]] || exit 0

# tests/tutorial.sh runs the commands of the tutorial, which build.
pages=()
for page in docs/*.md; do [[ $page == docs/add-policy.md ]] || pages+=("$page"); done
tests/readme.sh "${pages[@]}"
