// Control flow: divergent loops and early exits, jump tables, recursion, virtual functions, goto-like nests and
// calls under divergence, each compared with the same code on the host.
#include "check.h"

__host__ __device__ static int jump_table(int which, int x)
{
    int y = x * 3;

    switch (which) {
    case 0:
        y += x / 7;
        break;
    case 1:
        y = x * x + 5;
        [[fallthrough]];
    case 2:
        y ^= ~x;
        break;
    case 3:
        y -= x << 7;
        break;
    case 4:
        for (int i = 0; i < x % 5; i++)
            y += y >> 3;
        break;
    case 5:
        y = x * 31 - 8;
        break;
    case 6:
        y = (x ^ 0x55aa) % 77;
        break;
    case 7:
        return 7;
    case 8:
        y = x > 50 ? x / 3 : -x;
        break;
    case 9:
        y = x % 4 + 90;
        [[fallthrough]];
    case 10:
        y = -y;
        break;
    case 11:
        while (y > 10)
            y /= 2;
        break;
    case 12:
        y |= 0x1000;
        break;
    case 13:
        y = y % 13 * 5;
        break;
    case 14:
        y = x & (x + 9);
        break;
    case 15:
        y += 100000;
        break;
    default:
        return 4242;
    }
    return y + which;
}

__host__ __device__ static int collatz(unsigned n)
{
    int steps = 0;

    while (n != 1) {
        n = n % 2 ? 3 * n + 1 : n / 2;
        if (++steps > 500)
            break;
    }
    return steps;
}

__host__ __device__ static int ackermann(int m, int n)
{
    return m == 0 ? n + 1 : n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}

__host__ __device__ static int is_odd(int n);
__host__ __device__ static int is_even(int n)
{
    return n == 0 ? 1 : is_odd(n - 1);
}
__host__ __device__ static int is_odd(int n)
{
    return n == 0 ? 0 : is_even(n - 1);
}

struct shape {
    __host__ __device__ virtual int area(int scale) const
    {
        return -1;
    }
    __host__ __device__ virtual ~shape()
    {
    }
};
struct square : shape {
    int side;
    __host__ __device__ square(int s) : side(s)
    {
    }
    __host__ __device__ int area(int scale) const override
    {
        return side * side * scale;
    }
};
struct box : square {
    int height;
    __host__ __device__ box(int s, int h) : square(s), height(h)
    {
    }
    __host__ __device__ int area(int scale) const override
    {
        return (2 * side * side + 4 * side * height) * scale;
    }
};

__host__ __device__ static int shapes(int i)
{
    square s(i % 5);
    box b(i % 4, i % 7);
    shape plain;
    const shape *all[3] = {&s, &b, &plain};

    return all[i % 3]->area(i % 11);
}

__host__ __device__ static int nested(int i)
{
    int sum = 0;

    for (int a = 0; a < i % 6; a++) {
        for (int b = 0; b < 8; b++) {
            if (b == i % 5)
                continue;
            if (a * b > i % 17)
                goto out;
            sum += a * b + 1;
        }
        do {
            sum ^= a;
        } while ((sum & 3) == 1 && ++a < 5);
    }
out:
    return sum;
}

/* A branch by table in PTX itself, where the compiler prefers a tree of comparisons; which < 4. */
__device__ static int branch_table(int which, int x)
{
    int y;

    asm volatile("{\n\t"
                 "targets: .branchtargets case0, case1, case2, case3;\n\t"
                 "brx.idx %1, targets;\n"
                 "case0:\n\tadd.s32 %0, %2, 100;\n\tbra done;\n"
                 "case1:\n\tmul.lo.s32 %0, %2, 7;\n\tbra done;\n"
                 "case2:\n\tneg.s32 %0, %2;\n\tbra done;\n"
                 "case3:\n\tshl.b32 %0, %2, 3;\n"
                 "done:\n\t}"
                 : "=r"(y)
                 : "r"(which), "r"(x));
    return y;
}

static int branch_table_on_host(int which, int x)
{
    const int results[4] = {x + 100, x * 7, -x, x << 3};

    return results[which];
}

enum { COUNT = 192, RESULTS = 7 };

__global__ void evaluate(int *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, *mine = out + i * RESULTS;

    if (i >= COUNT)
        return;
    mine[0] = jump_table(i % 18 - 1, i);
    mine[1] = collatz(i + 1);
    mine[2] = ackermann(i % 3, i % 4);
    mine[3] = is_even(i % 20);
    mine[4] = shapes(i);
    mine[5] = nested(i);
    mine[6] = branch_table(i * 5 % 4, i);
}

int main(void)
{
    static int back[COUNT * RESULTS];
    int *out;

    CHECK(cudaDeviceSetLimit(cudaLimitStackSize, 8192));
    CHECK(cudaMalloc(&out, sizeof(back)));
    evaluate<<<2, 128>>>(out);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, out, sizeof(back), cudaMemcpyDeviceToHost));
    for (int i = 0; i < COUNT; i++) {
        const int want[RESULTS] = {jump_table(i % 18 - 1, i),
                                   collatz(i + 1),
                                   ackermann(i % 3, i % 4),
                                   is_even(i % 20),
                                   shapes(i),
                                   nested(i),
                                   branch_table_on_host(i * 5 % 4, i)};

        for (int r = 0; r < RESULTS; r++)
            EXPECT(back[i * RESULTS + r] == want[r], "thread %d, result %d: %d, expected %d", i, r,
                   back[i * RESULTS + r], want[r]);
    }
    CHECK(cudaFree(out));
    return 0;
}
