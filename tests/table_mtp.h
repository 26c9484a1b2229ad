/* table_mtp.h - gives a table model (table_model.h) a multi-token-prediction layer whose drafts are
 * known.
 *
 * The layer is a copy of the model's last, so it adds nothing either: what it says follows from its
 * projection and its head alone.
 *
 * Threads: plain functions. */
#ifndef SH_TESTS_TABLE_MTP_H
#define SH_TESTS_TABLE_MTP_H

#include "base/str.h"
#include "model/safetensors_writer.h"
#include "table_model.h"

typedef enum {
    TABLE_MTP_TOKEN,  /* goes by its token: always right */
    TABLE_MTP_OUTPUT, /* goes by the token that the output belongs to: right if that is the model's
                         output, but not its own */
    TABLE_MTP_RANDOM, /* mixes both at random */
} table_mtp;

/* A tensor of the new file: a copy of one that there was, or made up. */
typedef struct {
    sh_stored_tensor to;
    const sh_stored_tensor *from;
} table_mtp_part;

typedef struct {
    const sh_tensors *set;
    const sh_stored_tensor *embed;
    table_mtp kind;
    int layer; /* number of the new layer */
    table_mtp_part *parts;
    size_t count;
} table_mtp_file;

static inline void table_mtp_add(table_mtp_file *f, const sh_stored_tensor *like, const char *name,
                                 const sh_stored_tensor *from)
{
    table_mtp_part *part = &f->parts[f->count++];
    *part = (table_mtp_part){.to = *like, .from = from};
    part->to.name = sh_asprintf("model.layers.%d.%s", f->layer, name);
}

static inline void table_mtp_list(table_mtp_file *f)
{
    const sh_tensor_list *list = sh_tensors_list(f->set);
    int64_t hidden = f->embed->shape[1];
    sh_stored_tensor norm = {.type = SH_TENSOR_F32, .dims = 1, .shape = {hidden}};
    sh_stored_tensor join = {.type = SH_TENSOR_F32, .dims = 2, .shape = {hidden, 2 * hidden}};
    char *last = sh_asprintf("model.layers.%d.", f->layer - 1);
    f->parts = sh_alloc_array(2 * list->count + 5, sizeof(*f->parts));
    for (size_t i = 0; i < list->count; i++) {
        const sh_stored_tensor *t = &list->tensors[i];
        f->parts[f->count++] = (table_mtp_part){.to = *t, .from = t};
        f->parts[f->count - 1].to.name = sh_strdup(t->name);
        if (strncmp(t->name, last, strlen(last)) == 0)
            table_mtp_add(f, t, t->name + strlen(last), t);
    }
    table_mtp_add(f, &norm, "enorm.weight", NULL);
    table_mtp_add(f, &norm, "hnorm.weight", NULL);
    table_mtp_add(f, &norm, "shared_head.norm.weight", NULL);
    table_mtp_add(f, &join, "eh_proj.weight", NULL);
    if (f->kind == TABLE_MTP_OUTPUT)
        table_mtp_add(f, f->embed, "shared_head.head.weight", f->embed);
    free(last);
}

/* Norms of ones, and a projection that takes one of its inputs, or anything. */
static inline size_t table_mtp_fill(const table_mtp_file *f, const sh_stored_tensor *t, float *out)
{
    int64_t rows = t->shape[0], cols = t->dims > 1 ? t->shape[1] : 1;
    int64_t diagonal = f->kind == TABLE_MTP_OUTPUT ? rows : 0;
    for (int64_t i = 0; i < rows * cols; i++) {
        out[i] = cols == 1 || i % cols == i / cols + diagonal;
        if (f->kind == TABLE_MTP_RANDOM && cols > 1)
            out[i] = (float)(sh_mix64((uint64_t)i) % 2000) / 1000 - 1;
    }
    return (size_t)(rows * cols) * sizeof(*out);
}

/* The head of TABLE_MTP_OUTPUT: two steps of the table at once. */
static inline void table_mtp_shuffle(const sh_stored_tensor *embed, char *rows)
{
    int64_t vocab = embed->shape[0];
    size_t row = (size_t)embed->size / (size_t)vocab;
    char *plain = malloc((size_t)embed->size);
    memcpy(plain, rows, (size_t)embed->size);
    for (int64_t t = 0; t < vocab; t++)
        memcpy(rows + row * (size_t)table_next(table_next(t, vocab, 100), vocab, 100),
               plain + row * (size_t)t, row);
    free(plain);
}

static inline sh_status table_mtp_copy(const table_mtp_file *f, sh_safetensors_writer *w,
                                       sh_err *err)
{
    char *bytes = malloc((size_t)sh_tensors_bytes(f->set)); /* more than any of them needs */
    sh_status status = SH_OK;
    for (size_t i = 0; i < f->count && status == SH_OK; i++) {
        const table_mtp_part *part = &f->parts[i];
        size_t len = part->from != NULL ? (size_t)part->from->size
                                        : table_mtp_fill(f, &part->to, (float *)(void *)bytes);
        if (part->from != NULL) status = sh_tensors_read(f->set, part->from, 0, bytes, len, err);
        if (strstr(part->to.name, ".shared_head.head.") != NULL) table_mtp_shuffle(f->embed, bytes);
        if (status == SH_OK) status = sh_safetensors_writer_add(w, bytes, len, err);
    }
    free(bytes);
    return status;
}

static inline sh_status table_mtp_file_write(const table_mtp_file *f, const char *path, sh_err *err)
{
    sh_safetensors_writer *w = NULL;
    sh_stored_tensor *list = sh_alloc_array(f->count, sizeof(*list));
    for (size_t i = 0; i < f->count; i++) list[i] = f->parts[i].to;
    sh_status status = sh_safetensors_writer_open(path, list, f->count, NULL, &w, err);
    if (status == SH_OK) status = table_mtp_copy(f, w, err);
    if (status == SH_OK)
        status = sh_safetensors_writer_finish(w, err);
    else
        sh_safetensors_writer_abort(w);
    free(list);
    return status;
}

/* Rewrites the one weight file of a table model in 16 bits that has `layers` layers. */
static inline sh_status table_mtp_write(const char *folder, int layers, table_mtp kind, sh_err *err)
{
    sh_tensors *set = NULL;
    sh_status status = sh_tensors_open(folder, &set, err);
    if (status != SH_OK) return status;
    table_mtp_file f = {.set = set,
                        .embed = sh_tensors_find(set, "model.embed_tokens.weight"),
                        .kind = kind,
                        .layer = layers};
    char *path = sh_asprintf("%s/model.safetensors", folder);
    table_mtp_list(&f);
    status = table_mtp_file_write(&f, path, err);
    for (size_t i = 0; i < f.count; i++) free((void *)(uintptr_t)f.parts[i].to.name);
    free(f.parts);
    free(path);
    sh_tensors_close(set);
    return status;
}

#endif
