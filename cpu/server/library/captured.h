/*
 * What a library has launched while its call was captured. The call's arguments, and its scalars in host memory, go
 * when it returns, and the graph is launched later, any number of times.
 */
#ifndef FLYT_SERVER_CAPTURED_H
#define FLYT_SERVER_CAPTURED_H

#include <cuda.h>

struct flyt_driver;

/* Whether launches of the graph leave host memory alone. CUDA_ERROR_NOT_SUPPORTED: a node of it, or of a child graph,
 * copies from or to host memory, or calls a host function; CUDA_ERROR_OUT_OF_MEMORY; else the driver's error. */
CUresult flyt_captured_check(const struct flyt_driver *driver, CUgraph cu_graph);

#endif
