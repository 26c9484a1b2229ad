/* message.h - protobuf messages of strangers, and our own.
 *
 * protobuf-c makes structs of a message. It does not bound the memory that it takes (a list of
 * empty messages has two bytes for each on the wire and some hundred here), does not check that
 * texts are UTF-8, and hands them out as C strings, which a zero byte would cut. All of this is
 * done here, and lists are limited to a million items.
 *
 * Threads: pure functions over their arguments. */
#ifndef SH_GRPC_MESSAGE_H
#define SH_GRPC_MESSAGE_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/status.h"

#include <protobuf-c/protobuf-c.h>

/* The message lives in the arena. Errors name the field. */
SH_MUST_CHECK sh_status sh_message_unpack(const ProtobufCMessageDescriptor *type, sh_str wire,
                                          sh_arena *arena, ProtobufCMessage **out, sh_err *err);

/* Appends the message as a frame of an answer (frame.h). */
void sh_message_frame(const ProtobufCMessage *message, sh_buf *out);

/* Calls fn with each field of the message that does not have its default value. */
typedef void (*sh_message_field_fn)(void *arg, const ProtobufCFieldDescriptor *field);
void sh_message_each_set(const ProtobufCMessage *message, sh_message_field_fn fn, void *arg);

/* The last text with this number in a message that was not unpacked; empty: there is none. */
sh_str sh_message_find_text(sh_str wire, uint32_t number);

#endif
