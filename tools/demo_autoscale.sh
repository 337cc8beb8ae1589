#!/usr/bin/env bash
# A queue of gangs on an empty cluster: nodes are launched for it, up to their
# max, and go when it is done (docs/autoscaling.md).
#
#   tools/demo_autoscale.sh [--gangs N]
#
# Needs what tools/demo.sh or tools/test.sh has built.  Prints a timeline, and writes
# build/demo_autoscale/nodes.svg: nodes and waiting jobs over time.
set -euo pipefail
cd "$(dirname "$0")/.."

gangs=8
while (($#)); do
  case $1 in
    --gangs) gangs=${2:?--gangs needs a number}; shift 2 ;;
    *) sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
done
export PATH=$PWD/build/release/bin:$PATH
command -v cohort >/dev/null || { echo "demo_autoscale: build first: tools/demo.sh" >&2; exit 125; }

demo=$PWD/build/demo_autoscale
rm -rf "$demo"
mkdir -p "$demo"
cat >"$demo/cluster.yaml" <<'YAML'
provider: process
max_nodes: 4
idle_timeout: 3s
node_types:
  small: {resources: {CPU: 2, memory: 256MiB}, max: 3}
  large: {resources: {CPU: 8, memory: 512MiB}, max: 1, cost: 6}
YAML
cat "$demo/cluster.yaml"

cohort up --workers 0 --port 0 --state-dir "$demo/cluster" \
  --cluster-file "$demo/cluster.yaml" --ready-file "$demo/ready" &
up=$!
trap 'kill "$up" 2>/dev/null; wait "$up" 2>/dev/null || true' EXIT
nap() { read -rt "$1" <> <(:) || true; }
while [[ ! -e $demo/ready ]]; do
  kill -0 "$up" 2>/dev/null || { echo "demo_autoscale: no cluster" >&2; exit 125; }
  nap 0.1
done
COHORT_ADDRESS=$(cat "$demo/ready")
COHORT_CREDENTIAL_FILE=$demo/cluster/credential
export COHORT_ADDRESS COHORT_CREDENTIAL_FILE

echo "$gangs gangs of one to three workers with two CPUs each come, two a second"
for ((i = 0; i < gangs; ++i)); do
  cohort submit --name "gang-$i" --num-workers $((1 + i % 3)) --cpus 2 \
    --storage-path "$demo/storage" -- sleep 3 >/dev/null
  nap 0.5
done &

# Each line: tenths of a second, nodes, waiting, running.
count() { grep -c "$1" "$demo/$2" || true; }
begin=$(date +%s%N)
last=
: >"$demo/timeline"
for ((i = 0; i < 600; ++i)); do
  cohort autoscaler status --json >"$demo/now.json"
  cohort jobs list --json >"$demo/jobs.json"
  nodes=$(count '"state": "JOINED"' now.json)
  left=$(grep -c '"instance_id"\|"node_type"' "$demo/now.json" || true)
  waiting=$(count '"state": "PENDING"' jobs.json)
  running=$(count '"state": "\(RUNNING\|STARTING\|STOPPING\)"' jobs.json)
  tenths=$((($(date +%s%N) - begin) / 100000000))
  line="$nodes nodes, $waiting wait, $running run"
  if [[ $line != "$last" ]]; then
    printf '%5s s  %s\n' "$((tenths / 10)).$((tenths % 10))" "$line"
    last=$line
  fi
  echo "$tenths $nodes $waiting $running" >>"$demo/timeline"
  known=$(count '"state": ' jobs.json)
  if ((known == gangs && waiting + running + nodes + left == 0)); then break; fi
  nap 0.1
done

awk '
  { t[NR] = $1; nodes[NR] = $2; waits[NR] = $3 + $4
    if ($2 > top) top = $2; if ($3 + $4 > top) top = $3 + $4 }
  function path(values, colour,   i, d) {
    for (i = 1; i <= NR; ++i) {
      d = d sprintf("%s%.1f,%.1f ", i == 1 ? "M" : "L", 40 + 740 * t[i] / t[NR],
                    260 - 230 * values[i] / top)
    }
    printf "<path d=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"/>\n", d, colour
  }
  END {
    if (t[NR] == 0) t[NR] = 1; if (top == 0) top = 1
    print "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"800\" height=\"300\" font-family=\"sans-serif\" font-size=\"12\">"
    print "<rect width=\"800\" height=\"300\" fill=\"white\"/>"
    path(waits, "#c44"); path(nodes, "#36c")
    printf "<text x=\"40\" y=\"20\" fill=\"#36c\">nodes</text><text x=\"100\" y=\"20\" fill=\"#c44\">gangs that wait or run</text>\n"
    printf "<text x=\"40\" y=\"285\">0 s</text><text x=\"740\" y=\"285\">%.1f s</text><text x=\"10\" y=\"35\">%d</text>\n", t[NR] / 10, top
    print "</svg>"
  }' "$demo/timeline" >"$demo/nodes.svg"
cohort jobs list --json >"$demo/jobs.json"
done=$(count '"state": "SUCCEEDED"' jobs.json)
echo "$done of $gangs gangs succeeded; the curve is in $demo/nodes.svg"
((done == gangs))
