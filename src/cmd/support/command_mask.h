/* command_mask.h - one bit a command, and the sets that share options. */
#ifndef SH_CMD_SUPPORT_COMMAND_MASK_H
#define SH_CMD_SUPPORT_COMMAND_MASK_H

#include <stdint.h>

#define FOR_HELP (UINT64_C(1) << 0)
#define FOR_COMPLETION (UINT64_C(1) << 1)
#define FOR_TOKENIZE (UINT64_C(1) << 2)
#define FOR_TEMPLATE (UINT64_C(1) << 3)
#define FOR_LOGITS (UINT64_C(1) << 4)
#define FOR_GENERATE (UINT64_C(1) << 5)
#define FOR_CHAT (UINT64_C(1) << 6)
#define FOR_INFO (UINT64_C(1) << 7)
#define FOR_SYNTH (UINT64_C(1) << 8)
#define FOR_BENCH (UINT64_C(1) << 9)
#define FOR_ENGINE (UINT64_C(1) << 10)
#define FOR_API (UINT64_C(1) << 11)
#define FOR_SERVE (UINT64_C(1) << 12)
#define FOR_LINKTEST (UINT64_C(1) << 13)
#define FOR_TOKEN (UINT64_C(1) << 14)
#define FOR_WORKER (UINT64_C(1) << 15)

#define FOR_PLAN (UINT64_C(1) << 16)
#define FOR_LAUNCH (UINT64_C(1) << 17)
#define FOR_AGENT (UINT64_C(1) << 18)
#define FOR_STOP (UINT64_C(1) << 19)
#define FOR_RESTART (UINT64_C(1) << 20)
#define FOR_STATUS (UINT64_C(1) << 21)
#define FOR_LOGS (UINT64_C(1) << 22)
#define FOR_CALL (UINT64_C(1) << 23)
#define FOR_BOOTSTRAP (UINT64_C(1) << 30)

#define FOR_HOSTS (UINT64_C(1) << 24)
#define FOR_CONFIG (UINT64_C(1) << 25)
#define FOR_DOCTOR (UINT64_C(1) << 26)
#define FOR_FINGERPRINT (UINT64_C(1) << 27)
#define FOR_PROBE (UINT64_C(1) << 28)
#define FOR_MONITOR (UINT64_C(1) << 29)

#define FOR_ALL UINT64_MAX
#define FOR_TALK (FOR_CHAT | FOR_GENERATE)
#define FOR_SERVER (FOR_SERVE | FOR_LAUNCH)
#define FOR_BATCHES (FOR_ENGINE | FOR_SERVER | FOR_WORKER)
#define FOR_HTTP (FOR_API | FOR_SERVER)
#define FOR_COMPUTE (FOR_LOGITS | FOR_GENERATE | FOR_CHAT | FOR_BENCH | FOR_BATCHES)
#define FOR_RANKS (FOR_LINKTEST | FOR_COMPUTE)
#define FOR_MODEL                                                                                  \
    ((FOR_COMPUTE & ~FOR_LAUNCH) | FOR_TOKENIZE | FOR_TEMPLATE | FOR_INFO | FOR_PLAN | FOR_AGENT)
/* Commands that look for the model's folder by themselves. */
#define FOR_MODEL_LATER (FOR_FINGERPRINT | FOR_DOCTOR | FOR_LAUNCH)
#define FOR_STATE                                                                                  \
    (FOR_LAUNCH | FOR_AGENT | FOR_STOP | FOR_RESTART | FOR_STATUS | FOR_LOGS | FOR_CALL |          \
     FOR_BOOTSTRAP)
#define FOR_SSH (FOR_LAUNCH | FOR_BOOTSTRAP | FOR_STATUS | FOR_CALL | FOR_HOSTS | FOR_DOCTOR)

#endif
