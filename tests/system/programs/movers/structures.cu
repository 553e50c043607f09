// Structures whose links are device addresses that only device memory holds.
#include "movers.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>

// ---- a list

struct node {
    struct node *next;
    uint32_t value, reserved;
};

struct list_ends {
    struct node *first, *last;
};

static __global__ void append_node(struct list_ends *ends, struct node *one, uint32_t value)
{
    one->value = value;
    one->next = NULL;
    if (ends->last)
        ends->last->next = one;
    else
        ends->first = one;
    ends->last = one;
}

/* What it takes off the front is the host's again: its address comes back. */
static __global__ void take_first(struct list_ends *ends, struct node **ret_node)
{
    *ret_node = ends->first;
    ends->first = ends->first->next;
    if (!ends->first)
        ends->last = NULL;
}

static __global__ void walk_list(const struct list_ends *ends, uint32_t *ret_count_and_hash)
{
    uint32_t count = 0, hash = 0;

    for (const struct node *one = ends->first; one; one = one->next, count++)
        hash = hash * 31 + one->value;
    ret_count_and_hash[0] = count;
    ret_count_and_hash[1] = hash;
}

struct linked_list : mover {
    enum { LONGEST = 300, APPENDED = 6 };
    struct list_ends *ends;
    struct node **taken;
    uint32_t *found;
    std::deque<std::pair<struct node *, uint32_t>> nodes; /* address and value, in order */

    void append()
    {
        struct node *one;
        uint32_t value = random();

        CHECK(cudaMalloc(&one, sizeof *one));
        append_node<<<1, 1>>>(ends, one, value);
        CHECK_LAUNCH();
        nodes.push_back({one, value});
    }
    void take()
    {
        struct node *one;

        take_first<<<1, 1>>>(ends, taken);
        CHECK_LAUNCH();
        CHECK(cudaMemcpy(&one, taken, sizeof one, cudaMemcpyDeviceToHost));
        EXPECT(one == nodes.front().first, "the first node is %p, expected %p", (void *)one,
               (void *)nodes.front().first);
        nodes.pop_front();
        CHECK(cudaFree(one));
    }
    void set_up() override
    {
        CHECK(cudaMalloc(&ends, sizeof *ends));
        CHECK(cudaMemset(ends, 0, sizeof *ends));
        CHECK(cudaMalloc(&taken, sizeof *taken));
        found = mover_words(2);
        for (int i = 0; i < LONGEST / 2; i++)
            append();
    }
    void round() override
    {
        uint32_t hash = 0;

        for (int i = 0; i < APPENDED; i++)
            append();
        while (nodes.size() > LONGEST)
            take();
        walk_list<<<1, 1>>>(ends, found);
        CHECK_LAUNCH();
        for (const auto &one : nodes)
            hash = hash * 31 + one.second;
        mover_expect_words(found, {(uint32_t)nodes.size(), hash}, "length and hash of the list");
    }
};

// ---- a binary tree

struct tree_node {
    struct tree_node *left, *right;
    uint32_t key, copies;
};

struct tree {
    struct tree_node *root, *room;
    uint32_t used, reserved;
};

static __global__ void insert_keys(struct tree *tree, const uint32_t *keys, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct tree_node **place = &tree->root;

        while (*place && (*place)->key != keys[i])
            place = keys[i] < (*place)->key ? &(*place)->left : &(*place)->right;
        if (!*place) {
            *place = &tree->room[tree->used++];
            **place = {NULL, NULL, keys[i], 0};
        }
        (*place)->copies++;
    }
}

/* All keys in order, without recursion: the deepest way is bounded by what the host inserts. */
static __global__ void walk_tree(const struct tree *tree, uint32_t *ret_keys, uint32_t *ret_count)
{
    enum { DEEPEST = 128 };
    const struct tree_node *way[DEEPEST], *one = tree->root;
    uint32_t count = 0;
    int depth = 0;

    while ((one || depth > 0) && depth < DEEPEST) {
        for (; one && depth < DEEPEST; one = one->left)
            way[depth++] = one;
        one = way[--depth];
        for (uint32_t k = 0; k < one->copies; k++)
            ret_keys[count++] = one->key;
        one = one->right;
    }
    *ret_count = count;
}

struct binary_tree : mover {
    enum { INSERTED = 16, LARGEST = 512 };
    struct tree *tree;
    struct tree_node *room;
    uint32_t *keys, *sorted, *count;
    std::multiset<uint32_t> wanted;

    void plant()
    {
        struct tree empty = {NULL, room, 0, 0};

        CHECK(cudaMemcpy(tree, &empty, sizeof empty, cudaMemcpyHostToDevice));
        wanted.clear();
    }
    void set_up() override
    {
        CHECK(cudaMalloc(&tree, sizeof *tree));
        CHECK(cudaMalloc(&room, (LARGEST + INSERTED) * sizeof *room));
        keys = mover_words(INSERTED);
        sorted = mover_words(LARGEST + INSERTED);
        count = mover_words(1);
        plant();
    }
    void round() override
    {
        std::vector<uint32_t> fresh(INSERTED);

        if (wanted.size() >= LARGEST)
            plant();
        for (uint32_t &key : fresh) {
            key = random(2000);
            wanted.insert(key);
        }
        CHECK(cudaMemcpy(keys, fresh.data(), INSERTED * sizeof *keys, cudaMemcpyHostToDevice));
        insert_keys<<<1, 1>>>(tree, keys, INSERTED);
        walk_tree<<<1, 1>>>(tree, sorted, count);
        CHECK_LAUNCH();
        mover_expect_words(count, {(uint32_t)wanted.size()}, "how many keys the tree has");
        mover_expect_words(sorted, {wanted.begin(), wanted.end()}, "the keys in order");
    }
};

// ---- a hash table

struct hash_entry {
    struct hash_entry *next;
    uint32_t key, value;
};

static __global__ void add_to_table(struct hash_entry **buckets, uint32_t bucket_count, struct hash_entry *entries,
                                    uint32_t first, uint32_t count)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i >= count)
        return;
    struct hash_entry *one = &entries[i];
    one->key = first + i;
    one->value = mover_pattern(first + i, 1);
    one->next = (struct hash_entry *)atomicExch((unsigned long long *)&buckets[one->key % bucket_count],
                                                (unsigned long long)(uintptr_t)one);
}

/* Lists being without order, a link that was exchanged first and set afterwards is whole when the kernel has ended. */
static __global__ void look_up(struct hash_entry *const *buckets, uint32_t bucket_count, uint32_t factor,
                               uint32_t count, uint32_t *ret_values)
{
    uint32_t key = blockIdx.x * blockDim.x + threadIdx.x;

    if (key >= count)
        return;
    ret_values[key] = 0;
    for (struct hash_entry *one = buckets[key % bucket_count]; one; one = one->next)
        if (one->key == key) {
            one->value *= factor;
            ret_values[key] = one->value;
        }
}

struct hash_table : mover {
    enum { BUCKETS = 61, ADDED = 40, MOST = 1200 };
    struct hash_entry **buckets;
    uint32_t *found;
    std::vector<struct hash_entry *> parts; /* allocations that hold entries */
    std::vector<uint32_t> wanted;           /* by key */

    void set_up() override
    {
        CHECK(cudaMalloc(&buckets, BUCKETS * sizeof *buckets));
        CHECK(cudaMemset(buckets, 0, BUCKETS * sizeof *buckets));
        found = mover_words(MOST + ADDED);
    }
    void round() override
    {
        struct hash_entry *part;
        uint32_t factor = random() | 1, count;

        if (wanted.size() >= MOST) {
            CHECK(cudaMemset(buckets, 0, BUCKETS * sizeof *buckets));
            for (struct hash_entry *old : parts)
                CHECK(cudaFree(old));
            parts.clear();
            wanted.clear();
        }
        CHECK(cudaMalloc(&part, ADDED * sizeof *part));
        parts.push_back(part);
        add_to_table<<<2, ADDED / 2>>>(buckets, BUCKETS, part, (uint32_t)wanted.size(), ADDED);
        CHECK_LAUNCH();
        for (int i = 0; i < ADDED; i++)
            wanted.push_back(mover_pattern(wanted.size(), 1));
        count = (uint32_t)wanted.size();
        look_up<<<(count + 63) / 64, 64>>>(buckets, BUCKETS, factor, count, found);
        CHECK_LAUNCH();
        for (uint32_t &value : wanted)
            value *= factor;
        mover_expect_words(found, wanted, "the table's values by key");
    }
};

// ---- a table of buffers that kernels shuffle

static __global__ void swap_pairs(uint32_t **table, const uint32_t *pairs, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t *first = table[pairs[2 * i]];
        table[pairs[2 * i]] = table[pairs[2 * i + 1]];
        table[pairs[2 * i + 1]] = first;
    }
}

static __global__ void count_up(uint32_t *const *table, uint32_t *ret_values)
{
    ret_values[threadIdx.x] = table[threadIdx.x][0] += threadIdx.x;
}

struct shuffled_buffers : mover {
    enum { BUFFERS = 64, SWAPS = 20 };
    uint32_t **table, *pairs, *values;
    std::vector<uint32_t *> order; /* as the table must be */
    std::map<uint32_t *, uint32_t> wanted;

    void set_up() override
    {
        CHECK(cudaMalloc(&table, BUFFERS * sizeof *table));
        pairs = mover_words(2 * SWAPS);
        values = mover_words(BUFFERS);
        for (uint32_t i = 0; i < BUFFERS; i++) {
            uint32_t *buffer = mover_words(i * 700 + 1), first = random();
            CHECK(cudaMemcpy(buffer, &first, sizeof first, cudaMemcpyHostToDevice));
            order.push_back(buffer);
            wanted[buffer] = first;
        }
        CHECK(cudaMemcpy(table, order.data(), BUFFERS * sizeof *table, cudaMemcpyHostToDevice));
    }
    void round() override
    {
        std::vector<uint32_t> swaps(2 * SWAPS), sums;

        for (int i = 0; i < SWAPS; i++) {
            swaps[2 * i] = random(BUFFERS);
            swaps[2 * i + 1] = random(BUFFERS);
            std::swap(order[swaps[2 * i]], order[swaps[2 * i + 1]]);
        }
        for (uint32_t i = 0; i < BUFFERS; i++)
            sums.push_back(wanted[order[i]] += i);
        CHECK(cudaMemcpy(pairs, swaps.data(), swaps.size() * sizeof *pairs, cudaMemcpyHostToDevice));
        swap_pairs<<<1, 1>>>(table, pairs, SWAPS);
        count_up<<<1, BUFFERS>>>(table, values);
        CHECK_LAUNCH();
        mover_expect_words(values, sums, "the buffers' numbers in the table's order");
    }
};

// ---- functions

typedef uint32_t (*operation)(uint32_t, uint32_t);

static __device__ uint32_t sum(uint32_t a, uint32_t b)
{
    return a + b;
}
static __device__ uint32_t product(uint32_t a, uint32_t b)
{
    return a * b;
}
static __device__ uint32_t difference(uint32_t a, uint32_t b)
{
    return a - b;
}

static __global__ void make_operations(operation *table)
{
    table[0] = sum;
    table[1] = product;
    table[2] = difference;
}

static __global__ void apply(const operation *table, const uint32_t *choice, uint32_t count, uint32_t *value)
{
    for (uint32_t i = 0; i < count; i++)
        *value = table[choice[i]](*value, i + 3);
}

struct function_pointers : mover {
    enum { CALLS = 30 };
    operation *table;
    uint32_t *choice, *value, want = 12345;

    void set_up() override
    {
        CHECK(cudaMalloc(&table, 3 * sizeof *table));
        choice = mover_words(CALLS);
        value = mover_words(1);
        CHECK(cudaMemcpy(value, &want, sizeof want, cudaMemcpyHostToDevice));
        make_operations<<<1, 1>>>(table);
        CHECK_LAUNCH();
    }
    void round() override
    {
        std::vector<uint32_t> choices(CALLS);

        for (uint32_t i = 0; i < CALLS; i++) {
            choices[i] = random(3);
            want = choices[i] == 0 ? want + (i + 3) : choices[i] == 1 ? want * (i + 3) : want - (i + 3);
        }
        CHECK(cudaMemcpy(choice, choices.data(), CALLS * sizeof *choice, cudaMemcpyHostToDevice));
        apply<<<1, 1>>>(table, choice, CALLS, value);
        CHECK_LAUNCH();
        mover_expect_words(value, {want}, "what the functions have made");
    }
};

static const mover_entry entries[] = {
    {"linked_list", 0, mover_make<linked_list>, "a list of small allocations, extended and cut by kernels"},
    {"binary_tree", 0, mover_make<binary_tree>, "a search tree that kernels grow and walk"},
    {"hash_table", 0, mover_make<hash_table>, "buckets of device addresses, filled by many threads"},
    {"shuffled_buffers", 0, mover_make<shuffled_buffers>, "a table of buffers in an order that kernels change"},
    {"function_pointers", MOVER_CODE, mover_make<function_pointers>, "addresses of device functions in device memory"},
};
MOVER_FAMILY(structures, entries);
