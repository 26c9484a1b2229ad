/* load_board.h - how far the ranks of a group are with loading, for those who wait.
 *
 * Rank 0 writes down what the ranks report, the others what they do themselves. The board is empty
 * when nobody is loading.
 *
 * Threads: any. */
#ifndef SH_ENGINE_LOAD_BOARD_H
#define SH_ENGINE_LOAD_BOARD_H

#include "base/buf.h"
#include "net/peer_messages.h"

typedef struct sh_load_board sh_load_board;

sh_load_board *sh_load_board_create(void);
void sh_load_board_free(sh_load_board *board);

/* What rank `rank` reports; `board` is an sh_load_board. */
void sh_load_board_set(void *board, int rank, const sh_load_state *load);
void sh_load_board_clear(sh_load_board *board);

typedef struct {
    int rank;
    sh_load_state load;
    double rate; /* bytes a second since it began; 0: not known */
} sh_load_row;

/* Copies the rows, by rank; returns their number. */
int sh_load_board_rows(sh_load_board *board, sh_load_row out[SH_RANKS_MAX]);

/* "rank 0: 100 %, rank 1: 34 % of 3.5 GB, 920.0 MB/s from rank 0"; "" when the board is empty. */
void sh_load_board_text(sh_load_board *board, char *out, size_t cap);

/* The same as JSON: [{"rank":1,"done":BYTES,"total":BYTES,"rate":BYTES A SECOND,"linked":true}];
 * linked: it comes from rank 0. */
void sh_load_board_json(sh_load_board *board, sh_buf *out);

/* Never 100 before the end. */
int sh_load_percent(const sh_load_state *load);

#endif
