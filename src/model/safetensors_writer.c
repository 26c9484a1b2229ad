/* Streams a safetensors file. The header comes first and holds every offset, so all tensors must be
 * known up front; after that only the count of bytes is checked. The data is synced before the
 * rename: otherwise a crash could leave a file under its final name with holes in it. */
#include "model/safetensors_writer.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ALIGN = 8 }; /* of the data in the file */

struct sh_safetensors_writer {
    sh_draft draft;
    uint64_t expected; /* bytes of all tensors */
    uint64_t written;  /* so far */
};

static uint64_t tensor_bytes(const sh_stored_tensor *tensor)
{
    uint64_t size = sh_tensor_type_size(tensor->type);
    for (int i = 0; i < tensor->dims; i++) size *= (uint64_t)tensor->shape[i];
    return size;
}

static void add_entry(cJSON *json, const sh_stored_tensor *tensor, uint64_t first)
{
    cJSON *entry = cJSON_AddObjectToObject(json, tensor->name);
    cJSON_AddStringToObject(entry, "dtype", sh_tensor_type_name(tensor->type));
    cJSON *shape = cJSON_AddArrayToObject(entry, "shape");
    for (int i = 0; i < tensor->dims; i++)
        cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)tensor->shape[i]));
    cJSON *offsets = cJSON_AddArrayToObject(entry, "data_offsets");
    cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)first));
    cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)(first + tensor_bytes(tensor))));
}

/* Length and header, padded with spaces so that the data starts aligned. */
static sh_buf make_header(const sh_stored_tensor *tensors, size_t count, const char *format,
                          uint64_t *total)
{
    sh_buf out = {0};
    uint8_t prefix[SH_SAFETENSORS_PREFIX];
    cJSON *json = cJSON_CreateObject();
    if (format != NULL)
        cJSON_AddStringToObject(cJSON_AddObjectToObject(json, "__metadata__"), "format", format);
    *total = 0;
    for (size_t i = 0; i < count; i++) {
        add_entry(json, &tensors[i], *total);
        *total += tensor_bytes(&tensors[i]);
    }
    char *text = cJSON_PrintUnformatted(json);
    cJSON_Delete(json);
    SH_ASSERT(text != NULL);
    uint64_t len = sh_str_of(text).len, padded = (len + ALIGN - 1) / ALIGN * ALIGN;
    for (int i = 0; i < SH_SAFETENSORS_PREFIX; i++) prefix[i] = (uint8_t)(padded >> (8 * i));
    sh_buf_add(&out, prefix, sizeof(prefix));
    sh_buf_add(&out, text, (size_t)len);
    for (uint64_t i = len; i < padded; i++) sh_buf_add_char(&out, ' ');
    cJSON_free(text);
    return out;
}

sh_status sh_safetensors_writer_open(const char *path, const sh_stored_tensor *tensors,
                                     size_t count, const char *format, sh_safetensors_writer **out,
                                     sh_err *err)
{
    sh_safetensors_writer *writer = sh_alloc(sizeof(*writer));
    sh_buf header = make_header(tensors, count, format, &writer->expected);
    sh_status status = sh_draft_open(path, ".part", 0644, &writer->draft, err);
    if (status != SH_OK) {
        sh_buf_reset(&header);
        free(writer);
        return status;
    }
    status = sh_draft_add(&writer->draft, header.ptr, header.len, err);
    sh_buf_reset(&header);
    if (status == SH_OK)
        *out = writer;
    else
        sh_safetensors_writer_abort(writer);
    return status;
}

sh_status sh_safetensors_writer_add(sh_safetensors_writer *writer, const void *data, size_t len,
                                    sh_err *err)
{
    SH_ASSERT(len <= writer->expected - writer->written);
    sh_status status = sh_draft_add(&writer->draft, data, len, err);
    if (status == SH_OK) writer->written += len;
    return status;
}

sh_status sh_safetensors_writer_finish(sh_safetensors_writer *writer, sh_err *err)
{
    SH_ASSERT(writer->written == writer->expected);
    sh_status status = SH_OK;
    /* temp is NULL for a pipe or a device, which is written in place and cannot be synced. */
    if (writer->draft.temp != NULL && fsync(writer->draft.fd) != 0)
        status = sh_err_sys(err, "%s", writer->draft.path);
    if (status == SH_OK)
        status = sh_draft_commit(&writer->draft, err);
    else
        sh_draft_drop(&writer->draft);
    free(writer);
    return status;
}

void sh_safetensors_writer_abort(sh_safetensors_writer *writer)
{
    if (writer == NULL) return;
    sh_draft_drop(&writer->draft);
    free(writer);
}
