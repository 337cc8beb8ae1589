#!/usr/bin/env bash
# deb_test.sh CPACK BUILD_DIR: makes the Debian packages of BUILD_DIR, looks at what is
# in them, and runs the programs of one that is unpacked.
set -euo pipefail

cpack=$1 build=$2
# Of dpkg-dev and file, which only who makes packages needs.
command -v dpkg-shlibdeps >/dev/null && command -v file >/dev/null || exit 77
work=$(mktemp -d /var/tmp/cohort-deb.XXXXXX)
trap 'rm -rf "$work"' EXIT

(cd "$build" && "$cpack" -G DEB -B "$work" >"$work/cpack.log") ||
  { cat "$work/cpack.log" >&2; exit 1; }
runtime=$(echo "$work"/cohort_*.deb)
dev=$(echo "$work"/cohort-dev_*.deb)

dpkg-deb -c "$runtime" >"$work/runtime.list"
dpkg-deb -c "$dev" >"$work/dev.list"
programs=$(sed -n 's|.* \./usr/bin/||p' "$work/runtime.list" | sort | xargs)
expected="cohort cohort-head cohort-keeper cohort-preflight cohort-provider-docker cohort-provider-kubernetes cohort-provider-process cohort-provider-slurm cohort-worker"
if [[ $programs != "$expected" ]]; then
  echo "deb: programs are: $programs; expected: $expected" >&2
  exit 1
fi
grep -q /usr/lib/systemd/system/cohort-head.service "$work/runtime.list"
grep -q /usr/share/bash-completion/completions/cohort "$work/runtime.list"
grep -q /usr/include/cohort/client/cluster.h "$work/dev.list"
grep -q /usr/share/doc/cohort/examples/train_all.cc "$work/dev.list"
if grep ' \./usr/bin/.' "$work/dev.list" >&2; then
  echo "deb: cohort-dev has programs" >&2
  exit 1
fi
[[ $(dpkg-deb -f "$runtime" Depends) == *libc6* ]]
[[ $(dpkg-deb -f "$dev" Depends) == *"cohort (= "* ]]

dpkg-deb -x "$runtime" "$work/root"
"$work/root/usr/bin/cohort" version
if [[ $(readelf -S "$work/root/usr/bin/cohort-head") == *debug_info* ]]; then
  echo "deb: the programs are not stripped" >&2
  exit 1
fi
