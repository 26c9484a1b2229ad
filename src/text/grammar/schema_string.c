/* Strings of a schema: quoting, and the formats as patterns.
 *
 * A format is allowed to be narrower than its RFC: what is generated must be valid, and need not be
 * all that is. */
#include "text/grammar/schema.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

#define DIGITS4_LEAP "(\\d\\d(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)"
#define DATE                                                                                       \
    "(\\d{4}-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)"             \
    "|02-(0[1-9]|1\\d|2[0-8]))|" DIGITS4_LEAP "-02-29)"
#define CLOCK "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?"
#define ZONE "(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define YEAR_1_ON "([1-9]\\d{3}|0[1-9]\\d\\d|00[1-9]\\d|000[1-9])-.*"
#define LABEL "[a-zA-Z0-9]{1,20}(-[a-zA-Z0-9]{1,20}){0,2}"
#define ATOM "[a-zA-Z0-9_%+-]{1,30}"
#define OCTET "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define HEX4 "[0-9a-fA-F]{1,4}"
#define PCHAR "([a-zA-Z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"

static const struct {
    const char *name;
    const char *pattern;
    const char *also; /* what it must match as well */
} formats[] = {
    {"date", DATE, YEAR_1_ON},
    {"time", CLOCK ZONE, NULL},
    {"date-time", DATE "T" CLOCK ZONE, YEAR_1_ON},
    {"uuid", "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", NULL},
    {"email", ATOM "(\\." ATOM ")?@" LABEL "(\\." LABEL "){1,3}", NULL},
    {"hostname", LABEL "(\\." LABEL "){0,3}", NULL},
    {"ipv4", OCTET "(\\." OCTET "){3}", NULL},
    {"ipv6",
     "(" HEX4 ":){7}" HEX4 "|(" HEX4 ":){1,7}:|(" HEX4 ":){1,6}:" HEX4 "|(" HEX4 ":){1,5}(:" HEX4
     "){1,2}|(" HEX4 ":){1,4}(:" HEX4 "){1,3}|(" HEX4 ":){1,3}(:" HEX4 "){1,4}|(" HEX4
     ":){1,2}(:" HEX4 "){1,5}|" HEX4 ":(:" HEX4 "){1,6}|:((:" HEX4 "){1,7}|:)",
     NULL},
    {"uri",
     "[a-zA-Z][a-zA-Z0-9+.-]*://" LABEL "(\\." LABEL "){0,3}(:\\d{1,5})?(/" PCHAR "*)*(\\?(" PCHAR
     "|[/?])*)?(#(" PCHAR "|[/?])*)?",
     NULL},
};

const sh_lang *sh_schema_format(sh_schema *s, const char *name)
{
    for (size_t i = 0; i < SH_COUNT_OF(formats); i++) {
        if (strcmp(formats[i].name, name) != 0) continue;
        const sh_lang *lang = sh_lang_regex(s->b, sh_str_of(formats[i].pattern), true);
        if (formats[i].also == NULL) return lang;
        const sh_lang *also = sh_lang_regex(s->b, sh_str_of(formats[i].also), true);
        return sh_lang_intersect(s->b, lang, also);
    }
    return NULL;
}

/* The strings of an enum or a const. */
static const sh_lang *value_strings(sh_schema *s, const sh_shape *shape)
{
    sh_str *words = sh_alloc_array((size_t)cJSON_GetArraySize(shape->values) + 1, sizeof(*words));
    size_t count = 0;
    const cJSON *v = shape->value != NULL ? shape->value : shape->values->child;
    for (; v != NULL; v = shape->value != NULL ? NULL : v->next)
        if (cJSON_IsString(v) && sh_goal_allows_of(s, *shape->goal, v, shape->values))
            words[count++] = sh_str_of(v->valuestring);
    const sh_lang *lang = sh_lang_words(s->b, words, count);
    free(words);
    return lang;
}

const sh_lang *sh_shape_strings(sh_schema *s, const sh_shape *shape)
{
    if ((shape->types & SH_TYPE_STRING) == 0) return sh_lang_words(s->b, NULL, 0);
    if (shape->values != NULL || shape->value != NULL) return value_strings(s, shape);
    return shape->string != NULL ? shape->string : s->any_string;
}

sh_expr sh_schema_quoted(sh_schema *s, const sh_lang *lang)
{
    if (lang == s->any_string && s->string_rule != 0) return s->string_rule;
    if (s->without != NULL && lang != s->any_string)
        lang = sh_lang_intersect(s->b, lang, s->without);
    sh_expr quote = sh_expr_literal(s->b, SH_STR("\""));
    sh_expr parts[] = {quote, sh_expr_lang(s->b, lang, true), quote};
    sh_expr rule = sh_expr_named(s->b, "string", sh_expr_seq(s->b, parts, 3));
    if (lang == s->any_string) s->string_rule = rule;
    return rule;
}
