"""What the benches of Ray and Monarch share: a clock, and one line a figure."""

import os
import statistics
import time


def seconds_for(what):
    start = time.perf_counter()
    what()
    return time.perf_counter() - start


def show(name, values, unit, peer="ray"):
    print(f"{peer} {name:20} {statistics.median(values):12.4g} {unit}  "
          f"({len(values)} runs, {min(values):.4g} to {max(values):.4g})  "
          f"load {os.getloadavg()[0]:.1f}", flush=True)
