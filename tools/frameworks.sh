#!/usr/bin/env bash
# Installs PyPI's torch, Lightning and Accelerate into a virtual environment, for
# tests/itest/frameworks.py: 1 min and 1.7 GB, once.
#
#   tools/frameworks.sh [DIR]      default: /var/cache/cohort-frameworks
#
# PyPI has torch for x86-64 with CUDA only, whose libraries fill 3 GB and are never
# called without a GPU.  Empty ones with the same symbols take their place.
set -euo pipefail

dir=${1:-${COHORT_FRAMEWORKS_DIR:-/var/cache/cohort-frameworks}}
torch=(torch==2.15.0 lightning==2.6.6 pytorch-lightning==2.6.6 torchmetrics==1.9.0
  accelerate==1.15.0)
# What those import, but for CUDA and Triton.
imports=(filelock fsspec huggingface_hub jinja2 lightning-utilities networkx numpy
  packaging psutil pyyaml safetensors sympy tqdm typing_extensions)

# The last file that is written is the mark of a whole installation.
[[ -e $dir/whole ]] && exit 0
if ((EUID == 0)); then
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    binutils gcc python3-venv >/dev/null
fi
rm -rf "$dir"
/usr/bin/python3 -m venv "$dir"
install() {
  "$dir/bin/pip" install --quiet --no-cache-dir --disable-pip-version-check "$@"
}
install "${imports[@]}"
install --no-deps "${torch[@]}" 'nvidia-cuda-cupti==13.2.*' 'nvidia-cuda-runtime==13.2.*'

cd "$dir"/lib/python3.*/site-packages/torch/lib
libraries='cublas|cudnn|cufft|cufile|cuFile|cusolver|cusparse|nccl|nvrtc|nvshmem'
nm -D --undefined-only ./*.so | awk '{ print $NF }' | grep -E "^($libraries)" |
  sort -u >symbols
sed -E 's/@.*//; s/.*/void &(void) { __builtin_trap(); }/' symbols >empty.c
awk -F@ 'NF > 1 { names[$2] = names[$2] $1 ";" }
  END { for (version in names) print version " {" names[version] "};" }' symbols >versions
gcc -shared -fPIC -w -o libempty.so empty.c -Wl,--version-script=versions
for needed in $(readelf -d ./*.so | sed -nE 's/.*NEEDED.*\[(lib.*)\]/\1/p' | sort -u); do
  if [[ $needed =~ ^lib($libraries) ]]; then ln -sf libempty.so "$needed"; fi
done
"$dir/bin/python" -c 'import accelerate, lightning, torch' 2>/dev/null
touch "$dir/whole"
