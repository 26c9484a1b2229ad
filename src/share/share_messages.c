/* Whoever asks has proved the token, but may still be another program or a broken one: requests and
 * outlines are checked like anything else that comes over a wire. Whether a window lies within its
 * file is up to the server, which knows the sizes.
 *
 * Names of files in an outline become names on the disk of the rank that asked. So only names that
 * a model has are allowed. */
#include "share/share_messages.h"

#include "base/pack.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { REQUEST_MAGIC = 0x51524853, REPLY_MAGIC = 0x41524853, OUTLINE_VERSION = 2 };

static void fixed_out(sh_buf *buf, uint8_t *out, size_t len)
{
    SH_ASSERT(buf->len <= len);
    memset(out, 0, len);
    memcpy(out, buf->ptr, buf->len);
    sh_buf_reset(buf);
}

void sh_share_request_pack(const sh_share_request *r, uint8_t out[SH_SHARE_REQUEST_LEN])
{
    sh_buf buf = {0};
    sh_put_uint(&buf, REQUEST_MAGIC, 4);
    sh_put_uint(&buf, (uint64_t)r->kind, 1);
    sh_put_uint(&buf, r->known, 1);
    sh_put_uint(&buf, r->file, 4);
    sh_put_uint(&buf, r->window.offset, 8);
    sh_put_uint(&buf, r->window.stride, 8);
    sh_put_uint(&buf, r->window.len, 8);
    sh_put_uint(&buf, r->window.rows, 8);
    sh_buf_add(&buf, r->digest, SH_DIGEST_LEN);
    fixed_out(&buf, out, SH_SHARE_REQUEST_LEN);
}

static void get_digest(sh_reader *r, uint8_t out[SH_DIGEST_LEN])
{
    const void *bytes = sh_get_array(r, SH_DIGEST_LEN, 1);
    if (bytes != NULL) memcpy(out, bytes, SH_DIGEST_LEN);
}

sh_status sh_share_request_unpack(const uint8_t data[SH_SHARE_REQUEST_LEN], sh_share_request *out,
                                  sh_err *err)
{
    sh_reader r = sh_reader_of((sh_str){(const char *)data, SH_SHARE_REQUEST_LEN});
    uint64_t magic = sh_get_uint(&r, 4), kind = sh_get_uint(&r, 1), known = sh_get_uint(&r, 1);
    *out = (sh_share_request){.kind = (sh_share_kind)kind, .known = known == 1};
    out->file = (uint32_t)sh_get_uint(&r, 4);
    out->window.offset = sh_get_uint(&r, 8);
    out->window.stride = sh_get_uint(&r, 8);
    out->window.len = sh_get_uint(&r, 8);
    out->window.rows = sh_get_uint(&r, 8);
    get_digest(&r, out->digest);
    if (magic != REQUEST_MAGIC || kind < SH_SHARE_OUTLINE || kind >= SH_SHARE_KIND_END || known > 1)
        return sh_err_set(err, SH_ERR_PEER, "received bytes that are not a request for weights");
    return SH_OK;
}

void sh_share_reply_pack(const sh_share_reply *r, uint8_t out[SH_SHARE_REPLY_LEN])
{
    sh_buf buf = {0};
    sh_put_uint(&buf, REPLY_MAGIC, 4);
    sh_put_uint(&buf, (uint64_t)r->answer, 1);
    sh_put_uint(&buf, r->len, 8);
    sh_buf_add(&buf, r->digest, SH_DIGEST_LEN);
    fixed_out(&buf, out, SH_SHARE_REPLY_LEN);
}

/* Only the kind of answer and its general bounds; the caller knows what it asked for. */
sh_status sh_share_reply_unpack(const uint8_t data[SH_SHARE_REPLY_LEN], sh_share_reply *out,
                                sh_err *err)
{
    sh_reader r = sh_reader_of((sh_str){(const char *)data, SH_SHARE_REPLY_LEN});
    uint64_t magic = sh_get_uint(&r, 4), answer = sh_get_uint(&r, 1);
    *out = (sh_share_reply){.answer = (sh_share_answer)answer, .len = sh_get_uint(&r, 8)};
    get_digest(&r, out->digest);
    uint64_t most = answer == SH_SHARE_DATA      ? SH_SHARE_OUTLINE_MAX
                    : answer == SH_SHARE_REFUSED ? SH_SHARE_REFUSAL_MAX
                                                 : 0;
    if (magic != REPLY_MAGIC || answer < SH_SHARE_DATA || answer >= SH_SHARE_ANSWER_END ||
        out->len > most)
        return sh_err_set(err, SH_ERR_PEER,
                          "received bytes that are not an answer to a request for weights");
    return SH_OK;
}

void sh_share_outline_pack(const sh_share_outline *outline, sh_buf *out)
{
    sh_put_uint(out, OUTLINE_VERSION, 4);
    sh_put_text(out, sh_str_of(outline->origin.id));
    sh_put_text(out, sh_str_of(outline->origin.revision));
    sh_put_uint(out, (uint64_t)outline->count, 4);
    for (int i = 0; i < outline->count; i++) {
        const sh_share_file *file = &outline->files[i];
        sh_put_text(out, sh_str_of(file->name));
        sh_put_uint(out, file->size, 8);
        sh_put_uint(out, file->written_ns, 8);
        sh_put_text(out, sh_str_of(file->etag));
        sh_put_text(out, file->start);
    }
}

static bool name_allowed(sh_str name)
{
    if (sh_str_is(name, "config.json") || sh_str_is(name, "model.safetensors.index.json"))
        return true;
    if (name.len > SH_SHARE_NAME_MAX || name.len == 0 || name.ptr[0] == '.') return false;
    for (size_t i = 0; i < name.len; i++)
        if (name.ptr[i] == '/' || (unsigned char)name.ptr[i] < ' ') return false;
    return sh_str_ends(name, SH_STR(".safetensors"));
}

/* Repository and commit become parts of URLs. Either both are given, or none. */
static sh_status origin_get(sh_reader *r, sh_repo_name *out, sh_err *err)
{
    sh_str id = sh_get_text(r), commit = sh_get_text(r);
    *out = (sh_repo_name){0};
    if (r->failed || (id.len == 0 && commit.len == 0)) return SH_OK;
    sh_buf name = {0};
    sh_buf_addf(&name, "%.*s@%.*s", (int)id.len, id.ptr, (int)commit.len, commit.ptr);
    bool known = name.len == id.len + 1 + commit.len && sh_repo_name_parse(name.ptr, out) &&
                 sh_is_hex(out->revision, SH_COMMIT_LEN) && strlen(out->id) == id.len;
    sh_buf_reset(&name);
    return known ? SH_OK
                 : sh_err_set(err, SH_ERR_PEER,
                              "the outline of the model says that it is from the hub, but not by "
                              "ORG/NAME and a commit of %d hex digits",
                              SH_COMMIT_LEN);
}

static bool etag_get(sh_reader *r, char out[SH_BLOB_DIGEST_MAX])
{
    sh_str text = sh_get_text(r);
    out[0] = '\0';
    if (text.len == 0) return true;
    if (text.len >= SH_BLOB_DIGEST_MAX) return false;
    memcpy(out, text.ptr, text.len);
    out[text.len] = '\0';
    return strlen(out) == text.len && sh_is_blob_digest(out);
}

static sh_status file_get(sh_reader *r, sh_arena *arena, sh_share_file *out, sh_err *err)
{
    sh_str name = sh_get_text(r);
    out->size = sh_get_uint(r, 8);
    out->written_ns = sh_get_uint(r, 8);
    bool pinned = etag_get(r, out->etag);
    out->start = sh_get_text(r);
    if (r->failed) return sh_get_end(r, "the outline of the model", err);
    if (!name_allowed(name))
        return sh_err_set(err, SH_ERR_PEER,
                          "the outline of the model has a file '%.*s'; only config.json, the index "
                          "and names that end in .safetensors are allowed",
                          (int)(name.len < 60 ? name.len : 60), name.ptr);
    if (out->start.len > out->size || out->size > INT64_MAX)
        return sh_err_set(err, SH_ERR_PEER,
                          "the outline of the model has %zu bytes of a file of %" PRIu64,
                          out->start.len, out->size);
    if (!pinned)
        return sh_err_set(err, SH_ERR_PEER,
                          "the outline of the model has an ETag of '%.*s' that is not a digest of "
                          "%d or %d hex digits",
                          (int)(name.len < 60 ? name.len : 60), name.ptr, SH_SHA256_LEN,
                          SH_COMMIT_LEN);
    out->name = sh_arena_str(arena, name).ptr;
    return SH_OK;
}

sh_status sh_share_outline_unpack(sh_str bytes, sh_arena *arena, sh_share_outline *out, sh_err *err)
{
    sh_reader r = sh_reader_of(bytes);
    sh_share_outline outline = {0};
    uint64_t version = sh_get_uint(&r, 4);
    sh_status status = origin_get(&r, &outline.origin, err);
    uint64_t count = sh_get_uint(&r, 4);
    if (status != SH_OK) return status;
    if (version != OUTLINE_VERSION || count == 0 || count > SH_SHARE_FILES_MAX)
        return sh_err_set(err, SH_ERR_PEER,
                          "the outline of the model has version %" PRIu64 " and %" PRIu64
                          " files; version %d and 1 to %d files are allowed",
                          version, count, OUTLINE_VERSION, SH_SHARE_FILES_MAX);
    outline.files = sh_arena_array(arena, (size_t)count, sizeof(*outline.files));
    for (uint64_t i = 0; i < count; i++) {
        sh_share_file *file = &outline.files[outline.count++];
        status = file_get(&r, arena, file, err);
        if (status != SH_OK) return status;
        if (i > 0 && strcmp(file[-1].name, file->name) >= 0)
            return sh_err_set(err, SH_ERR_PEER,
                              "the outline of the model is not sorted: '%s' after '%s'", file->name,
                              file[-1].name);
    }
    *out = outline;
    return sh_get_end(&r, "the outline of the model", err);
}

static int by_name(const void *key, const void *file)
{
    return strcmp(key, ((const sh_share_file *)file)->name);
}

int sh_share_outline_find(const sh_share_outline *outline, const char *name)
{
    const sh_share_file *found = bsearch(name, outline->files, (size_t)outline->count,
                                         sizeof(*outline->files), by_name);
    return found == NULL ? -1 : (int)(found - outline->files);
}
