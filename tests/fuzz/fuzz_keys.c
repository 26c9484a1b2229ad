/* A file of API keys of any bytes: what is accepted can be found by its name, and errors never
 * repeat a key. */
#include "http/keys.h"

#include <string.h>

#define KEY "sk+a+4fZq81Lx0p2s" /* no name may look like this */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    sh_http_keys *keys = sh_http_keys_create();
    sh_err err;
    sh_str text = {(const char *)data, len};
    if (sh_http_keys_parse(keys, text, "fuzz", &err) != SH_OK)
        SH_ASSERT(strstr(err.text, KEY) == NULL);
    const sh_http_key_info *info = sh_http_keys_find(keys, SH_STR(KEY));
    if (info != NULL && info->name[0] != '\0')
        SH_ASSERT(sh_http_keys_named(keys, info->name) == info);
    sh_http_keys_free(keys);
    return 0;
}
