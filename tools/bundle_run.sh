#!/usr/bin/env bash
# Runs the programs of this bundle, wherever it was unpacked; nothing is installed.
#
#   ./run COMMAND...    COMMAND with the bundle's programs first on PATH, as in
#                       ./run cohort up --workers 1
#   ./run tests         every test here; those that need a GPU skip without one
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PATH=$here/bin:$PATH

if (($# == 0)); then
  sed -n '2,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
if [[ $1 != tests ]]; then
  exec "$@"
fi
status=0
while read -r kind name _; do
  [[ $kind == test ]] || continue
  "$here/tests/$name" || status=1
done <"$here/gpu_parts"
exit "$status"
