/* sandbox_kernel.h - between sandbox.c and the system; nobody else includes it. */
#ifndef SH_BASE_SANDBOX_KERNEL_H
#define SH_BASE_SANDBOX_KERNEL_H

/* Keeps other processes of the same user from looking into this one, where the system can. */
void sh_process_hide(void);

#endif
