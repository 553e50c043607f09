"""Trains a small net as told: an ordinary PyTorch program with deterministic algorithms, whose loss depends on every step before.

usage: steps.py [transformer|convolutions]      and on the standard input

  steps N   N steps: "steps LOSS", the loss's exact value
  end       also the end of input: exit status 0

The first line is "ready".
"""
import os
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

VOCABULARY, WIDTH, HEADS, LENGTH = 1000, 256, 4, 128


class Transformer:
    def __init__(self):
        layer = torch.nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.1, batch_first=True, norm_first=True)
        self.net = torch.nn.Sequential(torch.nn.Embedding(VOCABULARY, WIDTH),
                                       torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False),
                                       torch.nn.Linear(WIDTH, VOCABULARY)).cuda()
        self.tokens = torch.randint(0, VOCABULARY, (16, LENGTH + 1)).cuda()

    def loss(self):
        return F.cross_entropy(self.net(self.tokens[:, :-1]).flatten(0, 1), self.tokens[:, 1:].flatten())


class Convolutions:
    def __init__(self):
        def stage(inputs, outputs, stride):
            return (torch.nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), torch.nn.BatchNorm2d(outputs), torch.nn.ReLU())
        self.net = torch.nn.Sequential(*stage(3, 32, 1), *stage(32, 64, 2), *stage(64, 128, 2), torch.nn.AdaptiveAvgPool2d(1),
                                       torch.nn.Flatten(), torch.nn.Linear(128, 10)).cuda()
        self.images, self.labels = torch.randn(32, 3, 32, 32).cuda(), torch.randint(0, 10, (32,)).cuda()

    def loss(self):
        return F.cross_entropy(self.net(self.images), self.labels)


NETS = {"transformer": Transformer, "convolutions": Convolutions}


def main():
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    training = NETS[sys.argv[1] if len(sys.argv) > 1 else "transformer"]()
    optimizer = torch.optim.AdamW(training.net.parameters(), lr=1e-3)
    print("ready", flush=True)
    for line in sys.stdin:
        if not line.startswith("steps"):
            break
        for _ in range(int(line.split()[1])):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = training.loss()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print("steps", loss.item().hex(), flush=True)


if __name__ == "__main__":
    main()
