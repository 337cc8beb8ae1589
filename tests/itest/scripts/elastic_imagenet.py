"""In the shape of pytorch/elastic's examples/imagenet/main.py: @record, a state that
each node saves, and after a restart the newest of them sent to all ranks."""

import argparse
import io
import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

import digits


class State:

    def __init__(self, model, optimizer):
        self.epoch = -1
        self.model = model
        self.optimizer = optimizer

    def capture_snapshot(self):
        return {"epoch": self.epoch, "state_dict": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict()}

    def apply_snapshot(self, snapshot):
        self.epoch = snapshot["epoch"]
        self.model.load_state_dict(snapshot["state_dict"])
        self.optimizer.load_state_dict(snapshot["optimizer"])

    def save(self, path):
        torch.save(self.capture_snapshot(), path + ".tmp")
        os.rename(path + ".tmp", path)


def load_checkpoint(path, model, optimizer):
    state = State(model, optimizer)
    if os.path.isfile(path):
        state.apply_snapshot(torch.load(path, map_location="cpu"))
    # Nodes may have checkpoints of different epochs: all take the newest.
    epochs = torch.zeros(dist.get_world_size(), dtype=torch.int64)
    epochs[dist.get_rank()] = state.epoch
    dist.all_reduce(epochs)
    newest = int(epochs.argmax())
    if epochs.max() < 0:
        return state
    with io.BytesIO() as file:
        torch.save(state.capture_snapshot(), file)
        blob = torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)
    size = torch.tensor([len(blob)])
    dist.broadcast(size, src=newest)
    if dist.get_rank() != newest:
        blob = torch.zeros(int(size), dtype=torch.uint8)
    dist.broadcast(blob, src=newest)
    state.apply_snapshot(torch.load(io.BytesIO(blob.numpy().tobytes())))
    print(f"=> restored epoch {state.epoch}")
    return state


class AverageMeter:

    def __init__(self):
        self.sum = self.count = 0

    def update(self, value):
        self.sum += value
        self.count += 1


def train(loader, model, criterion, optimizer):
    model.train()
    losses = AverageMeter()
    for images, target in loader:
        loss = criterion(model(images), target)
        losses.update(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses.sum / losses.count


@record
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--checkpoint-file", default="checkpoint.pth.tar")
    args = parser.parse_args()

    device_id = int(os.environ["LOCAL_RANK"])
    dist.init_process_group("gloo", init_method="env://",
                            timeout=timedelta(seconds=30))
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Flatten(), nn.Linear(8 * 13 * 13, 10)))
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    data = digits.dataset(args.data, 4096)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=64, sampler=sampler)
    state = load_checkpoint(args.checkpoint_file, model, optimizer)
    for epoch in range(state.epoch + 1, args.epochs):
        print(f"epoch {epoch}", flush=True)
        state.epoch = epoch
        sampler.set_epoch(epoch)
        loss = train(loader, model, nn.CrossEntropyLoss(), optimizer)
        if device_id == 0:
            state.save(args.checkpoint_file)
    mean = torch.tensor([loss])
    dist.all_reduce(mean)
    if dist.get_rank() == 0:
        print(f"final loss {mean.item() / dist.get_world_size():.5f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
