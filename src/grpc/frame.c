#include "grpc/frame.h"

#include <string.h>

/* On the wire the flag is 0 or 1; gRPC-Web marks trailers in the same way. */
enum { FLAG_COMPRESSED = 1, FLAG_STATUS = 0x80, STATUS_HEAD = 2 };

size_t sh_grpc_message_begin(sh_buf *out)
{
    static const char prefix[SH_GRPC_PREFIX];
    sh_buf_add(out, prefix, sizeof(prefix));
    return out->len;
}

void sh_grpc_message_end(sh_buf *out, size_t at)
{
    size_t len = out->len - at;
    for (int i = 1; i < SH_GRPC_PREFIX; i++)
        out->ptr[at - (size_t)i] = (char)(len >> 8 * (i - 1) & 0xFF);
}

void sh_grpc_status_write(sh_grpc_code code, const char *message, sh_buf *out)
{
    sh_buf_add_char(out, (char)FLAG_STATUS);
    sh_buf_add_char(out, (char)code);
    sh_buf_add_text(out, message);
}

bool sh_grpc_status_read(sh_str frame, sh_grpc_code *code, sh_str *message)
{
    if (frame.len < STATUS_HEAD || (unsigned char)frame.ptr[0] != FLAG_STATUS) return false;
    *code = (sh_grpc_code)frame.ptr[1];
    *message = sh_str_sub(frame, STATUS_HEAD, frame.len);
    return true;
}

sh_grpc_code sh_grpc_prefix_read(const unsigned char prefix[SH_GRPC_PREFIX], size_t *len,
                                 const char **why)
{
    *len = (size_t)prefix[1] << 24 | (size_t)prefix[2] << 16 | (size_t)prefix[3] << 8 | prefix[4];
    if (prefix[0] == FLAG_COMPRESSED) {
        *why = "this server does not decompress messages; send them as they are";
        return SH_GRPC_UNIMPLEMENTED;
    }
    if (prefix[0] != 0) {
        *why = "the first byte of a message must be 0";
        return SH_GRPC_INTERNAL;
    }
    if (*len > SH_GRPC_MESSAGE_MAX) {
        *why = "the message is longer than 50 MiB";
        return SH_GRPC_RESOURCE_EXHAUSTED;
    }
    return SH_GRPC_OK;
}

bool sh_grpc_timeout_read(sh_str text, sh_deadline *out)
{
    static const struct {
        char name;
        int64_t ns;
    } units[] = {{'H', INT64_C(3600000000000)},
                 {'M', INT64_C(60000000000)},
                 {'S', 1000000000},
                 {'m', 1000000},
                 {'u', 1000},
                 {'n', 1}};
    enum { DIGITS_MAX = 8 };
    int64_t value = 0;
    if (text.len < 2 || text.len > DIGITS_MAX + 1) return false;
    for (size_t i = 0; i + 1 < text.len; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '9') return false;
        value = value * 10 + (text.ptr[i] - '0');
    }
    for (size_t i = 0; i < SH_COUNT_OF(units); i++) {
        if (units[i].name != text.ptr[text.len - 1]) continue;
        int64_t now = sh_clock_ns();
        bool far = value > (INT64_MAX - now) / units[i].ns; /* 99999999H is 11 thousand years */
        *out = far ? SH_DEADLINE_NEVER : now + value * units[i].ns;
        return true;
    }
    return false;
}

void sh_grpc_text_encode(sh_str text, sh_buf *out)
{
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        if (c >= 0x20 && c <= 0x7E && c != '%')
            sh_buf_add_char(out, (char)c);
        else
            sh_buf_addf(out, "%%%02X", c);
    }
}
