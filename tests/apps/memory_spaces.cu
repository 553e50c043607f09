// State spaces and widths: local arrays, shared memory of mixed types, generic pointers to each space chosen while
// running, vector loads and stores, structures and bytes, and carries in inline assembly.
#include "check.h"

enum { THREADS = 64 };

__constant__ int constants[4] = {1000, 2000, 3000, 4000};
__device__ int globals[4] = {100, 200, 300, 400};

__device__ int sum4(const int *p)
{
    return p[0] + p[1] + p[2] + p[3];
}

__global__ void generic(int *out)
{
    __shared__ int s[4];
    int local[4] = {(int)threadIdx.x, 2, 3, 4};
    const int *all[4] = {local, s, globals, constants};

    if (threadIdx.x < 4)
        s[threadIdx.x] = 10 * (threadIdx.x + 1);
    __syncthreads();
    const int *p = all[threadIdx.x % 4];
    out[threadIdx.x] = sum4(p) + (p == globals ? 4000000 : 0);
}

struct __align__(16) mixed
{
    double d;
    float f;
    short s;
    unsigned char c[2];
};

__global__ void vectors(const float4 *in, float4 *out, struct mixed *m, ulonglong2 *wide, uchar4 *bytes, short2 *shorts)
{
    int i = threadIdx.x;
    float4 v = in[i];
    struct mixed x = m[i];

    out[i] = make_float4(v.w, v.z, v.y, v.x);
    x.d += x.f;
    x.s = (short)(x.s * 2);
    x.c[0] ^= x.c[1];
    m[i] = x;
    wide[i] = make_ulonglong2(wide[i].y + i, wide[i].x);
    bytes[i] = make_uchar4(bytes[i].w, bytes[i].x, bytes[i].y, (unsigned char)(bytes[i].z + 1));
    shorts[i] = make_short2((short)-shorts[i].x, (short)(shorts[i].y >> 1));
}

__global__ void carries(const unsigned *a, const unsigned *b, unsigned *sum, unsigned *difference)
{
    unsigned s[4], d[4];

    asm("add.cc.u32 %0, %4, %8;\n\taddc.cc.u32 %1, %5, %9;\n\taddc.cc.u32 %2, %6, %10;\n\taddc.u32 %3, %7, %11;"
        : "=r"(s[0]), "=r"(s[1]), "=r"(s[2]), "=r"(s[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]));
    asm("sub.cc.u32 %0, %4, %8;\n\tsubc.cc.u32 %1, %5, %9;\n\tsubc.cc.u32 %2, %6, %10;\n\tsubc.u32 %3, %7, %11;"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]));
    for (int i = 0; i < 4; i++) {
        sum[i] = s[i];
        difference[i] = d[i];
    }
}

static void check_generic(void)
{
    int *out, back[THREADS];

    CHECK(cudaMalloc(&out, sizeof(back)));
    generic<<<1, THREADS>>>(out);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, out, sizeof(back), cudaMemcpyDeviceToHost));
    for (int i = 0; i < THREADS; i++)
        EXPECT_EQ(back[i], i % 4 == 0 ? 9 + i : i % 4 == 1 ? 100 : i % 4 == 2 ? 4001000 : 10000);
    CHECK(cudaFree(out));
}

static void check_vectors(void)
{
    float4 in[THREADS], out[THREADS], *din, *dout;
    struct mixed m[THREADS], *dm;
    ulonglong2 wide[THREADS], *dw;
    uchar4 bytes[THREADS], *db;
    short2 shorts[THREADS], *ds;

    for (int i = 0; i < THREADS; i++) {
        in[i] = make_float4(i, i + 0.25f, i + 0.5f, i + 0.75f);
        m[i] = (struct mixed){i * 1e10, 0.5f, (short)(i - 30), {(unsigned char)i, 0x3c}};
        wide[i] = make_ulonglong2(1ull << i, ~0ull - i);
        bytes[i] = make_uchar4((unsigned char)i, 1, 254, 3);
        shorts[i] = make_short2((short)(i * 500), (short)-i);
    }
#define SEND(device, host)                                                                                             \
    CHECK(cudaMalloc(&device, sizeof(host)));                                                                          \
    CHECK(cudaMemcpy(device, host, sizeof(host), cudaMemcpyHostToDevice))
#define FETCH(device, host)                                                                                            \
    CHECK(cudaMemcpy(host, device, sizeof(host), cudaMemcpyDeviceToHost));                                             \
    CHECK(cudaFree(device))
    SEND(din, in);
    SEND(dout, in);
    SEND(dm, m);
    SEND(dw, wide);
    SEND(db, bytes);
    SEND(ds, shorts);
    vectors<<<1, THREADS>>>(din, dout, dm, dw, db, ds);
    CHECK_LAUNCH();
    FETCH(din, in);
    FETCH(dout, out);
    FETCH(dm, m);
    FETCH(dw, wide);
    FETCH(db, bytes);
    FETCH(ds, shorts);
    for (int i = 0; i < THREADS; i++) {
        EXPECT(out[i].x == i + 0.75f && out[i].y == i + 0.5f && out[i].z == i + 0.25f && out[i].w == i, "%d", i);
        EXPECT(m[i].d == i * 1e10 + 0.5 && m[i].s == 2 * (i - 30) && m[i].c[0] == (i ^ 0x3c) && m[i].c[1] == 0x3c, "%d",
               i);
        EXPECT(wide[i].x == ~0ull && wide[i].y == 1ull << i, "%d: %llx", i, wide[i].x);
        EXPECT(bytes[i].x == 3 && bytes[i].y == i && bytes[i].z == 1 && bytes[i].w == 255, "%d", i);
        EXPECT(shorts[i].x == (short)(-i * 500) && shorts[i].y == (-i >> 1), "%d", i);
    }
}

static void check_carries(void)
{
    const unsigned numbers[2][4] = {{0xffffffff, 0xffffffff, 0, 5}, {1, 0, 0xffffffff, 7}};
    unsigned(*device)[4], back[4][4];
    unsigned __int128 a = 0, b = 0, sum = 0, difference = 0;

    CHECK(cudaMalloc(&device, sizeof(back)));
    CHECK(cudaMemcpy(device, numbers, sizeof(numbers), cudaMemcpyHostToDevice));
    carries<<<1, 1>>>(device[0], device[1], device[2], device[3]);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, device, sizeof(back), cudaMemcpyDeviceToHost));
    for (int i = 0; i < 4; i++) {
        a |= (unsigned __int128)numbers[0][i] << 32 * i;
        b |= (unsigned __int128)numbers[1][i] << 32 * i;
        sum |= (unsigned __int128)back[2][i] << 32 * i;
        difference |= (unsigned __int128)back[3][i] << 32 * i;
    }
    EXPECT(sum == a + b, "128-bit sum");
    EXPECT(difference == a - b, "128-bit difference");
    CHECK(cudaFree(device));
}

int main(void)
{
    check_generic();
    check_vectors();
    check_carries();
    return 0;
}
