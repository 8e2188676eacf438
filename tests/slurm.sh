#!/usr/bin/env bash
# Starts a private Slurm (one node, two CPUs), runs a script that submits jobs to it, and waits for the jobs.
#
#   tests/slurm.sh [--limit SECONDS] SUBMIT_SCRIPT [ARG...]
#
# bash runs SUBMIT_SCRIPT in the current folder. Its jobs run and write their output there. The script and its jobs
# together may take SECONDS (default 300). Prints one line for each job and each task of an array, such as
#
#   job 1_2 (sweep) JobState=COMPLETED ExitCode=0:0
#
# An array that is cancelled before it starts has one line, because Slurm forgets its tasks. Exits with 0 if
# SUBMIT_SCRIPT exited with 0, it submitted a job, and all jobs ended as COMPLETED with 0:0. Otherwise exits with 1 and
# prints the last lines of the failed jobs' output and of Slurm's logs. If Slurm cannot be run, prints "skipped: REASON"
# and the last lines of the logs, if any, and exits with 77.
#
# tests/packages.sh installs missing packages. Slurm's state, key, socket and logs are in a temporary folder. At the
# end, and on a signal, the script stops everything it started, jobs included, and removes the folder. It neither uses
# nor disturbs another Slurm on the machine. Once the packages are installed, any user can run it.
set -euo pipefail
packages=$(dirname "$(realpath "${BASH_SOURCE[0]}")")/packages.sh
start_limit=30  # seconds until the node must be idle
daemons=(munged slurmctld slurmd)

usage() {
  echo "usage: $0 [--limit SECONDS] SUBMIT_SCRIPT [ARG...]" >&2
  exit 2
}
limit=300
if [[ ${1:-} == --limit ]]; then
  [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || usage
  limit=$2
  shift 2
fi
[[ $# -gt 0 && $1 != -* ]] || usage
if [[ ! -r $1 || -d $1 ]]; then
  echo "error: the script $1 is missing or cannot be read" >&2
  exit 2
fi

place=""
declare -A pids

show_logs() {  # lines of each log, daemon...
  local lines=$1 daemon
  shift
  [[ -n $place ]] || return 0
  for daemon in "$@"; do
    [[ -s $place/$daemon.log ]] || continue
    echo "---- the end of $daemon's log"
    tail -n "$lines" "$place/$daemon.log"
  done
}

skip() {  # reason
  echo "skipped: $1"
  show_logs 10 "${daemons[@]}"
  exit 77
}

fail() {  # reason
  {
    show_logs 20 slurmctld slurmd
    echo "error: $1"
  } >&2
  exit 1
}

# Prints the processes started by this run, whatever their parent is now. All of them have this run's SLURM_CONF.
started_here() {
  (
    export -n SLURM_CONF
    grep --files-with-matches --null-data --line-regexp --fixed-strings --no-messages \
      "SLURM_CONF=$place/slurm.conf" /proc/[0-9]*/environ | cut -d/ -f3
  ) || true
}

wait_until_gone() {  # seconds
  local deadline=$((SECONDS + $1))
  while [[ -n $(started_here) && $SECONDS -lt $deadline ]]; do sleep 0.1; done
}

send() {  # signal
  local left
  mapfile -t left < <(started_here)
  kill "-$1" "${left[@]}" 2>/dev/null || true
}

stop() {
  local code=$? deadline
  trap '' HUP INT TERM
  trap - EXIT
  [[ -n $place ]] || exit "$code"
  # Stop the submit script, so that nothing new is submitted. Cancel jobs through Slurm while it runs. Signal the rest.
  if [[ -n ${pids[submit]:-} ]]; then kill "${pids[submit]}" 2>/dev/null || true; fi
  if [[ -n ${pids[slurmd]:-} ]] && timeout 5 scancel --quiet --user="$(id -u)" 2>/dev/null; then
    deadline=$((SECONDS + 3))
    while [[ $SECONDS -lt $deadline && -n $(timeout 5 squeue --noheader 2>/dev/null) ]]; do sleep 0.2; done
  fi
  send TERM
  wait_until_gone 3
  send KILL
  wait_until_gone 5
  if [[ -n $(started_here) ]]; then
    echo "error: these processes could not be stopped: $(started_here | xargs)"
    code=1
  fi
  rm -rf "$place"
  exit "$code"
}
trap stop EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# Installing munge on Debian starts its service, if the system starts services at all; stop it. Slurm's own services do
# not start without /etc/slurm/slurm.conf, which the packages do not contain.
install_packages() {
  local daemon munge_was_there=0 as_root=()
  ! command -v munged >/dev/null || munge_was_there=1
  "$packages" slurm </dev/null || skip "Slurm's packages cannot be installed"
  if [[ $munge_was_there -eq 0 ]] && command -v munged >/dev/null; then
    [[ $(id -u) -eq 0 ]] || as_root=(sudo)
    "${as_root[@]}" service munge stop >/dev/null 2>&1 || true
  fi
  for daemon in "${daemons[@]}"; do
    command -v "$daemon" >/dev/null || skip "$daemon is not installed"
  done
}

two_free_ports() {  # below the range from which systems assign ports
  local port first=""
  while true; do
    port=$((20000 + RANDOM % 12000))
    if [[ $port == "$first" ]] || (: >"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then continue; fi
    echo "$port"
    [[ -z $first ]] || return 0
    first=$port
  done
}

# Uses neither cgroups nor accounting, so that Slurm works in a plain container. slurmd still loads a cgroup plugin, and
# only the plugin for v1 works without cgroups. Slurm remembers jobs after their end, and cancels a job whose dependency
# can no longer be met.
write_configuration() {
  local host ports memory
  host=$(uname -n | cut -d. -f1)
  mapfile -t ports < <(two_free_ports)
  memory=$(awk '/^MemTotal:/ { print int($2 / 1024) }' /proc/meminfo)
  echo "CgroupPlugin=cgroup/v1" >"$place/cgroup.conf"
  cat >"$place/slurm.conf" <<END
ClusterName=spillway
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=${ports[0]}
SlurmdPort=${ports[1]}
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
AuthInfo=socket=$place/munge.socket
CredType=cred/munge
StateSaveLocation=$place/state
SlurmdSpoolDir=$place/spool
SlurmctldPidFile=$place/slurmctld.pid
SlurmdPidFile=$place/slurmd.pid
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=kill_invalid_depend,sched_interval=2,bf_interval=2
SlurmdParameters=config_overrides
MinJobAge=86400
ReturnToService=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=2 RealMemory=$memory State=UNKNOWN
PartitionName=main Nodes=$host Default=YES MaxTime=INFINITE State=UP
END
}

start() {  # daemon argument...
  "$@" </dev/null >>"$place/$1.log" 2>&1 &
  pids[$1]=$!
  disown  # so that bash does not report its end
}

ended_daemon() {  # prints the name of a daemon that was started and has ended, if any
  local daemon
  for daemon in "${daemons[@]}"; do
    if [[ -n ${pids[$daemon]:-} ]] && ! kill -0 "${pids[$daemon]}" 2>/dev/null; then
      echo "$daemon"
      return
    fi
  done
}

wait_to_start() {  # reason to skip after the limit, command that succeeds once the daemon is ready...
  local what=$1 deadline=$((SECONDS + start_limit)) ended
  shift
  until "$@"; do
    ended=$(ended_daemon)
    [[ -z $ended ]] || skip "$ended ended as soon as it was started"
    [[ $SECONDS -lt $deadline ]] || skip "$what after $start_limit s"
    sleep 0.2
  done
}

munged_answers() { [[ -S $place/munge.socket ]]; }
node_is_idle() { [[ $(timeout 5 sinfo --noheader --format=%T 2>/dev/null) == idle ]]; }

start_slurm() {
  local variable
  # This script may itself run in a job of another Slurm.
  for variable in $(compgen -e | grep -E '^(SLURM|SLURMD|SBATCH|SRUN|SALLOC|SQUEUE|SINFO|SCANCEL|SCONTROL)_'); do
    unset "$variable"
  done
  # Socket paths must be short, so TMPDIR is not used.
  place=$(mktemp -d /tmp/spillway-slurm.XXXXXX)
  mkdir "$place/state" "$place/spool"
  write_configuration
  export SLURM_CONF=$place/slurm.conf

  (umask 077 && head -c 1024 /dev/urandom >"$place/munge.key")
  start munged --foreground --force --key-file="$place/munge.key" --socket="$place/munge.socket" \
    --pid-file="$place/munged.pid" --seed-file="$place/munge.seed"
  wait_to_start "munged has no socket" munged_answers
  start slurmctld -D -c -f "$SLURM_CONF"
  start slurmd -D -f "$SLURM_CONF"
  wait_to_start "Slurm's node is not idle" node_is_idle
}

# Cancels jobs whose dependency can no longer be met, because Slurm itself takes up to a minute to do so.
wait_for_jobs() {  # value of SECONDS at which to stop waiting
  local jobs hopeless
  until jobs=$(timeout 10 squeue --array --noheader --format='%i %r' 2>/dev/null) && [[ -z $jobs ]]; do
    [[ -z $(ended_daemon) && $SECONDS -lt $1 ]] || return 1
    hopeless=$(sed -n 's/ DependencyNeverSatisfied$//p' <<<"$jobs")
    [[ -z $hopeless ]] || xargs scancel --quiet <<<"$hopeless" || true
    sleep 0.5
  done
}

# Prints how each job and each task of an array ended, and the last output of those that failed. Sets `count` and `bad`.
report_jobs() {
  local jobs job state status reason name verdict file
  count=0
  bad=()
  jobs=$(timeout 60 squeue --array --states=all --noheader \
    --Format='JobArrayID:|,State:|,exit_code:|,Reason:|,Name:|' | sort --version-sort) || fail "squeue does not work"
  while IFS='|' read -r job state status reason name; do
    [[ -n $job ]] || continue
    count=$((count + 1))
    verdict="JobState=$state ExitCode=$((status >> 8)):$((status & 127))"
    if [[ $verdict == "JobState=COMPLETED ExitCode=0:0" ]]; then
      echo "job $job (${name%|}) $verdict"
      continue
    fi
    echo "job $job (${name%|}) $verdict Reason=$reason"
    bad+=("$job")
    while IFS= read -r file; do
      [[ -s $file && -f $file ]] || continue
      echo "---- the end of $file"
      tail -n 10 "$file"
    done < <(scontrol show job "$job" 2>/dev/null | sed -n 's/^ *Std\(Out\|Err\)=//p' | sort -u)
  done <<<"$jobs"
}

run_jobs() {  # submit script, argument...
  local deadline=$((SECONDS + limit)) code=0 in_time=1 ended count bad
  timeout "$limit" bash "$@" </dev/null &
  pids[submit]=$!
  wait "${pids[submit]}" || code=$?
  unset 'pids[submit]'
  [[ $code -ne 0 ]] || wait_for_jobs "$deadline" || in_time=0
  ended=$(ended_daemon)
  [[ -z $ended ]] || fail "$ended ended before the jobs did"
  report_jobs
  [[ $code -ne 124 ]] || fail "$1 has not ended in $limit s"
  [[ $code -eq 0 ]] || fail "$1 exits with $code"
  [[ $count -gt 0 ]] || fail "$1 submitted no job"
  [[ $in_time -eq 1 ]] || fail "jobs have not ended after $limit s: ${bad[*]}"
  [[ ${#bad[@]} -eq 0 ]] || fail "${#bad[@]} of $count jobs did not end as COMPLETED with 0:0: ${bad[*]}"
  echo "all $count jobs ended as COMPLETED with 0:0"
}

PATH=$PATH:/usr/sbin:/sbin
install_packages
start_slurm
run_jobs "$@"
