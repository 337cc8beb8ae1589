"""What bench_tasks measures, with Ray.  Prints one line a figure.

  pip install ray && python bench/tasks_ray.py
"""

import statistics

import ray

from peer_figures import seconds_for, show


@ray.remote
def plus(n):
    return n + 1


def flood(tasks):
    ray.get([plus.remote(n) for n in range(tasks)])


def main():
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
    ray.get(plus.remote(1))
    show("task/sync", [statistics.median(
        1e6 * seconds_for(lambda: ray.get(plus.remote(1)))
        for _ in range(300)) for _ in range(3)], "us")
    show("task/flood", [10000 / seconds_for(lambda: flood(10000))
                        for _ in range(3)], "tasks/s")
    show("task/first_of_shape", [1e3 * seconds_for(
        lambda: ray.get(plus.options(num_cpus=0.01 * (run + 1)).remote(1)))
        for run in range(3)], "ms")


if __name__ == "__main__":
    main()
