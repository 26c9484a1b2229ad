/* option.h - the mechanism of the option table.
 *
 * One table of sh_option describes every setting of the program: its flag, its environment
 * variables, type, bounds, default and help. From it come parsing, `--help`, `.env` and the
 * settings file, `--print-config` and the reference page. Values land in one plain struct (the
 * program's settings) at the offset that the row gives.
 *
 * Order of sources: flag, environment, `.env`, settings file, default. Two aliases in the same
 * source that disagree are an error. A value that is refused is named with what is allowed.
 *
 * Strings in the settings point into the sh_options and live as long as it does.
 *
 * Threads: filled before threads start, read-only behind that. */
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
    SH_OPT_STRING, /* const char *; NULL when unset without a default */
    SH_OPT_SECRET, /* as STRING, never shown */
    SH_OPT_CHOICE, /* const char *, one of `choices` */
} sh_option_type;

typedef struct {
    const char *name; /* unique; the flag without its dashes, words joined by '-' */
    const char *flag; /* where two commands use one flag for different things; else NULL */
    char letter;      /* 'n' for -n; 0 for none */
    sh_option_type type;
    const char *value_name; /* in help: "DIR", "N"; NULL for BOOL */
    const char *fallback;   /* default as text; NULL: unset (0, false, NULL) */
    double min, max;        /* INT, FLOAT, SIZE */
    const char *choices;    /* CHOICE: "a|b|c" */
    const char *aliases;    /* other environment names, separated by spaces, or NULL */
    const char *help;       /* one sentence, no full stop */
    size_t offset;          /* of the value in the settings */
    uint64_t commands;      /* bits of the commands that take it as a flag */
    bool runs_code;         /* names a library, or can make a program run: see parse_dotenv */
} sh_option;

/* Environment names that other programs know and that mean nothing here: accepted with a notice. */
typedef struct {
    const char *name;
    const char *why;
    bool quiet;      /* so common that only who asks is told */
    double min, max; /* with max > min: a number that is allowed there */
} sh_option_ignored;

typedef struct {
    const sh_option *rows;
    size_t count;
    const sh_option_ignored *ignored;
    size_t ignored_count;
    const char *env_prefix; /* "SHOAL_": --max-tokens is SHOAL_MAX_TOKENS too */
} sh_option_table;

typedef enum {
    SH_FROM_DEFAULT,
    SH_FROM_FILE,
    SH_FROM_DOTENV,
    SH_FROM_ENV,
    SH_FROM_FLAG,
} sh_option_source;

typedef struct sh_options sh_options;

/* All values at their defaults, in `settings`, which the caller owns and which must outlive this.
 */
sh_options *sh_options_create(const sh_option_table *table, void *settings);
void sh_options_free(sh_options *opts);

/* Takes the flags of the command whose bit is `command` out of argv[0..argc): --name VALUE,
 * --name=VALUE, --flag, --no-flag, -n VALUE. What is no flag, and all behind "--", is left in argv
 * in order; *count_left says how many. Unknown flags are errors that name a near one. */
SH_MUST_CHECK sh_status sh_options_parse_flags(sh_options *opts, uint64_t command, int argc,
                                               char **argv, int *count_left, sh_err *err);

/* Reads the variables of envp ("NAME=value" strings, a closing NULL). */
SH_MUST_CHECK sh_status sh_options_parse_env(sh_options *opts, char *const *envp, sh_err *err);

/* Reads lines NAME=value with the names of the environment: comments by '#', optional `export`,
 * quotes,
 * ${NAME} from the environment.
 *
 * With must == false nobody named the file: it happens to lie in the current folder. A missing one
 * is fine; one that somebody else may have written is passed over; and settings that can run code
 * are not taken from it even when it is ours, since it may have come with a download. Each of these
 * is a warning. */
SH_MUST_CHECK sh_status sh_options_parse_dotenv(sh_options *opts, const char *path, bool must,
                                                sh_err *err);

/* Reads lines `name = value` with the names of the flags, or a JSON object: members are settings by
 * the names of their flags or variables, or sections of such; {"api": {"port": 1}} is API_PORT. */
SH_MUST_CHECK sh_status sh_options_parse_file(sh_options *opts, const char *path, sh_err *err);

/* Gives one setting a value: `name` is that of a flag or of a variable. SH_ERR_NOT_FOUND when there
 * is none of that name. */
SH_MUST_CHECK sh_status sh_options_take(sh_options *opts, sh_option_source source, sh_str name,
                                        sh_str text, sh_err *err);

/* The members of a JSON settings file. */
SH_MUST_CHECK sh_status sh_options_parse_json(sh_options *opts, sh_str text, const char *path,
                                              sh_err *err);

sh_option_source sh_options_source(const sh_options *opts, const char *name);

/* True when the value was given by anything but the default. */
bool sh_options_given(const sh_options *opts, const char *name);

/* Calls fn for each setting that was given by anything but the default, with the text that won;
 * secrets too. */
typedef void (*sh_option_fn)(void *arg, const sh_option *row, const char *text);
void sh_options_each_given(const sh_options *opts, sh_option_fn fn, void *arg);

/* The row that an environment variable of this name sets; NULL when none. */
const sh_option *sh_option_by_env(const sh_option_table *table, sh_str name);

/* Notices (ignored variables) gathered while parsing, one a line. */
sh_str sh_options_notices(const sh_options *opts);

/* What was not taken and why, one a line: the user should hear of it whatever the log level. */
sh_str sh_options_warnings(const sh_options *opts);

/* True when the value comes from a file that nobody named. */
bool sh_options_is_implicit(const sh_options *opts, const char *name);

/* From now on a value that is refused does not end the parsing: what is wrong is gathered, one a
 * line, and the value stays as it was. */
void sh_options_collect(sh_options *opts);
sh_str sh_options_faults(const sh_options *opts);

/* The text that was given for row idx of the ignored ones, with "environment" or "FILE:LINE" added
 * to `from`; NULL when it was not given. */
const char *sh_options_ignored_text(const sh_options *opts, size_t idx, sh_buf *from);

/* Where a setting came from: "default", "flag", "environment API_PORT", ".env:3 API_PORT". */
void sh_options_origin(const sh_options *opts, const char *name, sh_buf *out);

/* "name = value  # from" for each option of the command (all with UINT64_MAX); secrets are hidden.
 */
void sh_options_print(const sh_options *opts, uint64_t command, sh_buf *out);

/* The flags of a command as --help shows them. */
void sh_options_help(const sh_option_table *table, uint64_t command, sh_buf *out);

/* A Markdown table of all rows. */
void sh_options_markdown(const sh_option_table *table, sh_buf *out);

/* What stands behind the dashes. */
const char *sh_option_flag(const sh_option *row);

/* SHOAL_NAME of a row, written to out. */
void sh_option_env_name(const sh_option_table *table, const sh_option *row, sh_buf *out);

#endif
