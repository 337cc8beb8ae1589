"""What bench_actors measures, with Monarch.  Prints one line a figure.

  pip install torchmonarch && python bench/actors_monarch.py
"""

import os
import statistics

from monarch.actor import Actor, endpoint, this_host

from peer_figures import seconds_for, show


class Counted(Actor):
    def __init__(self):
        self.sum = 0

    @endpoint
    def add(self, n: int) -> int:
        self.sum += n
        return self.sum

    @endpoint
    def pid(self) -> int:
        return os.getpid()


def created(procs, actors=1):
    """`actors` meshes of an actor in each of so many processes."""
    mesh = this_host().spawn_procs(per_host={"procs": procs})
    return [mesh.spawn(f"counted{i}", Counted) for i in range(actors)]


def answered(meshes):
    for future in [each.add.call(1) for each in meshes]:
        future.get()


def flood(actor, calls):
    held = []
    for _ in range(calls):
        if len(held) == 1024:
            held.pop(0).get()
        held.append(actor.add.call_one(1))
    for each in held:
        each.get()


def main():
    actor = created(1)[0]
    answered([actor])
    show("call/sync", [statistics.median(
        1e6 * seconds_for(lambda: actor.add.call_one(1).get())
        for _ in range(300)) for _ in range(3)], "us", "monarch")
    show("call/async_1024",
         [3000 / seconds_for(lambda: flood(actor, 3000)) for _ in range(3)],
         "calls/s", "monarch")
    show("create/one",
         [1e3 * seconds_for(lambda: answered(created(1))) for _ in range(3)],
         "ms", "monarch")
    show("create/many", [8 / seconds_for(lambda: answered(created(8)))],
         "actors/s", "monarch")
    show("create/shared",
         [200 / seconds_for(lambda: answered(created(2, 100)))], "actors/s",
         "monarch")
    group = created(8)[0]
    answered([group])
    show("group/call_8", [statistics.median(
        1e6 * seconds_for(lambda: group.add.call(1).get())
        for _ in range(100)) for _ in range(3)], "us", "monarch")


if __name__ == "__main__":
    main()
