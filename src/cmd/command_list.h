/* command_list.h - the list of all commands, each with the groups of options that it takes.
 *
 * To add a command, add a line here and define sh_command_NAME in its own file (command.h). Its bit
 * in option masks and its entries in help, completion and the reference page follow from that.
 *
 * An option row (support/options.c) names its commands as a mask: FOR(name) is one command, the
 * FOR_* masks below are all commands of a group. */
#ifndef SH_CMD_COMMAND_LIST_H
#define SH_CMD_COMMAND_LIST_H

#include <stdint.h>

/* Groups of options. */
enum {
    GROUP_MODEL = 1 << 0,       /* --model is resolved to a folder before the command runs */
    GROUP_MODEL_LATER = 1 << 1, /* --model is resolved by the command itself, perhaps elsewhere */
    GROUP_RANKS = 1 << 2,       /* forms a group of ranks */
    GROUP_COMPUTE = 1 << 3,     /* runs forward passes */
    GROUP_BATCHES = 1 << 4,     /* schedules many requests */
    GROUP_SERVER = 1 << 5,      /* starts ranks and the API */
    GROUP_HTTP = 1 << 6,        /* listens for HTTP, or starts what does */
    GROUP_CLIENT = 1 << 7,      /* sends prompts to a model, local or at --url */
    GROUP_STATE = 1 << 8,       /* uses the state folder of `launch` */
    GROUP_SSH = 1 << 9,         /* runs commands on other hosts */
    GROUP_CACHE = 1 << 10,      /* works on the folders of models, not on one model */
};

#define COMPUTES (GROUP_MODEL | GROUP_RANKS | GROUP_COMPUTE)
#define SERVES (GROUP_RANKS | GROUP_COMPUTE | GROUP_BATCHES)

/* In the order of `shoal help`. */
#define SH_COMMAND_LIST(X)                                                                         \
    X(help, 0)                                                                                     \
    X(completion, 0)                                                                               \
    X(serve, SERVES | GROUP_MODEL | GROUP_SERVER | GROUP_HTTP)                                     \
    X(engine, SERVES | GROUP_MODEL)                                                                \
    X(tokenize, GROUP_MODEL)                                                                       \
    X(bench, COMPUTES)                                                                             \
    X(chat, COMPUTES | GROUP_CLIENT)                                                               \
    X(generate, COMPUTES | GROUP_CLIENT)                                                           \
    X(template, GROUP_MODEL)                                                                       \
    X(info, GROUP_MODEL)                                                                           \
    X(logits, COMPUTES)                                                                            \
    X(synth, 0)                                                                                    \
    X(worker, SERVES | GROUP_MODEL)                                                                \
    X(join, SERVES | GROUP_MODEL)                                                                  \
    X(localai, SERVES | GROUP_CACHE)                                                               \
    X(plan, GROUP_MODEL)                                                                           \
    X(pull, GROUP_CACHE)                                                                           \
    X(models, GROUP_CACHE)                                                                         \
    X(linktest, GROUP_RANKS)                                                                       \
    X(hosts, GROUP_STATE | GROUP_SSH)                                                              \
    X(doctor, GROUP_MODEL_LATER | GROUP_SSH)                                                       \
    X(config, 0)                                                                                   \
    X(monitor, GROUP_STATE | GROUP_SSH)                                                            \
    X(fingerprint, GROUP_MODEL_LATER)                                                              \
    X(probe, 0)                                                                                    \
    X(token, 0)                                                                                    \
    X(launch, SERVES | GROUP_MODEL_LATER | GROUP_SERVER | GROUP_HTTP | GROUP_STATE | GROUP_SSH)    \
    X(stop, GROUP_STATE)                                                                           \
    X(restart, GROUP_STATE)                                                                        \
    X(status, GROUP_STATE | GROUP_SSH)                                                             \
    X(logs, GROUP_STATE)                                                                           \
    X(call, GROUP_STATE | GROUP_SSH)                                                               \
    X(bootstrap, GROUP_STATE | GROUP_SSH)                                                          \
    X(agent, GROUP_MODEL_LATER | GROUP_STATE)                                                      \
    X(api, GROUP_HTTP)

#define SH_COMMAND_INDEX(name, groups) SH_COMMAND_INDEX_##name,
enum { SH_COMMAND_LIST(SH_COMMAND_INDEX) SH_COMMAND_COUNT };
#undef SH_COMMAND_INDEX

#define FOR(name) (UINT64_C(1) << SH_COMMAND_INDEX_##name)
#define FOR_ALL UINT64_MAX

/* A group's mask is a constant expression over the list, so that static tables can use it. */
#define IN_GROUP(name, groups, group) | (((groups) & (group)) != 0 ? FOR(name) : 0)
#define IN_MODEL(name, groups) IN_GROUP(name, groups, GROUP_MODEL)
#define IN_MODEL_LATER(name, groups) IN_GROUP(name, groups, GROUP_MODEL_LATER)
#define IN_RANKS(name, groups) IN_GROUP(name, groups, GROUP_RANKS)
#define IN_COMPUTE(name, groups) IN_GROUP(name, groups, GROUP_COMPUTE)
#define IN_BATCHES(name, groups) IN_GROUP(name, groups, GROUP_BATCHES)
#define IN_SERVER(name, groups) IN_GROUP(name, groups, GROUP_SERVER)
#define IN_HTTP(name, groups) IN_GROUP(name, groups, GROUP_HTTP)
#define IN_CLIENT(name, groups) IN_GROUP(name, groups, GROUP_CLIENT)
#define IN_STATE(name, groups) IN_GROUP(name, groups, GROUP_STATE)
#define IN_SSH(name, groups) IN_GROUP(name, groups, GROUP_SSH)
#define IN_CACHE(name, groups) IN_GROUP(name, groups, GROUP_CACHE)

#define FOR_MODEL (0 SH_COMMAND_LIST(IN_MODEL))
#define FOR_MODEL_LATER (0 SH_COMMAND_LIST(IN_MODEL_LATER))
#define FOR_RANKS (0 SH_COMMAND_LIST(IN_RANKS))
#define FOR_COMPUTE (0 SH_COMMAND_LIST(IN_COMPUTE))
#define FOR_BATCHES (0 SH_COMMAND_LIST(IN_BATCHES))
#define FOR_SERVER (0 SH_COMMAND_LIST(IN_SERVER))
#define FOR_HTTP (0 SH_COMMAND_LIST(IN_HTTP))
#define FOR_CLIENT (0 SH_COMMAND_LIST(IN_CLIENT))
#define FOR_STATE (0 SH_COMMAND_LIST(IN_STATE))
#define FOR_SSH (0 SH_COMMAND_LIST(IN_SSH))
#define FOR_CACHE (0 SH_COMMAND_LIST(IN_CACHE))

/* Commands that find others by a token. */
#define FOR_P2P (FOR(serve) | FOR(worker) | FOR(join))

/* Commands that download a model which is not here. */
#define FOR_PULL (FOR_COMPUTE | FOR(pull))

#endif
