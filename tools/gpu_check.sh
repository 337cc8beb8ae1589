#!/usr/bin/env bash
# Proves cohort on this machine's GPUs in at most 8 minutes (after the build), from the
# source tree or from inside a bundle (tools/gpu_bundle.sh), and writes one report.
#
#   tools/gpu_check.sh [--torch DIR] [--report FILE] [--seconds N]
#
# Runs devices beside nvidia-smi, every GPU test, every GPU bench, and the examples as
# jobs of a cluster of its own.  Those that link LibTorch run when --torch names a
# directory (site-packages/torch) of the version that they were built against.  The
# report, gpu-check.md beside the programs, has each figure with its floor, or names it
# as not measured.  One part that fails hides no other; then the exit status is 1.
# Nothing is waited for longer than 8 minutes (--seconds) in all, a driver that hangs
# neither.  Without a GPU everything is counted as skipped, and the status is 0.
# Not -e: what fails is an outcome, and the next part is run.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage() {
  sed -n '2,14s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
}
torch='' report='' budget=480
while (($#)); do
  case $1 in
    --torch | --report | --seconds)
      [[ -n ${2:-} ]] || usage
      case $1 in
        --torch) torch=$2 ;;
        --report) report=$2 ;;
        --seconds) budget=$2 ;;
      esac
      shift 2
      ;;
    *) usage ;;
  esac
done
[[ $budget =~ ^[1-9][0-9]{0,4}$ ]] || usage
if [[ -n $torch && ! -d $torch/lib ]]; then
  echo "gpu_check: $torch has no lib/: name the directory torch of site-packages" >&2
  exit 2
fi
[[ -z $torch ]] || torch=$(cd "$torch" && pwd)

# Programs lie alike in a build and in a bundle.
if [[ -e $here/gpu_parts ]]; then
  programs=$here
else
  programs=$here/build/release
  (cd "$here" && cmake --preset release -Wno-dev | grep cohort: &&
    cmake --build --preset release --target bundle gpu_examples) || exit
fi
report=${report:-$programs/gpu-check.md}
: >"$report" || exit
export PATH=$programs/bin:$PATH
work=$(mktemp -d)
up_pid='' running=''
finish() {
  # It is in a process group of its own.
  [[ -z $running ]] || kill "$running" 2>/dev/null
  if [[ -n $up_pid ]]; then
    kill "$up_pid" 2>/dev/null
    ends_within 20 "$up_pid" || kill -KILL "$up_pid" 2>/dev/null
  fi
  rm -rf "$work"
}
trap finish EXIT
SECONDS=0

# ---- outcomes: lines "passed|failed|skipped <tab> part <tab> what was said"

outcome() {
  printf '%s\t%s\t%s\n' "$1" "$2" "${3:-}" >>"$work/outcomes"
  printf '%-8s%s%s\n' "$1" "$2" "${3:+: $3}"
}
count() {
  grep -c "^$1" "$work/outcomes"
}
# A figure that the report would have.
unmeasured() {
  printf '%s\t%s\n' "$1" "${2:-}" >>"$work/unmeasured"
}

# ends_within SECONDS PID: whether it does; polled, since what sits in a sick driver
# cannot be killed, and then `wait` would never return.
ends_within() {
  local until=$((SECONDS + $1))
  while kill -0 "$2" 2>/dev/null; do
    ((SECONDS < until)) || return 1
    read -rt 0.05 <> <(:)
  done
  return 0
}
# bounded SECONDS COMMAND...: no longer than that.
bounded() {
  local most=$1 status=124
  shift
  timeout --kill-after=2 "$most" "$@" </dev/null &
  running=$!
  if ends_within $((most + 4)) "$running"; then
    wait "$running"
    status=$?
  else
    disown "$running"
  fi
  running=''
  return "$status"
}
# limited SECONDS COMMAND...: no longer than that, and than what is left in all.
limited() {
  local most=$1 left=$((budget - SECONDS))
  shift
  ((left < most)) && most=$left
  ((most > 0)) || return 124
  bounded "$most" "$@"
}
# asked NAME COMMAND...: what a short question answers, in the file $work/NAME (a pipe
# would be held open by what cannot be killed).  A part that does not answer has failed.
asked() {
  local name=$1 status=0
  shift
  limited 20 "$@" >"$work/$name" 2>/dev/null || status=$?
  if ((status == 124 || status == 137)); then
    outcome failed "$name" "not over in time: $*"
  fi
  return "$status"
}
why_ended() {
  case $1 in
    124 | 137) echo "not over in time" ;;
    *) echo "exit status $1" ;;
  esac
}
last_line() {
  grep -v '^[[:space:]]*$' "$1" | tail -n 1 | cut -c 1-300
}

# ---- what there is

# Asked once: nvidia-smi starts the driver where nothing keeps it running.
look_for_gpus() {
  has_gpu=0
  if command -v nvidia-smi >/dev/null &&
    asked nvidia-smi nvidia-smi --format=csv,noheader \
      --query-gpu=uuid,name,memory.total,driver_version; then
    has_gpu=1
  elif compgen -G '/dev/nvidia[0-9]*' >/dev/null || [[ -e /dev/dxg ]]; then
    has_gpu=1
  fi
}
# Where NCCL is, when no loader would find it.
find_nccl() {
  local path
  asked nccl-wheel python3 -c \
    'import os, nvidia.nccl as n; print(os.path.join(list(n.__path__)[0], "lib"))'
  for path in "$here/build/cuda-toolkit/nvidia/nccl/lib" \
    ${torch:+"$(dirname "$torch")/nvidia/nccl/lib"} "$(<"$work/nccl-wheel")"; do
    [[ -e $path/libnccl.so.2 ]] || continue
    export COHORT_NCCL_LIBRARY=$path/libnccl.so.2
    return
  done
}

# ---- tests

# Reads GoogleTest's output: outcome, name, reason.  A test that began and said nothing
# more took the program with it.
test_outcomes() {
  awk '
    function told(what, why) {
      print what "\t" name "\t" why
      if (what != "passed") {
        n = split(measures, each, "\n")
        for (i = 1; i < n; ++i) print "unmeasured\t" each[i] "\t" why
      }
      name = measures = ""
    }
    /^\[ RUN      \] / { name = $4; why = actual = ""; take = 0; next }
    name == "" { next }
    sub(/^\[ MEASURES \] /, "") { measures = measures $0 "\n"; next }
    / Skipped$|: Failure$/ { take = 1; next }
    take && why == "" && NF { why = $0; take = 0 }
    # Of the first failure, what was rather than what was asked.
    actual == "" && /^ *Actual: / { sub(/^ +/, ""); why = actual = substr($0, 1, 300) }
    /^\[       OK \] / { told("passed", ""); next }
    /^\[  SKIPPED \] / { told("skipped", why); next }
    /^\[  FAILED  \] / { told("failed", why); next }
    END { if (name != "") told("failed", "did not end") }' "$1"
}

run_test() {
  local name=$1 log=$work/$1.log status=0
  limited 150 "$programs/tests/$name" >"$log" 2>&1
  status=$?
  test_outcomes "$log" >"$work/tests"
  if ((status == 124 || status == 137)); then
    echo "failed	program	not over in time" >>"$work/tests"
  elif ((status != 0)) && ! grep -q '^failed' "$work/tests"; then
    echo "failed	program	$(why_ended "$status"): $(last_line "$log")" >>"$work/tests"
  elif [[ ! -s $work/tests ]]; then
    echo "failed	program	has no tests" >>"$work/tests"
  fi
  while IFS=$'\t' read -r what test why; do
    if [[ $what == unmeasured ]]; then
      unmeasured "$test" "$why"
    else
      outcome "$what" "$name: $test" "$why"
    fi
  done <"$work/tests"
  sed -n 's/^\[ MEASURED \] //p' "$log" >>"$work/measured"
  sed -n 's/^\[ MACHINE  \] //p' "$log" >>"$work/machine"
}

# ---- benches

run_bench() {
  local name=$1 log=$work/$1.log status=0
  limited 150 "$programs/bin/$name" --quick --json >"$log" 2>"$log.errors"
  status=$?
  sed -nE 's/.*"bench":"([^"]*)","case":"([^"]*)","value":([^,]*),"unit":"([^"]*)","floor":([^,]*),"ratio":([^,]*),.*/\1\t\2\t\3\t\4\t\5\t\6/p' \
    "$log" >>"$work/figures"
  if ((status != 0)); then
    outcome failed "$name" "$(why_ended "$status"): $(last_line "$log.errors")"
  elif grep -q 'skipped: ' "$log.errors"; then
    outcome skipped "$name" "$(sed -n 's/.*skipped: //p' "$log.errors" | head -n 1)"
  elif [[ ! -s $log ]]; then
    outcome failed "$name" "gave no figures"
  else
    outcome passed "$name" "$(sed -nE 's/.*"value":null,.*"why":"(.*)".*/some figures are not measured: \1/p' \
      "$log" | head -n 1)"
  fi
}

# ---- examples, as jobs

# --volatile: it goes with $work, which may lie on a tmpfs.
start_cluster() {
  cohort up --workers 1 --port 0 --state-dir "$work/cluster" --volatile \
    --ready-file "$work/ready" >"$work/up.log" 2>&1 &
  up_pid=$!
  until [[ -e $work/ready ]]; do
    kill -0 "$up_pid" 2>/dev/null || return 1
    ((SECONDS < budget)) || return 1
    read -rt 0.1 <> <(:)
  done
  COHORT_ADDRESS=$(<"$work/ready")
  export COHORT_ADDRESS COHORT_CREDENTIAL_FILE=$work/cluster/credential
}

# The cluster offers each GPU that nvidia-smi lists, healthy.
check_cluster() {
  if ! start_cluster; then
    outcome failed "cluster" "$(last_line "$work/up.log")"
    return 1
  fi
  asked gpus cohort gpus list
  local uuid missing=()
  while IFS=, read -r uuid _; do
    grep -q "$uuid.*HEALTHY" "$work/gpus" || missing+=("$uuid")
  done < <(cat "$work/nvidia-smi" 2>/dev/null)
  if ((${#missing[@]})); then
    outcome failed "cluster" "not offered as healthy: ${missing[*]}"
    return 1
  fi
  outcome passed "cluster"
}

# not_run OUTCOME NAME WHY: of an example, whose figure is what it says last.
not_run() {
  outcome "$@"
  unmeasured "$2, as a job: how long, and what it says last" "$3"
}

ranks=(--use-gpu --num-workers 1)
# run_job NAME [SUBMIT_FLAG...] -- COMMAND...: with these ranks.
run_job() {
  local name=$1 log=$work/$1.log status=0 begin=$SECONDS
  shift
  if ((SECONDS >= budget)); then
    not_run failed "$name" "not over in time"
    return 1
  fi
  limited 130 cohort submit "${ranks[@]}" --time-limit 120s \
    ${COHORT_NCCL_LIBRARY:+--env COHORT_NCCL_LIBRARY="$COHORT_NCCL_LIBRARY"} \
    -f "$@" >"$log" 2>&1
  status=$?
  if ((status != 0)); then
    # What the rank said last, and what became of the job.
    not_run failed "$name" "$(why_ended "$status"): $(tail -n 2 "$log" | paste -sd ';')"
    return 1
  fi
  outcome passed "$name"
  # Its last words but for the runtime's own.
  grep -v '^job ' "$log" | tail -n 1 |
    sed "s|^|$name, $((SECONDS - begin)) s as a job: |" >>"$work/measured"
}

# torch_obstacle NAME VERSION: why an example on LibTorch cannot run; empty: it can.
torch_obstacle() {
  local has=''
  if [[ ! -x $programs/bin/$1 ]]; then
    echo "not in a bundle: run this in a source tree"
  elif [[ -z $torch ]]; then
    echo "no --torch"
  else
    has=$(sed -nE "s/^__version__ = '([0-9.]*[0-9]).*/\1/p" "$torch/version.py" 2>/dev/null)
    if [[ $has != "$2" ]]; then
      echo "built against LibTorch $2, and --torch is ${has:-of no known version}"
    else
      LD_LIBRARY_PATH=$torch_path limited 20 ldd "$programs/bin/$1" |
        awk '/not found/ { missing = missing " " $1 }
             END { if (missing) print "libraries are missing:" missing }'
    fi
  fi
}
torch_path=
if [[ -n $torch ]]; then
  torch_path=$torch/lib$(find "$(dirname "$torch")/nvidia" -maxdepth 2 -name lib \
    -printf ':%p' 2>/dev/null)
fi

# Asks CUDA, which a sick GPU does not answer.
ddp_obstacle() {
  local status=0
  limited 60 python3 -c 'import torch; print(torch.cuda.is_available())' \
    >"$work/python-torch" 2>/dev/null || status=$?
  case $status:$(tail -n 1 "$work/python-torch") in
    0:True) ;;
    0:*) echo "python3's torch cannot use the GPU" ;;
    124:* | 137:*) echo "python3's torch is not over in time" ;;
    *) echo "python3 has no torch" ;;
  esac
}

run_example() {
  local kind=$1 name=$2 obstacle='' words=() flags=()
  shift 2
  read -ra words <<<"${*//\{data\}/$here/data}"
  if [[ $kind == torch_* ]]; then
    obstacle=$(torch_obstacle "$name" "${words[0]}")
    words=("${words[@]:1}")
    flags=(--env "LD_LIBRARY_PATH=$torch_path")
  fi
  obstacle=${no_examples:-$obstacle}
  if [[ -n $obstacle && $kind == *_gang ]]; then
    outcome skipped "$name: a gang's losses" "$obstacle"
  elif [[ -n $obstacle ]]; then
    not_run skipped "$name" "$obstacle"
  elif [[ $kind == *_gang ]]; then
    run_gang "$name" "${flags[@]}" -- "$programs/bin/$name" "${words[@]}"
  else
    run_job "$name" "${flags[@]}" -- "$programs/bin/$name" "${words[@]}"
  fi
}

# run_gang NAME [SUBMIT_FLAG...] -- COMMAND...: two ranks of one GPU are one of twice the
# batch.  A gradient that is averaged before it is there shows here.
run_gang() {
  local name=$1 apart
  run_job "$name-alone" "${@:2}" --batch 16 --loss-log "$work/alone" || return
  local ranks=(--gpus 0.5 --num-workers 2)
  run_job "$name-pair" "${@:2}" --batch 8 --loss-log "$work/pair" || return
  apart=$(losses_apart "$work/alone" "$work/pair")
  if [[ $apart =~ ^[0-9.]+$ ]] && awk -v x="$apart" 'BEGIN { exit !(x < 1) }'; then
    outcome passed "$name: a gang's losses" "$apart % from those of one rank"
  else
    outcome failed "$name: a gang's losses" "$apart % from those of one rank, 1 at most"
  fi
}

# losses_apart LOG LOG: the most that a step's losses differ by, in percent; "none" where
# not each step is in both.
losses_apart() {
  paste "$1" "$2" | awk '
    NF != 4 || $1 != $3 { none = 1 }
    { d = 100 * ($2 - $4) / $2; if (d < 0) d = -d; if (d > most) most = d }
    END { if (none || !NR) print "none"; else printf "%.3g\n", most }'
}

run_ddp() {
  local obstacle
  obstacle=${no_examples:-$(ddp_obstacle)}
  if [[ -n $obstacle ]]; then
    not_run skipped ddp "$obstacle"
  else
    run_job ddp --file "$here/examples/ddp/train.py" -- python3 train.py --steps 200
  fi
}

# ---- the report

table() {
  printf '\n## %s\n\n' "$1"
  shift
  printf '|'; printf ' %s |' "$@"; printf '\n|'
  printf '%.0s---|' "$@"; printf '\n'
}
rows() {
  sed -E 's/\|/\\|/g; s/\t/ | /g; s/^/| /; s/$/ |/'
}
write_report() {
  local no_gpu_rows=none
  ((!has_gpu)) || no_gpu_rows="nvidia-smi names none"
  echo "# GPU check: $summary"
  table Machine what is
  {
    printf 'date\t%s\n' "$(date -u '+%F %H:%M UTC')"
    printf 'cohort\t%s\n' "$(bounded 20 cohort version)"
    printf 'host\t%s CPUs, %s, Linux %s\n' "$(nproc)" \
      "$(awk '/MemTotal/ { printf "%.0f GiB", $2 / 1048576 }' /proc/meminfo)" "$(uname -r)"
    printf 'load\t%s\n' "$(cut -d' ' -f 1-3 /proc/loadavg)"
    { grep '^GPU-' "$work/nvidia-smi" 2>/dev/null || echo "$no_gpu_rows"; } |
      sed 's/^/GPU\t/'
    { [[ -s $work/machine ]] && sort -u "$work/machine" || echo "no test has met them"; } |
      sed 's/^/driver and NCCL\t/'
    printf 'time\t%s s of %s\n' "$SECONDS" "$budget"
  } | rows
  table Figures bench case value unit floor "times the floor"
  awk -F'\t' -v OFS='\t' '
    function short(x) { return x ~ /^-?[0-9.]/ ? sprintf("%.4g", x) : "-" }
    { print $1, $2, $3 == "null" ? "not measured" : short($3), $4, short($5), short($6) }
    ' "$work/figures" | rows
  if grep -q 'nccl/.*ranks_on_one_gpu.*	[0-9]' "$work/figures"; then
    printf '\nranks_on_one_gpu: NCCL refuses that but for a trick; not how fast it is.\n'
  fi
  if [[ -s $work/measured ]]; then
    printf '\nMeasured by tests and examples:\n\n'
    sed 's/^/- /' "$work/measured"
  fi
  if [[ -s $work/unmeasured ]]; then
    table "Not measured by tests and examples" figure why
    rows <"$work/unmeasured"
  fi
  table Parts outcome part why
  rows <"$work/outcomes"
  if [[ -s $work/gpus ]]; then
    # shellcheck disable=SC2016  # Markdown.
    printf '\n## Devices, as `cohort gpus list` has them\n\n```\n'
    cat "$work/gpus"
    printf '```\n'
  fi
}

touch "$work"/{outcomes,figures,measured,unmeasured,machine}
look_for_gpus
if [[ -z ${COHORT_NCCL_LIBRARY:-} ]] &&
  ! limited 20 ldconfig -p 2>/dev/null | grep 'libnccl\.so\.2' >/dev/null; then
  unset COHORT_NCCL_LIBRARY
  find_nccl
fi
while read -r kind name _; do
  [[ $kind != test ]] || run_test "$name"
done <"$programs/gpu_parts"
while read -r kind name _; do
  [[ $kind != bench ]] || run_bench "$name"
done <"$programs/gpu_parts"
no_examples=
if ((!has_gpu)); then
  no_examples="no GPU"
  outcome skipped "cluster" "$no_examples"
elif ! check_cluster; then
  no_examples="no cluster that offers the GPUs"
fi
while read -r kind name arguments; do
  case $kind in
    example | torch_example | torch_gang) run_example "$kind" "$name" "$arguments" ;;
  esac
done <"$programs/gpu_parts"
run_ddp

summary="$(count passed) passed, $(count failed) failed, $(count skipped) skipped"
((has_gpu)) || summary="no GPU here; $summary"
write_report >"$report"
echo "gpu_check: $summary; $report"
(($(count failed) == 0))
