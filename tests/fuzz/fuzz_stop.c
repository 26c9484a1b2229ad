/* Stop strings and a text, all from the input: the matcher releases what a plain search would,
 * however the text is split. Input: a seed for the splits, then strings and the text, each up to
 * the next zero. */
#include "text/output/stop.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok) abort();
}

static int plain_search(sh_str text, const sh_str *strings, size_t count, size_t *end)
{
    for (size_t at = 1; at <= text.len; at++) {
        int best = -1;
        for (size_t i = 0; i < count; i++) {
            if (!sh_str_ends(sh_str_sub(text, 0, at), strings[i])) continue;
            if (best < 0 || strings[i].len > strings[best].len) best = (int)i;
        }
        if (best >= 0) {
            *end = at - strings[best].len;
            return best;
        }
    }
    *end = text.len;
    return -1;
}

static void check(sh_stop *stop, sh_str text, const sh_str *strings, size_t count, unsigned seed)
{
    sh_buf out = {0};
    size_t end;
    int want = plain_search(text, strings, count, &end);

    for (size_t at = 0, len; at < text.len; at += len) {
        seed = seed * 1103515245u + 12345u;
        len = 1 + (seed >> 16) % 9;
        (void)sh_stop_push(stop, sh_str_sub(text, at, len), &out);
        must(out.len <= end);
    }
    sh_stop_finish(stop, &out);
    must(sh_stop_matched(stop) == want);
    must(sh_str_eq(sh_buf_str(&out), sh_str_sub(text, 0, end)));
    sh_buf_reset(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sh_str strings[SH_STOP_COUNT_MAX + 1];
    size_t count = 0;
    sh_stop *stop = NULL;
    sh_err err;

    if (size < 1 || size > 2048) return -1;
    sh_str rest = {(const char *)data + 1, size - 1}, part = {0};
    while (count < SH_COUNT_OF(strings) && sh_str_find(rest, (sh_str){"", 1}, 0) < rest.len) {
        (void)sh_str_cut(&rest, '\0', &part);
        strings[count++] = part;
    }
    if (sh_stop_create(strings, count, &stop, &err) != SH_OK) return 0;
    check(stop, rest, strings, count, data[0]);
    sh_stop_reset(stop);
    check(stop, rest, strings, count, data[0] + 1u);
    sh_stop_free(stop);
    return 0;
}
