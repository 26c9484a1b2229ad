/* Reads how the weights are quantized. Two dialects: the `quantization` object of MLX, a base plus
 * exceptions keyed by module path, and the quantization_config of Hugging Face with a quant_method,
 * of which only mxfp4 (gpt_oss) is supported. MLX conversions write both keys, with the same
 * content and no quant_method, so the presence of quant_method tells the dialects apart. */
#include "model/config_read.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *mode;
    sh_format format;
    int bits;  /* the only width, or the default of affine */
    int group; /* the same for the group size */
} mode_row;

static const mode_row MODES[] = {
    {"affine", SH_FORMAT_AFFINE, 4, 64},
    {"mxfp4", SH_FORMAT_MXFP4, 4, 32},
    {"mxfp8", SH_FORMAT_MXFP8, 8, 32},
    {"nvfp4", SH_FORMAT_NVFP4, 4, 16},
};

static const mode_row *find_mode(const char *mode)
{
    for (size_t i = 0; i < SH_COUNT_OF(MODES); i++)
        if (strcmp(mode, MODES[i].mode) == 0) return &MODES[i];
    return NULL;
}

static bool affine_ok(int bits, int group)
{
    bool bits_ok = (bits >= 2 && bits <= 6) || bits == 8;
    return bits_ok && (group == 32 || group == 64 || group == 128);
}

/* mode, bits and group_size of one object. The defaults of bits and group_size depend on the mode,
 * so that is read first. */
static sh_status read_quant(const sh_config_reader *in, const char *path, const char *default_mode,
                            sh_quant *out)
{
    const char *mode = default_mode;
    sh_status status = sh_json_string(in->json, "mode", in->where, &mode, in->err);
    if (status != SH_OK) return status;
    const mode_row *row = find_mode(mode);
    if (row == NULL)
        return sh_err_set(in->err, SH_ERR_UNSUPPORTED,
                          "%s: quantization of '%s' has mode '%s'; supported are affine, mxfp4, "
                          "mxfp8 and nvfp4",
                          in->where, path, mode);
    int bits = row->bits, group = row->group;
    if ((status = sh_read_int(in, "bits", 1, 32, &bits)) != SH_OK ||
        (status = sh_read_int(in, "group_size", 1, 1 << 20, &group)) != SH_OK)
        return status;
    bool ok = row->format == SH_FORMAT_AFFINE ? affine_ok(bits, group)
                                              : bits == row->bits && group == row->group;
    if (!ok)
        return sh_err_set(in->err, SH_ERR_UNSUPPORTED,
                          "%s: quantization of '%s' is %s with %d bits in groups of %d; supported "
                          "are affine with 2, 3, 4, 5, 6 or 8 bits in groups of 32, 64 or 128, "
                          "mxfp4 with 4 in 32, mxfp8 with 8 in 32, nvfp4 with 4 in 16",
                          in->where, path, mode, bits, group);
    *out = (sh_quant){.format = row->format,
                      .bits = bits,
                      .group = group,
                      .scale_dtype = SH_DTYPE_BF16,
                      .global_scale = 1};
    return SH_OK;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const sh_quant_override *)a)->path, ((const sh_quant_override *)b)->path);
}

/* Module paths are keys next to the settings of the base: false means not quantized, true like the
 * base, an object has settings of its own. */
static bool is_override(const cJSON *item)
{
    static const char *const own[] = {"group_size", "bits", "mode"};
    for (size_t i = 0; i < SH_COUNT_OF(own); i++)
        if (strcmp(item->string, own[i]) == 0) return false;
    return cJSON_IsBool(item) || cJSON_IsObject(item);
}

static sh_status read_override(const sh_config_reader *in, const cJSON *item, sh_config *config,
                               sh_quant_override *out)
{
    const char *mode = "affine";
    sh_config_reader inner = {.json = item, .where = in->where, .err = in->err};
    out->path = sh_arena_str(&config->arena, sh_str_of(item->string)).ptr;
    out->on = !cJSON_IsFalse(item);
    out->quant = config->quant.base;
    return cJSON_IsObject(item) ? read_quant(&inner, out->path, mode, &out->quant) : SH_OK;
}

static sh_status read_mlx(const sh_config_reader *in, sh_config *config)
{
    sh_quant_config *quant = &config->quant;
    sh_status status = read_quant(in, "the model", "affine", &quant->base);
    if (status != SH_OK) return status;
    size_t count = (size_t)cJSON_GetArraySize(in->json);
    sh_quant_override *list = sh_arena_array(&config->arena, count + 1, sizeof(*list));
    const cJSON *item = NULL;
    count = 0;
    cJSON_ArrayForEach(item, in->json)
    {
        if (!is_override(item)) continue;
        status = read_override(in, item, config, &list[count++]);
        if (status != SH_OK) return status;
    }
    /* Sorted for bsearch: a mixed model may have an override for every module. */
    qsort(list, count, sizeof(*list), by_path);
    quant->overrides = list;
    quant->override_count = count;
    quant->on = true;
    return SH_OK;
}

static sh_status read_hub(const sh_config_reader *in, const char *method, sh_config *config)
{
    if (strcmp(method, "mxfp4") != 0)
        return sh_err_set(
            in->err, SH_ERR_UNSUPPORTED,
            "%s: 'quant_method' is '%s', only mxfp4 is supported; use a conversion to MLX's "
            "format",
            in->where, method);
    config->quant.on = true;
    config->quant.hub_mxfp4 = true;
    return read_quant(in, "the model", "mxfp4", &config->quant.base);
}

sh_status sh_read_quant(const sh_config_reader *in, sh_config *config)
{
    const char *method = NULL;
    const cJSON *item = sh_read_item(in, "quantization");
    if (item == NULL) item = sh_read_item(in, "quantization_config");
    if (item == NULL) return SH_OK;
    if (!cJSON_IsObject(item))
        return sh_err_set(in->err, SH_ERR_INPUT, "%s: 'quantization' must be an object, not %s",
                          in->where, sh_json_kind(item));
    sh_config_reader inner = {.json = item, .where = in->where, .err = in->err};
    sh_status status = sh_json_string(item, "quant_method", in->where, &method, in->err);
    if (status != SH_OK) return status;
    return method == NULL ? read_mlx(&inner, config) : read_hub(&inner, method, config);
}

const sh_quant *sh_config_quant(const sh_config *config, const char *path)
{
    sh_quant_override key = {.path = path};
    const sh_quant_override *found = NULL;
    if (config->quant.override_count > 0)
        found = bsearch(&key, config->quant.overrides, config->quant.override_count, sizeof(key),
                        by_path);
    if (found == NULL) return config->quant.on ? &config->quant.base : NULL;
    return found->on ? &found->quant : NULL;
}
