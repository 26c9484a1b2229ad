/* output_internal.h - the parser's state, private to src/text/output.
 *
 * The parser is a state machine whose states are functions: a step consumes pending text, reports
 * events, sets the next step, and returns false when it needs more text than there is. A step must
 * decide by the text alone, never by where a piece of it happened to end; only `final` allows it to
 * decide without more text.
 *
 * The buffer keeps text from `start` on; everything before `start` has been reported. Inside a call
 * `start` stays at the opening marker until the call is complete, so that the text of a broken call
 * can be reported as content. */
#ifndef SH_TEXT_OUTPUT_OUTPUT_INTERNAL_H
#define SH_TEXT_OUTPUT_OUTPUT_INTERNAL_H

#include "base/buf.h"
#include "text/output/json_scan.h"
#include "text/output/output.h"
#include "text/output/output_form.h"

enum {
    OUTPUT_NAME_MAX = 256, /* bytes of a function name, a call id or a parameter name */
    OUTPUT_HEAD_MAX = 512, /* bytes between the opening marker and the arguments */
    OUTPUT_CLOSE_MAX = 3,
    OUTPUT_DETECT_MAX = 2,
    OUTPUT_WRITINGS_MAX = 2,
};

/* Bytes that no name has, as space and control bytes. */
#define OUTPUT_NOT_IN_NAMES "\"'`<>{}[](),;=\\|"

typedef bool (*output_step)(sh_output *o);

struct sh_output_reasoning {
    const char *name; /* first, as in sh_output_tools: dialect.c searches both tables */
    const char *open, *close;
    const char *detect[OUTPUT_DETECT_MAX]; /* a template with one of these uses this dialect */
    bool channels;                         /* no pair of markers: harmony.c parses it */
};

/* Arguments written between tags. */
typedef struct {
    char name_end; /* '>' closes the tag that holds the name, '<' opens the next tag */
    const char *key, *key_end;
    const char *value; /* NULL: the value follows key_end, without the tags' line breaks */
    const char *value_end[2];
    /* As a grammar writes them: before a name, between name and value, after a value. */
    const char *write_key, *write_value, *write_end;
} output_tags;

/* A group of calls as a grammar writes it: begin (lead NAME middle ARGUMENTS tail) between (...)
 * end. In these texts %s is an optional space or line break, and %d a number. */
typedef struct {
    const char *begin, *lead, *middle, *tail, *between, *end;
} output_writing;

struct sh_output_tools {
    const char *name;
    const char *section;                 /* before a group of calls, or NULL */
    const char *open;                    /* before a call, or NULL */
    const char *close[OUTPUT_CLOSE_MAX]; /* after a call, each optional */
    const char *detect[OUTPUT_DETECT_MAX];
    /* How models of this dialect write calls; `lead` is NULL after the last. What the parser below
     * accepts beyond that is not written. */
    output_writing writings[OUTPUT_WRITINGS_MAX];
    output_step body;                                    /* first step after `open` */
    bool (*head)(sh_str head, sh_str *name, sh_str *id); /* parses the text before the object */
    const output_tags *tags;
    const char *bare;    /* calls need no markers: what begins with this may be one; or NULL */
    char separator;      /* between calls without markers, or 0 */
    bool python;         /* the arguments are Python's keyword arguments: python.c parses them */
    bool ends_reasoning; /* the markers are special tokens, so they count inside reasoning too */
    bool channels;
    bool short_ids; /* the template requires ids of 9 letters and digits */
};

enum {
    OUTPUT_TYPE_STRING = 1,
    OUTPUT_TYPE_NUMBER = 2,
    OUTPUT_TYPE_BOOLEAN = 4,
    OUTPUT_TYPE_NULL = 8,
    OUTPUT_TYPE_OBJECT = 16,
    OUTPUT_TYPE_ARRAY = 32,
    OUTPUT_TYPE_ANY = 63,
};

/* Where an argument in Python is read. */
typedef struct {
    char quote; /* the quotation mark that ends the text, or 0 */
    bool escaped;
    int depth; /* of brackets */
} output_python;

typedef enum { MEMBER_NAME, MEMBER_ARGS, MEMBER_ID, MEMBER_OTHER } output_member;

struct sh_output {
    sh_output_dialect dialect;
    sh_output_opts opts;
    sh_output_fn fn;
    void *arg;

    output_step step;
    sh_buf buf;
    size_t start, pos;
    bool final;

    sh_output_kind kind; /* of the latest text */
    sh_buf space;        /* white space held back until it is known what follows it */
    bool eat_lines;      /* line breaks here belong to the marker before them */
    bool fresh;          /* only white space since the start or the last marker */
    bool had_text[2];    /* some content, some reasoning was reported */

    int begun_count, complete_count;
    bool begun;      /* the current call was reported as begun and not yet as ended */
    bool complete;   /* ... as ended; what follows is the end of its text */
    bool closable;   /* closing markers may follow */
    bool in_list;    /* calls are items of a JSON list */
    size_t head_pos; /* after the opening marker */
    sh_buf name, id;
    sh_buf args; /* arguments that came before the name */
    bool has_args;

    sh_json_scan scan;
    bool scanning;  /* inside a value */
    bool streaming; /* the value is reported as it arrives instead of collected in `token` */
    bool first;     /* no member or parameter yet */
    output_member member;
    unsigned types; /* OUTPUT_TYPE_* that the current parameter may have */
    output_python python;
    sh_buf token;
    sh_buf scratch;
};

/* The form of an output while it is put together. */
typedef struct {
    sh_grammar_builder *b;
    const sh_output_form *form;
    const sh_output_tools *tools;
    sh_expr *args; /* the arguments of each tool */
} output_form;

/* output.c: text, events, and what surrounds calls. A bool that is returned is the result of the
 * step, unless noted otherwise. */
sh_str output_rest(const sh_output *o);
void output_commit(sh_output *o);     /* everything up to pos has been reported */
bool output_skip_space(sh_output *o); /* true if there is anything but white space */
void output_text(sh_output *o, sh_output_kind kind, sh_str text);
void output_marker_passed(sh_output *o); /* white space around a marker is not text */
bool output_to_text(sh_output *o);
bool output_step_after(sh_output *o); /* closing markers, and the next call */
bool output_call_fail(sh_output *o);  /* reports the call's text so far as content */
bool output_call_wait(sh_output *o);  /* the step needs more text */
bool output_head_fail(sh_output *o);  /* only its opening marker; the rest is parsed as text */
void output_call_reset(sh_output *o);
void output_call_begin(sh_output *o);
void output_call_args(sh_output *o, sh_str text);
bool output_call_end(sh_output *o);
bool output_name_set(sh_buf *to, sh_str name); /* false if it cannot be a name */

/* Index of the marker at the start of the text, or one of the values below. Entries of `marks` may
 * be NULL, which never match. */
enum { OUTPUT_MARK_NONE = -1, OUTPUT_MARK_CUT = -2 /* the text ends inside one */ };
int output_mark_at(sh_str text, const char *const *marks, int count);
/* Position of the first marker, its index in *which; text.len and NONE if there is none. */
size_t output_mark_find(sh_str text, const char *const *marks, int count, int *which);

/* call.c: the bodies of calls whose arguments are JSON. */
bool output_step_object(sh_output *o); /* {"name": ..., "arguments": {...}}, or a list of them */
bool output_step_head(sh_output *o);   /* name, then the object */
bool output_step_either(sh_output *o);
bool output_step_args(sh_output *o); /* the object alone: the name is known */

/* tags.c: calls whose arguments are written between tags; lookups in the request's tools. */
bool output_step_tags(sh_output *o);
const cJSON *output_tool_find(const sh_output *o, sh_str name);
unsigned output_parameter_types(const cJSON *function, const char *name); /* OUTPUT_TYPE_* */
unsigned output_json_type(sh_str text); /* OUTPUT_TYPE_* if all of the text is JSON, else 0 */

/* python.c: a list of calls as Python writes them. */
bool output_step_python(sh_output *o);

/* harmony.c */
bool output_step_harmony(sh_output *o);
sh_expr output_harmony_form(output_form *f);

/* form.c: what the forms of all dialects have in common. */
sh_expr output_form_marks(output_form *f, const char *text); /* %s, %d and special tokens */

/* One call of any function: lead NAME middle ARGUMENTS tail; and a list of them. */
sh_expr output_form_call(output_form *f, const output_writing *w);
sh_expr output_form_list(output_form *f, sh_expr call, const char *between);

#endif
