# bash completion for spillway. The candidates come from the binary that is on the line, so policies, keys and names of
# any version appear by themselves. Needs neither the bash-completion package nor its settings.

# Completes file names. bash does this itself, because it knows how to match and quote them. $1: ":KIND KEPT PREFIX".
_spillway_files() {
  local kind=${1%% *} rest=${1#* }
  local kept=${rest%% *} prefix=${rest#* }
  case $kind in
    :json)
      compgen -P "$kept" -f -X '!*.json' -- "$prefix"
      compgen -P "$kept" -d -- "$prefix"
      ;;
    :files) compgen -P "$kept" -f -- "$prefix" ;;
    :folders) compgen -P "$kept" -d -- "$prefix" ;;
  esac
}

_spillway() {
  local spillway=${1/#\~\//$HOME/}  # bash has not expanded a tilde yet
  local candidate file words=0
  COMPREPLY=()
  while IFS= read -r candidate; do
    if [[ $candidate != :* ]]; then
      COMPREPLY+=("$candidate")
      words=1
      continue
    fi
    while IFS= read -r file; do COMPREPLY+=("$file"); done < <(_spillway_files "$candidate")
  done < <("$spillway" complete --breaks "$COMP_WORDBREAKS" -- "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
  # bash before version 4 has no compopt: completions then end with a superfluous space.
  if [[ $words -eq 0 ]]; then
    compopt -o filenames 2>/dev/null  # quotes names and adds a / to folders, but would turn key= into key\=
  elif [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]]; then
    compopt -o nospace 2>/dev/null  # the value follows
  fi
}

complete -F _spillway spillway
