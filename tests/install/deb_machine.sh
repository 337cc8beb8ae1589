#!/usr/bin/env bash
# deb_machine.sh DIR: on a machine of its own, as root, installs the Debian packages in
# DIR, upgrades them under a running job, and removes them.
set -euo pipefail

packages=$(cd "$1" && pwd)
work=$(mktemp -d /var/tmp/cohort-deb.XXXXXX)
trap 'rm -rf "$work"' EXIT

apt-get update -qq
apt-get install -y -qq "$packages"/cohort_*.deb "$packages"/cohort-dev_*.deb >/dev/null
cohort up --detach --port 0 --http-address 127.0.0.1:0 --workers 1 --state-dir "$work/up"
COHORT_ADDRESS=$(cat "$work/up/address") COHORT_CREDENTIAL_FILE=$work/up/credential
export COHORT_ADDRESS COHORT_CREDENTIAL_FILE

mkfifo "$work/go"
job=$(cohort submit -- sh -c "echo begun; read line <$work/go; echo \$line")
until cohort logs "$job" 2>/dev/null | grep -qx begun; do sleep 0.1; done

dpkg-deb -R "$packages"/cohort_*.deb "$work/newer"
sed -i 's/^Version: .*/&+1/' "$work/newer/DEBIAN/control"
dpkg-deb -b "$work/newer" "$work/newer.deb" >/dev/null
dpkg -i --force-depends "$work/newer.deb" >/dev/null
dpkg -s cohort | grep '^Version: .*+1$'
cohort submit --wait -- true

echo ended >"$work/go"
cohort jobs wait "$job"
[[ $(cohort logs "$job") == $'begun\nended' ]]
cohort down --state-dir "$work/up"
apt-get remove -y -qq cohort cohort-dev >/dev/null
if [[ -e /usr/bin/cohort ]]; then
  echo "deb: cohort is there still" >&2
  exit 1
fi
echo "deb: installed, upgraded under a running job, removed"
