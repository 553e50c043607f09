/* Makes plans of cuDNN's graph interface and does what it is told: what they are made of is asked of the server's
 * library (graph_library.c), and has to stay as it was. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern int cudaMalloc(void **, size_t), cudaDeviceSynchronize(void);
extern int cudnnCreate(void **), cudnnDestroy(void *), cudnnBackendCreateDescriptor(int, void **),
    cudnnBackendDestroyDescriptor(void *), cudnnBackendSetAttribute(void *, int, int, int64_t, const void *),
    cudnnBackendFinalize(void *), cudnnBackendGetAttribute(void *, int, int, int64_t, int64_t *, void *),
    cudnnBackendExecute(void *, void *, void *);

enum {
    HANDLE = 0,
    DATA_TYPE = 1,
    INT64 = 3,
    VOID_PTR = 6,
    HEUR_MODE = 8,
    KNOB_TYPE = 9,
    DESCRIPTOR = 15,
    TELL = 9999,
    RESULTS = 3
};
enum { ENGINE = 2, CONFIG = 3, HEURISTICS = 4, PLAN = 5, KNOB = 7, OPERATION = 13, GRAPH = 15, PACK = 16, TENSOR = 17 };

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        int status_ = (call);                                                                                          \
        if (status_) {                                                                                                 \
            printf("error %d of %s\n", status_, #call);                                                                \
            exit(7);                                                                                                   \
        }                                                                                                              \
    } while (0)

static void *handle;

static void *make(int type)
{
    void *desc;
    CHECK(cudnnBackendCreateDescriptor(type, &desc));
    return desc;
}

static void set(void *desc, int name, int type, int64_t count, const void *elements)
{
    CHECK(cudnnBackendSetAttribute(desc, name, type, count, elements));
}

static void end(void *desc)
{
    CHECK(cudnnBackendDestroyDescriptor(desc));
}

static int64_t tell(void *desc, int name)
{
    int64_t count, value = 0;
    CHECK(cudnnBackendGetAttribute(desc, name, INT64, 1, &count, &value));
    return value;
}

static void *a_tensor(int64_t id)
{
    const int64_t sizes[] = {4, id, 2};
    int type = 0;
    void *self = make(TENSOR);
    set(self, 901, DATA_TYPE, 1, &type);
    set(self, 902, INT64, 3, sizes);
    set(self, 906, INT64, 1, &id);
    CHECK(cudnnBackendFinalize(self));
    return self;
}

/* The tensors and the operation end before the graph is used. */
static void *a_graph(int64_t id)
{
    void *tensors[] = {a_tensor(id), a_tensor(id + 1)}, *operation = make(OPERATION), *self = make(GRAPH);
    set(operation, 751, DESCRIPTOR, 1, &tensors[0]);
    set(operation, 752, DESCRIPTOR, 1, &tensors[1]);
    CHECK(cudnnBackendFinalize(operation));
    set(self, 800, HANDLE, 1, &handle);
    set(self, 801, DESCRIPTOR, 1, &operation);
    CHECK(cudnnBackendFinalize(self));
    end(tensors[0]);
    end(operation);
    end(tensors[1]);
    return self;
}

static void *heuristics_of(void *graph)
{
    int mode = 2;
    void *self = make(HEURISTICS);
    set(self, 200, HEUR_MODE, 1, &mode);
    set(self, 201, DESCRIPTOR, 1, &graph);
    CHECK(cudnnBackendFinalize(self));
    return self;
}

/* The second result of heuristics, which end with the graph and the other results. */
static void *a_config_of_heuristics(void)
{
    void *graph = a_graph(20), *heuristics = heuristics_of(graph), *results[RESULTS + 1];
    int64_t count;
    end(graph);
    for (int i = 0; i <= RESULTS; i++)
        results[i] = make(CONFIG);
    CHECK(cudnnBackendGetAttribute(heuristics, 202, DESCRIPTOR, RESULTS + 1, &count, results));
    CHECK(count != RESULTS);
    end(results[0]);
    end(heuristics);
    end(results[2]);
    end(results[3]);
    return results[1];
}

static void *a_config_by_hand(void)
{
    void *graph = a_graph(30), *engine = make(ENGINE), *knob = make(KNOB), *self = make(CONFIG);
    const int64_t index = 77, value = 5;
    const int type = 3;
    set(engine, 1300, DESCRIPTOR, 1, &graph);
    set(engine, 1301, INT64, 1, &index);
    CHECK(cudnnBackendFinalize(engine));
    set(knob, 600, KNOB_TYPE, 1, &type);
    set(knob, 601, INT64, 1, &value);
    CHECK(cudnnBackendFinalize(knob));
    set(self, 300, DESCRIPTOR, 1, &engine);
    set(self, 302, DESCRIPTOR, 1, &knob);
    CHECK(cudnnBackendFinalize(self));
    end(engine);
    end(knob);
    end(graph);
    return self;
}

static void *a_plan(void *config)
{
    void *self = make(PLAN);
    set(self, 400, HANDLE, 1, &handle);
    set(self, 401, DESCRIPTOR, 1, &config);
    CHECK(cudnnBackendFinalize(self));
    tell(self, 402);
    return self;
}

static void execute(void *plan, void *address)
{
    const int64_t id = 20;
    void *pack = make(PACK);
    set(pack, 1000, INT64, 1, &id);
    set(pack, 1001, VOID_PTR, 1, &address);
    CHECK(cudnnBackendFinalize(pack));
    CHECK(cudnnBackendExecute(handle, plan, pack));
    end(pack);
}

int main(void)
{
    char line[64];
    void *address, *configs[2], *plans[3], *engine = make(ENGINE), *graph, *asked = NULL;
    int64_t count;
    CHECK(cudaMalloc(&address, 4096));
    CHECK(cudnnCreate(&handle));
    configs[0] = a_config_of_heuristics();
    configs[1] = a_config_by_hand();
    for (int i = 0; i < 2; i++)
        plans[i] = a_plan(configs[i]);
    plans[2] = a_plan(configs[1]);
    CHECK(cudnnBackendGetAttribute(configs[0], 300, DESCRIPTOR, 1, &count, &engine));
    end(configs[1]);
    graph = a_graph(40);
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && strncmp(line, "end", 3)) {
        line[strcspn(line, " \n")] = '\0';
        if (!strcmp(line, "heuristics")) {
            void *one = make(CONFIG);
            asked = heuristics_of(graph);
            CHECK(cudnnBackendGetAttribute(asked, 202, DESCRIPTOR, 1, &count, &one));
            end(one);
        } else if (!strcmp(line, "forget")) {
            end(asked);
            CHECK(cudaDeviceSynchronize());
        } else if (!strcmp(line, "again")) { /* as what was brought here is used further */
            end(plans[2]);
            plans[2] = a_plan(configs[0]);
            printf("again %lld\n", (long long)(tell(plans[2], TELL) != tell(plans[0], TELL)));
            fflush(stdout);
            continue;
        } else {
            for (int i = 0; i < 40; i++)
                execute(plans[i % 3], address);
            CHECK(cudaDeviceSynchronize());
            printf("%s %lld %lld %lld %lld %lld %lld\n", line, (long long)tell(plans[0], TELL),
                   (long long)tell(plans[1], TELL), (long long)tell(plans[0], 402), (long long)tell(engine, 1301),
                   (long long)tell(engine, TELL), (long long)tell(graph, TELL));
            fflush(stdout);
            continue;
        }
        printf("%s\n", line);
        fflush(stdout);
    }
    CHECK(cudnnDestroy(handle));
    return 0;
}
