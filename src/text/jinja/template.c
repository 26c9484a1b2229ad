/* The entry points: set the limits of a run, catch its errors, convert JSON to values. This is the
 * only place with a setjmp; everything below it may end the run by sh_jrun_fail(). */
#include "text/jinja/template.h"

#include "base/alloc.h"
#include "text/jinja/eval.h"
#include "text/jinja/parser.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Limits for parsing, and the defaults for rendering. DEPTH_MAX bounds the use of the C stack. */
enum {
    SOURCE_MAX = 4 << 20,
    PARSE_STEPS_MAX = 50 << 20,
    PARSE_MEMORY_MAX = 512 << 20,
    PARSE_TIME_MS = 5000,
    STEPS_MAX = 50 * 1000 * 1000,
    DEPTH_MAX = 400,
    OUTPUT_MAX = 32 << 20,
    MEMORY_MAX = 256 << 20,
    TIME_MAX_MS = 5000,
};

struct sh_template {
    sh_arena arena;
    const sh_jtree *tree;
};

/* setjmp is alone in a function: locals of its caller that change after it would be indeterminate
 * when longjmp returns. */
static bool parse_guarded(sh_jrun *run, sh_str source, sh_jtree **tree)
{
    if (setjmp(run->fail) != 0) return false;
    *tree = sh_jparse(run, source);
    return true;
}

sh_status sh_template_parse(sh_str source, sh_template **out, sh_err *err)
{
    if (source.len > SOURCE_MAX)
        return sh_err_set(err, SH_ERR_LIMIT, "the template is larger than %d MiB",
                          SOURCE_MAX >> 20);
    if (!sh_utf8_valid(source.ptr, source.len))
        return sh_err_set(err, SH_ERR_INPUT, "the template is not valid UTF-8");
    sh_buf scratch = {0};
    sh_jtree *tree = NULL;
    sh_jrun run = {
        .memory_max = PARSE_MEMORY_MAX,
        .out = &scratch,
        .out_max = SOURCE_MAX,
        .steps_left = PARSE_STEPS_MAX,
        .deadline = sh_deadline_in_ms(PARSE_TIME_MS),
        .depth_max = DEPTH_MAX,
        .line = 1,
        .err = err,
    };
    bool parsed = parse_guarded(&run, source, &tree);
    sh_buf_reset(&scratch);
    if (!parsed) {
        sh_arena_reset(&run.arena);
        return err->status;
    }
    sh_template *tmpl = sh_alloc(sizeof(*tmpl));
    *tmpl = (sh_template){run.arena, tree};
    *out = tmpl;
    return SH_OK;
}

void sh_template_free(sh_template *tmpl)
{
    if (tmpl == NULL) return;
    sh_arena_reset(&tmpl->arena);
    free(tmpl);
}

/* base/json.h keeps the spelling of a number in valuestring if a double would lose part of it. */
static sh_jv number_of(sh_jrun *run, const cJSON *item)
{
    double value = item->valuedouble;
    if (item->valuestring == NULL) {
        /* Up to 2^53 a double holds every integer exactly. */
        bool whole = value == floor(value) && fabs(value) <= 9007199254740992.0;
        return whole ? sh_jv_int((int64_t)value) : sh_jv_float(value);
    }
    sh_str text = sh_str_of(item->valuestring);
    int64_t whole;
    if (strpbrk(item->valuestring, ".eE") != NULL) return sh_jv_float(value);
    if (sh_str_to_int(text, &whole)) return sh_jv_int(whole);
    return (sh_jv){.kind = SH_JV_BIG, .u.str = sh_jstr_borrow(run, text)};
}

static sh_jv value_of(sh_jrun *run, const cJSON *item);

static sh_jv object_of(sh_jrun *run, const cJSON *object)
{
    sh_jdict *dict = sh_jdict_new(run, (size_t)cJSON_GetArraySize(object));
    for (const cJSON *item = object->child; item != NULL; item = item->next)
        sh_jdict_set(run, dict, sh_jv_lit(run, item->string), value_of(run, item));
    return sh_jv_of_dict(dict);
}

static sh_jv array_of(sh_jrun *run, const cJSON *array)
{
    sh_jlist *list = sh_jlist_new(run, (size_t)cJSON_GetArraySize(array));
    for (const cJSON *item = array->child; item != NULL; item = item->next)
        sh_jlist_add(run, list, value_of(run, item));
    return sh_jv_of_list(list);
}

/* Nesting is counted here as well: the variables are as untrusted as the template. */
static sh_jv value_of(sh_jrun *run, const cJSON *item)
{
    sh_jv v = SH_JV_NULL;
    sh_jrun_enter(run);
    switch (item->type & 0xff) {
    case cJSON_False:
    case cJSON_True: v = sh_jv_bool(cJSON_IsTrue(item)); break;
    case cJSON_Number: v = number_of(run, item); break;
    case cJSON_String: v = sh_jv_lit(run, item->valuestring); break;
    case cJSON_Array: v = array_of(run, item); break;
    case cJSON_Object: v = object_of(run, item); break;
    default: break;
    }
    sh_jrun_leave(run);
    return v;
}

typedef struct {
    const sh_jtree *tree;
    const cJSON *const *vars;
    size_t var_count;
} job;

/* Strings are borrowed from the caller's JSON, which outlives the run. */
static bool render_guarded(sh_jrun *run, const job *j)
{
    if (setjmp(run->fail) != 0) return false;
    sh_jdict *vars = sh_jdict_new(run, 16);
    for (size_t i = 0; i < j->var_count; i++)
        for (const cJSON *item = j->vars[i]->child; item != NULL; item = item->next)
            sh_jdict_set(run, vars, sh_jv_lit(run, item->string), value_of(run, item));
    run->vars = vars;
    sh_jtree_run(run, j->tree);
    return true;
}

/* The output goes straight to the caller's buffer; on failure it is cut back to what was there
 * before. */
sh_status sh_template_render(const sh_template *tmpl, const cJSON *const *vars, size_t var_count,
                             const sh_template_opts *opts, sh_buf *out, sh_err *err)
{
    static const sh_template_opts none = {0};
    const sh_template_opts *o = opts == NULL ? &none : opts;
    size_t before = out->len, output_max = o->output_max > 0 ? o->output_max : OUTPUT_MAX;
    job j = {tmpl->tree, vars, var_count};
    sh_jrun run = {
        .memory_max = o->memory_max > 0 ? o->memory_max : MEMORY_MAX,
        .out = out,
        .out_max = before + output_max,
        .steps_left = o->steps_max > 0 ? o->steps_max : STEPS_MAX,
        .deadline = sh_deadline_in_ms(o->time_max_ms > 0 ? o->time_max_ms : TIME_MAX_MS),
        .depth_max = o->depth_max > 0 ? o->depth_max : DEPTH_MAX,
        .now_us = o->now_us != 0 ? o->now_us : sh_clock_unix_us(),
        .err = err,
    };
    for (size_t i = 0; i < var_count; i++) SH_ASSERT(cJSON_IsObject(vars[i]));
    bool rendered = render_guarded(&run, &j);
    sh_arena_reset(&run.arena);
    if (o->raised != NULL) *o->raised = run.raised;
    if (rendered) {
        if (out->ptr != NULL) out->ptr[out->len] = '\0';
        return SH_OK;
    }
    out->len = before;
    if (out->ptr != NULL) out->ptr[before] = '\0';
    return err->status;
}
