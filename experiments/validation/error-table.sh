# Error tables of settings of whole servers; sourced by scripts, which take [--rows] [DATA] [key=value ...]. A line of
# results has eight fields of the setting, then measured TTFT and TPOT, then simulated TTFT and TPOT, in ms.

# Sets rows, data, table and changes (the key=value arguments) from a script's arguments; work is a folder for its files.
take_arguments() {
  rows=false
  data=../shared/data
  if [[ $# -gt 0 && $1 == --rows ]]; then
    rows=true
    shift
  fi
  if [[ $# -gt 0 && $1 != *=* ]]; then
    data=$1
    shift
  fi
  changes=("$@")
  table=$data/e2e/silicon_visible.csv
  if [[ ! -f $table ]]; then
    echo "error: $table, the table of measurements, does not exist; see experiments/validation/README.md" >&2
    exit 1
  fi
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
}

# Median bias, and median, p90 and largest size of the errors in the column of stdin.
statistics() {
  sort -g | awk '{ v[NR - 1] = $1 } function quantile(w, q,  at, low) { at = q * (NR - 1); low = int(at)
      return low + 1 < NR ? w[low] + (at - low) * (w[low + 1] - w[low]) : w[low] }
    END { for (i = 0; i < NR; ++i) { size = v[i] < 0 ? -v[i] : v[i]
        for (j = i; j > 0 && s[j - 1] > size; --j) s[j] = s[j - 1]
        s[j] = size }
      printf "%+.1f%% / %.1f%% / %.1f%% / %.1f%%", 100 * quantile(v, 0.5), 100 * quantile(s, 0.5),
        100 * quantile(s, 0.9), 100 * s[NR - 1] }'
}
# A row of the table: its name, then the results on stdin.
line() {
  local part
  part=$(mktemp)
  cat >"$part"
  echo "| $1 | $(wc -l <"$part") | $(awk '{ print $12 / $10 - 1 }' "$part" | statistics) |" \
    "$(awk '{ print $11 / $9 - 1 }' "$part" | statistics) |"
  rm "$part"
}
# The simulated mean TTFT and TPOT of a result on stdin.
means() {
  awk '/"mean_(ttft|tpot)_ms": \{/ { inside = 1; name = /ttft/ ? "ttft" : "tpot" }
    inside && /"value":/ { gsub(/[^0-9.e+-]/, "", $2); value[name] = $2; inside = 0 }
    END { print value["ttft"], value["tpot"] }'
}
