/* An option row of type SECRET lists the commands that take it; a role that is not among them must
 * not see it. So a new secret is protected as soon as it is in the table. */
#include "cmd/support/role.h"

#include "base/alloc.h"
#include "base/system.h"
#include "cmd/command.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_foreign(const sh_option *row, uint64_t role)
{
    return row->type == SH_OPT_SECRET && (row->commands & role) == 0;
}

/* How many words of a command line, from this one on, belong to the flag of a foreign secret: 0, 1
 * ("--flag=value") or 2 ("--flag value"). */
static int foreign_words(uint64_t role, const char *word)
{
    if (strncmp(word, "--", 2) != 0) return 0;
    sh_str rest = sh_str_of(word + 2), flag;
    bool with_value = strchr(word, '=') != NULL;
    if (!sh_str_cut(&rest, '=', &flag)) return 0;
    for (size_t i = 0; i < sh_option_rows.count; i++) {
        const sh_option *row = &sh_option_rows.rows[i];
        if (is_foreign(row, role) && sh_str_is(flag, sh_option_flag(row)))
            return with_value ? 1 : 2;
    }
    return 0;
}

sh_status sh_role_program(char *const *line, char **out, sh_err *err)
{
    if (line[0] == NULL || line[0][0] != '/' || access(line[0], X_OK) != 0)
        return sh_program_path(out, err);
    *out = sh_strdup(line[0]);
    return SH_OK;
}

char **sh_role_argv(uint64_t role, char *program, char *const *line)
{
    size_t count = 0, used = 0;
    while (line[count] != NULL) count++;
    char **argv = sh_alloc_array(count + 2, sizeof(*argv));
    argv[used++] = program;
    for (size_t i = 1; i < count;) {
        int skip = foreign_words(role, line[i]);
        if (skip == 0) argv[used++] = line[i++];
        i += (size_t)skip;
    }
    return argv;
}

char **sh_role_argv_add(char **argv, const char *const *words)
{
    size_t count = 0, added = 0;
    while (argv[count] != NULL) count++;
    while (words[added] != NULL) added++;
    argv = sh_realloc_array(argv, count + added + 1, sizeof(*argv));
    for (size_t i = 0; i <= added; i++) argv[count + i] = (char *)(uintptr_t)words[i];
    return argv;
}

static void name_add(char ***env, size_t *count, char *name)
{
    *env = sh_realloc_array(*env, *count + 2, sizeof(**env));
    (*env)[(*count)++] = name;
    (*env)[*count] = NULL;
}

/* The aliases count too: a secret may be in the environment under any of its names. */
char **sh_role_env(uint64_t role, char *const *env)
{
    char **all = NULL;
    size_t count = 0;
    for (; env != NULL && *env != NULL; env++) name_add(&all, &count, sh_strdup(*env));
    for (size_t i = 0; i < sh_option_rows.count; i++) {
        const sh_option *row = &sh_option_rows.rows[i];
        if (!is_foreign(row, role)) continue;
        sh_buf name = {0};
        sh_option_env_name(&sh_option_rows, row, &name);
        name_add(&all, &count, sh_buf_take(&name));
        sh_str rest = sh_str_of(row->aliases), alias;
        while (sh_str_cut(&rest, ' ', &alias)) name_add(&all, &count, sh_str_dup(alias));
    }
    return all;
}

void sh_role_env_free(char **env)
{
    for (char **p = env; p != NULL && *p != NULL; p++) free(*p);
    free(env);
}
