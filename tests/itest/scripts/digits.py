"""The first digits of MNIST, for the scripts beside this file."""

import gzip
import pathlib

import numpy
import torch


def _read(path, header):
    with gzip.open(path) as file:
        return numpy.frombuffer(file.read(), numpy.uint8, offset=header).copy()


def dataset(directory, count):
    directory = pathlib.Path(directory)
    images = _read(directory / "train-images-idx3-ubyte.gz", 16)
    labels = _read(directory / "train-labels-idx1-ubyte.gz", 8)
    images = torch.from_numpy(images).reshape(-1, 1, 28, 28)[:count]
    return torch.utils.data.TensorDataset(
        images / 255.0, torch.from_numpy(labels)[:count].long())
