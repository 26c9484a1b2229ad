/* Bytes are shifted one by one instead of copied, so the encoding does not depend on the host's
 * byte order. Every getter goes through sh_get_array, the only place that checks bounds. */
#include "base/pack.h"

#include <string.h>

_Static_assert(sizeof(float) == 4 && sizeof(double) == 8, "the wire carries IEEE numbers");

void sh_put_uint(sh_buf *out, uint64_t value, int bytes)
{
    char *to = sh_buf_reserve(out, (size_t)bytes);
    for (int i = 0; i < bytes; i++) to[i] = (char)(value >> (8 * i));
    out->len += (size_t)bytes;
}

void sh_put_double(sh_buf *out, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    sh_put_uint(out, bits, 8);
}

void sh_put_text(sh_buf *out, sh_str text)
{
    SH_ASSERT(text.len <= UINT32_MAX);
    sh_put_uint(out, text.len, 4);
    sh_buf_add_str(out, text);
}

static void put_word(char *to, uint32_t value)
{
    for (int i = 0; i < 4; i++) to[i] = (char)(value >> (8 * i));
}

void sh_put_ints(sh_buf *out, const int32_t *values, size_t count)
{
    char *to = sh_buf_reserve(out, count * 4);
    for (size_t i = 0; i < count; i++) put_word(to + 4 * i, (uint32_t)values[i]);
    out->len += count * 4;
}

void sh_put_floats(sh_buf *out, const float *values, size_t count)
{
    char *to = sh_buf_reserve(out, count * 4);
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof(bits));
        put_word(to + 4 * i, bits);
    }
    out->len += count * 4;
}

sh_reader sh_reader_of(sh_str bytes)
{
    return (sh_reader){.ptr = bytes.ptr, .left = bytes.len};
}

/* Once failed, always failed: a later read must not succeed on bytes that are out of place. */
const void *sh_get_array(sh_reader *reader, size_t count, size_t size)
{
    size_t len;
    if (reader->failed || __builtin_mul_overflow(count, size, &len) || len > reader->left) {
        reader->failed = true;
        return NULL;
    }
    const void *data = reader->ptr;
    reader->ptr += len;
    reader->left -= len;
    return data;
}

uint64_t sh_get_uint(sh_reader *reader, int bytes)
{
    const unsigned char *p = sh_get_array(reader, (size_t)bytes, 1);
    uint64_t value = 0;
    for (int i = 0; p != NULL && i < bytes; i++) value |= (uint64_t)p[i] << (8 * i);
    return value;
}

int sh_get_int(sh_reader *reader)
{
    return (int)(int32_t)(uint32_t)sh_get_uint(reader, 4);
}

double sh_get_double(sh_reader *reader)
{
    uint64_t bits = sh_get_uint(reader, 8);
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

sh_str sh_get_text(sh_reader *reader)
{
    size_t len = (size_t)sh_get_uint(reader, 4);
    const char *ptr = sh_get_array(reader, len, 1);
    return ptr == NULL ? (sh_str){"", 0} : (sh_str){ptr, len};
}

sh_status sh_get_end(const sh_reader *reader, const char *what, sh_err *err)
{
    if (reader->failed) return sh_err_set(err, SH_ERR_INPUT, "%s is truncated", what);
    if (reader->left > 0)
        return sh_err_set(err, SH_ERR_INPUT, "%s has %zu extra bytes", what, reader->left);
    return SH_OK;
}
