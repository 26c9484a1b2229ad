/* engine_messages.h - the messages on the engine's Unix socket.
 *
 * A frame is 4 bytes of length (of what follows), 1 byte of type, then the payload (base/pack.h).
 * The client speaks first (HELLO), the engine answers INFO, or ERROR with id 0 when the versions
 * differ, and closes. Both sides treat frames as input: lengths, counts and numbers are checked.
 *
 * Threads: pure functions over their buffers. */
#ifndef SH_ENGINE_ENGINE_MESSAGES_H
#define SH_ENGINE_ENGINE_MESSAGES_H

#include "base/buf.h"
#include "engine/engine_client.h"

enum { SH_ENGINE_MSG_VERSION = 2, SH_ENGINE_MSG_FRAME_MAX = 64 << 20 };

typedef enum {
    SH_ENGINE_MSG_HELLO = 1, /* client */
    SH_ENGINE_MSG_SUBMIT,
    SH_ENGINE_MSG_CANCEL,
    SH_ENGINE_MSG_ASK_STATS,
    SH_ENGINE_MSG_INFO, /* engine */
    SH_ENGINE_MSG_TOKEN,
    SH_ENGINE_MSG_DONE,
    SH_ENGINE_MSG_ERROR,
    SH_ENGINE_MSG_STATS,
} sh_engine_msg_type;

typedef struct {
    sh_engine_msg_type type;
    sh_str payload; /* borrowed from the buffer */
    size_t size;    /* bytes of the whole frame, to drop from the buffer */
} sh_engine_msg_frame;

/* The first frame of buf: SH_OK, SH_AGAIN when it is not all there, an error when it can not be
 * one. */
SH_MUST_CHECK sh_status sh_engine_msg_next(const sh_buf *buf, sh_engine_msg_frame *frame,
                                           sh_err *err);

/* Each appends one frame to out. */
void sh_engine_msg_put_hello(sh_buf *out);
void sh_engine_msg_put_submit(sh_buf *out, const sh_sequence_spec *spec);
void sh_engine_msg_put_cancel(sh_buf *out, uint64_t id);
void sh_engine_msg_put_ask_stats(sh_buf *out);
void sh_engine_msg_put_info(sh_buf *out, const sh_engine_info *info);
void sh_engine_msg_put_event(sh_buf *out, const sh_event *event); /* TOKEN, DONE, ERROR, STATS */

SH_MUST_CHECK sh_status sh_engine_msg_get_hello(sh_str payload, sh_err *err);

/* A request owns its arrays: sh_submit_message_reset. What it asks for is not checked here, see
 * sh_sequence_spec_check. Of a payload that cannot be read the id alone is set, so that its sender
 * can be answered. */
typedef struct {
    sh_sequence_spec spec;
    void *memory;
} sh_submit_message;
SH_MUST_CHECK sh_status sh_engine_msg_get_submit(sh_str payload, sh_submit_message *out,
                                                 sh_err *err);
void sh_submit_message_reset(sh_submit_message *submit);

SH_MUST_CHECK sh_status sh_engine_msg_get_cancel(sh_str payload, uint64_t *id, sh_err *err);
/* model_dir is a copy that the caller frees. */
SH_MUST_CHECK sh_status sh_engine_msg_get_info(sh_str payload, sh_engine_info *out, sh_err *err);
/* stats of a STATS event is borrowed from the payload. */
SH_MUST_CHECK sh_status sh_engine_msg_get_event(const sh_engine_msg_frame *frame, sh_event *out,
                                                sh_err *err);

#endif
