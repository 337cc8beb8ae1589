#!/usr/bin/env bash
# Makes DIR a directory of links to the programs of the packages that `tools/setup.sh
# --dev` names, of their dependencies, and of what every Debian has.  As a PATH it finds
# nothing that a machine lacks on which only tools/setup.sh has run: tests run with it
# (run_ctest), so that a development machine hides no missing program.
#
#   tools/package_path.sh DIR
set -euo pipefail
dir=$(realpath -m "${1:?usage: tools/package_path.sh DIR}")
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mapfile -t named < <(
  # shellcheck disable=SC2016  # dpkg-query's own field syntax.
  tools/setup.sh --dev --print |
    xargs dpkg-query -W -f '${db:Status-Status} ${Package}\n' 2>/dev/null |
    awk '$1 == "installed" { print $2 }'
)
mapfile -t packages < <(
  {
    apt-cache depends --recurse --installed --no-recommends --no-suggests \
      --no-conflicts --no-breaks --no-replaces --no-enhances "${named[@]}" apt |
      grep -E '^[a-z0-9]'
    dpkg-query -W -f '${Essential} ${Priority} ${binary:Package}\n' |
      awk '$1 == "yes" || $2 == "required" { print $3 }'
  } | sed 's/:.*//' | sort -u
)

# By resolved paths: /bin is a link to /usr/bin, and awk an alternative.
declare -A owned=()
while read -r file; do owned[$file]=1; done < <(
  dpkg-query -L "${packages[@]}" 2>/dev/null | grep -E '/s?bin/|^/usr/lib/' |
    xargs -r readlink -f
)
rm -rf "$dir"
mkdir -p "$dir"
for program in /usr/local/sbin/* /usr/sbin/* /usr/bin/*; do
  [[ -x $program && -n ${owned[$(readlink -f "$program")]:-} ]] || continue
  ln -sf "$program" "$dir/"
done
