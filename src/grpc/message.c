#include "grpc/message.h"

#include "base/alloc.h"
#include "grpc/frame.h"

#include <string.h>

/* Texts take as much as on the wire, structs more; ordinary messages stay far below this. */
enum { ROOM_BASE = 4 << 20, ROOM_FACTOR = 2, ITEMS_MAX = 1 << 20 };

typedef struct {
    sh_arena *arena;
    size_t left;
} allowance;

/* The size stands before each block, because that of a text tells where its bytes end. */
static void *block_alloc(void *arg, size_t size)
{
    allowance *room = arg;
    size_t whole = sizeof(max_align_t) + size;
    if (size > room->left || whole > room->left) return NULL;
    room->left -= whole;
    size_t *block = sh_arena_alloc(room->arena, whole);
    *block = size;
    return (char *)block + sizeof(max_align_t);
}

static void block_free(void *arg, void *block)
{
    (void)arg;
    (void)block; /* with the arena */
}

static size_t block_size(const void *block)
{
    size_t size;
    memcpy(&size, (const char *)block - sizeof(max_align_t), sizeof(size));
    return size;
}

static const void *member(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    return (const char *)message + field->offset;
}

static size_t repeated_count(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    return *(const size_t *)(const void *)((const char *)message + field->quantifier_offset);
}

static bool is_repeated(const ProtobufCFieldDescriptor *field)
{
    return field->label == PROTOBUF_C_LABEL_REPEATED;
}

/* ---- checking ---- */

/* protobuf-c's empty string, which it did not allocate, is the default of a text. */
static sh_status text_check(const ProtobufCMessage *in, const ProtobufCFieldDescriptor *field,
                            const char *text, sh_err *err)
{
    if (text == field->default_value || text == protobuf_c_empty_string) return SH_OK;
    size_t len = strlen(text);
    if (len + 1 != block_size(text))
        return sh_err_set(err, SH_ERR_INPUT, "%s.%s has a zero byte", in->descriptor->short_name,
                          field->name);
    if (!sh_utf8_valid(text, len))
        return sh_err_set(err, SH_ERR_INPUT, "%s.%s is not UTF-8", in->descriptor->short_name,
                          field->name);
    return SH_OK;
}

static sh_status message_check(const ProtobufCMessage *message, sh_err *err);

static sh_status value_check(const ProtobufCMessage *in, const ProtobufCFieldDescriptor *field,
                             const void *value, sh_err *err)
{
    if (value == NULL) return SH_OK;
    return field->type == PROTOBUF_C_TYPE_STRING ? text_check(in, field, value, err)
                                                 : message_check(value, err);
}

static sh_status field_check(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                             sh_err *err)
{
    bool deep = field->type == PROTOBUF_C_TYPE_STRING || field->type == PROTOBUF_C_TYPE_MESSAGE;
    size_t count = is_repeated(field) ? repeated_count(message, field) : 0;
    if (count > ITEMS_MAX)
        return sh_err_set(err, SH_ERR_INPUT, "%s.%s has %zu items; %d are allowed",
                          message->descriptor->short_name, field->name, count, ITEMS_MAX);
    const void *at = member(message, field);
    sh_status status = SH_OK;
    if (!deep) return SH_OK;
    if (!is_repeated(field)) return value_check(message, field, *(const void *const *)at, err);
    const void *const *list = *(const void *const *const *)at;
    for (size_t i = 0; status == SH_OK && i < count; i++)
        status = value_check(message, field, list[i], err);
    return status;
}

/* No type of ours contains itself, so the depth is bounded. */
static sh_status message_check(const ProtobufCMessage *message, sh_err *err)
{
    sh_status status = SH_OK;
    for (unsigned i = 0; status == SH_OK && i < message->descriptor->n_fields; i++)
        status = field_check(message, &message->descriptor->fields[i], err);
    return status;
}

sh_status sh_message_unpack(const ProtobufCMessageDescriptor *type, sh_str wire, sh_arena *arena,
                            ProtobufCMessage **out, sh_err *err)
{
    allowance room = {arena, ROOM_BASE + ROOM_FACTOR * wire.len};
    ProtobufCAllocator allocator = {block_alloc, block_free, &room};
    ProtobufCMessage *message = protobuf_c_message_unpack(type, &allocator, wire.len,
                                                          (const uint8_t *)wire.ptr);
    if (message == NULL)
        return sh_err_set(err, SH_ERR_INPUT,
                          "the message is not a valid %s, or takes too much "
                          "memory",
                          type->short_name);
    sh_status status = message_check(message, err);
    if (status == SH_OK) *out = message;
    return status;
}

void sh_message_frame(const ProtobufCMessage *message, sh_buf *out)
{
    size_t at = sh_grpc_message_begin(out), size = protobuf_c_message_get_packed_size(message);
    protobuf_c_message_pack(message, (uint8_t *)sh_buf_reserve(out, size));
    out->len += size;
    sh_grpc_message_end(out, at);
}

/* ---- looking ---- */

static bool is_set(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    const void *at = member(message, field);
    if (is_repeated(field)) return repeated_count(message, field) > 0;
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING: {
        const char *text = *(const char *const *)at;
        return text != NULL && text[0] != '\0';
    }
    case PROTOBUF_C_TYPE_BYTES: return ((const ProtobufCBinaryData *)at)->len > 0;
    case PROTOBUF_C_TYPE_MESSAGE: return *(const void *const *)at != NULL;
    case PROTOBUF_C_TYPE_BOOL: return *(const protobuf_c_boolean *)at != 0;
    case PROTOBUF_C_TYPE_FLOAT: return *(const float *)at != 0;
    case PROTOBUF_C_TYPE_DOUBLE: return *(const double *)at != 0;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_SFIXED64: return *(const uint64_t *)at != 0;
    default: return *(const uint32_t *)at != 0;
    }
}

void sh_message_each_set(const ProtobufCMessage *message, sh_message_field_fn fn, void *arg)
{
    for (unsigned i = 0; i < message->descriptor->n_fields; i++)
        if (is_set(message, &message->descriptor->fields[i]))
            fn(arg, &message->descriptor->fields[i]);
}

static bool varint_read(sh_str wire, size_t *at, uint64_t *out)
{
    *out = 0;
    for (int shift = 0; shift < 64 && *at < wire.len; shift += 7) {
        unsigned char byte = (unsigned char)wire.ptr[(*at)++];
        *out |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) return true;
    }
    return false;
}

/* Moves past the value of a field; `text` is its bytes, if its kind has any. */
static bool value_read(sh_str wire, size_t *at, unsigned kind, sh_str *text)
{
    enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };
    uint64_t len = 0;
    *text = (sh_str){"", 0};
    if (kind == VARINT) return varint_read(wire, at, &len);
    if (kind == BYTES && !varint_read(wire, at, &len)) return false;
    if (kind == FIXED64 || kind == FIXED32) len = kind == FIXED64 ? 8 : 4;
    if ((kind != BYTES && len == 0) || len > wire.len - *at) return false;
    if (kind == BYTES) *text = (sh_str){wire.ptr + *at, (size_t)len};
    *at += (size_t)len;
    return true;
}

sh_str sh_message_find_text(sh_str wire, uint32_t number)
{
    sh_str found = {"", 0}, text;
    uint64_t tag;
    for (size_t at = 0; at < wire.len && varint_read(wire, &at, &tag);) {
        if (!value_read(wire, &at, tag & 7, &text)) break;
        if (tag >> 3 == number && (tag & 7) == 2) found = text;
    }
    return found;
}
