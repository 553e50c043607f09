#include "cpu/client/core/instance.h"

#include <string.h>
#include "cpu/client/core/lost.h"
#include "cpu/client/core/output.h"
#include "cpu/client/core/part.h"
#include "rpc/api/fatal.h"
#include "rpc/base/log.h"

struct flyt_client flyt_client = {.connect_mutex = PTHREAD_MUTEX_INITIALIZER, .local = {.fd = -1}};

/* ---- the state ---- */

CUresult flyt_client_broken(void)
{
    CUresult result = flyt_client_state_code();
    return result ? result : (CUresult)atomic_load_explicit(&flyt_client.fatal, memory_order_relaxed);
}

bool flyt_client_is_forked(void)
{
    return atomic_load(&flyt_client.state) == FLYT_CLIENT_FORKED;
}

bool flyt_client_is_faulted(CUresult result)
{
    return result && result == (CUresult)atomic_load(&flyt_client.fatal) && result != CUDA_ERROR_DEVICE_UNAVAILABLE;
}

/* ---- results ---- */

CUresult flyt_client_status(int channel_status, const char *procedure)
{
    if (channel_status == FLYT_CHANNEL_OK)
        return CUDA_SUCCESS;
    if (channel_status == FLYT_CHANNEL_UNSUPPORTED)
        return flyt_not_supported(procedure);
    CUresult broken = flyt_client_state_code();
    return broken ? broken : flyt_lost_code();
}

CUresult flyt_client_code(int result)
{
    return result < 0 ? CUDA_ERROR_UNKNOWN : (CUresult)result;
}

CUresult flyt_client_reply(int channel_status, int result, const char *procedure)
{
    flyt_output_print();
    if (channel_status != FLYT_CHANNEL_OK)
        return flyt_client_status(channel_status, procedure);
    CUresult code = flyt_client_code(result);
    if (flyt_fatal_is(code))
        flyt_client_set_fatal(code);
    return code;
}

void flyt_client_set_fatal(CUresult result)
{
    int none = CUDA_SUCCESS;
    if (!result || !atomic_compare_exchange_strong(&flyt_client.fatal, &none, (int)result))
        return;
    FLYT_PARTS_TELL(wake);
    if (flyt_client_is_usable())
        FLYT_PARTS_TELL(explain, result, flyt_channel_progress(flyt_client.channel).completed);
}

CUresult flyt_not_supported(const char *name)
{
    enum { NAMES_MAX = 1024 };
    static struct {
        pthread_mutex_t mutex;
        const char *names[NAMES_MAX];
        unsigned count;
    } said = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    bool is_new = true;
    pthread_mutex_lock(&said.mutex);
    for (unsigned i = 0; i < said.count && is_new; i++)
        is_new = strcmp(said.names[i], name) != 0;
    is_new = is_new && said.count < NAMES_MAX;
    if (is_new)
        said.names[said.count++] = name;
    pthread_mutex_unlock(&said.mutex);
    if (is_new) {
        flyt_log_init("flyt", FLYT_LOG_WARN);
        flyt_warn("%s is not supported", name);
    }
    return CUDA_ERROR_NOT_SUPPORTED;
}
