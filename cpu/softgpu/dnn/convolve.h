/*
 * Convolutions as products of matrices: for each member of the batch and each group, the inputs that outputs see are
 * laid out as a matrix (a row for an output, a column for a channel and a place in the window), which is multiplied
 * with the filter. Doubles, a block of outputs at a time.
 */
#ifndef FLYT_SOFTGPU_DNN_CONVOLVE_H
#define FLYT_SOFTGPU_DNN_CONVOLVE_H

#include "cpu/softgpu/dnn/dnn.h"

/* Operands of the record: whichever of X, W and Y is written is what is computed. BIAS and Z are added to Y. */
enum { FLYT_SOFT_CONV_X, FLYT_SOFT_CONV_W, FLYT_SOFT_CONV_Y, FLYT_SOFT_CONV_Z, FLYT_SOFT_CONV_BIAS };

/* Whether there is a library that multiplies. */
bool flyt_soft_convolve_is_there(void);

/* Kernels. y = activation(factors[0] conv(x, w) + factors[1] z + bias), the gradients of the sum alone. */
CUresult flyt_soft_convolve(struct flyt_soft_dnn *call);
CUresult flyt_soft_convolve_data(struct flyt_soft_dnn *call);
CUresult flyt_soft_convolve_filter(struct flyt_soft_dnn *call);

#endif
