"""What bench_actors measures, with Ray.  Prints one line a figure.

  pip install ray && python bench/actors_ray.py
"""

import os
import signal
import statistics

import ray

from peer_figures import seconds_for, show


@ray.remote(num_cpus=0)
class Counted:
    def __init__(self):
        self.sum = 0

    def add(self, n):
        self.sum += n
        return self.sum

    def pid(self):
        return os.getpid()


def flood(actor, calls):
    held = []
    for _ in range(calls):
        if len(held) == 1024:
            ray.get(held.pop(0))
        held.append(actor.add.remote(1))
    ray.get(held)


def death():
    actor = Counted.remote()
    pid = ray.get(actor.pid.remote())

    def told():
        os.kill(pid, signal.SIGKILL)
        while True:
            try:
                ray.get(actor.add.remote(1))
            except ray.exceptions.RayError:
                return
    return 1e3 * seconds_for(told)


def one():
    actor = Counted.remote()
    ray.get(actor.add.remote(1))
    ray.kill(actor)


def main():
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
    actor = Counted.remote()
    ray.get(actor.add.remote(1))
    show("call/sync", [statistics.median(
        1e6 * seconds_for(lambda: ray.get(actor.add.remote(1)))
        for _ in range(1000)) for _ in range(3)], "us")
    show("call/async_1024",
         [10000 / seconds_for(lambda: flood(actor, 10000)) for _ in range(3)],
         "calls/s")
    show("death/told", [death() for _ in range(3)], "ms")
    show("create/one", [1e3 * seconds_for(one) for _ in range(3)], "ms")
    actors = []

    def many():
        actors.extend(Counted.remote() for _ in range(10))
        ray.get([each.add.remote(1) for each in actors])
    show("create/many", [10 / seconds_for(many)], "actors/s")


if __name__ == "__main__":
    main()
