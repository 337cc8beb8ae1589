# Completion of `cohort` in bash: installed where bash-completion looks, or sourced.
_cohort() {
  local words word
  mapfile -t words < <("${COMP_WORDS[0]}" __complete \
    "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  COMPREPLY=()
  for word in "${words[@]}"; do
    # A job's name may hold anything, which is not for the shell to run.
    [[ $word =~ ^[[:alnum:]_=,.:/@+%-]*$ ]] || printf -v word %q "$word"
    COMPREPLY+=("$word")
  done
}
# Where nothing is found, files.
complete -o default -F _cohort cohort
