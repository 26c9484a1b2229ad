/* identity.h - whether two folders hold the same model.
 *
 * Ranks compare identities before they load anything. An identity covers config.json, and the name,
 * size and header of every safetensors file. That is quick whatever the size of the weights, and
 * tells models, conversions and incomplete downloads apart.
 *
 * Threads: pure function over the file system. */
#ifndef SH_MODEL_IDENTITY_H
#define SH_MODEL_IDENTITY_H

#include "base/status.h"

#include <stdint.h>

enum { SH_IDENTITY_LEN = 32 };

typedef struct {
    uint8_t id[SH_IDENTITY_LEN];
    int64_t weight_bytes; /* of all safetensors files */
} sh_identity;

SH_MUST_CHECK sh_status sh_identity_read(const char *dir, sh_identity *out, sh_err *err);

#endif
