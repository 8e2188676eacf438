#!/usr/bin/env bash
# Runs the commands of a page's ```console blocks and checks what it says of them.
#
#   tests/readme.sh [FILE]    default: README.md
#
# In a block, a line that starts with "$ " is a command; with a backslash at its end it goes on in the next line. It runs
# in a folder that shows the repository's root without out/, with build/release first in PATH and no stdin, and must exit with 0, or with N when it ends in
# "# exits N". A line "# exits N" of its own says so for every command of the block. The other lines are output: each must
# occur, in this order, in what the commands before it in the block have printed (stdout and stderr); spaces count as one, "..."
# stands for anything. tests/run.sh and .ci/run are not run from here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
page=${1:-README.md}
PATH=$PWD/build/release:$PATH
# What the commands write, out/ above all, must not meet what was there before: they run in a folder that shows
# everything of the root but that.
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
for entry in *; do
  [[ $entry == out ]] || ln -s "$PWD/$entry" "$place/$entry"
done
cd "$place"
time_limit=600  # seconds for one command

failures=0
commands=0
fail() {
  echo "error: $page:$1: $2" >&2
  failures=$((failures + 1))
}

# Runs one command and leaves what it prints in `printed`. $1: line number, $2: command, $3: expected exit code.
run_command() {
  local code=0
  case $2 in
    *tests/run.sh* | *.ci/run*)
      printed=""
      return
      ;;
  esac
  echo "\$ $2"
  commands=$((commands + 1))
  printed=$(timeout "$time_limit" bash -c "$2" </dev/null 2>&1) || code=$?
  if [[ $code -ne $3 ]]; then
    echo "$printed"
    fail "$1" "\"$2\" exits with $code, not $3"
  fi
}

squeeze() { tr -s ' \t' ' ' | sed 's/^ //; s/ $//'; }

# Looks for line $2 in the rest of `printed`, and cuts off everything up to it. $1: line number.
expect_line() {
  local wanted pattern line rest
  wanted=$(squeeze <<<"$2")
  [[ -n $wanted && $wanted != "..." ]] || return 0
  pattern=$(sed 's/[][\\*?]/\\&/g; s/\.\.\./*/g' <<<"$wanted")
  rest=$printed
  while [[ -n $rest ]]; do
    line=$(head -n 1 <<<"$rest" | squeeze)
    rest=$(tail -n +2 <<<"$rest")
    # shellcheck disable=SC2053  # the pattern is meant to be one
    if [[ $line == $pattern ]]; then
      printed=$rest
      return 0
    fi
  done
  echo "$printed"
  fail "$1" "the output has no (further) line \"$2\""
}

# $1: number of the block's first line; the block on stdin.
run_block() {
  local number=$1 block_code=0 command="" line code
  local -a lines
  mapfile -t lines
  for line in "${lines[@]}"; do
    if [[ $line =~ ^#\ exits\ ([0-9]+)$ ]]; then block_code=${BASH_REMATCH[1]}; fi
  done
  printed=""
  for line in "${lines[@]}"; do
    if [[ -n $command || $line == "\$ "* ]]; then
      command+=${line#\$ }
      if [[ $command == *\\ ]]; then
        command=${command%\\}
      else
        code=$block_code
        if [[ $command =~ \#\ exits\ ([0-9]+)$ ]]; then code=${BASH_REMATCH[1]}; fi
        run_command "$number" "$command" "$code"
        command=""
      fi
    elif [[ ! $line =~ ^#\ exits\ [0-9]+$ ]]; then
      expect_line "$number" "$line"
    fi
    number=$((number + 1))
  done
}

number=0
start=0
block=""
while IFS= read -r line <&3 || [[ -n $line ]]; do
  number=$((number + 1))
  if [[ $start -gt 0 && $line == '```' ]]; then
    run_block "$start" <<<"${block%$'\n'}"
    start=0
  elif [[ $start -gt 0 ]]; then
    block+=$line$'\n'
  elif [[ $line == '```console' ]]; then
    start=$((number + 1))
    block=""
  fi
done 3<"$page"

[[ $start -eq 0 ]] || fail "$start" "the block does not end"
echo "$page: $commands commands run, $failures failures"
[[ $failures -eq 0 ]]
