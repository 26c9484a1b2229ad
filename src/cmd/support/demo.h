/* demo.h - where the demo model lies.
 *
 * Threads: pure function over the file system. */
#ifndef SH_CMD_SUPPORT_DEMO_H
#define SH_CMD_SUPPORT_DEMO_H

/* In this folder, or beside the program (which is in build/release, or installed). NULL when it is
 * nowhere. Owned by the caller. */
char *sh_demo_find(const char *program);

#endif
