/* Any bytes as a charsmap: rejected, or a map that turns valid UTF-8 into valid UTF-8. */
#include "text/tokenizer/charsmap.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sh_charsmap *map = NULL;
    sh_buf out = {0};
    sh_err err;
    /* The end of the input is a text, too. */
    sh_str bytes = {(const char *)data, size}, tail = sh_str_sub(bytes, size / 2, size);
    tail.len = sh_utf8_valid_prefix(tail.ptr, tail.len);
    if (sh_charsmap_open(bytes, &map, &err) != SH_OK) return 0;
    sh_charsmap_apply(
        map, SH_STR("ab \xef\xac\x81 \xc3\xa9 e\xcc\x81 \xe2\x84\x96 \xf0\x9f\x99\x82"), &out);
    sh_charsmap_apply(map, tail, &out);
    if (out.len > 0 && !sh_utf8_valid(out.ptr, out.len)) abort();
    sh_buf_reset(&out);
    sh_charsmap_close(map);
    return 0;
}
