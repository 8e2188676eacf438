#!/usr/bin/env bash
# Prints the man page of a program, made of what the program and its commands print with --help.
#
#   cmake/manual.sh PROGRAM > NAME.1
#
# The layout of --help is CLI11's: the description, "Usage: ...", sections that end in a colon, each with entries that
# are indented by two spaces, then text of its own.
set -euo pipefail
program=$1
name=${program##*/}
version=$("$program" --version)

# One help text as roff. -v head: the command; empty for the program itself.
roff() {
  awk -v head="$1" '
    function escaped(text) {
      gsub(/\\/, "\\e", text)
      gsub(/-/, "\\-", text)
      if (text ~ /^[.\047]/) text = "\\&" text
      return text
    }
    # "  -o,--out DIR      Text", or the name alone with its text on the next line.
    function entry(line,    at, label, text) {
      sub(/^  /, "", line)
      at = match(line, /   *[^ ]/)
      label = at > 0 ? substr(line, 1, at - 1) : line
      text = at > 0 ? substr(line, at) : ""
      sub(/^ +/, "", text)
      print ".TP\n.B " escaped(label)
      if (text != "") print escaped(text)
    }
    function verbatim(on) {
      if (on && !raw) print ".PP\n.nf"
      if (!on && raw) print ".fi"
      raw = on
    }
    NR == 1 { about = $0; next }
    /^Usage: / {
      sub(/^Usage: /, "")
      usage = $0
      if (head == "") {
        print ".SH SYNOPSIS\n.B " escaped(usage) "\n.SH DESCRIPTION\n" escaped(about)
      } else {
        print ".SS " escaped(usage) "\n" escaped(about) "."
      }
      next
    }
    # Once, at the end of the page.
    /^Exit codes: / { codes = 1; next }
    codes && /^ / { next }
    { codes = 0 }
    /^(Positionals|Options|Subcommands):$/ {
      verbatim(0)
      section = 1
      if (head == "" && $0 != "Positionals:") print ".SH " ($0 == "Options:" ? "OPTIONS" : "COMMANDS")
      next
    }
    $0 == "" { section = 0; blank = raw; next }
    section && /^  [^ ]/ { entry($0); next }
    section && /^ / { sub(/^ +/, ""); print escaped($0); next }
    { verbatim(1); if (blank) print ""; blank = 0; print escaped($0) }
    END { verbatim(0) }
  '
}

# The commands in a help text.
commands() { awk '/^Subcommands:$/ { inside = 1; next } inside && /^  [^ ]/ { print $1 } inside && $0 == "" { exit }'; }

# The commands of a command, and theirs.
describe() {  # word...
  local help command
  help=$("$program" "$@" --help)
  if [[ $# -gt 0 ]]; then roff "$*" <<<"$help"; fi
  for command in $(commands <<<"$help"); do describe "$@" "$command"; done
}

help=$("$program" --help)
about=$(head -n 1 <<<"$help")
echo ".\\\" Generated from the program's --help by cmake/manual.sh."
echo ".TH ${name^^} 1 \"\" \"$version\" \"Spillway\""
echo ".SH NAME"
echo "${name//_/\\_} \\- ${about//-/\\-}" | sed 's/\\_/_/g'
roff "" <<<"$help"
if [[ -n $(commands <<<"$help") ]]; then
  echo ".SH \"DETAILS OF THE COMMANDS\""
  describe
fi
codes=$(awk '/^Exit codes: / { inside = 1; sub(/^Exit codes: */, "") } inside && $0 == "" { exit } inside { sub(/^ +/, ""); print }' <<<"$help")
if [[ -n $codes ]]; then
  echo ".SH \"EXIT STATUS\""
  echo "${codes//-/\\-}."
fi
