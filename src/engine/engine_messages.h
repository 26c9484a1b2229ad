/* engine_messages.h - the messages on the engine's Unix socket.
 *
 * A frame is 4 bytes of length (of what follows), 1 byte of type, then the payload (base/pack.h).
 * The client sends HELLO first. The engine answers INFO; when the versions differ it answers ERROR
 * with id 0 and closes. Neither side trusts the other: lengths, counts and numbers are checked.
 *
 * Threads: pure functions over their buffers. */
#ifndef SH_ENGINE_ENGINE_MESSAGES_H
#define SH_ENGINE_ENGINE_MESSAGES_H

#include "base/buf.h"
#include "engine/engine_client.h"

enum { SH_ENGINE_MSG_VERSION = 6, SH_ENGINE_MSG_FRAME_MAX = 64 << 20 };

typedef enum {
    SH_ENGINE_MSG_HELLO = 1, /* from here: sent by the client */
    SH_ENGINE_MSG_SUBMIT,
    SH_ENGINE_MSG_CANCEL,
    SH_ENGINE_MSG_DETACH,
    SH_ENGINE_MSG_ASK_STATS,
    SH_ENGINE_MSG_DISMISS,
    SH_ENGINE_MSG_INFO, /* from here: sent by the engine */
    SH_ENGINE_MSG_PROGRESS,
    SH_ENGINE_MSG_PROMPT_TOKEN,
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

/* The first frame of buf. SH_AGAIN when it is incomplete, an error when it cannot be a frame. */
SH_MUST_CHECK sh_status sh_engine_msg_next(const sh_buf *buf, sh_engine_msg_frame *frame,
                                           sh_err *err);

/* Each appends one frame to out. */
void sh_engine_msg_put_hello(sh_buf *out);
void sh_engine_msg_put_submit(sh_buf *out, const sh_sequence_spec *spec);
void sh_engine_msg_put_cancel(sh_buf *out, uint64_t id);
void sh_engine_msg_put_detach(sh_buf *out, uint64_t id);
void sh_engine_msg_put_ask_stats(sh_buf *out);
void sh_engine_msg_put_dismiss(sh_buf *out, uint64_t ranks);
void sh_engine_msg_put_info(sh_buf *out, const sh_engine_info *info);
void sh_engine_msg_put_event(sh_buf *out, const sh_event *event); /* any kind */

SH_MUST_CHECK sh_status sh_engine_msg_get_hello(sh_str payload, sh_err *err);

/* Owns the arrays of its spec: free with sh_submit_message_reset. Only the encoding is checked
 * here; sh_sequence_spec_check checks the values. When the payload is malformed only the id is set,
 * so that an error can be sent for it. */
typedef struct {
    sh_sequence_spec spec;
    void *memory;
} sh_submit_message;
SH_MUST_CHECK sh_status sh_engine_msg_get_submit(sh_str payload, sh_submit_message *out,
                                                 sh_err *err);
void sh_submit_message_reset(sh_submit_message *submit);

/* Of CANCEL and DETACH, and the ranks of DISMISS. */
SH_MUST_CHECK sh_status sh_engine_msg_get_id(sh_str payload, uint64_t *id, sh_err *err);
/* model_dir is a copy that the caller frees. */
SH_MUST_CHECK sh_status sh_engine_msg_get_info(sh_str payload, sh_engine_info *out, sh_err *err);
/* stats of a STATS event is borrowed from the payload. */
SH_MUST_CHECK sh_status sh_engine_msg_get_event(const sh_engine_msg_frame *frame, sh_event *out,
                                                sh_err *err);

#endif
