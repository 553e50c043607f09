#include "cpu/server/library/cudnn_config.h"

#include <string.h>

bool flyt_cudnn_find(struct flyt_libcall *call, struct flyt_cudnn *ret)
{
    struct flyt_server_library *library = call->library;
    *ret = (struct flyt_cudnn){
        .library = library,
        .create = (int (*)(int, void **))flyt_server_library_function(library, "cudnnBackendCreateDescriptor"),
        .set = (int (*)(void *, int, int, int64_t, const void *))flyt_server_library_function(
            library, "cudnnBackendSetAttribute"),
        .get = (int (*)(void *, int, int, int64_t, int64_t *, void *))flyt_server_library_function(
            library, "cudnnBackendGetAttribute"),
        .finalize = (int (*)(void *))flyt_server_library_function(library, "cudnnBackendFinalize"),
        .destroy = (int (*)(void *))flyt_server_library_function(library, "cudnnBackendDestroyDescriptor")};
    return ret->create && ret->set && ret->get && ret->finalize && ret->destroy;
}

/* Descriptors of a call's own, which end with it. */
struct own {
    struct flyt_cudnn cudnn;
    int success;
    void *engine, *knobs[FLYT_CUDNN_KNOBS_MAX];
    size_t knob_count;
};

static int begin(struct flyt_libcall *call, struct own *ret)
{
    *ret = (struct own){.success = call->library->success};
    if (!flyt_cudnn_find(call, &ret->cudnn))
        return call->library->refused;
    return ret->cudnn.create(FLYT_CUDNN_ENGINE, &ret->engine);
}

static void end(struct own *self)
{
    for (size_t i = 0; i < self->knob_count; i++)
        self->cudnn.destroy(self->knobs[i]);
    if (self->engine)
        self->cudnn.destroy(self->engine);
}

static int add_knobs(struct own *self, size_t count)
{
    int status = self->success;
    while (self->knob_count < count && status == self->success) {
        status = self->cudnn.create(FLYT_CUDNN_KNOB_CHOICE, &self->knobs[self->knob_count]);
        self->knob_count += status == self->success;
    }
    return status;
}

/* ---- what one is ---- */

static int tell_engine(struct own *self, void *config, struct flyt_cudnn_config *ret)
{
    int64_t count = 0;
    int status =
        self->cudnn.get(config, FLYT_CUDNN_CONFIG_ENGINE, FLYT_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &self->engine);
    return status == self->success
               ? self->cudnn.get(self->engine, FLYT_CUDNN_ENGINE_INDEX, FLYT_CUDNN_TYPE_INT64, 1, &count, &ret->engine)
               : status;
}

static int tell_knob(struct own *self, size_t place, struct flyt_cudnn_config *ret)
{
    int64_t count = 0;
    int32_t type = 0;
    int status = self->cudnn.get(self->knobs[place], FLYT_CUDNN_KNOB_TYPE, FLYT_CUDNN_TYPE_KNOB_TYPE, 1, &count, &type);
    ret->knobs[place].type = type;
    return status == self->success ? self->cudnn.get(self->knobs[place], FLYT_CUDNN_KNOB_VALUE, FLYT_CUDNN_TYPE_INT64,
                                                     1, &count, &ret->knobs[place].value)
                                   : status;
}

static int tell_knobs(struct own *self, void *config, struct flyt_cudnn_config *ret)
{
    int64_t count = 0;
    int status = add_knobs(self, FLYT_CUDNN_KNOBS_MAX);
    if (status == self->success)
        status = self->cudnn.get(config, FLYT_CUDNN_CONFIG_KNOBS, FLYT_CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                 FLYT_CUDNN_KNOBS_MAX, &count, self->knobs);
    if (status == self->success && (count < 0 || count > FLYT_CUDNN_KNOBS_MAX))
        status = self->cudnn.library->refused;
    ret->knob_count = status == self->success ? count : 0;
    for (int64_t i = 0; i < ret->knob_count && status == self->success; i++)
        status = tell_knob(self, (size_t)i, ret);
    return status;
}

int flyt_cudnn_config_tell(struct flyt_libcall *call, void *config, struct flyt_cudnn_config *ret)
{
    struct own own;
    memset(ret, 0, sizeof *ret);
    int status = begin(call, &own);
    if (status == own.success)
        status = tell_engine(&own, config, ret);
    if (status == own.success)
        status = tell_knobs(&own, config, ret);
    end(&own);
    return status;
}

/* ---- the same one again ---- */

static int make_engine(struct own *self, void *graph, int64_t index)
{
    int status = self->cudnn.set(self->engine, FLYT_CUDNN_ENGINE_GRAPH, FLYT_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
    if (status == self->success)
        status = self->cudnn.set(self->engine, FLYT_CUDNN_ENGINE_INDEX, FLYT_CUDNN_TYPE_INT64, 1, &index);
    return status == self->success ? self->cudnn.finalize(self->engine) : status;
}

static int make_knobs(struct own *self, const struct flyt_cudnn_config *wanted)
{
    int status = add_knobs(self, (size_t)wanted->knob_count);
    for (size_t i = 0; i < self->knob_count && status == self->success; i++) {
        int32_t type = (int32_t)wanted->knobs[i].type;
        status = self->cudnn.set(self->knobs[i], FLYT_CUDNN_KNOB_TYPE, FLYT_CUDNN_TYPE_KNOB_TYPE, 1, &type);
        if (status == self->success)
            status = self->cudnn.set(self->knobs[i], FLYT_CUDNN_KNOB_VALUE, FLYT_CUDNN_TYPE_INT64, 1,
                                     &wanted->knobs[i].value);
        if (status == self->success)
            status = self->cudnn.finalize(self->knobs[i]);
    }
    return status;
}

static int make_config(struct own *self, void *config)
{
    int status =
        self->cudnn.set(config, FLYT_CUDNN_CONFIG_ENGINE, FLYT_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &self->engine);
    if (status == self->success && self->knob_count)
        status = self->cudnn.set(config, FLYT_CUDNN_CONFIG_KNOBS, FLYT_CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                 (int64_t)self->knob_count, self->knobs);
    return status == self->success ? self->cudnn.finalize(config) : status;
}

static bool has_knob(const struct flyt_cudnn_config *config, int64_t type, int64_t value)
{
    for (int64_t i = 0; i < config->knob_count; i++)
        if (config->knobs[i].type == type && config->knobs[i].value == value)
            return true;
    return false;
}

/* In whatever order the knobs are. */
static bool are_alike(const struct flyt_cudnn_config *one, const struct flyt_cudnn_config *other)
{
    bool are = one->engine == other->engine && one->knob_count == other->knob_count;
    for (int64_t i = 0; i < one->knob_count && are; i++)
        are = has_knob(other, one->knobs[i].type, one->knobs[i].value);
    return are;
}

static int check_config(struct flyt_libcall *call, void *config, const struct flyt_cudnn_config *wanted)
{
    struct flyt_cudnn_config made;
    int status = flyt_cudnn_config_tell(call, config, &made);
    return status == call->library->success && !are_alike(&made, wanted) ? call->library->refused : status;
}

int flyt_cudnn_config_make(struct flyt_libcall *call, void *graph, const struct flyt_cudnn_config *wanted,
                           void **ret_config)
{
    struct own own;
    void *config = NULL;
    if (!graph || wanted->knob_count < 0 || wanted->knob_count > FLYT_CUDNN_KNOBS_MAX)
        return call->library->invalid;
    int status = begin(call, &own);
    if (status == own.success)
        status = make_engine(&own, graph, wanted->engine);
    if (status == own.success)
        status = make_knobs(&own, wanted);
    if (status == own.success)
        status = own.cudnn.create(FLYT_CUDNN_CONFIG, &config);
    if (status == own.success)
        status = make_config(&own, config);
    if (status == own.success)
        status = check_config(call, config, wanted);
    if (status == own.success)
        *ret_config = config;
    else if (config)
        own.cudnn.destroy(config);
    end(&own);
    return status;
}

int flyt_cudnn_plan_check(struct flyt_libcall *call, void *plan, int64_t workspace_bytes)
{
    struct flyt_cudnn cudnn;
    int64_t count = 0, needed = 0;
    if (!flyt_cudnn_find(call, &cudnn))
        return call->library->refused;
    int status = cudnn.get(plan, FLYT_CUDNN_PLAN_WORKSPACE, FLYT_CUDNN_TYPE_INT64, 1, &count, &needed);
    if (status == call->library->success && needed > workspace_bytes)
        status = call->library->refused;
    if (status != call->library->success)
        cudnn.destroy(plan);
    return status;
}
