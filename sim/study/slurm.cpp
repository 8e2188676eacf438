#include "sim/study/slurm.hpp"

#include <fmt/format.h>

#include <string_view>

namespace spillway {
namespace {

/// {0} points, {1} shards, {2} program, {3} arguments, {4} folder, {5} CPUs per task.
constexpr std::string_view kScript = R"script(#!/usr/bin/env bash
# Runs a sweep of {0} points as {1} tasks of a Slurm job array; a last job merges their results into the folder.
#
#   bash THIS_FILE [SBATCH OPTION ...]     such as --partition=cpu --time=2:00:00; they apply to both jobs
#
# Each task stores every point as soon as the point ends. A killed task continues with its next point when this script
# is submitted again, or when Slurm requeues the task.
set -euo pipefail

folder={4}
mkdir -p "$folder/shards"

array=$(sbatch --parsable --job-name=spillway-sweep --array=1-{1} --cpus-per-task={5} --requeue \
  --output="$folder/shards/%a.log" "$@" <<'JOB'
#!/usr/bin/env bash
exec {2} sweep{3} \
  --shard "$SLURM_ARRAY_TASK_ID/{1}" -o {4}/shards/"$SLURM_ARRAY_TASK_ID" -j {5}
JOB
)
array=${{array%%;*}}
echo "array job $array: {1} tasks of the sweep"

# afterany: a task with failed points has run all its points and exits with 4. merge reports missing points.
merge=$(sbatch --parsable --job-name=spillway-merge --dependency="afterany:$array" --cpus-per-task=1 \
  --output="$folder/merge.log" "$@" <<'JOB'
#!/usr/bin/env bash
exec {2} merge {4}/shards/{{1..{1}}} -o {4}
JOB
)
merge=${{merge%%;*}}
echo "merge job $merge: results in $folder"
)script";

}  // namespace

std::string shell_word(const std::string& text) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string slurm_script(const SlurmSweep& sweep) {
  std::string arguments;
  for (const std::string& argument : sweep.arguments) arguments += " \\\n  " + shell_word(argument);
  return fmt::format(fmt::runtime(kScript), sweep.points, sweep.shards, shell_word(sweep.program), arguments,
                     shell_word(sweep.directory), sweep.jobs);
}

}  // namespace spillway
