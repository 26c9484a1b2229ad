/* The sum over all ranks, always folded in rank order.
 *
 * A ring or a tree would add the parts in an order that depends on the rank and the size of the
 * vector. Here every element is summed by one rank in the order 0, 1, 2, ..., whichever of the two
 * algorithms runs, so a result never depends on how a batch was cut.
 *
 * Short vectors: every rank sends its whole vector to every other and folds for itself; one hop.
 *
 * Long vectors: every rank owns a chunk. It receives the others' parts of its chunk, folds them,
 * and sends the sum back. Chunks are cut into pieces, so that parts of later pieces are in transit
 * while earlier pieces are folded and sums are sent: each pair exchanges, in each direction,
 *
 *   part 0, part 1, part 2, sum 0, part 3, sum 1, ... sum K-1        (LAG = 2)
 *
 * A part can always be sent. A sum can be sent once it is folded, which needs all ranks' parts of
 * that piece. This cannot deadlock: consider the rank that has folded the fewest pieces. The parts
 * it is missing are queued after sums of pieces that their senders have already folded, so they can
 * be sent, and it can fold the next piece. */
#include "coll/coll.h"

#include "coll/core.h"
#include "coll/flow.h"

#include <string.h>

enum {
    SHORT_MAX = 128 * 1024, /* one hop is faster up to this many bytes sent per rank in total */
    SLOTS = 4,              /* pieces whose parts may be held at once */
    LAG = 2,
    PIECE_MAX = 128 * 1024,
    PIECE_MIN = 64 * 1024,
    PIECES_WANTED = 8,
    ALIGN = 4096,
};

typedef struct {
    sh_layout layout;
    const sh_numbers *numbers;
    bool in_place; /* the numbers can be sent and received where they are */
    int rank;
    int size;
} vector;

static uint32_t kind_of(const vector *v)
{
    return SH_OP_ALLREDUCE | (uint32_t)v->layout.codec << 8;
}

static void *place_of(const vector *v, size_t block)
{
    return v->numbers->at(v->numbers->ctx, block);
}

static void encode(const vector *v, size_t first, size_t end, void *wire)
{
    v->numbers->encode(v->numbers->ctx, first, end, wire);
}

static void decode(const vector *v, size_t first, size_t end, const void *wire)
{
    v->numbers->decode(v->numbers->ctx, first, end, wire);
}

static void fold(const vector *v, size_t first, size_t end, const void *const *parts, void *sum)
{
    v->numbers->fold(v->numbers->ctx, first, end, parts, v->size, sum);
}

static void *staging_of(sh_group *group, const vector *v)
{
    return v->numbers->staging != NULL ? v->numbers->staging : sh_flow_staging(group);
}

typedef struct {
    vector v;
    const uint8_t *part[SH_RANKS_MAX]; /* of each rank, in wire form */
    size_t len;
    bool begun[SH_RANKS_MAX][2];
} one_hop;

static sh_next one_hop_next(void *algo, int peer, sh_dir dir, struct iovec *body)
{
    one_hop *a = algo;
    if (a->begun[peer][dir]) return SH_NEXT_END;
    a->begun[peer][dir] = true;
    const uint8_t *part = a->part[dir == SH_DIR_OUT ? a->v.rank : peer];
    *body = (struct iovec){(void *)(uintptr_t)part, a->len};
    return SH_NEXT_READY;
}

/* A part is only read, by fold, before the next message of its rank: wherever it arrived will do.
 */
static void one_hop_lent(void *algo, int peer, const void *body)
{
    ((one_hop *)algo)->part[peer] = body;
}

static sh_status reduce_short(sh_group *group, const vector *v, sh_err *err)
{
    static const sh_algo_ops ops = {.next = one_hop_next, .lent = one_hop_lent};
    one_hop a;
    size_t blocks = sh_layout_blocks(&v->layout);
    uint8_t *staging = staging_of(group, v);
    a.v = *v;
    a.len = sh_layout_byte_at(&v->layout, blocks);
    memset(a.begun, 0, (size_t)v->size * sizeof(a.begun[0]));
    size_t stride = (a.len + ALIGN - 1) / ALIGN * ALIGN;
    for (int r = 0; r < v->size; r++) a.part[r] = staging + (size_t)r * stride;
    uint8_t *mine = v->in_place ? place_of(v, 0) : staging + (size_t)v->rank * stride;
    if (!v->in_place) encode(v, 0, blocks, mine);
    a.part[v->rank] = mine;

    sh_flow_opts opts = {.kind = kind_of(v), .size = a.len, .deadline = sh_flow_deadline(group)};
    sh_status status = sh_flow_run(group, &opts, &ops, &a, err);
    if (status != SH_OK) return status;
    /* Everybody folds the same parts, but the sum must be rounded as if it had travelled. */
    fold(v, 0, blocks, (const void *const *)a.part, v->in_place ? NULL : mine);
    return SH_OK;
}

typedef struct {
    vector v;
    size_t pieces;                 /* per chunk; the same for all */
    size_t piece_blocks;           /* per piece, except at the end of a chunk */
    size_t piece_len;              /* bytes of the longest piece */
    size_t folded;                 /* pieces of our own chunk */
    size_t step[SH_RANKS_MAX][2];  /* completed messages, per peer and direction */
    size_t parts_in[SH_RANKS_MAX]; /* parts received */
    size_t sums_out[SH_RANKS_MAX];
    uint8_t *slot;   /* [SLOTS][size] parts in wire format, including our own unless f32 */
    uint8_t *sum;    /* [SLOTS] sums in wire format, unless f32 */
    uint8_t *bounce; /* [size][2] messages in transit whose format differs from x; unless f32 */
} chunked;

typedef struct {
    bool is_sum;
    size_t piece;
} move;

/* What the message number `step` of a direction carries; see the top of this file. */
static move move_at(const chunked *a, size_t step)
{
    size_t lag = a->pieces < LAG + 1 ? a->pieces : LAG + 1;
    size_t both = a->pieces - lag; /* part-sum pairs that follow the first parts */
    if (step < lag) return (move){false, step};
    step -= lag;
    if (step >= 2 * both) return (move){true, step - both};
    return step % 2 == 0 ? (move){true, step / 2} : (move){false, lag + step / 2};
}

typedef struct {
    size_t first;
    size_t end;
} span;

/* The blocks of one piece of a rank's chunk. Chunks differ by one block at most; the last piece may
 * be short or empty, so that all ranks exchange the same number of messages. */
static span piece_of(const chunked *a, int owner, size_t piece)
{
    size_t blocks = sh_layout_blocks(&a->v.layout);
    size_t size = (size_t)a->v.size;
    size_t base = blocks / size;
    size_t extra = blocks % size;
    size_t o = (size_t)owner;
    size_t start = base * o + (o < extra ? o : extra);
    size_t stop = start + base + (o < extra);
    size_t first = start + piece * a->piece_blocks;
    size_t end = first + a->piece_blocks;
    return (span){first < stop ? first : stop, end < stop ? end : stop};
}

static size_t len_of(const chunked *a, span s)
{
    return sh_layout_byte_at(&a->v.layout, s.end) - sh_layout_byte_at(&a->v.layout, s.first);
}

static uint8_t *slot_of(const chunked *a, size_t piece, int rank)
{
    return a->slot + (piece % SLOTS * (size_t)a->v.size + (size_t)rank) * a->piece_len;
}

static uint8_t *bounce_of(const chunked *a, int peer, sh_dir dir)
{
    return a->bounce + ((size_t)peer * 2 + (size_t)dir) * a->piece_len;
}

/* f32 is sent straight from x. Other codecs encode a part just before it is sent, into the bounce
 * buffer of the peer, which is free then because only one message per direction is in flight. */
static sh_next next_out(chunked *a, int peer, move m, struct iovec *body)
{
    span s = piece_of(a, m.is_sum ? a->v.rank : peer, m.piece);
    if (m.is_sum && m.piece >= a->folded) return SH_NEXT_LATER;
    void *from;
    if (a->v.in_place) {
        from = place_of(&a->v, s.first);
    } else if (m.is_sum) {
        from = a->sum + m.piece % SLOTS * a->piece_len;
    } else {
        from = bounce_of(a, peer, SH_DIR_OUT);
        encode(&a->v, s.first, s.end, from);
    }
    *body = (struct iovec){from, len_of(a, s)};
    return SH_NEXT_READY;
}

static sh_next next_in(chunked *a, int peer, move m, struct iovec *body)
{
    span s = piece_of(a, m.is_sum ? peer : a->v.rank, m.piece);
    if (!m.is_sum && m.piece >= a->folded + SLOTS) return SH_NEXT_LATER; /* its slot is in use */
    void *to = !m.is_sum       ? slot_of(a, m.piece, peer)
               : a->v.in_place ? place_of(&a->v, s.first)
                               : bounce_of(a, peer, SH_DIR_IN);
    *body = (struct iovec){to, len_of(a, s)};
    return SH_NEXT_READY;
}

static sh_next chunked_next(void *algo, int peer, sh_dir dir, struct iovec *body)
{
    chunked *a = algo;
    if (a->step[peer][dir] == 2 * a->pieces) return SH_NEXT_END;
    move m = move_at(a, a->step[peer][dir]);
    return dir == SH_DIR_OUT ? next_out(a, peer, m, body) : next_in(a, peer, m, body);
}

/* All parts of the next piece have arrived, and the slot of its sum is free: the sum that was there
 * before has been sent to everybody. */
static bool may_fold(const chunked *a)
{
    if (a->folded == a->pieces) return false;
    for (int r = 0; r < a->v.size; r++) {
        if (r == a->v.rank) continue;
        if (a->parts_in[r] <= a->folded || a->sums_out[r] + SLOTS <= a->folded) return false;
    }
    return true;
}

/* Our own part goes through the codec like everybody else's: the result must not depend on which
 * rank owns a chunk. */
static void fold_piece(chunked *a)
{
    const void *parts[SH_RANKS_MAX];
    span s = piece_of(a, a->v.rank, a->folded);
    void *sum = a->v.in_place ? NULL : a->sum + a->folded % SLOTS * a->piece_len;
    for (int r = 0; r < a->v.size; r++) parts[r] = slot_of(a, a->folded, r);
    if (a->v.in_place)
        parts[a->v.rank] = place_of(&a->v, s.first);
    else
        encode(&a->v, s.first, s.end, slot_of(a, a->folded, a->v.rank));
    fold(&a->v, s.first, s.end, parts, sum);
    a->folded++;
}

static void chunked_done(void *algo, int peer, sh_dir dir)
{
    chunked *a = algo;
    move m = move_at(a, a->step[peer][dir]++);
    if (dir == SH_DIR_OUT) {
        a->sums_out[peer] += m.is_sum;
    } else if (!m.is_sum) {
        a->parts_in[peer]++;
    } else if (!a->v.in_place) {
        span s = piece_of(a, peer, m.piece);
        decode(&a->v, s.first, s.end, bounce_of(a, peer, SH_DIR_IN));
    }
    while (may_fold(a)) fold_piece(a);
}

/* The longest piece for which all slots fit into the staging buffer. */
static size_t piece_len_max(int size)
{
    size_t places = (size_t)size * (SLOTS + 2) + SLOTS;
    size_t len = SH_STAGING_LEN / places / ALIGN * ALIGN;
    return len < PIECE_MAX ? len : PIECE_MAX;
}

/* Cuts even a chunk of moderate length into several pieces, so that parts and sums overlap. */
static size_t piece_blocks_of(size_t chunk_blocks, size_t block_len, size_t len_max)
{
    size_t len = chunk_blocks * block_len / PIECES_WANTED;
    if (len < PIECE_MIN) len = PIECE_MIN;
    return (len < len_max ? len : len_max) / block_len;
}

static sh_status reduce_long(sh_group *group, const vector *v, sh_err *err)
{
    static const sh_algo_ops ops = {.next = chunked_next, .done = chunked_done};
    chunked a;
    memset(&a, 0, sizeof(a));
    a.v = *v;
    a.piece_len = piece_len_max(v->size);
    size_t block_len = sh_layout_of(v->layout.codec, 1, SH_CODEC_BLOCK).row_bytes;
    size_t blocks = sh_layout_blocks(&v->layout);
    size_t chunk = blocks / (size_t)v->size + (blocks % (size_t)v->size != 0);
    a.piece_blocks = piece_blocks_of(chunk, block_len, a.piece_len);
    a.pieces = (chunk + a.piece_blocks - 1) / a.piece_blocks;
    a.slot = staging_of(group, v);
    a.sum = a.slot + SLOTS * (size_t)v->size * a.piece_len;
    a.bounce = a.sum + SLOTS * a.piece_len;

    sh_flow_opts opts = {.kind = kind_of(v),
                         .size = sh_layout_byte_at(&v->layout, blocks),
                         .deadline = sh_flow_deadline(group)};
    return sh_flow_run(group, &opts, &ops, &a, err);
}

sh_status sh_coll_sum(sh_group *group, const sh_layout *layout, const sh_numbers *numbers,
                      sh_err *err)
{
    size_t len = sh_layout_byte_at(layout, sh_layout_blocks(layout));
    if (group->size == 1) return SH_OK;
    vector v = {.layout = *layout,
                .numbers = numbers,
                .in_place = numbers->at(numbers->ctx, 0) != NULL,
                .rank = group->rank,
                .size = group->size};
    if (len * (size_t)(group->size - 1) <= SHORT_MAX) return reduce_short(group, &v, err);
    return reduce_long(group, &v, err);
}

/* Numbers in host memory. */
typedef struct {
    sh_layout layout;
    float *x;
} host_vector;

static float *host_at(const host_vector *h, size_t block)
{
    return h->x + sh_layout_number_at(&h->layout, block);
}

static void *host_place(void *ctx, size_t block)
{
    const host_vector *h = ctx;
    return h->layout.codec == SH_CODEC_F32 ? host_at(h, block) : NULL;
}

static void host_encode(void *ctx, size_t first, size_t end, void *wire)
{
    const host_vector *h = ctx;
    sh_codec_encode(wire, &h->layout, first, end, host_at(h, first));
}

static void host_fold(void *ctx, size_t first, size_t end, const void *const *parts, int count,
                      void *sum)
{
    const host_vector *h = ctx;
    sh_codec_fold_round(host_at(h, first), &h->layout, first, end, parts, count, sum);
}

static void host_decode(void *ctx, size_t first, size_t end, const void *wire)
{
    const host_vector *h = ctx;
    sh_codec_decode(host_at(h, first), &h->layout, first, end, wire);
}

sh_status sh_coll_allreduce(sh_group *group, float *x, size_t rows, size_t cols, sh_codec codec,
                            sh_err *err)
{
    host_vector host = {sh_layout_of(codec, rows, cols), x};
    sh_numbers numbers = {.ctx = &host,
                          .at = host_place,
                          .encode = host_encode,
                          .fold = host_fold,
                          .decode = host_decode};
    return sh_coll_sum(group, &host.layout, &numbers, err);
}
