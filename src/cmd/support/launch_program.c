#include "cmd/support/launch_program.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "cluster/state_dir.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void sh_launch_program_init(sh_launch_program *program, int count, char *const *words)
{
    program->argv = sh_alloc_array((size_t)count + 1, sizeof(*program->argv));
    for (int i = 0; i < count; i++) program->argv[i] = sh_strdup(words[i]);
    char *here = strchr(words[0], '/') == NULL ? NULL : realpath(words[0], NULL);
    if (here != NULL) {
        free(program->argv[0]);
        program->argv[0] = here;
    }
    char *folder = getcwd(NULL, 0);
    program->folder = folder != NULL ? folder : sh_strdup("/");
}

void sh_launch_program_reset(sh_launch_program *program)
{
    for (char **word = program->argv; word != NULL && *word != NULL; word++) free(*word);
    free(program->argv);
    free(program->folder);
    *program = (sh_launch_program){0};
}

void sh_launch_program_write(const sh_launch_program *program, sh_buf *out)
{
    cJSON *json = cJSON_CreateObject(), *words = cJSON_AddArrayToObject(json, "argv");
    for (char **word = program->argv; *word != NULL; word++)
        cJSON_AddItemToArray(words, cJSON_CreateString(*word));
    cJSON_AddStringToObject(json, "folder", program->folder);
    char *text = cJSON_Print(json);
    sh_buf_addf(out, "%s\n", text);
    cJSON_free(text);
    cJSON_Delete(json);
}

static sh_status words_take(const cJSON *json, const char *path, sh_launch_program *out,
                            sh_err *err)
{
    const cJSON *words = cJSON_GetObjectItemCaseSensitive(json, "argv"), *word;
    const cJSON *folder = cJSON_GetObjectItemCaseSensitive(json, "folder");
    size_t count = 0;
    bool fine = cJSON_IsArray(words) && words->child != NULL && cJSON_IsString(folder);
    out->argv = sh_alloc_array((size_t)cJSON_GetArraySize(words) + 1, sizeof(*out->argv));
    cJSON_ArrayForEach(word, words)
    {
        fine = fine && cJSON_IsString(word);
        if (fine) out->argv[count++] = sh_strdup(word->valuestring);
    }
    if (!fine)
        return sh_err_set(err, SH_ERR_INPUT, "%s: must have a list of words 'argv' and a 'folder'",
                          path);
    out->folder = sh_strdup(folder->valuestring);
    return SH_OK;
}

sh_status sh_launch_program_read(const char *state, sh_launch_program *out, sh_err *err)
{
    char *path = sh_path_join(state, SH_LAUNCH_PROGRAM_FILE);
    sh_buf text = {0};
    cJSON *json = NULL;
    *out = (sh_launch_program){0};
    sh_status status = sh_state_dir_read(state, SH_LAUNCH_PROGRAM_FILE, false, &text, err);
    if (status == SH_OK) status = sh_json_parse(sh_buf_str(&text), path, &json, err);
    if (status == SH_OK) status = words_take(json, path, out, err);
    if (status != SH_OK) sh_launch_program_reset(out);
    cJSON_Delete(json);
    sh_buf_reset(&text);
    free(path);
    return status;
}

static bool is_in_path(const char *name)
{
    sh_str rest = sh_str_of(getenv("PATH")), dir;
    bool found = false;
    while (!found && sh_str_cut(&rest, ':', &dir)) {
        char *path = sh_asprintf("%.*s/%s", (int)dir.len, dir.ptr, name);
        found = access(path, X_OK) == 0;
        free(path);
    }
    return found;
}

sh_status sh_launch_program_check(const sh_launch_program *program, sh_err *err)
{
    const char *name = program->argv[0];
    if (strchr(name, '/') != NULL)
        return access(name, X_OK) == 0 ? SH_OK : sh_err_sys(err, "cannot run the program %s", name);
    if (is_in_path(name)) return SH_OK;
    return sh_err_set(err, SH_ERR_NOT_FOUND,
                      "the program '%s' is not in the PATH; one of a folder is named by its path, "
                      "such as ./%s",
                      name, name);
}
