// Merge sort of pairs: each block sorts its tile in shared memory by merging runs that double, where each thread finds
// its element's place in the other run by bisection; then runs in device memory are merged, each thread a piece of the
// result that it finds by bisecting the two runs' cut. Stable. SIZE: pairs.
#include "textbook.h"

#include <algorithm>

enum { TILE = 512, PIECE = 8, THREADS = 128 };

// Elements of the sorted run before which `key` goes: behind equal ones where is_after.
__device__ static int place(uint32_t key, const uint32_t *run, int count, bool is_after)
{
    int low = 0, high = count;

    while (low < high) {
        int middle = (low + high) / 2;

        if (run[middle] < key || (is_after && run[middle] == key))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

__global__ void sort_tiles(uint32_t *keys, uint32_t *values, int count)
{
    __shared__ uint32_t key[TILE], value[TILE];
    int first = blockIdx.x * TILE;

    for (int i = threadIdx.x; i < TILE; i += THREADS) {
        key[i] = first + i < count ? keys[first + i] : UINT32_MAX;
        value[i] = first + i < count ? values[first + i] : 0;
    }
    for (int run = 1; run < TILE; run *= 2) {
        uint32_t my_key[TILE / THREADS], my_value[TILE / THREADS];
        int to[TILE / THREADS];

        __syncthreads();
        for (int n = 0; n < TILE / THREADS; n++) {
            int i = n * THREADS + threadIdx.x, own = i & ~(run - 1), other = own ^ run;

            my_key[n] = key[i];
            my_value[n] = value[i];
            to[n] = (own & ~run) + (i - own) + place(my_key[n], key + other, run, own > other);
        }
        __syncthreads();
        for (int n = 0; n < TILE / THREADS; n++) {
            key[to[n]] = my_key[n];
            value[to[n]] = my_value[n];
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < TILE; i += THREADS)
        if (first + i < count) {
            keys[first + i] = key[i];
            values[first + i] = value[i];
        }
}

// Merges neighbouring runs of `run` elements: each thread PIECE elements of the result.
__global__ void merge(const uint32_t *keys, const uint32_t *values, uint32_t *merged_keys, uint32_t *merged_values,
                      int count, int run)
{
    int at = (blockIdx.x * THREADS + threadIdx.x) * PIECE;

    if (at >= count)
        return;
    int first = at / (2 * run) * 2 * run, middle = min(first + run, count), end = min(first + 2 * run, count);
    int diagonal = at - first, left_count = middle - first, right_count = end - middle;
    int low = max(0, diagonal - right_count), high = min(diagonal, left_count);

    while (low < high) {
        int cut = (low + high) / 2;

        if (keys[first + cut] <= keys[middle + diagonal - 1 - cut])
            low = cut + 1;
        else
            high = cut;
    }
    int left = first + low, right = middle + diagonal - low;
    for (int i = at; i < min(at + PIECE, end); i++) {
        bool is_left = right >= end || (left < middle && keys[left] <= keys[right]);
        int from = is_left ? left++ : right++;

        merged_keys[i] = keys[from];
        merged_values[i] = values[from];
    }
}

int main(int argc, char **argv)
{
    struct textbook book = textbook_read(argc, argv, 3000);
    int count = book.size;
    std::vector<uint32_t> keys(count), values(count), got_keys(count), got_values(count), order(count);
    uint32_t seed = 9;

    for (int i = 0; i < count; i++) {
        keys[i] = next_random(&seed) % (count / 2 + 1); // many are equal
        values[i] = order[i] = i;
    }
    uint32_t *original = to_device(keys), *numbers = to_device(values);
    uint32_t *from_keys = to_device(keys), *from_values = to_device(values);
    uint32_t *into_keys = to_device(keys), *into_values = to_device(values);
    for (int round = 0; round < book.rounds; round++) {
        CHECK(cudaMemcpy(from_keys, original, count * sizeof(*keys.data()), cudaMemcpyDeviceToDevice));
        CHECK(cudaMemcpy(from_values, numbers, count * sizeof(*keys.data()), cudaMemcpyDeviceToDevice));
        sort_tiles<<<(count + TILE - 1) / TILE, THREADS>>>(from_keys, from_values, count);
        for (int run = TILE; run < count; run *= 2) {
            merge<<<(count + THREADS * PIECE - 1) / (THREADS * PIECE), THREADS>>>(from_keys, from_values, into_keys,
                                                                                into_values, count, run);
            std::swap(from_keys, into_keys);
            std::swap(from_values, into_values);
        }
    }
    CHECK_LAUNCH();
    from_device(got_keys, from_keys);
    from_device(got_values, from_values);
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return keys[a] < keys[b]; });
    for (int i = 0; i < count; i++)
        EXPECT(got_keys[i] == keys[order[i]] && got_values[i] == order[i], "place %d: %u of %u, expected %u of %u", i,
               got_keys[i], got_values[i], keys[order[i]], order[i]);
    textbook_report(&book, 0);
    return 0;
}
