"""The same training as ddp_parts.cc, by PyTorch's DistributedDataParallel:

  ddp_parts.py PART OUT     with torchrun's environment

Rank 0 writes the mean loss of each step to OUT, and last the evaluation's.
"""

import contextlib
import math
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

INPUTS, STEPS, BATCH = 6, 100, 4


def sample(i):
    return ([((i * 37 + k * 11) % 19) / 8 - 1 for k in range(INPUTS)],
            (i * 7 + i // 3) % 3)


def batch(ids):
    both = [sample(i) for i in ids]
    return (torch.tensor([x for x, _ in both]),
            torch.tensor([y for _, y in both]))


class Net(nn.Module):

    def __init__(self, part):
        super().__init__()
        self.part = part
        # All are drawn, in this order, as in C++.
        self.first, self.second = nn.Linear(INPUTS, 16), nn.Linear(16, 3)
        extra, norm = nn.Linear(16, 16), nn.BatchNorm1d(16)
        if part == "batch_norm":
            self.norm = norm
        if part.startswith("unused"):
            self.extra = extra
        if part == "frozen":
            self.first.weight.requires_grad_(False)

    def forward(self, x, step):
        hidden = self.first(x)
        if self.part == "batch_norm":
            hidden = self.norm(hidden)
        hidden = torch.relu(hidden)
        if self.part.startswith("unused") and step % 3 == 0:
            hidden = hidden + self.extra(hidden)
        if self.part == "bfloat16":
            return nn.functional.linear(
                hidden.bfloat16(), self.second.weight.bfloat16(),
                self.second.bias.bfloat16()).float()
        return self.second(hidden)


def optimizer_of(net):
    if net.part in ("adam", "unused_adam"):
        return torch.optim.Adam(net.parameters(), lr=0.01)
    if net.part == "adamw":
        return torch.optim.AdamW(net.parameters(), lr=0.01, weight_decay=0.1)
    if net.part == "groups":
        return torch.optim.SGD([{"params": net.first.parameters()},
                                {"params": net.second.parameters(),
                                 "lr": 0.2}], lr=0.02)
    trained = [p for p in net.parameters() if p.requires_grad]
    return torch.optim.SGD(trained, lr=0.05, momentum=0.9)


def cosine(step):
    if step < 10:
        return 0.1 * (step + 1) / 10
    return 0.1 * (1 + math.cos(math.pi * (step - 10) / (STEPS - 10))) / 2


def main():
    part, out = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    net = Net(part)
    model = DistributedDataParallel(net,
                                    find_unused_parameters=part.startswith("unused"))
    optimizer = optimizer_of(net)
    loss_of = nn.CrossEntropyLoss()
    losses = []
    for step in range(STEPS):
        accumulates = part == "no_sync"
        is_later = accumulates and step % 2 == 0
        if not accumulates or is_later:
            optimizer.zero_grad(set_to_none=True)
        if part == "cosine":
            for group in optimizer.param_groups:
                group["lr"] = cosine(step)
        x, y = batch([(step * BATCH + i) * world + rank for i in range(BATCH)])
        with model.no_sync() if is_later else contextlib.nullcontext():
            loss = loss_of(model(x, step), y)
            loss.backward()
        if part == "clip":
            nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        if not is_later:
            optimizer.step()
        mean = loss.detach().double()
        dist.all_reduce(mean)
        losses.append(mean.item() / world)
    if rank == 0:
        net.eval()
        with torch.no_grad():
            x, y = batch(range(STEPS * BATCH * world))
            losses.append(loss_of(net(x, STEPS), y).item())
        with open(out, "w", encoding="ascii") as file:
            file.write("\n".join(map(str, losses)))
    # PyTorch's own threads may still run when it or Python takes them down,
    # which ends the process ("terminate called", 2.6 on Debian 13).
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    main()
