/* inventory.h - every matrix and vector that a config promises, under MLX's names.
 *
 * For what needs a model's shapes without its files: counting parameters, predicting bytes, writing
 * a model of random weights. The loader does not use it: it looks for what is there.
 *
 * Threads: read-only once built. */
#ifndef SH_MODEL_INVENTORY_H
#define SH_MODEL_INVENTORY_H

#include "model/config.h"

typedef enum {
    SH_ITEM_EMBED,
    SH_ITEM_HEAD,
    SH_ITEM_ATTENTION,
    SH_ITEM_FFN, /* dense, or shared experts */
    SH_ITEM_EXPERT,
    SH_ITEM_ROUTER,
    SH_ITEM_VECTOR, /* norms, sinks, a router's correction */
} sh_item_kind;

typedef struct {
    const char *path; /* of a matrix without ".weight"; of a vector the whole name */
    sh_item_kind kind;
    int layer;     /* -1 for none */
    int64_t stack; /* matrices of a stack; 0 for a plain one */
    int64_t rows;  /* 1 for a vector */
    int64_t cols;
    bool bias;
} sh_item;

typedef struct {
    sh_item *items;
    size_t count;
    sh_arena arena;
} sh_inventory;

void sh_inventory_init(const sh_config *config, sh_inventory *out);
void sh_inventory_reset(sh_inventory *inventory);

/* Numbers of an item, its bias included. */
int64_t sh_item_numbers(const sh_item *item);

/* Numbers of it that one token needs: of experts only the chosen ones. */
int64_t sh_item_active(const sh_config *config, const sh_item *item);

#endif
