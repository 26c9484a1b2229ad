/* The trie is a double array (darts-clone): a unit has a label, an offset to its children, and says
 * whether one of these is a leaf, whose value is where the replacement starts.
 *
 * How it is applied is odd, but it is how the tokenizers library does it, and models were checked
 * against that: a short grapheme is looked up as a whole, and the first entry that is a beginning
 * of it replaces all of it; else its characters are looked up one by one. */
#include "text/tokenizer/charsmap.h"

#include "base/alloc.h"
#include "base/pack.h"
#include "text/tokenizer/unicode.h"

#include <stdlib.h>
#include <string.h>

enum { GRAPHEME_MAX = 5 }; /* bytes of one that is looked up as a whole */

struct sh_charsmap {
    uint32_t *units;
    size_t unit_count;
    sh_buf texts; /* replacements, each with a NUL after it */
};

sh_status sh_charsmap_open(sh_str bytes, sh_charsmap **out, sh_err *err)
{
    sh_reader r = sh_reader_of(bytes);
    size_t size = (size_t)sh_get_uint(&r, 4);
    if (r.failed || size % 4 != 0 || size > r.left)
        return sh_err_set(err, SH_ERR_INPUT,
                          "the charsmap has %zu bytes, which cannot hold a trie of %zu", bytes.len,
                          r.failed ? 0 : size);
    if (!sh_utf8_valid(r.ptr + size, r.left - size))
        return sh_err_set(err, SH_ERR_INPUT, "the texts of the charsmap are not valid UTF-8");
    sh_charsmap *map = sh_alloc(sizeof(*map));
    map->unit_count = size / 4;
    map->units = sh_alloc_array(map->unit_count + 1, sizeof(*map->units));
    for (size_t i = 0; i < map->unit_count; i++) map->units[i] = (uint32_t)sh_get_uint(&r, 4);
    sh_buf_add(&map->texts, r.ptr, r.left);
    sh_buf_add_char(&map->texts, '\0'); /* the last text ends, too */
    *out = map;
    return SH_OK;
}

void sh_charsmap_close(sh_charsmap *map)
{
    if (map == NULL) return;
    free(map->units);
    sh_buf_reset(&map->texts);
    free(map);
}

static uint32_t unit_offset(uint32_t unit)
{
    return (unit >> 10) << ((unit & (1u << 9)) >> 6);
}

/* What the shortest entry that `text` begins with is replaced by; NULL: there is no such entry. */
static const char *replacement(const sh_charsmap *map, sh_str text)
{
    uint32_t pos = map->unit_count > 0 ? unit_offset(map->units[0]) : 0;
    for (size_t i = 0; i < text.len && text.ptr[i] != '\0'; i++) {
        uint32_t byte = (unsigned char)text.ptr[i];
        pos ^= byte;
        if (pos >= map->unit_count) return NULL;
        uint32_t unit = map->units[pos];
        if ((unit & (1u << 31 | 0xff)) != byte) return NULL;
        pos ^= unit_offset(unit);
        if ((unit >> 8 & 1) == 0) continue;
        if (pos >= map->unit_count) return NULL;
        size_t at = map->units[pos] & ~(1u << 31);
        bool inside = at >= map->texts.len || ((unsigned char)map->texts.ptr[at] & 0xc0) == 0x80;
        return inside ? NULL : map->texts.ptr + at;
    }
    return NULL;
}

static bool replace(const sh_charsmap *map, sh_str part, sh_buf *out)
{
    const char *with = replacement(map, part);
    if (with != NULL) sh_buf_add_text(out, with);
    return with != NULL;
}

void sh_charsmap_apply(const sh_charsmap *map, sh_str text, sh_buf *out)
{
    for (size_t at = 0; at < text.len;) {
        size_t size = sh_unicode_grapheme(sh_str_sub(text, at, text.len));
        sh_str whole = sh_str_sub(text, at, size);
        at += size;
        if (whole.len <= GRAPHEME_MAX && replace(map, whole, out)) continue;
        for (int len; whole.len > 0; whole = sh_str_sub(whole, (size_t)len, whole.len)) {
            sh_unicode_next(whole, &len);
            sh_str one = sh_str_sub(whole, 0, (size_t)len);
            if (!replace(map, one, out)) sh_buf_add_str(out, one);
        }
    }
}
