/* bounds.h - the range of each number in a request: lowest, highest.
 *
 * The API's fields, the command line and the engine's own check all use these, so a value accepted
 * by one is never rejected by the next.
 *
 * Threads: constants. */
#ifndef SH_ENGINE_BOUNDS_H
#define SH_ENGINE_BOUNDS_H

#define SH_BOUNDS_MAX_TOKENS 1, (1 << 24)
#define SH_BOUNDS_MIN_TOKENS 0, (1 << 24)
#define SH_BOUNDS_TEMPERATURE 0, 2
#define SH_BOUNDS_TOP_K 0, (1 << 24)
#define SH_BOUNDS_TOP_P 0, 1
#define SH_BOUNDS_MIN_P 0, 1
#define SH_BOUNDS_REPETITION_PENALTY 0.01, 10
#define SH_BOUNDS_REPETITION_WINDOW 0, (1 << 20)
#define SH_BOUNDS_PRESENCE_PENALTY -2, 2
#define SH_BOUNDS_FREQUENCY_PENALTY -2, 2
#define SH_BOUNDS_LOGIT_BIAS -100, 100
#define SH_BOUNDS_LOGPROBS 0, 20

/* One end of a range, for initialisers. */
#define SH_BOUNDS_PICK_LEAST(least, most) (least)
#define SH_BOUNDS_PICK_MOST(least, most) (most)
#define SH_MIN_OF(...) SH_BOUNDS_PICK_LEAST(__VA_ARGS__)
#define SH_MAX_OF(...) SH_BOUNDS_PICK_MOST(__VA_ARGS__)

#endif
