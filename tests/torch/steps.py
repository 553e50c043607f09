"""Trains a small transformer as told: an ordinary PyTorch program with deterministic algorithms, whose loss depends on every step
before.

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


def main():
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.1, batch_first=True, norm_first=True)
    model = torch.nn.Sequential(torch.nn.Embedding(VOCABULARY, WIDTH), torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False),
                                torch.nn.Linear(WIDTH, VOCABULARY)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(0, VOCABULARY, (16, LENGTH + 1)).cuda()
    print("ready", flush=True)
    for line in sys.stdin:
        if not line.startswith("steps"):
            break
        for _ in range(int(line.split()[1])):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print("steps", loss.item().hex(), flush=True)


if __name__ == "__main__":
    main()
