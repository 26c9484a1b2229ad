/* table_model.h - models whose next token is known: of the size and cost of a real one, but each
 * token is followed by the one that a table says.
 *
 * All layers are made to add nothing to the residual stream, so what reaches the head is the
 * embedding of the last token; and row next(t) of the head is the embedding of t, so next(t) gets
 * by far the largest logit. Two models with the same table agree in everything; a table with some
 * entries exchanged agrees in the others.
 *
 * Threads: plain functions. */
#ifndef SH_TESTS_TABLE_MODEL_H
#define SH_TESTS_TABLE_MODEL_H

#include "base/alloc.h"
#include "base/hash.h"
#include "model/synth.h"
#include "model/tensors.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TABLE_STRIDE = 7919 }; /* a prime: no token comes twice before all have come */

/* What follows token t; `agree` percent of the tokens have the same successor in all tables. */
static inline int64_t table_next(int64_t t, int64_t vocab, int agree)
{
    bool exchanged = (int)(sh_mix64((uint64_t)t / 2) % 100) >= agree && (t ^ 1) < vocab;
    return ((exchanged ? t ^ 1 : t) + TABLE_STRIDE) % vocab;
}

static inline bool table_write_at(int fd, const void *data, size_t len, uint64_t at)
{
    return pwrite(fd, data, len, (off_t)at) == (ssize_t)len;
}

/* Whether a tensor belongs to a module that adds to the residual stream. */
static inline bool table_silences(const char *name)
{
    return strstr(name, ".o_proj.") != NULL || strstr(name, ".down_proj.") != NULL;
}

static inline bool table_zero(int fd, const sh_stored_tensor *t)
{
    static const char zeros[1 << 16];
    for (uint64_t at = 0; at < t->size; at += sizeof(zeros)) {
        size_t len = t->size - at < sizeof(zeros) ? (size_t)(t->size - at) : sizeof(zeros);
        if (!table_write_at(fd, zeros, len, t->offset + at)) return false;
    }
    return true;
}

/* Copies the rows of the embedding to where the head has their successors. */
static inline bool table_head(const sh_tensors *set, int fd, const sh_stored_tensor *head,
                              int agree)
{
    sh_err err;
    const sh_stored_tensor *embed = sh_tensors_find(set, "model.embed_tokens%s",
                                                    strchr(head->name, '.'));
    if (embed == NULL || embed->size != head->size) return false;
    size_t row = (size_t)(head->size / (uint64_t)head->shape[0]);
    char *all = malloc(head->size);
    bool fine = all != NULL && sh_tensors_read(set, embed, 0, all, head->size, &err) == SH_OK;
    for (int64_t t = 0; fine && t < head->shape[0]; t++)
        fine = table_write_at(fd, all + (size_t)t * row, row,
                              head->offset + row * (uint64_t)table_next(t, head->shape[0], agree));
    free(all);
    return fine;
}

/* Writes such a model; config is that of a dense model with a head of its own. */
static inline bool table_model_write(const char *folder, const char *config, int bits, int agree,
                                     sh_err *err)
{
    sh_tensors *set = NULL;
    sh_synth_opts opts = {.bits = bits, .group = 64, .seed = strlen(folder)};
    if (sh_synth_write(sh_str_of(config), "config", folder, &opts, err) != SH_OK) return false;
    if (sh_tensors_open(folder, &set, err) != SH_OK) return false;
    const sh_tensor_list *list = sh_tensors_list(set);
    bool fine = true;
    for (size_t i = 0; fine && i < list->count; i++) {
        const sh_stored_tensor *t = &list->tensors[i];
        int fd = open(sh_tensors_path(set, t), O_WRONLY | O_CLOEXEC);
        if (table_silences(t->name)) fine = table_zero(fd, t);
        if (strncmp(t->name, "lm_head.", 8) == 0) fine = table_head(set, fd, t, agree);
        if (fd >= 0) close(fd);
    }
    sh_tensors_close(set);
    if (!fine) sh_err_set(err, SH_ERR_SYSTEM, "cannot make a table of %s", folder);
    return fine;
}

#endif
