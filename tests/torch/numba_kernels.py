"""Kernels that Numba compiles, compared with NumPy. An ordinary program: it knows nothing of Flyt.

usage: numba_kernels.py [NAME…]  exit status 0: everything held; a line for each check, with what differed
"""
import numpy as np
from numba import cuda, float32
from numba.cuda.random import create_xoroshiro128p_states, xoroshiro128p_uniform_float32

from checks import check, main

COUNT = 10000
NUMBERS = np.random.default_rng(1)


def grid(count):
    return (count + 255) // 256, 256


@cuda.jit
def scale_and_add(a, x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a * x[i] + y[i]


@check
def arrays_of_the_host():
    x, y = (NUMBERS.random(COUNT).astype(np.float32) for _ in range(2))
    out = np.zeros_like(x)
    scale_and_add[grid(COUNT)](np.float32(2), x, y, out)
    np.testing.assert_allclose(out, 2 * x + y, rtol=1e-6)


@cuda.jit
def tiled_product(a, b, c):
    tile_a, tile_b = cuda.shared.array((8, 8), float32), cuda.shared.array((8, 8), float32)
    x, y = cuda.grid(2)
    row, column = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for tile in range(a.shape[1] // 8):
        tile_a[row, column] = a[x, column + tile * 8]
        tile_b[row, column] = b[row + tile * 8, y]
        cuda.syncthreads()
        for k in range(8):
            total += tile_a[row, k] * tile_b[k, column]
        cuda.syncthreads()
    c[x, y] = total


@check
def shared_memory():
    a, b = (NUMBERS.random((32, 32)).astype(np.float32) for _ in range(2))
    c = cuda.device_array((32, 32), np.float32)
    tiled_product[(4, 4), (8, 8)](cuda.to_device(a), cuda.to_device(b), c)
    np.testing.assert_allclose(c.copy_to_host(), a @ b, rtol=1e-4)


@cuda.jit
def histogram(x, counts):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(counts, x[i], 1)


@check
def atomics():
    x, counts = NUMBERS.integers(0, 16, COUNT).astype(np.int32), np.zeros(16, np.int32)
    histogram[grid(COUNT)](x, counts)
    np.testing.assert_array_equal(counts, np.bincount(x, minlength=16))


@cuda.reduce
def total_of(a, b):
    return a + b


@check
def reductions():
    assert total_of(np.arange(1000, dtype=np.float64)) == 499500


@check
def streams_and_events():
    x = NUMBERS.random(COUNT).astype(np.float32)
    stream, begin, end = cuda.stream(), cuda.event(), cuda.event()
    there = cuda.to_device(x, stream=stream)
    begin.record(stream)
    scale_and_add[(*grid(COUNT), stream)](np.float32(3), there, there, there)
    end.record(stream)
    stream.synchronize()
    np.testing.assert_allclose(there.copy_to_host(), 4 * x, rtol=1e-6)
    assert cuda.event_elapsed_time(begin, end) >= 0


@check
def pinned_memory():
    x = cuda.pinned_array(COUNT, np.float32)
    x[:] = NUMBERS.random(COUNT)
    np.testing.assert_array_equal(cuda.to_device(x).copy_to_host(), x)


@cuda.jit
def draw(states, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = xoroshiro128p_uniform_float32(states, i)


@check
def random_numbers():
    out = np.zeros(1024, np.float32)
    draw[4, 256](create_xoroshiro128p_states(1024, seed=1), out)
    assert 0.45 < out.mean() < 0.55 and 0 <= out.min() and out.max() < 1 and len(set(out)) > 1000


@cuda.jit
def warp(out):
    i = cuda.threadIdx.x
    out[i] = i + cuda.shfl_down_sync(0xffffffff, i, 16) + cuda.ballot_sync(0xffffffff, i < 4)


@check
def warps():
    out = np.zeros(32, np.int64)
    warp[1, 32](out)
    assert list(out[:16]) == [2 * i + 16 + 15 for i in range(16)], out


if __name__ == "__main__":
    main(cuda.synchronize)
