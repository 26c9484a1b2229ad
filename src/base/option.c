/* All sources end in option_take: the one place that converts a text, checks its bounds and decides
 * by the precedence of its source whether it replaces the current value. Sources can therefore be
 * read in any order, and every error looks the same.
 *
 * For each row we remember the text and where it came from (source, alias, file and line), because
 * `--print-config` and `config check` show it, and because the launcher passes the given texts on
 * to other hosts instead of reformatting values.
 *
 * A .env file in the current folder that the user did not name is the least trusted source: while
 * it is read `implicit` is set, and rows with runs_code are skipped. Without that, unpacking an
 * archive and starting Shoal in it could load a library of the archive's author. */
#include "base/option.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/file.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MAX = 1 << 20, NAME_MAX_LEN = 128 };

struct value_state {
    sh_option_source source;
    const char *text;  /* as given; in the arena */
    const char *alias; /* the name it was given under */
    const char *path;  /* the file it came from, or NULL */
    int line;
    bool implicit; /* the user did not name that file */
};

struct sh_options {
    const sh_option_table *table;
    void *settings;
    struct value_state *states;  /* one per row */
    struct value_state *ignored; /* one per ignored variable */
    sh_arena arena;
    sh_buf notices;
    sh_buf warnings;
    sh_buf faults;
    bool collect;
    const char *path; /* the file being read, or NULL */
    int line;
    bool implicit;
};

static const char *const source_names[] = {"default", "file", ".env", "environment", "flag"};

static void *slot(sh_options *opts, const sh_option *row)
{
    return (char *)opts->settings + row->offset;
}

static bool choice_has(const char *choices, sh_str text)
{
    sh_str rest = sh_str_of(choices), one;
    while (sh_str_cut(&rest, '|', &one))
        if (sh_str_eq(one, text)) return true;
    return false;
}

static bool to_bool(sh_str text, bool *out)
{
    static const char *const words[][2] = {
        {"true", "false"}, {"1", "0"}, {"yes", "no"}, {"on", "off"}};
    for (size_t i = 0; i < SH_COUNT_OF(words); i++)
        for (int no = 0; no < 2; no++)
            if (sh_str_is(text, words[i][no])) {
                *out = no == 0;
                return true;
            }
    return false;
}

static void allowed_text(const sh_option *row, sh_buf *out)
{
    switch (row->type) {
    case SH_OPT_BOOL: sh_buf_add_text(out, "true or false"); break;
    case SH_OPT_INT:
        sh_buf_addf(out, "a whole number from %.0f to %.0f", row->min, row->max);
        break;
    case SH_OPT_FLOAT: sh_buf_addf(out, "a number from %g to %g", row->min, row->max); break;
    case SH_OPT_SIZE:
        sh_buf_addf(out, "bytes from %.0f to %.0f, such as 512M or 1.5G", row->min, row->max);
        break;
    case SH_OPT_CHOICE: sh_buf_addf(out, "one of %s", row->choices); break;
    case SH_OPT_STRING:
    case SH_OPT_PATH:
    case SH_OPT_MODEL:
    case SH_OPT_SECRET: sh_buf_add_text(out, "non-empty text"); break;
    }
}

/* The one text for all bad values. Secrets are never repeated, since errors end up in logs. */
static sh_status refuse(const sh_option *row, const char *name, const char *text, sh_err *err)
{
    sh_buf allowed = {0};
    allowed_text(row, &allowed);
    const char *shown = row->type == SH_OPT_SECRET ? "(hidden)" : text;
    sh_err_set(err, SH_ERR_INPUT, "%s: '%s' is not allowed; it takes %s", name, shown, allowed.ptr);
    sh_buf_reset(&allowed);
    return err->status;
}

/* Converts the text and stores it in the settings. `text` must be in the arena or in the table,
 * since strings are stored as pointers. */
static sh_status value_store(sh_options *opts, const sh_option *row, const char *name,
                             const char *text, sh_err *err)
{
    sh_str str = sh_str_of(text);
    double number = 0;
    int64_t whole = 0;
    bool yes = false, ok = true;
    switch (row->type) {
    case SH_OPT_BOOL:
        if ((ok = to_bool(str, &yes))) *(bool *)slot(opts, row) = yes;
        break;
    case SH_OPT_INT:
        ok = sh_str_to_int(str, &whole) && (double)whole >= row->min && (double)whole <= row->max;
        if (ok) *(int64_t *)slot(opts, row) = whole;
        break;
    case SH_OPT_FLOAT:
        ok = sh_str_to_double(str, &number) && number >= row->min && number <= row->max;
        if (ok) *(double *)slot(opts, row) = number;
        break;
    case SH_OPT_SIZE:
        ok = sh_str_to_bytes(str, &number) && number >= row->min && number <= row->max;
        if (ok) *(int64_t *)slot(opts, row) = (int64_t)number;
        break;
    case SH_OPT_CHOICE: ok = choice_has(row->choices, str); /* fall through */
    case SH_OPT_STRING:
    case SH_OPT_PATH:
    case SH_OPT_MODEL:
    case SH_OPT_SECRET:
        ok = ok && str.len > 0;
        if (ok) *(const char **)slot(opts, row) = text;
        break;
    }
    return ok ? SH_OK : refuse(row, name, text, err);
}

/* A bad value either ends the parsing or, when collecting, becomes a line of the faults. */
static sh_status fail_or_collect(sh_options *opts, sh_status status, const sh_err *err)
{
    if (status == SH_OK || !opts->collect) return status;
    sh_buf_addf(&opts->faults, "%s\n", err->text);
    return SH_OK;
}

static void warn_runs_code(sh_options *opts, const sh_option *row, const char *name)
{
    sh_buf_addf(
        &opts->warnings,
        "%s:%d: %s is ignored: it can run code or give a secret away, and you did not name this "
        "file; pass --%s, set it in the environment, or name the file with --env-file %s\n",
        opts->path, opts->line, name, sh_option_flag(row), opts->path);
}

static const char *joined(sh_options *opts, const char *first, const char *second)
{
    char *both = sh_asprintf("%s\n%s", first, second);
    const char *kept = sh_arena_str(&opts->arena, sh_str_of(both)).ptr;
    free(both);
    return kept;
}

static bool is_beside_file(const sh_option *row, sh_str text)
{
    if (row->type == SH_OPT_MODEL)
        return sh_str_starts(text, SH_STR("./")) || sh_str_starts(text, SH_STR("../"));
    return row->type == SH_OPT_PATH && text.len > 0 && strchr("/[{", text.ptr[0]) == NULL &&
           !sh_str_is(text, "-") && !sh_str_starts(text, SH_STR("~/"));
}

/* The text to keep: paths in a file are meant from where the file is, so that it says the same
 * wherever the program is started. */
static const char *text_keep(sh_options *opts, const sh_option *row, sh_str text)
{
    const char *slash = opts->path == NULL ? NULL : strrchr(opts->path, '/');
    if (slash == NULL || !is_beside_file(row, text)) return sh_arena_str(&opts->arena, text).ptr;
    char *path = sh_asprintf("%.*s/%.*s", (int)(slash - opts->path), opts->path, (int)text.len,
                             text.ptr);
    const char *kept = sh_arena_str(&opts->arena, sh_str_of(path)).ptr;
    free(path);
    return kept;
}

/* Sources are ordered by precedence (see sh_option_source): a value from a weaker source than the
 * current one is dropped without looking at it. */
static sh_status option_take(sh_options *opts, const sh_option *row, sh_option_source source,
                             const char *name, sh_str text, sh_err *err)
{
    struct value_state *state = &opts->states[row - opts->table->rows];
    if (state->source > source) return SH_OK;
    if (opts->implicit && row->runs_code) {
        warn_runs_code(opts, row, name);
        return SH_OK;
    }
    /* The same name twice is fine, the last one wins (a flag repeated in a script). Two different
     * aliases with different values are a mistake whichever we would pick. */
    const char *copy = text_keep(opts, row, text);
    bool same = state->source == source && state->alias != NULL;
    bool again = same && strcmp(state->alias, name) != 0;
    if (same && !again && row->repeats) copy = joined(opts, state->text, copy);
    if (again && strcmp(state->text, copy) != 0)
        return sh_err_set(err, SH_ERR_INPUT,
                          "%s and %s are the same setting but have different values", state->alias,
                          name);
    sh_status status = value_store(opts, row, name, copy, err);
    if (status != SH_OK) return status;
    *state = (struct value_state){.source = source,
                                  .text = copy,
                                  .alias = sh_arena_str(&opts->arena, sh_str_of(name)).ptr,
                                  .path = opts->path,
                                  .line = opts->line,
                                  .implicit = opts->implicit};
    return SH_OK;
}

sh_options *sh_options_create(const sh_option_table *table, void *settings)
{
    sh_options *opts = sh_alloc(sizeof(*opts));
    opts->table = table;
    opts->settings = settings;
    opts->states = sh_alloc_array(table->count, sizeof(*opts->states));
    opts->ignored = sh_alloc_array(table->ignored_count, sizeof(*opts->ignored));
    for (size_t i = 0; i < table->count; i++) {
        const sh_option *row = &table->rows[i];
        if (row->fallback == NULL) continue;
        sh_err err; /* defaults must obey their own bounds; a unit test creates the whole table */
        sh_status status = value_store(opts, row, row->name, row->fallback, &err);
        SH_ASSERT(status == SH_OK);
        opts->states[i].text = row->fallback;
    }
    return opts;
}

void sh_options_free(sh_options *opts)
{
    if (opts == NULL) return;
    free(opts->states);
    free(opts->ignored);
    sh_arena_reset(&opts->arena);
    sh_buf_reset(&opts->notices);
    sh_buf_reset(&opts->warnings);
    sh_buf_reset(&opts->faults);
    free(opts);
}

const char *sh_option_flag(const sh_option *row)
{
    return row->flag == NULL ? row->name : row->flag;
}

static const sh_option *row_by_name(const sh_option_table *table, sh_str name)
{
    for (size_t i = 0; i < table->count; i++)
        if (sh_str_is(name, table->rows[i].name)) return &table->rows[i];
    return NULL;
}

void sh_option_env_name(const sh_option_table *table, const sh_option *row, sh_buf *out)
{
    sh_buf_add_text(out, table->env_prefix);
    for (const char *p = row->name; *p != '\0'; p++)
        sh_buf_add_char(out, *p == '-' ? '_' : (char)toupper((unsigned char)*p));
}

/* Every row has its own SHOAL_NAME, and may have aliases that other programs use. */
static bool row_has_env(const sh_option_table *table, const sh_option *row, sh_str name)
{
    sh_str rest = sh_str_of(row->aliases), alias;
    while (sh_str_cut(&rest, ' ', &alias))
        if (sh_str_eq(alias, name)) return true;
    sh_buf own = {0};
    sh_option_env_name(table, row, &own);
    bool same = sh_str_eq(sh_buf_str(&own), name);
    sh_buf_reset(&own);
    return same;
}

const sh_option *sh_option_by_env(const sh_option_table *table, sh_str name)
{
    for (size_t i = 0; i < table->count; i++)
        if (row_has_env(table, &table->rows[i], name)) return &table->rows[i];
    return NULL;
}

/* False if the name is not in the list of ignored variables. */
static bool ignored_take(sh_options *opts, sh_option_source source, sh_str name, sh_str text)
{
    bool known = false;
    for (size_t i = 0; i < opts->table->ignored_count; i++) {
        const sh_option_ignored *row = &opts->table->ignored[i];
        struct value_state *state = &opts->ignored[i];
        if (!sh_str_is(name, row->name)) continue;
        known = true;
        if (state->source > source) continue;
        if (!row->quiet && state->text == NULL)
            sh_buf_addf(&opts->notices, "%s is not used here: %s\n", row->name, row->why);
        *state = (struct value_state){.source = source,
                                      .text = sh_arena_str(&opts->arena, text).ptr,
                                      .path = opts->path,
                                      .line = opts->line};
    }
    return known;
}

/* Unknown names are skipped without a word: the environment is full of other programs' variables.
 */
static sh_status env_take(sh_options *opts, sh_option_source source, sh_str name, sh_str text,
                          sh_err *err)
{
    const sh_option *row = sh_option_by_env(opts->table, name);
    if (row == NULL) {
        ignored_take(opts, source, name, text);
        return SH_OK;
    }
    if (text.len == 0) return SH_OK; /* NAME= is how scripts unset a variable */
    char shown[NAME_MAX_LEN] = {0};
    memcpy(shown, name.ptr, name.len < sizeof(shown) - 1 ? name.len : sizeof(shown) - 1);
    return option_take(opts, row, source, shown, text, err);
}

sh_status sh_options_parse_env(sh_options *opts, char *const *envp, sh_err *err)
{
    for (; *envp != NULL; envp++) {
        sh_str rest = sh_str_of(*envp), name;
        if (!sh_str_cut(&rest, '=', &name)) continue;
        sh_status status = env_take(opts, SH_FROM_ENV, name, rest, err);
        if (fail_or_collect(opts, status, err) != SH_OK) return status;
    }
    return SH_OK;
}

/* Replaces ${NAME} and $NAME by their values in the environment, or by nothing if unset. A '$' that
 * does not start a name is kept. */
static void expand(sh_str text, sh_buf *out)
{
    for (size_t i = 0; i < text.len;) {
        size_t start = i + 1, brace = 0;
        if (text.ptr[i] == '$' && start < text.len && text.ptr[start] == '{') brace = 1;
        size_t end = start + brace;
        while (end < text.len && (isalnum((unsigned char)text.ptr[end]) || text.ptr[end] == '_'))
            end++;
        bool closed = brace == 0 || (end < text.len && text.ptr[end] == '}');
        if (text.ptr[i] != '$' || end == start + brace || !closed) {
            sh_buf_add_char(out, text.ptr[i++]);
            continue;
        }
        char *name = sh_strndup(text.ptr + start + brace, end - start - brace);
        const char *value = getenv(name);
        free(name);
        if (value != NULL) sh_buf_add_text(out, value);
        i = end + brace;
    }
}

/* The value of a line: quotes and a trailing comment removed, variables expanded except in single
 * quotes, as in a shell. False if a quote is not closed or is followed by more text. */
static bool line_value(sh_str raw, sh_buf *out)
{
    raw = sh_str_trim(raw);
    if (raw.len > 0 && (raw.ptr[0] == '"' || raw.ptr[0] == '\'')) {
        char quote = raw.ptr[0];
        sh_str inner = {raw.ptr + 1, raw.len - 1};
        size_t end = sh_str_find(inner, (sh_str){&quote, 1}, 0);
        if (end == inner.len) return false;
        sh_str after = sh_str_trim(sh_str_sub(inner, end + 1, inner.len));
        if (after.len > 0 && after.ptr[0] != '#') return false;
        inner.len = end;
        if (quote == '"')
            expand(inner, out);
        else
            sh_buf_add_str(out, inner);
        return true;
    }
    size_t comment = sh_str_find(raw, SH_STR(" #"), 0); /* "a#b" is a value, "a #b" is not */
    expand(sh_str_trim(sh_str_sub(raw, 0, comment)), out);
    return true;
}

typedef sh_status (*line_fn)(sh_options *opts, sh_str name, sh_str value, sh_err *err);

static sh_status line_parse(sh_options *opts, sh_str line, line_fn take, sh_err *err)
{
    line = sh_str_trim(line);
    if (line.len == 0 || line.ptr[0] == '#') return SH_OK;
    if (sh_str_starts(line, SH_STR("export "))) line = sh_str_trim(sh_str_sub(line, 7, line.len));
    size_t eq = sh_str_find(line, SH_STR("="), 0);
    if (eq == line.len || eq == 0) return sh_err_set(err, SH_ERR_INPUT, "expected NAME=value");
    sh_buf value = {0};
    sh_status status;
    if (!line_value(sh_str_sub(line, eq + 1, line.len), &value))
        status = sh_err_set(err, SH_ERR_INPUT, "unbalanced quotes");
    else
        status = take(opts, sh_str_trim(sh_str_sub(line, 0, eq)), sh_buf_str(&value), err);
    sh_buf_reset(&value);
    return status;
}

void sh_options_set_file(sh_options *opts, const char *path)
{
    opts->path = path == NULL ? NULL : sh_arena_str(&opts->arena, sh_str_of(path)).ptr;
    opts->line = 0;
}

/* opts->path and line are set while the file is read, for the origin of values and for errors. */
static sh_status lines_parse(sh_options *opts, sh_str rest, const char *path, line_fn take,
                             sh_err *err)
{
    sh_status status = SH_OK;
    sh_str line;
    sh_options_set_file(opts, path);
    for (opts->line = 1; status == SH_OK && sh_str_cut(&rest, '\n', &line); opts->line++) {
        status = line_parse(opts, line, take, err);
        if (status != SH_OK) sh_err_prefix(err, "%s:%d", path, opts->line);
        status = fail_or_collect(opts, status, err);
    }
    sh_options_set_file(opts, NULL);
    return status;
}

static sh_status take_dotenv(sh_options *opts, sh_str name, sh_str value, sh_err *err)
{
    return env_take(opts, SH_FROM_DOTENV, name, value, err);
}

sh_status sh_options_parse_dotenv(sh_options *opts, const char *path, bool must, sh_err *err)
{
    sh_buf text = {0};
    if (!must && !sh_file_exists(path)) return SH_OK;
    sh_status status = must ? sh_file_read(path, FILE_MAX, &text, err)
                            : sh_file_read_own(path, SH_OTHERS_WRITE, FILE_MAX, &text, err);
    if (status != SH_OK && !must) {
        sh_buf_addf(&opts->warnings, "%s is ignored: %s; use --env-file %s to read it anyway\n",
                    path, err->text, path);
        return SH_OK;
    }
    opts->implicit = !must;
    if (status == SH_OK) status = lines_parse(opts, sh_buf_str(&text), path, take_dotenv, err);
    opts->implicit = false;
    sh_buf_reset(&text);
    return status;
}

sh_status sh_options_set(sh_options *opts, sh_option_source source, sh_str name, sh_str text,
                         sh_err *err)
{
    const sh_option *row = row_by_name(opts->table, name);
    if (row != NULL) return option_take(opts, row, source, row->name, text, err);
    if (sh_option_by_env(opts->table, name) != NULL) return env_take(opts, source, name, text, err);
    if (ignored_take(opts, source, name, text)) return SH_OK;
    return sh_err_set(err, SH_ERR_NOT_FOUND, "'%.*s' is not a setting", (int)name.len, name.ptr);
}

/* Unlike in the environment, a name that we do not know is an error: the file is ours alone. */
static sh_status take_file(sh_options *opts, sh_str name, sh_str value, sh_err *err)
{
    const sh_option *row = row_by_name(opts->table, name);
    if (row == NULL)
        return sh_err_set(err, SH_ERR_INPUT, "'%.*s' is not a setting", (int)name.len, name.ptr);
    return option_take(opts, row, SH_FROM_FILE, row->name, value, err);
}

sh_status sh_options_parse_file(sh_options *opts, const char *path, sh_err *err)
{
    sh_buf text = {0};
    sh_status status = sh_file_read(path, FILE_MAX, &text, err);
    if (status == SH_OK && sh_str_starts(sh_str_trim(sh_buf_str(&text)), SH_STR("{")))
        status = sh_options_parse_json(opts, sh_buf_str(&text), path, err);
    else if (status == SH_OK)
        status = lines_parse(opts, sh_buf_str(&text), path, take_file, err);
    sh_buf_reset(&text);
    return status;
}

static sh_status unknown_flag(const sh_option_table *table, uint64_t command, sh_str name,
                              sh_err *err)
{
    sh_suggestion meant = {.typed = name};
    for (size_t i = 0; i < table->count; i++) {
        const sh_option *row = &table->rows[i];
        if ((row->commands & command) != 0 && !row->hidden)
            sh_suggestion_try(&meant, sh_option_flag(row));
    }
    if (meant.name == NULL)
        return sh_err_set(err, SH_ERR_INPUT, "unknown flag --%.*s", (int)name.len, name.ptr);
    return sh_err_set(err, SH_ERR_INPUT, "unknown flag --%.*s; did you mean --%s?", (int)name.len,
                      name.ptr, meant.name);
}

static const sh_option *row_of_command(const sh_options *opts, uint64_t command, sh_str flag)
{
    for (size_t i = 0; i < opts->table->count; i++) {
        const sh_option *row = &opts->table->rows[i];
        bool same = sh_str_is(flag, sh_option_flag(row)) ||
                    (row->also != NULL && sh_str_is(flag, row->also));
        if ((row->commands & command) != 0 && same) return row;
    }
    return NULL;
}

/* The flag that "-x" stands for, or NULL. */
static const char *flag_of_letter(const sh_options *opts, uint64_t command, const char *arg)
{
    if (arg[0] != '-' || arg[1] == '\0' || arg[2] != '\0') return NULL;
    for (size_t i = 0; i < opts->table->count; i++) {
        const sh_option *row = &opts->table->rows[i];
        if ((row->commands & command) != 0 && row->letter == arg[1]) return sh_option_flag(row);
    }
    return NULL;
}

static bool flag_ignored(sh_options *opts, sh_str name)
{
    char *flag = sh_asprintf("--%.*s", (int)name.len, name.ptr);
    bool known = ignored_take(opts, SH_FROM_FLAG, sh_str_of(flag), SH_STR("true"));
    free(flag);
    return known;
}

/* Parses one flag without its dashes. `next` is the following argument or NULL; *used is 2 if it
 * was taken as the value. A boolean never takes it, so that "--verbose FILE" keeps FILE. */
static sh_status flag_parse(sh_options *opts, uint64_t command, const char *text, const char *next,
                            int *used, sh_err *err)
{
    sh_str rest = sh_str_of(text), name;
    bool has_value = strchr(text, '=') != NULL;
    if (!sh_str_cut(&rest, '=', &name)) name = rest;
    const sh_option *row = row_of_command(opts, command, name);
    sh_str value = rest;
    *used = 1;
    if (row == NULL && !has_value && sh_str_starts(name, SH_STR("no-"))) {
        row = row_of_command(opts, command, sh_str_sub(name, 3, name.len));
        if (row != NULL && row->type != SH_OPT_BOOL) row = NULL;
        value = SH_STR("false");
    } else if (row != NULL && row->type == SH_OPT_BOOL && !has_value) {
        value = SH_STR("true");
    } else if (row != NULL && !has_value) {
        if (next == NULL)
            return sh_err_set(err, SH_ERR_INPUT, "--%s needs a value", sh_option_flag(row));
        value = sh_str_of(next);
        *used = 2;
    }
    if (row == NULL && flag_ignored(opts, name)) return SH_OK;
    if (row == NULL) return unknown_flag(opts->table, command, name, err);
    char shown[NAME_MAX_LEN] = "--";
    strncat(shown, sh_option_flag(row), sizeof(shown) - 3);
    return option_take(opts, row, SH_FROM_FLAG, shown, value, err);
}

/* Compacts argv in place: flags are removed, everything else moves to the front. A single "-x" that
 * is not a letter of this command stays an argument: it may be a negative number. */
sh_status sh_options_parse_flags(sh_options *opts, uint64_t command, int argc, char **argv,
                                 int *count_left, sh_err *err)
{
    int left = 0;
    for (int i = 0; i < argc;) {
        if (strcmp(argv[i], "--") == 0) {
            while (++i < argc) argv[left++] = argv[i];
            break;
        }
        const char *flag = strncmp(argv[i], "--", 2) == 0 ? argv[i] + 2
                                                          : flag_of_letter(opts, command, argv[i]);
        if (flag == NULL) {
            argv[left++] = argv[i++];
            continue;
        }
        int used;
        sh_status status = flag_parse(opts, command, flag, i + 1 < argc ? argv[i + 1] : NULL, &used,
                                      err);
        if (fail_or_collect(opts, status, err) != SH_OK) return status;
        i += used;
    }
    *count_left = left;
    return SH_OK;
}

sh_option_source sh_options_source(const sh_options *opts, const char *name)
{
    const sh_option *row = row_by_name(opts->table, sh_str_of(name));
    SH_ASSERT(row != NULL);
    return opts->states[row - opts->table->rows].source;
}

bool sh_options_given(const sh_options *opts, const char *name)
{
    return sh_options_source(opts, name) != SH_FROM_DEFAULT;
}

void sh_options_each_given(const sh_options *opts, sh_option_fn fn, void *arg)
{
    for (size_t i = 0; i < opts->table->count; i++)
        if (opts->states[i].source != SH_FROM_DEFAULT)
            fn(arg, &opts->table->rows[i], opts->states[i].text);
}

sh_str sh_options_notices(const sh_options *opts)
{
    return sh_buf_str(&opts->notices);
}

sh_str sh_options_warnings(const sh_options *opts)
{
    return sh_buf_str(&opts->warnings);
}

bool sh_options_is_implicit(const sh_options *opts, const char *name)
{
    const sh_option *row = row_by_name(opts->table, sh_str_of(name));
    SH_ASSERT(row != NULL);
    return opts->states[row - opts->table->rows].implicit;
}

void sh_options_collect(sh_options *opts)
{
    opts->collect = true;
}

sh_str sh_options_faults(const sh_options *opts)
{
    return sh_buf_str(&opts->faults);
}

/* Only files of lines have numbers of lines. */
static void place_add(const struct value_state *state, sh_buf *out)
{
    sh_buf_add_text(out, state->path != NULL ? state->path : source_names[state->source]);
    if (state->line > 0) sh_buf_addf(out, ":%d", state->line);
}

const char *sh_options_ignored_text(const sh_options *opts, size_t idx, sh_buf *from)
{
    const struct value_state *state = &opts->ignored[idx];
    if (state->text == NULL) return NULL;
    place_add(state, from);
    return state->text;
}

static void origin_add(const struct value_state *state, sh_buf *out)
{
    place_add(state, out);
    if (state->source == SH_FROM_ENV || state->source == SH_FROM_DOTENV)
        sh_buf_addf(out, " %s", state->alias);
}

void sh_options_origin(const sh_options *opts, const char *name, sh_buf *out)
{
    const sh_option *row = row_by_name(opts->table, sh_str_of(name));
    SH_ASSERT(row != NULL);
    origin_add(&opts->states[row - opts->table->rows], out);
}

void sh_options_print(const sh_options *opts, uint64_t command, sh_buf *out)
{
    for (size_t i = 0; i < opts->table->count; i++) {
        const sh_option *row = &opts->table->rows[i];
        const struct value_state *state = &opts->states[i];
        if ((row->commands & command) == 0) continue;
        const char *text = state->text == NULL ? "" : state->text;
        if (row->type == SH_OPT_SECRET && text[0] != '\0') text = "(hidden)";
        sh_buf_addf(out, "%s = %s  # ", row->name, text);
        origin_add(state, out);
        sh_buf_add_char(out, '\n');
    }
}
