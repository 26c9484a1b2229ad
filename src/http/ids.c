#include "http/ids.h"

#include "base/hash.h"

#include <stdio.h>

sh_status sh_http_ids_init(sh_http_ids *ids, sh_err *err)
{
    ids->count = 0;
    return sh_random_bytes(&ids->base, sizeof(ids->base), err);
}

void sh_http_ids_next(sh_http_ids *ids, char out[SH_HTTP_ID_MAX + 1])
{
    /* Multiplying by an odd number is a bijection, so ids of one run do not repeat. */
    uint64_t mixed = ids->base + ids->count++ * UINT64_C(0x9E3779B97F4A7C15);
    snprintf(out, SH_HTTP_ID_MAX + 1, "req_%016llx", (unsigned long long)mixed);
}
