/* sandbox_kernel.h - the interface between sandbox.c and the kernel-specific half; private to them.
 */
#ifndef SH_BASE_SANDBOX_KERNEL_H
#define SH_BASE_SANDBOX_KERNEL_H

/* Keeps other processes of the same user from inspecting this one, where supported. */
void sh_process_hide(void);

#endif
