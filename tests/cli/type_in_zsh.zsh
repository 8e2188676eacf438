# Types each line of a file and a tab into an interactive zsh, and appends what each line became to another file.
#
#   zsh -f type_in_zsh.zsh SETUP LINES OUT    SETUP: a script that the shell runs first
setup=$1 lines=$2 out=$3
zmodload zsh/zpty
zpty shell zsh -f -i
drain() { local ignored; while zpty -r -t shell ignored; do :; done; }
# Waits until the file has so many lines.
await() { repeat 400 { drain; [[ -f $out && $(wc -l <$out) -ge $1 ]] && return; sleep 0.05; }; }
zpty -w shell "stty -echo; PS1= PS2=; source $setup"
# Ctrl-X s writes the line down and empties it. Without insert-tab, zsh completes although keys wait behind the tab.
zpty -w shell "zstyle ':completion:*' insert-tab false; bindkey '^I' complete-word"
zpty -w shell "show() { print -r -- \"\$BUFFER|\" >>$out; BUFFER= }; zle -N show; bindkey '^Xs' show; print -n >>$out"
number=0
while IFS= read -r line; do
  zpty -w -n shell "$line"$'\t\C-xs'
  await $((++number))
done <$lines
zpty -d shell
