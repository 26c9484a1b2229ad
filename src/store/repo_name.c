#include "store/repo_name.h"

#include "base/str.h"

#include <string.h>

enum { FILE_NAME_MAX = 200, FILE_DEPTH_MAX = 4 };

static bool is_plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
}

/* Segments of plain characters between slashes, none of them empty or with a dot in front. */
static bool is_plain_path(sh_str text, size_t most)
{
    sh_str part;
    size_t count = 0;
    if (text.len == 0 || text.ptr[text.len - 1] == '/') return false;
    while (sh_str_cut(&text, '/', &part)) {
        if (++count > most || part.len == 0 || part.ptr[0] == '.') return false;
        for (size_t i = 0; i < part.len; i++)
            if (!is_plain(part.ptr[i])) return false;
        if (sh_str_find(part, SH_STR(".."), 0) < part.len) return false;
    }
    return true;
}

bool sh_revision_is_safe(const char *text)
{
    return strlen(text) < SH_REVISION_MAX && is_plain_path(sh_str_of(text), 4);
}

bool sh_repo_name_parse(const char *text, sh_repo_name *out)
{
    sh_str rest = sh_str_of(text), id = {0};
    bool revised = strchr(text, '@') != NULL;
    if (!sh_str_cut(&rest, '@', &id)) return false;
    if (id.len >= SH_REPO_ID_MAX || !is_plain_path(id, 2)) return false;
    if (revised && !sh_revision_is_safe(rest.len > 0 ? rest.ptr : "")) return false;
    memset(out, 0, sizeof(*out));
    memcpy(out->id, id.ptr, id.len);
    strcpy(out->revision, revised ? rest.ptr : "main");
    return true;
}

bool sh_repo_name_is_full(const sh_repo_name *name)
{
    return strchr(name->id, '/') != NULL;
}

/* Unlike names of models, names of files may have spaces and letters of any script. */
bool sh_file_name_is_safe(const char *path)
{
    sh_str rest = sh_str_of(path), part;
    size_t depth = 0;
    if (rest.len == 0 || rest.len > FILE_NAME_MAX || !sh_utf8_valid(rest.ptr, rest.len) ||
        rest.ptr[rest.len - 1] == '/')
        return false;
    for (size_t i = 0; i < rest.len; i++)
        if ((unsigned char)path[i] < ' ' || path[i] == 0x7f || path[i] == '\\') return false;
    while (sh_str_cut(&rest, '/', &part))
        if (++depth > FILE_DEPTH_MAX || part.len == 0 || part.ptr[0] == '.') return false;
    return true;
}

bool sh_is_hex(const char *text, size_t len)
{
    return strspn(text, "0123456789abcdef") == len && text[len] == '\0';
}

bool sh_is_blob_digest(const char *text)
{
    return sh_is_hex(text, SH_SHA256_LEN) || sh_is_hex(text, SH_COMMIT_LEN);
}
