#!/usr/bin/env python3
"""Measures the commands that people type: cli.py [--json] [--quick].

One line a figure: its median over --rounds, the floor of the same run (what the
same machine needs without cohort), and their ratio.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = ROOT / "build/release/bin"
JOBS = 10_000
FILES = 10_000


def seconds(command, **kwargs):
    begin = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, **kwargs)
    return time.monotonic() - begin


class Bench:

    def __init__(self, rounds, as_json):
        self.rounds = rounds
        self.as_json = as_json

    def measure(self, name, command, floor, **kwargs):
        """By turns, so that both meet the same neighbours."""
        pairs = [(seconds(command, **kwargs), seconds(floor))
                 for _ in range(self.rounds)]
        value = statistics.median(p[0] for p in pairs)
        below = statistics.median(p[1] for p in pairs)
        if self.as_json:
            print(json.dumps({"bench": "cli", "name": name, "ms": value * 1e3,
                              "floor_ms": below * 1e3}), flush=True)
        else:
            print(f"{name:32} {value * 1e3:8.1f} ms   floor {below * 1e3:7.1f} ms"
                  f"   {value / below:5.1f}x", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    bench = Bench(5 if options.quick else 31, options.json)
    cohort = str(BIN / "cohort")
    true = [shutil.which("true")]
    python = ["python3", "-c", "print(1)"]  # as `cohort run` finds it
    work = pathlib.Path(tempfile.mkdtemp(prefix="cohort-bench-", dir="/var/tmp"))
    for name in ("COHORT_ADDRESS", "COHORT_CREDENTIAL_FILE"):
        os.environ.pop(name, None)
    os.environ["XDG_STATE_HOME"] = str(work / "user")
    try:
        bench.measure("version", [cohort, "version"], true)
        script = work / "one.py"
        script.write_text("print(1)\n")
        bench.measure("run of print(1), private",
                      [cohort, "run", "--standalone", str(script)], python)
        subprocess.run([cohort, "up", "--detach", "--port", "0",
                        "--http-address", "127.0.0.1:0", "--workers", "1",
                        "--state-dir", str(work / "up")],
                       check=True, stdout=subprocess.DEVNULL)
        os.environ["COHORT_ADDRESS"] = (work / "up/address").read_text().strip()
        os.environ["COHORT_CREDENTIAL_FILE"] = str(work / "up/credential")
        bench.measure("run of print(1), in a cluster",
                      [cohort, "run", str(script)], python, cwd=work)
        subprocess.run([cohort, "submit", "--hold", "--array", f"0-{JOBS - 1}",
                        "--", "true"], check=True, stdout=subprocess.DEVNULL)
        many = f"with {JOBS:,} jobs"
        bench.measure(f"status {many}", [cohort, "status"], true)
        bench.measure(f"jobs list {many}", [cohort, "jobs", "list"], true)
        bench.measure(f"completion {many}",
                      [cohort, "__complete", "jobs", "get", ""], true)
        tree = work / "tree"
        for index in range(FILES):
            path = tree / f"d{index // 100}" / f"f{index}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"# {index}\n" * 200)
        submit = [cohort, "submit", "--hold", "--working-dir", str(tree), "--",
                  "true"]
        seconds(submit)  # the head has it then
        bench.measure(f"submit of {FILES:,} known files", submit,
                      ["tar", "-cf", "/dev/null", str(tree)])
    finally:
        subprocess.run([cohort, "down", "--state-dir", str(work / "up")],
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                       check=False)
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
