/* cuDNN's normalization on the software GPU, in every type and layout, against plain loops over doubles. Gradients are
 * compared with finite differences of these. */
#include "cpu/softgpu/dnn/test.h"

static const int sizes[] = {3, 4, 2, 5};
enum { N = 3, C = 4, SPACE = 10, COUNT = N * C * SPACE, GROUPS_MAX = C * SPACE };
static const double epsilon = 1e-2;

/* ---- over a batch ---- */

struct norm {
    int mode, groups;
    const double *scale, *bias, *added; /* added: NULL for none */
    bool is_cut;                        /* by a rectifier */
};

static int group_of(const struct norm *norm, int i)
{
    return norm->mode == CUDNN_BATCHNORM_PER_ACTIVATION ? i % (C * SPACE) : i / SPACE % C;
}

static void moments(const struct norm *norm, const double *x, int group, double *ret_mean, double *ret_variance)
{
    double sum = 0, squares = 0, count = COUNT / norm->groups;

    for (int i = 0; i < COUNT; i++) {
        if (group_of(norm, i) != group)
            continue;
        sum += x[i];
        squares += x[i] * x[i];
    }
    *ret_mean = sum / count;
    *ret_variance = squares / count - *ret_mean * *ret_mean;
}

static void forward(const void *what, const double *x, double *y)
{
    const struct norm *norm = what;
    double mean[GROUPS_MAX], variance[GROUPS_MAX];

    for (int g = 0; g < norm->groups; g++)
        moments(norm, x, g, &mean[g], &variance[g]);
    for (int i = 0; i < COUNT; i++) {
        int g = group_of(norm, i);

        y[i] = norm->scale[g] * (x[i] - mean[g]) / sqrt(variance[g] + epsilon) + norm->bias[g];
        if (norm->added)
            y[i] += norm->added[i];
        if (norm->is_cut)
            y[i] = fmax(y[i], 0);
    }
}

/* All tensors of a normalization; parameters are floats but for doubles. */
struct problem {
    struct norm norm;
    struct tensor x, y, dx, dy, z, dz, scale, bias, mean, variance, saved_mean, saved_inverse;
};

static struct problem problem_new(int mode, int type, enum layout layout)
{
    int small = type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
    bool is_spatial = mode != CUDNN_BATCHNORM_PER_ACTIVATION;
    const int of_groups[] = {1, C, is_spatial ? 1 : sizes[2], is_spatial ? 1 : sizes[3]};
    struct problem p = {.norm = {.mode = mode, .groups = is_spatial ? C : C * SPACE}};
    struct tensor *tensors[] = {&p.x, &p.y, &p.dx, &p.dy, &p.z, &p.dz},
                  *parameters[] = {&p.scale, &p.bias, &p.mean, &p.variance, &p.saved_mean, &p.saved_inverse};

    for (int i = 0; i < 6; i++)
        *tensors[i] = tensor_new(type, layout, 4, sizes);
    for (int i = 0; i < 6; i++)
        *parameters[i] = tensor_new(small, PACKED, 4, of_groups);
    for (int64_t i = 0; i < p.variance.count; i++)
        p.variance.value[i] += 1.5;
    upload(&p.variance);
    p.norm.scale = p.scale.value;
    p.norm.bias = p.bias.value;
    return p;
}

static void problem_free(struct problem *p)
{
    struct tensor *all[] = {&p->x,     &p->y,    &p->dx,   &p->dy,       &p->z,          &p->dz,
                            &p->scale, &p->bias, &p->mean, &p->variance, &p->saved_mean, &p->saved_inverse};

    for (int i = 0; i < 12; i++)
        tensor_free(all[i]);
}

static void check_inference(struct problem *p, int type)
{
    double *wanted = copy_of(&p->y);

    for (int i = 0; i < COUNT; i++) {
        int g = group_of(&p->norm, i);
        double y = p->scale.value[g] * (p->x.value[i] - p->mean.value[g]) / sqrt(p->variance.value[g] + epsilon) +
                   p->bias.value[g];

        wanted[i] = 0.5 * y - wanted[i];
    }
    assert_ok(cudnnBatchNormalizationForwardInference(
        handle, p->norm.mode, scalar(type, 0.5), scalar(type, -1), p->x.desc, at(&p->x), p->y.desc, at(&p->y),
        p->scale.desc, at(&p->scale), at(&p->bias), at(&p->mean), at(&p->variance), epsilon));
    expect(&p->y, wanted, 4 * tolerance_of(type));
    free(wanted);
}

static void check_training(struct problem *p, int type, double factor)
{
    double wanted[COUNT], mean[GROUPS_MAX], variance[GROUPS_MAX], inverse[GROUPS_MAX],
        count = COUNT / p->norm.groups,
        tolerance = 4 * tolerance_of(type == CUDNN_DATA_DOUBLE ? type : CUDNN_DATA_FLOAT);
    double *old_mean = copy_of(&p->mean), *old_variance = copy_of(&p->variance);

    forward(&p->norm, p->x.value, wanted);
    assert_ok(cudnnBatchNormalizationForwardTraining(handle, p->norm.mode, scalar(type, 1), scalar(type, 0), p->x.desc,
                                                     at(&p->x), p->y.desc, at(&p->y), p->scale.desc, at(&p->scale),
                                                     at(&p->bias), factor, at(&p->mean), at(&p->variance), epsilon,
                                                     at(&p->saved_mean), at(&p->saved_inverse)));
    expect(&p->y, wanted, 4 * tolerance_of(type));
    for (int g = 0; g < p->norm.groups; g++) {
        moments(&p->norm, p->x.value, g, &mean[g], &variance[g]);
        inverse[g] = 1 / sqrt(variance[g] + epsilon);
    }
    expect(&p->saved_mean, mean, tolerance);
    expect(&p->saved_inverse, inverse, tolerance);
    for (int g = 0; g < p->norm.groups; g++) {
        mean[g] = factor * mean[g] + (1 - factor) * old_mean[g];
        variance[g] = factor * variance[g] * count / (count - 1) + (1 - factor) * old_variance[g];
    }
    expect(&p->mean, mean, tolerance);
    expect(&p->variance, variance, tolerance);
    free(old_mean);
    free(old_variance);
}

/* How a loss changes with the scale and the bias: by their definition. */
static void expect_parameters(struct problem *p, const double *dy, double tolerance)
{
    double dscale[GROUPS_MAX] = {0}, dbias[GROUPS_MAX] = {0};

    for (int i = 0; i < COUNT; i++) {
        int g = group_of(&p->norm, i);
        double mean, variance;

        moments(&p->norm, p->x.value, g, &mean, &variance);
        dscale[g] += dy[i] * (p->x.value[i] - mean) / sqrt(variance + epsilon);
        dbias[g] += dy[i];
    }
    blend(dscale, p->scale.value, p->norm.groups, 0.5, 0);
    blend(dbias, p->bias.value, p->norm.groups, 0.5, 0);
    expect(&p->mean, dscale, tolerance);
    expect(&p->variance, dbias, tolerance);
}

static void check_backward(struct problem *p, int type, bool is_saved)
{
    double wanted[COUNT], *before = copy_of(&p->dx);

    differentiate(forward, &p->norm, p->x.value, COUNT, p->dy.value, COUNT, wanted);
    blend(wanted, before, COUNT, 2, -0.5);
    assert_ok(cudnnBatchNormalizationBackward(
        handle, p->norm.mode, scalar(type, 2), scalar(type, -0.5), scalar(type, 0.5), scalar(type, 0), p->x.desc,
        at(&p->x), p->dy.desc, at(&p->dy), p->dx.desc, at(&p->dx), p->scale.desc, at(&p->scale), at(&p->mean),
        at(&p->variance), epsilon, is_saved ? at(&p->saved_mean) : NULL, is_saved ? at(&p->saved_inverse) : NULL));
    expect(&p->dx, wanted, 8 * gradient_tolerance(type));
    expect_parameters(p, p->dy.value, 8 * gradient_tolerance(type));
    free(before);
}

static void batches(void **state)
{
    for (int mode = CUDNN_BATCHNORM_PER_ACTIVATION; mode <= CUDNN_BATCHNORM_SPATIAL_PERSISTENT; mode++) {
        for (unsigned t = 0; t < TYPES; t++) {
            for (int layout = 0; layout < LAYOUTS; layout++) {
                struct problem p = problem_new(mode, types[t], (enum layout)layout);

                check_inference(&p, types[t]);
                check_training(&p, types[t], 0.3);
                check_backward(&p, types[t], true);
                check_training(&p, types[t], 1);
                check_backward(&p, types[t], false);
                problem_free(&p);
            }
        }
    }
}

/* ---- with an activation behind it ---- */

/* A gradient at an output that is cut off is none. */
static void check_fused(int ops, int type)
{
    struct problem p = problem_new(CUDNN_BATCHNORM_SPATIAL_PERSISTENT, type, INTERLEAVED);
    double wanted[COUNT], cut[COUNT], tolerance = 8 * gradient_tolerance(type);
    size_t bytes = 1;
    cudnnActivationDescriptor_t relu;

    p.norm.is_cut = true;
    p.norm.added = ops == CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION ? p.z.value : NULL;
    assert_ok(cudnnCreateActivationDescriptor(&relu));
    assert_ok(cudnnSetActivationDescriptor(relu, CUDNN_ACTIVATION_RELU, CUDNN_PROPAGATE_NAN, 0));
    assert_ok(cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(handle, p.norm.mode, ops, p.x.desc, p.z.desc,
                                                                       p.y.desc, p.scale.desc, relu, &bytes));
    assert_int_equal(bytes, 0);
    forward(&p.norm, p.x.value, wanted);
    assert_ok(cudnnBatchNormalizationForwardTrainingEx(
        handle, p.norm.mode, ops, scalar(type, 1), scalar(type, 0), p.x.desc, at(&p.x), p.z.desc, at(&p.z), p.y.desc,
        at(&p.y), p.scale.desc, at(&p.scale), at(&p.bias), 1, NULL, NULL, epsilon, at(&p.saved_mean),
        at(&p.saved_inverse), relu, NULL, 0, NULL, 0));
    expect(&p.y, wanted, 4 * tolerance_of(type));
    differentiate(forward, &p.norm, p.x.value, COUNT, p.dy.value, COUNT, wanted);
    assert_ok(cudnnBatchNormalizationBackwardEx(
        handle, p.norm.mode, ops, scalar(type, 1), scalar(type, 0), scalar(type, 0.5), scalar(type, 0), p.x.desc,
        at(&p.x), p.y.desc, at(&p.y), p.dy.desc, at(&p.dy), p.dz.desc, at(&p.dz), p.dx.desc, at(&p.dx), p.scale.desc,
        at(&p.scale), at(&p.bias), at(&p.mean), at(&p.variance), epsilon, at(&p.saved_mean), at(&p.saved_inverse), relu,
        NULL, 0, NULL, 0));
    expect(&p.dx, wanted, tolerance);
    for (int i = 0; i < COUNT; i++)
        cut[i] = p.y.value[i] > 0 ? p.dy.value[i] : 0;
    expect_parameters(&p, cut, tolerance);
    if (p.norm.added)
        expect(&p.dz, cut, tolerance_of(type));
    assert_ok(cudnnDestroyActivationDescriptor(relu));
    problem_free(&p);
}

static void batches_with_an_activation(void **state)
{
    for (unsigned t = 0; t < TYPES; t++) {
        check_fused(CUDNN_BATCHNORM_OPS_BN_ACTIVATION, types[t]);
        check_fused(CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION, types[t]);
    }
}

/* ---- across channels ---- */

struct lrn {
    unsigned n;
    double alpha, beta, k;
};

static void forward_lrn(const void *what, const double *x, double *y)
{
    const struct lrn *lrn = what;
    int behind = ((int)lrn->n - 1) / 2, ahead = (int)lrn->n - 1 - behind;

    for (int i = 0; i < COUNT; i++) {
        double sum = 0;

        for (int k = 0; k < COUNT; k++) {
            int distance = k / SPACE % C - i / SPACE % C;

            if (k / (C * SPACE) == i / (C * SPACE) && k % SPACE == i % SPACE && distance >= -behind &&
                distance <= ahead)
                sum += x[k] * x[k];
        }
        y[i] = x[i] / pow(lrn->k + lrn->alpha / lrn->n * sum, lrn->beta);
    }
}

static void check_lrn(const struct lrn *lrn, int type, enum layout layout)
{
    struct tensor x = tensor_new(type, layout, 4, sizes), y = tensor_new(type, layout, 4, sizes),
                  dy = tensor_new(type, INTERLEAVED, 4, sizes), dx = tensor_new(type, layout, 4, sizes);
    double wanted[COUNT], *before = copy_of(&dx);
    cudnnLRNDescriptor_t desc;

    assert_ok(cudnnCreateLRNDescriptor(&desc));
    assert_ok(cudnnSetLRNDescriptor(desc, lrn->n, lrn->alpha, lrn->beta, lrn->k));
    forward_lrn(lrn, x.value, wanted);
    assert_ok(
        cudnnLRNCrossChannelForward(handle, desc, 0, scalar(type, 1), x.desc, at(&x), scalar(type, 0), y.desc, at(&y)));
    expect(&y, wanted, 4 * tolerance_of(type));
    differentiate(forward_lrn, lrn, x.value, COUNT, dy.value, COUNT, wanted);
    blend(wanted, before, COUNT, 0.5, 2);
    assert_ok(cudnnLRNCrossChannelBackward(handle, desc, 0, scalar(type, 0.5), y.desc, at(&y), dy.desc, at(&dy), x.desc,
                                           at(&x), scalar(type, 2), dx.desc, at(&dx)));
    expect(&dx, wanted, 4 * gradient_tolerance(type));
    assert_ok(cudnnDestroyLRNDescriptor(desc));
    free(before);
    tensor_free(&x);
    tensor_free(&y);
    tensor_free(&dx);
    tensor_free(&dy);
}

static void channels(void **state)
{
    static const struct lrn all[] = {{3, 0.7, 0.75, 2}, {4, 1.3, 0.5, 1}, {1, 0.2, 1.5, 1}};

    for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        for (unsigned t = 0; t < TYPES; t++)
            for (int layout = 0; layout < LAYOUTS; layout++)
                check_lrn(&all[i], types[t], (enum layout)layout);
}

static void wrong_arguments_are_refused(void **state)
{
    struct problem p = problem_new(CUDNN_BATCHNORM_SPATIAL, CUDNN_DATA_HALF, PACKED);
    const void *one = scalar(CUDNN_DATA_FLOAT, 1);
    cudnnLRNDescriptor_t lrn;

#define TRAIN(mode_, bn_, saved_mean_, saved_inverse_, epsilon_)                                                       \
    cudnnBatchNormalizationForwardTraining(handle, mode_, one, one, p.x.desc, at(&p.x), p.y.desc, at(&p.y),            \
                                           (bn_).desc, at(&p.scale), at(&p.bias), 1, NULL, NULL, epsilon_,             \
                                           saved_mean_, saved_inverse_)
    assert_int_equal(TRAIN(CUDNN_BATCHNORM_PER_ACTIVATION, p.scale, NULL, NULL, 1), CUDNN_STATUS_BAD_PARAM);
    assert_int_equal(TRAIN(CUDNN_BATCHNORM_SPATIAL, p.x, NULL, NULL, 1), CUDNN_STATUS_BAD_PARAM);
    assert_int_equal(TRAIN(CUDNN_BATCHNORM_SPATIAL, p.scale, at(&p.mean), NULL, 1), CUDNN_STATUS_BAD_PARAM);
    assert_int_equal(TRAIN(CUDNN_BATCHNORM_SPATIAL, p.scale, NULL, NULL, -1), CUDNN_STATUS_BAD_PARAM);
    assert_int_equal(TRAIN(3, p.scale, NULL, NULL, 1), CUDNN_STATUS_BAD_PARAM);
    assert_ok(TRAIN(CUDNN_BATCHNORM_SPATIAL, p.scale, NULL, NULL, 1));
    assert_ok(cudnnCreateLRNDescriptor(&lrn));
    assert_int_equal(cudnnSetLRNDescriptor(lrn, 17, 1, 1, 1), CUDNN_STATUS_BAD_PARAM);
    assert_int_equal(cudnnSetLRNDescriptor(lrn, 5, 1, 0, 1), CUDNN_STATUS_BAD_PARAM);
    assert_ok(cudnnDestroyLRNDescriptor(lrn));
    assert_ok(cuStreamSynchronize(test_stream));
    problem_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches),
        cmocka_unit_test(batches_with_an_activation),
        cmocka_unit_test(channels),
        cmocka_unit_test(wrong_arguments_are_refused),
    };

    return cmocka_run_group_tests(tests, start, NULL);
}
