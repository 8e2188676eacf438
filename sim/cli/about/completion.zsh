#compdef spillway
# zsh completion for spillway. The candidates come from the binary that is on the line, so policies, keys and names of
# any version appear by themselves.

_spillway() {
  local program=${~words[1]} line="${(j: :)words[1,CURRENT-1]} $PREFIX" candidate kept kind rest
  local -a complete open files
  for candidate in ${(f)"$($program complete --breaks '' -- $line 2>/dev/null)"}; do
    case $candidate in
      :*) files+=("$candidate") ;;
      *=) open+=("$candidate") ;;  # the value follows
      *) complete+=("$candidate") ;;
    esac
  done
  (( $#complete )) && compadd -- $complete
  (( $#open )) && compadd -S '' -- $open
  # ":KIND KEPT PREFIX": files whose names begin with PREFIX, after KEPT in the same word.
  for candidate in $files; do
    kind=${candidate%% *} rest=${candidate#* }
    kept=${rest%% *}
    compset -p $#kept
    case $kind in
      :json) _files -g '*.json' ;;
      :files) _files ;;
      :folders) _files -/ ;;
    esac
  done
}

# Loaded by compinit, the file is the function itself; sourced, it registers the function.
if [[ $funcstack[1] == _spillway ]]; then
  _spillway "$@"
else
  compdef _spillway spillway
fi
