/* Aho-Corasick over bytes. Invariant between calls: the bytes held back are exactly the prefix that
 * the current node represents, so held.len == nodes[at].depth, and nothing is held longer than a
 * stop string requires. */
#include "text/output/stop.h"

#include "base/alloc.h"

#include <stdint.h>
#include <stdlib.h>

/* A node is a prefix of some stop string; node 0 is the empty prefix. Children form a linked list,
 * since a node rarely has more than one: only where stop strings diverge. */
typedef struct {
    uint16_t child;   /* first child, 0 for none */
    uint16_t sibling; /* next child of the same parent, 0 for none */
    uint16_t fail;    /* the longest proper suffix of this prefix that is a node */
    uint16_t depth;   /* bytes */
    int16_t string;   /* longest stop string that is a suffix of this prefix, -1 for none */
    char byte;
} stop_node;

_Static_assert(SH_STOP_COUNT_MAX *SH_STOP_LEN_MAX < UINT16_MAX, "node numbers are 16 bits");

struct sh_stop {
    stop_node *nodes;
    uint16_t count;
    uint16_t lens[SH_STOP_COUNT_MAX];
    uint16_t at; /* longest suffix of the text that may grow into a stop string; it is held back */
    int matched;
    sh_buf held;
};

static uint16_t child_of(const sh_stop *stop, uint16_t node, char byte)
{
    uint16_t next = stop->nodes[node].child;
    while (next != 0 && stop->nodes[next].byte != byte) next = stop->nodes[next].sibling;
    return next;
}

/* Follows fail links until a node has a child for the byte. Each link shortens the prefix, so the
 * work over a whole text is linear. */
static uint16_t step(const sh_stop *stop, uint16_t node, char byte)
{
    for (;;) {
        uint16_t next = child_of(stop, node, byte);
        if (next != 0 || node == 0) return next;
        node = stop->nodes[node].fail;
    }
}

static void add_string(sh_stop *stop, sh_str text, int16_t idx)
{
    uint16_t node = 0;
    for (size_t i = 0; i < text.len; i++) {
        uint16_t next = child_of(stop, node, text.ptr[i]);
        if (next == 0) {
            next = stop->count++;
            stop->nodes[next] = (stop_node){.sibling = stop->nodes[node].child,
                                            .depth = (uint16_t)(i + 1),
                                            .string = -1,
                                            .byte = text.ptr[i]};
            stop->nodes[node].child = next;
        }
        node = next;
    }
    if (stop->nodes[node].string < 0) stop->nodes[node].string = idx;
}

/* Breadth first: the fail link of a node is derived from those of shorter prefixes. A node without
 * a string of its own inherits the one of its fail link, which is the longest proper suffix; so a
 * match is a single lookup in sh_stop_push(). */
static void link_nodes(sh_stop *stop)
{
    uint16_t *queue = sh_alloc_array(stop->count, sizeof(*queue));
    size_t head = 0, tail = 1;

    for (; head < tail; head++) {
        uint16_t parent = queue[head];
        for (uint16_t n = stop->nodes[parent].child; n != 0; n = stop->nodes[n].sibling) {
            stop_node *node = &stop->nodes[n];
            node->fail = parent == 0 ? 0 : step(stop, stop->nodes[parent].fail, node->byte);
            if (node->string < 0) node->string = stop->nodes[node->fail].string;
            queue[tail++] = n;
        }
    }
    free(queue);
}

static sh_status check_strings(const sh_str *strings, size_t count, size_t *total, sh_err *err)
{
    if (count > SH_STOP_COUNT_MAX)
        return sh_err_set(err, SH_ERR_LIMIT, "stop: %zu strings, at most %d are allowed", count,
                          SH_STOP_COUNT_MAX);
    for (size_t i = 0; i < count; i++) {
        if (strings[i].len == 0)
            return sh_err_set(err, SH_ERR_INPUT, "stop: string %zu is empty", i);
        if (strings[i].len > SH_STOP_LEN_MAX)
            return sh_err_set(err, SH_ERR_LIMIT,
                              "stop: string %zu has %zu bytes, at most %d are allowed", i,
                              strings[i].len, SH_STOP_LEN_MAX);
        *total += strings[i].len;
    }
    return SH_OK;
}

sh_status sh_stop_create(const sh_str *strings, size_t count, sh_stop **out, sh_err *err)
{
    size_t total = 0;
    sh_status status = check_strings(strings, count, &total, err);
    if (status != SH_OK) return status;

    sh_stop *stop = sh_alloc(sizeof(*stop));
    stop->nodes = sh_alloc_array(total + 1, sizeof(*stop->nodes));
    stop->nodes[0].string = -1;
    stop->count = 1;
    for (size_t i = 0; i < count; i++) {
        add_string(stop, strings[i], (int16_t)i);
        stop->lens[i] = (uint16_t)strings[i].len;
    }
    link_nodes(stop);
    stop->matched = -1;
    *out = stop;
    return SH_OK;
}

void sh_stop_free(sh_stop *stop)
{
    if (stop == NULL) return;
    sh_buf_reset(&stop->held);
    free(stop->nodes);
    free(stop);
}

/* Releases the first len bytes of held + text and holds back the rest. */
static void release(sh_stop *stop, size_t len, sh_str text, sh_buf *out)
{
    size_t old = len < stop->held.len ? len : stop->held.len;
    sh_buf_add(out, stop->held.ptr, old);
    sh_buf_drop_front(&stop->held, old);
    sh_buf_add(out, text.ptr, len - old);
    sh_buf_add_str(&stop->held, sh_str_sub(text, len - old, text.len));
}

bool sh_stop_push(sh_stop *stop, sh_str text, sh_buf *out)
{
    if (stop->matched >= 0) return true;
    for (size_t i = 0; i < text.len; i++) {
        stop->at = step(stop, stop->at, text.ptr[i]);
        int string = stop->nodes[stop->at].string;
        if (string < 0) continue;
        /* Everything before the start of the match goes out, also text that was held back for a
         * longer string which then did not come. */
        release(stop, stop->held.len + i + 1 - stop->lens[string], text, out);
        sh_buf_clear(&stop->held);
        stop->matched = string;
        return true;
    }
    release(stop, stop->held.len + text.len - stop->nodes[stop->at].depth, text, out);
    return false;
}

void sh_stop_finish(sh_stop *stop, sh_buf *out)
{
    sh_buf_add_str(out, sh_buf_str(&stop->held));
    sh_buf_clear(&stop->held);
    stop->at = 0;
}

int sh_stop_matched(const sh_stop *stop)
{
    return stop->matched;
}

void sh_stop_reset(sh_stop *stop)
{
    sh_buf_clear(&stop->held);
    stop->at = 0;
    stop->matched = -1;
}
