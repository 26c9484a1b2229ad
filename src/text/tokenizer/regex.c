/* PCRE2 with limits. Patterns come from a file and texts from clients, so backtracking is bounded
 * by a match limit that grows with the text. */
#include "text/tokenizer/regex.h"

#include "base/alloc.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>

enum {
    PATTERN_MAX = 64 << 10,
    SHOWN_MAX = 60,
    NEST_MAX = 100,
    STEPS_LEAST = 10 * 1000 * 1000,
    STEPS_PER_BYTE = 8,
};

struct sh_regex {
    pcre2_code *code;
    char shown[SHOWN_MAX + 1]; /* the start of the pattern, for errors */
};

static pcre2_code *compile(sh_str text, int *fault, size_t *at)
{
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (context == NULL) return NULL;
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_parens_nest_limit(context, NEST_MAX);
    /* In Ruby's syntax ^ and $ always match at line ends, hence MULTILINE. */
    uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)text.ptr, text.len, options, fault, at, context);
    pcre2_compile_context_free(context);
    return code;
}

sh_status sh_regex_create(sh_str pattern, sh_regex **out, sh_err *err)
{
    sh_buf text = {0};
    sh_regex *regex = sh_alloc(sizeof(*regex));
    int fault = PCRE2_ERROR_NOMEMORY;
    size_t at = 0;

    err->status = SH_OK;
    sh_str shown = sh_str_sub(pattern, 0, SHOWN_MAX);
    shown.len = sh_utf8_valid_prefix(shown.ptr, shown.len);
    for (size_t i = 0; i < shown.len; i++) regex->shown[i] = shown.ptr[i];
    if (pattern.len > PATTERN_MAX) {
        sh_err_set(err, SH_ERR_LIMIT, "the pattern has %zu bytes, at most %d are allowed",
                   pattern.len, PATTERN_MAX);
        goto fail;
    }
    if (sh_regex_translate(pattern, &text, err) != SH_OK) goto fail;
    regex->code = compile(sh_buf_str(&text), &fault, &at);
    if (regex->code == NULL) {
        unsigned char why[128] = "";
        pcre2_get_error_message(fault, why, sizeof(why));
        sh_err_set(err, SH_ERR_INPUT, "pattern '%s': %s (at %zu of '%s')", regex->shown, why, at,
                   text.len == 0 ? "" : text.ptr);
        goto fail;
    }
    /* A failure is harmless: if the system forbids JIT, matching is slower with the same result. */
    pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE);
    sh_buf_reset(&text);
    *out = regex;
    return SH_OK;

fail:
    sh_buf_reset(&text);
    sh_regex_free(regex);
    return err->status;
}

void sh_regex_free(sh_regex *regex)
{
    if (regex == NULL) return;
    pcre2_code_free(regex->code);
    free(regex);
}

void sh_regex_scratch_reset(sh_regex_scratch *scratch)
{
    pcre2_match_data_free(scratch->match);
    pcre2_match_context_free(scratch->limits);
    *scratch = (sh_regex_scratch){0};
}

/* Backtracking over a long run of white space is legitimate (the usual patterns do it), so the
 * limit grows with the text. */
static bool scratch_prepare(sh_regex_scratch *scratch, size_t len)
{
    if (scratch->match == NULL) scratch->match = pcre2_match_data_create(1, NULL);
    if (scratch->limits == NULL) scratch->limits = pcre2_match_context_create(NULL);
    if (scratch->match == NULL || scratch->limits == NULL) return false;
    size_t steps = STEPS_LEAST + len * STEPS_PER_BYTE;
    pcre2_set_match_limit(scratch->limits, steps < UINT32_MAX ? (uint32_t)steps : UINT32_MAX);
    return true;
}

sh_status sh_regex_find(const sh_regex *regex, sh_str text, size_t from, sh_regex_scratch *scratch,
                        sh_regex_hit *out, sh_err *err)
{
    if (!scratch_prepare(scratch, text.len))
        return sh_err_set(err, SH_ERR_MEMORY, "out of memory for a match");
    PCRE2_SPTR subject = (PCRE2_SPTR)(text.len == 0 ? "" : text.ptr);
    int rc = pcre2_match(regex->code, subject, text.len, from, PCRE2_NO_UTF_CHECK, scratch->match,
                         scratch->limits);
    /* The JIT's stack is small and fixed; the interpreter uses the heap. */
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(regex->code, subject, text.len, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                         scratch->match, scratch->limits);
    if (rc < 0 && rc != PCRE2_ERROR_NOMATCH) {
        unsigned char why[128] = "";
        pcre2_get_error_message(rc, why, sizeof(why));
        return sh_err_set(err, SH_ERR_LIMIT, "matching pattern '%s' on this text failed: %s",
                          regex->shown, why);
    }
    const size_t *ends = pcre2_get_ovector_pointer(scratch->match);
    /* With \K inside a look-ahead a match can start after its end. */
    bool found = rc >= 0 && ends[0] <= ends[1] && ends[0] >= from;
    *out = (sh_regex_hit){
        .found = found, .first = found ? ends[0] : text.len, .end = found ? ends[1] : text.len};
    return SH_OK;
}
