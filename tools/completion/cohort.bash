# Completion of `cohort` in bash: installed where bash-completion looks, or sourced.
_cohort() {
  local IFS=$'\n'
  COMPREPLY=($("${COMP_WORDS[0]}" __complete \
    "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
# Where nothing is found, files.
complete -o default -F _cohort cohort
