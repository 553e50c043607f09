#include "cpu/softgpu/dnn/convolve.h"

#include <stdlib.h>
#include <string.h>

#include "cpu/softgpu/library/product.h"

enum { BLOCK = 1 << 21 }; /* numbers of a matrix */

/* What is the same for all members of a batch and all groups. */
struct geometry {
    const struct flyt_soft_window *window;
    int from[FLYT_SOFT_SPACE], to[FLYT_SOFT_SPACE]; /* space of x and of y */
    int members, groups, channels, filters;         /* the last two in a group */
    int inputs, outputs, places, depth; /* numbers of a plane of x, of y, of the window; depth of products */
};

/* One product's part: a block of outputs [first, first + rows) of a member's group. */
struct part {
    const struct geometry *g;
    int first, rows;
    double *x, *y, *w; /* the group's */
    double *matrix, *product;
};

static struct geometry geometry_of(const struct flyt_soft_dnn *call)
{
    const struct cudnnTensorStruct *x = &call->operands[FLYT_SOFT_CONV_X].tensor,
                                   *w = &call->operands[FLYT_SOFT_CONV_W].tensor,
                                   *y = &call->operands[FLYT_SOFT_CONV_Y].tensor;
    struct geometry g = {.window = &call->window, .members = x->sizes[0], .groups = call->groups};

    flyt_soft_tensor_space(x, g.from);
    flyt_soft_tensor_space(y, g.to);
    g.channels = w->sizes[1];
    g.filters = w->sizes[0] / g.groups;
    g.inputs = g.from[0] * g.from[1] * g.from[2];
    g.outputs = g.to[0] * g.to[1] * g.to[2];
    g.places = g.window->sizes[0] * g.window->sizes[1] * g.window->sizes[2];
    g.depth = g.channels * g.places;
    return g;
}

/* Of an output and a place of the window, the number of x in a plane; -1: it is padding. */
static int find_input(const struct geometry *g, int output, int place)
{
    int found = 0, step = 1;

    for (int d = FLYT_SOFT_SPACE - 1; d >= 0; d--) {
        int at;

        if (!flyt_soft_window_find(g->window, d, output % g->to[d], place % g->window->sizes[d], g->from[d], &at))
            return -1;
        found += at * step;
        step *= g->from[d];
        output /= g->to[d];
        place /= g->window->sizes[d];
    }
    return found;
}

/* The matrix of what the outputs see, column by column; padding is 0. */
static void gather(const struct part *part)
{
    const struct geometry *g = part->g;

    for (int place = 0; place < g->places; place++) {
        for (int row = 0; row < part->rows; row++) {
            int input = find_input(g, part->first + row, place);

            for (int c = 0; c < g->channels; c++)
                part->matrix[(size_t)(c * g->places + place) * (size_t)part->rows + (size_t)row] =
                    input < 0 ? 0 : part->x[(size_t)c * (size_t)g->inputs + (size_t)input];
        }
    }
}

/* Adds the matrix to what the outputs see. */
static void scatter(const struct part *part)
{
    const struct geometry *g = part->g;

    for (int place = 0; place < g->places; place++) {
        for (int row = 0; row < part->rows; row++) {
            int input = find_input(g, part->first + row, place);

            for (int c = 0; c < g->channels && input >= 0; c++)
                part->x[(size_t)c * (size_t)g->inputs + (size_t)input] +=
                    part->product[(size_t)(c * g->places + place) * (size_t)part->rows + (size_t)row];
        }
    }
}

static bool multiply(char transa, char transb, int m, int n, int k, const double *a, int lda, const double *b, int ldb,
                     double *sum)
{
    struct flyt_soft_product product = {.a_type = CUDA_R_64F,
                                        .b_type = CUDA_R_64F,
                                        .sum_type = CUDA_R_64F,
                                        .transa = transa,
                                        .transb = transb,
                                        .m = m,
                                        .n = n,
                                        .k = k,
                                        .lda = lda,
                                        .ldb = ldb};

    return flyt_soft_product_init(&product) && flyt_soft_product_run(&product, a, b, sum);
}

bool flyt_soft_convolve_is_there(void)
{
    struct flyt_soft_product product = {.a_type = CUDA_R_64F, .b_type = CUDA_R_64F, .sum_type = CUDA_R_64F};

    return flyt_soft_product_init(&product);
}

/* ---- what is done with a part ---- */

/* y (rows × filters) = matrix (rows × depth) w (depth × filters) */
static bool forward(const struct part *part)
{
    const struct geometry *g = part->g;

    gather(part);
    if (!multiply('N', 'N', part->rows, g->filters, g->depth, part->matrix, part->rows, part->w, g->depth,
                  part->product))
        return false;
    for (int k = 0; k < g->filters; k++)
        memcpy(part->y + (size_t)k * (size_t)g->outputs + part->first, part->product + (size_t)k * (size_t)part->rows,
               (size_t)part->rows * sizeof(double));
    return true;
}

/* matrix (rows × depth) = dy (rows × filters) w' (filters × depth), each number of which goes where it came from. */
static bool backward_data(const struct part *part)
{
    const struct geometry *g = part->g;

    if (!multiply('N', 'T', part->rows, g->depth, g->filters, part->y + part->first, g->outputs, part->w, g->depth,
                  part->product))
        return false;
    scatter(part);
    return true;
}

/* w (depth × filters) += matrix' (depth × rows) dy (rows × filters) */
static bool backward_filter(const struct part *part)
{
    const struct geometry *g = part->g;

    gather(part);
    if (!multiply('T', 'N', g->depth, g->filters, part->rows, part->matrix, part->rows, part->y + part->first,
                  g->outputs, part->product))
        return false;
    for (size_t i = 0; i < (size_t)g->depth * (size_t)g->filters; i++)
        part->w[i] += part->product[i];
    return true;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Does it with all parts. */
static CUresult each_part(struct flyt_soft_dnn *call, bool (*each)(const struct part *part))
{
    const struct geometry g = geometry_of(call);
    int rows_max = g.outputs < BLOCK / g.depth ? g.outputs : BLOCK / g.depth + 1;
    size_t rows = (size_t)rows_max, depth = (size_t)g.depth, filters = (size_t)g.filters;
    double *matrix = malloc(rows * depth * sizeof(double)),
           *product = malloc(larger(larger(rows * depth, rows * filters), depth * filters) * sizeof(double));
    bool is_done = matrix && product;

    for (int i = 0; i < g.members * g.groups && is_done; i++) {
        size_t group = (size_t)(i % g.groups);
        struct part part = {.g = &g, .matrix = matrix, .product = product};

        part.x = call->operands[FLYT_SOFT_CONV_X].values + (size_t)i * (size_t)g.channels * (size_t)g.inputs;
        part.w = call->operands[FLYT_SOFT_CONV_W].values + group * filters * depth;
        part.y = call->operands[FLYT_SOFT_CONV_Y].values + (size_t)i * filters * (size_t)g.outputs;
        for (; part.first < g.outputs && is_done; part.first += part.rows) {
            part.rows = g.outputs - part.first < rows_max ? g.outputs - part.first : rows_max;
            is_done = each(&part);
        }
    }
    free(matrix);
    free(product);
    return is_done ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult flyt_soft_convolve(struct flyt_soft_dnn *call)
{
    const struct flyt_soft_operand *y = &call->operands[FLYT_SOFT_CONV_Y], *z = &call->operands[FLYT_SOFT_CONV_Z],
                                   *bias = &call->operands[FLYT_SOFT_CONV_BIAS];
    int64_t count = flyt_soft_tensor_count(&y->tensor), of_one = count / y->tensor.sizes[0],
            space = of_one / y->tensor.sizes[1];
    CUresult result = each_part(call, forward);

    for (int64_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        double sum = call->factors[0] * y->values[i];

        if (z->is_read)
            sum += call->factors[1] * z->values[i];
        if (bias->is_read)
            sum += bias->values[i % of_one / space];
        y->values[i] = flyt_soft_activate(&call->activation, sum);
    }
    return result;
}

CUresult flyt_soft_convolve_data(struct flyt_soft_dnn *call)
{
    return each_part(call, backward_data);
}

CUresult flyt_soft_convolve_filter(struct flyt_soft_dnn *call)
{
    return each_part(call, backward_filter);
}
