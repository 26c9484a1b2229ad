#include "base/base64.h"

#include <stdint.h>
#include <string.h>

static const char DIGITS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void sh_base64_encode(const void *bytes, size_t len, sh_buf *out)
{
    const unsigned char *from = bytes;
    char *to = sh_buf_reserve(out, (len + 2) / 3 * 4);
    for (size_t i = 0; i < len; i += 3, to += 4) {
        uint32_t bits = (uint32_t)from[i] << 16;
        if (i + 1 < len) bits |= (uint32_t)from[i + 1] << 8;
        if (i + 2 < len) bits |= from[i + 2];
        to[0] = DIGITS[bits >> 18];
        to[1] = DIGITS[bits >> 12 & 63];
        to[2] = i + 1 < len ? DIGITS[bits >> 6 & 63] : '=';
        to[3] = i + 2 < len ? DIGITS[bits & 63] : '=';
    }
    out->len += (len + 2) / 3 * 4;
}

static int value_of(char c)
{
    const char *hit = c == '\0' ? NULL : strchr(DIGITS, c);
    return hit == NULL ? -1 : (int)(hit - DIGITS);
}

/* A single left-over digit cannot be valid. */
bool sh_base64_decode(sh_str text, sh_buf *out)
{
    uint32_t bits = 0;
    int count = 0;
    while (text.len > 0 && text.ptr[text.len - 1] == '=') text.len--;
    for (size_t i = 0; i < text.len; i++) {
        int value = value_of(text.ptr[i]);
        if (value < 0) return false;
        bits = bits << 6 | (uint32_t)value;
        count += 6;
        if (count >= 8) {
            count -= 8;
            sh_buf_add_char(out, (char)(bits >> count & 0xff));
        }
    }
    return text.len % 4 != 1;
}
