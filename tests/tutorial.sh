#!/usr/bin/env bash
# Follows docs/add-policy.md in a copy of the sources: writes its files, then runs its commands.
#
#   tests/tutorial.sh [--suites]    --suites: also the property and golden suites, which compile many tests
#
# The copy, build/tutorial, is kept. With ccache its objects come from a release build that also used it. A ```cpp block whose first line
# is "// FILE" is the content of FILE.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
page=docs/add-policy.md
copy=$PWD/build/tutorial
mkdir -p "$copy"

# Only files that differ are written, so that the next run compiles only what has changed. Others are removed.
wanted=$(mktemp)
trap 'rm -f "$wanted"' EXIT
git ls-files --cached --others --exclude-standard | while IFS= read -r file; do
  [[ ! -f $file ]] || echo "$file"
done | LC_ALL=C sort -u >"$wanted"
(cd "$copy" && find . -path ./build -prune -o -type f -print) | sed 's|^\./||' | LC_ALL=C sort |
  LC_ALL=C comm -13 "$wanted" - | while IFS= read -r file; do rm -- "$copy/$file"; done
while IFS= read -r file; do
  cmp -s "$file" "$copy/$file" || { mkdir -p "$copy/$(dirname "$file")" && cp "$file" "$copy/$file"; }
done <"$wanted"

files=$(awk -v copy="$copy" '
  /^```cpp$/ { inside = 1; file = ""; next }
  /^```$/ { inside = 0 }
  inside && file == "" { file = $2; print file; next }
  inside { print > (copy "/" file ".new") }' "$page")
[[ $(wc -l <<<"$files") -ge 2 ]] || { echo "error: $page has no two blocks of code that name their files" >&2; exit 1; }
for file in $files; do
  if [[ -e $file ]]; then echo "error: $page writes $file, but the repository has this file" >&2; exit 1; fi
  cmp -s "$copy/$file.new" "$copy/$file" || cp "$copy/$file.new" "$copy/$file"
  rm "$copy/$file.new"
  if command -v clang-format >/dev/null; then clang-format --dry-run --Werror "$copy/$file"; fi
done

cd "$copy"
if command -v ccache >/dev/null; then
  export CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER-ccache}
  export CCACHE_BASEDIR=$copy CCACHE_NOHASHDIR=true CCACHE_SLOPPINESS=pch_defines,time_macros
fi
start=$SECONDS
tests/readme.sh --in-place "$page"
echo "the tutorial's commands took $((SECONDS - start)) s"
if [[ ${1:-} == --suites ]]; then
  cmake --build --preset release --target test_property test_golden
  build/release/tests/test_property --gtest_brief=1 --gtest_filter='*shortest_first*'
  build/release/tests/test_golden --update shortest-first
  build/release/tests/test_golden --gtest_brief=1 --gtest_filter='*shortest_first*'
fi
