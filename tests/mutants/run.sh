#!/usr/bin/env bash
# Mutation test: changes one line at a time, as mutants.tsv lists them, and reports whether the tests notice.
#
#   tests/mutants/run.sh [OPTION]... [ID]...     the named entries, or all of them
#
#   --draw N --seed TEXT   N entries instead, always the same ones for the same TEXT (such as a commit's id), none of
#                          those that are known to survive, and none of a header: some headers rebuild everything
#   --all-tests            ask the other tests too, before an entry counts as survived: unit, models, property, golden
#                          and cli, until one fails
#   --release              build the copy as the release preset does. Right after a release build with ccache, the copy
#                          takes its objects from the cache, but each entry compiles a folder. Warnings are errors: an
#                          entry that the compiler refuses is noticed
#   --build DIR            folder for the copy of the sources and for its build, kept between runs (build/mutants)
#   --jobs N               parallel compilations (number of CPUs)
#   --timeout SECONDS      limit of one run of an entry's tests (120); an entry that exceeds it is noticed
#   --check                only check that every entry still applies to the sources: seconds, no build
#
# Exit status: 0 all noticed, 1 an entry survived without a known reason, 2 the list or the build is wrong.
#
# The user's files are never changed: the script copies them and builds the copy file by file at -O1. The first build
# compiles some 390 files: about 10 minutes on two idle cores, or one with a ccache that an earlier run has filled. Each
# entry then costs the compilation of one or two files, three links and its own tests: some 3 s.
# A run may be interrupted: the next run repairs the copy.
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 2
list=$root/tests/mutants/mutants.tsv
folder=$root/build/mutants
jobs=$(nproc)
draw='' seed='' release='' all_tests='' only_check='' limit=120
all_limit=1800    # seconds, of a whole test binary
build_limit=7200  # seconds
memory_limit=8    # GiB of address space: an endless loop that allocates must not take the machine down
ids=()

fail() {
  echo "error: $*" >&2
  exit 2
}

while [[ $# -gt 0 ]]; do
  case $1 in
    --draw | --seed | --build | --jobs | --timeout)
      [[ $# -ge 2 ]] || fail "$1 needs a value"
      case $1 in
        --draw) draw=$2 ;;
        --seed) seed=$2 ;;
        --build) folder=$2 ;;
        --jobs) jobs=$2 ;;
        --timeout) limit=$2 ;;
      esac
      shift
      ;;
    --release) release=1 ;;
    --all-tests) all_tests=1 ;;
    --check) only_check=1 ;;
    -h | --help)
      sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    -*) fail "unknown option $1" ;;
    *) ids+=("$1") ;;
  esac
  shift
done
[[ -z $draw || -n $seed ]] || fail "--draw needs --seed"
for number in "${draw:-0}" "$jobs" "$limit"; do
  [[ $number =~ ^[0-9]+$ ]] || fail "\"$number\" is not a whole number"
done

# --- the list

# Compares lines as strings, without indentation. Nothing in them is a pattern.
check_list() {
  awk -F '\t' -v root="$root" -v list="$list" '
    function complain(text) { printf "%s:%d: %s: %s\n", list, FNR, $1, text; faults++ }
    function trimmed(text) { sub(/^[ \t]+/, "", text); sub(/[ \t\r]+$/, "", text); return text }
    function read_file(file,    line, at) {
      if (file in known) return
      known[file] = 0
      while ((getline line < (root "/" file)) > 0) { known[file]++; at = file SUBSEP trimmed(line); times[at]++ }
      close(root "/" file)
    }
    /^#/ || /^$/ { next }
    NF != 9 { complain("has " NF " fields, not 9"); next }
    {
      entries++
      if ($1 !~ /^[a-z0-9][a-z0-9-]*$/) complain("an id has lower-case letters, digits and hyphens")
      if ($1 in seen) complain("the id is taken")
      seen[$1] = 1
      if ($4 == $5) complain("nothing is changed")
      if ($6 !~ /^(unit|models|property|golden|cli)$/) complain("no test binary is called test_" $6)
      if ($7 == "" || $8 == "" || $9 == "") complain("a field is empty")
      read_file($2)
      found = times[$2 SUBSEP $4] + 0
      if (!known[$2]) complain($2 " is not there or empty")
      else if ($3 != "-" && $3 !~ /^[1-9][0-9]*$/) complain("\"" $3 "\" is not the number of an occurrence")
      else if ($3 == "-" && found != 1) complain($2 " has this line " found " times, not once: " $4)
      else if ($3 != "-" && (found < 2 || found < $3)) complain($2 " has this line " found " times: " $4)
    }
    END { printf "%d entries, %d faults\n", entries, faults + 0; exit faults > 0 || entries == 0 }' "$list"
}

if [[ -n $only_check ]]; then
  check_list || exit 2
  exit 0
fi
faults=$(check_list) || fail "$faults"

declare -A file_of nth_of original_of changed_of test_of filter_of survives_of
all_ids=()
# Tabs at a field's ends are field separators, so no field is empty: "-" stands for nothing.
while IFS=$'\t' read -r id file nth original changed test filter survives _; do
  [[ -n $id && $id != \#* ]] || continue
  all_ids+=("$id")
  file_of[$id]=$file nth_of[$id]=$nth original_of[$id]=$original changed_of[$id]=$changed
  test_of[$id]=$test filter_of[$id]=$filter survives_of[$id]=$survives
done <"$list"

if [[ -n $draw ]]; then
  [[ ${#ids[@]} -eq 0 ]] || fail "--draw chooses the entries: name none"
  mapfile -t ids < <(for id in "${all_ids[@]}"; do
    [[ ${survives_of[$id]} == - && ! ${file_of[$id]} =~ \.(hpp|cuh)$ ]] || continue
    hash=$(printf '%s %s' "$seed" "$id" | sha256sum)
    echo "${hash%% *} $id"
  done | LC_ALL=C sort | head -n "$draw" | cut -d ' ' -f 2)
elif [[ ${#ids[@]} -eq 0 ]]; then
  ids=("${all_ids[@]}")
fi
for id in "${ids[@]}"; do
  [[ -n ${file_of[$id]:-} ]] || fail "there is no entry \"$id\""
done

# --- running things that end

child=''
# Runs a command with a time limit. In the background, so that Ctrl-C is handled at once; timeout passes the signal on.
limited() {  # seconds command...
  timeout --kill-after=5 "$@" &
  child=$!
  local code=0
  wait "$child" || code=$?
  child=''
  return "$code"
}

mutated=''  # file of the copy that is changed now
restore() {
  [[ -z $mutated ]] || cp -- "$root/$mutated" "$source/$mutated"  # with the time of now: its object is out of date
  mutated=''
}
leave() {
  [[ -z $child ]] || { kill -TERM "$child" && wait "$child"; } 2>/dev/null
  restore
  [[ -z ${scratch:-} ]] || rm -rf -- "$scratch"
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# --- the copy and its build

mkdir -p -- "$folder/src" || exit 2
folder=$(cd "$folder" && pwd)
source=$folder/src
build=$folder/build
# As far from its sources as a release build is from its own: the compiler cache compares relative paths.
[[ -z $release ]] || build=$source/build/release
log=$folder/log.txt
scratch=$(mktemp -d) || exit 2
exec 9>"$folder/lock"
flock --nonblock 9 || fail "another run uses $folder"

# Copies what git knows, with the time of now where it differs: a time of the past would hide it from the build.
copy_sources() {
  local file
  git -C "$root" ls-files --cached --others --exclude-standard | LC_ALL=C sort -u >"$scratch/wanted" || return 1
  while IFS= read -r file; do
    [[ -f $root/$file ]] || continue
    cmp --silent -- "$root/$file" "$source/$file" && continue
    mkdir -p -- "$source/$(dirname "$file")" && cp -- "$root/$file" "$source/$file" || return 1
  done <"$scratch/wanted"
  (cd "$source" && find . -path ./build -prune -o -type f -printf '%P\n' -o -type l -printf '%P\n') | LC_ALL=C sort >"$scratch/present"
  LC_ALL=C comm -13 "$scratch/wanted" "$scratch/present" | while IFS= read -r file; do rm -f -- "$source/$file"; done
}

configure() {
  local options=(-DSPILLWAY_BENCHMARKS=OFF -DSPILLWAY_CUDA=OFF -DCMAKE_GTEST_DISCOVER_TESTS_DISCOVERY_MODE=PRE_TEST)
  if [[ -n $release ]]; then
    options+=(--preset release)
  else
    options+=(-G Ninja -DCMAKE_BUILD_TYPE=Release "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG" -DSPILLWAY_TESTS=ON
      -DSPILLWAY_UNITY=OFF -DSPILLWAY_WERROR=OFF)
  fi
  if command -v ccache >/dev/null; then
    options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
    export CCACHE_BASEDIR=$source CCACHE_NOHASHDIR=true CCACHE_SLOPPINESS=pch_defines,time_macros
  fi
  local linker
  for linker in lld gold; do
    command -v "ld.$linker" >/dev/null || continue
    options+=("-DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=$linker")
    break
  done
  limited 600 cmake -S "$source" -B "$build" "${options[@]}" >"$log" 2>&1
}

build_test() {  # binary...
  limited "$build_limit" cmake --build "$build" --parallel "$jobs" --target "${@/#/test_}" >"$log" 2>&1
}

# Status of the tests: 0 passed. What the mutant prints is of no interest, how long it takes is limited.
run_test() {  # seconds binary filter
  (ulimit -v $((memory_limit << 20)) 2>/dev/null; cd "$build/tests" &&
    exec timeout --kill-after=5 "$1" "./test_$2" "--gtest_filter=$3" --gtest_fail_fast --gtest_brief=0) \
    >"$log" 2>&1 </dev/null &
  child=$!
  local code=0
  wait "$child" || code=$?
  child=''
  return "$code"
}

# Replaces the line of an entry in the copy and keeps its indentation.
apply() {  # id
  ORIGINAL=${original_of[$1]} CHANGED=${changed_of[$1]} NTH=${nth_of[$1]} awk '
    BEGIN { wanted = ENVIRON["NTH"] == "-" ? 1 : ENVIRON["NTH"] + 0 }
    {
      text = $0
      sub(/^[ \t]+/, "", text)
      indentation = substr($0, 1, length($0) - length(text))
      sub(/[ \t\r]+$/, "", text)
      if (text == ENVIRON["ORIGINAL"] && ++found == wanted) { print indentation ENVIRON["CHANGED"]; done = 1 }
      else print
    }
    END { exit !done }' "$root/${file_of[$1]}" >"$scratch/changed" || return 1
  mutated=${file_of[$1]}
  cp -- "$scratch/changed" "$source/$mutated"
}

# Verdict of an entry, in `verdict`.
judge() {  # id
  local test
  restore
  apply "$1" || { verdict='does not apply'; return; }
  if ! build_test "${test_of[$1]}"; then
    cp -- "$log" "$folder/$1.txt"
    verdict='does not compile'
    [[ -z $release ]] || verdict=noticed
    return
  fi
  verdict=noticed
  run_test "$limit" "${test_of[$1]}" "${filter_of[$1]}" || return
  if [[ -n $all_tests ]]; then
    for test in unit models property golden cli; do
      build_test "$test" || { verdict='does not compile'; return; }
      run_test "$all_limit" "$test" '*' || return
    done
  fi
  verdict=SURVIVED
}

copy_sources || fail "the sources cannot be copied to $source"
configure || { tail -n 20 "$log"; fail "the copy cannot be configured"; }

# The tests must pass as long as nothing is changed, or what they notice means nothing.
binaries=()
for test in unit models property golden cli; do
  for id in "${ids[@]}"; do
    if [[ ${test_of[$id]} == "$test" ]]; then binaries+=("$test"); break; fi
  done
done
begin=$SECONDS
build_test "${binaries[@]}" || { tail -n 20 "$log"; fail "the unchanged sources do not build"; }
declare -A passed
for id in "${ids[@]}"; do
  run="${test_of[$id]} ${filter_of[$id]}"
  [[ -z ${passed[$run]:-} ]] || continue
  run_test "$limit" "${test_of[$id]}" "${filter_of[$id]}" ||
    { grep -E '^\[  FAILED|rror' "$log" | head -n 5; fail "test_$run fails on the unchanged sources ($id)"; }
  ! grep -qF '[==========] Running 0 tests' "$log" || fail "test_$run names no test ($id)"
  passed[$run]=1
done
echo "unchanged sources: built and tested ($((SECONDS - begin)) s)"

noticed=0 known=0
survivors=() wrong=()
for id in "${ids[@]}"; do
  begin=$SECONDS
  judge "$id"
  remark=''
  case $verdict in
    noticed)
      noticed=$((noticed + 1))
      if [[ ${survives_of[$id]} != - ]]; then remark=", although the list says that it survives" wrong+=("$id"); fi
      ;;
    SURVIVED)
      if [[ ${survives_of[$id]} != - ]]; then known=$((known + 1)) remark=", as listed"; else survivors+=("$id"); fi
      ;;
    *) wrong+=("$id") ;;
  esac
  printf '%-30s %-46s %s%s (%d s)\n' "$id" "${file_of[$id]}" "$verdict" "$remark" "$((SECONDS - begin))"
done

echo "${#ids[@]} entries: $noticed noticed, ${#survivors[@]} survived, $known survived as listed, ${#wrong[@]} wrong"
[[ ${#survivors[@]} -eq 0 ]] || echo "survived: ${survivors[*]}"
[[ ${#wrong[@]} -eq 0 ]] || fail "wrong in the list: ${wrong[*]} (what the compiler says is in $folder/ID.txt)"
[[ ${#survivors[@]} -eq 0 ]] || exit 1
