#!/usr/bin/env bash
# Runs the commands in the ```console and ```sh blocks of pages. Commands of ```console blocks must print the output that
# is shown there.
#
#   tests/readme.sh [FILE]...              default: README.md
#   tests/readme.sh --in-place [FILE]...   in the repository's root, for commands that configure and build
#
# In a ```console block, a line that starts with "$ " is a command; in a ```sh block every line but comments is one. A backslash at
# its end continues it on the next line. A command runs without stdin, with build/release first in PATH, in a folder that
# contains links to everything in the repository's root except out/; every page has its own. It must exit with 0, or with N
# if its comment ends in "exits N". A separate line "# exits N" applies to every command of the block. Every other line of
# a ```console block is output. It must occur, in this order, in what the last command before it printed (stdout and
# stderr). Runs of spaces count as one space, and "..." matches anything. Commands with tests/run.sh or .ci/run are not
# run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
in_place=""
if [[ ${1:-} == --in-place ]]; then
  in_place=1
  shift
fi
pages=("$@")
[[ ${#pages[@]} -gt 0 ]] || pages=(README.md)
root=$PWD
PATH=$root/build/release:$PATH
places=$(mktemp -d)
trap 'rm -rf "$places"' EXIT
time_limit=600  # seconds for one command

failures=0
commands=0
fail() {
  echo "error: $page:$1: $2" >&2
  failures=$((failures + 1))
}

# Runs one command and stores its output in `printed`. $1: line number, $2: command, $3: expected exit code.
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

# Finds line $2 in the rest of `printed` and removes everything up to it. $1: line number.
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
  fail "$1" "the output has no line \"$2\" after the lines found so far"
}

# Runs the block on stdin. $1: line number of its first line, $2: console or sh.
run_block() {
  local number=$1 kind=$2 block_code=0 command="" line code
  local -a lines
  mapfile -t lines
  for line in "${lines[@]}"; do
    if [[ $line =~ ^#\ exits\ ([0-9]+)$ ]]; then block_code=${BASH_REMATCH[1]}; fi
  done
  printed=""
  for line in "${lines[@]}"; do
    if [[ -n $command || $line == "\$ "* || ($kind == sh && -n $line && $line != "#"*) ]]; then
      command+=${line#\$ }
      if [[ $command == *\\ ]]; then
        command=${command%\\}
      else
        code=$block_code
        if [[ $command =~ \#(.*;)?\ exits\ ([0-9]+)$ ]]; then code=${BASH_REMATCH[2]}; fi
        run_command "$number" "$command" "$code"
        command=""
      fi
    elif [[ $kind == console && ! $line =~ ^#\ exits\ [0-9]+$ ]]; then
      expect_line "$number" "$line"
    fi
    number=$((number + 1))
  done
}

# Runs every block of one page. The commands must not find earlier results, above all out/. So they run in a folder with
# links to everything else in the root.
run_page() {  # page
  local number=0 start=0 kind="" block="" line entry place=$root since=$SECONDS earlier=$failures
  page=$1
  commands=0
  if [[ -z $in_place ]]; then
    place=$(mktemp -d -p "$places")
    for entry in "$root"/*; do
      [[ $entry == */out ]] || ln -s "$entry" "$place/"
    done
  fi
  cd "$place"
  while IFS= read -r line <&3 || [[ -n $line ]]; do
    number=$((number + 1))
    if [[ $start -gt 0 && $line == '```' ]]; then
      run_block "$start" "$kind" <<<"${block%$'\n'}"
      start=0
    elif [[ $start -gt 0 ]]; then
      block+=$line$'\n'
    elif [[ $line == '```console' || $line == '```sh' ]]; then
      start=$((number + 1))
      kind=${line#'```'}
      block=""
    fi
  done 3<"$root/$page"
  [[ $start -eq 0 ]] || fail "$start" 'the block has no closing ```'
  echo "$page: $commands commands run in $((SECONDS - since)) s, $((failures - earlier)) failures"
}

for page in "${pages[@]}"; do run_page "$page"; done
[[ $failures -eq 0 ]]
