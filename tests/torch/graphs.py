"""What PyTorch makes of CUDA graphs, compared with what it computes without them. An ordinary program: it knows nothing of Flyt.

usage: graphs.py [NAME…]       exit status 0: everything held; a line for each check, with what differed
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

from checks import check, main

GPU = torch.device("cuda")


def close(seen, wanted, tolerance):
    worst = ((seen.float() - wanted.float()).abs() / (1 + wanted.float().abs())).max().item()
    assert worst <= tolerance, "differs by %g" % worst


def net():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 10)).to(GPU)


def batches(count):
    torch.manual_seed(5)
    return [(torch.randn(256, 64, device=GPU), torch.randint(0, 10, (256,), device=GPU)) for _ in range(count)]


def warm_up(function, times=3):
    """As PyTorch's manual asks before a capture: on another stream."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(times):
            function()
    torch.cuda.current_stream().wait_stream(stream)


@check
def replays_elementwise():
    x = torch.zeros(1 << 16, device=GPU)
    warm_up(lambda: (x * 2 + 1).sin())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = (x * 2 + 1).sin()
    for i in range(5):
        fresh = torch.randn(1 << 16, device=GPU)
        x.copy_(fresh)
        graph.replay()
        close(y, (fresh * 2 + 1).sin(), 1e-6)


@check
def training_step():
    """A whole step in one graph, on other batches each time, has the losses of the eager one."""
    seen = []
    for captured in (False, True):
        model, losses = net(), []
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        data = batches(20)
        x, y = data[0][0].clone(), data[0][1].clone()
        out = {}

        def step():
            optimizer.zero_grad(set_to_none=True)
            out["loss"] = F.cross_entropy(model(x), y)
            out["loss"].backward()
            optimizer.step()

        start = {name: value.clone() for name, value in model.state_dict().items()}
        warm_up(step)
        model.load_state_dict(start)
        graph = torch.cuda.CUDAGraph()
        if captured:
            optimizer.zero_grad(set_to_none=True)
            with torch.cuda.graph(graph):
                step()
            model.load_state_dict(start)
        for one, label in data:
            x.copy_(one)
            y.copy_(label)
            graph.replay() if captured else step()
            losses.append(out["loss"].item())
        seen.append(torch.tensor(losses))
    close(seen[1], seen[0], 1e-4)


@check
def memory_is_reused():
    """Graphs of one pool."""
    pool, graphs, outs = torch.cuda.graph_pool_handle(), [], []
    x = torch.ones(1 << 20, device=GPU)
    warm_up(lambda: x + 1)
    for i in range(4):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            outs.append((x + i) * 2)
        graphs.append(graph)
    for i, graph in enumerate(graphs):
        graph.replay()
        close(outs[i], (x + i) * 2, 0)


@check
def graphed_callable():
    torch.manual_seed(5)
    model = net()
    x = torch.randn(256, 64, device=GPU, requires_grad=True)
    wanted = model(x).sum()
    wanted.backward()
    gradient = x.grad.clone()
    graphed = torch.cuda.make_graphed_callables(net(), (torch.randn(256, 64, device=GPU, requires_grad=True),))
    other = x.detach().clone().requires_grad_()
    seen = graphed(other).sum()
    seen.backward()
    close(seen, wanted, 1e-4)
    close(other.grad, gradient, 1e-4)


@check
def random_numbers():
    """Each replay draws the next numbers, as eager calls do."""
    x = torch.empty(1024, device=GPU)
    warm_up(x.normal_)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.normal_()
    torch.manual_seed(7)
    seen = []
    for _ in range(3):
        graph.replay()
        seen.append(x.clone())
    torch.manual_seed(7)
    for one in seen:
        close(one, torch.empty(1024, device=GPU).normal_(), 0)


@check
def reduce_overhead():
    """torch.compile's mode that captures what it compiled."""
    torch.manual_seed(5)
    eager = net()
    compiled = torch.compile(eager, mode="reduce-overhead")
    for _ in range(5):
        x = torch.randn(128, 64, device=GPU)
        torch.compiler.cudagraph_mark_step_begin()
        close(compiled(x).clone(), eager(x), 1e-3)


@check
def reduce_overhead_training():
    torch.manual_seed(5)
    losses = []
    for mode in (None, "reduce-overhead"):
        model, seen = net(), []
        function = torch.compile(model, mode=mode) if mode else model
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        for x, y in batches(12):
            loss = F.cross_entropy(function(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen.append(loss.item())
        losses.append(torch.tensor(seen))
    close(losses[1], losses[0], 1e-2)


if __name__ == "__main__":
    main(torch.cuda.synchronize)
