/* Bytes of a journal may be anything after a crash or a full disk: a line that is not a record is
 * skipped, and one that is a wrong record is found out by the digest. */
#include "share/shard_journal.h"

#include "share/share_messages.h"

#include <inttypes.h>

enum { NUMBERS = 6 };

void sh_shard_record_write(const sh_shard_record *r, sh_buf *out)
{
    const sh_window *w = &r->window;
    sh_buf_addf(out,
                "%" PRIu32 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
                " %016" PRIx64 " ",
                r->file, w->offset, w->stride, w->len, w->rows, r->at, r->stamp);
    for (int i = 0; i < SH_DIGEST_LEN; i++) sh_buf_addf(out, "%02x", r->digest[i]);
    sh_buf_add_char(out, '\n');
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_hex(sh_str text, uint8_t *out, size_t len)
{
    if (text.len != 2 * len) return false;
    for (size_t i = 0; i < len; i++) {
        int high = hex_digit(text.ptr[2 * i]), low = hex_digit(text.ptr[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        out[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static bool read_fields(sh_str line, sh_shard_record *out)
{
    uint64_t number[NUMBERS];
    uint8_t stamp[sizeof(out->stamp)];
    sh_str part;
    for (int i = 0; i < NUMBERS; i++) {
        int64_t value;
        if (!sh_str_cut(&line, ' ', &part) || !sh_str_to_int(part, &value) || value < 0)
            return false;
        number[i] = (uint64_t)value;
    }
    if (!sh_str_cut(&line, ' ', &part) || !read_hex(part, stamp, sizeof(stamp))) return false;
    if (!read_hex(line, out->digest, SH_DIGEST_LEN) || number[0] >= SH_SHARE_FILES_MAX)
        return false;
    out->file = (uint32_t)number[0];
    out->window = (sh_window){number[1], number[2], number[3], number[4]};
    out->at = number[5];
    out->stamp = 0;
    for (size_t i = 0; i < sizeof(stamp); i++) out->stamp = out->stamp << 8 | stamp[i];
    return true;
}

sh_status sh_shard_record_read(sh_str *rest, uint64_t size, sh_shard_record *out)
{
    size_t len = sh_str_find(*rest, SH_STR("\n"), 0);
    if (len == rest->len) return SH_AGAIN;
    sh_str line = {rest->ptr, len};
    *rest = (sh_str){rest->ptr + len + 1, rest->len - len - 1};
    if (!read_fields(line, out) || !sh_window_fits(&out->window, INT64_MAX)) return SH_ERR_INPUT;
    uint64_t bytes = sh_window_bytes(&out->window);
    bool within = bytes <= SH_SHARE_WINDOW_MAX && out->at <= size && bytes <= size - out->at;
    return within ? SH_OK : SH_ERR_INPUT;
}
