/* The result of a Split depends on how empty matches are handled: one right after the previous
 * match is skipped, and the search moves on by a character. */
#include "text/tokenizer/pattern.h"

#include "base/alloc.h"
#include "text/tokenizer/unicode.h"

#include <stdlib.h>

/* A file can choose a pattern and a replacement that blow up a text; this limits the result. */
enum { REPLACED_MAX = 1 << 27 };

sh_status sh_pattern_read(const cJSON *json, const char *where, sh_pattern *out, sh_err *err)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, "pattern");
    const char *regex = NULL, *text = NULL;
    sh_status status = SH_OK;
    if (!cJSON_IsObject(item))
        return sh_err_set(err, SH_ERR_INPUT, "%s: 'pattern' must be an object, not %s", where,
                          sh_json_kind(item));
    if (status == SH_OK) status = sh_json_string(item, "Regex", where, &regex, err);
    if (status == SH_OK) status = sh_json_string(item, "String", where, &text, err);
    if (status != SH_OK) return status;
    if (regex != NULL) {
        status = sh_regex_create(sh_str_of(regex), &out->regex, err);
        return status == SH_OK ? SH_OK : sh_err_prefix(err, "%s", where);
    }
    if (text == NULL)
        return sh_err_set(err, SH_ERR_INPUT, "%s: 'pattern' has neither 'String' nor 'Regex'",
                          where);
    out->literal = sh_strdup(text);
    out->literal_len = sh_str_of(text).len;
    return SH_OK;
}

void sh_pattern_reset(sh_pattern *pattern)
{
    sh_regex_free(pattern->regex);
    free(pattern->literal);
    *pattern = (sh_pattern){0};
}

static sh_regex_hit find_char(const sh_pattern *pattern, sh_str text, size_t from)
{
    int len;
    for (size_t i = from; i < text.len; i += (size_t)len) {
        uint32_t code = sh_unicode_next(sh_str_sub(text, i, text.len), &len);
        if (pattern->is_char(code))
            return (sh_regex_hit){.found = true, .first = i, .end = i + (size_t)len};
    }
    return (sh_regex_hit){.found = false, .first = text.len, .end = text.len};
}

static sh_status find(const sh_pattern_walk *walk, sh_regex_hit *out, sh_err *err)
{
    const sh_pattern *p = walk->pattern;
    if (p->regex != NULL)
        return sh_regex_find(p->regex, walk->text, walk->at, walk->scratch, out, err);
    if (p->is_char != NULL) {
        *out = find_char(p, walk->text, walk->at);
        return SH_OK;
    }
    /* The empty text is found everywhere, also at the end. */
    size_t first = sh_str_find(walk->text, (sh_str){p->literal, p->literal_len}, walk->at);
    bool found = first < walk->text.len || p->literal_len == 0;
    *out = (sh_regex_hit){
        .found = found, .first = first, .end = found ? first + p->literal_len : first};
    return SH_OK;
}

/* hit.end is where the next search starts. An empty match there would be found again and again, so
 * it is skipped unless something lies in between. */
sh_status sh_pattern_next(sh_pattern_walk *walk, sh_err *err)
{
    for (;;) {
        walk->hit = (sh_regex_hit){.found = false, .first = walk->text.len, .end = walk->text.len};
        if (walk->at > walk->text.len) return SH_OK;
        sh_status status = find(walk, &walk->hit, err);
        if (status != SH_OK || !walk->hit.found) return status;
        if (walk->hit.first < walk->hit.end || !walk->any || walk->hit.end != walk->done) break;
        int len = 1;
        if (walk->at < walk->text.len)
            sh_unicode_next(sh_str_sub(walk->text, walk->at, walk->text.len), &len);
        walk->at += (size_t)len;
    }
    walk->any = true;
    walk->at = walk->done = walk->hit.end;
    return SH_OK;
}

sh_status sh_pattern_replace(const sh_pattern *pattern, sh_str text, sh_str with,
                             sh_regex_scratch *scratch, sh_buf *out, sh_err *err)
{
    sh_pattern_walk walk = {.pattern = pattern, .text = text, .scratch = scratch};
    for (;;) {
        size_t from = walk.done;
        sh_status status = sh_pattern_next(&walk, err);
        if (status != SH_OK) return status;
        sh_buf_add(out, text.ptr + from, walk.hit.first - from);
        if (!walk.hit.found) return SH_OK;
        sh_buf_add_str(out, with);
        if (out->len > REPLACED_MAX)
            return sh_err_set(err, SH_ERR_LIMIT, "replacing makes the text longer than %d bytes",
                              REPLACED_MAX);
    }
}
