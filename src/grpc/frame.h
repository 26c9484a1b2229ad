/* frame.h - the messages of a gRPC call inside its HTTP/2 stream, and the status at its end.
 *
 * A message has a prefix of five bytes: a flag for compression, and the length. Replies are written
 * in this form and go out as they are. A status travels in the trailers of the stream; handlers
 * write it as a frame too, with a flag that no message has, and the carrier (call.h) makes trailers
 * of it. So a reply is a list of frames, whether it is an answer or an error.
 *
 * Threads: pure functions over their arguments. */
#ifndef SH_GRPC_FRAME_H
#define SH_GRPC_FRAME_H

#include "base/buf.h"
#include "base/clock.h"

/* The codes of the gRPC protocol that this program uses. */
typedef enum {
    SH_GRPC_OK = 0,
    SH_GRPC_CANCELLED = 1,
    SH_GRPC_INVALID_ARGUMENT = 3,
    SH_GRPC_DEADLINE_EXCEEDED = 4,
    SH_GRPC_NOT_FOUND = 5,
    SH_GRPC_PERMISSION_DENIED = 7,
    SH_GRPC_RESOURCE_EXHAUSTED = 8,
    SH_GRPC_FAILED_PRECONDITION = 9,
    SH_GRPC_UNIMPLEMENTED = 12,
    SH_GRPC_INTERNAL = 13,
    SH_GRPC_UNAVAILABLE = 14,
    SH_GRPC_UNAUTHENTICATED = 16,
} sh_grpc_code;

enum { SH_GRPC_PREFIX = 5, SH_GRPC_MESSAGE_MAX = 50 << 20 }; /* LocalAI's limit, both ways */

/* Writes the message that is appended between the two calls. */
size_t sh_grpc_message_begin(sh_buf *out);
void sh_grpc_message_end(sh_buf *out, size_t at);

/* A status as a frame, and back; *message borrows from the frame. False: it is a message. */
void sh_grpc_status_write(sh_grpc_code code, const char *message, sh_buf *out);
bool sh_grpc_status_read(sh_str frame, sh_grpc_code *code, sh_str *message);

/* Why the prefix of a message cannot be accepted; SH_GRPC_OK: it can, and *len is the length. */
sh_grpc_code sh_grpc_prefix_read(const unsigned char prefix[SH_GRPC_PREFIX], size_t *len,
                                 const char **why);

/* The value of the header grpc-timeout: up to 8 digits and a unit. False: it is malformed. */
bool sh_grpc_timeout_read(sh_str text, sh_deadline *out);

/* Appends a text as the header grpc-message carries it: percent-encoded. */
void sh_grpc_text_encode(sh_str text, sh_buf *out);

#endif
