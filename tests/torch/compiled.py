"""What PyTorch's compiler and Triton make of a program, compared with what PyTorch does without them. An ordinary program: it
knows nothing of Flyt.

usage: compiled.py [NAME…]       exit status 0: everything held; a line for each check, with what differed
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl

from checks import check, main

GPU = torch.device("cuda")


def close(seen, wanted, tolerance):
    worst = ((seen.float() - wanted.float()).abs() / (1 + wanted.float().abs())).max().item()
    assert worst <= tolerance, "differs by %g" % worst


def net():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 10)).to(GPU)


@check
def forward():
    torch.manual_seed(5)
    x = torch.randn(128, 64, device=GPU)
    eager = net()
    close(torch.compile(eager)(x), eager(x), 1e-3)


@check
def shapes_that_change():
    function = torch.compile(lambda x: (x.sin() * x.cos()).sum(1).softmax(0))
    for length in (10, 100, 1000):
        x = torch.randn(length, 33, device=GPU)
        close(function(x), (x.sin() * x.cos()).sum(1).softmax(0), 1e-4)


@check
def training():
    torch.manual_seed(5)
    x, y = torch.randn(256, 64, device=GPU), torch.randint(0, 10, (256,), device=GPU)
    losses = []
    for compiled in (False, True):
        one = net()
        function = torch.compile(one) if compiled else one
        optimizer = torch.optim.AdamW(one.parameters(), lr=1e-3)
        seen = []
        for _ in range(20):
            loss = F.cross_entropy(function(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen.append(loss.item())
        losses.append(torch.tensor(seen))
    assert losses[0][-1] < 0.8 * losses[0][0], "nothing was learnt"
    close(losses[1], losses[0], 1e-2)


@check
def attention():
    torch.manual_seed(5)
    q, k, v = (torch.randn(2, 4, 128, 64, device=GPU, dtype=torch.bfloat16) for _ in range(3))

    def attend(q, k, v):
        return F.softmax(q @ k.transpose(-1, -2) / 8, -1) @ v
    close(torch.compile(attend)(q, k, v), attend(q, k, v), 3e-2)


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)


@check
def triton_add():
    x, y = torch.randn(100003, device=GPU), torch.randn(100003, device=GPU)
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
    assert torch.equal(out, x + y), "sums differ"


@triton.jit
def product_kernel(a, b, c, n, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        inner = start + tl.arange(0, BLOCK)
        total += tl.dot(tl.load(a + rows[:, None] * n + inner[None, :]), tl.load(b + inner[:, None] * n + columns[None, :]))
    tl.store(c + rows[:, None] * n + columns[None, :], total)


@check
def triton_product():
    a, b = (torch.randn(512, 512, device=GPU, dtype=torch.float16) for _ in range(2))
    c = torch.empty(512, 512, device=GPU)
    product_kernel[(8, 8)](a, b, c, 512, BLOCK=64)
    close(c, a.float() @ b.float(), 1e-2)


if __name__ == "__main__":
    main(torch.cuda.synchronize)
