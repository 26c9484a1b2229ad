/* Writes a synthetic model: random weights in the layout of a real one.
 *
 * The contents are meaningless, but a benchmark must not be able to tell: formats, shapes and byte
 * counts are those of the real model, and magnitudes are chosen so that a row of a product keeps
 * the size of its input (standard deviation 1/sqrt(cols)). Otherwise activations would overflow or
 * vanish after a few layers, and softmax, routing and int8 scales would take unusual paths.
 *
 * A tensor's generator is seeded by the seed and the tensor's name, not by its place in the file,
 * so that any split into files gives the same numbers. Unquantized weights are drawn from a table
 * of 4096 normal numbers, at four weights for one random number: models have billions of them. */
#include "model/synth.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "kernels/half.h"
#include "model/inventory.h"
#include "model/safetensors_writer.h"
#include "model/source.h"
#include "model/tensors.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { CHUNK = 1 << 20, TABLE = 4096 };
static const uint64_t FILE_MAX = UINT64_C(1) << 30;
static const double MXFP4_RMS = 2.93; /* of E2M1 numbers with random bits */

/* How a tensor is filled. Those before FILL_HALF differ from chunk to chunk. */
typedef enum { FILL_BITS, FILL_BF16, FILL_HALF, FILL_BYTE } fill_kind;

typedef struct {
    sh_stored_tensor spec;
    fill_kind fill;
    double value; /* BF16: standard deviation; HALF: every number, as bf16; BYTE: every byte */
    int file;
    uint64_t bytes;
} piece;

typedef struct {
    const sh_synth_opts *opts;
    sh_config config;
    sh_arena arena;
    piece *pieces;
    size_t count, cap;
    int files;
    uint64_t total;
    uint64_t done;
} synth;

static void add_piece(synth *s, const sh_item *item, const char *end, sh_tensor_type type,
                      int64_t cols, fill_kind fill, double value)
{
    if (s->count == s->cap) {
        s->cap = s->cap * 2 + 256;
        s->pieces = sh_realloc_array(s->pieces, s->cap, sizeof(*s->pieces));
    }
    char *name = sh_asprintf("%s%s", item->path, end);
    piece *p = &s->pieces[s->count++];
    *p = (piece){.fill = fill, .value = value};
    p->spec.name = sh_arena_str(&s->arena, sh_str_of(name)).ptr;
    p->spec.type = type;
    if (item->stack > 0) p->spec.shape[p->spec.dims++] = item->stack;
    if (item->kind != SH_ITEM_VECTOR) p->spec.shape[p->spec.dims++] = item->rows;
    if (cols > 0) p->spec.shape[p->spec.dims++] = cols;
    p->bytes = sh_tensor_type_size(type);
    for (int i = 0; i < p->spec.dims; i++) p->bytes *= (uint64_t)p->spec.shape[i];
    s->total += p->bytes;
    free(name);
}

/* Random codes; the scale and bias are those at which a uniform code has mean 0 and the standard
 * deviation above. */
static void add_quantized(synth *s, const sh_item *item, const sh_quant *q)
{
    double std = 1 / sqrt((double)item->cols);
    add_piece(s, item, ".weight", SH_TENSOR_U32, (int64_t)sh_quant_row_bytes(q, item->cols) / 4,
              FILL_BITS, 0);
    int64_t groups = item->cols / q->group;
    if (q->format == SH_FORMAT_MXFP4) {
        double exponent = rint(log2(std / MXFP4_RMS)) + 127;
        add_piece(s, item, ".scales", SH_TENSOR_U8, groups, FILL_BYTE, exponent);
        return;
    }
    double scale = std * sqrt(12) / pow(2, q->bits);
    add_piece(s, item, ".scales", SH_TENSOR_BF16, groups, FILL_HALF, scale);
    add_piece(s, item, ".biases", SH_TENSOR_BF16, groups, FILL_HALF,
              -scale * (pow(2, q->bits) - 1) / 2);
}

/* Vectors, routers and tables stay in bf16, and so does a matrix whose width the group does not
 * divide. */
static bool is_quantized(const synth *s, const sh_item *item, const sh_quant **q)
{
    if (item->kind == SH_ITEM_VECTOR || item->kind == SH_ITEM_ROUTER || item->kind == SH_ITEM_TABLE)
        return false;
    *q = sh_config_quant(&s->config, item->path);
    return *q != NULL && item->cols % (*q)->group == 0;
}

/* Norms are 1 (or 0 where the model adds 1 to what MLX writes), all other vectors and biases 0. */
static void add_item(synth *s, const sh_item *item)
{
    const sh_quant *q = NULL;
    bool added = s->config.norm_plus_one && !s->config.mlx_plus_one;
    bool norm = strstr(item->path, "norm") != NULL && !added;
    if (item->kind == SH_ITEM_VECTOR)
        add_piece(s, item, "", SH_TENSOR_BF16, item->cols, FILL_HALF, norm ? 1 : 0);
    else if (is_quantized(s, item, &q))
        add_quantized(s, item, q);
    else
        add_piece(s, item, ".weight", SH_TENSOR_BF16, item->cols, FILL_BF16,
                  1 / sqrt((double)item->cols));
    if (item->bias) add_piece(s, item, ".bias", SH_TENSOR_BF16, 0, FILL_HALF, 0);
}

/* Files are filled in order; a tensor is never split. */
static void assign_files(synth *s)
{
    uint64_t limit = s->opts->file_max > 0 ? s->opts->file_max : FILE_MAX, used = 0;
    s->files = 1;
    for (size_t i = 0; i < s->count; i++) {
        if (used > 0 && used + s->pieces[i].bytes > limit) {
            s->files++;
            used = 0;
        }
        s->pieces[i].file = s->files - 1;
        used += s->pieces[i].bytes;
    }
}

static char *file_name(const synth *s, int file)
{
    if (s->files == 1) return sh_strdup("model.safetensors");
    return sh_asprintf("model-%05d-of-%05d.safetensors", file + 1, s->files);
}

/* splitmix64. */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Roughly normal: the sum of four uniform numbers, whose variance is 4/12. */
static void fill_table(uint16_t table[TABLE], double std, uint64_t *state)
{
    for (int i = 0; i < TABLE; i++) {
        double sum = 0;
        for (int k = 0; k < 4; k++) sum += (double)(next_random(state) >> 11) * 0x1p-53 - 0.5;
        table[i] = sh_f32_to_bf16((float)(sum * sqrt(3) * std));
    }
}

static void fill_chunk(const piece *p, const uint16_t table[TABLE], uint64_t *state, void *data)
{
    uint64_t *words = data;
    uint16_t *halves = data;
    switch (p->fill) {
    case FILL_BITS:
        for (size_t i = 0; i < CHUNK / sizeof(*words); i++) words[i] = next_random(state);
        break;
    case FILL_BF16:
        for (size_t i = 0; i < CHUNK / sizeof(*halves); i += 4) {
            uint64_t bits = next_random(state);
            for (int k = 0; k < 4; k++)
                halves[i + (size_t)k] = table[bits >> (12 * k) & (TABLE - 1)];
        }
        break;
    case FILL_HALF:
        for (size_t i = 0; i < CHUNK / sizeof(*halves); i++)
            halves[i] = sh_f32_to_bf16((float)p->value);
        break;
    case FILL_BYTE: memset(data, (int)p->value, CHUNK); break;
    }
}

static sh_status write_piece(synth *s, const piece *p, sh_safetensors_writer *writer, void *data,
                             sh_err *err)
{
    uint16_t table[TABLE];
    uint64_t state = s->opts->seed ^ sh_hash64(p->spec.name, strlen(p->spec.name));
    sh_status status = SH_OK;
    if (p->fill == FILL_BF16) fill_table(table, p->value, &state);
    for (uint64_t at = 0; at < p->bytes && status == SH_OK; at += CHUNK) {
        uint64_t len = p->bytes - at < CHUNK ? p->bytes - at : CHUNK;
        /* Constant contents need to be generated once only. */
        if (at == 0 || p->fill < FILL_HALF) fill_chunk(p, table, &state, data);
        status = sh_safetensors_writer_add(writer, data, (size_t)len, err);
        s->done += len;
        if (s->opts->progress != NULL) s->opts->progress(s->opts->progress_ctx, s->done, s->total);
    }
    return status;
}

/* True when the file exists and has exactly these tensors. The writer renames a file only when it
 * is complete, so the header is enough to resume a run that was interrupted. */
static bool is_finished(const char *path, const piece *pieces, size_t count)
{
    sh_err err;
    sh_tensors *set = NULL;
    if (!sh_file_exists(path) || sh_tensors_open_file(path, &set, &err) != SH_OK) return false;
    bool same = sh_tensors_list(set)->count == count;
    for (size_t i = 0; i < count && same; i++) {
        const sh_stored_tensor *t = sh_tensors_find(set, "%s", pieces[i].spec.name);
        same = t != NULL && t->type == pieces[i].spec.type && t->size == pieces[i].bytes;
    }
    sh_tensors_close(set);
    return same;
}

static sh_status write_file(synth *s, const char *path, const piece *pieces, size_t count,
                            sh_err *err)
{
    sh_safetensors_writer *writer = NULL;
    sh_stored_tensor *specs = sh_alloc_array(count, sizeof(*specs));
    void *data = sh_alloc(CHUNK);
    for (size_t i = 0; i < count; i++) specs[i] = pieces[i].spec;
    sh_status status = sh_safetensors_writer_open(path, specs, count, "mlx", &writer, err);
    for (size_t i = 0; i < count && status == SH_OK; i++)
        status = write_piece(s, &pieces[i], writer, data, err);
    if (writer != NULL && status == SH_OK)
        status = sh_safetensors_writer_finish(writer, err);
    else
        sh_safetensors_writer_abort(writer);
    free(specs);
    free(data);
    return status;
}

static sh_status write_files(synth *s, const char *dir, sh_err *err)
{
    sh_status status = SH_OK;
    size_t first = 0;
    for (int file = 0; file < s->files && status == SH_OK; file++) {
        size_t end = first;
        uint64_t bytes = 0;
        for (; end < s->count && s->pieces[end].file == file; end++) bytes += s->pieces[end].bytes;
        char *name = file_name(s, file), *path = sh_path_join(dir, name);
        if (is_finished(path, s->pieces + first, end - first))
            s->done += bytes;
        else
            status = write_file(s, path, s->pieces + first, end - first, err);
        first = end;
        free(name);
        free(path);
    }
    if (status == SH_OK && s->opts->progress != NULL)
        s->opts->progress(s->opts->progress_ctx, s->total, s->total);
    return status;
}

static sh_status write_json(const char *dir, const char *name, const cJSON *json, sh_err *err)
{
    char *text = cJSON_Print(json), *path = sh_path_join(dir, name);
    SH_ASSERT(text != NULL);
    sh_status status = sh_file_write(path, text, strlen(text), err);
    cJSON_free(text);
    free(path);
    return status;
}

static sh_status write_index(const synth *s, const char *dir, sh_err *err)
{
    if (s->files == 1) return SH_OK;
    cJSON *json = cJSON_CreateObject();
    cJSON_AddNumberToObject(cJSON_AddObjectToObject(json, "metadata"), "total_size",
                            (double)s->total);
    cJSON *map = cJSON_AddObjectToObject(json, "weight_map");
    for (size_t i = 0; i < s->count; i++) {
        char *name = file_name(s, s->pieces[i].file);
        cJSON_AddItemToObject(map, s->pieces[i].spec.name, cJSON_CreateString(name));
        free(name);
    }
    sh_status status = write_json(dir, "model.safetensors.index.json", json, err);
    cJSON_Delete(json);
    return status;
}

static cJSON *quant_object(const char *mode, int bits, int group)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddNumberToObject(json, "group_size", group);
    cJSON_AddNumberToObject(json, "bits", bits);
    cJSON_AddStringToObject(json, "mode", mode);
    return json;
}

/* gpt_oss in 4 bits has its experts in mxfp4 and everything else in 8 bits, like its conversions.
 */
static void set_quantization(const synth *s, cJSON *json)
{
    const sh_synth_opts *o = s->opts;
    sh_inventory inv;
    cJSON_DeleteItemFromObjectCaseSensitive(json, "quantization");
    cJSON_DeleteItemFromObjectCaseSensitive(json, "quantization_config");
    if (o->bits == 16) return;
    bool mx = s->config.moe.all_biases && o->bits == 4;
    cJSON *quant = mx ? quant_object("mxfp4", 4, 32) : quant_object("affine", o->bits, o->group);
    cJSON_AddItemToObject(json, "quantization", quant);
    if (!mx) return;
    sh_inventory_init(&s->config, &inv);
    for (size_t i = 0; i < inv.count; i++)
        if (inv.items[i].kind != SH_ITEM_EXPERT && inv.items[i].kind != SH_ITEM_VECTOR)
            cJSON_AddItemToObject(quant, inv.items[i].path, quant_object("affine", 8, 64));
    sh_inventory_reset(&inv);
}

/* Edits config.json and parses the result again: the weights are generated from the config that
 * will be in the folder, so the two cannot disagree. */
static sh_status prepare(synth *s, sh_str text, const char *where, cJSON **out, sh_err *err)
{
    sh_status status = sh_config_parse(text, where, &s->config, err);
    if (status == SH_OK) status = sh_json_parse(text, where, out, err);
    if (status != SH_OK) return status;
    set_quantization(s, *out);
    cJSON_DeleteItemFromObjectCaseSensitive(*out, "tie_word_embeddings");
    cJSON_AddBoolToObject(*out, "tie_word_embeddings", s->config.tied != SH_TIED_NO);
    char *final = cJSON_PrintUnformatted(*out);
    SH_ASSERT(final != NULL);
    sh_config_reset(&s->config);
    status = sh_config_parse(sh_str_of(final), where, &s->config, err);
    cJSON_free(final);
    return status;
}

sh_status sh_synth_write(sh_str config_text, const char *where, const char *dir,
                         const sh_synth_opts *opts, sh_err *err)
{
    synth s = {.opts = opts};
    sh_inventory inv = {0};
    cJSON *json = NULL;
    sh_status status = prepare(&s, config_text, where, &json, err);
    if (status != SH_OK) goto done;
    sh_inventory_init(&s.config, &inv);
    for (size_t i = 0; i < inv.count; i++) add_item(&s, &inv.items[i]);
    assign_files(&s);
    if (mkdir(dir, 0755) != 0 && errno != EEXIST)
        status = sh_err_sys(err, "%s", dir);
    else
        status = write_json(dir, "config.json", json, err);
    if (status == SH_OK) status = write_files(&s, dir, err);
    if (status == SH_OK) status = write_index(&s, dir, err);

done:
    cJSON_Delete(json);
    sh_inventory_reset(&inv);
    sh_config_reset(&s.config);
    sh_arena_reset(&s.arena);
    free(s.pieces);
    return status;
}
