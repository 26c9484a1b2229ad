/* Every state says how many edges and calls it has, so that the places of both in their arrays
 * need no check of their own: they are added up while reading. All numbers that the matcher uses
 * as an index are checked here, once. */
#include "text/grammar/pack.h"

#include "base/alloc.h"
#include "base/pack.h"
#include "text/grammar/automaton.h"
#include "text/grammar/limits.h"

#include <stdlib.h>

enum { MAGIC = 0x4d4d5247, VERSION = 2 }; /* "GRMM" */

enum { ACCEPTS = 1, MULTIBYTE = 2, RUNS = 4, CLOSED = 8, STATE_FLAGS = 15 };

/* Bytes of each on the wire, the least a state can have. */
enum { STATE_BYTES = 11, EDGE_BYTES = 6, CALL_BYTES = 13 };

/* A field that is added to these must be packed, too. */
_Static_assert(sizeof(sh_auto_state) == 56 && sizeof(sh_byte_edge) == 8 &&
                   sizeof(sh_rule_call) == 16,
               "the parts of a grammar have changed");

static void put_u32(sh_buf *out, uint32_t value)
{
    sh_put_uint(out, value, 4);
}

static bool has_run(const sh_char_run *run)
{
    return run->chars > 0;
}

static void put_state(sh_buf *out, const sh_auto_state *s)
{
    const sh_char_run *run = &s->run;
    unsigned flags = (s->accepts ? ACCEPTS : 0) | (run->multibyte ? MULTIBYTE : 0) |
                     (has_run(run) ? RUNS : 0) | (run->closed ? CLOSED : 0);
    sh_put_uint(out, flags, 1);
    sh_put_uint(out, s->height, 2);
    put_u32(out, s[1].edges - s->edges);
    put_u32(out, s[1].calls - s->calls);
    if (!has_run(run)) return;
    sh_put_uint(out, run->ascii[0], 8);
    sh_put_uint(out, run->ascii[1], 8);
    put_u32(out, run->chars);
    put_u32(out, run->alike);
    put_u32(out, run->next);
    put_u32(out, run->last);
}

void sh_grammar_pack(const sh_grammar *g, sh_buf *out)
{
    put_u32(out, MAGIC);
    put_u32(out, VERSION);
    put_u32(out, g->rule_count);
    put_u32(out, g->state_count);
    put_u32(out, g->edge_count);
    put_u32(out, g->call_count);
    for (uint32_t i = 0; i < g->state_count; i++) put_state(out, &g->states[i]);
    for (uint32_t i = 0; i < g->edge_count; i++) {
        sh_put_uint(out, g->edges[i].lo, 1);
        sh_put_uint(out, g->edges[i].hi, 1);
        put_u32(out, g->edges[i].to);
    }
    for (uint32_t i = 0; i < g->call_count; i++) {
        put_u32(out, g->calls[i].rule);
        put_u32(out, g->calls[i].start);
        put_u32(out, g->calls[i].back);
        sh_put_uint(out, g->calls[i].leaf, 1);
    }
}

/* A number of at most `max`; anything else fails the reader. */
static uint32_t get_u32(sh_reader *r, uint32_t max)
{
    uint64_t value = sh_get_uint(r, 4);
    if (value > max) r->failed = true;
    return r->failed ? 0 : (uint32_t)value;
}

static void get_run(sh_reader *r, const sh_grammar *g, sh_char_run *run)
{
    run->ascii[0] = sh_get_uint(r, 8);
    run->ascii[1] = sh_get_uint(r, 8);
    run->chars = get_u32(r, UINT32_MAX);
    run->alike = get_u32(r, UINT32_MAX);
    run->next = get_u32(r, g->state_count - 1);
    run->last = get_u32(r, g->state_count - 1);
    if (!has_run(run)) r->failed = true;
}

static void get_state(sh_reader *r, const sh_grammar *g, uint32_t n)
{
    sh_auto_state *s = &g->states[n];
    unsigned flags = (unsigned)sh_get_uint(r, 1);
    if (flags > STATE_FLAGS) r->failed = true;
    s->accepts = (flags & ACCEPTS) != 0;
    s->height = (uint16_t)sh_get_uint(r, 2);
    s[1].edges = s->edges + get_u32(r, g->edge_count - s->edges);
    s[1].calls = s->calls + get_u32(r, g->call_count - s->calls);
    s->run.multibyte = (flags & MULTIBYTE) != 0;
    s->run.closed = (flags & CLOSED) != 0;
    s->run.last = n;
    if ((flags & RUNS) != 0) get_run(r, g, &s->run);
}

/* The edges of a state are ranges in ascending order: the matcher stops at the first that lies
 * beyond a byte. */
static void get_edges(sh_reader *r, sh_grammar *g, const sh_auto_state *s)
{
    int after = -1;
    for (uint32_t i = s->edges; i < s[1].edges; i++) {
        sh_byte_edge *e = &g->edges[i];
        e->lo = (uint8_t)sh_get_uint(r, 1);
        e->hi = (uint8_t)sh_get_uint(r, 1);
        e->to = get_u32(r, g->state_count - 1);
        if (e->lo <= after || e->hi < e->lo) r->failed = true;
        after = e->hi;
    }
}

static void get_call(sh_reader *r, const sh_grammar *g, sh_rule_call *c)
{
    c->rule = get_u32(r, g->rule_count - 1);
    c->start = get_u32(r, g->state_count - 1);
    c->back = get_u32(r, UINT32_MAX);
    if (c->back != SH_CALL_LAST && c->back >= g->state_count) r->failed = true;
    unsigned leaf = (unsigned)sh_get_uint(r, 1);
    if (leaf > 1) r->failed = true;
    c->leaf = leaf != 0;
}

static void get_body(sh_reader *r, sh_grammar *g)
{
    for (uint32_t i = 0; i < g->state_count && !r->failed; i++) get_state(r, g, i);
    const sh_auto_state *end = &g->states[g->state_count];
    if (end->edges != g->edge_count || end->calls != g->call_count) r->failed = true;
    for (uint32_t i = 0; i < g->state_count && !r->failed; i++) get_edges(r, g, &g->states[i]);
    for (uint32_t i = 0; i < g->call_count && !r->failed; i++) get_call(r, g, &g->calls[i]);
}

/* Memory is taken for what is really there, not for what a count promises. */
static void get_counts(sh_reader *r, sh_grammar *g)
{
    g->rule_count = get_u32(r, SH_GRAMMAR_RULES_MAX);
    g->state_count = get_u32(r, SH_GRAMMAR_STATES_MAX);
    g->edge_count = get_u32(r, SH_GRAMMAR_EDGES_MAX);
    g->call_count = get_u32(r, SH_GRAMMAR_EDGES_MAX);
    uint64_t least = (uint64_t)g->state_count * STATE_BYTES + (uint64_t)g->edge_count * EDGE_BYTES +
                     (uint64_t)g->call_count * CALL_BYTES;
    if (g->rule_count == 0 || g->state_count == 0 || least > r->left) r->failed = true;
}

sh_status sh_grammar_unpack(sh_str bytes, sh_grammar **out, sh_err *err)
{
    sh_reader r = sh_reader_of(bytes);
    sh_grammar *g = sh_alloc(sizeof(*g));
    uint64_t magic = sh_get_uint(&r, 4), version = sh_get_uint(&r, 4);
    if (magic != MAGIC || version != VERSION) r.failed = true;
    get_counts(&r, g);
    if (!r.failed) {
        g->states = sh_alloc_array((size_t)g->state_count + 1, sizeof(*g->states));
        g->edges = sh_alloc_array(g->edge_count, sizeof(*g->edges));
        g->calls = sh_alloc_array(g->call_count, sizeof(*g->calls));
        get_body(&r, g);
    }
    if (sh_get_end(&r, "grammar", err) != SH_OK) {
        sh_grammar_free(g);
        return sh_err_set(err, SH_ERR_INPUT, "not a valid grammar of version %d (%zu bytes)",
                          VERSION, bytes.len);
    }
    *out = g;
    return SH_OK;
}
