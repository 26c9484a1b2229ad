#include "engine/load_board.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct sh_load_board {
    pthread_mutex_t lock;
    struct {
        sh_load_state load;
        uint64_t first_done; /* of its first report */
        int64_t first_ns, last_ns;
    } rank[SH_RANKS_MAX];
};

sh_load_board *sh_load_board_create(void)
{
    sh_load_board *board = sh_alloc(sizeof(*board));
    pthread_mutex_init(&board->lock, NULL);
    return board;
}

void sh_load_board_free(sh_load_board *board)
{
    if (board == NULL) return;
    pthread_mutex_destroy(&board->lock);
    free(board);
}

/* The time stands still when a rank is done, and so does its rate. */
void sh_load_board_set(void *ctx, int rank, const sh_load_state *load)
{
    sh_load_board *board = ctx;
    int64_t now_ns = sh_clock_ns();
    pthread_mutex_lock(&board->lock);
    if (board->rank[rank].load.total != load->total) {
        board->rank[rank].first_ns = now_ns;
        board->rank[rank].first_done = load->done;
    }
    if (board->rank[rank].load.done != load->done) board->rank[rank].last_ns = now_ns;
    board->rank[rank].load = *load;
    pthread_mutex_unlock(&board->lock);
}

void sh_load_board_clear(sh_load_board *board)
{
    pthread_mutex_lock(&board->lock);
    for (int i = 0; i < SH_RANKS_MAX; i++) board->rank[i].load = (sh_load_state){0};
    pthread_mutex_unlock(&board->lock);
}

int sh_load_board_rows(sh_load_board *board, sh_load_row out[SH_RANKS_MAX])
{
    int count = 0;
    pthread_mutex_lock(&board->lock);
    for (int i = 0; i < SH_RANKS_MAX; i++) {
        if (board->rank[i].load.total == 0) continue;
        double s = (double)(board->rank[i].last_ns - board->rank[i].first_ns) * 1e-9;
        uint64_t bytes = board->rank[i].load.done - board->rank[i].first_done;
        out[count++] = (sh_load_row){i, board->rank[i].load, s > 0 ? (double)bytes / s : 0};
    }
    pthread_mutex_unlock(&board->lock);
    return count;
}

int sh_load_percent(const sh_load_state *load)
{
    return load->done >= load->total ? 100 : (int)((double)load->done * 100 / (double)load->total);
}

void sh_load_board_text(sh_load_board *board, char *out, size_t cap)
{
    sh_load_row rows[SH_RANKS_MAX];
    int count = sh_load_board_rows(board, rows);
    size_t len = 0;
    out[0] = '\0';
    for (int i = 0; i < count && len < cap; i++) {
        const sh_load_state *load = &rows[i].load;
        bool large = load->total >= 1000000000;
        len += (size_t)snprintf(out + len, cap - len, "%srank %d: %d %%", i > 0 ? ", " : "",
                                rows[i].rank, sh_load_percent(load));
        if (load->done < load->total && len < cap)
            len += (size_t)snprintf(out + len, cap - len, " of %.1f %s, %.1f MB/s%s",
                                    (double)load->total * (large ? 1e-9 : 1e-6),
                                    large ? "GB" : "MB", rows[i].rate * 1e-6,
                                    load->link > 0 ? " from rank 0" : "");
    }
}

void sh_load_board_json(sh_load_board *board, sh_buf *out)
{
    sh_load_row rows[SH_RANKS_MAX];
    int count = sh_load_board_rows(board, rows);
    sh_buf_add_char(out, '[');
    for (int i = 0; i < count; i++) {
        const sh_load_state *load = &rows[i].load;
        sh_buf_addf(out, "%s{\"rank\":%d,\"done\":%llu,\"total\":%llu,\"rate\":%.0f,\"linked\":%s}",
                    i == 0 ? "" : ",", rows[i].rank, (unsigned long long)load->done,
                    (unsigned long long)load->total, rows[i].rate,
                    load->link > 0 ? "true" : "false");
    }
    sh_buf_add_char(out, ']');
}
