/* interrupt.h - Ctrl-C for commands that stream an answer: the first stops the answer; another one
 * before the answer has stopped ends the program.
 *
 * Threads: the main thread. */
#ifndef SH_CMD_SUPPORT_INTERRUPT_H
#define SH_CMD_SUPPORT_INTERRUPT_H

#include <signal.h>

/* Not 0: stop the answer. */
extern volatile sig_atomic_t sh_interrupted;

/* Installs the handler. Before that Ctrl-C ends the program: there is no answer yet. */
void sh_interrupt_catch(void);

#endif
