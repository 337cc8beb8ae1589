"""Stock PyTorch: a DistributedDataParallel training that knows nothing of cohort.

    cohort submit --use-gpu --num-workers 1 --file train.py -f -- python3 train.py
    cohort submit --num-workers 2 --file train.py -f -- python3 train.py
    torchrun --nproc-per-node 2 train.py

With GPUs it reduces over NCCL, on cuda:LOCAL_RANK; without, over Gloo.  All it is
told comes in torchrun's environment variables.
"""

import argparse
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BATCH = 64


def batches(rank, world, steps):
    """Points of a fixed function, another part of them on each rank."""
    weights = torch.linspace(-1, 1, 784 * 10).reshape(784, 10)
    for step in range(steps):
        generator = torch.Generator().manual_seed(step * world + rank)
        images = torch.randn(BATCH, 784, generator=generator)
        yield images, (images @ weights).argmax(dim=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()

    use_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if use_gpu else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cpu")
    if use_gpu:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(784, 512), nn.ReLU(),
                        nn.Linear(512, 10)).to(device)
    model = DistributedDataParallel(
        net, device_ids=[device.index] if use_gpu else None)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    first = loss = None
    begin = time.monotonic()
    for images, labels in batches(rank, world, args.steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images.to(device)),
                                           labels.to(device))
        loss.backward()
        optimizer.step()
        first = first if first is not None else loss.item()
    last = loss.item()
    seconds = time.monotonic() - begin

    # The ranks' parameters are the same, or the gradients were not averaged.
    digest = sum(p.double().sum() for p in net.parameters()).reshape(1)
    digests = [torch.zeros_like(digest) for _ in range(world)]
    dist.all_gather(digests, digest)
    assert all(torch.equal(d, digest) for d in digests), digests
    if rank == 0:
        print(f"{world} ranks over {dist.get_backend()} on {device.type}: loss "
              f"{first:.3f} to {last:.3f} in {args.steps} steps, "
              f"{1000 * seconds / args.steps:.2f} ms a step")
    dist.barrier()  # rank 0 has the store that all use
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # Threads of Gloo outlive its group, and may abort the process as Python ends.
    sys.stdout.flush()
    os._exit(0)
