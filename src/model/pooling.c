/* The modules of sentence-transformers, as far as they are applied to one vector; and classifiers,
 * which are dense layers as well. The names of modules are Python classes, of which only the last
 * part counts: the package in front of it differs from version to version. */
#include "model/pooling.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "kernels/half.h"
#include "model/config_read.h"
#include "model/tensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS_MAX = 8, JSON_MAX = 16 << 20, PATH_LEN_MAX = 200 };

/* Names: ours, that of pooling_mode, and the flag that older files have instead. */
static const struct {
    const char *name, *mode, *flag;
} POOLS[SH_POOLS] = {
    [SH_POOL_LAST] = {"last", "lasttoken", "pooling_mode_lasttoken"},
    [SH_POOL_MEAN] = {"mean", "mean", "pooling_mode_mean_tokens"},
    [SH_POOL_FIRST] = {"cls", "cls", "pooling_mode_cls_token"},
    [SH_POOL_MAX] = {"max", "max", "pooling_mode_max_tokens"},
    [SH_POOL_WEIGHTED] = {"weightedmean", "weightedmean", "pooling_mode_weightedmean_tokens"},
    [SH_POOL_SQRT] = {"mean_sqrt_len", "mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens"},
};

const char *sh_pool_kind_name(sh_pool_kind pool)
{
    return pool == SH_POOL_NONE ? "none" : POOLS[pool].name;
}

sh_pool_kind sh_pool_kind_find(const char *name)
{
    for (int i = SH_POOL_NONE + 1; i < SH_POOLS; i++)
        if (strcmp(name, POOLS[i].name) == 0) return (sh_pool_kind)i;
    return SH_POOL_NONE;
}

typedef enum { IDENTITY, TANH, GELU, RELU, SIGMOID, ACTS } activation;

/* The last part of the names of Python's classes. */
static const char *const ACT_NAMES[ACTS] = {"Identity", "Tanh", "GELU", "ReLU", "Sigmoid"};

typedef struct {
    int rows, cols;
    float *w;    /* [rows, cols] */
    float *bias; /* [rows] or NULL */
    activation act;
    float *norm; /* [rows] weight of a LayerNorm after that, or NULL */
} dense;

struct sh_pooling {
    sh_pool_kind kind;
    int hidden;
    float eps;
    dense layers[LAYERS_MAX];
    int layer_count;
    bool normalize;
    bool scores;
};

void sh_pooling_close(sh_pooling *p)
{
    if (p == NULL) return;
    for (int i = 0; i < p->layer_count; i++) {
        free(p->layers[i].w);
        free(p->layers[i].bias);
        free(p->layers[i].norm);
    }
    free(p);
}

sh_pool_kind sh_pooling_kind(const sh_pooling *p)
{
    return p->kind;
}

int sh_pooling_width(const sh_pooling *p)
{
    return p->layer_count == 0 ? p->hidden : p->layers[p->layer_count - 1].rows;
}

bool sh_pooling_scores(const sh_pooling *p)
{
    return p->scores;
}

bool sh_pooling_normalizes(const sh_pooling *p)
{
    return p->normalize;
}

/* ---- reading ---- */

/* A tensor of exactly that shape as floats; cols 0: a vector. */
static sh_status floats_read(const sh_tensors *set, const char *name, int rows, int cols,
                             float **out, sh_err *err)
{
    const sh_stored_tensor *t = sh_tensors_find(set, "%s", name);
    if (t == NULL)
        return sh_err_set(err, SH_ERR_NOT_FOUND, "%s: tensor '%s' is missing",
                          sh_tensors_where(set), name);
    bool fits = cols == 0 ? t->dims == 1 && t->shape[0] == rows
                          : t->dims == 2 && t->shape[0] == rows && t->shape[1] == cols;
    bool known = t->type == SH_TENSOR_F32 || t->type == SH_TENSOR_F16 || t->type == SH_TENSOR_BF16;
    if (!fits || !known)
        return sh_err_set(err, SH_ERR_INPUT,
                          "%s: tensor '%s' must be F32, F16 or BF16 of shape [%d%s%.0d]",
                          sh_tensors_where(set), name, rows, cols == 0 ? "" : ", ", cols);
    size_t count = (size_t)rows * (size_t)(cols == 0 ? 1 : cols);
    void *raw = sh_alloc(t->size);
    sh_status status = sh_tensors_read(set, t, 0, raw, t->size, err);
    if (status == SH_OK) {
        *out = sh_alloc_array(count, sizeof(**out));
        for (size_t i = 0; i < count; i++)
            (*out)[i] = t->type == SH_TENSOR_F32   ? ((const float *)raw)[i]
                        : t->type == SH_TENSOR_F16 ? sh_f16_to_f32(((const uint16_t *)raw)[i])
                                                   : sh_bf16_to_f32(((const uint16_t *)raw)[i]);
    }
    free(raw);
    return status;
}

/* Adds the module NAME of the set: NAME.weight and, if it has one or must, NAME.bias. */
static sh_status dense_add(sh_pooling *p, const sh_tensors *set, const char *name, int rows,
                           activation act, sh_err *err)
{
    char path[PATH_LEN_MAX];
    if (p->layer_count == LAYERS_MAX)
        return sh_err_set(err, SH_ERR_LIMIT, "%s: more than %d dense layers after the pooling",
                          sh_tensors_where(set), LAYERS_MAX);
    int cols = sh_pooling_width(p);
    dense *d = &p->layers[p->layer_count++];
    *d = (dense){.rows = rows, .cols = cols, .act = act};
    snprintf(path, sizeof(path), "%s.weight", name);
    sh_status status = floats_read(set, path, rows, cols, &d->w, err);
    snprintf(path, sizeof(path), "%s.bias", name);
    if (status == SH_OK && sh_tensors_find(set, "%s", path) != NULL)
        status = floats_read(set, path, rows, 0, &d->bias, err);
    return status;
}

static const char *last_part(const char *class)
{
    const char *dot = strrchr(class, '.');
    return dot == NULL ? class : dot + 1;
}

static sh_status act_find(const char *class, const char *where, activation *out, sh_err *err)
{
    for (int i = 0; i < ACTS; i++)
        if (strcmp(last_part(class), ACT_NAMES[i]) == 0) {
            *out = (activation)i;
            return SH_OK;
        }
    return sh_err_set(err, SH_ERR_UNSUPPORTED, "%s: the activation '%s' is not supported", where,
                      class);
}

static sh_status pooling_read(sh_pooling *p, const cJSON *json, const char *where, sh_err *err)
{
    const char *mode = NULL;
    bool prompt = true;
    sh_status status = sh_json_string(json, "pooling_mode", where, &mode, err);
    if (status == SH_OK) status = sh_json_bool(json, "include_prompt", where, &prompt, err);
    if (status == SH_OK && !prompt)
        status = sh_err_set(err, SH_ERR_UNSUPPORTED, "%s: 'include_prompt' must be true", where);
    int found = 0;
    for (int i = SH_POOL_NONE + 1; i < SH_POOLS && status == SH_OK; i++) {
        bool on = mode != NULL && strcmp(mode, POOLS[i].mode) == 0;
        status = sh_json_bool(json, POOLS[i].flag, where, &on, err);
        if (!on) continue;
        p->kind = (sh_pool_kind)i;
        found++;
    }
    if (status != SH_OK || found == 1) return status;
    return sh_err_set(err, SH_ERR_UNSUPPORTED, "%s: %s; exactly one pooling is supported", where,
                      found > 1 ? "it names several poolings" : "no pooling that is known");
}

static sh_status dense_read(sh_pooling *p, const char *dir, const cJSON *json, const char *where,
                            sh_err *err)
{
    int64_t in = 0, out = 0;
    const char *class = "Tanh";
    activation act = TANH;
    sh_tensors *set = NULL;
    sh_status status = sh_json_int_required(json, "in_features", where, 1, SH_CONFIG_WIDTH_MAX, &in,
                                            err);
    if (status == SH_OK)
        status = sh_json_int_required(json, "out_features", where, 1, SH_CONFIG_WIDTH_MAX, &out,
                                      err);
    if (status == SH_OK) status = sh_json_string(json, "activation_function", where, &class, err);
    if (status == SH_OK) status = act_find(class, where, &act, err);
    if (status == SH_OK && in != sh_pooling_width(p))
        status = sh_err_set(err, SH_ERR_INPUT, "%s: 'in_features' is %lld, but what comes is %d",
                            where, (long long)in, sh_pooling_width(p));
    if (status == SH_OK) status = sh_tensors_open(dir, &set, err);
    if (status == SH_OK) status = dense_add(p, set, "linear", (int)out, act, err);
    sh_tensors_close(set);
    return status;
}

/* One module after the transformer itself. */
static sh_status module_read(sh_pooling *p, const char *dir, const char *path, const char *class,
                             const char *where, sh_err *err)
{
    if (strcmp(class, "Normalize") == 0) {
        p->normalize = true;
        return SH_OK;
    }
    bool is_dense = strcmp(class, "Dense") == 0;
    if (!is_dense && strcmp(class, "Pooling") != 0)
        return sh_err_set(err, SH_ERR_UNSUPPORTED,
                          "%s: the module '%s' is not supported; Transformer, Pooling, Dense and "
                          "Normalize are",
                          where, class);
    if (p->normalize)
        return sh_err_set(err, SH_ERR_UNSUPPORTED, "%s: '%s' comes after Normalize", where, class);
    char *folder = sh_path_join(dir, path), *file = sh_path_join(folder, "config.json");
    cJSON *json = NULL;
    sh_status status = sh_json_load(file, JSON_MAX, &json, err);
    if (status == SH_OK)
        status = is_dense ? dense_read(p, folder, json, file, err)
                          : pooling_read(p, json, file, err);
    cJSON_Delete(json);
    free(folder);
    free(file);
    return status;
}

/* A path inside the folder: the name of a module's own folder. */
static bool plain_path(const char *path)
{
    return path[0] != '\0' && path[0] != '.' && strchr(path, '/') == NULL &&
           strlen(path) < PATH_LEN_MAX;
}

static sh_status modules_read(sh_pooling *p, const char *dir, const cJSON *json, const char *where,
                              sh_err *err)
{
    const cJSON *item = NULL;
    if (!cJSON_IsArray(json))
        return sh_err_set(err, SH_ERR_INPUT, "%s: must be a list of modules, not %s", where,
                          sh_json_kind(json));
    cJSON_ArrayForEach(item, json)
    {
        const char *type = NULL, *path = "";
        sh_status status = sh_json_string_required(item, "type", where, &type, err);
        if (status == SH_OK) status = sh_json_string(item, "path", where, &path, err);
        if (status != SH_OK) return status;
        if (strcmp(last_part(type), "Transformer") == 0) continue;
        if (!plain_path(path))
            return sh_err_set(err, SH_ERR_INPUT, "%s: '%s' is not the name of a folder in it",
                              where, path);
        status = module_read(p, dir, path, last_part(type), where, err);
        if (status != SH_OK) return status;
    }
    if (p->kind != SH_POOL_NONE) return SH_OK;
    return sh_err_set(err, SH_ERR_UNSUPPORTED, "%s: there is no Pooling among the modules", where);
}

/* ---- cross-encoders ---- */

/* The layers of a classifier, by the names of its tensors. */
typedef struct {
    const char *first; /* tells the kinds apart */
    const char *last;
    activation act; /* after the first */
    const char *norm;
} classifier;

static const classifier CLASSIFIERS[] = {
    {"bert.pooler.dense", "classifier", TANH, NULL},
    {"classifier.dense", "classifier.out_proj", TANH, NULL},
    {"head.dense", "classifier", GELU, "head.norm.weight"},
};

/* Scores are probabilities, unless the model's makers want the plain number. */
static sh_status score_act(const cJSON *config, const char *where, activation *out, sh_err *err)
{
    const cJSON *ours = cJSON_GetObjectItemCaseSensitive(config, "sentence_transformers");
    const char *class = "Sigmoid";
    sh_status status = sh_json_string(config, "sbert_ce_default_activation_function", where, &class,
                                      err);
    if (status == SH_OK && cJSON_IsObject(ours))
        status = sh_json_string(ours, "activation_fn", where, &class, err);
    return status == SH_OK ? act_find(class, where, out, err) : status;
}

static sh_status classifier_read(sh_pooling *p, const char *dir, const cJSON *config,
                                 const char *where, sh_err *err)
{
    const char *pooling = "cls";
    sh_tensors *set = NULL;
    activation last = SIGMOID;
    const classifier *kind = NULL;
    sh_status status = sh_tensors_open(dir, &set, err);
    for (size_t i = 0; status == SH_OK && i < SH_COUNT_OF(CLASSIFIERS); i++)
        if (sh_tensors_find(set, "%s.weight", CLASSIFIERS[i].first) != NULL) kind = &CLASSIFIERS[i];
    if (status == SH_OK && kind == NULL)
        status = sh_err_set(err, SH_ERR_UNSUPPORTED, "%s: this kind of classifier is not supported",
                            where);
    if (status == SH_OK)
        status = sh_json_string(config, "classifier_pooling", where, &pooling, err);
    if (status == SH_OK) status = score_act(config, where, &last, err);
    if (status == SH_OK) status = dense_add(p, set, kind->first, p->hidden, kind->act, err);
    if (status == SH_OK && kind->norm != NULL)
        status = floats_read(set, kind->norm, p->hidden, 0, &p->layers[0].norm, err);
    if (status == SH_OK) status = dense_add(p, set, kind->last, 1, last, err);
    sh_tensors_close(set);
    p->kind = strcmp(pooling, "mean") == 0 ? SH_POOL_MEAN : SH_POOL_FIRST;
    p->scores = true;
    return status;
}

static bool is_classifier(const cJSON *config)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(config, "architectures");
    const char *name = cJSON_GetStringValue(cJSON_GetArrayItem(list, 0));
    return name != NULL && sh_str_ends(sh_str_of(name), SH_STR("ForSequenceClassification"));
}

static sh_status config_read(sh_pooling *p, const char *dir, const sh_config *config, sh_err *err)
{
    cJSON *json = NULL;
    char *path = sh_path_join(dir, "config.json");
    sh_status status = sh_json_load(path, JSON_MAX, &json, err);
    if (status == SH_OK && config->headless && is_classifier(json)) {
        status = classifier_read(p, dir, json, path, err);
    } else if (status == SH_OK && config->headless) {
        /* What sentence-transformers does with a plain encoder; the length says nothing then. */
        p->kind = config->bidirectional ? SH_POOL_MEAN : SH_POOL_LAST;
        p->normalize = true;
    }
    cJSON_Delete(json);
    free(path);
    return status;
}

sh_status sh_pooling_open(const char *dir, const sh_config *config, sh_pool_kind pool,
                          sh_pooling **out, sh_err *err)
{
    sh_pooling *p = sh_alloc(sizeof(*p));
    char *path = sh_path_join(dir, "modules.json");
    cJSON *json = NULL;
    sh_status status = SH_OK;
    p->hidden = config->hidden;
    p->eps = config->norm_eps;
    if (sh_file_exists(path)) {
        status = sh_json_load(path, JSON_MAX, &json, err);
        if (status == SH_OK) status = modules_read(p, dir, json, path, err);
    } else {
        status = config_read(p, dir, config, err);
    }
    if (pool != SH_POOL_NONE) {
        if (p->kind == SH_POOL_NONE) p->normalize = true;
        p->kind = pool;
    }
    cJSON_Delete(json);
    free(path);
    if (status == SH_OK)
        *out = p;
    else
        sh_pooling_close(p);
    return status;
}

/* ---- computing ---- */

static double act_of(activation act, double x)
{
    switch (act) {
    case TANH: return tanh(x);
    case GELU: return x * 0.5 * (1 + erf(x * M_SQRT1_2));
    case RELU: return x > 0 ? x : 0;
    case SIGMOID: return 1 / (1 + exp(-x));
    default: return x;
    }
}

static void norm_run(const dense *d, float eps, float *x)
{
    double mean = 0, squares = 0;
    for (int i = 0; i < d->rows; i++) mean += (double)x[i] / d->rows;
    for (int i = 0; i < d->rows; i++) squares += pow((double)x[i] - mean, 2) / d->rows;
    double inverse = 1 / sqrt(squares + (double)eps);
    for (int i = 0; i < d->rows; i++)
        x[i] = (float)(((double)x[i] - mean) * inverse * (double)d->norm[i]);
}

static void dense_run(const dense *d, float eps, const float *x, float *y)
{
    for (int r = 0; r < d->rows; r++) {
        const float *w = d->w + (size_t)r * (size_t)d->cols;
        double sum = d->bias == NULL ? 0 : (double)d->bias[r];
        for (int c = 0; c < d->cols; c++) sum += (double)w[c] * (double)x[c];
        y[r] = (float)act_of(d->act, sum);
    }
    if (d->norm != NULL) norm_run(d, eps, y);
}

static void normalize(float *x, int count)
{
    double squares = 0;
    for (int i = 0; i < count; i++) squares += (double)x[i] * (double)x[i];
    double factor = squares > 0 ? 1 / sqrt(squares) : 0;
    for (int i = 0; i < count; i++) x[i] = (float)((double)x[i] * factor);
}

void sh_pooling_finish(const sh_pooling *p, const float *pooled, float *out)
{
    int width = sh_pooling_width(p);
    const float *x = pooled;
    float *memory = NULL;
    for (int i = 0; i < p->layer_count; i++) {
        float *y = sh_alloc_array((size_t)p->layers[i].rows, sizeof(*y));
        dense_run(&p->layers[i], p->eps, x, y);
        free(memory);
        x = memory = y;
    }
    memcpy(out, x, (size_t)width * sizeof(*out));
    free(memory);
    if (p->normalize) normalize(out, width);
}
