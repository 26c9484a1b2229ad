/* The flag is cleared by the command when it starts the next answer. */
#include "cmd/support/interrupt.h"

#include "cmd/command.h"

#include <stddef.h>
#include <unistd.h>

volatile sig_atomic_t sh_interrupted;

static void on_interrupt(int signal)
{
    (void)signal;
    if (sh_interrupted != 0) _exit(SH_EXIT_INTERRUPTED);
    sh_interrupted = 1;
}

void sh_interrupt_catch(void)
{
    struct sigaction action = {.sa_handler = on_interrupt};
    sigaction(SIGINT, &action, NULL);
}
