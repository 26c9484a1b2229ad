/* wire.h - the messages on the engine's Unix socket.
 *
 * A frame is 4 bytes of length (of what follows), 1 byte of type, then the payload (base/pack.h).
 * The client speaks first (HELLO), the engine answers INFO, or ERROR with id 0 when the versions
 * differ, and closes. Both sides treat frames as input: lengths, counts and numbers are checked.
 *
 * Threads: pure functions over their buffers. */
#ifndef SH_ENGINE_WIRE_H
#define SH_ENGINE_WIRE_H

#include "base/buf.h"
#include "engine/client.h"

enum { SH_WIRE_VERSION = 2, SH_WIRE_FRAME_MAX = 64 << 20 };

typedef enum {
    SH_WIRE_HELLO = 1, /* client */
    SH_WIRE_SUBMIT,
    SH_WIRE_CANCEL,
    SH_WIRE_ASK_STATS,
    SH_WIRE_INFO, /* engine */
    SH_WIRE_TOKEN,
    SH_WIRE_DONE,
    SH_WIRE_ERROR,
    SH_WIRE_STATS,
} sh_wire_type;

typedef struct {
    sh_wire_type type;
    sh_str payload; /* borrowed from the buffer */
    size_t size;    /* bytes of the whole frame, to drop from the buffer */
} sh_wire_frame;

/* The first frame of buf: SH_OK, SH_AGAIN when it is not all there, an error when it can not be
 * one. */
SH_MUST_CHECK sh_status sh_wire_next(const sh_buf *buf, sh_wire_frame *frame, sh_err *err);

/* Each appends one frame to out. */
void sh_wire_put_hello(sh_buf *out);
void sh_wire_put_submit(sh_buf *out, const sh_engine_request *request);
void sh_wire_put_cancel(sh_buf *out, uint64_t id);
void sh_wire_put_ask_stats(sh_buf *out);
void sh_wire_put_info(sh_buf *out, const sh_engine_info *info);
void sh_wire_put_event(sh_buf *out, const sh_event *event); /* TOKEN, DONE, ERROR, STATS */

SH_MUST_CHECK sh_status sh_wire_get_hello(sh_str payload, sh_err *err);

/* A request owns its arrays: sh_wire_request_reset. What it asks for is not checked here, see
 * sh_request_check. Of a payload that cannot be read the id alone is set, so that its sender can be
 * answered. */
typedef struct {
    sh_engine_request request;
    void *memory;
} sh_wire_request;
SH_MUST_CHECK sh_status sh_wire_get_submit(sh_str payload, sh_wire_request *out, sh_err *err);
void sh_wire_request_reset(sh_wire_request *request);

SH_MUST_CHECK sh_status sh_wire_get_cancel(sh_str payload, uint64_t *id, sh_err *err);
/* model_dir is a copy that the caller frees. */
SH_MUST_CHECK sh_status sh_wire_get_info(sh_str payload, sh_engine_info *out, sh_err *err);
/* stats of a STATS event is borrowed from the payload. */
SH_MUST_CHECK sh_status sh_wire_get_event(const sh_wire_frame *frame, sh_event *out, sh_err *err);

#endif
