/* demo.h - finds the demo model.
 *
 * Threads: only reads the file system. */
#ifndef SH_CMD_SUPPORT_DEMO_H
#define SH_CMD_SUPPORT_DEMO_H

/* Looks in the current folder and near the program (which is in build/release, or installed). NULL
 * when it is not found. Owned by the caller. */
char *sh_demo_find(const char *program);

#endif
