"""In the shape of Lightning's examples/pytorch: a LightningModule and a Trainer with
strategy="ddp", which goes on from last.ckpt where there is one."""

import argparse

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

import digits


class ImageClassifier(L.LightningModule):

    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(),
                                   nn.Linear(256, 10))

    def training_step(self, batch, _):
        images, labels = batch
        loss = F.cross_entropy(self.model(images), labels)
        self.log("loss", loss, prog_bar=True, on_epoch=True, sync_dist=True)
        return loss

    def on_train_epoch_start(self):
        print(f"\nepoch {self.current_epoch}", flush=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--num-nodes", type=int, default=1)
    args = parser.parse_args()
    L.seed_everything(0)
    loader = DataLoader(digits.dataset(args.data, 4096), batch_size=32,
                        shuffle=True)
    trainer = L.Trainer(
        accelerator="cpu", strategy="ddp", devices=args.devices,
        num_nodes=args.num_nodes, max_epochs=args.epochs, logger=False,
        callbacks=[ModelCheckpoint(dirpath="checkpoints", save_last=True)])
    trainer.fit(ImageClassifier(), loader, ckpt_path="last")
    if trainer.is_global_zero:
        print(f"\nfinal loss {trainer.callback_metrics['loss_epoch'].item():.5f}",
              flush=True)


if __name__ == "__main__":
    main()
