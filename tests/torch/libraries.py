"""What PyTorch does with no kernel of its own, compared with what it does on the CPU: memory, streams, events, and products and
transforms by NVIDIA's libraries. An ordinary program: it knows nothing of Flyt. A software GPU runs it, too, though PyTorch's wheels
have machine code only.

usage: libraries.py [NAME…]     exit status 0: everything held; a line for each check, with what differed
"""
import io

import torch
import torch.nn.functional as F

from checks import check, main

GPU = torch.device("cuda")


def close(gpu, cpu, tolerance):
    gpu, cpu = gpu.detach().cpu().double(), cpu.detach().double()
    assert gpu.shape == cpu.shape, (gpu.shape, cpu.shape)
    worst = ((gpu - cpu).abs() / (1 + cpu.abs())).max().item()
    assert worst <= tolerance, "differs by %g" % worst


def both(work, tolerance, *given):
    """work on the same numbers, on either side."""
    close(work(*[one.to(GPU) for one in given]), work(*given), tolerance)


def randoms(*shapes, dtype=torch.float32):
    torch.manual_seed(7)
    return [torch.randn(*shape, dtype=dtype) for shape in shapes]


@check
def copies():
    one = torch.arange(1 << 20, dtype=torch.int64)
    there = one.to(GPU)
    assert torch.equal(there.cpu(), one) and torch.equal(there.clone()[1000:2000].cpu(), one[1000:2000])
    there[5000:6000] = one[:1000].to(GPU)
    one[5000:6000] = one[:1000].clone()
    assert torch.equal(there.cpu(), one)


@check
def pinned():
    one = torch.arange(300000.0).pin_memory()
    back = torch.empty(300000).pin_memory()
    back.copy_(one.to(GPU, non_blocking=True), non_blocking=True)
    torch.cuda.synchronize()
    assert torch.equal(back, torch.arange(300000.0))


@check
def products():
    torch.backends.cuda.matmul.allow_tf32 = False
    both(torch.matmul, 1e-3, *randoms((123, 77), (77, 65)))
    both(torch.bmm, 1e-3, *randoms((9, 31, 17), (9, 17, 23)))
    both(F.linear, 1e-3, *randoms((100, 64), (32, 64), (32,)))
    both(torch.matmul, 1e-10, *randoms((30, 40), (40, 30), dtype=torch.float64))
    both(lambda a, b: torch.view_as_real((a @ b).cpu()), 1e-3, *randoms((64, 48), (48, 20), dtype=torch.complex64))
    both(torch.dot, 1e-3, *randoms((1000,), (1000,)))
    for kind in (torch.bfloat16, torch.float16):
        both(lambda a, b: (a @ b).cpu().float(), 2e-2, *[one.to(kind) for one in randoms((128, 128), (128, 128))])


@check
def transforms():
    both(lambda x: torch.view_as_real(torch.fft.rfft(x).cpu()), 1e-3, *randoms((5, 1000)))
    both(lambda x: torch.view_as_real(torch.fft.fft2(x).cpu()), 1e-3, *randoms((4, 60, 48), dtype=torch.complex64))


@check
def descent():
    """Least squares by 200 steps along the gradient, each two products that add."""
    x, w = randoms((200, 12), (12, 3), dtype=torch.float64)
    y, found = x @ w, torch.zeros(12, 3, dtype=torch.float64)

    def steps(x, y, found):
        for _ in range(200):
            residual = torch.addmm(y, x, found, beta=-1)
            found = torch.addmm(found, x.t(), residual, alpha=-1 / 400)
        return found
    close(steps(x.to(GPU), y.to(GPU), found.to(GPU)), w, 1e-6)


@check
def gradients():
    """Of a product, by autograd."""
    def gradient(x, w, g):
        w.requires_grad_()
        torch.matmul(x, w).backward(g)
        return w.grad
    both(gradient, 1e-3, *randoms((50, 20), (20, 10), (50, 10)))


@check
def streams_and_events():
    a, b = (one.to(GPU) for one in randoms((64, 64), (64, 64)))
    side, begin, end = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        product = a @ b
        end.record()
    torch.cuda.current_stream().wait_stream(side)
    close(product @ b, a.cpu() @ b.cpu() @ b.cpu(), 1e-3)
    assert begin.elapsed_time(end) >= 0


@check
def save_and_load():
    one = torch.nn.Linear(30, 20).to(GPU)
    file = io.BytesIO()
    torch.save(one.state_dict(), file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    assert all(torch.equal(own.cpu(), loaded[name].cpu()) and loaded[name].is_cuda for name, own in one.state_dict().items())


@check
def machine_code():
    """A kernel of PyTorch's own runs where its machine code does, and is refused by name elsewhere; the program goes on either way."""
    one = torch.arange(1000.0)
    try:
        assert torch.equal((one.to(GPU) + 1).cpu(), one + 1)
    except RuntimeError as error:
        assert "no kernel image is available" in str(error), error
    copies()


if __name__ == "__main__":
    main(torch.cuda.synchronize)
