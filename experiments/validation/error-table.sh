# Error tables of settings of whole servers; sourced by scripts. A line of results has eight fields of the setting, then
# measured TTFT and TPOT, then simulated TTFT and TPOT, in ms.

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
