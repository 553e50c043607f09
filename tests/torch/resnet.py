"""Trains a ResNet-50 for some steps and tells how long that takes: an ordinary PyTorch program, of torch.nn alone.

usage: resnet.py [--steps N] [--batch N] [--side N] [--device cuda|cpu] [--deterministic]

Lines "NAME VALUE UNIT", then "losses" with the first and the last ones. A batch is N images of N by N pixels; a CPU tries the
program with `--device cpu --batch 2 --side 64 --steps 2`.
"""
import argparse
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

CLASSES = 1000
STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))    # width, blocks, stride of the first one


def convolution(inputs, outputs, side, stride=1):
    return nn.Conv2d(inputs, outputs, side, stride, side // 2, bias=False), nn.BatchNorm2d(outputs)


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.path = nn.Sequential(*convolution(inputs, width, 1), nn.ReLU(), *convolution(width, width, 3, stride), nn.ReLU(),
                                  *convolution(width, 4 * width, 1))
        is_same = inputs == 4 * width and stride == 1
        self.beside = nn.Identity() if is_same else nn.Sequential(*convolution(inputs, 4 * width, 1, stride))

    def forward(self, x):
        return F.relu(self.path(x) + self.beside(x))


def resnet():
    layers, inputs = [*convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for width, blocks, stride in STAGES:
        for i in range(blocks):
            layers.append(Bottleneck(inputs, width, 1 if i else stride))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, CLASSES))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--deterministic", action="store_true")
    options = parser.parse_args()
    torch.use_deterministic_algorithms(options.deterministic)
    torch.manual_seed(0)
    device, random = torch.device(options.device), torch.Generator().manual_seed(1)
    model = resnet().to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    images = torch.randn(options.batch, 3, options.side, options.side, generator=random).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, CLASSES, (options.batch,), generator=random)
    if device.type == "cuda":
        images, labels = images.pin_memory(), labels.pin_memory()

    def step():
        begin = time.perf_counter()
        given, wanted = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = F.cross_entropy(model(given), wanted)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        return time.perf_counter() - begin
    losses = []
    print("first_step %.1f ms" % (1e3 * step()))
    for _ in range(4):
        step()
    print("training_step %.2f ms" % (1e3 * statistics.median(step() for _ in range(options.steps))))
    print("losses", *("%.6f" % one for one in losses[:2] + losses[-2:]))


if __name__ == "__main__":
    main()
