#!/usr/bin/env bash
# Reads ldd's output, prints the Debian packages that own the shared objects.
set -euo pipefail

awk '/=> \// { print $3 }' | sort -u | while read -r object; do
  file=$(realpath "$object")
  # A merged /usr: the package may name the file without it.
  for name in "$file" "${file#/usr}" "/usr$file"; do
    if owner=$(dpkg -S "$name" 2>/dev/null); then
      echo "${owner%%:*}"
      continue 2
    fi
  done
  echo "owners: no package owns $object" >&2
  exit 1
done | sort -u
