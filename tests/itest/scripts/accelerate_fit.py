"""In the shape of Accelerate's examples/by_feature/checkpointing.py: prepare(), and
save_state() at each epoch into a directory of its own."""

import argparse
import os

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

import digits


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--output-dir", default="states")
    args = parser.parse_args()
    accelerator = Accelerator(cpu=True)
    set_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(),
                          nn.Linear(256, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    # Not shuffled: the order is not part of the state.
    loader = DataLoader(digits.dataset(args.data, 4096), batch_size=32)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    first = 0
    if os.path.isdir(args.output_dir):
        # A directory without its mark was being written when the job was killed.
        saved = [int(name[len("epoch_"):-len(".saved")])
                 for name in os.listdir(args.output_dir) if name.endswith(".saved")]
        if saved:
            accelerator.load_state(f"{args.output_dir}/epoch_{max(saved)}")
            first = max(saved) + 1
            accelerator.print(f"resumed from epoch_{max(saved)}")
    for epoch in range(first, args.epochs):
        accelerator.print(f"epoch {epoch}", flush=True)
        model.train()
        for images, labels in loader:
            loss = F.cross_entropy(model(images), labels)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        state = f"{args.output_dir}/epoch_{epoch}"
        accelerator.save_state(state)
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            open(state + ".saved", "w").close()
    loss = accelerator.reduce(loss.detach(), "mean")
    accelerator.print(f"final loss {loss.item():.5f}", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
    # Threads of Gloo outlive its group, and may abort the process as Python ends.
    os._exit(0)
