#include "cpu/server/session.h"
#include "flyt_serve.h"

CUresult flyt_serve_session_resume_begin(struct flyt_call *call, const flyt_session_resume_begin_args *args,
                                         flyt_session_resume_begin_res *res)
{
    return CUDA_ERROR_NOT_PERMITTED;
}

CUresult flyt_serve_session_resume_end(struct flyt_call *call, const flyt_session_resume_end_args *args,
                                       flyt_session_resume_end_res *res)
{
    return CUDA_ERROR_NOT_PERMITTED;
}

CUresult flyt_serve_memory_restore(struct flyt_call *call, const flyt_memory_restore_args *args,
                                   flyt_memory_restore_res *res)
{
    return CUDA_ERROR_NOT_PERMITTED;
}

CUresult flyt_serve_event_restore(struct flyt_call *call, const flyt_event_restore_args *args,
                                  struct flyt_event *event)
{
    return CUDA_ERROR_NOT_PERMITTED;
}
