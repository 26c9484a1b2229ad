/* field.h - the fields of a request as a table.
 *
 * One row per field: its type, range, default and meaning, and where its value goes. The same table
 * validates requests and writes the schema of the OpenAPI document, so the two cannot differ.
 *
 * A field that this server does not support and that would change the answer has a row too: it is
 * refused by name unless it has a value that changes nothing. Names without a row are ignored, and
 * reported to the client in a header.
 *
 * Threads: pure functions over constant tables. */
#ifndef SH_API_FIELD_H
#define SH_API_FIELD_H

#include "api/error.h"
#include "api/json_writer.h"
#include "base/json.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum {
    SH_FIELD_BOOL,    /* bool */
    SH_FIELD_INT,     /* int64_t in min..max */
    SH_FIELD_NUMBER,  /* double in min..max */
    SH_FIELD_STRING,  /* const char *, at most max bytes; one of `choices` if there are any */
    SH_FIELD_JSON,    /* const cJSON *, of one of `kinds`; its contents are checked elsewhere */
    SH_FIELD_OBJECT,  /* its fields are those of `inner`, in the same struct */
    SH_FIELD_IGNORED, /* accepted, without effect on the answer */
    SH_FIELD_REFUSED, /* not supported: only `neutral` is accepted */
} sh_field_type;

/* For SH_FIELD_JSON. */
enum {
    SH_KIND_BOOL = 1,
    SH_KIND_NUMBER = 2,
    SH_KIND_STRING = 4,
    SH_KIND_ARRAY = 8,
    SH_KIND_OBJECT = 16,
};

typedef struct sh_field_table sh_field_table;

typedef struct {
    const char *name;
    sh_field_type type;
    bool required;
    int kinds;
    double min, max;
    const char *fallback; /* default as JSON; NULL: the value is left unchanged */
    const char *choices;  /* "a|b" */
    const char *neutral;  /* REFUSED: JSON values that are accepted, by '|'; null always is */
    const char *schema;   /* JSON: its JSON Schema; NULL: derived from `kinds` */
    const char *meaning;  /* one sentence */
    size_t offset;
    const sh_field_table *inner;
} sh_field;

struct sh_field_table {
    const sh_field *rows;
    size_t count;
    const sh_field_table *more; /* rows shared with other tables, or NULL */
};

/* Sets the defaults, then the values that obj has; strings and JSON are borrowed from obj. */
bool sh_fields_read(const sh_field_table *table, const cJSON *obj, void *out, sh_api_error *err);

/* Appends the names in obj that have no row, separated by ", ": misspelt ones, or of newer versions
 * of an API. Those of inner objects have the name of the object before them. They are the client's
 * text, cut to what fits into a header. */
void sh_fields_unknown(const sh_field_table *table, const cJSON *obj, sh_buf *out);

/* Appends one such name. outer: the object that it is in, or NULL. */
void sh_fields_note(sh_buf *out, const char *outer, const char *name);

/* The JSON Schema of the table: one object. `rules`: a list of JSON Schemas, as JSON, that fields
 * must satisfy together; or NULL. */
void sh_fields_schema(const sh_field_table *table, const char *rules, const char *key,
                      sh_json_writer *w);

#endif
