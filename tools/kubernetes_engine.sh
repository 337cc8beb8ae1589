#!/usr/bin/env bash
# Builds Kubernetes 1.20 from Debian's source package and installs what else the tests
# of the provider `kubernetes` run: about 9 min and 500 MB, once; root.
#
#   tools/kubernetes_engine.sh [DIR]      default: /var/cache/cohort-kubernetes
#
# tests/itest/test_kubernetes.py finds the programs there, or in
# COHORT_KUBERNETES_DIR, and is skipped without them.
set -euo pipefail

dir=${1:-${COHORT_KUBERNETES_DIR:-/var/cache/cohort-kubernetes}}
programs=(kube-apiserver kube-controller-manager kube-scheduler kubelet)

# shellcheck source=/dev/null
if [[ $(. /etc/os-release && echo "$ID-$VERSION_ID") != debian-12 ]]; then
  echo "kubernetes_engine: builds on Debian 12 only: nothing is built" >&2
  exit
fi
export DEBIAN_FRONTEND=noninteractive
apt-get install -y -qq --no-install-recommends \
  containerd runc etcd-server iproute2 openssl >/dev/null
# The last program that is written is the mark of a whole build.
[[ -x $dir/pause ]] && exit 0
apt-get install -y -qq --no-install-recommends dpkg-dev gcc golang-go \
  golang-github-modern-go-reflect2-dev libc6-dev make rsync >/dev/null

mkdir -p "$dir"
work=$(mktemp -d "$dir/build.XXXXXX")
# Go makes its module cache read-only.
trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT

# Debian's own sources, with lists apart from the machine's.
mkdir -p "$work/apt/lists/partial" "$work/apt/sources"
sed -E 's/^Types: .*/Types: deb-src/' /etc/apt/sources.list.d/debian.sources \
  >"$work/apt/sources/debian.sources"
cat >"$work/apt/apt.conf" <<CONF
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "$work/apt/sources";
Dir::State::lists "$work/apt/lists";
APT::Sandbox::User "root";
CONF
export APT_CONFIG=$work/apt/apt.conf
cd "$work"
apt-get update -qq
apt-get source -qq --download-only kubernetes
dpkg-source -x --no-check kubernetes_*.dsc source >/dev/null
cd source

# The reflect2 of the package crashes with Go 1.18 and later; Debian's own does not.
reflect=vendor/github.com/modern-go/reflect2
rm -f "$reflect"/*.go "$reflect"/*.s
cp /usr/share/gocode/src/github.com/modern-go/reflect2/*.{go,s} "$reflect"
rm -f "$reflect"/*_test.go

mkdir -p .go/src/k8s.io home
ln -sfn ../../.. .go/src/k8s.io/kubernetes
env HOME="$PWD/home" GOPATH="$PWD/.go" GOCACHE="$work/cache" GO111MODULE=off \
  CGO_ENABLED=0 KUBE_GIT_VERSION=v1.20.2 KUBE_GIT_MAJOR=1 KUBE_GIT_MINOR=20 \
  KUBE_GIT_COMMIT=debian KUBE_GIT_TREE_STATE=archive \
  make WHAT="${programs[*]/#/cmd/}"
for program in "${programs[@]}"; do
  install "_output/bin/$program" "$dir/$program"
done
gcc -Os -static -o "$dir/pause" build/pause/linux/pause.c
