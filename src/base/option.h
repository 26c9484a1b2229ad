/* option.h - table-driven options.
 *
 * One table of sh_option describes every setting of the program: its flag, environment variables,
 * type, bounds, default and help. Flags, environment, `.env`, the settings file, `--help`,
 * `--print-config` and the reference page are all driven by it. Values are stored in one plain
 * struct (the program's settings) at the offset that the row gives.
 *
 * Precedence: flag, environment, `.env`, settings file, default. Two aliases that disagree within
 * one source are an error. The error for a rejected value says what is allowed.
 *
 * Strings in the settings point into the sh_options and live as long as it does.
 *
 * Threads: filled before threads start, read-only afterwards. */
#ifndef SH_BASE_OPTION_H
#define SH_BASE_OPTION_H

#include "base/buf.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
    SH_OPT_BOOL,   /* bool: --x, --no-x; true/false, 1/0, yes/no, on/off elsewhere */
    SH_OPT_INT,    /* int64_t in min..max */
    SH_OPT_FLOAT,  /* double in min..max */
    SH_OPT_SIZE,   /* int64_t bytes in min..max: 512, 64K, 1.5G (powers of 1024) */
    SH_OPT_STRING, /* const char *; NULL if unset and without a default */
    SH_OPT_PATH,   /* like STRING: a file or folder here. A relative one that stands in a file is
                      relative to that file's folder; "-", "~/x" and JSON are kept as given */
    SH_OPT_MODEL,  /* like STRING: a path if it begins with "./" or "../", else perhaps a name */
    SH_OPT_SECRET, /* like STRING, never shown */
    SH_OPT_CHOICE, /* const char *, one of `choices` */
} sh_option_type;

typedef struct {
    const char *name; /* unique; the flag without its dashes, words joined by '-' */
    const char *flag; /* the flag, if it differs from the name: two commands may give one flag
                         different meanings; else NULL */
    const char *also; /* a second flag that does the same, as another program calls it; or NULL */
    char letter;      /* 'n' for -n; 0 for none */
    sh_option_type type;
    const char *value_name; /* in help: "DIR", "N"; NULL for BOOL */
    const char *fallback;   /* default as text; NULL: unset (0, false, NULL) */
    double min, max;        /* INT, FLOAT, SIZE */
    const char *choices;    /* CHOICE: "a|b|c" */
    const char *aliases;    /* other environment names, separated by spaces, or NULL */
    const char *help;       /* one sentence, no full stop */
    const char *section;    /* the heading in help of this row and those after it; NULL: as above */
    bool hidden;            /* only --help --all lists it: internal, or rarely needed */
    size_t offset;          /* of the value in the settings */
    uint64_t commands;      /* bit mask of the commands that accept it as a flag */
    bool runs_code;         /* can load a library, start a program, or decide who gets a secret: see
                               parse_dotenv */
    bool repeats;           /* STRING: the values of a repeated flag are joined by line breaks */
} sh_option;

/* Environment variables and flags of other programs that have no effect here: accepted with a
 * notice. */
typedef struct {
    const char *name; /* of a flag: with its dashes; it takes no value */
    const char *why;
    bool quiet;      /* so common that the notice is shown only on request */
    double min, max; /* if max > min: the bounds of a numeric value */
} sh_option_ignored;

typedef struct {
    const sh_option *rows;
    size_t count;
    const sh_option_ignored *ignored;
    size_t ignored_count;
    const char *env_prefix; /* "SHOAL_": --max-tokens can also be set by SHOAL_MAX_TOKENS */
} sh_option_table;

typedef enum {
    SH_FROM_DEFAULT,
    SH_FROM_FILE,
    SH_FROM_DOTENV,
    SH_FROM_ENV,
    SH_FROM_FLAG,
} sh_option_source;

typedef struct sh_options sh_options;

/* Fills `settings` with the defaults; the caller owns it, and it must outlive the sh_options. */
sh_options *sh_options_create(const sh_option_table *table, void *settings);
void sh_options_free(sh_options *opts);

/* Takes the flags of the command whose bit is `command` out of argv[0..argc): --name VALUE,
 * --name=VALUE, --flag, --no-flag, -n VALUE. Other arguments, and everything after "--", stay in
 * argv in order; *count_left is their number. The error for an unknown flag suggests a similar one.
 */
SH_MUST_CHECK sh_status sh_options_parse_flags(sh_options *opts, uint64_t command, int argc,
                                               char **argv, int *count_left, sh_err *err);

/* Reads the variables of envp ("NAME=value" strings, NULL-terminated). */
SH_MUST_CHECK sh_status sh_options_parse_env(sh_options *opts, char *const *envp, sh_err *err);

/* Reads lines NAME=value with the names of environment variables: '#' comments, optional `export`,
 * quotes, ${NAME} expanded from the environment.
 *
 * With must == false the file was not named by the user: it just happens to be in the current
 * folder. Then a missing file is fine; a file that another user may have written is skipped with a
 * warning; and settings that can run code are ignored with a warning even if the file is our own,
 * since it may have come with a download. */
SH_MUST_CHECK sh_status sh_options_parse_dotenv(sh_options *opts, const char *path, bool must,
                                                sh_err *err);

/* Reads lines `name = value` with the names of flags, or a JSON object whose members are settings,
 * by the names of their flags or variables, or sections of them: {"api": {"port": 1}} is API_PORT.
 */
SH_MUST_CHECK sh_status sh_options_parse_file(sh_options *opts, const char *path, sh_err *err);

/* Sets one option; `name` is that of a flag or of a variable. SH_ERR_NOT_FOUND if there is no such
 * name. */
SH_MUST_CHECK sh_status sh_options_set(sh_options *opts, sh_option_source source, sh_str name,
                                       sh_str text, sh_err *err);

/* The file in which the settings that are set from now on stand, by sh_options_set; NULL: none. */
void sh_options_set_file(sh_options *opts, const char *path);

/* The members of a JSON settings file. */
SH_MUST_CHECK sh_status sh_options_parse_json(sh_options *opts, sh_str text, const char *path,
                                              sh_err *err);

sh_option_source sh_options_source(const sh_options *opts, const char *name);

/* Whether the value comes from anywhere but the default. */
bool sh_options_given(const sh_options *opts, const char *name);

/* Calls fn for each setting that does not have its default, with the text that took precedence;
 * including secrets. */
typedef void (*sh_option_fn)(void *arg, const sh_option *row, const char *text);
void sh_options_each_given(const sh_options *opts, sh_option_fn fn, void *arg);

/* The row that an environment variable of this name sets, or NULL. */
const sh_option *sh_option_by_env(const sh_option_table *table, sh_str name);

/* Notices about ignored variables collected while parsing, one per line. */
sh_str sh_options_notices(const sh_options *opts);

/* Values that were skipped and why, one per line: to be shown whatever the log level. */
sh_str sh_options_warnings(const sh_options *opts);

/* Whether the value comes from a file that the user did not name. */
bool sh_options_is_implicit(const sh_options *opts, const char *name);

/* From now on a bad value does not end the parsing: the error is collected, one per line, and the
 * setting keeps its previous value. */
void sh_options_collect(sh_options *opts);
sh_str sh_options_faults(const sh_options *opts);

/* The text given for row idx of the ignored variables, or NULL if it was not given; appends
 * "environment" or "FILE:LINE" to `from`. */
const char *sh_options_ignored_text(const sh_options *opts, size_t idx, sh_buf *from);

/* Where a setting came from: "default", "flag", "environment API_PORT", ".env:3 API_PORT". */
void sh_options_origin(const sh_options *opts, const char *name, sh_buf *out);

/* "name = value  # origin" for each option of the command (UINT64_MAX: all); secrets are hidden. */
void sh_options_print(const sh_options *opts, uint64_t command, sh_buf *out);

/* The flags of a command as --help shows them, by section; hidden ones only with `all`. Returns how
 * many were left out. */
int sh_options_help(const sh_option_table *table, uint64_t command, bool all, sh_buf *out);

/* A Markdown table of all rows. */
void sh_options_markdown(const sh_option_table *table, sh_buf *out);

/* The flag of a row, without the dashes. */
const char *sh_option_flag(const sh_option *row);

/* Appends what can be given and the default, to follow the sentence of help: " (a|b) [a]". */
void sh_option_range(const sh_option *row, sh_buf *out);

/* Appends SHOAL_NAME of a row to out. */
void sh_option_env_name(const sh_option_table *table, const sh_option *row, sh_buf *out);

#endif
