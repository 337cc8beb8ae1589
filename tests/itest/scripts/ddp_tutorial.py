"""In the shape of PyTorch's tutorial "fault-tolerant distributed training with
torchrun" (multigpu_torchrun.py): a Trainer with its snapshot.pt."""

import argparse
import os

import torch
import torch.nn.functional as F
from torch.distributed import (barrier, destroy_process_group,
                               init_process_group)
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

import digits


class Trainer:

    def __init__(self, model, train_data, optimizer, save_every, snapshot_path):
        self.local_rank = int(os.environ["LOCAL_RANK"])
        self.global_rank = int(os.environ["RANK"])
        self.model = model
        self.train_data = train_data
        self.optimizer = optimizer
        self.save_every = save_every
        self.epochs_run = 0
        self.snapshot_path = snapshot_path
        if os.path.exists(snapshot_path):
            print("Loading snapshot")
            self._load_snapshot(snapshot_path)
        self.model = DDP(self.model)

    def _load_snapshot(self, snapshot_path):
        snapshot = torch.load(snapshot_path, map_location="cpu")
        self.model.load_state_dict(snapshot["MODEL_STATE"])
        self.epochs_run = snapshot["EPOCHS_RUN"]

    def _save_snapshot(self, epoch):
        snapshot = {"MODEL_STATE": self.model.module.state_dict(),
                    "EPOCHS_RUN": epoch + 1}
        torch.save(snapshot, self.snapshot_path + ".part")
        os.replace(self.snapshot_path + ".part", self.snapshot_path)

    def _run_batch(self, source, targets):
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(source), targets)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def train(self, max_epochs):
        for epoch in range(self.epochs_run, max_epochs):
            print(f"epoch {epoch}", flush=True)
            self.train_data.sampler.set_epoch(epoch)
            losses = [self._run_batch(*batch) for batch in self.train_data]
            if self.local_rank == 0 and epoch % self.save_every == 0:
                self._save_snapshot(epoch)
        if self.global_rank == 0:
            print(f"final loss {sum(losses) / len(losses):.5f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--save-every", type=int, default=1)
    args = parser.parse_args()
    init_process_group("gloo")
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(784, 256), torch.nn.ReLU(),
        torch.nn.Linear(256, 10))
    data = digits.dataset(args.data, 4096)
    loader = DataLoader(data, batch_size=32, sampler=DistributedSampler(data))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    Trainer(model, loader, optimizer, args.save_every,
            "snapshot.pt").train(args.epochs)
    barrier()
    destroy_process_group()


if __name__ == "__main__":
    main()
