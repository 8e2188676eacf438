#!/usr/bin/env bash
# Installs a build into a temporary folder and runs it from another folder.
#
#   tests/install.sh BUILD_FOLDER [CMAKE]
set -euo pipefail
build=$(realpath "$1")
sources=$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")
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

for shell in zsh/site-functions/_spillway:zsh fish/vendor_completions.d/spillway.fish:fish; do
  cmp "$prefix/share/${shell%:*}" <("$prefix/bin/spillway" completion "${shell#*:}") || fail "share/${shell%:*} differs from \"spillway completion ${shell#*:}\""
done

# The man pages are what the programs say of themselves, and man has nothing to complain about.
for program in spillway cuda_calibrate; do
  page=$prefix/share/man/man1/$program.1.gz
  cmp <(zcat "$page") <("$sources/cmake/manual.sh" "$prefix/bin/$program") || fail "$page is not what --help says"
  if command -v man >/dev/null; then
    said=$(MANROFFSEQ='' man --warnings -E UTF-8 -l -Tutf8 -Z "$page" 2>&1 >/dev/null)
    [[ -z $said ]] || fail "man says of $page: $said"
  fi
done
# Every command and every flag is in the page.
text=$(zcat "$prefix/share/man/man1/spillway.1.gz" | sed 's/\\-/-/g')
for command in $("$prefix/bin/spillway" --help | awk '/^Subcommands:/ { inside = 1; next } inside && /^  [^ ]/ { print $1 }'); do
  grep -q "^\.SS spillway $command" <<<"$text" || fail "the man page lacks the command $command"
  for flag in $("$prefix/bin/spillway" "$command" --help | grep -oE '^  -[^ ]+' | tr -d ' '); do
    grep -qF -- "$flag" <<<"$text" || fail "the man page lacks $command $flag"
  done
done

for document in README.md LICENSE CITATION.cff; do
  [[ -s $prefix/share/doc/spillway/$document ]] || fail "share/doc/spillway/$document is missing"
done
echo "installed: $(cd "$prefix" && find . -type f | sort | xargs)"
