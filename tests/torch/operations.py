"""What PyTorch does on a GPU, compared with what it does on the CPU. An ordinary program: it knows nothing of Flyt.

usage: operations.py [NAME…]     exit status 0: everything held; a line for each check, with what differed
"""
import os
import tempfile

import torch
import torch.nn.functional as F

from checks import check, main

GPU = torch.device("cuda")


def close(gpu, cpu, tolerance=1e-4):
    gpu, cpu = gpu.detach().cpu().double(), cpu.detach().double()
    assert gpu.shape == cpu.shape, (gpu.shape, cpu.shape)
    worst = ((gpu - cpu).abs() / (1 + cpu.abs())).max().item() if cpu.numel() else 0
    assert worst <= tolerance, "differs by %g" % worst


def both(make, work, tolerance=1e-4):
    """work on the same numbers, on either side."""
    torch.manual_seed(7)
    given = [one for one in make()]
    seen = work(*[one.to(GPU) for one in given])
    close(seen, work(*given), tolerance)


@check
def elementwise():
    for work in (torch.sin, torch.exp, lambda x: x * 2 + 1, torch.sigmoid, lambda x: x.clamp(-0.5, 0.5), F.gelu, F.silu):
        both(lambda: [torch.randn(1000, 37)], work)


@check
def reductions():
    for work in (torch.sum, lambda x: x.mean(0), lambda x: x.max(1).values, lambda x: x.std(1), lambda x: x.cumsum(1),
                 lambda x: x.logsumexp(1), lambda x: x.argmax(1).float(), torch.norm):
        both(lambda: [torch.randn(300, 257)], work, 1e-3)


@check
def indexing():
    index = torch.randint(0, 100, (500,))
    both(lambda: [torch.randn(100, 8)], lambda x: x[index.to(x.device)])
    both(lambda: [torch.randn(500, 8)], lambda x: torch.zeros(100, 8, device=x.device).index_add_(0, index.to(x.device), x), 1e-3)
    both(lambda: [torch.randn(50, 40)], lambda x: x[x > 0])
    both(lambda: [torch.randn(50, 40)], lambda x: torch.where(x > 0, x, -x).flip(0).t().contiguous())


@check
def sorting():
    both(lambda: [torch.randperm(100000).float()], lambda x: x.sort().values)
    both(lambda: [torch.randperm(5000).float().view(50, 100)], lambda x: x.topk(7, 1).values)
    both(lambda: [torch.randint(0, 50, (3000,))], lambda x: x.unique(return_counts=True)[1].float())


@check
def random_numbers():
    torch.cuda.manual_seed(3)
    one = torch.randn(10000, device=GPU)
    torch.cuda.manual_seed(3)
    assert torch.equal(one, torch.randn(10000, device=GPU))
    assert abs(one.mean().item()) < 0.05 and abs(one.std().item() - 1) < 0.05
    assert abs(torch.rand(10000, device=GPU).mean().item() - 0.5) < 0.05
    assert F.dropout(torch.ones(10000, device=GPU), 0.3).count_nonzero().item() in range(6500, 7500)


@check
def products():
    torch.backends.cuda.matmul.allow_tf32 = False
    both(lambda: [torch.randn(123, 77), torch.randn(77, 65)], torch.matmul, 1e-3)
    both(lambda: [torch.randn(9, 31, 17), torch.randn(9, 17, 23)], torch.bmm, 1e-3)
    both(lambda: [torch.randn(64), torch.randn(64, 64), torch.randn(64)], torch.addmv, 1e-3)
    both(lambda: [torch.randn(100, 64), torch.randn(32, 64), torch.randn(32)], F.linear, 1e-3)
    both(lambda: [torch.randn(64, 48, dtype=torch.complex64), torch.randn(48, 20, dtype=torch.complex64)],
         lambda a, b: torch.view_as_real(a @ b), 1e-3)
    both(lambda: [torch.randn(30, 30, dtype=torch.float64), torch.randn(30, 30, dtype=torch.float64)], torch.matmul, 1e-10)
    both(lambda: [torch.randn(1000), torch.randn(1000)], torch.dot, 1e-3)
    for kind in (torch.bfloat16, torch.float16):
        both(lambda: [torch.randn(128, 128), torch.randn(128, 128)], lambda a, b: (a.to(kind) @ b.to(kind)).float(), 2e-2)


@check
def linear_algebra():
    def positive():
        a = torch.randn(6, 40, 40, dtype=torch.float64)
        return [a @ a.mT + 40 * torch.eye(40, dtype=torch.float64)]
    for work in (torch.linalg.cholesky, torch.linalg.inv, torch.linalg.det, torch.linalg.eigvalsh, torch.linalg.svdvals,
                 lambda a: torch.linalg.solve(a, torch.ones(6, 40, 3, dtype=torch.float64, device=a.device)),
                 lambda a: torch.linalg.qr(a).R.abs(), lambda a: torch.linalg.lstsq(a, a).solution):
        both(positive, work, 1e-8)


@check
def fourier():
    both(lambda: [torch.randn(5, 1000)], lambda x: torch.view_as_real(torch.fft.rfft(x)), 1e-3)
    both(lambda: [torch.randn(4, 60, 48)], lambda x: torch.view_as_real(torch.fft.fft2(x)), 1e-3)
    both(lambda: [torch.randn(3, 256)], lambda x: torch.fft.irfft(torch.fft.rfft(x)), 1e-4)


@check
def convolution():
    torch.backends.cudnn.allow_tf32 = False

    def work(x, w, v):
        x.requires_grad_(), w.requires_grad_()
        y = F.conv_transpose2d(F.max_pool2d(F.relu(F.conv2d(x, w, padding=1)), 2), v, stride=2)
        y.square().mean().backward()
        return torch.cat([y.flatten(), x.grad.flatten(), w.grad.flatten()])
    both(lambda: [torch.randn(4, 3, 32, 32), torch.randn(8, 3, 3, 3), torch.randn(8, 5, 2, 2)], work, 1e-3)


@check
def normalisation():
    for layer in (torch.nn.BatchNorm2d(8), torch.nn.GroupNorm(2, 8), torch.nn.LayerNorm([8, 10, 10])):
        x = torch.randn(4, 8, 10, 10)
        wanted = layer(x)
        layer.to(GPU)
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.reset_running_stats()
        close(layer(x.to(GPU)), wanted, 1e-4)


@check
def recurrent():
    torch.manual_seed(1)
    layer, x = torch.nn.LSTM(16, 24, 2), torch.randn(12, 5, 16)
    wanted = layer(x)[0]
    close(layer.to(GPU)(x.to(GPU))[0], wanted, 1e-4)


@check
def attention():
    torch.manual_seed(1)
    q, k, v = (torch.randn(2, 4, 64, 32) for _ in range(3))
    wanted = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    close(F.scaled_dot_product_attention(q.to(GPU), k.to(GPU), v.to(GPU), is_causal=True), wanted, 1e-3)
    halves = [one.to(GPU, torch.bfloat16) for one in (q, k, v)]
    close(F.scaled_dot_product_attention(*halves, is_causal=True).float(), wanted, 3e-2)


@check
def streams_and_events():
    side, begin, end = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    x = torch.ones(1 << 20, device=GPU)
    begin.record()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x * 3
        end.record()
    torch.cuda.current_stream().wait_stream(side)
    assert (y + x).sum().item() == 4 << 20 and begin.elapsed_time(end) >= 0


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        return torch.full((100,), float(i))


@check
def pinned_loader():
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=8, num_workers=2, pin_memory=True)
    total = sum(batch.to(GPU, non_blocking=True).sum() for batch in loader)
    assert total.item() == 100 * 63 * 32


@check
def save_and_load():
    layer = torch.nn.Linear(30, 20).to(GPU)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "layer.pt")
        torch.save(layer.state_dict(), path)
        loaded = torch.load(path, weights_only=True)
    assert all(torch.equal(one, loaded[name]) and loaded[name].is_cuda for name, one in layer.state_dict().items())


@check
def out_of_memory():
    free = torch.cuda.mem_get_info()[0]
    try:
        torch.empty(2 * free, dtype=torch.uint8, device=GPU)
        raise AssertionError("more memory than there is was given")
    except torch.cuda.OutOfMemoryError:
        pass
    assert torch.ones(1000, device=GPU).sum().item() == 1000


@check
def training():
    def run(device):
        torch.manual_seed(5)
        net = torch.nn.Sequential(torch.nn.Conv2d(1, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 36, 10)).to(device)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        x, y = torch.randn(64, 1, 8, 8).to(device), torch.randint(0, 10, (64,)).to(device)
        losses = []
        for _ in range(20):
            loss = F.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return torch.tensor(losses)
    close(run(GPU), run("cpu"), 1e-2)


class Transformer(torch.nn.Module):
    """Two layers, which foretell the next of LENGTH tokens."""
    VOCABULARY, WIDTH, LENGTH = 40, 32, 24

    def __init__(self):
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(self.WIDTH, 4, 2 * self.WIDTH, dropout=0, batch_first=True, norm_first=True)
        self.tokens = torch.nn.Embedding(self.VOCABULARY, self.WIDTH)
        self.places = torch.nn.Embedding(self.LENGTH, self.WIDTH)
        self.layers = torch.nn.TransformerEncoder(layer, 2, torch.nn.LayerNorm(self.WIDTH), enable_nested_tensor=False)
        self.head = torch.nn.Linear(self.WIDTH, self.VOCABULARY)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(torch.arange(self.LENGTH, device=tokens.device))
        mask = torch.nn.Transformer.generate_square_subsequent_mask(self.LENGTH, device=tokens.device)
        return self.head(self.layers(x, mask=mask, is_causal=True))


def transformer_loss(net, tokens):
    return F.cross_entropy(net(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def a_transformer(device):
    """With tokens of which each says what the next one is."""
    torch.manual_seed(11)
    begins = torch.randint(0, Transformer.VOCABULARY, (16, 1))
    tokens = (begins + 7 * torch.arange(Transformer.LENGTH + 1)) % Transformer.VOCABULARY
    return Transformer().to(device), tokens.to(device)


@check
def transformer_training():
    torch.backends.cuda.matmul.allow_tf32 = False

    def run(device):
        net, tokens = a_transformer(device)
        optimizer = torch.optim.AdamW(net.parameters(), lr=5e-3)
        losses = []
        for _ in range(25):
            loss = transformer_loss(net, tokens)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return torch.tensor(losses)
    wanted = run("cpu")
    assert wanted[-1] < wanted[0] / 2, "it learns nothing: %s" % wanted
    close(run(GPU), wanted, 1e-2)


@check
def autocast():
    """Products in bfloat16, parameters and gradients in float32, and all near to what float32 gives."""
    net, tokens = a_transformer(GPU)
    exact, exact_tokens = a_transformer("cpu")
    with torch.autocast(GPU.type, dtype=torch.bfloat16):
        seen = net(tokens[:, :-1])
        product = net.head.weight @ net.head.weight.t()
        with torch.autocast(GPU.type, enabled=False):
            whole = net.head.weight @ net.head.weight.t()
        loss = transformer_loss(net, tokens)
    assert (seen.dtype, product.dtype, whole.dtype) == (torch.bfloat16, torch.bfloat16, torch.float32)
    wanted = exact(exact_tokens[:, :-1])
    assert not torch.equal(seen.detach().cpu().float(), wanted.detach()), "nothing was rounded"
    close(seen.float(), wanted, 3e-2)
    close(whole, exact.head.weight @ exact.head.weight.t(), 1e-4)
    wanted_loss = transformer_loss(exact, exact_tokens)
    close(loss.float(), wanted_loss, 1e-2)
    loss.backward()
    wanted_loss.backward()
    for (name, one), other in zip(net.named_parameters(), exact.parameters()):
        assert one.dtype == one.grad.dtype == torch.float32, name
        difference = (one.grad.cpu() - other.grad).norm() / (1e-3 + other.grad.norm())
        assert difference < 0.1, "%s: its gradient differs by %g" % (name, difference)


if __name__ == "__main__":
    main(torch.cuda.synchronize)
