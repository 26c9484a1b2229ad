#include "model/safetensors_writer.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ALIGN = 8 }; /* of the data in the file */

struct sh_writer {
    char *path;
    char *temporary;
    int fd;
    uint64_t expected; /* bytes of all tensors */
    uint64_t written;
};

static uint64_t tensor_bytes(const sh_tensor *tensor)
{
    uint64_t size = sh_tensor_type_size(tensor->type);
    for (int i = 0; i < tensor->dims; i++) size *= (uint64_t)tensor->shape[i];
    return size;
}

static void add_entry(cJSON *json, const sh_tensor *tensor, uint64_t first)
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

/* Length and header, padded with spaces so that the data is aligned. */
static sh_buf make_header(const sh_tensor *tensors, size_t count, const char *format,
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

static sh_status write_all(const sh_writer *writer, const char *data, size_t len, sh_err *err)
{
    while (len > 0) {
        ssize_t count = write(writer->fd, data, len);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return sh_err_sys(err, "%s", writer->temporary);
        data += count;
        len -= (size_t)count;
    }
    return SH_OK;
}

sh_status sh_writer_open(const char *path, const sh_tensor *tensors, size_t count,
                         const char *format, sh_writer **out, sh_err *err)
{
    sh_writer *writer = sh_alloc(sizeof(*writer));
    sh_buf header = make_header(tensors, count, format, &writer->expected);
    writer->path = sh_strdup(path);
    writer->temporary = sh_asprintf("%s.part", path);
    writer->fd = open(writer->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    sh_status status = writer->fd < 0 ? sh_err_sys(err, "%s", writer->temporary)
                                      : write_all(writer, header.ptr, header.len, err);
    sh_buf_reset(&header);
    if (status == SH_OK)
        *out = writer;
    else
        sh_writer_abort(writer);
    return status;
}

sh_status sh_writer_add(sh_writer *writer, const void *data, size_t len, sh_err *err)
{
    SH_ASSERT(len <= writer->expected - writer->written);
    sh_status status = write_all(writer, data, len, err);
    if (status == SH_OK) writer->written += len;
    return status;
}

static void writer_free(sh_writer *writer)
{
    if (writer->fd >= 0) close(writer->fd);
    free(writer->path);
    free(writer->temporary);
    free(writer);
}

sh_status sh_writer_finish(sh_writer *writer, sh_err *err)
{
    SH_ASSERT(writer->written == writer->expected);
    sh_status status = SH_OK;
    if (fsync(writer->fd) != 0 || rename(writer->temporary, writer->path) != 0)
        status = sh_err_sys(err, "%s", writer->path);
    if (status != SH_OK) unlink(writer->temporary);
    writer_free(writer);
    return status;
}

void sh_writer_abort(sh_writer *writer)
{
    if (writer == NULL) return;
    if (writer->fd >= 0) unlink(writer->temporary);
    writer_free(writer);
}
