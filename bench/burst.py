#!/usr/bin/env python3
"""Measures a burst on a cluster that grows from nothing: burst.py [--json] [--quick]
[--peers].

50 jobs of one CPU that sleep for a second, on at most 4 nodes of 2 CPUs by the
provider `process`: from the first submission to the end of the last one, and
until the last node is gone.  --peers: as many tasks on Ray's AutoscalingCluster (its
fake provider, processes of this machine too), if this Python has `ray[default]`.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import textwrap
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/itest"))
os.environ.setdefault("COHORT_BIN", str(ROOT / "build/release/bin"))

import cluster  # noqa: E402

JOBS = 50
NODES = 4
CPUS = 2
SECONDS = 1
# Idle for so long a node ends.  Ray takes no less than some seconds.
IDLE_SECONDS = 5


def cohort():
    """Seconds until the jobs are done, and until the nodes are gone."""
    sandbox = cluster.Sandbox()
    try:
        file = sandbox.dir / "cluster.yaml"
        file.write_text(textwrap.dedent(f"""\
            provider: process
            max_nodes: {NODES}
            upscaling_speed: 100
            idle_timeout: {IDLE_SECONDS}s
            data_timeout: 0s
            node_types: {{cpu: {{resources: {{CPU: {CPUS}}}}}}}
            """))
        head = cluster.Cluster(sandbox)
        head.head_flags = ("--cluster-file", file)
        head.start_head()
        begin = time.monotonic()
        jobs = [head.submit("--cpus", "1", "--", "sleep", str(SECONDS))
                for _ in range(JOBS)]
        for job in jobs:
            assert head.await_end(job)["state"] == "SUCCEEDED"
        done = time.monotonic() - begin
        cluster.until("all nodes are gone", lambda: not head.json(
            "autoscaler", "status")["instances"])
        return done, time.monotonic() - begin
    finally:
        sandbox.close()


# Its package lacks the file from which AutoscalingCluster makes a configuration.
RAY = textwrap.dedent(f"""\
    import json, time, ray
    from ray.cluster_utils import AutoscalingCluster
    class Nodes(AutoscalingCluster):
        def _generate_config(self, head, types, **_):
            lists = ("initialization_commands", "setup_commands", "rsync_filter",
                     "head_setup_commands", "worker_setup_commands",
                     "head_start_ray_commands", "worker_start_ray_commands",
                     "cluster_synced_files", "rsync_exclude")
            types["head"] = {{"resources": dict(head), "node_config": {{}},
                              "max_workers": 0}}
            return dict(
                {{key: [] for key in lists}}, cluster_name="burst", auth={{}},
                docker={{}}, file_mounts={{}}, max_workers={NODES},
                file_mounts_sync_continuously=False, head_node_type="head",
                upscaling_speed=100, idle_timeout_minutes={IDLE_SECONDS} / 60,
                available_node_types=types, provider=dict(
                    type="fake_multinode", use_node_id_as_ip=True,
                    disable_node_updaters=True, disable_launch_config_check=True))
    nodes = Nodes({{"CPU": 0}}, {{"cpu": {{
        "resources": {{"CPU": {CPUS}, "object_store_memory": 10**8}},
        "node_config": {{}}, "min_workers": 0, "max_workers": {NODES}}}}})
    nodes.start()
    try:
        ray.init("auto", logging_level="ERROR")
        @ray.remote(num_cpus=1)
        def nap():
            time.sleep({SECONDS})
        begin = time.monotonic()
        ray.get([nap.remote() for _ in range({JOBS})])
        done = time.monotonic() - begin
        while sum(node["Alive"] for node in ray.nodes()) > 1:
            time.sleep(0.2)
        print(json.dumps([done, time.monotonic() - begin]))
        ray.shutdown()
    finally:
        nodes.shutdown()
    """)


def ray():
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    ran = subprocess.run(
        [sys.executable, "-c", RAY], env=dict(os.environ, PATH=path),
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True,
        timeout=300)
    return json.loads(next(line for line in ran.stdout.splitlines()
                           if line.startswith("[")))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--peers", action="store_true")
    options = parser.parse_args()
    sides = {"cohort": cohort}
    if options.peers and importlib.util.find_spec("ray"):
        sides["ray"] = ray
    elif options.peers:
        print("ray: skipped, as this Python has no ray[default]", file=sys.stderr)
    runs = {name: [] for name in sides}
    for _ in range(1 if options.quick else 3):
        for name, side in sides.items():
            runs[name].append(side())
    # On as many CPUs, without a cluster to be made.
    floor = SECONDS * -(-JOBS // (NODES * CPUS))
    for name, each in runs.items():
        for what, values in zip(("done", "gone"), zip(*each)):
            value = statistics.median(values)
            if options.json:
                print(json.dumps({"bench": "burst", "name": f"{name}/{what}",
                                  "s": value, "floor_s": floor}), flush=True)
            else:
                print(f"{name + '/' + what:14} {value:7.2f} s  ({len(values)} "
                      f"runs, {min(values):.2f} to {max(values):.2f})  floor "
                      f"{floor} s  load {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()
