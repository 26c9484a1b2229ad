/* Finds the tensors of a module and checks them.
 *
 * config.json says what shapes a model has, the safetensors headers say what the files hold; here
 * the two meet. Every tensor that is found has exactly the type and shape that the config implies,
 * so the loader can compute offsets without checking again, and a wrong file fails with the name of
 * the tensor before any memory is allocated for weights.
 *
 * Every lookup also marks the tensor in finder->seen. weights.c refuses a layer with tensors that
 * nothing asked for: such a model computes something that we would leave out. */
#include "model/source.h"

#include "base/alloc.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NAME_LEN_MAX = 512 };

size_t sh_quant_row_bytes(const sh_quant *quant, int64_t cols)
{
    switch (quant->format) {
    case SH_FORMAT_F32: return (size_t)cols * 4;
    case SH_FORMAT_F16:
    case SH_FORMAT_BF16: return (size_t)cols * 2;
    case SH_FORMAT_AFFINE: return (size_t)cols * (size_t)quant->bits / 8;
    case SH_FORMAT_MXFP8: return (size_t)cols;
    case SH_FORMAT_MXFP4:
    case SH_FORMAT_NVFP4: return (size_t)cols / 2;
    }
    return 0;
}

size_t sh_quant_scale_bytes(const sh_quant *quant, int64_t cols)
{
    if (quant->group == 0) return 0;
    size_t size = 1;
    if (quant->format == SH_FORMAT_AFFINE) size = quant->scale_dtype == SH_DTYPE_F32 ? 4 : 2;
    return (size_t)(cols / quant->group) * size;
}

sh_quant sh_quant_plain(const sh_stored_tensor *tensor)
{
    return (sh_quant){.format = tensor->type == SH_TENSOR_F32   ? SH_FORMAT_F32
                                : tensor->type == SH_TENSOR_F16 ? SH_FORMAT_F16
                                                                : SH_FORMAT_BF16,
                      .global_scale = 1};
}

const sh_stored_tensor *sh_finder_find(const sh_finder *f, const char *name, ...)
{
    char text[NAME_LEN_MAX];
    const sh_tensor_list *list = sh_tensors_list(f->set);
    va_list args;
    va_start(args, name);
    int len = vsnprintf(text, sizeof(text), name, args);
    va_end(args);
    SH_ASSERT(len > 0 && (size_t)len < sizeof(text));
    const sh_stored_tensor *tensor = sh_tensor_list_find(list, text);
    if (tensor != NULL) f->seen[tensor - list->tensors] = true;
    return tensor;
}

static bool is_float(const sh_stored_tensor *tensor)
{
    return tensor->type == SH_TENSOR_F32 || tensor->type == SH_TENSOR_F16 ||
           tensor->type == SH_TENSOR_BF16;
}

/* SH_TENSOR_OTHER as the wanted type means any float that we read. */
static sh_status check_tensor(const sh_finder *f, const sh_stored_tensor *tensor,
                              sh_tensor_type type, int dims, const int64_t *shape)
{
    char found[SH_TENSOR_SHAPE_TEXT_MAX], wanted[SH_TENSOR_SHAPE_TEXT_MAX];
    bool any = type == SH_TENSOR_OTHER;
    bool same = tensor->dims == dims && (any ? is_float(tensor) : tensor->type == type);
    for (int i = 0; i < dims && same; i++) same = tensor->shape[i] == shape[i];
    if (same) return SH_OK;

    sh_stored_tensor want = {.dims = dims};
    memcpy(want.shape, shape, (size_t)dims * sizeof(*shape));
    return sh_err_set(f->err, SH_ERR_INPUT, "%s: tensor '%s' is %s %s, expected %s %s",
                      sh_tensors_path(f->set, tensor), tensor->name, tensor->type_name,
                      sh_tensor_shape_text(tensor, found),
                      any ? "F32, F16 or BF16" : sh_tensor_type_name(type),
                      sh_tensor_shape_text(&want, wanted));
}

sh_status sh_source_tensor(const sh_finder *f, const char *name, sh_tensor_type type, int dims,
                           const int64_t *shape, const sh_stored_tensor **out)
{
    const sh_stored_tensor *tensor = sh_finder_find(f, "%s", name);
    if (tensor == NULL)
        return sh_err_set(f->err, SH_ERR_NOT_FOUND, "%s: tensor '%s' is missing",
                          sh_tensors_where(f->set), name);
    sh_status status = check_tensor(f, tensor, type, dims, shape);
    if (status == SH_OK) *out = tensor;
    return status;
}

/* The same for a tensor of a module, such as "biases". */
static sh_status module_tensor(const sh_finder *f, const char *path, const char *part,
                               sh_tensor_type type, int dims, const int64_t *shape,
                               const sh_stored_tensor **out)
{
    char name[NAME_LEN_MAX];
    snprintf(name, sizeof(name), "%s.%s", path, part);
    return sh_source_tensor(f, name, type, dims, shape, out);
}

/* A module without scales: the type of the tensor says how it is stored. */
static sh_status find_plain(const sh_finder *f, const char *path, int dims, const int64_t *shape,
                            sh_source *source)
{
    sh_status status = module_tensor(f, path, "weight", SH_TENSOR_OTHER, dims, shape, &source->w);
    if (status != SH_OK) return status;
    source->quant = sh_quant_plain(source->w);
    return SH_OK;
}

/* Scales, and biases where the format has them. The files of affine models may have either as F32,
 * F16 or BF16, but both alike. */
static sh_status find_scales(const sh_finder *f, const char *path, int dims, const int64_t *shape,
                             sh_source *source)
{
    sh_quant *quant = &source->quant;
    bool affine = quant->format == SH_FORMAT_AFFINE;
    sh_status status = module_tensor(f, path, "scales", affine ? SH_TENSOR_OTHER : SH_TENSOR_U8,
                                     dims, shape, &source->scales);
    if (status != SH_OK || !affine) return status;
    sh_tensor_type type = source->scales->type;
    quant->scale_dtype = type == SH_TENSOR_F32   ? SH_DTYPE_F32
                         : type == SH_TENSOR_F16 ? SH_DTYPE_F16
                                                 : SH_DTYPE_BF16;
    return module_tensor(f, path, "biases", type, dims, shape, &source->biases);
}

/* NVFP4 may have one factor for the whole tensor, stored as the largest magnitude: 448 (the largest
 * E4M3 scale) times 6 (the largest E2M1 value) is what the codes reach without it. */
static sh_status read_global_scale(const sh_finder *f, const char *path, sh_quant *quant)
{
    const sh_stored_tensor *tensor = sh_finder_find(f, "%s.global_scale", path);
    float value = 0;
    if (quant->format != SH_FORMAT_NVFP4 || tensor == NULL) return SH_OK;
    sh_status status = tensor->dims == 1 ? SH_OK : check_tensor(f, tensor, SH_TENSOR_F32, 0, NULL);
    if (status == SH_OK && tensor->dims == 1)
        status = check_tensor(f, tensor, SH_TENSOR_F32, 1, (const int64_t[]){1});
    if (status == SH_OK) status = sh_tensors_read(f->set, tensor, 0, &value, sizeof(value), f->err);
    if (status == SH_OK) quant->global_scale = value / (448.0F * 6.0F);
    return status;
}

static sh_status find_quantized(const sh_finder *f, const char *path, int dims,
                                const int64_t *shape, sh_source *source)
{
    int64_t packed[3], scales[3];
    const sh_quant *quant = sh_config_quant(f->config, path);
    if (quant == NULL)
        return sh_err_set(f->err, SH_ERR_INPUT,
                          "%s: '%s' has scales, but config.json says that it is not quantized",
                          sh_tensors_where(f->set), path);
    source->quant = *quant;
    if (source->cols % quant->group != 0)
        return sh_err_set(f->err, SH_ERR_INPUT,
                          "%s: '%s' has %" PRId64 " columns, which is no multiple of its groups "
                          "of %d",
                          sh_tensors_where(f->set), path, source->cols, quant->group);
    /* MLX packs codes into 32-bit words, so the last dimension counts words. */
    for (int i = 0; i < dims; i++) packed[i] = scales[i] = shape[i];
    packed[dims - 1] = (int64_t)sh_quant_row_bytes(quant, source->cols) / 4;
    scales[dims - 1] = source->cols / quant->group;
    sh_status status = module_tensor(f, path, "weight", SH_TENSOR_U32, dims, packed, &source->w);
    if (status == SH_OK) status = find_scales(f, path, dims, scales, source);
    return status == SH_OK ? read_global_scale(f, path, &source->quant) : status;
}

static sh_status find_bias(const sh_finder *f, const char *path, int64_t stack, int64_t rows,
                           sh_source *source)
{
    int64_t shape[2] = {stack, rows};
    int dims = stack > 0 ? 2 : 1;
    if (sh_finder_find(f, "%s.bias", path) == NULL) return SH_OK;
    return module_tensor(f, path, "bias", SH_TENSOR_OTHER, dims, shape + 2 - dims, &source->bias);
}

bool sh_source_exists(const sh_finder *f, const char *path)
{
    return sh_finder_find(f, "%s.weight", path) != NULL;
}

sh_status sh_source_find(const sh_finder *f, const char *path, int64_t stack, int64_t rows,
                         int64_t cols, sh_source *out)
{
    sh_source source = {.rows = rows, .cols = cols, .file_rows = rows, .row_step = 1};
    int64_t shape[3] = {stack, rows, cols}; /* a single matrix uses the last two only */
    int dims = stack > 0 ? 3 : 2;
    sh_status status = sh_finder_find(f, "%s.scales", path) != NULL
                           ? find_quantized(f, path, dims, shape + 3 - dims, &source)
                           : find_plain(f, path, dims, shape + 3 - dims, &source);
    if (status == SH_OK) status = find_bias(f, path, stack, rows, &source);
    if (status == SH_OK) *out = source;
    return status;
}

sh_source sh_source_part(const sh_source *whole, int64_t row_first, int64_t rows)
{
    sh_source part = *whole;
    SH_ASSERT(row_first >= 0 && row_first + rows <= whole->rows);
    part.row_first += row_first * whole->row_step;
    part.rows = rows;
    return part;
}

sh_source sh_source_at(const sh_source *stack, int64_t index)
{
    sh_source one = *stack;
    one.index = index;
    return one;
}

sh_source sh_source_transpose(const sh_source *source)
{
    sh_source transposed = *source;
    SH_ASSERT(!source->transposed && source->row_first == 0 && source->row_step == 1);
    transposed.rows = source->cols;
    transposed.cols = source->rows;
    transposed.file_rows = source->cols;
    transposed.transposed = true;
    return transposed;
}

sh_status sh_source_vector(const sh_finder *f, const char *name, int64_t count,
                           sh_vector_source *out)
{
    const sh_stored_tensor *tensor = NULL;
    sh_status status = sh_source_tensor(f, name, SH_TENSOR_OTHER, 1, &count, &tensor);
    if (status == SH_OK)
        *out = (sh_vector_source){
            .tensor = tensor, .rows = 1, .row_len = count, .step = 1, .count = count};
    return status;
}

/* Hugging Face has [channels, 1, taps], MLX [channels, taps, 1]: the same numbers in the same
 * order.
 */
sh_status sh_source_conv(const sh_finder *f, const char *path, int64_t channels, int64_t taps,
                         sh_vector_source *out)
{
    const sh_stored_tensor *tensor = sh_finder_find(f, "%s.weight", path);
    int64_t shape[3] = {channels, 1, taps};
    if (tensor != NULL && tensor->dims == 3 && tensor->shape[2] == 1) {
        shape[1] = taps;
        shape[2] = 1;
    }
    sh_status status = module_tensor(f, path, "weight", SH_TENSOR_OTHER, 3, shape, &tensor);
    if (status == SH_OK)
        *out = (sh_vector_source){
            .tensor = tensor, .rows = taps, .row_len = 1, .step = taps, .count = channels};
    return status;
}
