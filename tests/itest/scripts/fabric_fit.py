"""In the shape of Fabric's examples/fabric/image_classifier/train_fabric.py, with
the state saved and loaded as its guide on checkpoints has it."""

import argparse
import os

import torch
from lightning.fabric import Fabric
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

import digits


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--num-nodes", type=int, default=1)
    args = parser.parse_args()
    fabric = Fabric(accelerator="cpu", strategy="ddp", devices=args.devices,
                    num_nodes=args.num_nodes)
    fabric.launch()
    fabric.seed_everything(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(),
                          nn.Linear(256, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    model, optimizer = fabric.setup(model, optimizer)
    # Not shuffled: Fabric counts epochs from 0 again after a restart.
    loader = fabric.setup_dataloaders(DataLoader(
        digits.dataset(args.data, 4096), batch_size=32))
    state = {"model": model, "optimizer": optimizer, "epoch": 0}
    if os.path.exists("state.ckpt"):
        fabric.load("state.ckpt", state)
        fabric.print(f"resumed at epoch {state['epoch']}")
    for epoch in range(state["epoch"], args.epochs):
        fabric.print(f"epoch {epoch}", flush=True)
        for images, labels in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            fabric.backward(loss)
            optimizer.step()
        state["epoch"] = epoch + 1
        fabric.save("state.part", state)
        if fabric.is_global_zero:
            os.replace("state.part", "state.ckpt")
        fabric.barrier()
    fabric.print(f"final loss {fabric.all_reduce(loss).item():.5f}", flush=True)


if __name__ == "__main__":
    main()
