/* interrupt.h - Ctrl-C for commands that answer: the first one ends the answer, another one, while
 * that has not happened yet, the program.
 *
 * Threads: the main thread. */
#ifndef SH_CMD_SUPPORT_INTERRUPT_H
#define SH_CMD_SUPPORT_INTERRUPT_H

#include <signal.h>

/* Not 0: the answer shall end. */
extern volatile sig_atomic_t sh_interrupted;

/* From here on. Before it, Ctrl-C ends the program: there is no answer yet. */
void sh_interrupt_catch(void);

#endif
