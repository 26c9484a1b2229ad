/* inventory.h - every matrix and vector that a config implies, under MLX's names.
 *
 * For code that needs the shapes of a model without its files: counting parameters, predicting
 * bytes, writing a model of random weights. The loader does not use it: it looks at what the files
 * have.
 *
 * Threads: read-only once built. */
#ifndef SH_MODEL_INVENTORY_H
#define SH_MODEL_INVENTORY_H

#include "model/config.h"

typedef enum {
    SH_ITEM_EMBED,
    SH_ITEM_HEAD,
    SH_ITEM_ATTENTION,
    SH_ITEM_CONV,
    SH_ITEM_DELTA,
    SH_ITEM_FFN, /* dense, or shared experts */
    SH_ITEM_EXPERT,
    SH_ITEM_ROUTER,
    SH_ITEM_TABLE,  /* added to the embedding: positions, token types */
    SH_ITEM_VECTOR, /* norms, sinks, a router's correction */
} sh_item_kind;

typedef struct {
    const char *path; /* of a matrix, without ".weight"; of a vector, the full name */
    sh_item_kind kind;
    int layer;     /* -1: not in a layer */
    int64_t stack; /* number of matrices in a stack; 0 for a single matrix */
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

/* Parameters of an item, its bias included. */
int64_t sh_item_numbers(const sh_item *item);

/* Parameters that one token uses: of experts only the chosen ones. */
int64_t sh_item_active(const sh_config *config, const sh_item *item);

#endif
