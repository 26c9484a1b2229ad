/* Checks the header of a safetensors file.
 *
 * The header is untrusted input and decides where we read and how much we allocate. So nothing in
 * it is believed: the length against the file's size and the format's own limit, each shape against
 * overflow, the bytes of a tensor against its type and shape, its place against the file, and all
 * places against each other. After that, code that has a sh_stored_tensor may read its bytes
 * without further checks.
 *
 * Tensors of types that no weight has (SH_TENSOR_OTHER) are accepted, since some files carry such
 * along; only using one is an error. */
#include "model/safetensors.h"

#include "base/alloc.h"
#include "base/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *name;
    int bits;
    sh_tensor_type type;
} type_row;

/* The first rows are in the order of sh_tensor_type, which indexes the table. */
static const type_row TYPES[] = {
    {"F32", 32, SH_TENSOR_F32},        {"F16", 16, SH_TENSOR_F16},
    {"BF16", 16, SH_TENSOR_BF16},      {"U8", 8, SH_TENSOR_U8},
    {"U32", 32, SH_TENSOR_U32},        {"I32", 32, SH_TENSOR_I32},
    {"F8_E4M3", 8, SH_TENSOR_F8_E4M3}, {"F8_E8M0", 8, SH_TENSOR_F8_E8M0},
    {"BOOL", 8, SH_TENSOR_OTHER},      {"I8", 8, SH_TENSOR_OTHER},
    {"F8_E5M2", 8, SH_TENSOR_OTHER},   {"I16", 16, SH_TENSOR_OTHER},
    {"U16", 16, SH_TENSOR_OTHER},      {"I64", 64, SH_TENSOR_OTHER},
    {"U64", 64, SH_TENSOR_OTHER},      {"F64", 64, SH_TENSOR_OTHER},
    {"C64", 64, SH_TENSOR_OTHER},      {"F4", 4, SH_TENSOR_OTHER},
    {"F6_E2M3", 6, SH_TENSOR_OTHER},   {"F6_E3M2", 6, SH_TENSOR_OTHER},
};

size_t sh_tensor_type_size(sh_tensor_type type)
{
    return type < SH_TENSOR_OTHER ? (size_t)TYPES[type].bits / 8 : 0;
}

const char *sh_tensor_type_name(sh_tensor_type type)
{
    return type < SH_TENSOR_OTHER ? TYPES[type].name : "another type";
}

const char *sh_tensor_shape_text(const sh_stored_tensor *tensor,
                                 char text[SH_TENSOR_SHAPE_TEXT_MAX])
{
    int len = snprintf(text, SH_TENSOR_SHAPE_TEXT_MAX, "[");
    for (int i = 0; i < tensor->dims; i++)
        len += snprintf(text + len, (size_t)(SH_TENSOR_SHAPE_TEXT_MAX - len), "%s%" PRId64,
                        i > 0 ? ", " : "", tensor->shape[i]);
    snprintf(text + len, (size_t)(SH_TENSOR_SHAPE_TEXT_MAX - len), "]");
    return text;
}

sh_status sh_safetensors_header_len(const uint8_t prefix[SH_SAFETENSORS_PREFIX], uint64_t file_size,
                                    const char *path, size_t *out, sh_err *err)
{
    uint64_t len = 0;
    for (int i = SH_SAFETENSORS_PREFIX - 1; i >= 0; i--) len = len << 8 | prefix[i];
    if (len > SH_SAFETENSORS_HEADER_MAX)
        return sh_err_set(err, SH_ERR_INPUT,
                          "%s: its header claims to be %" PRIu64 " bytes long, at most %d are "
                          "allowed",
                          path, len, SH_SAFETENSORS_HEADER_MAX);
    if (len + SH_SAFETENSORS_PREFIX > file_size)
        return sh_err_set(err, SH_ERR_INPUT,
                          "%s: its header needs %" PRIu64 " bytes, the file has %" PRIu64, path,
                          len + SH_SAFETENSORS_PREFIX, file_size);
    *out = (size_t)len;
    return SH_OK;
}

/* cJSON parses numbers as double: beyond 2^53 a whole number may have been rounded, so refuse it.
 */
static bool whole_number(const cJSON *item, uint64_t *out)
{
    const double limit = 9007199254740992.0;
    if (!cJSON_IsNumber(item)) return false;
    double value = item->valuedouble;
    if (!(value >= 0 && value <= limit) || value != floor(value)) return false;
    *out = (uint64_t)value;
    return true;
}

static sh_status parse_type(const cJSON *item, sh_stored_tensor *tensor, int *bits,
                            const char *path, sh_err *err)
{
    if (!cJSON_IsString(item))
        return sh_err_set(err, SH_ERR_INPUT, "%s: tensor '%s': 'dtype' must be a string, not %s",
                          path, tensor->name, sh_json_kind(item));
    for (size_t i = 0; i < SH_COUNT_OF(TYPES); i++) {
        if (strcmp(item->valuestring, TYPES[i].name) != 0) continue;
        tensor->type = TYPES[i].type;
        tensor->type_name = TYPES[i].name;
        *bits = TYPES[i].bits;
        return SH_OK;
    }
    return sh_err_set(err, SH_ERR_INPUT, "%s: tensor '%s' has the unknown dtype '%s'", path,
                      tensor->name, item->valuestring);
}

/* Fills in the shape and returns the bytes that it needs. Counted in bits first, for the types that
 * are narrower than a byte. */
static sh_status parse_shape(const cJSON *shape, int bits, sh_stored_tensor *tensor,
                             uint64_t *bytes, const char *path, sh_err *err)
{
    if (!cJSON_IsArray(shape))
        return sh_err_set(err, SH_ERR_INPUT, "%s: tensor '%s': 'shape' must be an array, not %s",
                          path, tensor->name, sh_json_kind(shape));
    uint64_t total = (uint64_t)bits;
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, shape)
    {
        uint64_t dim = 0;
        if (tensor->dims == SH_TENSOR_DIMS_MAX)
            return sh_err_set(err, SH_ERR_INPUT, "%s: tensor '%s' has more than %d dimensions",
                              path, tensor->name, SH_TENSOR_DIMS_MAX);
        if (!whole_number(item, &dim) || __builtin_mul_overflow(total, dim, &total))
            return sh_err_set(err, SH_ERR_INPUT, "%s: tensor '%s' has an impossible shape", path,
                              tensor->name);
        tensor->shape[tensor->dims++] = (int64_t)dim;
    }
    if (total % 8 != 0)
        return sh_err_set(err, SH_ERR_INPUT, "%s: tensor '%s' is not a whole number of bytes", path,
                          tensor->name);
    *bytes = total / 8;
    return SH_OK;
}

static sh_status parse_place(const cJSON *offsets, uint64_t bytes, uint64_t data_size,
                             sh_stored_tensor *tensor, const char *path, sh_err *err)
{
    uint64_t begin = 0, end = 0;
    if (!cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2 ||
        !whole_number(cJSON_GetArrayItem(offsets, 0), &begin) ||
        !whole_number(cJSON_GetArrayItem(offsets, 1), &end) || begin > end)
        return sh_err_set(err, SH_ERR_INPUT,
                          "%s: tensor '%s': 'data_offsets' must be two whole numbers in ascending "
                          "order",
                          path, tensor->name);
    if (end > data_size)
        return sh_err_set(err, SH_ERR_INPUT,
                          "%s: tensor '%s' ends at byte %" PRIu64
                          " of the data, the file has only %" PRIu64,
                          path, tensor->name, end, data_size);
    if (end - begin != bytes) {
        char text[SH_TENSOR_SHAPE_TEXT_MAX];
        return sh_err_set(err, SH_ERR_INPUT,
                          "%s: tensor '%s' of %s %s needs %" PRIu64
                          " bytes, its 'data_offsets' have %" PRIu64,
                          path, tensor->name, tensor->type_name, sh_tensor_shape_text(tensor, text),
                          bytes, end - begin);
    }
    tensor->offset = begin;
    tensor->size = bytes;
    return SH_OK;
}

static sh_status parse_tensor(const cJSON *item, uint64_t data_size, const char *path,
                              sh_arena *arena, sh_stored_tensor *tensor, sh_err *err)
{
    int bits = 0;
    uint64_t bytes = 0;
    tensor->name = sh_arena_str(arena, sh_str_of(item->string)).ptr;
    if (!cJSON_IsObject(item))
        return sh_err_set(err, SH_ERR_INPUT, "%s: tensor '%s' must be an object, not %s", path,
                          tensor->name, sh_json_kind(item));
    sh_status status = parse_type(cJSON_GetObjectItemCaseSensitive(item, "dtype"), tensor, &bits,
                                  path, err);
    if (status == SH_OK)
        status = parse_shape(cJSON_GetObjectItemCaseSensitive(item, "shape"), bits, tensor, &bytes,
                             path, err);
    if (status == SH_OK)
        status = parse_place(cJSON_GetObjectItemCaseSensitive(item, "data_offsets"), bytes,
                             data_size, tensor, path, err);
    return status;
}

/* Empty tensors sort before others at the same offset, so that they do not count as overlapping. */
static int by_place(const void *a, const void *b)
{
    const sh_stored_tensor *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return (x->size > y->size) - (x->size < y->size);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const sh_stored_tensor *)a)->name, ((const sh_stored_tensor *)b)->name);
}

/* No overlaps and no duplicates. Sorts the list twice and leaves it sorted by name. */
static sh_status check_list(sh_tensor_list *list, const char *path, sh_err *err)
{
    sh_stored_tensor *t = list->tensors;
    qsort(t, list->count, sizeof(*t), by_place);
    for (size_t i = 1; i < list->count; i++)
        if (t[i].offset < t[i - 1].offset + t[i - 1].size)
            return sh_err_set(err, SH_ERR_INPUT, "%s: tensors '%s' and '%s' overlap", path,
                              t[i - 1].name, t[i].name);
    qsort(t, list->count, sizeof(*t), by_name);
    for (size_t i = 1; i < list->count; i++)
        if (strcmp(t[i].name, t[i - 1].name) == 0)
            return sh_err_set(err, SH_ERR_INPUT, "%s: tensor '%s' is listed twice", path,
                              t[i].name);
    return SH_OK;
}

sh_status sh_safetensors_parse(sh_str header, uint64_t file_size, const char *path, sh_arena *arena,
                               sh_tensor_list *out, sh_err *err)
{
    cJSON *json = NULL;
    sh_status status = sh_json_parse(header, path, &json, err);
    if (status != SH_OK) return status;
    if (!cJSON_IsObject(json)) {
        status = sh_err_set(err, SH_ERR_INPUT, "%s: its header must be a JSON object, not %s", path,
                            sh_json_kind(json));
        goto done;
    }
    /* Offsets in the header count from the end of the header; those of sh_stored_tensor from the
     * start of the file. */
    SH_ASSERT(file_size >= SH_SAFETENSORS_PREFIX + header.len);
    uint64_t data_first = SH_SAFETENSORS_PREFIX + header.len;
    sh_tensor_list list = {0};
    list.tensors = sh_arena_array(arena, (size_t)cJSON_GetArraySize(json) + 1,
                                  sizeof(*list.tensors));
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, json)
    {
        if (strcmp(item->string, "__metadata__") == 0) {
            const cJSON *format = cJSON_GetObjectItemCaseSensitive(item, "format");
            list.mlx = cJSON_IsString(format) && strcmp(format->valuestring, "mlx") == 0;
            continue;
        }
        sh_stored_tensor *tensor = &list.tensors[list.count++];
        status = parse_tensor(item, file_size - data_first, path, arena, tensor, err);
        if (status != SH_OK) goto done;
        tensor->offset += data_first;
    }
    status = check_list(&list, path, err);
    if (status == SH_OK) *out = list;

done:
    cJSON_Delete(json);
    return status;
}

const sh_stored_tensor *sh_tensor_list_find(const sh_tensor_list *list, const char *name)
{
    sh_stored_tensor key = {.name = name};
    if (list->count == 0) return NULL;
    return bsearch(&key, list->tensors, list->count, sizeof(key), by_name);
}
