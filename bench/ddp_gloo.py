"""The peer of `train_step`: DistributedDataParallel of Python over Gloo.

  ddp_gloo.py mlp|cnn STEPS OUT STORE     with RANK and WORLD_SIZE

The same networks, batch, optimizer and output as train_loop.cc.
"""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BATCH = 64
BATCHES = 16


def network(model):
    if model == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(),
                             nn.Linear(512, 512), nn.ReLU(),
                             nn.Linear(512, 10))
    return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Flatten(),
                         nn.Linear(32 * 26 * 26, 128), nn.ReLU(),
                         nn.Linear(128, 10))


def main():
    model, steps, out, store = sys.argv[1:]
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank,
                            world_size=int(os.environ["WORLD_SIZE"]))
    torch.manual_seed(1)
    # The faster of its two ways.
    net = DistributedDataParallel(network(model), gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    loss_of = nn.CrossEntropyLoss()
    torch.manual_seed(100 + rank)
    images = [torch.rand(BATCH, 1, 28, 28) for _ in range(BATCHES)]
    labels = [torch.randint(10, (BATCH,)) for _ in range(BATCHES)]
    times = []
    for step in range(int(steps)):
        start = time.monotonic_ns()
        optimizer.zero_grad()
        loss = loss_of(net(images[step % BATCHES]), labels[step % BATCHES])
        loss.backward()
        optimizer.step()
        loss.item()
        times.append((start, time.monotonic_ns() - start))
    with open(f"{out}-{rank}", "w", encoding="ascii") as file:
        for start, took in times:
            file.write(f"{start // 1000} {took / 1000:.1f}\n")


if __name__ == "__main__":
    main()
