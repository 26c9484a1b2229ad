/* output_internal.h - what the files output*.c share; nobody else includes it.
 *
 * The parser is a machine whose states are functions: a step reads pending text, reports events,
 * sets the next step, and returns false when it needs more text than there is. What a step decides
 * follows from the text alone, never from where a piece of it happened to end; only `final` lets it
 * decide without more.
 *
 * Pending text is kept from `start`, the place up to which everything is reported. Inside a call
 * start stays at the opening marker until the call is whole, so that a broken one is given back. */
#ifndef SH_TEXT_OUTPUT_OUTPUT_INTERNAL_H
#define SH_TEXT_OUTPUT_OUTPUT_INTERNAL_H

#include "base/buf.h"
#include "text/output/json_scan.h"
#include "text/output/output.h"

enum {
    OUTPUT_NAME_MAX = 256, /* bytes of a function's name, an id, a parameter's name */
    OUTPUT_HEAD_MAX = 512, /* bytes between the opening marker and the arguments */
    OUTPUT_CLOSE_MAX = 3,
    OUTPUT_SIGN_MAX = 2,
};

typedef bool (*output_step)(sh_output *o);

struct sh_output_reasoning {
    const char *name; /* first, as in sh_output_tools: dialect.c searches both tables */
    const char *open, *close;
    const char *sign[OUTPUT_SIGN_MAX]; /* a chat template with one of these has this dialect */
    bool channels;                     /* no pair of markers: harmony.c reads it */
};

/* Arguments written between tags. */
typedef struct {
    char name_end; /* '>' closes the tag that holds the name, '<' opens the one behind it */
    const char *key, *key_end;
    const char *value; /* NULL: the value follows key_end, and lines that the tags stand on go */
    const char *value_end[2];
} output_tags;

struct sh_output_tools {
    const char *name;
    const char *section;                 /* in front of a group of calls, or NULL */
    const char *open;                    /* in front of a call, or NULL */
    const char *close[OUTPUT_CLOSE_MAX]; /* behind a call, each optional */
    const char *sign[OUTPUT_SIGN_MAX];
    /* A call up to its name, and what follows the name up to the arguments; without the latter,
     * models of this dialect differ in how they go on. */
    const char *lead, *name_end;
    output_step body;                                    /* first step behind `open` */
    bool (*head)(sh_str head, sh_str *name, sh_str *id); /* reads what stands before the object */
    const output_tags *tags;
    char separator;      /* calls may stand unmarked, with this between them; 0: they may not */
    bool ends_reasoning; /* the markers are special tokens, so they count inside reasoning too */
    bool channels;
    bool short_ids; /* the template wants ids of 9 letters and digits */
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

    sh_output_kind kind; /* of the text read last */
    sh_buf space;        /* white space that waits for what follows it */
    bool eat_lines;      /* line breaks here belong to the marker before them */
    bool fresh;          /* only white space since the beginning or the last marker */
    bool spoke[2];       /* some content, some reasoning was reported */

    int begun_count, whole_count;
    bool begun;      /* the call at hand was reported as begun and not yet as ended */
    bool whole;      /* ... as ended; what is left is the end of its text */
    bool closable;   /* closing markers may follow */
    bool in_list;    /* calls are items of a JSON list */
    size_t head_pos; /* behind the opening marker */
    sh_buf name, id;
    sh_buf args; /* arguments that came before the name */
    bool has_args;

    sh_json_scan scan;
    bool scanning;  /* a value has begun */
    bool streaming; /* it goes out as it comes, not into token */
    bool first;     /* no member or parameter yet */
    output_member member;
    unsigned types; /* that the parameter at hand may have */
    sh_buf token;
    sh_buf scratch;
};

/* output.c: text, events and the frame of calls. Where a bool is returned it is the step's answer.
 */
sh_str output_rest(const sh_output *o);
void output_commit(sh_output *o);     /* all up to pos is reported */
bool output_skip_space(sh_output *o); /* true when something else than white space is there */
void output_text(sh_output *o, sh_output_kind kind, sh_str text);
void output_marker_passed(sh_output *o); /* white space around a marker is no text */
bool output_to_text(sh_output *o);
bool output_step_after(sh_output *o); /* closing markers, and the next call */
bool output_call_fail(sh_output *o);  /* what was read of the call is content */
bool output_head_fail(sh_output *o);  /* its opening marker is; what follows is read as text */
void output_call_reset(sh_output *o);
void output_call_begin(sh_output *o);
void output_call_args(sh_output *o, sh_str text);
bool output_call_end(sh_output *o);
bool output_name_set(sh_buf *to, sh_str name); /* false when it can not be a name */

/* Marks may have NULLs, which stand nowhere. The index of the one at the beginning of the text, or:
 */
enum { OUTPUT_MARK_NONE = -1, OUTPUT_MARK_CUT = -2 /* the text ends inside one */ };
int output_mark_at(sh_str text, const char *const *marks, int count);
/* Where the first one begins, and in *which what it is; text.len and NONE when there is none. */
size_t output_mark_find(sh_str text, const char *const *marks, int count, int *which);

/* call.c: the bodies of calls whose arguments are JSON. */
bool output_step_object(sh_output *o); /* {"name": ..., "arguments": {...}}, or a list of them */
bool output_step_head(sh_output *o);   /* name, then the object */
bool output_step_either(sh_output *o);
bool output_step_args(sh_output *o); /* the object alone: the name is known */

/* tags.c: those whose arguments stand between tags; and the request's tools. */
bool output_step_tags(sh_output *o);
const cJSON *output_tool_find(const sh_output *o, sh_str name);
unsigned output_json_type(sh_str text); /* of a text that is JSON as a whole, else 0 */

/* harmony.c */
bool output_step_harmony(sh_output *o);

#endif
