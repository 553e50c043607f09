"""Trains a GPT-2-small for some steps and decodes with it, and tells how long that takes: an ordinary PyTorch program.

usage: gpt.py [--steps N] [--deterministic]    lines "NAME VALUE UNIT", then "losses" with the first and the last ones
"""
import argparse
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCABULARY, WIDTH, HEADS, LAYERS, CONTEXT = 50257, 768, 12, 12, 1024
GPU = torch.device("cuda")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (one.view(batch, length, HEADS, -1).transpose(1, 2) for one in self.qkv(self.before(x)).split(WIDTH, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(F.gelu(self.up(self.after(x))))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def product():
    a, b = (torch.randn(8192, 8192, device=GPU, dtype=torch.bfloat16) for _ in range(2))
    times = []
    for _ in range(8):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(10):
            a @ b
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / 10)
    return statistics.median(times[2:])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--deterministic", action="store_true")
    options = parser.parse_args()
    torch.use_deterministic_algorithms(options.deterministic)
    torch.manual_seed(0)
    begin = time.perf_counter()
    torch.ones(4, device=GPU).sum().item()
    print("first_kernel %.1f ms" % (1e3 * (time.perf_counter() - begin)))
    print("product_8192_bf16 %.3f ms" % (1e3 * product()))
    model = Gpt().to(GPU)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    tokens = torch.randint(0, VOCABULARY, (8, 513), generator=torch.Generator().manual_seed(1))

    def step():
        given = tokens.to(GPU, non_blocking=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(given[:, :-1]).flatten(0, 1), given[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()
    losses, times = [step() for _ in range(5)], []
    for _ in range(options.steps):
        begin = time.perf_counter()
        losses.append(step())
        times.append(time.perf_counter() - begin)
    print("training_step %.2f ms" % (1e3 * statistics.median(times)))
    model.eval()
    times = []
    with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
        for _ in range(4):
            begin, current = time.perf_counter(), tokens[:1, :16].to(GPU)
            for _ in range(40):
                current = torch.cat([current, model(current)[:, -1:].argmax(-1)], 1)
            decoded = current.tolist()[0]
            times.append(time.perf_counter() - begin)
    print("decode_40_tokens %.1f ms" % (1e3 * statistics.median(times[1:])))
    print("losses", *("%.6f" % one for one in losses[:2] + losses[-2:]), "last_token", decoded[-1])


if __name__ == "__main__":
    main()
