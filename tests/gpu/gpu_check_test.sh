#!/usr/bin/env bash
# tools/gpu_check.sh over a bundle of programs that pass, fail, crash, skip and
# measure: each part is told, none hides another, and the exit status says whether
# all is well.
#
#   gpu_check_test.sh TOOLS_DIR PROGRAM_DIR
set -euo pipefail
tools=$1 programs=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "FAILED: $*"
  cat "$work/out" "$work/bundle/gpu-check.md"
  exit 1
}
program() {
  cat >"$work/bundle/$1"
  chmod +x "$work/bundle/$1"
}
check() {
  local status=0
  "$work/bundle/tools/gpu_check.sh" "$@" >"$work/out" 2>&1 || status=$?
  echo "$status"
}
expect() {
  grep -qF -e "$1" "$work/bundle/gpu-check.md" || fail "the report lacks: $1"
}

mkdir -p "$work"/bundle/{bin,tests,tools,examples/ddp}
cp "$tools/gpu_check.sh" "$work/bundle/tools/"
for name in cohort cohort-head cohort-worker cohort-keeper; do
  ln -s "$programs/$name" "$work/bundle/bin/$name"
done
program tests/good <<'END'
#!/bin/sh
cat <<'OUT'
[ MACHINE  ] CUDA 13.0, NCCL 2.28.9
[ RUN      ] A.Works
[       OK ] A.Works (1 ms)
[ MEASURED ] it took 7 ms
[ RUN      ] A.Skips
[ MEASURES ] how fast | it is
/x/y.cc:3: Skipped
no second GPU

[  SKIPPED ] A.Skips (0 ms)
[  PASSED  ] 1 test.
[  SKIPPED ] 1 test, listed below:
[  SKIPPED ] A.Skips
OUT
END
program bin/bench_idle <<'END'
#!/bin/sh
echo '{"bench":"idle","case":"b/2","value":null,"unit":"us","floor":null,"ratio":null,"why":"no NCCL"}'
echo "bench_idle: skipped: no NCCL" >&2
END
program bin/bench_part <<'END'
#!/bin/sh
echo '{"bench":"part","case":"a","value":null,"unit":"us","floor":null,"ratio":null,"why":"no NCCL"}'
echo '{"bench":"part","case":"b","value":2,"unit":"us","floor":1,"ratio":2,"peer":null,"runs":5}'
END
program bin/bench_good <<'END'
#!/bin/sh
echo '{"bench":"good","case":"a/1","value":12.345678,"unit":"us","floor":10.0,"ratio":1.2345,"peer":null,"runs":5}'
END
printf '%s\n' "test good" "bench bench_good" "bench bench_idle" "bench bench_part" \
  "example all-reduce --use-gpu" "program cohort" >"$work/bundle/gpu_parts"

# Without a GPU the cluster is left out, whatever tests are.
[[ $(check) == 0 ]] || fail "all is well and the status says no"
expect "| passed | good: A.Works |"
expect "| skipped | good: A.Skips | no second GPU |"
expect "| passed | bench_good |"
expect "| good | a/1 | 12.35 | us | 10 | 1.234 |"
expect "- it took 7 ms"
# What is not measured is named, and why.
expect "| skipped | bench_idle | no NCCL |"
expect "| idle | b/2 | not measured | us | - | - |"
expect "| passed | bench_part | some figures are not measured: no NCCL |"
expect "| part | a | not measured | us | - | - |"
expect "| part | b | 2 | us | 1 | 2 |"
expect "| how fast \\| it is | no second GPU |"
expect "| all-reduce, as a job: how long, and what it says last | no GPU |"
expect "| ddp, as a job: how long, and what it says last | no GPU |"
expect "| driver and NCCL | CUDA 13.0, NCCL 2.28.9 |"
expect "| GPU | none |"
expect "| skipped | cluster | no GPU |"
expect "# GPU check: no GPU here; 3 passed, 0 failed, 5 skipped"

# Everything that can go wrong, on a machine that says it has a GPU and has not.
program tests/bad <<'END'
#!/bin/sh
cat <<'OUT'
[ RUN      ] B.Fails
/x/y.cc:3: Failure
Expected: 1
  Actual: 2
[  FAILED  ] B.Fails (1 ms)
[ RUN      ] B.Crashes
OUT
kill -SEGV $$
END
program tests/dumb <<'END'
#!/bin/sh
echo "error while loading shared libraries" >&2
exit 127
END
program bin/bench_bad <<'END'
#!/bin/sh
echo "no sum" >&2
exit 125
END
program bin/nvidia-smi <<'END'
#!/bin/sh
case $* in *query-gpu=uuid*) echo GPU-0 ;; esac
END
program bin/example </dev/null
printf '%s\n' "test bad" "test dumb" "test good" "bench bench_bad" \
  "bench bench_idle" "bench bench_good" "example example --data {data}/mnist" \
  "torch_example mnist 1.2.3 --epochs 1" "torch_gang gpt 1.2.3 --steps 2" >"$work/bundle/gpu_parts"
# Its cluster's state may lie in memory, as /tmp does on many machines.
memory=$(mktemp -d /dev/shm/gpu-check.XXXXXX || echo "$work")
[[ $(TMPDIR=$memory check) == 1 ]] || fail "failures and the status says none"
[[ $memory == "$work" ]] || rmdir "$memory" || fail "it leaves something behind"
expect "| failed | bad: B.Fails | Actual: 2 |"
expect "| failed | bad: B.Crashes | did not end |"
expect "| failed | dumb: program | exit status 127: error while loading"
expect "| passed | good: A.Works |"
expect "| failed | bench_bad | exit status 125: no sum |"
expect "| skipped | bench_idle | no NCCL |"
expect "| passed | bench_good |"
expect "| failed | cluster | not offered as healthy: GPU-0 |"
expect "| skipped | mnist | no cluster that offers the GPUs |"
expect "| skipped | gpt: a gang's losses | no cluster that offers the GPUs |"

# A driver that hangs, and a program that asks it, cost their time and no more.
program bin/nvidia-smi <<'END'
#!/bin/sh
trap '' TERM
exec sleep 1000
END
echo "test good" >"$work/bundle/gpu_parts"
[[ $(check --seconds 3) == 1 ]] || fail "a hung nvidia-smi is well"
expect "| failed | nvidia-smi | not over in time: nvidia-smi"
expect "| driver and NCCL | no test has met them |"
expect "| failed | good: program | not over in time |"
[[ $(check --seconds soon) == 2 ]] || fail "a time that is none is taken"

[[ $("$work/bundle/tools/gpu_check.sh" --nonsense >/dev/null 2>&1; echo $?) == 2 ]] ||
  fail "nonsense is taken"
[[ $(check --torch "$work") == 2 ]] || fail "a --torch without lib/ is taken"
echo "gpu_check_test: ok"
