"""In the shape of pytorch/examples' distributed/minGPT-ddp: characters of a book,
a small GPT, a Trainer with its gpt_snapshot.pt."""

import argparse
import gzip
import os

import torch
from torch import nn
from torch.distributed import (barrier, destroy_process_group,
                               init_process_group)
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class CharDataset(Dataset):

    def __init__(self, path, block_size, length):
        with gzip.open(path, "rt") as file:
            text = file.read()[:length]
        chars = sorted(set(text))
        index = {c: i for i, c in enumerate(chars)}
        self.vocab_size = len(chars)
        self.block_size = block_size
        self.data = torch.tensor([index[c] for c in text])

    def __len__(self):
        return (len(self.data) - 1) // self.block_size

    def __getitem__(self, at):
        begin = at * self.block_size
        chunk = self.data[begin:begin + self.block_size + 1]
        return chunk[:-1], chunk[1:]


class GPT(nn.Module):

    def __init__(self, vocab_size, block_size, n_layer=2, n_head=2, n_embd=64):
        super().__init__()
        self.tok_emb = nn.Embedding(vocab_size, n_embd)
        self.pos_emb = nn.Parameter(torch.zeros(1, block_size, n_embd))
        layer = nn.TransformerEncoderLayer(n_embd, n_head, 4 * n_embd, 0.0, "gelu",
                                           batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, n_layer)
        self.ln_f = nn.LayerNorm(n_embd)
        self.head = nn.Linear(n_embd, vocab_size, bias=False)

    def forward(self, idx, targets):
        size = idx.shape[1]
        mask = torch.full((size, size), float("-inf")).triu(1)
        x = self.blocks(self.tok_emb(idx) + self.pos_emb[:, :size], mask)
        logits = self.head(self.ln_f(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Trainer:

    def __init__(self, model, optimizer, dataset, snapshot_path):
        self.local_rank = int(os.environ["LOCAL_RANK"])
        self.global_rank = int(os.environ["RANK"])
        self.epochs_run = 0
        self.snapshot_path = snapshot_path
        self.model = model
        self.optimizer = optimizer
        self.loader = DataLoader(dataset, batch_size=32,
                                 sampler=DistributedSampler(dataset))
        self._load_snapshot()
        self.model = DDP(self.model)

    def _load_snapshot(self):
        try:
            snapshot = torch.load(self.snapshot_path, map_location="cpu")
        except FileNotFoundError:
            print("Snapshot not found. Training model from scratch")
            return
        self.model.load_state_dict(snapshot["model_state"])
        self.optimizer.load_state_dict(snapshot["optimizer_state"])
        self.epochs_run = snapshot["finished_epoch"]
        print(f"Resuming training from snapshot at Epoch {self.epochs_run}")

    def _save_snapshot(self, epoch):
        snapshot = {"model_state": self.model.module.state_dict(),
                    "optimizer_state": self.optimizer.state_dict(),
                    "finished_epoch": epoch + 1}
        torch.save(snapshot, self.snapshot_path + ".part")
        os.replace(self.snapshot_path + ".part", self.snapshot_path)

    def train(self, max_epochs):
        for epoch in range(self.epochs_run, max_epochs):
            print(f"epoch {epoch}", flush=True)
            self.loader.sampler.set_epoch(epoch)
            for source, targets in self.loader:
                loss = self.model(source, targets)
                self.optimizer.zero_grad(set_to_none=True)
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
            if self.local_rank == 0:
                self._save_snapshot(epoch)
        if self.global_rank == 0:
            print(f"final loss {loss.item():.5f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--epochs", type=int, default=20)
    args = parser.parse_args()
    init_process_group(backend="gloo")
    torch.manual_seed(0)
    dataset = CharDataset(args.data, 64, 60_000)
    model = GPT(dataset.vocab_size, dataset.block_size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    Trainer(model, optimizer, dataset, "gpt_snapshot.pt").train(args.epochs)
    barrier()
    destroy_process_group()


if __name__ == "__main__":
    main()
