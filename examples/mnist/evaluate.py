#!/usr/bin/env python3
"""Prints a checkpoint's test accuracy, by numpy and the file format alone.

usage: evaluate.py CHECKPOINT_DIR MNIST_DIR [SAMPLES]
"""
import gzip
import json
import os
import struct
import sys

import numpy as np


def load_safetensors(path):
    """A safetensors file as {name: array}."""
    kinds = {"F32": "<f4", "F64": "<f8", "I64": "<i8", "I32": "<i4", "U8": "u1"}
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        data = file.read()
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        values = np.frombuffer(data[begin:end], kinds[entry["dtype"]])
        tensors[name] = values.reshape(entry["shape"])
    return tensors


def load_idx(path):
    with gzip.open(path, "rb") as file:
        _, _, _, dimensions = struct.unpack(">4B", file.read(4))
        shape = struct.unpack(f">{dimensions}I", file.read(4 * dimensions))
        return np.frombuffer(file.read(), np.uint8).reshape(shape)


def logits(net, images):
    # The 3x3 neighbourhood of each pixel, then the convolution as a product.
    windows = np.lib.stride_tricks.sliding_window_view(images, (3, 3), (1, 2))
    kernels = net["conv.weight"].reshape(-1, 9)
    features = windows.reshape(*windows.shape[:3], 9) @ kernels.T
    features = np.maximum(features + net["conv.bias"], 0)
    flat = features.transpose(0, 3, 1, 2).reshape(len(images), -1)
    hidden = np.maximum(flat @ net["fc1.weight"].T + net["fc1.bias"], 0)
    return hidden @ net["fc2.weight"].T + net["fc2.bias"]


def main():
    checkpoint, data = sys.argv[1:3]
    net = load_safetensors(os.path.join(checkpoint, "model.safetensors"))
    images = load_idx(os.path.join(data, "t10k-images-idx3-ubyte.gz"))
    labels = load_idx(os.path.join(data, "t10k-labels-idx1-ubyte.gz"))
    count = int(sys.argv[3]) if len(sys.argv) > 3 else len(labels)
    images = images[:count].astype(net["conv.weight"].dtype) / 255
    labels = labels[:count]
    correct = 0
    for begin in range(0, count, 500):
        guesses = logits(net, images[begin:begin + 500]).argmax(1)
        correct += int((guesses == labels[begin:begin + 500]).sum())
    print(f"test accuracy: {100 * correct / count:.2f} %")


if __name__ == "__main__":
    main()
