#!/usr/bin/env python3
"""Measures how soon a PyTorch script works: scripts.py [--json] [--quick].

From the command to the first step of examples/ddp/train.py on two ranks, under
`cohort run` and under torchrun of the same torch, by turns: medians.  The torch is that of
tools/frameworks.sh, or of COHORT_FRAMEWORKS_DIR.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "examples/ddp/train.py"
VENV = pathlib.Path(os.environ.get("COHORT_FRAMEWORKS_DIR",
                                   "/var/cache/cohort-frameworks"))


def seconds(command, environment):
    """Until the line that follows the first step."""
    begin = time.monotonic()
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True) as process:
        for line in process.stdout:
            if " in 1 steps" in line:
                taken = time.monotonic() - begin
    assert process.returncode == 0, command
    return taken


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    name = "start to first step, 2 ranks"
    if not (VENV / "whole").exists():
        print(f"{name}: not measured: no PyTorch (run tools/frameworks.sh)")
        return
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("COHORT_ADDRESS", "COHORT_CREDENTIAL_FILE",
                                   "VIRTUAL_ENV", "CONDA_PREFIX")}
    environment["PATH"] = f"{VENV}/bin:{environment['PATH']}"
    shape = ["--standalone", "--nproc-per-node", "2", str(SCRIPT), "--steps", "1"]
    pairs = [(seconds([str(ROOT / "build/release/bin/cohort"), "run", *shape],
                      environment),
              seconds([str(VENV / "bin/torchrun"), *shape], environment))
             for _ in range(3 if options.quick else 9)]
    cohort, torchrun = (statistics.median(times) for times in zip(*pairs))
    if options.json:
        print(json.dumps({"bench": "scripts", "name": name, "ms": cohort * 1e3,
                          "torchrun_ms": torchrun * 1e3}))
    else:
        print(f"{name:32} {cohort * 1e3:8.1f} ms   torchrun "
              f"{torchrun * 1e3:7.1f} ms   {cohort / torchrun:5.2f}x")


if __name__ == "__main__":
    main()
